//! The shared configuration: values, and the outcome of writes.

use super::Endpoint;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};

pub const CONFIG_NAMES: Endpoint<ConfigNames> = Endpoint::get("/config");
/// `GET` returns the bytes of a value; `PUT` and `DELETE` write it.
pub const CONFIG_PATH: &str = "/config/{name}";

/// The data of the event `value`, and the output of `bellwether config get -o json`.
#[derive(Serialize)]
pub struct ConfigValue {
    /// The number of writes since the value was created; null if an answer has no version that can be read.
    version: Option<i32>,
    /// The index of this reading, by which to wait for the next change at `/config/{name}`; null if an answer has none.
    index: Option<u64>,
    /// True if the value is deleted with the session of the member through which it was created. Only in an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral: Option<bool>,
    /// The value; null if it is not UTF-8.
    text: Option<String>,
    /// The value in Base64; null if it is UTF-8.
    base64: Option<String>,
}

impl ConfigValue {
    pub fn new(
        data: &[u8],
        version: Option<i32>,
        index: Option<u64>,
        ephemeral: Option<bool>,
    ) -> Self {
        let text = str::from_utf8(data).ok().map(str::to_owned);
        let base64 = text.is_none().then(|| BASE64_STANDARD.encode(data));
        Self { version, index, ephemeral, text, base64 }
    }
}

/// The data of the event `absent`.
#[derive(Serialize, Deserialize)]
pub struct ConfigAbsent {
    /// The index by which to wait for the next change.
    pub index: u64,
}

/// The outcome of a write.
#[derive(Serialize, Deserialize)]
pub struct ConfigWritten {
    /// The version of the value that was written.
    pub version: i32,
    /// The index by which to wait for the next change.
    pub index: u64,
}

/// The body that a `[[config]]` posts to the URL in its `then`, after its file was written.
#[derive(Serialize, Deserialize)]
pub struct ConfigMessage {
    /// The name of the change, always `config-changed`.
    pub change: String,
    /// The name of the value.
    pub name: String,
    /// The path of the file.
    pub file: String,
    /// The version of the value in the file.
    pub version: i32,
    /// The index by which to wait for the next change.
    pub index: u64,
}

/// A value that is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncedFile {
    /// The name of the value.
    pub name: String,
    /// The path of the file.
    pub file: String,
    /// The version of the value that this process wrote last; null if it wrote none.
    pub version: Option<i32>,
    pub state: SyncedFileStatus,
    /// Why the file is not current, for people; null if the state explains it.
    pub problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncedFileStatus {
    /// The file has the current value.
    Current,
    /// The value cannot be read from ZooKeeper at the moment: the file is unchanged.
    Away,
    /// The value does not exist: the file is unchanged.
    Absent,
    /// The current value cannot be written to the file.
    Unwritten,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

#[derive(Serialize, Deserialize)]
pub struct ConfigNames {
    pub names: Vec<String>,
}
