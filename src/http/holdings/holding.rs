//! One lock or barrier that a client requested: its state and its release.

use super::super::AppState;
use super::super::claims::Claim;
use super::super::problem::ProblemResponse;
use super::process_name;
use super::registry::{HoldingRegistration, RegisteredHolding};
use crate::clock::Clock;
use crate::holdings::{Ask, HoldingName, Published};
use crate::random;
use crate::status::CommandError;
use recipes::Moment;
use recipes::holding::{End, HoldingSpec, HoldingState};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{oneshot, watch};

/// How long a request that may not wait is kept until it is known whether others are ahead.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A requested lock or barrier. Dropping it releases the lock, leaves the barrier, or stops waiting.
pub(super) struct HoldingHandle {
    published: watch::Receiver<Published>,
    clock: Clock,
    pub(super) release: Release,
    pub(super) registration: HoldingRegistration,
}

/// Releases a lock, leaves a barrier, or stops waiting.
#[derive(Clone)]
pub(super) struct Release(Arc<Mutex<Option<oneshot::Sender<Infallible>>>>);

/// Until when to wait for a lock, or in front of a barrier.
#[derive(Clone, Copy)]
pub(super) struct WaitLimit {
    /// `None`: for as long as the client waits.
    until: Option<Moment>,
    /// How much longer to wait while it is not known whether others are ahead.
    to_try: Duration,
}

impl AppState {
    /// Requests a lock, or to enter a barrier.
    pub(super) async fn request(
        &self,
        name: &HoldingName,
        wanted: HoldingSpec,
        process: Option<String>,
    ) -> Result<HoldingHandle, ProblemResponse> {
        let holdings = self.holdings()?;
        let process = process_name(process)?;
        // Do not make the request if the client has closed the connection by now: see `AppState::command`.
        tokio::task::yield_now().await;
        let (publisher, published) = watch::channel(Published::default());
        let (release, released) = oneshot::channel();
        let ask = Ask { name: name.clone(), wanted, process, published: publisher, released };
        holdings.asks.try_send(ask).map_err(|error| match error {
            TrySendError::Full(_) => ProblemResponse::undone(CommandError::NotTaken),
            TrySendError::Closed(_) => refusal(name, wanted, End::Stopped),
        })?;
        let release = Release(Arc::new(Mutex::new(Some(release))));
        let registration = self.registry.add(RegisteredHolding {
            id: format!("{:032x}", random::id()),
            name: name.clone(),
            spec: wanted,
            since: self.clock.date(),
            published: published.clone(),
            release: release.clone(),
            leaves: AtomicBool::new(false),
        });
        Ok(HoldingHandle { published, clock: self.clock, release, registration })
    }
}

impl HoldingHandle {
    /// Returns the state at the moment of the call.
    pub(super) fn state(&mut self) -> HoldingState {
        // Check this before reading the channel, so that the final state is not missed.
        let is_over = self.is_gone();
        let state = self.published.borrow_and_update().at(self.clock.now());
        match state {
            HoldingState::Ended(_) => state,
            _ if is_over => HoldingState::Ended(End::Stopped),
            _ => state,
        }
    }

    /// Waits until the state may have changed: a new state, or the end of the lease.
    pub(super) async fn changed(&mut self, state: HoldingState) {
        let lease_end = match state {
            HoldingState::Held { until, .. } => Some(until),
            _ => None,
        };
        tokio::select! {
            _ = self.published.changed() => {}
            () = self.clock.sleep_until(lease_end) => {}
        }
    }

    /// Waits while `is_pending` is true of the state, until the wait limit is over. Returns the state.
    pub(super) async fn wait_while(
        &mut self,
        is_pending: fn(HoldingState) -> bool,
        limit: WaitLimit,
    ) -> HoldingState {
        let clock = self.clock;
        loop {
            let state = self.state();
            let now = clock.now();
            if !is_pending(state) || limit.is_over(state, now) {
                return state;
            }
            tokio::select! {
                () = self.changed(state) => {}
                () = clock.sleep_until(limit.next(now)) => {}
            }
        }
    }

    /// Returns another receiver of the published state.
    pub(super) fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Returns true if nothing of the lock or barrier is left in ZooKeeper, or if the runner has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.published.has_changed().is_err()
    }

    /// Waits until nothing of the lock or barrier is left in ZooKeeper.
    pub(super) async fn gone(&mut self) {
        while self.published.changed().await.is_ok() {}
    }

    /// Returns the claim that the lock is held or the barrier is entered. The claim ends at `at_most`, if not earlier.
    pub(super) fn claim(&self, at_most: Option<Moment>) -> Claim {
        let Self { published, clock, .. } = self;
        let published = published.clone();
        let clock = *clock;
        Box::new(move || {
            let now = clock.now();
            let state = published.borrow().at(now);
            match state {
                HoldingState::Held { .. } => {
                    published.has_changed().is_ok() && at_most.is_none_or(|end| now < end)
                }
                // The client itself asked to leave.
                HoldingState::Leaving | HoldingState::Ended(End::AllLeft) => true,
                _ => false,
            }
        })
    }
}

impl Release {
    pub(super) fn release(&self) {
        self.0.lock().expect("no code panics while holding it").take();
    }
}

impl Drop for HoldingHandle {
    fn drop(&mut self) {
        self.release.release();
    }
}

impl WaitLimit {
    /// Starts the limit now.
    pub(super) fn of(wait: Option<Duration>, now: Moment) -> Self {
        let to_try = if wait == Some(Duration::ZERO) { ATTEMPT_TIMEOUT } else { Duration::ZERO };
        Self { until: wait.map(|wait| now.after(wait)), to_try }
    }

    /// Returns true if a request in this state has waited for long enough.
    pub(super) fn is_over(self, state: HoldingState, now: Moment) -> bool {
        let waits_for_others = match state {
            HoldingState::Waiting { ahead } => ahead > Some(0),
            HoldingState::Gathering { present } => present.is_some(),
            _ => return false,
        };
        let to_try = if waits_for_others { Duration::ZERO } else { self.to_try };
        self.until.is_some_and(|until| now >= until.after(to_try))
    }

    /// Returns when to check the limit again.
    pub(super) fn next(self, now: Moment) -> Option<Moment> {
        self.until.map(|until| if now < until { until } else { until.after(self.to_try) })
    }
}

/// Returns the error for a request that ended without the lock or barrier.
pub(super) fn refusal(name: &HoldingName, wanted: HoldingSpec, ended: End) -> ProblemResponse {
    let why = ended.to_string();
    match (ended, wanted) {
        (End::Refused { found }, HoldingSpec::Lock(_)) => {
            let title = "the lock is one of another kind";
            ProblemResponse::conflict("other-mode", title, kinds(name, wanted, found))
        }
        (End::Refused { found }, HoldingSpec::Barrier(_)) => {
            let title = "the barrier is of another size";
            ProblemResponse::conflict("other-size", title, kinds(name, wanted, found))
        }
        (End::TooMany, _) => {
            ProblemResponse::unavailable("too-many-locks", "too many locks and barriers", why)
        }
        (_, HoldingSpec::Lock(_)) => ProblemResponse::unavailable("not-locked", "not locked", why),
        (_, HoldingSpec::Barrier(_)) => {
            ProblemResponse::unavailable("not-entered", "not entered", why)
        }
    }
}

/// Explains that the name is already in use with another mode or size.
pub(super) fn kinds(name: &HoldingName, wanted: HoldingSpec, found: HoldingSpec) -> String {
    let rule = match wanted {
        HoldingSpec::Lock(_) => {
            "all who ask for one lock have to name the same number of slots, or none"
        }
        HoldingSpec::Barrier(_) => "all who use one barrier have to name the same size",
    };
    format!("another asked before for {name}, {found}, and not {wanted}: {rule}")
}
