//! Commands for a member, and its answers.

use super::{Endpoint, Leader, Role};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub const RESIGN: Endpoint<Done> = Endpoint::post("/resign");
pub const TRANSFER: Endpoint<Transferred> = Endpoint::post("/transfer");
pub const PAUSE: Endpoint<Done> = Endpoint::post("/pause");
pub const RESUME: Endpoint<Done> = Endpoint::post("/resume");
pub const DRAIN: Endpoint<Done> = Endpoint::post("/drain");
pub const SHUTDOWN: Endpoint<Done> = Endpoint::post("/shutdown");

#[derive(Serialize, Deserialize)]
pub struct Done {
    /// The outcome of the command in a word or two, such as `resigned`.
    pub done: String,
    /// The role of this member after the command.
    pub role: Role,
    /// The znode of this member; null while the member is not in the queue.
    pub znode: Option<String>,
    /// The znode just ahead of this member's; null if this member is first, or has not read the queue.
    pub predecessor: Option<String>,
}

/// The body of a request to transfer leadership.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The id of the member that must become the leader. If it is left out, any member that is ready becomes the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The time limit in milliseconds; 30000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

impl Transfer {
    /// The default time limit of a transfer.
    pub const WITHIN: Duration = Duration::from_secs(30);
    /// The maximum time limit of a transfer.
    pub const LONGEST: Duration = Duration::from_secs(300);
}

/// The outcome of a transfer that moved leadership.
#[derive(Serialize, Deserialize)]
pub struct Transferred {
    /// The new leader.
    pub leader: Leader,
    /// An upper bound of the time without a leader.
    pub leaderless_ms: u64,
}
