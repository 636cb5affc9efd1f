//! The locks and barriers that are asked for through this member, for `/status` and `/metrics`.

use super::mode_words;
use crate::api::{BarrierRole, LockState, OwnBarrier, OwnLock, date};
use crate::holdings::{HoldingName, HoldingView, Published};
use recipes::Moment;
use recipes::holding::HoldingSpec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::sync::watch;

/// In the order in which they were asked for.
#[derive(Clone, Default)]
pub(in super::super) struct HoldingRegistry(Arc<Mutex<BTreeMap<u64, RegisteredHolding>>>);

struct RegisteredHolding {
    name: HoldingName,
    wanted: HoldingSpec,
    since: SystemTime,
    published: watch::Receiver<Published>,
}

/// One of them, which is forgotten when this is dropped.
pub(super) struct HoldingRegistration {
    all: HoldingRegistry,
    number: u64,
}

impl HoldingRegistry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, RegisteredHolding>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(
        &self,
        name: HoldingName,
        wanted: HoldingSpec,
        since: SystemTime,
        published: watch::Receiver<Published>,
    ) -> HoldingRegistration {
        let mut all = self.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, RegisteredHolding { name, wanted, since, published });
        HoldingRegistration { all: self.clone(), number }
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

impl RegisteredHolding {
    fn lock(&self, now: Moment) -> Option<OwnLock> {
        let HoldingSpec::Lock(mode) = self.wanted else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            HoldingView::Held { token, .. } => (LockState::Held, Some(token.0)),
            HoldingView::Waiting { .. } => (LockState::Waiting, None),
            _ => return None,
        };
        let (mode, slots) = mode_words(mode);
        let lock = self.name.to_string();
        let since = date(self.since);
        Some(OwnLock { lock, mode, slots, state, token, since })
    }

    fn barrier(&self, now: Moment) -> Option<OwnBarrier> {
        let HoldingSpec::Barrier(size) = self.wanted else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            HoldingView::Held { token, .. } => (BarrierRole::Inside, Some(token.0)),
            HoldingView::Waiting { .. } | HoldingView::Gathering { .. } => {
                (BarrierRole::Waiting, None)
            }
            HoldingView::Leaving => (BarrierRole::Leaving, None),
            HoldingView::Ended(_) => return None,
        };
        let barrier = self.name.to_string();
        let since = date(self.since);
        Some(OwnBarrier { barrier, size: size.get(), state, token, since })
    }
}

impl Drop for HoldingRegistration {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
