//! What the application may ask. Every answer is judged at the moment it is written.
//!
//! - `GET /leader`: who leads, as far as this member may say.
//! - `GET /is-leader`, `GET /is-follower`: 200 if so, 503 if not.
//! - `GET /status`: everything this member knows of itself.
//! - `GET /members`: the line, in order.
//! - `GET /livez`, `GET /readyz`: for the supervisor.
//!
//! Errors are `application/problem+json` (RFC 9457).

mod members;
mod problem;
mod serve;
mod standing;

use crate::clock::Clock;
use crate::desk::Front;
use axum::Router;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use axum::routing::get;
use problem::Problem;
pub use serve::serve;

/// What things are called in this election.
#[derive(Clone)]
pub struct Names {
    pub election: String,
    pub prefix: String,
}

#[derive(Clone)]
struct Sight {
    desk: Front,
    clock: Clock,
    names: Names,
    started_at: crate::election::Moment,
}

pub fn router(desk: Front, clock: Clock, names: Names) -> Router {
    let started_at = clock.now();
    Router::new()
        .route("/leader", get(standing::leader))
        .route("/is-leader", get(standing::is_leader))
        .route("/is-follower", get(standing::is_follower))
        .route("/status", get(standing::status))
        .route("/livez", get(standing::livez))
        .route("/readyz", get(standing::readyz))
        .route("/members", get(members::members))
        .fallback(async |uri: Uri| Problem::not_found(uri.path()))
        .method_not_allowed_fallback(async |uri: Uri| Problem::wrong_method(uri.path()))
        .layer(axum::middleware::map_response(never_stored))
        .with_state(Sight { desk, clock, names, started_at })
}

/// Who leads is old news the moment it is written.
async fn never_stored(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
