//! The history of leaders.

use super::Get;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const HISTORY: Get<History> = Get::at("/history");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct History {
    pub terms: Vec<Term>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Term {
    pub id: String,
    pub token: u64,
    pub is_self: bool,
    /// When this member heard of it.
    pub from: String,
    /// The time at which this member learned of its end, or could no longer learn of it.
    pub to: Option<String>,
    /// How it ended, or that it is not heard of since, in words.
    pub ended: Option<String>,
    /// If this member's process was restarted within the term: for how long it was down. Left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_for_ms: Option<u64>,
}
