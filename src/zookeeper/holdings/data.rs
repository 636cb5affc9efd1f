//! The data in the znode of a lock or a barrier's member: its owner, for people, and the id of the holding,
//! so that its member finds it again after a create whose outcome is unknown. And what stands in a barrier's `ready`.

use recipes::barrier::Ready;
use recipes::holding::HoldingId;
use recipes::{MemberId, Sequence};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

#[derive(Serialize, Deserialize)]
struct HoldingJson {
    id: String,
    holding: u64,
}

pub(super) fn encode(member: &MemberId, holding: HoldingId) -> Vec<u8> {
    let json = HoldingJson { id: member.to_string(), holding: holding.0 };
    serde_json::to_vec(&json).expect("it has nothing that JSON lacks")
}

/// Returns the member's id; `None` for data of another ZooKeeper client.
pub(super) fn member(data: &[u8]) -> Option<String> {
    // Longer data was not written by a member.
    let data = data.get(..data.len().min(1024))?;
    let HoldingJson { id, .. } = serde_json::from_slice(data).ok()?;
    MemberId::new(&id).map(|id| id.to_string())
}

#[derive(Serialize, Deserialize)]
struct ReadyJson {
    last: i32,
    size: Option<NonZeroU32>,
}

pub(super) fn encode_ready(ready: Ready) -> Vec<u8> {
    let json = ReadyJson { last: ready.last.number(), size: ready.size };
    serde_json::to_vec(&json).expect("it has nothing that JSON lacks")
}

/// Returns what stands in `ready`; `None` for data of another ZooKeeper client.
pub(super) fn ready(data: &[u8]) -> Option<Ready> {
    let data = data.get(..data.len().min(1024))?;
    let ReadyJson { last, size } = serde_json::from_slice(data).ok()?;
    Some(Ready { last: Sequence::new(last)?, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_as_it_was_written_and_an_unknown_client_is_none() {
        let id = MemberId::new("app-0").unwrap();
        let data = encode(&id, HoldingId(7));
        assert_eq!(String::from_utf8_lossy(&data), r#"{"id":"app-0","holding":7}"#);
        assert_eq!(member(&data).as_deref(), Some("app-0"));
        for unknown_client in [&b""[..], b"10.0.0.7", b"\xff", br#"{"id":"a b","holding":1}"#] {
            assert_eq!(member(unknown_client), None);
        }
    }

    #[test]
    fn ready_is_read_as_it_was_written_and_an_unknown_clients_says_nothing() {
        let last = Sequence::new(7).unwrap();
        let written = Ready { last, size: NonZeroU32::new(3) };
        let data = encode_ready(written);
        assert_eq!(String::from_utf8_lossy(&data), r#"{"last":7,"size":3}"#);
        assert_eq!(ready(&data), Some(written));
        for unknown_client in [&b""[..], b"1", b"\xff", br#"{"last":-1,"size":3}"#] {
            assert_eq!(ready(unknown_client), None);
        }
    }
}
