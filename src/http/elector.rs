//! The body that clients of Kubernetes' retired leader-elector sidecar and of its successors read.

use super::{Sight, Verdict, claim};
use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// `name` is what leader-elector's clients compare with their host's name: empty, never null, while
/// no leader is known. The rest is what nais/elector and k8s-elector add.
#[derive(Serialize, ToSchema)]
pub(super) struct Elector {
    name: String,
    is_leader: bool,
    leader: String,
    node: String,
    timestamp: String,
    last_update: String,
}

pub(super) fn elector(sight: &Sight) -> Json<Elector> {
    let verdict = sight.judge();
    claim::follow(&verdict);
    Json(body(sight, &verdict))
}

pub(super) fn body(sight: &Sight, verdict: &Verdict) -> Elector {
    let leader = verdict.leader().map_or_else(String::new, |leader| leader.leader.id.to_string());
    let changed_at = verdict.report.chronicle.iter().next_back().map(|change| change.at);
    Elector {
        name: leader.clone(),
        is_leader: verdict.leads(),
        leader,
        node: verdict.report.standing.profile().id.to_string(),
        timestamp: super::date(sight.clock.date()),
        last_update: super::date(changed_at.unwrap_or(sight.started.date)),
    }
}
