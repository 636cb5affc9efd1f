//! The shared configuration: values, and the outcome of writes.

use super::Get;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const CONFIG_NAMES: Get<ConfigNames> = Get::at("/config");
/// A value: its bytes with `GET`; with `PUT` and `DELETE` it is written.
pub const CONFIG_PATH: &str = "/config/{name}";

/// The data of the event `value`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigValue {
    /// The number of writes since it was created.
    pub version: i32,
    pub index: u64,
    /// Whether it is deleted with the session of the member through which it was created.
    pub ephemeral: bool,
    /// The value; null if it is not UTF-8.
    pub text: Option<String>,
    /// The value in Base64; null if it is UTF-8.
    pub base64: Option<String>,
}

/// The data of the event `absent`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigAbsent {
    pub index: u64,
}

/// A value as `bellwether config get -o json` prints it.
#[derive(Serialize)]
pub struct ConfigOutput {
    /// The number of writes since it was created.
    pub version: Option<i32>,
    pub index: Option<u64>,
    /// The value; null if it is not UTF-8.
    pub text: Option<String>,
    /// The value in Base64; null if it is UTF-8.
    pub base64: Option<String>,
}

/// The outcome of a write.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigWritten {
    pub version: i32,
    /// By which to wait for the next change.
    pub index: u64,
}

/// The body that a `then` of `[[config]]` posts.
#[derive(Serialize, Deserialize)]
pub struct ConfigMessage {
    pub change: String,
    pub name: String,
    pub file: String,
    pub version: i32,
    pub index: u64,
}

/// A value that is kept as a file.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct SyncedFile {
    pub name: String,
    pub file: String,
    /// Of the value that this process wrote last; null if it wrote none.
    pub version: Option<i32>,
    pub state: SyncedFileStatus,
    /// Why it is not current, for people; null if that is all there is to say.
    pub problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyncedFileStatus {
    /// The file has the value that there is.
    Current,
    /// ZooKeeper is away, or does not show it: the file stays as it is.
    Away,
    /// The value does not exist: the file is unchanged.
    Absent,
    /// The file cannot be written.
    Unwritten,
    /// A state that only a later version knows.
    #[serde(other, skip_serializing)]
    Unknown,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ConfigNames {
    pub names: Vec<String>,
}
