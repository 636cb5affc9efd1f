//! Requests a lock or a barrier, and waits for it.

use super::super::AppState;
use super::super::problem::ProblemResponse;
use super::registry::{HoldingRegistry, RegisteredHolding};
use crate::clock::Clock;
use crate::holdings::{HoldRequest, HoldingName, ProcessName, Published};
use crate::random;
use crate::status::CommandError;
use recipes::Moment;
use recipes::holding::{End, HoldingSpec, HoldingState};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

/// How long a request that may not wait for others waits until it is known whether others are ahead.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A requested lock or barrier. Dropping it releases the lock, leaves the barrier, or stops waiting.
pub(super) struct HoldingHandle {
    /// The entry in the registry, which other requests find by its id.
    pub(super) entry: Arc<RegisteredHolding>,
    registry: HoldingRegistry,
    published: watch::Receiver<Published>,
    clock: Clock,
    /// The task that runs [`RegisteredHolding::release_in_time`].
    watchdog: AbortHandle,
}

/// The limit for waiting for a lock, or in front of a barrier.
#[derive(Clone, Copy)]
pub(super) struct WaitLimit {
    /// The end of the wait; `None` to wait for as long as the client waits.
    pub(super) until: Option<Moment>,
    /// True for a request that may not wait for others. It only waits until it is known whether others are ahead.
    is_attempt: bool,
}

impl AppState {
    /// Requests a lock, or to enter a barrier.
    pub(super) async fn request(
        &self,
        name: &HoldingName,
        wanted: HoldingSpec,
        process: Option<ProcessName>,
    ) -> Result<HoldingHandle, ProblemResponse> {
        let holdings = self.holdings()?;
        // Yield, so that no request is made if the client has closed the connection: see `AppState::command`.
        tokio::task::yield_now().await;
        let (publisher, published) = watch::channel(Published::default());
        let (release, released) = oneshot::channel();
        let request = HoldRequest { name: name.clone(), wanted, process, publisher, released };
        holdings.hold_requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => ProblemResponse::command_failed(CommandError::NotTaken),
            TrySendError::Closed(_) => refusal(name, wanted, End::Stopped),
        })?;
        let entry = Arc::new(RegisteredHolding {
            id: format!("{:032x}", random::id()),
            name: name.clone(),
            spec: wanted,
            since: self.clock.date(),
            published: published.clone(),
            release: Mutex::new(Some(release)),
            ends_at: watch::Sender::new(None),
            leave_requested: AtomicBool::new(false),
        });
        self.registry.add(&entry);
        let clock = self.clock;
        let watched = entry.clone();
        let watchdog = tokio::spawn(async move { watched.release_in_time(clock).await });
        Ok(HoldingHandle {
            entry,
            registry: self.registry.clone(),
            published,
            clock,
            watchdog: watchdog.abort_handle(),
        })
    }
}

impl HoldingHandle {
    /// Returns the state at the moment of the call, and marks it as seen: a later call of [`changed`](Self::changed)
    /// waits for a newer state.
    pub(super) fn state(&mut self) -> HoldingState {
        self.published.mark_unchanged();
        self.entry.state(self.clock.now())
    }

    /// Waits until `state` may be outdated, because a new state is published or the lease in `state` has ended.
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

    /// Waits until `is_pending` is false of the state, or until the limit is over. Returns the last state.
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
                () = clock.sleep_until(limit.until) => {}
            }
        }
    }

    /// Returns another receiver of the published state.
    pub(super) fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }
}

impl Drop for HoldingHandle {
    fn drop(&mut self) {
        self.watchdog.abort();
        self.entry.release();
        self.registry.remove(&self.entry);
    }
}

impl WaitLimit {
    /// Returns the limit of a request that was made at the moment `now`, and may wait for as long as `wait`.
    pub(super) fn of(wait: Option<Duration>, now: Moment) -> Self {
        let is_attempt = wait == Some(Duration::ZERO);
        let wait = if is_attempt { Some(ATTEMPT_TIMEOUT) } else { wait };
        Self { until: wait.map(|wait| now.after(wait)), is_attempt }
    }

    /// Returns true if a request in this state must not wait any longer. A request that is first in the queue
    /// (`ahead: Some(0)`) does not wait for others: it only needs a lease.
    pub(super) fn is_over(self, state: HoldingState, now: Moment) -> bool {
        let waits_for_others = match state {
            HoldingState::Waiting { ahead } => matches!(ahead, Some(1..)),
            HoldingState::Gathering { present } => present.is_some(),
            _ => return false,
        };
        self.until.is_some_and(|until| now >= until) || (self.is_attempt && waits_for_others)
    }
}

/// Returns the error for a request that ended without the lock or barrier.
pub(super) fn refusal(name: &HoldingName, wanted: HoldingSpec, ended: End) -> ProblemResponse {
    let (conflicting, failed) = match wanted {
        HoldingSpec::Lock(_) => ("other-mode", "not-locked"),
        HoldingSpec::Barrier(_) => ("other-size", "not-entered"),
    };
    match ended {
        End::Refused { found } => {
            ProblemResponse::conflict(conflicting, conflict(name, wanted, found))
        }
        End::TooMany => ProblemResponse::unavailable("too-many-locks", ended.to_string()),
        _ => ProblemResponse::unavailable(failed, ended.to_string()),
    }
}

/// Explains that the name is already in use with the mode or size `found`.
pub(super) fn conflict(name: &HoldingName, wanted: HoldingSpec, found: HoldingSpec) -> String {
    let rule = match wanted {
        HoldingSpec::Lock(_) => {
            "all requests for one lock must name the same number of slots, or none"
        }
        HoldingSpec::Barrier(_) => "all requests for one barrier must name the same size",
    };
    format!("{name} is in use as {found}, not as {wanted}: {rule}")
}
