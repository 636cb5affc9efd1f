//! How a member's profile and announcement are spelled in its znode.

use crate::status::OwnState;
use recipes::election::{Announcement, Offer, Profile, ZnodeData};
use recipes::{FencingToken, MemberId, Sequence, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Upper bound of a member's data; longer data is no member's.
const LONGEST: usize = 1024;

/// The data of a member's znode.
#[derive(Serialize, Deserialize)]
struct DataJson {
    #[serde(flatten)]
    profile: ProfileJson,
    leader: Option<LeaderJson>,
    #[serde(default, skip_serializing_if = "is_no")]
    standby_ready: bool,
    /// To which member the leader would hand over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer: Option<OfferJson>,
    /// The offer that the standby has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted: Option<OfferJson>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateJson>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct StateJson {
    #[serde(default, skip_serializing_if = "is_no")]
    unhealthy: bool,
    #[serde(default, skip_serializing_if = "is_none_of")]
    hooks_failing: u32,
}

#[derive(Serialize, Deserialize)]
struct LeaderJson {
    #[serde(flatten)]
    profile: ProfileJson,
    znode: String,
    token: u64,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    active: bool,
}

#[derive(Serialize, Deserialize)]
struct OfferJson {
    token: u64,
    heir: String,
    number: u64,
}

#[derive(Serialize, Deserialize)]
struct ProfileJson {
    id: String,
    address: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    revision: u64,
}

/// Default for members of older versions, which know only active leaders.
fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(active: &bool) -> bool {
    *active
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no(ready: &bool) -> bool {
    !*ready
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_of(hooks: &u32) -> bool {
    *hooks == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(revision: &u64) -> bool {
    *revision == 0
}

/// What stands in a member's znode.
#[derive(Clone, Debug)]
pub struct MemberData {
    pub profile: Profile,
    pub announcement: Option<Announcement>,
    /// Whether the member has written that it is a standby that could lead at once.
    pub ready: bool,
    pub offer: Option<Offer>,
    pub accepted: Option<Offer>,
    /// The version of the member's program.
    pub version: Option<String>,
    /// What is wrong with the member, as it tells itself.
    pub state: OwnState,
}

pub(crate) fn encode(data: &ZnodeData, state: OwnState, prefix: &str) -> Vec<u8> {
    let ZnodeData { profile, announcement, ready, offer, accepted } = data;
    let leader = announcement.as_ref().map(|Announcement { leader, ticket, active }| LeaderJson {
        profile: ProfileJson::of(leader),
        znode: ticket.sequence.name(prefix),
        token: ticket.token.0,
        active: *active,
    });
    let (profile, standby_ready) = (ProfileJson::of(profile), *ready);
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let [offer, accepted] =
        [offer, accepted].map(|offer| offer.as_ref().map(|offer| OfferJson::of(offer, prefix)));
    let state = (state != OwnState::default()).then(|| StateJson::of(state));
    let mut json = DataJson { profile, leader, standby_ready, offer, accepted, version, state };
    // What is longer would be no member's. Those who look know less then; and a transfer comes to nothing rather.
    let shortened: [fn(&mut DataJson); 2] =
        [|json| json.state = None, |json| (json.offer, json.accepted) = (None, None)];
    let mut written = to_vec(&json);
    for shorten in shortened {
        if written.len() > LONGEST {
            shorten(&mut json);
            written = to_vec(&json);
        }
    }
    written
}

fn to_vec(json: &DataJson) -> Vec<u8> {
    serde_json::to_vec(json).expect("it has nothing that JSON lacks")
}

/// Returns `None` for data that is no member's: other clients may write what they like.
pub(crate) fn decode(data: &[u8], prefix: &str) -> Option<MemberData> {
    if data.len() > LONGEST {
        return None;
    }
    let json = serde_json::from_slice(data).ok()?;
    let DataJson { profile, leader, standby_ready, offer, accepted, version, state } = json;
    let announcement = leader.and_then(|LeaderJson { profile, znode, token, active }| {
        let ticket =
            Ticket { sequence: Sequence::of_name(&znode, prefix)?, token: FencingToken(token) };
        Some(Announcement { leader: Arc::new(profile.read()?), ticket, active })
    });
    let [offer, accepted] = [offer, accepted].map(|offer| offer?.read(prefix));
    let profile = profile.read()?;
    let (ready, state) = (standby_ready, state.map(StateJson::read).unwrap_or_default());
    Some(MemberData { profile, announcement, ready, offer, accepted, version, state })
}

impl StateJson {
    fn of(state: OwnState) -> Self {
        let OwnState { unhealthy, hooks_failing } = state;
        Self { unhealthy, hooks_failing }
    }

    fn read(self) -> OwnState {
        let Self { unhealthy, hooks_failing } = self;
        OwnState { unhealthy, hooks_failing }
    }
}

impl OfferJson {
    fn of(offer: &Offer, prefix: &str) -> Self {
        let Offer { leader, heir, number } = *offer;
        Self { token: leader.0, heir: heir.name(prefix), number }
    }

    /// Returns `None` if the heir's name is no member's.
    fn read(self, prefix: &str) -> Option<Offer> {
        let Self { token, heir, number } = self;
        let heir = Sequence::of_name(&heir, prefix)?;
        Some(Offer { leader: FencingToken(token), heir, number })
    }
}

impl ProfileJson {
    fn of(profile: &Profile) -> Self {
        let Profile { id, address, labels, revision } = profile.clone();
        Self { id: id.to_string(), address, labels, revision }
    }

    /// Returns `None` if the name is no member's.
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
    fn only_a_ready_standby_is_written_as_ready() {
        let ready = written(profile("b"), None, true);
        assert!(decode(&ready, "leader_").unwrap().ready);
        let text = String::from_utf8(ready).unwrap();
        assert!(text.contains(r#""leader":null,"standby_ready":true,"#), "{text}");
        assert!(!decode(&written(profile("b"), None, false), "leader_").unwrap().ready);
    }

    #[test]
    fn encoded_data_is_decoded_to_the_same() {
        let ticket =
            Ticket { sequence: Sequence::new(3).unwrap(), token: FencingToken(0x1_0000_0003) };
        let announcement = Announcement { leader: Arc::new(profile("a")), ticket, active: true };
        let data = written(profile("b"), Some(&announcement), false);
        let text = r#"{"id":"b","address":"h:1","labels":{"zone":"a"},"leader":{"id":"a","address":"h:1","labels":{"zone":"a"},"znode":"leader_0000000003","token":4294967299},"version":"VERSION"}"#;
        let text = text.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(data.clone()).unwrap(), text);
        let decoded = decode(&data, "leader_").unwrap();
        assert_eq!(decoded.profile, profile("b"));
        assert_eq!(decoded.announcement.as_ref(), Some(&announcement));
        let elected = Announcement { active: false, ..announcement };
        let data = written(profile("b"), Some(&elected), false);
        assert_eq!(decode(&data, "leader_").unwrap().announcement, Some(elected));
        let moved = Profile { revision: 2, ..profile("b") };
        assert_eq!(decode(&written(moved.clone(), None, false), "leader_").unwrap().profile, moved);
    }

    #[test]
    fn an_offer_and_its_acceptance_are_decoded_to_the_same() {
        let heir = Sequence::new(3).unwrap();
        let offer = Some(Offer { leader: FencingToken(7), heir, number: 5_000_000_000 });
        let none = || ZnodeData::of(Arc::new(profile("a")));
        let offers = encode(
            &ZnodeData { offer: offer.map(Box::new), ..none() },
            OwnState::default(),
            "leader_",
        );
        let text = r#""offer":{"token":7,"heir":"leader_0000000003","number":5000000000}"#;
        assert!(String::from_utf8(offers.clone()).unwrap().contains(text));
        let decoded = decode(&offers, "leader_").unwrap();
        assert_eq!((decoded.offer, decoded.accepted), (offer, None));
        let accepts = encode(
            &ZnodeData { accepted: offer.map(Box::new), ..none() },
            OwnState::default(),
            "leader_",
        );
        let decoded = decode(&accepts, "leader_").unwrap();
        assert_eq!((decoded.offer, decoded.accepted), (None, offer));
    }

    #[test]
    fn an_offer_that_does_not_fit_is_left_out() {
        let offer =
            Some(Offer { leader: FencingToken(7), heir: Sequence::new(3).unwrap(), number: 5 });
        let filled = |more: usize| {
            let labels = BTreeMap::from([("l".to_owned(), "x".repeat(more))]);
            let data = ZnodeData::of(Arc::new(Profile { labels, ..profile("a") }));
            encode(
                &ZnodeData { offer: offer.map(Box::new), ..data },
                OwnState::default(),
                "leader_",
            )
        };
        let room = LONGEST - filled(0).len();
        let (full, over) = (filled(room), filled(room + 1));
        assert_eq!(full.len(), LONGEST);
        assert_eq!(decode(&full, "leader_").expect("it fits").offer, offer);
        assert_eq!(decode(&over, "leader_").expect("it fits").offer, None);
    }

    #[test]
    fn what_is_wrong_is_decoded_to_the_same_and_left_out_where_it_does_not_fit() {
        let told = |state, more: usize| {
            let labels = BTreeMap::from([("l".to_owned(), "x".repeat(more))]);
            let profile = Profile { labels, ..profile("a") };
            encode(&ZnodeData::of(Arc::new(profile)), state, "leader_")
        };
        let well = OwnState::default();
        assert!(!String::from_utf8(told(well, 0)).unwrap().contains("state"));
        let ill = OwnState { unhealthy: true, hooks_failing: 2 };
        let text = r#""state":{"unhealthy":true,"hooks_failing":2}"#;
        assert!(String::from_utf8(told(ill, 0)).unwrap().contains(text));
        for state in [ill, OwnState { unhealthy: false, ..ill }] {
            let room = LONGEST - told(state, 0).len();
            assert_eq!(decode(&told(state, room), "leader_").expect("it fits").state, state);
            assert_eq!(decode(&told(state, room + 1), "leader_").expect("it fits").state, well);
        }
        let other = br#"{"id":"a","leader":null,"state":{"hooks_failing":2,"mood":"fine"}}"#;
        let later = decode(other, "leader_").expect("of a later version");
        assert_eq!(later.state, OwnState { unhealthy: false, ..ill });
    }

    #[test]
    fn foreign_data_is_not_decoded() {
        let long = [b" ".repeat(LONGEST), br#"{"id":"a","leader":null}"#.to_vec()].concat();
        for data in [&b""[..], b"\xff\x00", b"a", b"{}", b"null", br#"{"id":""}"#, &long] {
            assert!(decode(data, "leader_").is_none());
        }
        let foreign = br#"{"id":"a","leader":{"id":"b","znode":"n_0000000001","token":1}}"#;
        assert!(decode(foreign, "leader_").unwrap().announcement.is_none());
    }

    fn written(profile: Profile, announcement: Option<&Announcement>, ready: bool) -> Vec<u8> {
        let (profile, announcement) = (Arc::new(profile), announcement.cloned());
        encode(
            &ZnodeData { announcement, ready, ..ZnodeData::of(profile) },
            OwnState::default(),
            "leader_",
        )
    }
}
