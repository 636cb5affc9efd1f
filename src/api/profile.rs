//! What a member says of itself, and a change of that.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Own)]
pub struct OwnProfile {
    pub id: String,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
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
}

/// Distinguishes null, which removes a value, from a field that is left out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
