//! A lock that is held, or a barrier that is entered, for as long as its client's connection is open. Its state is sent as
//! server-sent events.

use super::super::AppState;
use super::super::claims::ConnectionClaims;
use super::super::sse::{self, EventSource, framed};
use super::holding::{HoldingHandle, WaitLimit, conflict};
use super::locks::queue_of;
use super::{NO_ANSWER, held_body};
use crate::api::{self, BarrierEntered, BarrierWaiting, LockEnded, LockWaiting};
use crate::byte_budget::ReservedBytes;
use crate::holdings::HoldingName;
use axum::body::Bytes;
use axum::response::Response;
use recipes::holding::{End, HoldingSpec, HoldingState};
use recipes::lock::Mode;
use recipes::{FencingToken, Moment};
use tokio::sync::OwnedSemaphorePermit;

/// Explains why a lock or barrier is lost whose client does not read the stream.
const UNREAD: &str = "nothing was read for as long as the lease ran";

struct HoldingStream {
    app: AppState,
    name: HoldingName,
    spec: HoldingSpec,
    holding: HoldingHandle,
    limit: WaitLimit,
    /// The last state that the client was sent, or for which nothing is sent (`Leaving`).
    sent: Option<HoldingState>,
    /// True if this member shuts down while the lock is held. Closing the stream would release the lock, so after the
    /// event `lost` it stays open until the client closes it, or the watchdog has released the lock.
    stays_open_until_gone: bool,
    claims: ConnectionClaims,
}

/// Answers with the stream.
pub(super) fn stream(
    app: AppState,
    permit: OwnedSemaphorePermit,
    name: HoldingName,
    spec: HoldingSpec,
    holding: HoldingHandle,
    limit: WaitLimit,
) -> Response {
    let source = HoldingStream {
        app: app.clone(),
        name,
        spec,
        holding,
        limit,
        sent: None,
        stays_open_until_gone: false,
        claims: ConnectionClaims::current(),
    };
    sse::stream(&app, permit, source)
}

impl EventSource for HoldingStream {
    async fn next(&mut self) -> Option<(Bytes, ReservedBytes)> {
        if let Some(HoldingState::Ended(_)) = self.sent {
            if self.stays_open_until_gone {
                self.holding.entry.gone().await;
            }
            return None;
        }
        loop {
            let state = self.holding.state();
            let now = self.app.clock.now();
            if let Some(event) = self.event(state, now).await {
                return Some(sse::small(event));
            }
            let deadline = self.limit.until.filter(|_| state.is_waiting());
            tokio::select! {
                () = self.holding.changed(state) => {}
                () = self.app.clock.sleep_until(deadline) => {}
            }
        }
    }
}

impl HoldingStream {
    /// Returns the event for this state, and notes the state as sent. Returns `None` if the client does not need an
    /// event, or if the state has changed meanwhile. Releases the lock or barrier if the time to wait for it is over.
    async fn event(&mut self, state: HoldingState, now: Moment) -> Option<String> {
        match state {
            HoldingState::Ended(ended) => Some(self.end_event(ended)),
            // The client did not ask to leave, so tell it as soon as the release begins that its lock or barrier has ended.
            HoldingState::Leaving if !self.leave_requested() => Some(self.end_event(End::Released)),
            _ if self.limit.is_over(state, now) => {
                self.holding.entry.release();
                Some(self.last_event("timeout", self.timeout_reason(state).into()))
            }
            _ if self.sent == Some(state) => None,
            HoldingState::Held { token, until } => Some(self.lease_event(token, until)),
            HoldingState::Waiting { ahead: Some(ahead) } => {
                // If the state changes while the holders are read, stop: `next` then sends the new state. Use a separate
                // receiver, so that `next` still notices the change.
                let mut published = self.holding.published();
                let holders = tokio::select! {
                    biased;
                    _ = published.changed() => return None,
                    queue = queue_of(&self.app, &self.name) => queue.ok().map(|queue| queue.holders.clone()),
                };
                self.note_sent(state);
                let body = LockWaiting { position: self.position(ahead), holders };
                Some(framed("waiting", None, &api::json(&body)))
            }
            HoldingState::Gathering { present: Some(present) } => {
                self.note_sent(state);
                Some(framed("waiting", None, &api::json(&self.waiting_body(present))))
            }
            HoldingState::Leaving => {
                self.note_sent(state);
                None
            }
            HoldingState::Waiting { ahead: None } | HoldingState::Gathering { present: None } => {
                None
            }
        }
    }

    /// Returns the event that reports the lease: `held`, `entered` or `renewed`.
    fn lease_event(&mut self, token: FencingToken, until: Moment) -> String {
        let is_new = !matches!(self.sent, Some(HoldingState::Held { .. }));
        self.note_sent(HoldingState::Held { token, until });
        let held = held_body(&self.app, token, until);
        match self.spec {
            HoldingSpec::Lock(_) if is_new => framed("held", None, &api::json(&held)),
            HoldingSpec::Lock(_) => framed("renewed", None, &api::json(&held)),
            HoldingSpec::Barrier(_) => {
                let event = if is_new { "entered" } else { "renewed" };
                let id = self.holding.entry.id.clone();
                framed(event, None, &api::json(&BarrierEntered { id, held }))
            }
        }
    }

    /// Returns the last event of a lock or barrier that has ended.
    fn end_event(&mut self, ended: End) -> String {
        self.stays_open_until_gone =
            ended == End::Stopped && matches!(self.sent, Some(HoldingState::Held { .. }));
        match ended {
            End::Refused { found } => {
                self.last_event("refused", conflict(&self.name, self.spec, found))
            }
            End::TooMany => self.last_event("refused", ended.to_string()),
            End::AllLeft if self.leave_requested() => self.last_event("left", ended.to_string()),
            // The client has not requested it, and the stream still exists, so the watchdog has released the lock or
            // left the barrier.
            End::Released | End::AllLeft => self.last_event("lost", UNREAD.into()),
            End::Lost(_) | End::Stopped => self.last_event("lost", ended.to_string()),
        }
    }

    /// Returns the event with this name, and ends the stream after it: `next` returns `None` once an ended state was
    /// sent, whatever the end.
    fn last_event(&mut self, event: &str, why: String) -> String {
        self.note_sent(HoldingState::Ended(End::Released));
        framed(event, None, &api::json(&LockEnded { why }))
    }

    /// Notes the state that is being sent. If it has a lease, the stream claims that the lock is held or the barrier
    /// entered, and the watchdog releases the lock or leaves the barrier at the end of this lease. Otherwise the stream
    /// claims nothing.
    fn note_sent(&mut self, sent: HoldingState) {
        self.sent = Some(sent);
        let until = match sent {
            HoldingState::Held { until, .. } => Some(until),
            _ => None,
        };
        let entry = &self.holding.entry;
        self.claims.claim(until.map(|_| entry.claim(self.app.clock, None)));
        // A client that reads no renewal before the end of this lease must assume that it no longer holds the lock.
        // Nothing is sent, and so this moment does not move, while the client does not read.
        entry.ends_at.send_replace(until);
    }

    /// Returns true if the client has requested to leave the barrier.
    fn leave_requested(&self) -> bool {
        self.holding.entry.leave_requested()
    }

    /// Explains why the wait has ended without the lock or barrier.
    fn timeout_reason(&self, state: HoldingState) -> &'static str {
        match self.spec {
            _ if state.is_unknown() => NO_ANSWER,
            HoldingSpec::Lock(_) => "the lock was not free in time",
            HoldingSpec::Barrier(_) => "too few participants came in time",
        }
    }

    /// Returns at most how many places must leave the queue before this one holds the lock, if `ahead` places are
    /// ahead: with slots, all but one slot may be taken by others.
    fn position(&self, ahead: usize) -> u64 {
        let holders_beside = match self.spec {
            HoldingSpec::Lock(Mode::Slots(slots)) => slots.get() as usize - 1,
            HoldingSpec::Lock(_) | HoldingSpec::Barrier(_) => 0,
        };
        ahead.saturating_sub(holders_beside).max(1).try_into().unwrap_or(u64::MAX)
    }

    /// Returns the data of the event `waiting` of a barrier at which `present` participants are; `None` for a lock.
    fn waiting_body(&self, present: usize) -> Option<BarrierWaiting> {
        let HoldingSpec::Barrier(size) = self.spec else { return None };
        let present = present.try_into().unwrap_or(u64::MAX);
        let id = self.holding.entry.id.clone();
        Some(BarrierWaiting { id, present, size: size.get() })
    }
}
