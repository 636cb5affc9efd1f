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
    pub done: String,
    pub role: Role,
    /// The znode of this member; null if it has none, or does not have it yet.
    pub znode: Option<String>,
    pub predecessor: Option<String>,
}

/// The target of a transfer of leadership.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The id of the member that must lead. Without it, any member that is ready becomes the leader.
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
    pub leader: Leader,
    /// An upper bound of the time without a leader.
    pub leaderless_ms: u64,
}
