//! Inspects an election in ZooKeeper: the queue, the leader that each member announces, and problems.
//!
//! A lease cannot be observed from outside. If all members announce the head of the queue, it leads, unless it is frozen or
//! disconnected.

use super::table::{Cell, pairs};
use super::views::{HumanView, in_line, rows};
use super::{ClientError, NO, OutputFormat, UNANSWERED, print};
use crate::api::{self, Members};
use crate::config::Settings;
use crate::queue_report;
use crate::znode_names::ZnodeNames;
use crate::zookeeper::{self, ClaimZnode, Election, OtherZnode};
use recipes::ForeignClient;
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

/// The JSON output.
#[derive(Serialize)]
struct InspectedElection<'a> {
    /// The election's path, including the chroot of the connect string.
    path: &'a str,
    /// Whether there is a leader, and no problem.
    healthy: bool,
    /// The claim, with which the leader excludes others; null if it does not exist.
    claim: Option<ClaimZnode>,
    /// The members and the problems, as in `/members`. In another client's queue, the version of a member is the client that
    /// created its znode, as far as the name of the znode shows that.
    #[serde(flatten)]
    queue: Members,
    /// The znodes in the path that do not belong to members.
    others: Vec<OtherZnode>,
}

/// Inspects the election within the time limit, and prints the result. An election that is not healthy is an error.
pub(super) async fn inspect(
    settings: &Settings,
    limit: Duration,
    format: OutputFormat,
) -> Result<(), ClientError> {
    let read = timeout(limit, zookeeper::read_election(settings)).await;
    let election = read.unwrap_or_else(|_| Err(format!("not within {limit:?}")));
    let election = election.map_err(|why| {
        let hosts = &settings.zookeeper.hosts;
        ClientError::new(UNANSWERED, format!("ZooKeeper at {hosts} gives no answer: {why}"))
    })?;
    let inspected = InspectedElection::of(&settings.root, &settings.znodes, election);
    print(format.render(|is_wide| inspected.view(is_wide), &api::json(&inspected)))?;
    if inspected.healthy { Ok(()) } else { Err(ClientError::silent(NO)) }
}

impl<'a> InspectedElection<'a> {
    /// Judges an election, whose znodes have the names `znodes`.
    fn of(path: &'a str, znodes: &ZnodeNames, election: Election) -> Self {
        let Election { queue: reading, claim, others } = election;
        let head = reading.members.first();
        let announced = head.and_then(|head| Some(head.announcement.as_ref()?.ticket));
        let leader = announced.filter(|ticket| head.is_some_and(|head| head.ticket == *ticket));
        let mut problems = vec![];
        match head {
            None => {
                problems.push("the queue is empty, or not in this path (--election, the chroot)")
            }
            Some(_) if leader.is_none() => problems.push("the head does not say that it leads"),
            Some(_) => {}
        }
        let head_session = head.map(|head| head.session.to_string());
        if claim.as_ref().is_some_and(|claim| claim.session != head_session) {
            problems.push("the claim is not that of the head");
        }
        if others.iter().any(|other| other.is_foreign_contender) {
            problems.push("contenders of other clients stand in the same path");
        }
        let mut queue = queue_report::members(&reading, leader, None, znodes);
        queue.problems.splice(0..0, problems.into_iter().map(str::to_owned));
        if znodes.family().is_some() {
            for member in &mut queue.members {
                member.version = made_by(&member.znode).map(str::to_owned);
            }
        }
        Self { path, healthy: queue.problems.is_empty(), claim, queue, others }
    }

    /// Returns the text for people; with `is_wide`, with all columns.
    fn view(&self, is_wide: bool) -> String {
        let claim = serde_json::to_value(&self.claim).expect("a body has string keys only");
        let head =
            pairs([("election", Cell::new(self.path)), ("claim", Cell::new(&in_line(&claim)))]);
        let queue = self.queue.view(is_wide);
        let others = match &self.others[..] {
            [] => String::new(),
            others => format!("\n{}", rows(&["znode", "is"], others)),
        };
        format!("{head}\n{queue}{others}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{MemberEntry, QueueReading};
    use anstream::adapter::strip_str;
    use recipes::election::{Announcement, Profile};
    use recipes::{FencingToken, MemberId, Sequence, SessionId, Ticket};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    #[test]
    fn an_election_with_several_members_of_one_id_is_not_healthy() {
        let twice = judged(election(&["a", "b", "b", "b"], Some(0)));
        assert!(!twice.healthy);
        let [problem] = &twice.queue.problems[..] else { panic!("{:?}", twice.queue.problems) };
        assert!(problem.starts_with("3 members have the id b:"), "{problem}");
        assert!(judged(election(&["a", "b", "c"], Some(0))).healthy);
    }

    #[test]
    fn the_claim_is_shown_and_has_to_be_that_of_the_head() {
        let held = judged(election(&["a", "b"], Some(0)));
        assert!(held.healthy, "{:?}", held.queue.problems);
        let text = strip_str(&held.view(false)).to_string();
        assert!(text.contains("claim     id=a session=0x1 since=1970-"), "{text}");
        assert!(text.contains("b   standby  n_0000000001  a"), "{text}");
        for by in [1, 5] {
            let other = judged(election(&["a", "b"], Some(by)));
            assert_eq!(
                (other.healthy, &other.queue.problems[..]),
                (false, &["the claim is not that of the head".to_owned()][..])
            );
        }
        let text = strip_str(&judged(election(&["a"], None)).view(true)).to_string();
        assert!(text.contains("claim     -\n"), "{text}");
    }

    #[test]
    fn an_election_beside_other_clients_contenders_is_not_healthy() {
        let znode = "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-0000000007".to_owned();
        let latch = OtherZnode { znode, is: "curator-latch", is_foreign_contender: true };
        let shared = judged(Election { others: vec![latch], ..election(&["a", "b"], Some(0)) });
        let problems = ["contenders of other clients stand in the same path".to_owned()];
        assert_eq!((shared.healthy, &shared.queue.problems[..]), (false, &problems[..]));
        let text = strip_str(&shared.view(false)).to_string();
        assert!(text.contains("-latch-0000000007  curator-latch\n"), "{text}");
    }

    fn judged(election: Election) -> InspectedElection<'static> {
        InspectedElection::of("/e", &"n_".into(), election)
    }

    /// Returns an election of members with these ids, in this order, which all announce the first. The claim belongs to
    /// the member with the number `claim`, or to a session outside of the queue if the number is too large.
    fn election(ids: &[&str], claim: Option<usize>) -> Election {
        let profile = |id: &str| {
            let id = MemberId::new(id).unwrap();
            Profile { id, address: None, labels: BTreeMap::new(), revision: 0 }
        };
        let ticket = |n: usize| Ticket {
            sequence: Sequence::new(n as i32).unwrap(),
            token: FencingToken(n as u64 + 1),
        };
        let session = |n: usize| SessionId(n as i64 + 1);
        let leader = Arc::new(profile(ids[0]));
        let members = ids.iter().enumerate().map(|(n, id)| MemberEntry {
            profile: Some(profile(id)),
            announcement: Some(Announcement { leader: leader.clone(), ticket: ticket(0) }),
            ready: true,
            ..MemberEntry::of_unknown(ticket(n), session(n), SystemTime::UNIX_EPOCH)
        });
        let claim = claim.map(|n| ClaimZnode {
            id: ids.get(n).map(|id| (*id).to_owned()),
            token: None,
            session: Some(session(n).to_string()),
            since: api::date(SystemTime::UNIX_EPOCH),
        });
        let queue = QueueReading { index: 1, members: members.collect() };
        Election { queue, claim, others: vec![] }
    }
}
