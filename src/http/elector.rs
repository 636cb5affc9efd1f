//! The body that clients of Kubernetes' retired leader-elector sidecar and of its successors read.

use super::{AppState, Verdict, claim};
use crate::api::{self, Elector};
use axum::Json;

pub(super) fn elector(app: &AppState) -> Json<Elector> {
    let verdict = app.judge();
    claim::follow(&verdict);
    Json(body(app, &verdict))
}

pub(super) fn body(app: &AppState, verdict: &Verdict) -> Elector {
    let leader = verdict.leader().map_or_else(String::new, |leader| leader.leader.id.to_string());
    let changed_at = verdict.snapshot.recent_changes.iter().next_back().map(|change| change.at);
    Elector {
        name: leader.clone(),
        is_leader: verdict.leads(),
        leader,
        node: verdict.snapshot.standing.profile().id.to_string(),
        timestamp: api::date(app.clock.date()),
        last_update: api::date(changed_at.unwrap_or(app.started.date)),
    }
}
