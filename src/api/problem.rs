//! Errors, as RFC 9457 wants them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the `type` of every problem begins.
pub const PROBLEM_TYPES: &str = "urn:bellwether:problem:";

/// An error, and how to fix it (RFC 9457).
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Tells problems apart, and stays the same: `urn:bellwether:problem:KIND`.
    pub r#type: String,
    pub title: String,
    pub status: u16,
    /// For people.
    pub detail: String,
    /// As `/leader` tells it, where the problem is about who leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}
