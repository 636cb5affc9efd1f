//! Double barriers: the requests to enter and to leave, and the participants.

use super::super::AppState;
use super::super::authorize::Authorized;
use super::super::problem::ProblemResponse;
use super::super::query::{Count, NoQuery, Query, RecipePath, Span};
use crate::api::{BarrierNames, BarrierState};
use crate::holdings::{ProcessName, ReadRequest};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use recipes::holding::{End, HoldingKind, HoldingSpec, HoldingState};
use serde::Deserialize;

const KIND: HoldingKind = HoldingKind::Barrier;

/// The size of a barrier, and how long to wait in front of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BarrierQuery {
    /// The number of participants that enter together. All participants of a barrier must use the same size.
    size: Count,
    /// How long to wait, such as `30s`, from `0s` to `10m`; by default as long as the connection is open.
    wait: Option<Span<0>>,
    /// The name of the process, for people who look at the barrier: 1 to 128 visible ASCII characters.
    process: Option<ProcessName>,
}

/// The names of all barriers that have participants, or lately had some; read from ZooKeeper at most once a second.
pub(in crate::http) async fn names(
    State(app): State<AppState>,
    _: Query<NoQuery>,
) -> Result<Json<BarrierNames>, ProblemResponse> {
    let names = app.read_holdings(KIND, |answer| ReadRequest::Names(KIND, answer)).await?;
    Ok(Json(BarrierNames { barriers: names.to_vec() }))
}

/// The participants in front of a barrier and inside, in order of arrival; read from ZooKeeper at most once a second.
pub(in crate::http) async fn state(
    State(app): State<AppState>,
    _: Query<NoQuery>,
    RecipePath { name, .. }: RecipePath,
) -> Result<Json<BarrierState>, ProblemResponse> {
    let state = app.read_holdings(KIND, |answer| ReadRequest::Barrier(name, answer)).await?;
    Ok(Json((*state).clone()))
}

/// Enters a barrier together with others, once enough are there, as server-sent events.
///
/// `waiting` has the number of participants at the last reading, and `entered` the token and the lease. `renewed` is sent at
/// each renewal of the lease. Each event has the id by which to leave. `left` is sent when all participants have left. `left`, `lost`, `timeout` and
/// `refused` are last events. Closing the connection leaves the barrier; a client that reads nothing for as long as the
/// lease runs is no longer inside. A comment is sent every 15 s.
pub(in crate::http) async fn enter(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    Query(BarrierQuery { size: Count(size), wait, process }): Query<BarrierQuery>,
) -> Result<Response, ProblemResponse> {
    app.hold(name, HoldingSpec::Barrier(size), wait, process).await
}

/// Makes a participant that is inside leave the barrier. Its stream gets `left` when all participants have left.
pub(in crate::http) async fn leave(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
    RecipePath { name, id }: RecipePath,
) -> Result<StatusCode, ProblemResponse> {
    let found = app.registry.find(KIND, &name, &id);
    // A participant that is not found is answered like one that has left.
    let absent = HoldingState::Ended(End::Released);
    match found.map_or(absent, |barrier| barrier.leave(app.clock.now())) {
        HoldingState::Held { .. } | HoldingState::Leaving => Ok(StatusCode::NO_CONTENT),
        // `Waiting` only until the runner has taken the request.
        HoldingState::Waiting { .. } | HoldingState::Gathering { .. } => {
            let detail = format!(
                "the barrier {name} is not open yet: to stop waiting, close the connection of the stream"
            );
            Err(ProblemResponse::conflict("not-inside", detail))
        }
        HoldingState::Ended(_) => {
            let detail = format!(
                "no participant with that id is inside {name} through this member: its stream was closed, it was lost, or it never \
                 entered"
            );
            Err(ProblemResponse::new(StatusCode::GONE, "barrier-lost", detail))
        }
    }
}
