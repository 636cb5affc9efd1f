//! How tickets and announcements are spelled in znodes.

use recipes::election::{Announcement, FencingToken, MemberId, Profile, Sequence, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More than this nobody needs to say, and nobody reads.
pub(super) const LONGEST: usize = 1024;

/// The data of a member's znode.
#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    profile: ProfileNote,
    leader: Option<LeaderNote>,
    #[serde(default)]
    version: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct LeaderNote {
    #[serde(flatten)]
    profile: ProfileNote,
    znode: String,
    token: u64,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    active: bool,
}

#[derive(Serialize, Deserialize)]
struct ProfileNote {
    id: String,
    address: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    revision: u64,
}

/// Who says nothing of it has never heard of leaders that are not.
fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(active: &bool) -> bool {
    *active
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(revision: &u64) -> bool {
    *revision == 0
}

/// What a member says of itself and of the leader.
#[derive(Clone, Debug)]
pub struct Says {
    pub profile: Profile,
    pub names: Option<Announcement>,
    /// Of the member's program.
    pub version: Option<String>,
}

pub(crate) fn encode(profile: &Profile, names: Option<&Announcement>, prefix: &str) -> Vec<u8> {
    let leader = names.map(|Announcement { leader, ticket, active }| LeaderNote {
        profile: ProfileNote::of(leader),
        znode: ticket.sequence.name(prefix),
        token: ticket.token.0,
        active: *active,
    });
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let note = Note { profile: ProfileNote::of(profile), leader, version };
    serde_json::to_vec(&note).expect("a note has nothing that JSON lacks")
}

/// Whatever is no note of a member says nothing: others may write what they like.
pub(crate) fn decode(data: &[u8], prefix: &str) -> Option<Says> {
    if data.len() > LONGEST {
        return None;
    }
    let Note { profile, leader, version } = serde_json::from_slice(data).ok()?;
    let names = leader.and_then(|LeaderNote { profile, znode, token, active }| {
        let ticket =
            Ticket { sequence: Sequence::of_name(&znode, prefix)?, token: FencingToken(token) };
        Some(Announcement { leader: Arc::new(profile.read()?), ticket, active })
    });
    Some(Says { profile: profile.read()?, names, version })
}

impl ProfileNote {
    fn of(profile: &Profile) -> Self {
        let Profile { id, address, labels, revision } = profile.clone();
        Self { id: id.to_string(), address, labels, revision }
    }

    /// `None` if nobody can be so called.
    fn read(self) -> Option<Profile> {
        let Self { id, address, labels, revision } = self;
        Some(Profile { id: MemberId::new(&id)?, address, labels, revision })
    }
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
        let names = Announcement { leader: Arc::new(profile("a")), ticket, active: true };
        let data = encode(&profile("b"), Some(&names), "leader_");
        let text = r#"{"id":"b","address":"h:1","labels":{"zone":"a"},"leader":{"id":"a","address":"h:1","labels":{"zone":"a"},"znode":"leader_0000000003","token":4294967299},"version":"VERSION"}"#;
        let text = text.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(data.clone()).unwrap(), text);
        let decoded = decode(&data, "leader_").unwrap();
        assert_eq!(decoded.profile, profile("b"));
        assert_eq!(decoded.names.as_ref(), Some(&names));
        let elected = Announcement { active: false, ..names };
        let data = encode(&profile("b"), Some(&elected), "leader_");
        assert_eq!(decode(&data, "leader_").unwrap().names, Some(elected));
        let moved = Profile { revision: 2, ..profile("b") };
        assert_eq!(decode(&encode(&moved, None, "leader_"), "leader_").unwrap().profile, moved);
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
