//! The history of leaders.

use super::Endpoint;
use serde::{Deserialize, Serialize};

pub const HISTORY: Endpoint<History> = Endpoint::get("/history");

#[derive(Serialize, Deserialize)]
pub struct History {
    pub terms: Vec<Term>,
}

#[derive(Serialize, Deserialize)]
pub struct Term {
    /// The id of the leader.
    pub id: String,
    pub token: u64,
    /// True if this member was the leader.
    pub is_self: bool,
    /// When this member learned of the term.
    pub from: String,
    /// When this member learned of the end of the term, or left the queue and could no longer learn of the end; null
    /// while neither has happened.
    pub to: Option<String>,
    /// How the term ended, in words, or that this member has left the queue and does not know of an end; null while
    /// `to` is.
    pub ended: Option<String>,
    /// If this member's process restarted within the term, the time for which no process ran; left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_for_ms: Option<u64>,
}
