//! What stands in the znode of a lock: whose it is, so that people can see that, and which holding's, so that its member
//! finds it again after a create whose outcome is unknown.

use recipes::MemberId;
use recipes::holding::HoldingId;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct HoldingJson {
    id: String,
    holding: u64,
}

pub(super) fn encode(member: &MemberId, holding: HoldingId) -> Vec<u8> {
    let json = HoldingJson { id: member.to_string(), holding: holding.0 };
    serde_json::to_vec(&json).expect("it has nothing that JSON lacks")
}

/// Returns the member's id; `None` for data of a client of another make.
pub(super) fn member(data: &[u8]) -> Option<String> {
    // Longer data is no member's.
    let data = data.get(..data.len().min(1024))?;
    let HoldingJson { id, .. } = serde_json::from_slice(data).ok()?;
    MemberId::new(&id).map(|id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_as_it_was_written_and_a_stranger_is_none() {
        let id = MemberId::new("app-0").unwrap();
        let data = encode(&id, HoldingId(7));
        assert_eq!(String::from_utf8_lossy(&data), r#"{"id":"app-0","holding":7}"#);
        assert_eq!(member(&data).as_deref(), Some("app-0"));
        for stranger in [&b""[..], b"10.0.0.7", b"\xff", br#"{"id":"a b","holding":1}"#] {
            assert_eq!(member(stranger), None);
        }
    }
}
