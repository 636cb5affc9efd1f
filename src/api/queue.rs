//! The queue, in order.

use super::{Get, Standby};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

pub const MEMBERS: Get<Members> = Get::at("/members");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Members {
    pub members: Vec<QueueMember>,
    /// What is wrong, a sentence each; empty if nothing is.
    pub problems: Vec<String>,
    /// Grows each time that one has joined or left, and is the same at every member: pass it to `GET /members?index=` to wait for that.
    pub index: u64,
}

/// The data of the event `members`: who is in the queue.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct MembersEvent {
    pub members: Vec<GroupMember>,
    pub index: u64,
}

/// The data of the events `member-joined` and `member-left`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct MemberMoved {
    #[serde(flatten)]
    pub member: GroupMember,
    pub index: u64,
    /// When that was seen.
    pub at: String,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct GroupMember {
    /// Null if the znode does not say: another ZooKeeper client.
    pub id: Option<String>,
    pub znode: String,
    pub sequence: i32,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub version: Option<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct QueueMember {
    /// Null if the znode does not say: another ZooKeeper client.
    pub id: Option<String>,
    pub znode: String,
    pub sequence: i32,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub is_leader: bool,
    pub is_self: bool,
    /// Null unless only the head is ahead of this member.
    pub standby: Option<Standby>,
    /// The id of the leader that this member's znode announces: so one sees an announcement go down the queue.
    pub names: Option<String>,
    pub version: Option<String>,
    /// How much it is preferred as the leader, from 0 to 100.
    #[schema(maximum = 100)]
    pub priority: u8,
    /// Since when its znode stands there, by the servers' clock.
    #[schema(required = true)]
    pub since: Option<String>,
    /// Whether it tells that its application is not healthy.
    pub unhealthy: bool,
    /// How many of its hooks have failed and not succeeded since.
    pub hooks_failing: u32,
}
