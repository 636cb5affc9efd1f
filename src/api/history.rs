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
    pub id: String,
    pub token: u64,
    pub is_self: bool,
    /// When this member learned of the term.
    pub from: String,
    /// When this member learned of the end of the term, or could no longer learn of it.
    pub to: Option<String>,
    /// How the term ended, or that this member no longer hears of it, in words.
    pub ended: Option<String>,
    /// If this member's process restarted within the term, the time for which no process ran; left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_for_ms: Option<u64>,
}
