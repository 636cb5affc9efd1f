//! The profile of a member, and changes to it.

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Own)]
pub struct OwnProfile {
    pub id: String,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// How much the member is preferred as the leader, from 0 to 100.
    #[schema(maximum = 100)]
    pub priority: u8,
    /// The number of changes to address or labels since the process started.
    pub revision: u64,
}

/// A JSON merge patch (RFC 7396): null removes a value, and a field that is left out does not change.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub address: Option<Option<String>>,
    #[serde(default, deserialize_with = "labels", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>, required = false)]
    pub labels: Option<Option<BTreeMap<String, Option<String>>>>,
    /// From 0 to 100; null for the default, 50.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, required = false, maximum = 100)]
    pub priority: Option<Option<u8>>,
}

type LabelChanges = BTreeMap<String, Option<String>>;

/// Reads changes of labels, and refuses a label that occurs twice.
fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<LabelChanges>>, D::Error> {
    struct Once(LabelChanges);

    impl<'de> Deserialize<'de> for Once {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_map(OnceVisitor).map(Self)
        }
    }

    struct OnceVisitor;

    impl<'de> Visitor<'de> for OnceVisitor {
        type Value = LabelChanges;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelChanges, A::Error> {
            let mut labels = LabelChanges::new();
            while let Some((key, value)) = map.next_entry::<String, _>()? {
                if labels.contains_key(&key) {
                    return Err(A::Error::custom(format!("it has {key:?} twice")));
                }
                labels.insert(key, value);
            }
            Ok(labels)
        }
    }

    Option::<Once>::deserialize(from).map(|labels| Some(labels.map(|Once(labels)| labels)))
}

/// Distinguishes null, which removes a value, from a field that is left out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
