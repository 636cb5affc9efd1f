//! The body that clients of Kubernetes' retired leader-elector sidecar and of its successors read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `name` is what leader-elector's clients compare with their host's name: empty, never null, while
/// no leader is known. The rest is what nais/elector and k8s-elector add.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Elector {
    pub name: String,
    pub is_leader: bool,
    pub leader: String,
    pub node: String,
    pub timestamp: String,
    pub last_update: String,
}
