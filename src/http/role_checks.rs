//! Reports as the HTTP status whether this member leads, follows, or is in the queue, also at the paths for load
//! balancers, which have the names of Patroni's. The body, which is the same at each of these paths, explains the
//! status.

use super::query::{NoQuery, Query};
use super::{AppState, Verdict};
use crate::api::Leadership;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Reports whether this member leads at this moment; for load balancers too.
pub(super) async fn is_leader(State(app): State<AppState>, _: Query<NoQuery>) -> Response {
    app.answer(Verdict::leads)
}

/// Reports whether this member is in the queue behind another member; for load balancers too.
pub(super) async fn is_follower(State(app): State<AppState>) -> Response {
    app.answer(Verdict::follows)
}

/// For a load balancer: 200 if this member is in the queue, whichever member leads.
pub(super) async fn is_in_queue(State(app): State<AppState>) -> Response {
    app.answer(|verdict| verdict.snapshot.standing.ticket().is_some())
}

impl AppState {
    /// Answers with the status 200 if `holds` is true of the verdict, and with 503 if not.
    pub(super) fn answer(&self, holds: impl Fn(&Verdict) -> bool) -> Response {
        let verdict = self.evaluate_and_claim();
        let status = if holds(&verdict) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let leader = verdict.leader();
        let until = self.valid_until(&verdict);
        let leadership = Leadership {
            is_leader: verdict.leads(),
            role: verdict.role_name(),
            leader: leader.map(|leader| leader.leader.id.to_string()),
            token: leader.map(|leader| leader.ticket.token.0),
            valid_until_boottime_ns: until.map(|until| until.boottime_ns),
            valid_until_monotonic_ns: until.map(|until| until.monotonic_ns),
            reason: verdict.reason(),
        };
        (status, Json(leadership)).into_response()
    }
}
