//! Messages to hooks.

use super::Leader;
use serde::{Deserialize, Serialize};

/// The message that the command of a hook reads, or that a hook posts.
#[derive(Serialize, Deserialize)]
pub struct HookMessage {
    pub change: String,
    pub election: String,
    /// The id of this member.
    pub id: String,
    #[serde(flatten)]
    pub state: LeaderFile,
    /// The token of the term that the change is about; for `lost-leadership`, of the term that has ended.
    pub token: Option<u64>,
}

/// The content of a state file.
#[derive(Serialize, Deserialize)]
pub struct LeaderFile {
    pub leader: Option<Leader>,
    pub is_self: bool,
    /// When the current lease of this member ends, on the kernel's clocks. The lease may be renewed before that.
    pub valid_until_boottime_ns: Option<u64>,
    pub valid_until_monotonic_ns: Option<u64>,
    pub index: Option<u64>,
    pub at: String,
}
