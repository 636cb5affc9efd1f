//! The JSON format of the data in a member's znode: its profile, the announcement that it relays, and its state.

use crate::status::OwnState;
use crate::znode_names::ZnodeNames;
use recipes::election::{Announcement, Distance, Offer, Priority, Profile, ZnodeData};
use recipes::{FencingToken, MemberId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum length of a member's data, in bytes. Longer data was not written by a member, and is not decoded.
const MAX_LENGTH: usize = 1024;

/// The number of the data format that this version writes. It is increased when older versions would misread the data.
const FORMAT: u32 = 1;

/// The longest id that [`MemberId::new`] accepts, in characters.
const MAX_ID_LENGTH: usize = 253;

/// The data of a member's znode, as JSON.
#[derive(Serialize, Deserialize)]
struct DataJson {
    format: u32,
    #[serde(flatten)]
    profile: ProfileJson,
    /// The announcement of the leader: the member's own if it leads, otherwise the one that it relays.
    leader: Option<LeaderJson>,
    /// The number of members ahead; 3 means three or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<u8>,
    /// True if the member is the standby, and would lead at once if the leader's znode was deleted.
    #[serde(default, skip_serializing_if = "is_default")]
    standby_ready: bool,
    /// The priority of the member; left out if it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// The leader's offer to hand over to another member, in the leader's own znode.
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<OfferJson>,
    /// The offer that this member, as the standby, has accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<OfferJson>,
    /// The version of the member's program.
    version: Option<String>,
    /// The member's own problems; left out if there are none.
    #[serde(default, skip_serializing_if = "is_default")]
    state: OwnState,
}

/// An announcement: the leader's profile, the name of its znode, and its fencing token.
#[derive(Serialize, Deserialize)]
struct LeaderJson {
    #[serde(flatten)]
    profile: ProfileJson,
    znode: String,
    token: u64,
}

/// An offer to hand over: the leader's fencing token, the name of the target's znode, and the number of the offer.
#[derive(Serialize, Deserialize)]
struct OfferJson {
    token: u64,
    target: String,
    number: u64,
}

/// The profile of a member. The revision is left out while it is 0.
#[derive(Serialize, Deserialize)]
struct ProfileJson {
    id: String,
    address: Option<String>,
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    revision: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The decoded data of a member's znode: the part that the recipe uses, and the parts that the daemon adds.
#[derive(Clone, Debug)]
pub(crate) struct MemberData {
    /// The number of the data's format.
    pub format: u32,
    /// The recipe's data.
    pub znode: ZnodeData,
    /// The version of the member's program.
    pub version: Option<String>,
    /// The member's own problems.
    pub state: OwnState,
}

/// Encodes the data of our own znode. Optional parts are left out if the data would be too long otherwise.
pub(crate) fn encode(data: &ZnodeData, state: OwnState, znodes: &ZnodeNames) -> Vec<u8> {
    let ZnodeData { profile, priority, announcement, distance, ready, offer, accepted } = data;
    let leader = announcement.as_ref().map(|Announcement { leader, ticket }| LeaderJson {
        profile: ProfileJson::of(leader),
        znode: znodes.name(ticket.sequence),
        token: ticket.token.0,
    });
    let priority = if *priority == Priority::default() { None } else { Some(priority.number()) };
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let offer = offer.as_ref().map(|offer| OfferJson::of(offer, znodes));
    let accepted = accepted.as_ref().map(|offer| OfferJson::of(offer, znodes));
    let mut json = DataJson {
        format: FORMAT,
        profile: ProfileJson::of(profile),
        leader,
        distance: distance.map(Distance::number),
        standby_ready: *ready,
        priority,
        offer,
        accepted,
        version,
        state,
    };
    // Other members would not decode longer data, so parts are left out, one after the other, until the data is short
    // enough. The consequence is that others see less of this member, or that a transfer fails.
    let omissions: [fn(&mut DataJson); 3] = [
        |json| json.state = OwnState::default(),
        |json| (json.offer, json.accepted) = (None, None),
        |json| json.priority = None,
    ];
    let mut written = to_vec(&json);
    for omit in omissions {
        if written.len() > MAX_LENGTH {
            omit(&mut json);
            written = to_vec(&json);
        }
    }
    written
}

fn to_vec(json: &DataJson) -> Vec<u8> {
    serde_json::to_vec(json).expect("all these types can be written as JSON")
}

/// Decodes the data of a member's znode. Returns `None` if the data is not a member's: other clients may write anything.
pub(crate) fn decode(data: &[u8], znodes: &ZnodeNames) -> Option<MemberData> {
    if data.len() > MAX_LENGTH {
        return None;
    }
    let json = serde_json::from_slice(data).ok()?;
    let DataJson {
        format,
        profile,
        leader,
        distance,
        standby_ready: ready,
        priority,
        offer,
        accepted,
        version,
        state,
    } = json;
    let announcement = leader.and_then(|leader| leader.decode(znodes));
    let offer = offer.and_then(|offer| offer.decode(znodes)).map(Box::new);
    let accepted = accepted.and_then(|offer| offer.decode(znodes)).map(Box::new);
    let profile = Arc::new(profile.decode()?);
    let distance = distance.map(|number| Distance::new(number.into()));
    let priority = priority.and_then(Priority::new).unwrap_or_default();
    let znode = ZnodeData { profile, priority, announcement, distance, ready, offer, accepted };
    Some(MemberData { format, znode, version, state })
}

/// Returns the number of the format of a member's data if it is newer than those that this version knows; otherwise `None`.
/// `read` is the decoded `data`; `None` if this version could not decode it.
pub(super) fn newer_format(read: Option<&MemberData>, data: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct FormatJson {
        format: u32,
    }

    let format = match read {
        Some(read) => read.format,
        // A newer format need not have the parts that this version requires.
        None => serde_json::from_slice::<FormatJson>(data).ok()?.format,
    };
    if format > FORMAT { Some(format) } else { None }
}

/// Returns a member's data for a contender in an election that is shared with another client. Its znode has only an id, so
/// the rest is filled in. The announcement says that this contender leads: it is used only if the contender is the head.
pub(crate) fn contender(data: &[u8], ticket: Ticket, znodes: &ZnodeNames) -> MemberData {
    let id = readable_id(data).unwrap_or_else(|| {
        // The name of the znode, unless it was never seen: the placeholder for an unseen name is not a valid id.
        let name = znodes.name(ticket.sequence);
        MemberId::new(&name)
            .unwrap_or_else(|| MemberId::new("unnamed").expect("all characters are visible"))
    });
    let profile = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision: 0 });
    let announcement = Some(Announcement { leader: profile.clone(), ticket });
    let znode = ZnodeData { announcement, ..ZnodeData::of(profile) };
    MemberData { format: FORMAT, znode, version: None, state: OwnState::default() }
}

/// Returns the id in the data of another client's contender. Bytes that our ids cannot have are percent-encoded, and an id
/// that is too long is cut. Returns `None` if the data is blank.
fn readable_id(data: &[u8]) -> Option<MemberId> {
    let mut id = String::new();
    for byte in data.trim_ascii().iter().take(MAX_LENGTH) {
        let encoded = match byte {
            b'!'..=b'~' => char::from(*byte).to_string(),
            other => format!("%{other:02X}"),
        };
        if id.len() + encoded.len() > MAX_ID_LENGTH {
            break;
        }
        id += &encoded;
    }
    MemberId::new(&id)
}

/// Returns the name of the claimant's own znode, according to the claim's data; `None` if the data does not name it, so that
/// no member has written it.
pub(super) fn claimants_name(data: &[u8]) -> Option<String> {
    let json: DataJson = serde_json::from_slice(data).ok()?;
    json.leader.map(|leader| leader.znode)
}

impl LeaderJson {
    /// Decodes an announcement. Returns `None` if the znode's name is not a member's, or the id is not valid.
    fn decode(self, znodes: &ZnodeNames) -> Option<Announcement> {
        let Self { profile, znode, token } = self;
        let ticket = Ticket { sequence: znodes.sequence(&znode)?, token: FencingToken(token) };
        Some(Announcement { leader: Arc::new(profile.decode()?), ticket })
    }
}

impl OfferJson {
    fn of(offer: &Offer, znodes: &ZnodeNames) -> Self {
        let Offer { leader, target, number } = *offer;
        Self { token: leader.0, target: znodes.name(target), number }
    }

    /// Decodes an offer. Returns `None` if the target's name is not a member's.
    fn decode(self, znodes: &ZnodeNames) -> Option<Offer> {
        let Self { token, target, number } = self;
        let target = znodes.sequence(&target)?;
        Some(Offer { leader: FencingToken(token), target, number })
    }
}

impl ProfileJson {
    fn of(profile: &Profile) -> Self {
        let Profile { id, address, labels, revision } = profile.clone();
        Self { id: id.to_string(), address, labels, revision }
    }

    /// Decodes a profile. Returns `None` if the id is not valid.
    fn decode(self) -> Option<Profile> {
        let Self { id, address, labels, revision } = self;
        Some(Profile { id: MemberId::new(&id)?, address, labels, revision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::Sequence;

    fn profile(id: &str) -> Profile {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let id = MemberId::new(id).unwrap();
        let address = Some("h:1".into());
        Profile { id, address, labels, revision: 0 }
    }

    #[test]
    fn only_a_ready_standby_is_written_as_ready() {
        let ready = written(profile("b"), None, true);
        assert!(decode(&ready, &"leader_".into()).unwrap().znode.ready);
        let text = String::from_utf8(ready).unwrap();
        assert!(text.contains(r#""leader":null,"standby_ready":true,"#), "{text}");
        assert!(
            !decode(&written(profile("b"), None, false), &"leader_".into()).unwrap().znode.ready
        );
    }

    #[test]
    fn encoded_data_is_decoded_to_the_same() {
        let ticket =
            Ticket { sequence: Sequence::new(3).unwrap(), token: FencingToken(0x1_0000_0003) };
        let announcement = Announcement { leader: Arc::new(profile("a")), ticket };
        let data = written(profile("b"), Some(&announcement), false);
        let text = r#"{"format":1,"id":"b","address":"h:1","labels":{"zone":"a"},"leader":{"id":"a","address":"h:1","labels":{"zone":"a"},"znode":"leader_0000000003","token":4294967299},"version":"VERSION"}"#;
        let text = text.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(data.clone()).unwrap(), text);
        let decoded = decode(&data, &"leader_".into()).unwrap().znode;
        assert_eq!(*decoded.profile, profile("b"));
        assert_eq!(decoded.announcement.as_ref(), Some(&announcement));
        let moved = Profile { revision: 2, ..profile("b") };
        assert_eq!(
            *decode(&written(moved.clone(), None, false), &"leader_".into()).unwrap().znode.profile,
            moved
        );
    }

    #[test]
    fn an_offer_and_its_acceptance_are_decoded_to_the_same() {
        let target = Sequence::new(3).unwrap();
        let offer = Offer { leader: FencingToken(7), target, number: 5_000_000_000 };
        let offer = Some(Box::new(offer));
        let none = || ZnodeData::of(Arc::new(profile("a")));
        let offers = encode(
            &ZnodeData { offer: offer.clone(), ..none() },
            OwnState::default(),
            &"leader_".into(),
        );
        let text = r#""offer":{"token":7,"target":"leader_0000000003","number":5000000000}"#;
        assert!(String::from_utf8(offers.clone()).unwrap().contains(text));
        let decoded = decode(&offers, &"leader_".into()).unwrap().znode;
        assert_eq!((&decoded.offer, decoded.accepted), (&offer, None));
        let accepts = encode(
            &ZnodeData { accepted: offer.clone(), ..none() },
            OwnState::default(),
            &"leader_".into(),
        );
        let decoded = decode(&accepts, &"leader_".into()).unwrap().znode;
        assert_eq!((decoded.offer, decoded.accepted), (None, offer));
    }

    #[test]
    fn a_distance_or_its_absence_is_decoded_to_the_same() {
        for distance in [None, Some(0), Some(2), Some(3)] {
            let distance = distance.map(Distance::new);
            let data = ZnodeData { distance, ..ZnodeData::of(Arc::new(profile("a"))) };
            let data = encode(&data, OwnState::default(), &"leader_".into());
            assert_eq!(decode(&data, &"leader_".into()).unwrap().znode.distance, distance);
        }
        let far = br#"{"format":1,"id":"a","labels":{},"leader":null,"distance":200}"#;
        assert_eq!(decode(far, &"leader_".into()).unwrap().znode.distance, Some(Distance::FAR));
    }

    #[test]
    fn a_priority_is_decoded_to_the_same_and_the_usual_one_is_not_written() {
        let of = |priority| ZnodeData { priority, ..ZnodeData::of(Arc::new(profile("a"))) };
        for number in [0, 49, 50, 51, 100] {
            let priority = Priority::new(number).unwrap();
            let data = encode(&of(priority), OwnState::default(), &"leader_".into());
            assert_eq!(decode(&data, &"leader_".into()).unwrap().znode.priority, priority);
            let text = String::from_utf8(data).unwrap();
            assert_eq!(text.contains(&format!(r#""priority":{number}"#)), number != 50, "{text}");
        }
        let unknown = br#"{"format":1,"id":"a","labels":{},"leader":null,"priority":101}"#;
        assert_eq!(decode(unknown, &"leader_".into()).unwrap().znode.priority, Priority::default());
    }

    #[test]
    fn an_offer_that_does_not_fit_is_left_out() {
        let target = Sequence::new(3).unwrap();
        let offer = Some(Box::new(Offer { leader: FencingToken(7), target, number: 5 }));
        let filled = |more: usize| {
            let labels = BTreeMap::from([("l".to_owned(), "x".repeat(more))]);
            let data = ZnodeData::of(Arc::new(Profile { labels, ..profile("a") }));
            encode(
                &ZnodeData { offer: offer.clone(), ..data },
                OwnState::default(),
                &"leader_".into(),
            )
        };
        let room = MAX_LENGTH - filled(0).len();
        let full = filled(room);
        let over = filled(room + 1);
        assert_eq!(full.len(), MAX_LENGTH);
        assert_eq!(decode(&full, &"leader_".into()).expect("it fits").znode.offer, offer);
        assert_eq!(decode(&over, &"leader_".into()).expect("it fits").znode.offer, None);
    }

    #[test]
    fn a_state_is_decoded_to_the_same_and_left_out_if_it_does_not_fit() {
        let encoded = |state, more: usize| {
            let labels = BTreeMap::from([("l".to_owned(), "x".repeat(more))]);
            let profile = Profile { labels, ..profile("a") };
            encode(&ZnodeData::of(Arc::new(profile)), state, &"leader_".into())
        };
        let no_problems = OwnState::default();
        assert!(!String::from_utf8(encoded(no_problems, 0)).unwrap().contains("state"));
        let problems = OwnState { unhealthy: true, hooks_failing: 2 };
        let text = r#""state":{"unhealthy":true,"hooks_failing":2}"#;
        assert!(String::from_utf8(encoded(problems, 0)).unwrap().contains(text));
        for state in [problems, OwnState { unhealthy: false, ..problems }] {
            let room = MAX_LENGTH - encoded(state, 0).len();
            assert_eq!(
                decode(&encoded(state, room), &"leader_".into()).expect("it fits").state,
                state
            );
            assert_eq!(
                decode(&encoded(state, room + 1), &"leader_".into()).expect("it fits").state,
                no_problems
            );
        }
        let other =
            br#"{"format":1,"id":"a","labels":{},"leader":null,"state":{"hooks_failing":2,"mood":"fine"}}"#;
        let later = decode(other, &"leader_".into()).expect("of a later version");
        assert_eq!(later.state, OwnState { unhealthy: false, ..problems });
    }

    #[test]
    fn a_newer_format_is_noticed_and_read_as_far_as_it_can_be() {
        let own =
            encode(&ZnodeData::of(Arc::new(profile("a"))), OwnState::default(), &"leader_".into());
        let newer_format = |data| newer_format(decode(data, &"leader_".into()).as_ref(), data);
        assert_eq!(newer_format(&own), None);
        let newer = br#"{"format":2,"id":"a","labels":{},"leader":null,"new":1}"#;
        assert_eq!(newer_format(newer), Some(2));
        assert_eq!(
            decode(newer, &"leader_".into()).expect("it has all").znode.profile.id.as_str(),
            "a"
        );
        let changed = br#"{"format":3,"names":["a"]}"#;
        assert_eq!(newer_format(changed), Some(3));
        assert!(decode(changed, &"leader_".into()).is_none());
        for other in [&b""[..], b"a", br#"{"id":"a"}"#] {
            assert_eq!(newer_format(other), None);
        }
    }

    #[test]
    fn foreign_data_is_not_decoded() {
        let long = [
            b" ".repeat(MAX_LENGTH),
            br#"{"format":1,"id":"a","labels":{},"leader":null}"#.to_vec(),
        ]
        .concat();
        for data in [
            &b""[..],
            b"\xff\x00",
            b"a",
            b"{}",
            b"null",
            br#"{"format":1,"id":"","labels":{}}"#,
            &long,
        ] {
            assert!(decode(data, &"leader_".into()).is_none());
        }
        let foreign = br#"{"format":1,"id":"a","labels":{},"leader":{"id":"b","labels":{},"znode":"n_0000000001","token":1}}"#;
        assert!(decode(foreign, &"leader_".into()).unwrap().znode.announcement.is_none());
    }

    #[test]
    fn another_clients_contender_has_the_id_that_it_wrote_in_visible_characters() {
        let znodes = ZnodeNames::of_family(recipes::ForeignClient::Kazoo);
        let ticket = Ticket { sequence: Sequence::new(3).unwrap(), token: FencingToken(7) };
        let name = format!("{}__lock__0000000003", "a".repeat(32));
        znodes.remember(&name);
        let id = |data: &[u8]| contender(data, ticket, &znodes).znode.profile.id.to_string();
        assert_eq!(id(b" pod-0\n"), "pod-0");
        assert_eq!(id("host 1 \u{e4}".as_bytes()), "host%201%20%C3%A4");
        assert_eq!(id(&[b'x'; 900]).len(), MAX_ID_LENGTH);
        assert_eq!(id(&[0xff; 900]).len(), MAX_ID_LENGTH - 1);
        for blank in [&b""[..], b" \n"] {
            assert_eq!(id(blank), name);
        }
        let leader =
            contender(b"pod-0", ticket, &znodes).znode.announcement.expect("as the head, it leads");
        assert_eq!((leader.leader.id.as_str(), leader.ticket), ("pod-0", ticket));
    }

    fn written(profile: Profile, announcement: Option<&Announcement>, ready: bool) -> Vec<u8> {
        let profile = Arc::new(profile);
        let announcement = announcement.cloned();
        encode(
            &ZnodeData { announcement, ready, ..ZnodeData::of(profile) },
            OwnState::default(),
            &"leader_".into(),
        )
    }
}
