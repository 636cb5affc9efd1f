//! Members of 0.1.0 in the same queue: what they wrote is read, and they read what is written now. `scripts/mixed-versions`
//! shows the same with both programs.

use super::znode_data::{decode, encode};
use crate::status::OwnState;
use crate::zookeeper::queue::{bid_path, claim_path};
use recipes::election::{Announcement, Offer, Priority, Profile, ZnodeData};
use recipes::{FencingToken, MemberId, Sequence, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// As 0.1.0 wrote it into the leader's znode, with `election.activate = "ack"`.
const ELECTED: &[u8] = br#"{"id":"shop-1","address":"10.0.0.1:8080","labels":{"zone":"a"},"leader":{"id":"shop-1","address":"10.0.0.1:8080","labels":{"zone":"a"},"znode":"leader_0000000000","token":4,"active":false},"version":"0.1.0"}"#;

/// The same after an acknowledgement and a change of its labels.
const ACTIVE: &[u8] = br#"{"id":"shop-1","address":"10.0.0.1:8080","labels":{"zone":"b"},"revision":1,"leader":{"id":"shop-1","address":"10.0.0.1:8080","labels":{"zone":"b"},"revision":1,"znode":"leader_0000000000","token":4},"version":"0.1.0"}"#;

/// As a follower relayed that.
const RELAYED: &[u8] = br#"{"id":"shop-2","address":null,"labels":{},"leader":{"id":"shop-1","address":"10.0.0.1:8080","labels":{"zone":"b"},"revision":1,"znode":"leader_0000000000","token":4},"version":"0.1.0"}"#;

/// As a member wrote it that had not heard of a leader yet.
const JOINED: &[u8] =
    br#"{"id":"shop-2","address":null,"labels":{},"leader":null,"version":"0.1.0"}"#;

#[test]
fn what_0_1_0_wrote_is_read() {
    let elected = Announcement { leader: leader("a", 0), ticket: ticket(), active: false };
    let active = Announcement { leader: leader("b", 1), ticket: ticket(), active: true };
    let follower = Arc::new(profile("shop-2"));
    for (data, profile, announcement) in [
        (ELECTED, &elected.leader, Some(&elected)),
        (ACTIVE, &active.leader, Some(&active)),
        (RELAYED, &follower, Some(&active)),
        (JOINED, &follower, None),
    ] {
        let read = decode(data, &"leader_".into()).expect("it is a member's");
        assert_eq!((&read.profile, read.announcement.as_ref()), (&**profile, announcement));
        assert_eq!(read.version.as_deref(), Some("0.1.0"));
        // What it does not know is as usual: it is never ready, and accepts no offer.
        assert_eq!((read.priority, read.ready), (Priority::default(), false));
        assert_eq!((read.offer, read.accepted, read.state), (None, None, OwnState::default()));
    }
}

#[test]
fn what_is_written_now_is_read_by_0_1_0() {
    let announcement = Announcement { leader: leader("b", 1), ticket: ticket(), active: false };
    let offer = Offer { leader: FencingToken(4), heir: Sequence::new(3).unwrap(), number: 1 };
    let told = ZnodeData {
        profile: Arc::new(profile("shop-2")),
        priority: Priority::new(70).unwrap(),
        announcement: Some(announcement),
        ready: true,
        offer: Some(Box::new(offer)),
        accepted: Some(Box::new(offer)),
    };
    let unwell = OwnState { unhealthy: true, hooks_failing: 2 };
    let data = encode(&told, unwell, &"leader_".into());
    let [new, old] = [&*data, RELAYED].map(|data| version_0_1_0::read(data).expect("it is read"));
    assert_eq!((&new.profile.id, &new.profile.labels), (&old.profile.id, &old.profile.labels));
    let leader = new.leader.expect("it names one");
    assert_eq!(
        (&*leader.profile.id, leader.profile.address.as_deref(), leader.profile.revision),
        ("shop-1", Some("10.0.0.1:8080"), 1)
    );
    assert_eq!((&*leader.znode, leader.token, leader.active), ("leader_0000000000", 4, false));
    assert_eq!(new.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

/// What members have to say takes no more room than 0.1.0 reads.
#[test]
fn what_is_written_now_is_not_too_long_for_0_1_0() {
    let labels = BTreeMap::from([("l".to_owned(), "x".repeat(900))]);
    let leader = Arc::new(Profile { labels, ..profile("shop-1") });
    let data = ZnodeData { ready: true, ..ZnodeData::of(leader) };
    let unwell = OwnState { unhealthy: true, hooks_failing: u32::MAX };
    assert!(encode(&data, unwell, &"leader_".into()).len() <= version_0_1_0::LONGEST);
}

#[test]
fn claims_and_bids_are_no_members_for_0_1_0() {
    assert!(version_0_1_0::is_members("leader_0000000001", "leader_"));
    for prefix in ["leader_", "", "c", "claim-"] {
        for path in [claim_path, bid_path].map(|path| path("/election", &prefix.into())) {
            let name = path.strip_prefix("/election/").expect("it stands in the path");
            assert!(!version_0_1_0::is_members(name, prefix), "{name}");
        }
    }
}

fn profile(id: &str) -> Profile {
    let id = MemberId::new(id).unwrap();
    Profile { id, address: None, labels: BTreeMap::new(), revision: 0 }
}

fn leader(zone: &str, revision: u64) -> Arc<Profile> {
    let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let address = Some("10.0.0.1:8080".to_owned());
    Arc::new(Profile { address, labels, revision, ..profile("shop-1") })
}

fn ticket() -> Ticket {
    Ticket { sequence: Sequence::new(0).unwrap(), token: FencingToken(4) }
}

/// How 0.1.0 reads: as its `src/zk/wire.rs` and `src/election/id.rs` have it.
mod version_0_1_0 {
    use serde::Deserialize;
    use std::collections::BTreeMap;

    pub(super) const LONGEST: usize = 1024;

    #[derive(Deserialize)]
    pub(super) struct Note {
        #[serde(flatten)]
        pub(super) profile: ProfileNote,
        pub(super) leader: Option<LeaderNote>,
        #[serde(default)]
        pub(super) version: Option<String>,
    }

    #[derive(Deserialize)]
    pub(super) struct LeaderNote {
        #[serde(flatten)]
        pub(super) profile: ProfileNote,
        pub(super) znode: String,
        pub(super) token: u64,
        #[serde(default = "yes")]
        pub(super) active: bool,
    }

    #[derive(Deserialize)]
    pub(super) struct ProfileNote {
        pub(super) id: String,
        pub(super) address: Option<String>,
        #[serde(default)]
        pub(super) labels: BTreeMap<String, String>,
        #[serde(default)]
        pub(super) revision: u64,
    }

    fn yes() -> bool {
        true
    }

    pub(super) fn is_members(name: &str, prefix: &str) -> bool {
        let digits = name.strip_prefix(prefix);
        digits.is_some_and(|it| it.len() == 10 && it.bytes().all(|byte| byte.is_ascii_digit()))
    }

    pub(super) fn read(data: &[u8]) -> Option<Note> {
        if data.len() > LONGEST {
            return None;
        }
        serde_json::from_slice(data).ok()
    }
}
