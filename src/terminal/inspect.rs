//! Inspects an election in ZooKeeper: the queue, the leader that each member announces, and problems.
//!
//! A lease cannot be observed from outside. If all members announce the head of the queue, it leads, unless it is frozen or
//! disconnected.

use super::table::{Cell, pairs, table};
use super::views::{BAD, GOOD, ODD, PLAIN, labels, marks};
use super::{ClientError, NO, OutputFormat, UNANSWERED, print};
use crate::api::{self, Standby};
use crate::clock::Clock;
use crate::config::Settings;
use crate::zookeeper::{self, Election, MemberData, UNKNOWN_ZNODE_REMEDY, Znode};
use recipes::{FencingToken, ForeignClient};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// The JSON output.
#[derive(Serialize)]
struct InspectedElection<'a> {
    /// The election's path, including the chroot of the connect string.
    path: &'a str,
    /// Whether all members announce the head, which owns the claim if there is one, and there are neither duplicate ids nor
    /// contenders of other clients.
    healthy: bool,
    /// A description of the result, for people.
    verdict: String,
    /// The id of the member at the head, if its znode contains one.
    head: Option<&'a str>,
    /// The claim, with which the leader excludes others; null if it does not exist.
    claim: Option<ClaimZnode<'a>>,
    /// The members, in the order of the queue.
    queue: Vec<QueuedMember<'a>>,
    /// The ids that more than one member uses.
    duplicate_ids: Vec<&'a str>,
    /// The znodes named like a member's, but without a session. Members ignore them.
    non_ephemeral: Vec<&'a str>,
    /// The contenders of other clients, which elect leaders of their own in the same path.
    foreign: Vec<ForeignContender<'a>>,
    /// The znodes that belong neither to members nor to another client's contenders.
    unknown_znodes: Vec<&'a str>,
}

#[derive(Serialize)]
struct QueuedMember<'a> {
    znode: &'a str,
    /// The number at the end of the znode's name.
    sequence: i32,
    session: String,
    /// The fencing token with which the member leads, or will lead as the head.
    token: u64,
    /// The creation time of the znode, and its age by the clock of this machine.
    created: String,
    age_ms: u64,
    /// The id of the member that wrote the znode's data. Null if no member wrote it.
    id: Option<&'a str>,
    address: Option<&'a str>,
    labels: BTreeMap<String, String>,
    /// The version of the member's program.
    version: Option<&'a str>,
    /// The leader that the member announces.
    names: Option<NamedLeader<'a>>,
    /// Null unless this member is the second in a queue that is the members' own.
    standby: Option<Standby>,
    /// In another client's queue, the client that created the znode, as far as its name shows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<&'static str>,
    /// The member's priority.
    priority: u8,
}

/// The znode with which the leader excludes others.
#[derive(Serialize)]
struct ClaimZnode<'a> {
    /// The id of the member that wrote the znode's data. Null if no member wrote it.
    id: Option<&'a str>,
    /// The fencing token in the claim.
    token: Option<u64>,
    /// The session that owns the claim. Null if the znode is not ephemeral.
    session: Option<String>,
    age_ms: u64,
    /// The position in the queue of the session that owns the claim.
    is: QueueLocation,
}

#[derive(Serialize)]
struct ForeignContender<'a> {
    znode: &'a str,
    /// The client's name, as in settings.
    family: &'static str,
}

/// The leader that a member announces.
#[derive(Serialize)]
struct NamedLeader<'a> {
    id: &'a str,
    token: u64,
    is: QueueLocation,
}

/// The position in the queue of the session that owns the claim, or of an announced leader.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum QueueLocation {
    /// At the head of the queue.
    Head,
    /// In the queue, but not at its head.
    Behind,
    /// No longer in the queue.
    Gone,
}

/// Inspects the election within the time limit, and prints the result. An election that is not healthy is an error.
pub(super) async fn inspect(
    settings: &Settings,
    limit: Duration,
    clock: Clock,
    format: OutputFormat,
) -> Result<(), ClientError> {
    let read = timeout(limit, zookeeper::read_election(settings)).await;
    let election = read.unwrap_or_else(|_| Err(format!("not within {limit:?}")));
    let election = election.map_err(|why| {
        let hosts = &settings.zookeeper.hosts;
        ClientError::new(UNANSWERED, format!("ZooKeeper at {hosts} gives no answer: {why}"))
    })?;
    let family = settings.znodes.family();
    let inspected = InspectedElection::of(&settings.root, family, election.as_ref(), clock.date());
    print(format.render(|is_wide| inspected.shown(is_wide), &api::json(&inspected)))?;
    if inspected.healthy { Ok(()) } else { Err(ClientError::silent(NO)) }
}

/// Returns the names of the znodes that match.
fn names_where(znodes: &[Znode], is_wanted: impl Fn(&Znode) -> bool) -> Vec<&str> {
    znodes.iter().filter(|znode| is_wanted(znode)).map(|znode| &*znode.name).collect()
}

impl<'a> InspectedElection<'a> {
    /// Judges the znodes of an election. `election` is `None` if the path does not exist. `family` is the other client
    /// whose queue the members join; `None` if they have a queue of their own.
    fn of(
        path: &'a str,
        family: Option<ForeignClient>,
        election: Option<&'a Election>,
        now: SystemTime,
    ) -> Self {
        let exists = election.is_some();
        let znodes = election.map(|election| &*election.znodes).unwrap_or_default();
        let queue: Vec<_> = znodes
            .iter()
            .filter(|znode| znode.sequence.is_some() && znode.session.is_some())
            .collect();
        let tokens: Vec<_> = queue.iter().map(|znode| znode.token).collect();
        let members: Vec<_> = queue
            .iter()
            .enumerate()
            .filter_map(|(at, znode)| QueuedMember::of(znode, at, &tokens, family, now))
            .collect();
        let claim = election.and_then(|election| election.claim.as_ref());
        let claim = claim.map(|claim| ClaimZnode::of(claim, &queue, now));
        let mut ids: Vec<_> = members.iter().filter_map(|member| member.id).collect();
        ids.sort_unstable();
        // In the sorted list, equal ids are neighbours.
        let mut duplicate_ids: Vec<_> =
            ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        duplicate_ids.dedup();
        let foreign: Vec<_> = znodes.iter().filter_map(ForeignContender::of).collect();
        let result = queue_verdict(exists, &members, claim.as_ref(), &duplicate_ids);
        let healthy = result.is_ok() && foreign.is_empty();
        let mut verdict = result.unwrap_or_else(|problem| problem);
        if let Some(family) = family
            && !members.is_empty()
        {
            verdict += &format!(", by the rule of {family}");
        }
        if !foreign.is_empty() {
            verdict += "; contenders of other clients stand in the same path";
        }
        Self {
            path,
            healthy,
            verdict,
            head: members.first().and_then(|member| member.id),
            claim,
            duplicate_ids,
            non_ephemeral: names_where(znodes, |znode| {
                znode.sequence.is_some() && znode.session.is_none()
            }),
            foreign,
            unknown_znodes: names_where(znodes, |znode| {
                znode.sequence.is_none() && znode.foreign.is_none()
            }),
            queue: members,
        }
    }

    /// Returns the text for people; with `is_wide`, with all columns.
    fn shown(&self, is_wide: bool) -> String {
        let verdict = Cell::new(&self.verdict).style(if self.healthy { GOOD } else { BAD });
        let claim = match &self.claim {
            Some(claim) => claim.shown(),
            None => Cell::new("none").style(ODD),
        };
        let mut text =
            pairs(vec![("election", Cell::new(self.path)), ("verdict", verdict), ("claim", claim)]);
        if !self.queue.is_empty() {
            let heading = [
                "ID", "IS", "NAMES", "PRIORITY", "ZNODE", "TOKEN", "AGE", "ADDRESS", "VERSION",
                "SESSION", "LABELS",
            ];
            // The last two columns, SESSION and LABELS, are shown only with `is_wide`.
            let columns = if is_wide { heading.len() } else { heading.len() - 2 };
            text.push('\n');
            text += &table(&heading[..columns], self.queue.iter().map(QueuedMember::row));
        }
        let mut others = vec![];
        for ForeignContender { znode, family } in &self.foreign {
            others.push(vec![Cell::new(znode), Cell::new(family).style(BAD)]);
        }
        for znode in &self.non_ephemeral {
            let is = Cell::new("of no session, passed over: delete it").style(BAD);
            others.push(vec![Cell::new(znode), is]);
        }
        for znode in &self.unknown_znodes {
            others.push(vec![Cell::new(znode), Cell::new("an unknown client").style(ODD)]);
        }
        if !others.is_empty() {
            text.push('\n');
            text += &table(&["NOT A MEMBER", "IS"], others);
        }
        text
    }
}

/// Returns a sentence that names the leader. If the queue has a problem, returns the first one as an error. `exists` is
/// whether the path exists.
fn queue_verdict(
    exists: bool,
    members: &[QueuedMember<'_>],
    claim: Option<&ClaimZnode<'_>>,
    duplicate_ids: &[&str],
) -> Result<String, String> {
    let Some(head) = members.first() else {
        return Err(match exists {
            true => "the queue is empty".into(),
            false => {
                "the path does not exist: is it the election's (--election, the chroot)?".into()
            }
        });
    };
    let Some(leader) = head.id else {
        let who = format!("{} stands at the head and does not say who it is", head.znode);
        return Err(format!("{who}: {UNKNOWN_ZNODE_REMEDY}"));
    };
    if let Some(claim) = claim
        && claim.is != QueueLocation::Head
    {
        let whose =
            claim.id.map_or_else(|| "an unknown client's".into(), |id| format!("that of {id}"));
        let is = claim.is.words();
        return Err(format!("{leader} stands at the head, and the claim is {whose}, {is}"));
    }
    if !head.names_head() {
        return Err(format!("{leader} stands at the head and does not say that it leads"));
    }
    let agreeing = members.iter().filter(|member| member.names_head()).count();
    let all = members.len();
    if agreeing < all {
        return Err(format!("{leader} leads, named by {agreeing} of {all}"));
    }
    let leads = format!("{leader} leads, named by all {all}");
    if duplicate_ids.is_empty() {
        return Ok(leads);
    }
    Err(format!(
        "{leads}; but several have the id {}: give each member its own (member.id), unless one is of an earlier life whose \
         session is yet to end",
        duplicate_ids.join(", ")
    ))
}

impl<'a> ForeignContender<'a> {
    /// Returns `None` if the znode is not a contender of another client.
    fn of(znode: &'a Znode) -> Option<Self> {
        Some(Self { znode: &znode.name, family: znode.foreign?.name() })
    }
}

impl<'a> QueuedMember<'a> {
    /// Returns the member for the znode at position `at` of the queue. `tokens` has the fencing tokens of the whole
    /// queue. Returns `None` if the znode has no sequence number or no session, so that it is not in the queue.
    fn of(
        znode: &'a Znode,
        at: usize,
        tokens: &[FencingToken],
        family: Option<ForeignClient>,
        now: SystemTime,
    ) -> Option<Self> {
        let sequence = znode.sequence?;
        let session = znode.session?;
        let data = znode.data.as_ref();
        let profile = data.map(|data| &*data.znode.profile);
        let ready = data.is_some_and(|data| data.znode.ready);
        Some(Self {
            znode: &znode.name,
            sequence: sequence.number(),
            session: session.to_string(),
            token: znode.token.0,
            created: api::date(znode.created_at),
            age_ms: age_ms(znode, now),
            // The second in the queue is the standby. In another client's queue, the znodes do not show whether it is ready.
            standby: (at == 1 && family.is_none()).then_some(Standby { ready }),
            made_by: family.and_then(|_| made_by(&znode.name)),
            id: profile.map(|profile| profile.id.as_str()),
            address: profile.and_then(|profile| profile.address.as_deref()),
            labels: profile.map(|profile| profile.labels.clone()).unwrap_or_default(),
            version: data.and_then(|data| data.version.as_deref()),
            names: data.and_then(|data| NamedLeader::by(data, tokens)),
            priority: data.map(|data| data.znode.priority).unwrap_or_default().number(),
        })
    }

    /// Returns whether the member announces the head of the queue as the leader.
    fn names_head(&self) -> bool {
        self.names.as_ref().is_some_and(|named| named.is == QueueLocation::Head)
    }

    fn row(&self) -> Vec<Cell> {
        let named = match &self.names {
            Some(NamedLeader { id, is: QueueLocation::Head, .. }) => Cell::new(id),
            Some(NamedLeader { id, is: QueueLocation::Behind, .. }) => {
                Cell::new(&format!("{id} (not the head)")).style(BAD)
            }
            Some(NamedLeader { id, is: QueueLocation::Gone, .. }) => {
                Cell::new(&format!("{id} (gone)")).style(BAD)
            }
            None => Cell::new("no leader").style(ODD),
        };
        // The member leads if it is the head itself, and announces itself.
        let leads =
            self.names_head() && self.names.as_ref().is_some_and(|named| named.token == self.token);
        let id = match self.id {
            Some(id) => Cell::new(id).style(if leads { GOOD } else { PLAIN }),
            None => Cell::new("(an unknown client)").style(ODD),
        };
        vec![
            id,
            // No member is marked as `self`, because this process is not one of them.
            Cell::new(&marks(leads, self.standby.as_ref(), false)),
            named,
            Cell::new(&self.priority.to_string()),
            Cell::new(self.znode),
            Cell::new(&self.token.to_string()),
            Cell::new(&age(self.age_ms)),
            Cell::of(self.address),
            Cell::of(self.version.or(self.made_by)),
            Cell::new(&self.session),
            Cell::new(&labels(&self.labels)),
        ]
    }
}

/// Returns the client that created a contender with this name. Returns `None` if the name does not show that: a member
/// that joins the queue of ZooKeeper's recipe uses the same names as the recipe.
fn made_by(name: &str) -> Option<&'static str> {
    match ForeignClient::of_name(name)?.0 {
        ForeignClient::ZookeeperRecipe => None,
        _ if ForeignClient::is_created_by_member(name) => Some("bellwether"),
        family => Some(family.name()),
    }
}

impl<'a> ClaimZnode<'a> {
    fn of(claim: &'a Znode, queue: &[&Znode], now: SystemTime) -> Self {
        // Each znode of the queue has a session, so a claim without a session is not in the queue.
        let position = queue.iter().position(|znode| znode.session == claim.session);
        let data = claim.data.as_ref();
        let announcement = data.and_then(|data| data.znode.announcement.as_ref());
        Self {
            id: data.map(|data| data.znode.profile.id.as_str()),
            token: announcement.map(|announcement| announcement.ticket.token.0),
            session: claim.session.map(|session| session.to_string()),
            age_ms: age_ms(claim, now),
            is: QueueLocation::at(position),
        }
    }

    fn shown(&self) -> Cell {
        let id = self.id.unwrap_or("(an unknown client)");
        let token = self.token.map(|token| format!(", token {token}")).unwrap_or_default();
        let session = self.session.as_deref().unwrap_or("none, so delete it");
        let style = if self.is == QueueLocation::Head { PLAIN } else { BAD };
        let age = age(self.age_ms);
        let is = self.is.words();
        Cell::new(&format!("{id}{token}, {is}, for {age}, session {session}")).style(style)
    }
}

impl QueueLocation {
    /// Returns the location for a position in the queue. `None` is the position of a session that is not in the queue.
    fn at(position: Option<usize>) -> Self {
        match position {
            Some(0) => Self::Head,
            Some(_) => Self::Behind,
            None => Self::Gone,
        }
    }

    /// Returns the text for people.
    fn words(self) -> &'static str {
        match self {
            Self::Head => "the head",
            Self::Behind => "not the head",
            Self::Gone => "not in the queue",
        }
    }
}

fn age_ms(znode: &Znode, now: SystemTime) -> u64 {
    let age = now.duration_since(znode.created_at).unwrap_or_default();
    age.as_millis().try_into().unwrap_or(u64::MAX)
}

fn age(ms: u64) -> String {
    humantime::format_duration(Duration::from_secs(ms / 1000)).to_string()
}

impl<'a> NamedLeader<'a> {
    /// Returns the leader that a member announces in its znode, if any. `tokens` has the fencing tokens of the queue.
    fn by(data: &'a MemberData, tokens: &[FencingToken]) -> Option<Self> {
        let named = data.znode.announcement.as_ref()?;
        let token = named.ticket.token;
        let is = QueueLocation::at(tokens.iter().position(|queued| *queued == token));
        Some(Self { id: named.leader.id.as_str(), token: token.0, is })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use recipes::election::{Announcement, Profile, ZnodeData};
    use recipes::{MemberId, Sequence, SessionId, Ticket};
    use std::sync::Arc;

    #[test]
    fn an_election_with_several_members_of_one_id_is_not_healthy() {
        let twice = election(&["a", "b", "b", "b"], Some(0));
        let InspectedElection { healthy, verdict, duplicate_ids, .. } = judged_of(&twice);
        assert!(!healthy && verdict.contains("several have the id b:"), "{verdict}");
        assert_eq!(duplicate_ids, ["b"]);
        assert!(judged_of(&election(&["a", "b", "c"], Some(0))).healthy);
    }

    #[test]
    fn the_holder_of_the_claim_is_shown_and_has_to_be_the_head() {
        let held = election(&["a", "b"], Some(0));
        let held = judged_of(&held);
        assert!(held.healthy, "{}", held.verdict);
        let text = strip_str(&held.shown(false)).to_string();
        assert!(text.contains("claim     a, token 1, the head, for 7s, session 0x1\n"), "{text}");
        assert!(text.contains("b   standby-not-ready  a"), "{text}");
        for (by, is) in [(1, "that of b, not the head"), (5, "that of f, not in the queue")] {
            let other = election(&["a", "b"], Some(by));
            let other = judged_of(&other);
            let said = format!("a stands at the head, and the claim is {is}");
            assert_eq!((other.healthy, &*other.verdict), (false, &*said));
        }
        let none = election(&["a"], None);
        let text = strip_str(&judged_of(&none).shown(true)).to_string();
        assert!(text.contains("claim     none\n"), "{text}");
    }

    #[test]
    fn an_election_beside_other_clients_contenders_is_not_healthy() {
        let name = "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-0000000007".to_owned();
        let foreign = Some(ForeignClient::CuratorLatch);
        let mut shared = election(&["a", "b"], Some(0));
        let latch = Znode { name, sequence: None, data: None, foreign, ..znode(0, "x", "x") };
        shared.znodes.push(latch);
        let judged = judged_of(&shared);
        let verdict = "a leads, named by all 2; contenders of other clients stand in the same path";
        assert_eq!((judged.healthy, &*judged.verdict), (false, verdict));
        assert!(judged.unknown_znodes.is_empty());
        let text = strip_str(&judged.shown(false)).to_string();
        assert!(text.contains("-latch-0000000007  curator-latch\n"), "{text}");
    }

    fn judged_of(election: &Election) -> InspectedElection<'_> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        InspectedElection::of("/e", None, Some(election), now)
    }

    /// Returns an election of members with these ids, in this order, which all announce the first. The claim belongs to
    /// the member with the number `claim`, or to a member `f` outside of the queue if the number is too large.
    fn election(ids: &[&str], claim: Option<usize>) -> Election {
        let leader = ids[0];
        let znode = |n: usize, id: &str| znode(n, id, leader);
        let znodes = ids.iter().enumerate().map(|(n, id)| znode(n, id)).collect();
        let claim = claim.map(|n| {
            let id = ids.get(n).copied().unwrap_or("f");
            Znode { sequence: None, name: "claim-n_".into(), ..znode(n, id) }
        });
        Election { znodes, claim }
    }

    fn znode(n: usize, id: &str, leader: &str) -> Znode {
        let profile = |id: &str| {
            let id = MemberId::new(id).unwrap();
            let labels = BTreeMap::new();
            Profile { id, address: None, labels, revision: 0 }
        };
        let sequence = Sequence::new(0);
        let ticket = Ticket { sequence: sequence.unwrap(), token: FencingToken(1) };
        let leader = Arc::new(profile(leader));
        let announcement = Some(Announcement { leader, ticket });
        let data = ZnodeData { announcement, ..ZnodeData::of(Arc::new(profile(id))) };
        let data = MemberData { format: 1, znode: data, version: None };
        Znode {
            name: format!("n_{n}"),
            session: Some(SessionId(n as i64 + 1)),
            token: FencingToken(n as u64 + 1),
            created_at: SystemTime::UNIX_EPOCH,
            sequence: Sequence::new(n as i32),
            data: Some(data),
            foreign: None,
        }
    }
}
