//! For load balancers: yes or no, at the paths that Patroni has and HAProxy asks.
//!
//! HAProxy's `option httpchk` asks with OPTIONS, and reads the status.

use super::api_router::{ApiRouter, routes};
use super::problem::BadRequest;
use super::query::NoQuery;
use super::yes_or_no::YesOrNo;
use super::{AppState, Verdict};
use axum::extract::State;
use axum::response::Response;

/// Routes for the application alone.
pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(health))
}

/// Routes for the probe listener as well.
pub(super) fn probes() -> ApiRouter {
    ApiRouter::new().routes(routes!(primary)).routes(routes!(replica))
}

/// For a load balancer: is this the leader?
#[utoipa::path(method(get, head, options), path = "/primary", responses(YesOrNo, BadRequest))]
async fn primary(State(app): State<AppState>, _: NoQuery) -> Response {
    app.answer(Verdict::leads)
}

/// For a load balancer: is this a follower?
#[utoipa::path(method(get, head, options), path = "/replica", responses(YesOrNo))]
async fn replica(State(app): State<AppState>) -> Response {
    app.answer(Verdict::follows)
}

/// For a load balancer: is this in the queue, whichever member leads?
#[utoipa::path(method(get, head, options), path = "/health", responses(YesOrNo))]
async fn health(State(app): State<AppState>) -> Response {
    app.answer(|verdict| verdict.snapshot.standing.ticket().is_some())
}
