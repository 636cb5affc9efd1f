//! What a member says of itself, and a change of that.

use recipes::election::Priority;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Own)]
pub struct OwnProfile {
    pub id: String,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// How much it is preferred as the leader, from 0 to 100. Left out by older versions, whose members have 50.
    #[serde(default = "usual_priority")]
    #[schema(required = true, maximum = 100)]
    pub priority: u8,
    /// How often address or labels have changed since the process started.
    pub revision: u64,
}

/// A JSON merge patch (RFC 7396): null takes away, what is left out stays.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub address: Option<Option<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>, required = false)]
    pub labels: Option<Option<BTreeMap<String, Option<String>>>>,
    /// From 0 to 100; null for the usual one, 50.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, required = false, maximum = 100)]
    pub priority: Option<Option<u8>>,
}

/// That of members of versions that know none.
pub(super) fn usual_priority() -> u8 {
    Priority::default().number()
}

/// Distinguishes null, which removes a value, from a field that is left out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
