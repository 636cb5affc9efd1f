//! The locks that are asked for by way of this member, for `/status` and `/metrics`.

use super::mode_words;
use crate::api::{LockState, OwnLock, date};
use crate::locks::{Judged, LockName, Published};
use recipes::Moment;
use recipes::lock::Mode;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::sync::watch;

/// In the order in which they were asked for.
#[derive(Clone, Default)]
pub(in super::super) struct AskedLocks(Arc<Mutex<BTreeMap<u64, Asked>>>);

struct Asked {
    name: LockName,
    mode: Mode,
    since: SystemTime,
    published: watch::Receiver<Published>,
}

/// One of them, which is forgotten when this is dropped.
pub(super) struct AskedLock {
    all: AskedLocks,
    number: u64,
}

impl AskedLocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Asked>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(
        &self,
        name: LockName,
        mode: Mode,
        since: SystemTime,
        published: watch::Receiver<Published>,
    ) -> AskedLock {
        let mut all = self.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, Asked { name, mode, since, published });
        AskedLock { all: self.clone(), number }
    }

    /// Returns how many are held and how many are waited for at this moment.
    pub(in super::super) fn counts(&self, now: Moment) -> (usize, usize) {
        let (mut held, mut waiting) = (0, 0);
        for asked in self.lock().values() {
            match asked.published.borrow().at(now) {
                Judged::Held { .. } => held += 1,
                Judged::Waiting { .. } => waiting += 1,
                Judged::Ended(_) => {}
            }
        }
        (held, waiting)
    }

    /// Returns how each stands at this moment.
    pub(in super::super) fn bodies(&self, now: Moment) -> Vec<OwnLock> {
        self.lock().values().filter_map(|asked| asked.body(now)).collect()
    }
}

impl Asked {
    fn body(&self, now: Moment) -> Option<OwnLock> {
        let (state, token) = match self.published.borrow().at(now) {
            Judged::Held { token, .. } => (LockState::Held, Some(token.0)),
            Judged::Waiting { .. } => (LockState::Waiting, None),
            Judged::Ended(_) => return None,
        };
        let (mode, slots) = mode_words(self.mode);
        let (lock, since) = (self.name.to_string(), date(self.since));
        Some(OwnLock { lock, mode, slots, state, token, since })
    }
}

impl Drop for AskedLock {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
