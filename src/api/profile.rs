//! The profile of a member, and changes to it.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The body of `/member`.
#[derive(Serialize, Deserialize)]
pub struct OwnProfile {
    pub id: String,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// How much the member is preferred as the leader, from 0 to 100.
    pub priority: u8,
    /// The number of changes to address or labels since the process started.
    pub revision: u64,
}

/// A JSON merge patch (RFC 7396) of the profile: null removes a value, and a field that is left out does not change.
///
/// Each field is an `Option` in an `Option`: `None` if it is left out, `Some(None)` if it is null.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub address: Option<Option<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub labels: Option<Option<BTreeMap<String, Option<String>>>>,
    /// From 0 to 100; null for the default, 50.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub priority: Option<Option<u64>>,
}

/// Reads a field that is in the patch: null becomes `Some(None)`. A field that is left out stays `None`, its default.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
