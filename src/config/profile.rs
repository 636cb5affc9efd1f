//! Checks whether a member's profile fits into a znode.

use super::error::ConfigError;
use super::servers::{is_digits, is_port};
use super::table;
use crate::znode_names::ZnodeNames;
use recipes::election::Profile;

/// The limit of the data that a member writes into its znode: its own profile, and a leader's profile of the same size.
const LARGEST_DATA_BYTES: usize = 1024;
const ADDRESS: &str = "write host:port, such as 10.0.0.7:8080";

/// Checks that a profile is valid, and that a znode can hold it twice: as the member's own profile, and as that of a leader
/// with an equally large profile.
///
/// # Errors
/// A sentence with the problem and the remedy.
pub fn fits(profile: &Profile, znodes: &ZnodeNames) -> Result<(), ConfigError> {
    let [id, address, labels] = [table::ID.key(), table::ADDRESS.key(), table::LABELS.key()];
    if let Some(written) = &profile.address
        && let Some(problem) = address_problem(written)
    {
        return Err(ConfigError::new(address, problem).found(written).remedy(ADDRESS));
    }
    if profile.labels.contains_key("") {
        return Err(
            ConfigError::new(labels, "has a label without a key").remedy("write zone = \"eu-1\"")
        );
    }
    let bytes = 2 * own_bytes(profile) + znode_bytes(znodes);
    if bytes <= LARGEST_DATA_BYTES {
        return Ok(());
    }
    let problem = format!(
        "together are {bytes} bytes in a znode (told once for the member and once for the leader), \
         and at most {LARGEST_DATA_BYTES} are allowed"
    );
    Err(ConfigError::new(format!("{id}, {address} and {labels}"), problem).remedy("shorten them"))
}

fn address_problem(written: &str) -> Option<&'static str> {
    if written.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Some("must not have spaces or control characters");
    }
    let (_, port) = written.rsplit_once(':')?;
    let is_wrong = is_digits(port) && !is_port(port);
    is_wrong.then_some("must have a port of 1 to 65535 behind its colon")
}

fn own_bytes(profile: &Profile) -> usize {
    let labels: usize = profile.labels.iter().map(|(k, v)| json_bytes(k) + json_bytes(v) + 2).sum();
    let address = profile.address.as_deref().map_or(4, json_bytes);
    let fixed =
        r#"{"format":1,"id":,"address":,"labels":{},"revision":18446744073709551615,"leader":,"version":""}"#
            .len()
            + env!("CARGO_PKG_VERSION").len();
    fixed + json_bytes(profile.id.as_str()) + address + labels
}

fn znode_bytes(znodes: &ZnodeNames) -> usize {
    json_bytes(&znodes.longest()) + r#","znode":,"token":18446744073709551615"#.len()
}

fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |json| json.len())
}
