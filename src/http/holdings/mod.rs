//! Locks and barriers for any application, held for as long as a connection is open. A lock can also be held for a TTL,
//! which the client renews.
//!
//! - `locks`, `barriers`: the requests.
//! - `holding`: requests a lock or barrier, and waits for it. `stream`, `ttl`: the two ways to hold it.
//! - `registry`: all requested locks and barriers, each with its state and its release.

pub(super) mod barriers;
mod holding;
pub(super) mod locks;
mod registry;
mod stream;
#[cfg(test)]
mod tests;
mod ttl;

pub(super) use registry::HoldingRegistry;

use self::holding::{WaitLimit, refusal};
use super::AppState;
use super::problem::ProblemResponse;
use super::query::Span;
use crate::api::{LockHeld, millis};
use crate::holdings::{Answer, HoldingName, HoldingsHandle, ProcessName, ReadRequest};
use crate::status::ask;
use axum::response::Response;
use recipes::holding::{HoldingKind, HoldingSpec, HoldingState};
use recipes::{FencingToken, Moment};
use std::time::Duration;

/// How long a request for a stream waits until the state of the lock or barrier is known. If the request is refused by then,
/// the answer is an error response. A later refusal is an event of the stream.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long ZooKeeper may take to return a queue.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client that releases a lock waits for the deletion of the znode.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Explains why the state of a lock or barrier is not known.
const NO_ANSWER: &str =
    "ZooKeeper has not answered in time: /status shows this member's connection";

impl AppState {
    /// Returns the handle for locks and barriers. Fails if they are switched off.
    pub(super) fn holdings(&self) -> Result<&HoldingsHandle, ProblemResponse> {
        self.status.holdings.as_ref().ok_or_else(ProblemResponse::recipes_off)
    }

    /// Reads locks or barriers from ZooKeeper, or carries out a step in breaking a place of a lock.
    async fn read_holdings<T>(
        &self,
        kind: HoldingKind,
        request: impl FnOnce(Answer<T>) -> ReadRequest,
    ) -> Result<T, ProblemResponse> {
        let problem = match kind {
            HoldingKind::Lock => "locks-unavailable",
            HoldingKind::Barrier => "barriers-unavailable",
        };
        // The outer error is that no answer came, the inner error that the reading failed.
        let read = ask(&self.holdings()?.read_requests, request, LOOKUP_TIMEOUT).await;
        read.and_then(|read| read).map_err(|why| ProblemResponse::unread(problem, why))
    }

    /// Requests a lock, or to enter a barrier, and answers with its stream. Fails if the request ends, as when it is refused,
    /// before anything else is known of it.
    async fn hold(
        self,
        name: HoldingName,
        spec: HoldingSpec,
        wait: Option<Span<0>>,
        process: Option<ProcessName>,
    ) -> Result<Response, ProblemResponse> {
        let now = self.clock.now();
        let limit = WaitLimit::of(wait.map(|Span(wait)| wait), now);
        let permit = self.waiting_permit()?;
        let mut holding = self.request(&name, spec, process).await?;
        let begin_limit = WaitLimit::of(Some(BEGIN_TIMEOUT), now);
        let first_state = holding.wait_while(HoldingState::is_unknown, begin_limit).await;
        if let HoldingState::Ended(end) = first_state {
            return Err(refusal(&name, spec, end));
        }
        Ok(stream::stream(self, permit, name, spec, holding, limit))
    }
}

/// Returns the token and the lease of a held lock or an entered barrier, as in bodies.
fn held_body(app: &AppState, token: FencingToken, until: Moment) -> LockHeld {
    let ends = app.clock.kernel_time(until);
    LockHeld {
        token: token.0,
        valid_for_ms: millis(until.since(app.clock.now())),
        valid_until_boottime_ns: Some(ends.boottime_ns),
        valid_until_monotonic_ns: Some(ends.monotonic_ns),
    }
}
