//! The shared configuration: what is told of a value, and of what was written.

use super::Get;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const CONFIG_NAMES: Get<ConfigNames> = Get::at("/config");
/// A value: its bytes with `GET`; with `PUT` and `DELETE` it is written.
pub const CONFIG_PATH: &str = "/config/{name}";

/// The data of the event `value`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigValue {
    /// How often it was written since it was created.
    pub version: i32,
    pub index: u64,
    /// Whether it goes with the session of the member by way of which it was created.
    pub ephemeral: bool,
    /// The value; null if it is no UTF-8.
    pub text: Option<String>,
    /// The value in Base64; null if it is UTF-8.
    pub base64: Option<String>,
}

/// The data of the event `absent`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigAbsent {
    pub index: u64,
}

/// What was written.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigWritten {
    pub version: i32,
    /// By which to wait for the next change.
    pub index: u64,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigNames {
    pub names: Vec<String>,
}
