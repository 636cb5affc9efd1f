//! Locks and barriers for any application: held for as long as a connection is open, or, of locks, for a time that is
//! renewed.
//!
//! - `locks`, `barriers`: the requests.
//! - `holding`: one that a client asked for. `stream`, `kept`: the two ways to hold it.
//! - `registry`: all that are asked for.

pub(super) mod barriers;
mod holding;
mod kept;
pub(super) mod locks;
mod registry;
mod stream;
#[cfg(test)]
mod tests;

pub(super) use kept::TtlLocks;
pub(super) use registry::HoldingRegistry;

use super::problem::ProblemResponse;
use super::verdict::millis;
use super::{AppState, ask};
use crate::api::{self, LockHeld, LockMode};
use crate::holdings::{Answer, HoldingsHandle, LookRequest, ProcessName};
use recipes::lock::Mode;
use recipes::{FencingToken, Moment};
use std::time::Duration;
use utoipa::IntoResponses;

/// How long a stream's answer waits for its first event, so that a refusal can be one.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long ZooKeeper may take to show a queue.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the deletion of a znode may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nothing is known of a lock or barrier.
const NO_ANSWER: &str =
    "ZooKeeper has not answered in time: /status says how this member stands with it";

/// They are switched off.
#[derive(IntoResponses)]
#[response(status = 404, content_type = "application/problem+json")]
struct RecipesOff(#[expect(dead_code, reason = "it is the schema")] api::Problem);

/// The lock is of another kind, or was not acquired in time.
#[derive(IntoResponses)]
#[response(status = 409, content_type = "application/problem+json")]
struct NotAcquired(#[expect(dead_code, reason = "it is the schema")] api::Problem);

/// The lock is no longer held.
#[derive(IntoResponses)]
#[response(status = 410, content_type = "application/problem+json")]
struct Gone(#[expect(dead_code, reason = "it is the schema")] api::Problem);

impl AppState {
    fn holdings(&self) -> Result<&HoldingsHandle, ProblemResponse> {
        self.status.holdings.as_ref().ok_or_else(ProblemResponse::recipes_off)
    }

    async fn look_at_locks<T>(
        &self,
        look: impl FnOnce(Answer<T>) -> LookRequest,
    ) -> Result<T, ProblemResponse> {
        let read = ask(&self.holdings()?.looks, look, LOOKUP_TIMEOUT).await.and_then(|read| read);
        read.map_err(|why| {
            ProblemResponse::unread("locks-unavailable", "the locks cannot be read", why)
        })
    }

    async fn look_at_barriers<T>(
        &self,
        look: impl FnOnce(Answer<T>) -> LookRequest,
    ) -> Result<T, ProblemResponse> {
        let read = ask(&self.holdings()?.looks, look, LOOKUP_TIMEOUT).await.and_then(|read| read);
        read.map_err(|why| {
            ProblemResponse::unread("barriers-unavailable", "the barriers cannot be read", why)
        })
    }
}

fn held_body(app: &AppState, token: FencingToken, until: Moment) -> LockHeld {
    let ends = app.clock.kernel_time(until);
    LockHeld {
        token: token.0,
        valid_for_ms: millis(until.since(app.clock.now())),
        valid_until_boottime_ns: Some(ends.boottime_ns),
        valid_until_monotonic_ns: Some(ends.monotonic_ns),
    }
}

/// Returns the mode as bodies have it, and the number of slots.
fn mode_words(mode: Mode) -> (LockMode, Option<u32>) {
    match mode {
        Mode::Exclusive => (LockMode::Exclusive, None),
        Mode::Shared => (LockMode::Shared, None),
        Mode::Slots(slots) => (LockMode::Slots, Some(slots.get())),
    }
}

fn process_name(written: Option<String>) -> Result<Option<ProcessName>, ProblemResponse> {
    let Some(written) = written else { return Ok(None) };
    let name = ProcessName::new(&written).ok_or_else(|| {
        ProblemResponse::bad_request(format!(
            "process={written:?} must be 1 to 128 visible ASCII characters, such as web-3:4711"
        ))
    })?;
    Ok(Some(name))
}
