//! Commands for a member, and its answers.

use super::{Leader, Post, Role};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

pub const RESIGN: Post<Done> = Post::at("/resign");
pub const TRANSFER: Post<Transferred> = Post::at("/transfer");
pub const PAUSE: Post<Done> = Post::at("/pause");
pub const RESUME: Post<Done> = Post::at("/resume");
pub const DRAIN: Post<Done> = Post::at("/drain");
pub const SHUTDOWN: Post<Done> = Post::at("/shutdown");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Done {
    pub done: String,
    pub role: Role,
    /// The znode of this member; null if it has none, or none yet.
    pub znode: Option<String>,
    pub predecessor: Option<String>,
}

/// To which member leadership is to be moved.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The id of the member that is to lead; without it any will do that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The time limit in milliseconds; 30000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 300000)]
    pub within_ms: Option<u64>,
}

impl Transfer {
    /// The default time limit of a transfer, and the largest.
    pub const WITHIN: Duration = Duration::from_secs(30);
    pub const LONGEST: Duration = Duration::from_secs(300);
}

/// Leadership was moved.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Transferred {
    pub leader: Leader,
    /// The longest time for which there may have been no leader.
    pub leaderless_ms: u64,
}
