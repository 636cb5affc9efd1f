//! Requests for locks, and their queues.

use super::super::AppState;
use super::super::authorize::Authorized;
use super::super::problem::{ProblemResponse, QueryRefusal};
use super::super::query::{NoQuery, RecipePath, WAIT, count, flag, number, span, values};
use super::holding::{WaitLimit, refusal};
use super::ttl::{self, HeldLock};
use super::{Gone, NO_ANSWER, NotAcquired, RELEASE_TIMEOUT, RecipesOff};
use crate::api::{self, LockMode, LockNames, LockQueue};
use crate::holdings::{BreakStep, HoldingName, LookRequest};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use recipes::FencingToken;
use recipes::holding::{End, HoldingKind, HoldingSpec, HoldingState, Loss};
use recipes::lock::Mode;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;

/// Examples of valid queries, for error messages.
const HOLD: &str = "?mode=shared&wait=30s or ?slots=3";
const KEEP: &str = "?mode=shared&wait=30s&ttl=15s or ?slots=3";
const RENEW: &str = "?ttl=15s";
const BREAK: &str = "?now=1";

const KIND: HoldingKind = HoldingKind::Lock;
const WAIT_DEFAULT: Duration = Duration::from_secs(5);
const TTL_DEFAULT: Duration = Duration::from_secs(15);
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// The mode of a lock, and how long to wait for it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
struct LockQuery {
    /// `exclusive`, by default, or `shared`.
    #[param(value_type = Option<String>, pattern = "^(exclusive|shared)$")]
    mode: Option<LockMode>,
    /// A semaphore: this many places of the queue hold it at once.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    slots: Option<NonZeroU32>,
    /// How long to wait, such as `30s`, at most `10m`; by default as long as a stream's connection is open, and `5s` with
    /// `PUT`. With `0s`, the lock is acquired only if it is free.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
    /// The name of the process, for people who look at the queue: 1 to 128 visible ASCII characters.
    #[param(example = "web-3:4711", pattern = "^[!-~]{1,128}$")]
    process: Option<String>,
}

/// The time to live of a lock.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
struct TimeQuery {
    /// The time after which the lock is released, unless it is renewed: `1s` to `10m`, by default `15s`.
    #[param(example = "15s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    ttl: Option<String>,
}

/// The names of all locks with places in their queues, now or lately; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::LOCKS.path, responses(
    (status = 200, description = "In order", body = LockNames),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn names(
    State(app): State<AppState>,
    _: NoQuery,
) -> Result<Json<LockNames>, ProblemResponse> {
    let names = app.read_holdings(KIND, |answer| LookRequest::Names(KIND, answer)).await?;
    Ok(Json(LockNames { locks: names.to_vec() }))
}

/// The holders of a lock and the places that wait for it, in order; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::LOCK_PATH, responses(
    (status = 200, description = "The queue, empty if there is none", body = LockQueue),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn queue(
    State(app): State<AppState>,
    _: NoQuery,
    RecipePath { name, .. }: RecipePath,
) -> Result<Json<LockQueue>, ProblemResponse> {
    Ok(Json((*queue_of(&app, &name).await?).clone()))
}

/// Holds a lock for as long as this connection is open and the lease runs, as server-sent events.
///
/// `waiting` has the place in the queue and the holders, `held` the token and the lease, `renewed` each renewal. `lost`,
/// `timeout` and `refused` are last events. Closing the connection releases the lock; a client that reads nothing for as
/// long as the lease runs has lost it. A comment is sent every 15 s.
#[utoipa::path(post, path = api::LOCK_PATH, params(
    LockQuery,
), responses(
    (status = 200, description = "It goes on until the lock is lost or one side ends it; the data of each event is such a body", body = api::LockEvent, content_type = "text/event-stream"),
    RecipesOff,
    NotAcquired,
))]
pub(in crate::http) async fn hold(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    uri: Uri,
) -> Result<Response, ProblemResponse> {
    let [mode, slots, wait, process] = values(&uri, ["mode", "slots", "wait", "process"], HOLD)?;
    let spec = lock_spec(mode.as_deref(), slots.as_deref())?;
    app.hold(name, spec, wait, process).await
}

/// Acquires a lock for a TTL, for clients that cannot stream. The client must renew it before the TTL is over.
///
/// `valid_for_ms` says how long the lock is guaranteed to be held, which may be less than the TTL: renew it before that.
#[utoipa::path(put, path = api::LOCK_PATH, params(
    LockQuery,
    TimeQuery,
), responses(
    (status = 201, description = "It is held", body = api::TtlLock),
    RecipesOff,
    NotAcquired,
))]
pub(in crate::http) async fn keep(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    uri: Uri,
) -> Result<(StatusCode, Json<api::TtlLock>), ProblemResponse> {
    let [mode, slots, wait, process, ttl] =
        values(&uri, ["mode", "slots", "wait", "process", "ttl"], KEEP)?;
    let spec = lock_spec(mode.as_deref(), slots.as_deref())?;
    let wait = span("wait", wait, &WAIT)?.unwrap_or(WAIT_DEFAULT);
    let ttl = span("ttl", ttl, &TTL)?.unwrap_or(TTL_DEFAULT);
    let _permit = app.place()?;
    let limit = WaitLimit::of(Some(wait), app.clock.now());
    let mut holding = app.request(&name, spec, process).await?;
    match holding.wait_while(HoldingState::is_waiting, limit).await {
        HoldingState::Held { .. } => {}
        HoldingState::Ended(end) => return Err(refusal(&name, spec, end)),
        HoldingState::Waiting { ahead: Some(1..) } => {
            let detail = format!("others hold {name}, or asked before: GET /locks/{name} has them");
            return Err(ProblemResponse::conflict(
                "timed-out",
                "timed out waiting for the lock",
                detail,
            ));
        }
        _ => {
            return Err(ProblemResponse::unavailable("not-locked", "not locked", NO_ANSWER));
        }
    }
    let id = ttl::hold(&app, holding, ttl);
    let body = ttl::body(&app, &name, id, None);
    // The lease may have run out since.
    body.map(|body| (StatusCode::CREATED, Json(body)))
        .map_err(|_| refusal(&name, spec, End::Lost(Loss::LeaseRanOut)))
}

/// Renews a lock.
#[utoipa::path(put, path = api::TTL_LOCK_PATH, params(
    ("lock" = String, Path, description = "As it was answered"),
    TimeQuery,
), responses(
    (status = 200, description = "It is held on", body = api::TtlLock),
    RecipesOff,
    Gone,
))]
pub(in crate::http) async fn renew(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, id }: RecipePath,
    uri: Uri,
) -> Result<Json<api::TtlLock>, ProblemResponse> {
    let [ttl] = values(&uri, ["ttl"], RENEW)?;
    let ttl = span("ttl", ttl, &TTL)?.unwrap_or(TTL_DEFAULT);
    ttl::body(&app, &name, id, Some(ttl)).map(Json)
}

/// Releases a lock. The answer comes when its znode is gone.
#[utoipa::path(delete, path = api::TTL_LOCK_PATH, params(
    ("lock" = String, Path, description = "As it was answered"),
), responses(
    (status = 204, description = "It is given back"),
    RecipesOff,
    Gone,
))]
pub(in crate::http) async fn give_back(
    State(app): State<AppState>,
    _: Authorized,
    _: NoQuery,
    RecipePath { name, id }: RecipePath,
) -> Result<StatusCode, ProblemResponse> {
    let entry = app.registry.find(KIND, &name, &id).ok_or_else(|| ttl::gone(&name))?;
    let now = app.clock.now();
    let held = HeldLock::of(entry.clone(), now);
    // While this member leaves, the lock is no longer reported as held, but it is still kept for this client.
    entry.ends_at.send_replace(Some(now));
    held.ok_or_else(|| ttl::gone(&name))?;
    match tokio::time::timeout(RELEASE_TIMEOUT, entry.gone()).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => {
            let why = "it is given back for this member's part, but ZooKeeper did not confirm it: its znode may \
                       stand until the session times out";
            Err(ProblemResponse::unavailable("unconfirmed", "not confirmed", why))
        }
    }
}

/// Reads the queue of a lock.
pub(super) async fn queue_of(
    app: &AppState,
    name: &HoldingName,
) -> Result<Arc<LockQueue>, ProblemResponse> {
    app.read_holdings(KIND, |answer| LookRequest::Queue(name.clone(), answer)).await
}

/// Breaks a place in a lock's queue, for operators: its holder must give it up, and its znode is deleted.
///
/// The answer comes when that is done: after twice the session timeout, when the holder is guaranteed to have stopped. It is
/// done even if the client closes the connection before.
#[utoipa::path(post, path = api::BREAK_LOCK_PATH, params(
    ("token" = u64, Path, description = "As `GET /locks/{name}` has it"),
    ("now" = inline(Option<String>), Query, description = "`1`: do not wait until its lease is over. Its holder may act beside the next one until it hears of it", pattern = "^[01]$"),
), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "No such lock, or no place with that token in its queue."),
))]
pub(in crate::http) async fn break_lock(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, id }: RecipePath,
    uri: Uri,
) -> Result<StatusCode, ProblemResponse> {
    let token = FencingToken(number("token", &id, "12884901890")?);
    let [now] = values(&uri, ["now"], BREAK)?;
    let is_at_once = flag("now", now.as_deref(), BREAK)?;
    let permit = app.place()?;
    // A place that is marked and not deleted would block the lock, so continue even if the client stops waiting.
    let broken = tokio::spawn(async move {
        let _permit = permit;
        app.break_place(name, token, is_at_once).await
    });
    broken.await.map_err(|why| {
        ProblemResponse::unread("locks-unavailable", "the place may be there", why)
    })??;
    Ok(StatusCode::NO_CONTENT)
}

impl AppState {
    /// Marks the place, waits until it cannot hold the lock any longer, unless `is_at_once`, and deletes its znode.
    async fn break_place(
        &self,
        name: HoldingName,
        token: FencingToken,
        is_at_once: bool,
    ) -> Result<(), ProblemResponse> {
        let step = async |step| {
            self.read_holdings(KIND, |answer| LookRequest::Break(name.clone(), token, step, answer))
                .await
        };
        let wait = step(BreakStep::Mark).await?.ok_or_else(|| {
            let detail = format!("nothing in the queue of lock {name} has token {token}");
            ProblemResponse::new(StatusCode::NOT_FOUND, "no-such-place", "no such place", detail)
        })?;
        if !is_at_once {
            tokio::time::sleep(wait).await;
        }
        // The znode may be gone already: its owner may have deleted it, or its session may have ended.
        step(BreakStep::Delete).await?;
        Ok(())
    }
}

fn lock_spec(mode: Option<&str>, slots: Option<&str>) -> Result<HoldingSpec, ProblemResponse> {
    let mode = match (mode, slots) {
        (None | Some("exclusive"), None) => Mode::Exclusive,
        (Some("shared"), None) => Mode::Shared,
        (None, Some(slots)) => Mode::Slots(count("slots", slots)?),
        (Some(other), None) => {
            return Err(ProblemResponse::bad_request(format!(
                "mode={other:?} is not known: write exclusive or shared, or ?slots=3 for a semaphore"
            )));
        }
        (Some(_), Some(_)) => {
            let why = "mode and slots exclude each other: leave one out";
            return Err(ProblemResponse::bad_request(why));
        }
    };
    Ok(HoldingSpec::Lock(mode))
}
