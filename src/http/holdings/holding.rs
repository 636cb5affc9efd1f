//! One lock or barrier that a client asked for: how it stands, and how it is given back.

use super::super::AppState;
use super::super::claims::Claim;
use super::super::problem::ProblemResponse;
use super::registry::{HoldingRegistration, RegisteredHolding};
use crate::clock::Clock;
use crate::holdings::{Ask, Ended, HoldingName, HoldingView, ProcessName, Published};
use crate::status::CommandError;
use recipes::Moment;
use recipes::holding::HoldingSpec;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{oneshot, watch};

/// How long a client that does not wait is kept, until it is known whether others are ahead.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A lock or barrier that is asked for. It is given back or left, or not waited for any more, when this is dropped.
pub(super) struct HoldingHandle {
    published: watch::Receiver<Published>,
    clock: Clock,
    pub(super) release: Release,
    pub(super) registration: HoldingRegistration,
}

/// Gives a lock back, or leaves a barrier.
#[derive(Clone)]
pub(super) struct Release(Arc<Mutex<Option<oneshot::Sender<Infallible>>>>);

/// Until when to wait for a lock, or in front of a barrier.
#[derive(Clone, Copy)]
pub(super) struct WaitLimit {
    /// `None`: for as long as the client does.
    until: Option<Moment>,
    /// The rest of the time limit while the state is unknown.
    to_try: Duration,
}

impl AppState {
    /// Asks for a lock, or to enter a barrier.
    pub(super) async fn ask_for(
        &self,
        name: &HoldingName,
        wanted: HoldingSpec,
        process: Option<ProcessName>,
    ) -> Result<HoldingHandle, ProblemResponse> {
        let holdings = self.holdings()?;
        // One whose client has closed the connection by now is not asked for: see `AppState::command`.
        tokio::task::yield_now().await;
        let (publisher, published) = watch::channel(Published::default());
        let (release, released) = oneshot::channel();
        let ask = Ask { name: name.clone(), wanted, process, published: publisher, released };
        holdings.asks.try_send(ask).map_err(|error| match error {
            TrySendError::Full(_) => ProblemResponse::undone(CommandError::NotTaken),
            TrySendError::Closed(_) => refusal(name, wanted, Ended::Stopped),
        })?;
        let release = Release(Arc::new(Mutex::new(Some(release))));
        let registration = self.asked.add(RegisteredHolding {
            name: name.clone(),
            spec: wanted,
            since: self.clock.date(),
            published: published.clone(),
            release: release.clone(),
        });
        Ok(HoldingHandle { published, clock: self.clock, release, registration })
    }
}

impl HoldingHandle {
    /// Judges it at the moment of the call.
    pub(super) fn judge(&mut self) -> HoldingView {
        // Asked before: what is published last is not missed.
        let is_over = self.is_gone();
        let judged = self.published.borrow_and_update().at(self.clock.now());
        match judged {
            HoldingView::Ended(_) => judged,
            _ if is_over => HoldingView::Ended(Ended::Stopped),
            _ => judged,
        }
    }

    /// Waits until it may be judged to be otherwise.
    pub(super) async fn changed(&mut self, judged: HoldingView) {
        let lease_end = match judged {
            HoldingView::Held { until, .. } => Some(until),
            _ => None,
        };
        tokio::select! {
            _ = self.published.changed() => {}
            () = self.clock.sleep_until(lease_end) => {}
        }
    }

    /// Waits until it is held, has ended, or is not waited for any more.
    pub(super) async fn settled(&mut self, patience: WaitLimit) -> HoldingView {
        let clock = self.clock;
        loop {
            let judged = self.judge();
            let now = clock.now();
            if !judged.is_waiting() || patience.is_over(judged, now) {
                return judged;
            }
            tokio::select! {
                () = self.changed(judged) => {}
                () = clock.sleep_until(patience.next(now)) => {}
            }
        }
    }

    /// Waits until it is known how it stands, but no longer than this.
    pub(super) async fn known(&mut self, at_most: Duration) -> HoldingView {
        let known = async {
            loop {
                match self.judge() {
                    judged if judged.is_unknown() => self.changed(judged).await,
                    judged => return judged,
                }
            }
        };
        match tokio::time::timeout(at_most, known).await {
            Ok(judged) => judged,
            Err(_) => self.judge(),
        }
    }

    /// Returns where its standing is published.
    pub(super) fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Whether nothing is left of it in ZooKeeper, or its runner has died.
    pub(super) fn is_gone(&self) -> bool {
        self.published.has_changed().is_err()
    }

    /// Waits until nothing is left of it in ZooKeeper.
    pub(super) async fn gone(&mut self) {
        while self.published.changed().await.is_ok() {}
    }

    /// Returns the claim of an answer that it is held, and until then at the longest.
    pub(super) fn claim(&self, at_most: Option<Moment>) -> Claim {
        let Self { published, clock, .. } = self;
        let published = published.clone();
        let clock = *clock;
        Box::new(move || {
            let now = clock.now();
            let judged = published.borrow().at(now);
            match judged {
                HoldingView::Held { .. } => {
                    published.has_changed().is_ok() && at_most.is_none_or(|end| now < end)
                }
                // By its client's own wish.
                HoldingView::Leaving | HoldingView::Ended(Ended::AllLeft) => true,
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
    /// Begins now.
    pub(super) fn of(wait: Option<Duration>, now: Moment) -> Self {
        let to_try = if wait == Some(Duration::ZERO) { ATTEMPT_TIMEOUT } else { Duration::ZERO };
        Self { until: wait.map(|wait| now.after(wait)), to_try }
    }

    pub(super) fn is_over(self, judged: HoldingView, now: Moment) -> bool {
        let waits_for_others = match judged {
            HoldingView::Waiting { ahead } => ahead > Some(0),
            HoldingView::Gathering { present } => present.is_some(),
            _ => return false,
        };
        let to_try = if waits_for_others { Duration::ZERO } else { self.to_try };
        self.until.is_some_and(|until| now >= until.after(to_try))
    }

    /// When to look next.
    pub(super) fn next(self, now: Moment) -> Option<Moment> {
        self.until.map(|until| if now < until { until } else { until.after(self.to_try) })
    }
}

/// Returns the answer to one who gets nothing, and has nothing to wait for.
pub(super) fn refusal(name: &HoldingName, wanted: HoldingSpec, ended: Ended) -> ProblemResponse {
    let why = ended.to_string();
    match (ended, wanted) {
        (Ended::Refused { found }, HoldingSpec::Lock(_)) => {
            let title = "the lock is one of another kind";
            ProblemResponse::conflict("other-mode", title, kinds(name, wanted, found))
        }
        (Ended::Refused { found }, HoldingSpec::Barrier(_)) => {
            let title = "the barrier is of another size";
            ProblemResponse::conflict("other-size", title, kinds(name, wanted, found))
        }
        (Ended::TooMany, _) => {
            ProblemResponse::unavailable("too-many-locks", "too many locks and barriers", why)
        }
        (_, HoldingSpec::Lock(_)) => ProblemResponse::unavailable("not-locked", "not locked", why),
        (_, HoldingSpec::Barrier(_)) => {
            ProblemResponse::unavailable("not-entered", "not entered", why)
        }
    }
}

pub(super) fn kinds(name: &HoldingName, wanted: HoldingSpec, found: HoldingSpec) -> String {
    let rule = match wanted {
        HoldingSpec::Lock(_) => {
            "all who ask for one lock have to name the same number of slots, or none"
        }
        HoldingSpec::Barrier(_) => "all who use one barrier have to name the same size",
    };
    format!("another asked before for {name}, {found}, and not {wanted}: {rule}")
}
