//! Messages to hooks.

use super::Leader;
use serde::{Deserialize, Serialize};

/// The message that the command of a hook reads, or that a hook posts.
#[derive(Serialize, Deserialize)]
pub struct HookMessage {
    /// The name of the change, such as `became-leader`.
    pub change: String,
    /// The election's path.
    pub election: String,
    /// The id of this member.
    pub id: String,
    #[serde(flatten)]
    pub state: LeaderFile,
    /// The token of the leader's term. If this member stopped leading (`lost-leadership`), that of its term, which has ended.
    /// If no leader is known any longer (`leader-lost`), null.
    pub token: Option<u64>,
}

/// The content of a file that a hook keeps up to date, and a part of each message.
#[derive(Serialize, Deserialize)]
pub struct LeaderFile {
    /// Null while no leader is known.
    pub leader: Option<Leader>,
    /// True if this member is the leader.
    pub is_self: bool,
    /// When this member's lease ends, unless it is renewed, on two clocks of the kernel, as in [`LeaderState`]; null unless
    /// this member leads.
    ///
    /// [`LeaderState`]: super::LeaderState
    pub valid_until_boottime_ns: Option<u64>,
    pub valid_until_monotonic_ns: Option<u64>,
    /// The index of this state, by which to wait for the next change at `/leader`.
    pub index: Option<u64>,
    /// The time at which this content was made.
    pub at: String,
}
