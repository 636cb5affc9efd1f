//! The locks and barriers that are asked for through this member, for `/status` and `/metrics`.

use super::mode_words;
use crate::api::{BarrierRole, LockState, OwnBarrier, OwnLock, date};
use crate::holdings::{HoldingName, Judged, Published};
use recipes::Moment;
use recipes::holding::Wanted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::sync::watch;

/// In the order in which they were asked for.
#[derive(Clone, Default)]
pub(in super::super) struct AskedHoldings(Arc<Mutex<BTreeMap<u64, Asked>>>);

struct Asked {
    name: HoldingName,
    wanted: Wanted,
    since: SystemTime,
    published: watch::Receiver<Published>,
}

/// One of them, which is forgotten when this is dropped.
pub(super) struct AskedHolding {
    all: AskedHoldings,
    number: u64,
}

impl AskedHoldings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Asked>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(
        &self,
        name: HoldingName,
        wanted: Wanted,
        since: SystemTime,
        published: watch::Receiver<Published>,
    ) -> AskedHolding {
        let mut all = self.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, Asked { name, wanted, since, published });
        AskedHolding { all: self.clone(), number }
    }

    /// Returns how many locks are in each state at this moment.
    pub(in super::super) fn locks_counted(&self, now: Moment) -> [(&'static str, usize); 2] {
        let count = |state| self.locks(now).iter().filter(|lock| lock.state == state).count();
        [("held", count(LockState::Held)), ("waiting", count(LockState::Waiting))]
    }

    /// Returns how many are at barriers in each state at this moment.
    pub(in super::super) fn barriers_counted(&self, now: Moment) -> [(&'static str, usize); 3] {
        let all = self.barriers(now);
        let count = |state| all.iter().filter(|barrier| barrier.state == state).count();
        [
            ("waiting", count(BarrierRole::Waiting)),
            ("inside", count(BarrierRole::Inside)),
            ("leaving", count(BarrierRole::Leaving)),
        ]
    }

    /// Returns how each lock stands at this moment.
    pub(in super::super) fn locks(&self, now: Moment) -> Vec<OwnLock> {
        self.lock().values().filter_map(|asked| asked.lock(now)).collect()
    }

    /// Returns how each member of a barrier stands at this moment.
    pub(in super::super) fn barriers(&self, now: Moment) -> Vec<OwnBarrier> {
        self.lock().values().filter_map(|asked| asked.barrier(now)).collect()
    }
}

impl Asked {
    fn lock(&self, now: Moment) -> Option<OwnLock> {
        let Wanted::Lock(mode) = self.wanted else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            Judged::Held { token, .. } => (LockState::Held, Some(token.0)),
            Judged::Waiting { .. } => (LockState::Waiting, None),
            Judged::Gathering { .. } | Judged::Leaving | Judged::Ended(_) => return None,
        };
        let (mode, slots) = mode_words(mode);
        let lock = self.name.to_string();
        let since = date(self.since);
        Some(OwnLock { lock, mode, slots, state, token, since })
    }

    fn barrier(&self, now: Moment) -> Option<OwnBarrier> {
        let Wanted::Barrier(size) = self.wanted else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            Judged::Held { token, .. } => (BarrierRole::Inside, Some(token.0)),
            Judged::Waiting { .. } | Judged::Gathering { .. } => (BarrierRole::Waiting, None),
            Judged::Leaving => (BarrierRole::Leaving, None),
            Judged::Ended(_) => return None,
        };
        let barrier = self.name.to_string();
        let since = date(self.since);
        Some(OwnBarrier { barrier, size: size.get(), state, token, since })
    }
}

impl Drop for AskedHolding {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
