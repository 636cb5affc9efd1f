//! Checks a member's profile, and whether it fits into a znode.

use super::error::ConfigError;
use super::table;
use crate::znode_names::ZnodeNames;
use recipes::election::Profile;
use serde_json::json;

/// The limit of the data that a member writes into its znode: its own profile and the leader's profile.
const LARGEST_DATA_BYTES: usize = 1024;
/// The remedy for an invalid address.
const ADDRESS_REMEDY: &str = "write host:port, such as 10.0.0.7:8080";

/// Checks that a profile is valid, and that a znode has room for it twice: every member's znode holds the member's own
/// profile and the leader's, which may be as large.
///
/// # Errors
/// A sentence with the problem and the remedy.
pub fn check_profile(profile: &Profile, znodes: &ZnodeNames) -> Result<(), ConfigError> {
    let [id, address, labels] = [table::ID.key(), table::ADDRESS.key(), table::LABELS.key()];
    if let Some(written) = &profile.address
        && written.contains(|c: char| c.is_control() || c.is_whitespace())
    {
        let problem = "must not have spaces or control characters";
        return Err(ConfigError::new(address, problem).found(written).remedy(ADDRESS_REMEDY));
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
        "together take {bytes} bytes in a znode, which holds the member's own and the leader's, and \
         at most {LARGEST_DATA_BYTES} are allowed"
    );
    Err(ConfigError::new(format!("{id}, {address} and {labels}"), problem).remedy("shorten them"))
}

/// Returns the size of a member's data in its znode when the number of its revision is at its longest. The part about the
/// leader is not included: `leader` is a placeholder.
fn own_bytes(profile: &Profile) -> usize {
    let own = json!({
        "format": 1,
        "id": profile.id.as_str(),
        "address": profile.address,
        "labels": profile.labels,
        "revision": u64::MAX,
        "leader": 0,
        "version": env!("CARGO_PKG_VERSION"),
    });
    own.to_string().len()
}

/// Returns the size of the name and token of the leader's znode in a member's data, at their longest.
fn znode_bytes(znodes: &ZnodeNames) -> usize {
    json!({"znode": znodes.longest(), "token": u64::MAX}).to_string().len()
}
