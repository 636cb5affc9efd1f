//! A lock that is held, or a barrier that is entered, for as long as its client's connection is open, told of by
//! server-sent events.

use super::super::AppState;
use super::super::claim::Claim;
use super::super::events::{KEEP_ALIVE, framed, streamed};
use super::super::requests::OpenStream;
use super::holding::{Holding, Patience, kinds};
use super::inside::Entry;
use super::locks::{look_into, place};
use super::{NO_ANSWER, held_body};
use crate::api::{self, BarrierEntered, BarrierWaiting, LockEnded, LockWaiting};
use crate::holdings::{Ended, HoldingName, Judged};
use axum::response::Response;
use futures_util::stream::StreamExt;
use recipes::holding::Wanted;
use recipes::lock::Mode;
use recipes::{FencingToken, Moment};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;

/// Why a lock or barrier is lost whose client takes nothing.
const UNREAD: &str = "nothing was read for as long as the lease ran";

/// The lock or barrier of a stream.
pub(super) enum Told {
    Lock(Mode),
    Barrier(NonZeroU32, Entry),
}

struct HoldingStream {
    app: AppState,
    name: HoldingName,
    told: Told,
    holding: Holding,
    patience: Patience,
    said: Said,
    /// The lock is held until its client releases it, even while the member leaves.
    is_held_to_the_end: bool,
    /// Of the answer whose body this is.
    claim: Option<Arc<Claim>>,
    /// Until when the client was last told that it holds.
    told_until: watch::Sender<Option<Moment>>,
    watchdog: AbortHandle,
    _open: OpenStream,
    _permit: OwnedSemaphorePermit,
}

/// The last event that was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Waits {
        ahead: usize,
    },
    Gathers {
        present: usize,
    },
    Holds {
        until: Moment,
    },
    /// Nothing was said of that: its client wanted it.
    Leaves,
    Ended,
}

/// Answers with the stream.
pub(super) fn stream(
    app: AppState,
    permit: OwnedSemaphorePermit,
    name: HoldingName,
    told: Told,
    holding: Holding,
    patience: Patience,
) -> Response {
    let claim = Claim::of_this_answer();
    if let Some(claim) = &claim {
        claim.about(holding.claim(None));
    }
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
    let stream = HoldingStream {
        name,
        told,
        holding,
        patience,
        said: Said::Nothing,
        is_held_to_the_end: false,
        claim,
        told_until,
        watchdog: watchdog.abort_handle(),
        _open: app.requests.stream(),
        _permit: permit,
        app,
    };
    let chunks = futures_util::stream::unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((chunk.into(), stream))
    });
    streamed(chunks.boxed())
}

impl HoldingStream {
    async fn next(&mut self) -> Option<String> {
        if self.said == Said::Ended {
            if self.is_held_to_the_end {
                self.holding.gone().await;
            }
            return None;
        }
        loop {
            let judged = self.holding.judge();
            let now = self.app.clock.now();
            match judged {
                Judged::Held { token, until } if self.said != (Said::Holds { until }) => {
                    return Some(self.holds(token, until));
                }
                Judged::Held { .. } => {}
                Judged::Ended(ended) => return Some(self.end(ended)),
                Judged::Leaving if !self.told.leaves() => return Some(self.end(Ended::Released)),
                Judged::Leaving => self.says(Said::Leaves),
                Judged::Waiting { .. } | Judged::Gathering { .. }
                    if self.patience.is_over(judged, now) =>
                {
                    self.holding.release.release();
                    return Some(self.last("timeout", self.told.not_in_time(judged).into()));
                }
                Judged::Waiting { ahead: Some(ahead) } if self.said != (Said::Waits { ahead }) => {
                    let holders = tokio::select! {
                        biased;
                        () = self.holding.changed(judged) => continue,
                        holders = holders(&self.app, &self.name) => holders,
                    };
                    self.says(Said::Waits { ahead });
                    let position = self.told.position(ahead);
                    let body = LockWaiting { position, holders };
                    return Some(framed("waiting", None, &api::json(&body)));
                }
                Judged::Gathering { present: Some(present) }
                    if self.said != (Said::Gathers { present }) =>
                {
                    self.says(Said::Gathers { present });
                    let body = self.told.gathering(present);
                    return Some(framed("waiting", None, &api::json(&body)));
                }
                Judged::Waiting { .. } | Judged::Gathering { .. } => {}
            }
            let next = self.patience.next(now).filter(|_| judged.is_waiting());
            tokio::select! {
                () = self.holding.changed(judged) => {}
                () = self.app.clock.sleep_until(next) => {}
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(": here\n\n".into()),
            }
        }
    }

    fn holds(&mut self, token: FencingToken, until: Moment) -> String {
        let is_new = !matches!(self.said, Said::Holds { .. });
        self.says(Said::Holds { until });
        let held = held_body(&self.app, token, until);
        match &self.told {
            Told::Lock(_) if is_new => framed("held", None, &api::json(&held)),
            Told::Lock(_) => framed("renewed", None, &api::json(&held)),
            Told::Barrier(_, entry) => {
                let event = if is_new { "entered" } else { "renewed" };
                framed(event, None, &api::json(&BarrierEntered { id: entry.id.clone(), held }))
            }
        }
    }

    fn end(&mut self, ended: Ended) -> String {
        self.is_held_to_the_end =
            ended == Ended::Stopped && matches!(self.said, Said::Holds { .. });
        let wanted = self.told.wanted();
        match ended {
            Ended::Refused { found } => self.last("refused", kinds(&self.name, wanted, found)),
            Ended::TooMany => self.last("refused", ended.to_string()),
            Ended::AllLeft if self.told.leaves() => self.last("left", ended.to_string()),
            // Nothing else gives it back while there is this stream.
            Ended::Released | Ended::AllLeft => self.last("lost", UNREAD.into()),
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
            Said::Nothing
            | Said::Waits { .. }
            | Said::Gathers { .. }
            | Said::Leaves
            | Said::Ended => None,
        };
        if let Some(claim) = &self.claim {
            claim.says_held(until.is_some());
        }
        self.told_until.send_replace(until);
    }
}

impl Told {
    fn wanted(&self) -> Wanted {
        match self {
            Self::Lock(mode) => Wanted::Lock(*mode),
            Self::Barrier(size, _) => Wanted::Barrier(*size),
        }
    }

    /// Whether it leaves a barrier as its client wanted.
    fn leaves(&self) -> bool {
        matches!(self, Self::Barrier(_, entry) if entry.leaves())
    }

    fn not_in_time(&self, judged: Judged) -> &'static str {
        match self {
            _ if judged.is_unknown() => NO_ANSWER,
            Self::Lock(_) => "the lock was not free in time",
            Self::Barrier(..) => "too few were there in time",
        }
    }

    /// Returns how many have to go first: of those ahead, all but the last that it could hold beside.
    fn position(&self, ahead: usize) -> u64 {
        let beside = match self {
            Self::Lock(Mode::Slots(slots)) => slots.get() as usize - 1,
            Self::Lock(Mode::Exclusive | Mode::Shared) | Self::Barrier(..) => 0,
        };
        ahead.saturating_sub(beside).max(1).try_into().unwrap_or(u64::MAX)
    }

    fn gathering(&self, present: usize) -> Option<BarrierWaiting> {
        let Self::Barrier(size, entry) = self else { return None };
        let present = present.try_into().unwrap_or(u64::MAX);
        Some(BarrierWaiting { id: entry.id.clone(), present, size: size.get() })
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
