//! The whole election, as one member sees it.

use super::{Get, Member};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const CLUSTER: Get<Cluster> = Get::at("/cluster");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The election's path.
    pub election: String,
    /// Null while none is known.
    pub leader: Option<ClusterLeader>,
    /// The member that leads next; null if there is no other.
    pub next: Option<NextLeader>,
    /// The queue, in order.
    pub members: Vec<Member>,
    /// What is wrong, a sentence each; empty if nothing is.
    pub problems: Vec<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClusterLeader {
    pub id: String,
    pub token: u64,
    /// For how long it has led, as far as this member has heard.
    pub for_ms: Option<u64>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct NextLeader {
    /// Null if its znode does not say.
    pub id: Option<String>,
    pub znode: String,
    /// Whether it leads at the notification that the leader is gone; else it has to claim first. Null in another client's
    /// queue, which does not tell.
    pub ready: Option<bool>,
}
