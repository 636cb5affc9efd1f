//! A lock that is held for as long as its client's connection is open, told of by server-sent events.

use super::super::claim::Claim;
use super::super::events::{KEEP_ALIVE, framed, streamed};
use super::super::visits::OpenStream;
use super::super::{AppState, Problem};
use super::holding::{Holding, Patience, kinds};
use super::{held_body, place};
use crate::api::{self, LockEnded, LockWaiting};
use crate::locks::{Ended, Judged, LockName};
use axum::response::Response;
use recipes::Moment;
use recipes::lock::Mode;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;

/// Why a lock is lost whose client takes nothing.
const UNREAD: &str = "nothing was read for as long as the lease ran";

struct LockStream {
    sight: AppState,
    name: LockName,
    mode: Mode,
    holding: Holding,
    patience: Patience,
    said: Said,
    /// It is held yet while the member leaves, until its client lets go.
    is_held_to_the_end: bool,
    /// Of the answer whose body this is.
    claim: Option<Arc<Claim>>,
    /// Until when the client was last told that it holds.
    told_until: watch::Sender<Option<Moment>>,
    watchdog: AbortHandle,
    _open: OpenStream,
    _permit: OwnedSemaphorePermit,
}

/// What the last event said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Waits { ahead: usize },
    Holds { until: Moment },
    Ended,
}

/// Answers with the stream.
pub(super) fn stream(
    sight: AppState,
    permit: OwnedSemaphorePermit,
    name: LockName,
    mode: Mode,
    holding: Holding,
    patience: Patience,
) -> Response {
    let claim = Claim::of_this_answer();
    if let Some(claim) = &claim {
        claim.about(holding.claim(None));
    }
    let (told_until, told) = watch::channel(None);
    let (clock, release) = (sight.clock, holding.release.clone());
    let watchdog = tokio::spawn(async move {
        let mut told = told;
        loop {
            let until = *told.borrow_and_update();
            if until.is_some_and(|until| until <= clock.now()) {
                // Whatever is renewed, its client does not hear of it.
                return release.release();
            }
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                () = clock.sleep_until(until) => {}
            }
        }
    });
    let stream = LockStream {
        name,
        mode,
        holding,
        patience,
        said: Said::Nothing,
        is_held_to_the_end: false,
        claim,
        told_until,
        watchdog: watchdog.abort_handle(),
        _open: sight.visits.stream(),
        _permit: permit,
        sight,
    };
    streamed(futures_util::stream::unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((chunk, stream))
    }))
}

impl LockStream {
    async fn next(&mut self) -> Option<String> {
        if self.said == Said::Ended {
            if self.is_held_to_the_end {
                self.holding.gone().await;
            }
            return None;
        }
        loop {
            let judged = self.holding.judge();
            let now = self.sight.clock.now();
            match judged {
                Judged::Held { token, until } if self.said != (Said::Holds { until }) => {
                    let is_new = !matches!(self.said, Said::Holds { .. });
                    let event = if is_new { "held" } else { "renewed" };
                    self.says(Said::Holds { until });
                    let body = held_body(&self.sight, token, until);
                    return Some(framed(event, None, &api::json(&body)));
                }
                Judged::Held { .. } => {}
                Judged::Ended(ended) => return Some(self.end(ended)),
                Judged::Waiting { ahead } if self.patience.is_over(ahead, now) => {
                    self.holding.release.release();
                    return Some(self.last("timeout", "the lock was not free in time".into()));
                }
                Judged::Waiting { ahead: Some(ahead) } if self.said != (Said::Waits { ahead }) => {
                    let holders = tokio::select! {
                        biased;
                        () = self.holding.changed(judged) => continue,
                        holders = holders(&self.sight, &self.name) => holders,
                    };
                    self.says(Said::Waits { ahead });
                    let position = self.position(ahead);
                    let body = LockWaiting { position, holders };
                    return Some(framed("waiting", None, &api::json(&body)));
                }
                Judged::Waiting { .. } => {}
            }
            let next = self.patience.next(now).filter(|_| matches!(judged, Judged::Waiting { .. }));
            tokio::select! {
                () = self.holding.changed(judged) => {}
                () = self.sight.clock.sleep_until(next) => {}
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(": here\n\n".into()),
            }
        }
    }

    /// Returns how many have to go first: of those ahead, all but the last that it could hold beside.
    fn position(&self, ahead: usize) -> u64 {
        let beside = match self.mode {
            Mode::Slots(slots) => slots.get() as usize - 1,
            Mode::Exclusive | Mode::Shared => 0,
        };
        ahead.saturating_sub(beside).max(1).try_into().unwrap_or(u64::MAX)
    }

    fn end(&mut self, ended: Ended) -> String {
        self.is_held_to_the_end =
            ended == Ended::Stopped && matches!(self.said, Said::Holds { .. });
        match ended {
            Ended::Refused { found } => self.last("refused", kinds(&self.name, self.mode, found)),
            Ended::TooMany => self.last("refused", ended.to_string()),
            // Nothing else gives it back while there is this stream.
            Ended::Released => self.last("lost", UNREAD.into()),
            Ended::Lost(_) | Ended::Stopped => self.last("lost", ended.to_string()),
        }
    }

    fn last(&mut self, event: &str, why: String) -> String {
        self.says(Said::Ended);
        framed(event, None, &api::json(&LockEnded { why }))
    }

    fn says(&mut self, said: Said) {
        self.said = said;
        let until = match said {
            Said::Holds { until } => Some(until),
            Said::Nothing | Said::Waits { .. } | Said::Ended => None,
        };
        if let Some(claim) = &self.claim {
            claim.says_held(until.is_some());
        }
        self.told_until.send_replace(until);
    }
}

impl Drop for LockStream {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

async fn holders(sight: &AppState, name: &LockName) -> Option<Vec<api::LockPlace>> {
    let places = super::look_into(sight, name).await;
    let places = places.inspect_err(|_: &Problem| {}).ok()?;
    Some(places.iter().filter(|place| place.holds).map(place).collect())
}
