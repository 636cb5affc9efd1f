//! Requests for locks, and their queues.

use super::super::AppState;
use super::super::authorize::Authorized;
use super::super::problem::ProblemResponse;
use super::super::query::{Count, NoQuery, Query, RecipePath, Span, flag};
use super::holding::{WaitLimit, refusal};
use super::ttl;
use super::{NO_ANSWER, RELEASE_TIMEOUT};
use crate::api::{self, LockMode, LockNames, LockQueue};
use crate::holdings::{BreakStep, HoldingName, ProcessName, ReadRequest};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use recipes::FencingToken;
use recipes::holding::{End, HoldingKind, HoldingSpec, HoldingState, Loss};
use recipes::lock::Mode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

const KIND: HoldingKind = HoldingKind::Lock;
/// How long `PUT` waits for a lock by default.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);
const TTL_DEFAULT: Duration = Duration::from_secs(15);

/// The mode of a lock, and how long to wait for it and to hold it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AcquireQuery {
    /// Exclusive by default.
    mode: Option<LockMode>,
    /// Makes the lock a semaphore: this many places of the queue hold it at once.
    slots: Option<Count>,
    /// How long to wait for the lock: by default as long as a stream's connection is open, and `5s` with `PUT`. With
    /// `0s`, the lock is acquired only if it is free.
    wait: Option<Span<0>>,
    /// The name of the process, for people who look at the queue.
    process: Option<ProcessName>,
    /// Only with `PUT`: the time after which the lock is released, unless it is renewed.
    ttl: Option<Span<1>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RenewQuery {
    /// The new TTL, which begins with the renewal.
    ttl: Option<Span<1>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BreakQuery {
    /// True to delete the znode at once, although the lease of its owner may still run.
    #[serde(default, deserialize_with = "flag")]
    now: bool,
}

/// The names of all locks with places in their queues, now or lately; read from ZooKeeper at most once a second.
pub(in crate::http) async fn names(
    State(app): State<AppState>,
    _: Query<NoQuery>,
) -> Result<Json<LockNames>, ProblemResponse> {
    let names = app.read_holdings(KIND, |answer| ReadRequest::Names(KIND, answer)).await?;
    Ok(Json(LockNames { locks: names.to_vec() }))
}

/// The holders of a lock and the places that wait for it, in order; read from ZooKeeper at most once a second.
pub(in crate::http) async fn queue(
    State(app): State<AppState>,
    _: Query<NoQuery>,
    RecipePath { name, .. }: RecipePath,
) -> Result<Json<LockQueue>, ProblemResponse> {
    Ok(Json((*queue_of(&app, &name).await?).clone()))
}

/// Holds a lock for as long as this connection is open and the lease runs, as server-sent events.
///
/// `waiting` has the place in the queue and the holders, `held` the token and the lease, `renewed` each renewal. `lost`,
/// `timeout` and `refused` are last events. Closing the connection releases the lock; a client that reads nothing for as
/// long as the lease runs has lost it. A comment is sent every 15 s.
pub(in crate::http) async fn hold(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    Query(query): Query<AcquireQuery>,
) -> Result<Response, ProblemResponse> {
    if query.ttl.is_some() {
        let why = "a stream holds the lock while it is open: leave ttl out, or write PUT";
        return Err(ProblemResponse::bad_request(why));
    }
    let spec = query.spec()?;
    app.hold(name, spec, query.wait, query.process).await
}

/// Acquires a lock for a TTL, for clients that cannot stream. The client must renew it before the TTL is over.
///
/// `valid_for_ms` says how long the lock is guaranteed to be held, which may be less than the TTL: renew it before that.
pub(in crate::http) async fn hold_for_ttl(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    Query(query): Query<AcquireQuery>,
) -> Result<(StatusCode, Json<api::TtlLock>), ProblemResponse> {
    let spec = query.spec()?;
    let wait = query.wait.map_or(WAIT_DEFAULT, |Span(wait)| wait);
    let ttl = query.ttl.map_or(TTL_DEFAULT, |Span(ttl)| ttl);
    let _permit = app.waiting_permit()?;
    let limit = WaitLimit::of(Some(wait), app.clock.now());
    let mut holding = app.request(&name, spec, query.process).await?;
    match holding.wait_while(HoldingState::is_waiting, limit).await {
        HoldingState::Held { .. } => {}
        HoldingState::Ended(end) => return Err(refusal(&name, spec, end)),
        HoldingState::Waiting { ahead: Some(1..) } => {
            let detail = format!("others hold {name} or wait ahead: GET /locks/{name} shows them");
            return Err(ProblemResponse::conflict("timed-out", detail));
        }
        // The queue was not read in time, or this place is first in it but got no lease in time.
        _ => return Err(ProblemResponse::unavailable("not-locked", NO_ANSWER)),
    }
    let id = ttl::hold(&app, holding, ttl);
    let body = ttl::body(&app, &name, id, None);
    // The lease may have run out while the body was made.
    body.map(|body| (StatusCode::CREATED, Json(body)))
        .map_err(|_| refusal(&name, spec, End::Lost(Loss::LeaseRanOut)))
}

/// Renews a lock that is held for a TTL.
pub(in crate::http) async fn renew(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, id }: RecipePath,
    Query(RenewQuery { ttl }): Query<RenewQuery>,
) -> Result<Json<api::TtlLock>, ProblemResponse> {
    let ttl = ttl.map_or(TTL_DEFAULT, |Span(ttl)| ttl);
    ttl::body(&app, &name, id, Some(ttl)).map(Json)
}

/// Releases a lock that is held for a TTL. The answer comes when the znode of the lock is deleted.
pub(in crate::http) async fn release(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
    RecipePath { name, id }: RecipePath,
) -> Result<StatusCode, ProblemResponse> {
    let entry = app.registry.find(KIND, &name, &id).ok_or_else(|| ttl::gone(&name))?;
    let now = app.clock.now();
    let held = entry.held_for_ttl(now);
    // End the TTL now, so that the watchdog releases the lock. Do so even if the lock is not reported as held: while
    // this member shuts down, the lock is reported as ended, but is still kept for the client.
    entry.ends_at.send_replace(Some(now));
    held.ok_or_else(|| ttl::gone(&name))?;
    match tokio::time::timeout(RELEASE_TIMEOUT, entry.gone()).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => {
            let why = "this member has released the lock, but ZooKeeper did not confirm it: its znode may \
                       exist until the session times out";
            Err(ProblemResponse::unavailable("unconfirmed", why))
        }
    }
}

/// Reads the queue of a lock.
pub(super) async fn queue_of(
    app: &AppState,
    name: &HoldingName,
) -> Result<Arc<LockQueue>, ProblemResponse> {
    app.read_holdings(KIND, |answer| ReadRequest::Queue(name.clone(), answer)).await
}

/// Breaks a place in a lock's queue, for operators: its owner must give up the place, and its znode is deleted.
///
/// The answer comes when the znode is deleted: after twice the session timeout, when the owner is guaranteed not to hold the
/// lock any longer. The znode is deleted even if the client closes the connection before.
pub(in crate::http) async fn break_lock(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, id }: RecipePath,
    Query(BreakQuery { now: is_at_once }): Query<BreakQuery>,
) -> Result<StatusCode, ProblemResponse> {
    let token =
        id.parse().map_err(|_| ProblemResponse::bad_request("the token is not a number"))?;
    let token = FencingToken(token);
    let permit = app.waiting_permit()?;
    // A place that is marked but not deleted would block the lock, so continue in a task, even if the client stops
    // waiting.
    let broken = tokio::spawn(async move {
        let _permit = permit;
        app.break_place(name, token, is_at_once).await
    });
    broken.await.map_err(|why| ProblemResponse::unread("locks-unavailable", why))??;
    Ok(StatusCode::NO_CONTENT)
}

impl AppState {
    /// Marks the place, waits until its owner cannot hold the lock any longer, and deletes its znode. Does not wait if
    /// `is_at_once` is true.
    async fn break_place(
        &self,
        name: HoldingName,
        token: FencingToken,
        is_at_once: bool,
    ) -> Result<(), ProblemResponse> {
        let step = async |step| {
            self.read_holdings(KIND, |answer| ReadRequest::Break(name.clone(), token, step, answer))
                .await
        };
        let wait = step(BreakStep::Mark).await?.ok_or_else(|| {
            let detail = format!("nothing in the queue of lock {name} has token {token}");
            ProblemResponse::new(StatusCode::NOT_FOUND, "no-such-place", detail)
        })?;
        if !is_at_once {
            tokio::time::sleep(wait).await;
        }
        // Ignore whether the znode was found: its owner may have deleted it by now, or the owner's session may have
        // ended.
        step(BreakStep::Delete).await?;
        Ok(())
    }
}

impl AcquireQuery {
    /// Returns the requested lock. Fails if the query contradicts itself.
    fn spec(&self) -> Result<HoldingSpec, ProblemResponse> {
        let mode = match (self.mode, self.slots) {
            (None | Some(LockMode::Exclusive), None) => Mode::Exclusive,
            (Some(LockMode::Shared), None) => Mode::Shared,
            (None, Some(Count(slots))) => Mode::Slots(slots),
            _ => {
                let why = "write mode=exclusive, mode=shared or slots=NUMBER, and only one of them";
                return Err(ProblemResponse::bad_request(why));
            }
        };
        Ok(HoldingSpec::Lock(mode))
    }
}
