//! How tickets and announcements are spelled in znodes.

use crate::election::{Announcement, FencingToken, MemberId, Profile, Sequence, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More than this nobody needs to say, and nobody reads.
pub(super) const LONGEST: usize = 1024;

/// The data of a member's znode.
#[derive(Serialize, Deserialize)]
struct Note {
    id: String,
    address: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    revision: u64,
    leader: Option<LeaderNote>,
    #[serde(default)]
    version: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct LeaderNote {
    id: String,
    address: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    revision: u64,
    znode: String,
    token: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(revision: &u64) -> bool {
    *revision == 0
}

pub(super) struct Decoded {
    pub(super) profile: Profile,
    pub(super) names: Option<Announcement>,
    /// Of the member's program.
    pub(super) version: Option<String>,
}

pub(super) fn encode(profile: &Profile, names: Option<&Announcement>, prefix: &str) -> Vec<u8> {
    let leader = names.map(|Announcement { leader, ticket }| LeaderNote {
        id: leader.id.to_string(),
        address: leader.address.clone(),
        labels: leader.labels.clone(),
        revision: leader.revision,
        znode: ticket.sequence.name(prefix),
        token: ticket.token.0,
    });
    let note = Note {
        id: profile.id.to_string(),
        address: profile.address.clone(),
        labels: profile.labels.clone(),
        revision: profile.revision,
        leader,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    serde_json::to_vec(&note).expect("a note has nothing that JSON lacks")
}

/// Whatever is no note of a member says nothing: others may write what they like.
pub(super) fn decode(data: &[u8], prefix: &str) -> Option<Decoded> {
    if data.len() > LONGEST {
        return None;
    }
    let note: Note = serde_json::from_slice(data).ok()?;
    let profile = Profile {
        id: MemberId::new(&note.id)?,
        address: note.address,
        labels: note.labels,
        revision: note.revision,
    };
    let names = note.leader.and_then(|leader| {
        let sequence = Sequence::of_name(&leader.znode, prefix)?;
        let id = MemberId::new(&leader.id)?;
        let LeaderNote { address, labels, revision, .. } = leader;
        Some(Announcement {
            leader: Arc::new(Profile { id, address, labels, revision }),
            ticket: Ticket { sequence, token: FencingToken(leader.token) },
        })
    });
    Some(Decoded { profile, names, version: note.version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: &str) -> Profile {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let (id, address) = (MemberId::new(id).unwrap(), Some("h:1".into()));
        Profile { id, address, labels, revision: 0 }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let ticket =
            Ticket { sequence: Sequence::new(3).unwrap(), token: FencingToken(0x1_0000_0003) };
        let names = Announcement { leader: Arc::new(profile("a")), ticket };
        let data = encode(&profile("b"), Some(&names), "leader_");
        let text = r#"{"id":"b","address":"h:1","labels":{"zone":"a"},"leader":{"id":"a","address":"h:1","labels":{"zone":"a"},"znode":"leader_0000000003","token":4294967299},"version":"VERSION"}"#;
        let text = text.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(data.clone()).unwrap(), text);
        let decoded = decode(&data, "leader_").unwrap();
        assert_eq!(decoded.profile, profile("b"));
        assert_eq!(decoded.names, Some(names));
    }

    #[test]
    fn strangers_say_nothing() {
        let long = [b" ".repeat(LONGEST), br#"{"id":"a","leader":null}"#.to_vec()].concat();
        for data in [&b""[..], b"\xff\x00", b"a", b"{}", b"null", br#"{"id":""}"#, &long] {
            assert!(decode(data, "leader_").is_none());
        }
        let foreign = br#"{"id":"a","leader":{"id":"b","znode":"n_0000000001","token":1}}"#;
        assert!(decode(foreign, "leader_").unwrap().names.is_none());
    }
}
