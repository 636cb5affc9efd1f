//! The locks and barriers that were requested through this member, for `/status`, for `/metrics`, and for requests that name
//! one of them by its id.

use super::holding::Release;
use crate::api::{BarrierRole, LockMode, LockState, OwnBarrier, OwnLock, date};
use crate::clock::Clock;
use crate::holdings::{HoldingName, Published};
use recipes::Moment;
use recipes::holding::{End, HoldingSpec, HoldingState};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::sync::watch;

/// The entries, in the order of the requests. Clones share them.
#[derive(Clone, Default)]
pub(in super::super) struct HoldingRegistry(Arc<Mutex<Entries>>);

type Entries = BTreeMap<u64, Arc<RegisteredHolding>>;

pub(super) struct RegisteredHolding {
    /// The id by which the client refers to it.
    pub(super) id: String,
    pub(super) name: HoldingName,
    pub(super) spec: HoldingSpec,
    pub(super) since: SystemTime,
    pub(super) published: watch::Receiver<Published>,
    pub(super) release: Release,
    /// Set when the client asks to leave the barrier.
    pub(super) leaves: AtomicBool,
}

/// An entry of the registry, which is removed when this is dropped.
pub(super) struct HoldingRegistration {
    all: HoldingRegistry,
    number: u64,
    pub(super) entry: Arc<RegisteredHolding>,
}

impl HoldingRegistry {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(&self, holding: RegisteredHolding) -> HoldingRegistration {
        let entry = Arc::new(holding);
        let mut all = self.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, entry.clone());
        HoldingRegistration { all: self.clone(), number, entry }
    }

    /// Makes a participant that is inside a barrier leave the barrier. Returns its state before that.
    pub(super) fn leave(&self, name: &HoldingName, id: &str, clock: Clock) -> HoldingState {
        let all = self.lock();
        let holding = all.values().find(|holding| {
            let is_barrier = matches!(holding.spec, HoldingSpec::Barrier(_));
            is_barrier && holding.id == id && holding.name == *name
        });
        let Some(holding) = holding else { return HoldingState::Ended(End::Released) };
        let state = holding.published.borrow().at(clock.now());
        if matches!(state, HoldingState::Held { .. } | HoldingState::Leaving) {
            holding.leaves.store(true, Ordering::Relaxed);
            holding.release.release();
        }
        state
    }

    /// Returns how many locks are in each state at this moment.
    pub(in super::super) fn locks_counted(&self, now: Moment) -> [([&'static str; 1], f64); 2] {
        let all = self.locks(now);
        [("held", LockState::Held), ("waiting", LockState::Waiting)].map(|(name, state)| {
            ([name], all.iter().filter(|lock| lock.state == state).count() as f64)
        })
    }

    /// Returns how many participants of barriers are in each state at this moment.
    pub(in super::super) fn barriers_counted(&self, now: Moment) -> [([&'static str; 1], f64); 3] {
        let all = self.barriers(now);
        let states = [
            ("waiting", BarrierRole::Waiting),
            ("inside", BarrierRole::Inside),
            ("leaving", BarrierRole::Leaving),
        ];
        states.map(|(name, state)| {
            ([name], all.iter().filter(|barrier| barrier.state == state).count() as f64)
        })
    }

    /// Returns the state of each lock at this moment.
    pub(in super::super) fn locks(&self, now: Moment) -> Vec<OwnLock> {
        self.lock().values().filter_map(|holding| holding.lock(now)).collect()
    }

    /// Returns the state of each participant of a barrier at this moment.
    pub(in super::super) fn barriers(&self, now: Moment) -> Vec<OwnBarrier> {
        self.lock().values().filter_map(|holding| holding.barrier(now)).collect()
    }
}

impl RegisteredHolding {
    fn lock(&self, now: Moment) -> Option<OwnLock> {
        let HoldingSpec::Lock(mode) = self.spec else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            HoldingState::Held { token, .. } => (LockState::Held, Some(token.0)),
            HoldingState::Waiting { .. } => (LockState::Waiting, None),
            _ => return None,
        };
        let (mode, slots) = LockMode::of(mode);
        let lock = self.name.to_string();
        let since = date(self.since);
        Some(OwnLock { lock, mode, slots, state, token, since })
    }

    fn barrier(&self, now: Moment) -> Option<OwnBarrier> {
        let HoldingSpec::Barrier(size) = self.spec else { return None };
        let (state, token) = match self.published.borrow().at(now) {
            HoldingState::Held { token, .. } => (BarrierRole::Inside, Some(token.0)),
            HoldingState::Waiting { .. } | HoldingState::Gathering { .. } => {
                (BarrierRole::Waiting, None)
            }
            HoldingState::Leaving => (BarrierRole::Leaving, None),
            HoldingState::Ended(_) => return None,
        };
        let barrier = self.name.to_string();
        let since = date(self.since);
        Some(OwnBarrier { barrier, size: size.get(), state, token, since })
    }

    /// Returns true if the client has asked to leave the barrier.
    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

impl Drop for HoldingRegistration {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
