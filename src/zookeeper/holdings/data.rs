//! The data of the znodes of locks and barriers. The data of a place's znode names the owner, for operators, and the id
//! of the holding: if the outcome of a create is unknown, the member finds its znode by that id. The data of a
//! barrier's `ready` has the largest number of the members inside, and the size of the barrier.

use crate::holdings::ProcessName;
use recipes::barrier::Ready;
use recipes::holding::HoldingId;
use recipes::{MemberId, Sequence};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The data of the znode of a place.
#[derive(Serialize, Deserialize)]
struct HoldingJson {
    /// The id of the member.
    id: String,
    /// The id of the holding, by which the member finds its znode.
    holding: u64,
    /// The name that the client's process gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<String>,
}

/// The owner of a place in a lock's queue or at a barrier, according to its znode.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) member: Option<String>,
    pub(super) process: Option<String>,
}

/// Encodes the data of the znode of a place: its owner, and the id of the holding.
pub(super) fn encode_owner(
    member: &MemberId,
    holding: HoldingId,
    process: Option<&ProcessName>,
) -> Vec<u8> {
    let process = process.map(|process| process.as_str().to_owned());
    let json = HoldingJson { id: member.to_string(), holding: holding.0, process };
    serde_json::to_vec(&json).expect("strings and numbers can be encoded")
}

/// Returns the owner of a place. The fields are `None` for data of another ZooKeeper client.
pub(super) fn owner_of(data: &[u8]) -> Owner {
    // Members write less than this. Longer data is of another client, and its beginning alone cannot be parsed.
    let data = data.get(..data.len().min(1024)).unwrap_or_default();
    let Ok(HoldingJson { id, process, .. }) = serde_json::from_slice(data) else {
        return Owner::default();
    };
    let member = MemberId::new(&id).map(|id| id.to_string());
    let process = process.filter(|name| member.is_some() && ProcessName::new(name).is_some());
    Owner { member, process }
}

/// The data of a barrier's `ready`.
#[derive(Serialize, Deserialize)]
struct ReadyJson {
    /// The largest number of the members inside.
    last: i32,
    size: Option<NonZeroU32>,
}

pub(super) fn encode_ready(ready: Ready) -> Vec<u8> {
    let json = ReadyJson { last: ready.last.number(), size: ready.size };
    serde_json::to_vec(&json).expect("strings and numbers can be encoded")
}

/// Returns the content of `ready`; `None` for data of another ZooKeeper client.
pub(super) fn ready_of(data: &[u8]) -> Option<Ready> {
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
        let data = encode_owner(&id, HoldingId(7), None);
        assert_eq!(String::from_utf8_lossy(&data), r#"{"id":"app-0","holding":7}"#);
        let member = Some("app-0".to_owned());
        assert_eq!(owner_of(&data), Owner { member: member.clone(), process: None });
        let process = ProcessName::new("web-3:4711");
        let data = encode_owner(&id, HoldingId(7), process.as_ref());
        let process = process.map(|process| process.as_str().to_owned());
        assert_eq!(owner_of(&data), Owner { member, process });
        for unknown_client in [&b""[..], b"10.0.0.7", b"\xff", br#"{"id":"a b","holding":1}"#] {
            assert_eq!(owner_of(unknown_client), Owner::default());
        }
    }

    #[test]
    fn ready_is_read_as_it_was_written_and_an_unknown_clients_says_nothing() {
        let last = Sequence::new(7).unwrap();
        let written = Ready { last, size: NonZeroU32::new(3) };
        let data = encode_ready(written);
        assert_eq!(String::from_utf8_lossy(&data), r#"{"last":7,"size":3}"#);
        assert_eq!(ready_of(&data), Some(written));
        for unknown_client in [&b""[..], b"1", b"\xff", br#"{"last":-1,"size":3}"#] {
            assert_eq!(ready_of(unknown_client), None);
        }
    }
}
