//! A lock that is held, or a barrier that is entered, for as long as its client's connection is open, told of by
//! server-sent events.

use super::super::AppState;
use super::super::claims::ConnectionClaims;
use super::super::sse::{self, EventSource, framed};
use super::holding::{HoldingHandle, WaitLimit, kinds};
use super::locks::{look_into, place};
use super::{NO_ANSWER, held_body};
use crate::api::{self, BarrierEntered, BarrierWaiting, LockEnded, LockWaiting};
use crate::byte_budget::ReservedBytes;
use crate::holdings::{Ended, HoldingName, HoldingView};
use axum::body::Bytes;
use axum::response::Response;
use recipes::holding::HoldingSpec;
use recipes::lock::Mode;
use recipes::{FencingToken, Moment};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;

/// Why a lock or barrier is lost whose client takes nothing.
const UNREAD: &str = "nothing was read for as long as the lease ran";

struct HoldingStream {
    app: AppState,
    name: HoldingName,
    spec: HoldingSpec,
    holding: HoldingHandle,
    patience: WaitLimit,
    /// The state that the client was sent last. One that leaves a barrier is sent nothing: it asked for that.
    sent: Option<HoldingView>,
    /// The lock is held until its client releases it, even while the member leaves.
    is_held_to_the_end: bool,
    claims: ConnectionClaims,
    /// Until when the client was last told that it holds.
    told_until: watch::Sender<Option<Moment>>,
    watchdog: AbortHandle,
}

/// Answers with the stream.
pub(super) fn stream(
    app: AppState,
    permit: OwnedSemaphorePermit,
    name: HoldingName,
    spec: HoldingSpec,
    holding: HoldingHandle,
    patience: WaitLimit,
) -> Response {
    let (told_until, mut last_told) = watch::channel(None);
    let clock = app.clock;
    let release = holding.release.clone();
    let watchdog = tokio::spawn(async move {
        loop {
            let until = *last_told.borrow_and_update();
            if until.is_some_and(|until| until <= clock.now()) {
                // Whatever is renewed, its client does not hear of it.
                return release.release();
            }
            tokio::select! {
                changed = last_told.changed() => if changed.is_err() { return },
                () = clock.sleep_until(until) => {}
            }
        }
    });
    let source = HoldingStream {
        app: app.clone(),
        name,
        spec,
        holding,
        patience,
        sent: None,
        is_held_to_the_end: false,
        claims: ConnectionClaims::current(),
        told_until,
        watchdog: watchdog.abort_handle(),
    };
    sse::stream(&app, permit, source)
}

impl EventSource for HoldingStream {
    async fn next(&mut self) -> Option<(Bytes, ReservedBytes)> {
        if let Some(HoldingView::Ended(_)) = self.sent {
            if self.is_held_to_the_end {
                self.holding.gone().await;
            }
            return None;
        }
        loop {
            let judged = self.holding.judge();
            let now = self.app.clock.now();
            if let Some(event) = self.event(judged, now).await {
                return Some(sse::small(event));
            }
            let next = self.patience.next(now).filter(|_| judged.is_waiting());
            tokio::select! {
                () = self.holding.changed(judged) => {}
                () = self.app.clock.sleep_until(next) => {}
            }
        }
    }
}

impl HoldingStream {
    /// Returns the event of what was judged, unless the client was sent that.
    async fn event(&mut self, judged: HoldingView, now: Moment) -> Option<String> {
        match judged {
            HoldingView::Ended(ended) => Some(self.end(ended)),
            HoldingView::Leaving if !self.leaves() => Some(self.end(Ended::Released)),
            _ if self.patience.is_over(judged, now) => {
                self.holding.release.release();
                Some(self.last("timeout", self.not_in_time(judged).into()))
            }
            _ if self.sent == Some(judged) => None,
            HoldingView::Held { token, until } => Some(self.holds(token, until)),
            HoldingView::Waiting { ahead: Some(ahead) } => {
                // Another receiver: `next` is to see the change as well.
                let mut published = self.holding.published();
                let holders = tokio::select! {
                    biased;
                    _ = published.changed() => return None,
                    holders = holders(&self.app, &self.name) => holders,
                };
                self.note_sent(judged);
                let body = LockWaiting { position: self.position(ahead), holders };
                Some(framed("waiting", None, &api::json(&body)))
            }
            HoldingView::Gathering { present: Some(present) } => {
                self.note_sent(judged);
                Some(framed("waiting", None, &api::json(&self.gathering(present))))
            }
            HoldingView::Leaving => {
                self.note_sent(judged);
                None
            }
            HoldingView::Waiting { ahead: None } | HoldingView::Gathering { present: None } => None,
        }
    }

    fn holds(&mut self, token: FencingToken, until: Moment) -> String {
        let is_new = !matches!(self.sent, Some(HoldingView::Held { .. }));
        self.note_sent(HoldingView::Held { token, until });
        let held = held_body(&self.app, token, until);
        match self.spec {
            HoldingSpec::Lock(_) if is_new => framed("held", None, &api::json(&held)),
            HoldingSpec::Lock(_) => framed("renewed", None, &api::json(&held)),
            HoldingSpec::Barrier(_) => {
                let event = if is_new { "entered" } else { "renewed" };
                let id = self.holding.registration.id.clone();
                framed(event, None, &api::json(&BarrierEntered { id, held }))
            }
        }
    }

    fn end(&mut self, ended: Ended) -> String {
        self.is_held_to_the_end =
            ended == Ended::Stopped && matches!(self.sent, Some(HoldingView::Held { .. }));
        match ended {
            Ended::Refused { found } => self.last("refused", kinds(&self.name, self.spec, found)),
            Ended::TooMany => self.last("refused", ended.to_string()),
            Ended::AllLeft if self.leaves() => self.last("left", ended.to_string()),
            // Nothing else gives it back while there is this stream.
            Ended::Released | Ended::AllLeft => self.last("lost", UNREAD.into()),
            Ended::Lost(_) | Ended::Stopped => self.last("lost", ended.to_string()),
        }
    }

    fn last(&mut self, event: &str, why: String) -> String {
        self.note_sent(HoldingView::Ended(Ended::Released));
        framed(event, None, &api::json(&LockEnded { why }))
    }

    fn note_sent(&mut self, sent: HoldingView) {
        self.sent = Some(sent);
        let until = match sent {
            HoldingView::Held { until, .. } => Some(until),
            _ => None,
        };
        self.claims.claim(until.map(|_| self.holding.claim(None)));
        self.told_until.send_replace(until);
    }

    /// Whether it leaves a barrier as its client wanted.
    fn leaves(&self) -> bool {
        self.holding.registration.leaves()
    }

    fn not_in_time(&self, judged: HoldingView) -> &'static str {
        match self.spec {
            _ if judged.is_unknown() => NO_ANSWER,
            HoldingSpec::Lock(_) => "the lock was not free in time",
            HoldingSpec::Barrier(_) => "too few were there in time",
        }
    }

    /// Returns how many have to go first: of those ahead, all but the last that it could hold beside.
    fn position(&self, ahead: usize) -> u64 {
        let beside = match self.spec {
            HoldingSpec::Lock(Mode::Slots(slots)) => slots.get() as usize - 1,
            HoldingSpec::Lock(_) | HoldingSpec::Barrier(_) => 0,
        };
        ahead.saturating_sub(beside).max(1).try_into().unwrap_or(u64::MAX)
    }

    fn gathering(&self, present: usize) -> Option<BarrierWaiting> {
        let HoldingSpec::Barrier(size) = self.spec else { return None };
        let present = present.try_into().unwrap_or(u64::MAX);
        let id = self.holding.registration.id.clone();
        Some(BarrierWaiting { id, present, size: size.get() })
    }
}

impl Drop for HoldingStream {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

async fn holders(app: &AppState, name: &HoldingName) -> Option<Vec<api::LockPlace>> {
    let places = look_into(app, name).await.ok()?;
    Some(places.iter().filter(|place| place.holds).map(place).collect())
}
