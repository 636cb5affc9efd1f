//! Errors in the format of RFC 9457.

use serde::{Deserialize, Serialize};

/// The start of the `type` of every problem.
pub const PROBLEM_TYPES: &str = "urn:bellwether:problem:";

/// An error, and how to fix it (RFC 9457).
#[derive(Serialize, Deserialize)]
pub struct Problem {
    /// Identifies the kind of the problem, and does not change: `urn:bellwether:problem:KIND`.
    pub r#type: String,
    pub title: String,
    pub status: u16,
    /// Explains the problem to people.
    pub detail: String,
    /// The index, as in `/leader`, if the problem is about the leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}
