//! Double barriers: the requests to enter and to leave, and the participants.

use super::super::AppState;
use super::super::authorize::Authorized;
use super::super::problem::{ProblemResponse, QueryRefusal};
use super::super::query::{NoQuery, RecipePath, count, values};
use super::{Gone, NotAcquired, RecipesOff};
use crate::api::{self, BarrierNames, BarrierState};
use crate::holdings::LookRequest;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use recipes::holding::{End, HoldingKind, HoldingSpec, HoldingState};
use utoipa::IntoParams;

/// An example of a valid query, for error messages.
const ENTER: &str = "?size=3 or ?size=3&wait=30s";

const KIND: HoldingKind = HoldingKind::Barrier;

/// The size of a barrier, and how long to wait in front of it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
struct BarrierQuery {
    /// The number of participants that enter together. All participants of a barrier must use the same size.
    #[param(minimum = 1, maximum = 1000)]
    size: u32,
    /// How long to wait, such as `30s`, at most `10m`; by default as long as the connection is open.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
    /// The name of the process, for people who look at the barrier: 1 to 128 visible ASCII characters.
    #[param(example = "web-3:4711", pattern = "^[!-~]{1,128}$")]
    process: Option<String>,
}

/// The names of all barriers that have participants, or lately had some; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::BARRIERS.path, operation_id = "barrier_names", responses(
    (status = 200, description = "In order", body = BarrierNames),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn names(
    State(app): State<AppState>,
    _: NoQuery,
) -> Result<Json<BarrierNames>, ProblemResponse> {
    let names = app.read_holdings(KIND, |answer| LookRequest::Names(KIND, answer)).await?;
    Ok(Json(BarrierNames { barriers: names.to_vec() }))
}

/// The participants in front of a barrier and inside, in order of arrival; read from ZooKeeper at most once a second.
#[utoipa::path(get, path = api::BARRIER_PATH, responses(
    (status = 200, description = "The participants; `members` is empty if the barrier does not exist", body = BarrierState),
    RecipesOff,
    QueryRefusal,
))]
pub(in crate::http) async fn state(
    State(app): State<AppState>,
    _: NoQuery,
    RecipePath { name, .. }: RecipePath,
) -> Result<Json<BarrierState>, ProblemResponse> {
    let state = app.read_holdings(KIND, |answer| LookRequest::Barrier(name, answer)).await?;
    Ok(Json((*state).clone()))
}

/// Enters a barrier together with others, once enough are there, as server-sent events.
///
/// `waiting` has the number of participants at the last reading, `entered` the token and the lease, `renewed` each renewal;
/// each event has the id by which to leave. `left` is sent when all participants have left. `left`, `lost`, `timeout` and
/// `refused` are last events. Closing the connection leaves the barrier; a client that reads nothing for as long as the
/// lease runs is no longer inside. A comment is sent every 15 s.
#[utoipa::path(post, path = api::BARRIER_PATH, params(
    BarrierQuery,
), responses(
    (status = 200, description = "It goes on until all have left or one side ends it; the data of each event is such a body", body = api::BarrierEvent, content_type = "text/event-stream"),
    RecipesOff,
    NotAcquired,
))]
pub(in crate::http) async fn enter(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    uri: Uri,
) -> Result<Response, ProblemResponse> {
    let [size, wait, process] = values(&uri, ["size", "wait", "process"], ENTER)?;
    let size = size.ok_or_else(|| {
        ProblemResponse::bad_request(
            "size is missing: for how many the barrier is, such as ?size=3",
        )
    })?;
    let spec = HoldingSpec::Barrier(count("size", &size)?);
    app.hold(name, spec, wait, process).await
}

/// Makes a participant that is inside leave the barrier. Its stream gets `left` when all participants have left.
#[utoipa::path(post, path = api::LEAVE_BARRIER_PATH, operation_id = "leave_barrier", params(
    ("id" = String, Path, description = "As its stream told it"),
), responses(
    (status = 204, description = "It leaves"),
    RecipesOff,
    (status = 409, description = "The participant is still in front of the barrier."),
    Gone,
))]
pub(in crate::http) async fn leave(
    State(app): State<AppState>,
    _: Authorized,
    _: NoQuery,
    RecipePath { name, id }: RecipePath,
) -> Result<StatusCode, ProblemResponse> {
    let found = app.registry.find(KIND, &name, &id);
    let absent = HoldingState::Ended(End::Released);
    match found.map_or(absent, |barrier| barrier.leave(app.clock.now())) {
        HoldingState::Held { .. } | HoldingState::Leaving => Ok(StatusCode::NO_CONTENT),
        HoldingState::Waiting { .. } | HoldingState::Gathering { .. } => {
            let detail = format!(
                "too few are at {name} yet: to give up waiting, close the connection of the stream"
            );
            Err(ProblemResponse::conflict("not-inside", "it has not entered", detail))
        }
        HoldingState::Ended(_) => {
            let detail = format!(
                "no participant with that id is inside {name} through this member: its stream was closed, it was lost, or it never \
                 was"
            );
            let title = "no longer inside";
            Err(ProblemResponse::new(StatusCode::GONE, "barrier-lost", title, detail))
        }
    }
}
