//! Messages to hooks.

use super::Leader;
use serde::{Deserialize, Serialize};

/// The message that a command reads, and that is posted.
#[derive(Serialize, Deserialize)]
pub struct HookMessage {
    pub change: String,
    pub election: String,
    /// This member.
    pub id: String,
    #[serde(flatten)]
    pub state: LeaderFile,
    /// Of the term that the change is about: for `lost-leadership`, the one that was lost.
    pub token: Option<u64>,
}

/// The content of a state file.
#[derive(Serialize, Deserialize)]
pub struct LeaderFile {
    pub leader: Option<Leader>,
    pub is_self: bool,
    /// When the lease that this member has now ends, by the kernel's clocks; it may be renewed before.
    pub valid_until_boottime_ns: Option<u64>,
    pub valid_until_monotonic_ns: Option<u64>,
    pub index: Option<u64>,
    pub at: String,
}
