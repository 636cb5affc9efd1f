//! The queue, in order.

use super::{Endpoint, Standby};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const MEMBERS: Endpoint<Members> = Endpoint::get("/members");

#[derive(Default, Serialize, Deserialize)]
pub struct Members {
    pub members: Vec<QueueMember>,
    /// The problems of the election and of its members, one sentence each; empty if there are none.
    pub problems: Vec<String>,
    /// A number that grows each time that a member joins or leaves, and is the same at every member. To wait for the next
    /// change, pass it to `GET /members?index=`.
    pub index: u64,
}

#[derive(Serialize, Deserialize)]
pub struct QueueMember {
    /// Null if the znode does not contain an id, because another ZooKeeper client created the znode.
    pub id: Option<String>,
    pub znode: String,
    pub sequence: i32,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub is_leader: bool,
    pub is_self: bool,
    /// Null unless the member is next to lead: right behind the leader, or, if none is known, right behind the head.
    /// Always null in another client's queue, whose znodes do not say whether a standby is ready.
    pub standby: Option<Standby>,
    /// The id of the leader that the member's znode announces; null if it announces none. The field shows how far an
    /// announcement has been relayed.
    pub names: Option<String>,
    /// The version of the member's program; null if the znode does not contain it.
    pub version: Option<String>,
    /// How much the member is preferred as the leader, from 0 to 100.
    pub priority: u8,
    /// When the member's znode was created, by the servers' clock.
    pub since: Option<String>,
    /// True if the member reports that its application is unhealthy.
    pub unhealthy: bool,
    /// The number of the member's hooks that failed, and have not succeeded since.
    pub hooks_failing: u32,
    /// The fencing token with which the member leads, or would lead.
    #[serde(default)]
    pub token: u64,
    /// The session that owns the member's znode.
    #[serde(default)]
    pub session: String,
}
