//! The leader, as in `/leader`, in the events, and in the answers about this member's role, such as `/is-leader`.

use super::Endpoint;
use crate::znode_names::ZnodeNames;
use recipes::election::{self, Announcement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const LEADER: Endpoint<LeaderState> = Endpoint::get("/leader");
pub const IS_LEADER: Endpoint<Leadership> = Endpoint::get("/is-leader");
/// A stream of events. The data of each event is a [`LeaderEvent`].
pub const EVENTS: Endpoint<LeaderEvent> = Endpoint::get("/events");

/// The body of `/leader`, and a part of each event.
#[derive(Serialize, Deserialize)]
pub struct LeaderState {
    /// Null while no leader is known.
    pub leader: Option<Leader>,
    /// True if this member is the leader.
    pub is_self: bool,
    /// The remaining time of the lease, in milliseconds; null unless this member leads.
    pub valid_for_ms: Option<u64>,
    /// When the lease ends, unless it is renewed, on `CLOCK_BOOTTIME` of this machine, in nanoseconds.
    pub valid_until_boottime_ns: Option<u64>,
    /// The same moment on `CLOCK_MONOTONIC`, which stops while the machine is suspended.
    pub valid_until_monotonic_ns: Option<u64>,
    /// A number that grows at each change of what this member reports about the leader; null until this member has joined.
    /// To wait for the next change, pass it to `GET /leader?index=`.
    pub index: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub struct Leader {
    pub id: String,
    /// The address of the leader's application.
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub znode: String,
    /// The fencing token, which grows from one leader to the next.
    pub token: u64,
}

/// The data of an event.
#[derive(Serialize, Deserialize)]
pub struct LeaderEvent {
    #[serde(flatten)]
    pub state: LeaderState,
    pub role: Role,
    /// When the event was written.
    pub at: String,
    /// The cause of the change, in words; left out of the event `state`, which is not a change, and if the cause is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// The body of `/is-leader`, and of the other answers about this member's role.
#[derive(Serialize, Deserialize)]
pub struct Leadership {
    pub is_leader: bool,
    pub role: Role,
    /// The id of the leader; null while no leader is known.
    pub leader: Option<String>,
    /// The fencing token of the leader; null while no leader is known.
    pub token: Option<u64>,
    /// When this member's lease ends, as in `/leader`; null unless this member leads.
    pub valid_until_boottime_ns: Option<u64>,
    pub valid_until_monotonic_ns: Option<u64>,
    /// Explains the answer to people.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Leader,
    /// First in the queue, but without a lease, because no quorum has lately confirmed the claim.
    Candidate,
    /// In the queue behind another member.
    Follower,
    /// Not in the queue.
    Absent,
    /// A role that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Leader {
    /// Returns the leader that an announcement names. `znodes` has the names of the election's znodes.
    pub fn of(announcement: &Announcement, znodes: &ZnodeNames) -> Self {
        let Announcement { leader, ticket } = announcement;
        Self {
            id: leader.id.to_string(),
            address: leader.address.clone(),
            labels: leader.labels.clone(),
            znode: znodes.name(ticket.sequence),
            token: ticket.token.0,
        }
    }
}

impl Role {
    pub fn of(role: &election::Role) -> Self {
        match role {
            election::Role::Leader { .. } => Self::Leader,
            election::Role::Candidate => Self::Candidate,
            election::Role::Follower { .. } => Self::Follower,
            election::Role::Absent => Self::Absent,
        }
    }

    /// Returns the name of the role, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Candidate => "candidate",
            Self::Follower => "follower",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}
