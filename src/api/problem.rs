//! Errors in the format of RFC 9457.

use serde::{Deserialize, Serialize};

/// The prefix of the `type` of every problem. The kind of the problem follows.
pub const PROBLEM_TYPE_PREFIX: &str = "urn:bellwether:problem:";

/// The body of an error response (RFC 9457).
#[derive(Serialize, Deserialize)]
pub struct Problem {
    /// Identifies the kind of the problem, and does not change: `urn:bellwether:problem:KIND`.
    pub r#type: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// Explains to people what went wrong and how to fix it.
    pub detail: String,
    /// The index by which to wait for the next change. Only problems about the leader or an absent value have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}
