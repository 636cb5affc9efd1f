//! The locks and barriers that were requested through this member and are not over, for `/status`, for `/metrics`, and
//! for requests that name one of them by its id.

use super::super::claims::Claim;
use crate::api::{LockMode, OwnBarrier, OwnHoldingState, OwnLock, date};
use crate::clock::Clock;
use crate::holdings::{HoldingName, Published};
use recipes::holding::{End, HoldingKind, HoldingSpec, HoldingState};
use recipes::{FencingToken, Moment};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::sync::{oneshot, watch};

/// The requested locks and barriers, in the order of the requests. Clones share the entries.
#[derive(Clone, Default)]
pub(in super::super) struct HoldingRegistry(Arc<Mutex<Vec<Arc<RegisteredHolding>>>>);

/// A requested lock or barrier.
pub(super) struct RegisteredHolding {
    /// The id by which the client refers to the lock, or to its place at the barrier.
    pub(super) id: String,
    pub(super) name: HoldingName,
    pub(super) spec: HoldingSpec,
    /// The time of the request.
    pub(super) since: SystemTime,
    pub(super) published: watch::Receiver<Published>,
    /// Dropped to release the lock, to leave the barrier, or to stop waiting, whoever decides that.
    pub(super) release: Mutex<Option<oneshot::Sender<Infallible>>>,
    /// The moment when the watchdog releases the lock or leaves the barrier; `None` until the client was sent a lease. For a
    /// client with a stream, this is the end of the last lease that was sent: no further lease is sent to one that stops
    /// reading. For a client with a TTL, it is the end of the TTL, which the client can renew.
    pub(super) ends_at: watch::Sender<Option<Moment>>,
    /// Set if the client itself has requested to leave the barrier. Its stream then reports when all have left; without such
    /// a request, it reports at once that the participant is no longer inside.
    pub(super) leave_requested: AtomicBool,
}

impl HoldingRegistry {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<RegisteredHolding>>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(&self, holding: &Arc<RegisteredHolding>) {
        self.lock().push(holding.clone());
    }

    pub(super) fn remove(&self, holding: &Arc<RegisteredHolding>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, holding));
    }

    /// Returns the lock or barrier with this name and id.
    pub(super) fn find(
        &self,
        kind: HoldingKind,
        name: &HoldingName,
        id: &str,
    ) -> Option<Arc<RegisteredHolding>> {
        let all = self.lock();
        let mut of_name =
            all.iter().filter(|holding| holding.spec.kind() == kind && holding.name == *name);
        of_name.find(|holding| holding.id == id).cloned()
    }

    /// Returns the state of each lock at this moment.
    pub(in super::super) fn locks(&self, now: Moment) -> Vec<OwnLock> {
        self.lock().iter().filter_map(|holding| holding.as_lock(now)).collect()
    }

    /// Returns the state of each participant of a barrier at this moment.
    pub(in super::super) fn barriers(&self, now: Moment) -> Vec<OwnBarrier> {
        self.lock().iter().filter_map(|holding| holding.as_barrier(now)).collect()
    }
}

impl RegisteredHolding {
    /// Returns the state at this moment.
    pub(super) fn state(&self, now: Moment) -> HoldingState {
        // Check this before the channel is read: a final state may be published in between, and must be the result.
        let is_gone = self.is_gone();
        match self.published.borrow().at(now) {
            state @ HoldingState::Ended(_) => state,
            _ if is_gone => HoldingState::Ended(End::Stopped),
            state => state,
        }
    }

    /// Returns the token, the end of the lease, and the end of the TTL, which may be later; `None` unless the lock is held for a
    /// TTL at this moment.
    pub(super) fn held_for_ttl(&self, now: Moment) -> Option<(FencingToken, Moment, Moment)> {
        let ends_at = (*self.ends_at.borrow()).filter(|ends_at| now < *ends_at)?;
        match self.state(now) {
            HoldingState::Held { token, until } => Some((token, until, ends_at)),
            _ => None,
        }
    }

    /// Returns true if the lock or barrier is over and its znode is deleted, or if the runner has ended. In both cases,
    /// the sender is dropped.
    fn is_gone(&self) -> bool {
        self.published.has_changed().is_err()
    }

    /// Waits until the lock or barrier is over and its znode is deleted, or until the runner has ended.
    pub(super) async fn gone(&self) {
        let mut published = self.published.clone();
        while published.changed().await.is_ok() {}
    }

    /// Releases the lock, leaves the barrier, or stops waiting.
    pub(super) fn release(&self) {
        self.release.lock().expect("no code panics while holding it").take();
    }

    /// Waits until the moment `ends_at`, which may move meanwhile, and releases the lock or leaves the barrier then.
    pub(super) async fn release_in_time(&self, clock: Clock) {
        let mut ends_at = self.ends_at.subscribe();
        loop {
            let end = *ends_at.borrow_and_update();
            if end.is_some_and(|end| end <= clock.now()) {
                return self.release();
            }
            tokio::select! {
                _ = ends_at.changed() => {}
                () = clock.sleep_until(end) => {}
            }
        }
    }

    /// Returns the claim that the lock is held or the barrier is entered. The claim ends at `latest_end` at the latest.
    pub(super) fn claim(&self, clock: Clock, latest_end: Option<Moment>) -> Claim {
        let published = self.published.clone();
        Box::new(move || {
            let now = clock.now();
            let state = published.borrow().at(now);
            match state {
                HoldingState::Held { .. } => {
                    published.has_changed().is_ok() && latest_end.is_none_or(|end| now < end)
                }
                // The client itself has requested to leave, so it does not rely on being inside.
                HoldingState::Leaving | HoldingState::Ended(End::AllLeft) => true,
                _ => false,
            }
        })
    }

    /// Makes a participant that is inside the barrier leave it. Does nothing in any other state. Returns the state
    /// before that.
    pub(super) fn leave(&self, now: Moment) -> HoldingState {
        let state = self.published.borrow().at(now);
        if matches!(state, HoldingState::Held { .. } | HoldingState::Leaving) {
            self.leave_requested.store(true, Ordering::Relaxed);
            self.release();
        }
        state
    }

    /// Returns true if the client has requested to leave the barrier.
    pub(super) fn leave_requested(&self) -> bool {
        self.leave_requested.load(Ordering::Relaxed)
    }

    /// Returns the lock for `/status`; `None` for a barrier, and for a lock that is over.
    fn as_lock(&self, now: Moment) -> Option<OwnLock> {
        let HoldingSpec::Lock(mode) = self.spec else { return None };
        let (state, token) = self.own_state(now)?;
        let (mode, slots) = LockMode::of(mode);
        let lock = self.name.to_string();
        let since = date(self.since);
        Some(OwnLock { lock, mode, slots, state, token, since })
    }

    /// Returns the barrier for `/status`; `None` for a lock, and for a barrier that is over.
    fn as_barrier(&self, now: Moment) -> Option<OwnBarrier> {
        let HoldingSpec::Barrier(size) = self.spec else { return None };
        let (state, token) = self.own_state(now)?;
        let barrier = self.name.to_string();
        let since = date(self.since);
        Some(OwnBarrier { barrier, size: size.get(), state, token, since })
    }

    /// Returns the state for `/status`, and the token, if the lock is held or the barrier entered; `None` once it is over.
    fn own_state(&self, now: Moment) -> Option<(OwnHoldingState, Option<u64>)> {
        let held = match self.spec {
            HoldingSpec::Lock(_) => OwnHoldingState::Held,
            HoldingSpec::Barrier(_) => OwnHoldingState::Inside,
        };
        match self.published.borrow().at(now) {
            HoldingState::Held { token, .. } => Some((held, Some(token.0))),
            HoldingState::Leaving => Some((OwnHoldingState::Leaving, None)),
            HoldingState::Ended(_) => None,
            _ => Some((OwnHoldingState::Waiting, None)),
        }
    }
}
