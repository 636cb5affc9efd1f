//! Locks: the requests for one, and who is in its queue.

use super::super::AppState;
use super::super::authorize::{Authorized, CommandHeaders, CommandRefusal};
use super::super::claims::ConnectionClaims;
use super::super::problem::{ProblemResponse, QueryRefusal};
use super::super::query::{NoQuery, WAIT, flag, named, number, path, span, values};
use super::holding::{WaitLimit, refusal};
use super::kept::{self, TtlLocks};
use super::stream;
use super::{
    BEGIN_TIMEOUT, Gone, NO_ANSWER, NotAcquired, RELEASE_TIMEOUT, RecipesOff, held_body,
    mode_words, process_name,
};
use crate::api::{self, LockMode, LockNames, LockPlace, LockQueue};
use crate::holdings::{BreakStep, Ended, HoldingName, HoldingView, LockQueuePlace, LookRequest};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use recipes::FencingToken;
use recipes::holding::{HoldingSpec, Loss};
use recipes::lock::Mode;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;

/// Queries as they should be.
const HOLD: &str = "?mode=shared&wait=30s or ?slots=3";
const KEEP: &str = "?mode=shared&wait=30s&ttl=15s or ?slots=3";
const RENEW: &str = "?ttl=15s";
const BREAK: &str = "?now=1";

const SLOTS_MAX: NonZeroU32 = NonZeroU32::new(1000).unwrap();
const WAIT_DEFAULT: Duration = Duration::from_secs(5);
const TTL_DEFAULT: Duration = Duration::from_secs(15);
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// Which lock, and for how long to wait for it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
struct LockQuery {
    /// `exclusive`, by default, or `shared`.
    #[param(value_type = Option<String>, pattern = "^(exclusive|shared)$")]
    mode: Option<LockMode>,
    /// A semaphore: so many of the queue hold at once.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    slots: Option<NonZeroU32>,
    /// How long to wait, such as `30s`, at most `10m`; by default as long as a stream's connection is open,
    /// and `5s` with `PUT`. `0s` takes it only if it is free.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
    /// The process that asks, for people who look who holds it: 1 to 128 visible ASCII characters.
    #[param(example = "web-3:4711", pattern = "^[!-~]{1,128}$")]
    process: Option<String>,
}

/// The time to live of a lock.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
struct TimeQuery {
    /// After how long it is given back, unless it is kept on: `1s` to `10m`, by default `15s`.
    #[param(example = "15s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    ttl: Option<String>,
}

/// The names of all locks in whose queue there is, or lately was, a place; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::LOCKS.path, responses(
    (status = 200, description = "In order", body = LockNames),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn names(
    State(app): State<AppState>,
    _: NoQuery,
) -> Result<Json<LockNames>, ProblemResponse> {
    let names = app.look_at_locks(LookRequest::Names).await?;
    Ok(Json(LockNames { locks: names.to_vec() }))
}

/// The holders of a lock and those that wait for it, in order; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::LOCK_PATH, params(
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
), responses(
    (status = 200, description = "The queue, empty if there is none", body = LockQueue),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn queue(
    State(app): State<AppState>,
    name: Result<Path<String>, PathRejection>,
    _: NoQuery,
) -> Result<Json<LockQueue>, ProblemResponse> {
    let name = lock_name(&path(name)?)?;
    let places = look_into(&app, &name).await?;
    let (holders, waiting): (Vec<_>, Vec<&LockQueuePlace>) =
        places.iter().partition(|place| place.holds);
    Ok(Json(LockQueue {
        holders: holders.into_iter().map(place).collect(),
        waiting: waiting.into_iter().map(place).collect(),
    }))
}

/// Holds a lock for as long as this connection is open and the lease runs, as server-sent events.
///
/// `waiting` comes with the place in the queue and who holds, `held` with the token and the lease, `renewed` with each
/// renewal. `lost`, `timeout` and `refused` are the last. Closing the connection gives the lock back; a client that takes
/// nothing for as long as the lease runs has lost it. A comment comes every 15 s.
#[utoipa::path(post, path = api::LOCK_PATH, params(
    CommandHeaders,
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
    LockQuery,
), security((), ("token" = [])), responses(
    (status = 200, description = "It goes on until the lock is lost or one side ends it; the data of each event is such a body", body = api::LockEvent, content_type = "text/event-stream"),
    CommandRefusal,
    RecipesOff,
    NotAcquired,
))]
pub(in crate::http) async fn hold(
    State(app): State<AppState>,
    _: Authorized,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ProblemResponse> {
    app.holdings()?;
    let name = lock_name(&path(name)?)?;
    let [mode, slots, wait, process] = values(&uri, ["mode", "slots", "wait", "process"], HOLD)?;
    let mode = lock_mode(mode.as_deref(), slots.as_deref())?;
    let process = process_name(process)?;
    let wait = wait.map(|wait| span("wait", &wait, &WAIT)).transpose()?;
    let patience = WaitLimit::of(wait, app.clock.now());
    let permit = app.place()?;
    let mut holding = app.ask_for(&name, HoldingSpec::Lock(mode), process).await?;
    if let HoldingView::Ended(ended) = holding.known(BEGIN_TIMEOUT).await {
        return Err(refusal(&name, HoldingSpec::Lock(mode), ended));
    }
    Ok(stream::stream(app, permit, name, HoldingSpec::Lock(mode), holding, patience))
}

/// Gets a lock that is kept for a time, for clients that cannot stream: it has to be renewed before that is over.
///
/// `valid_for_ms` says for how long it is surely held, which may be less than its time: renew it sooner than that.
#[utoipa::path(put, path = api::LOCK_PATH, params(
    CommandHeaders,
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
    LockQuery,
    TimeQuery,
), security((), ("token" = [])), responses(
    (status = 201, description = "It is held", body = api::TtlLock),
    CommandRefusal,
    RecipesOff,
    NotAcquired,
))]
pub(in crate::http) async fn keep(
    State(app): State<AppState>,
    _: Authorized,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<(StatusCode, Json<api::TtlLock>), ProblemResponse> {
    app.holdings()?;
    let name = lock_name(&path(name)?)?;
    let [mode, slots, wait, process, ttl] =
        values(&uri, ["mode", "slots", "wait", "process", "ttl"], KEEP)?;
    let mode = lock_mode(mode.as_deref(), slots.as_deref())?;
    let process = process_name(process)?;
    let wait = wait.map(|wait| span("wait", &wait, &WAIT)).transpose()?;
    let wait = wait.unwrap_or(WAIT_DEFAULT);
    let ttl = time(ttl)?;
    let _permit = app.place()?;
    let patience = WaitLimit::of(Some(wait), app.clock.now());
    let mut holding = app.ask_for(&name, HoldingSpec::Lock(mode), process).await?;
    match holding.settled(patience).await {
        HoldingView::Held { .. } => {}
        HoldingView::Ended(ended) => return Err(refusal(&name, HoldingSpec::Lock(mode), ended)),
        HoldingView::Waiting { ahead: Some(1..) } => {
            let detail = format!("others hold {name}, or asked before: GET /locks/{name} has them");
            return Err(ProblemResponse::conflict(
                "timed-out",
                "the lock was not got in time",
                detail,
            ));
        }
        HoldingView::Waiting { ahead: None | Some(0) }
        | HoldingView::Gathering { .. }
        | HoldingView::Leaving => {
            return Err(ProblemResponse::unavailable("not-locked", "not locked", NO_ANSWER));
        }
    }
    let id = TtlLocks::keep(&app, name.clone(), holding, ttl);
    let body = kept(&app, &name, id, None);
    // Its lease may have run out since.
    body.map(|body| (StatusCode::CREATED, Json(body)))
        .map_err(|_| refusal(&name, HoldingSpec::Lock(mode), Ended::Lost(Loss::LeaseRanOut)))
}

/// Keeps a lock on.
#[utoipa::path(put, path = api::KEPT_LOCK_PATH, params(
    CommandHeaders,
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
    ("lock" = String, Path, description = "As it was answered"),
    TimeQuery,
), security((), ("token" = [])), responses(
    (status = 200, description = "It is held on", body = api::TtlLock),
    CommandRefusal,
    RecipesOff,
    Gone,
))]
pub(in crate::http) async fn renew(
    State(app): State<AppState>,
    _: Authorized,
    names: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
) -> Result<Json<api::TtlLock>, ProblemResponse> {
    app.holdings()?;
    let (name, id) = path(names)?;
    let name = lock_name(&name)?;
    let [ttl] = values(&uri, ["ttl"], RENEW)?;
    kept(&app, &name, id, Some(time(ttl)?)).map(Json)
}

/// Gives a lock back. The answer comes when its znode is gone.
#[utoipa::path(delete, path = api::KEPT_LOCK_PATH, params(
    CommandHeaders,
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
    ("lock" = String, Path, description = "As it was answered"),
), security((), ("token" = [])), responses(
    (status = 204, description = "It is given back"),
    CommandRefusal,
    RecipesOff,
    Gone,
))]
pub(in crate::http) async fn give_back(
    State(app): State<AppState>,
    _: Authorized,
    names: Result<Path<(String, String)>, PathRejection>,
    _: NoQuery,
) -> Result<StatusCode, ProblemResponse> {
    app.holdings()?;
    let (name, id) = path(names)?;
    let name = lock_name(&name)?;
    let mut holding = TtlLocks::take(&app, &name, &id).ok_or_else(|| kept::gone(&name))?;
    holding.release.release();
    match tokio::time::timeout(RELEASE_TIMEOUT, holding.gone()).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => {
            let why = "it is given back for this member's part, but ZooKeeper did not confirm it: its znode may \
                       stand until the session times out";
            Err(ProblemResponse::unavailable("unconfirmed", "not confirmed", why))
        }
    }
}

pub(super) async fn look_into(
    app: &AppState,
    name: &HoldingName,
) -> Result<Arc<[LockQueuePlace]>, ProblemResponse> {
    app.look_at_locks(|answer| LookRequest::Queue(name.clone(), answer)).await
}

/// Returns the body about a lock that is kept, and has this answer claim it.
fn kept(
    app: &AppState,
    name: &HoldingName,
    id: String,
    renewed: Option<Duration>,
) -> Result<api::TtlLock, ProblemResponse> {
    let standing = TtlLocks::standing(app, name, &id, renewed);
    let kept::TtlLockState { token, until, claim } = standing.ok_or_else(|| kept::gone(name))?;
    ConnectionClaims::current().claim(Some(claim));
    Ok(api::TtlLock { lock: id, held: held_body(app, token, until) })
}

/// Breaks a place in a lock's queue, for operators: its holder is told to give it up, and its znode is deleted.
///
/// The answer comes when that is done: after twice the session timeout, when whoever held it is sure not to any more. It is done
/// even if the connection is closed before.
#[utoipa::path(post, path = api::BREAK_LOCK_PATH, params(
    CommandHeaders,
    ("name" = String, Path, description = "1 to 64 of `A-Z a-z 0-9 . _ -`"),
    ("token" = u64, Path, description = "As `GET /locks/{name}` has it"),
    ("now" = inline(Option<String>), Query, description = "`1`: do not wait until its lease is over. Its holder may act beside the next one until it hears of it", pattern = "^[01]$"),
), security((), ("token" = [])), responses(
    (status = 204, description = "It is gone"),
    CommandRefusal,
    (status = 404, description = "No such lock, or no place with that token in its queue.", body = api::Problem, content_type = "application/problem+json"),
))]
pub(in crate::http) async fn break_lock(
    State(app): State<AppState>,
    _: Authorized,
    names: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
) -> Result<StatusCode, ProblemResponse> {
    app.holdings()?;
    let (name, token) = path(names)?;
    let name = lock_name(&name)?;
    let token = FencingToken(number("token", &token, "12884901890")?);
    let [now] = values(&uri, ["now"], BREAK)?;
    let is_at_once = flag("now", now.as_deref(), BREAK)?;
    let permit = app.place()?;
    // A place that is marked and not deleted would block the lock, so this goes on if the client does not wait.
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
    async fn break_place(
        &self,
        name: HoldingName,
        token: FencingToken,
        is_at_once: bool,
    ) -> Result<(), ProblemResponse> {
        let step = async |step| {
            self.look_at_locks(|answer| LookRequest::Break(name.clone(), token, step, answer)).await
        };
        let wait = step(BreakStep::Mark).await?.ok_or_else(|| {
            let detail = format!("nothing in the queue of lock {name} has token {token}");
            ProblemResponse::missing("no-such-place", "no such place", detail)
        })?;
        if !is_at_once {
            tokio::time::sleep(wait).await;
        }
        // Its owner may have deleted it, or its session has ended.
        step(BreakStep::Delete).await?;
        Ok(())
    }
}

pub(super) fn place(place: &LockQueuePlace) -> LockPlace {
    let (mode, slots) = mode_words(place.entry.mode);
    LockPlace {
        member: place.member.clone(),
        process: place.process.as_ref().map(|process| process.as_str().to_owned()),
        mode,
        slots,
        token: place.ticket.token.0,
        znode: place.znode.clone(),
        since: api::date(place.since),
    }
}

fn lock_name(written: &str) -> Result<HoldingName, ProblemResponse> {
    named(written, "lock's name", "migrate")
}

fn lock_mode(mode: Option<&str>, slots: Option<&str>) -> Result<Mode, ProblemResponse> {
    fn wrong(why: String) -> Result<Mode, ProblemResponse> {
        Err(ProblemResponse::bad_request(why))
    }
    match (mode, slots) {
        (None | Some("exclusive"), None) => Ok(Mode::Exclusive),
        (Some("shared"), None) => Ok(Mode::Shared),
        (Some(other), None) => wrong(format!(
            "mode={other:?} is not known: write exclusive or shared, or ?slots=3 for a semaphore"
        )),
        (Some(_), Some(_)) => wrong("mode and slots exclude each other: leave one out".into()),
        (None, Some(slots)) => match slots.parse::<NonZeroU32>() {
            Ok(number) if number <= SLOTS_MAX => Ok(Mode::Slots(number)),
            Ok(_) | Err(_) => wrong(format!(
                "slots={slots:?} must be an integer from 1 to {SLOTS_MAX}, such as ?slots=3"
            )),
        },
    }
}

fn time(ttl: Option<String>) -> Result<Duration, ProblemResponse> {
    Ok(ttl.map(|ttl| span("ttl", &ttl, &TTL)).transpose()?.unwrap_or(TTL_DEFAULT))
}
