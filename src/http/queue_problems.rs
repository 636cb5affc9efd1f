//! Finds what is wrong with the election and with each member of the queue.

use super::members::next_at;
use super::own_problems::foreign;
use super::{AppState, Verdict};
use crate::status::MemberEntry;
use recipes::election::Role;
use std::collections::BTreeMap;

/// Returns what is wrong, of the election first and then of each member in order.
pub(super) fn problems(app: &AppState, verdict: &Verdict, entries: &[MemberEntry]) -> Vec<String> {
    let mut problems = vec![];
    let leader = verdict.leader();
    match leader {
        // It may be known to those that are in the queue.
        None if verdict.role == Role::Absent => {
            let reason = verdict.reason();
            problems.push(format!("who leads is not known here: this member is {reason}"));
        }
        None => problems.push("no leader is known".to_owned()),
        Some(_) => {}
    }
    let queues =
        [true, false].into_iter().flat_map(|keeps_out| foreign(&verdict.snapshot, keeps_out));
    problems.extend(queues.map(|(queue, _)| queue.problem(&app.names.election)));
    let mut of_id = BTreeMap::<_, usize>::new();
    for id in entries.iter().filter_map(|entry| Some(&entry.profile.as_ref()?.id)) {
        *of_id.entry(id).or_default() += 1;
    }
    for (id, count) in of_id.into_iter().filter(|(_, count)| *count > 1) {
        problems.push(format!(
            "{count} members have the id {id}: give each its own (member.id), unless one is of an earlier life whose \
             session is yet to end"
        ));
    }
    let token = leader.map(|leader| leader.ticket.token);
    let next = next_at(leader, entries);
    for (at, entry) in entries.iter().enumerate() {
        let znode = app.names.znodes.name(entry.ticket.sequence);
        let Some(profile) = &entry.profile else {
            problems.push(format!("{znode} does not say whose it is: another client made it"));
            continue;
        };
        let id = &profile.id;
        let named = entry.names.as_ref().map(|named| named.ticket.token);
        if token.is_some() && named != token {
            problems.push(format!("{id} does not name the leader yet"));
        }
        // Another client's queue does not tell.
        if at == next && !entry.ready && app.names.znodes.family().is_none() {
            problems.push(format!("{id} is next, and not ready: it would have to claim first"));
        }
        if entry.state.unhealthy {
            problems.push(format!("the application of {id} is not healthy"));
        }
        match entry.state.hooks_failing {
            0 => {}
            1 => problems.push(format!("a hook of {id} fails")),
            failing => problems.push(format!("{failing} hooks of {id} fail")),
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MemberFixture, at, contender_of_kazoo, problems_of};
    use super::super::tests::ask;
    use crate::problems::ProblemKind;
    use crate::status::{MemberEntry, MemberRequest, OwnState, QueueReading};
    use http_body_util::BodyExt;
    use recipes::election::{Announcement, Profile};
    use recipes::{FencingToken, MemberId, Sequence, SessionId, Ticket};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn entry(number: i32, id: &str, names: i32) -> MemberEntry {
        let profile = |id: &str| {
            let id = MemberId::new(id).unwrap();
            let labels = BTreeMap::new();
            Profile { id, address: None, labels, revision: 0 }
        };
        let ticket = |number: i32| {
            let token = FencingToken(number.unsigned_abs().into());
            Ticket { sequence: Sequence::new(number).unwrap(), token }
        };
        let leader = Arc::new(profile("a"));
        let names = Some(Announcement { leader, ticket: ticket(names) });
        let ticket = ticket(number);
        let profile = Some(profile(id));
        MemberEntry { profile, names, ready: true, ..MemberEntry::of_unknown(ticket, at(60)) }
    }

    async fn members(entries: Vec<MemberEntry>) -> Value {
        let mut scene = MemberFixture::new();
        scene.leads(1);
        members_at(&mut scene, entries).await
    }

    async fn members_at(scene: &mut MemberFixture, entries: Vec<MemberEntry>) -> Value {
        let MemberFixture { service, publisher, .. } = scene;
        let reads = async {
            match publisher.requests.recv().await.unwrap() {
                MemberRequest::Members(answer) => {
                    let reading = QueueReading { index: 1, members: entries.into() };
                    answer.send(Ok(reading)).unwrap();
                }
                MemberRequest::Tell(_) | MemberRequest::Carry(..) => panic!("it only asks"),
            }
        };
        let (answer, ()) = tokio::join!(ask(service, "/members"), reads);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn an_election_in_which_all_is_well_has_no_problems() {
        let told = members(vec![entry(1, "a", 1), entry(2, "b", 1)]).await;
        assert_eq!(told["problems"], json!([]));
        let member = &told["members"][1];
        assert_eq!(member["standby"], json!({"ready": true}));
        assert_eq!(member["since"], json!(crate::api::date(at(60))));
        assert_eq!((&member["unhealthy"], &member["hooks_failing"]), (&json!(false), &json!(0)));
    }

    #[tokio::test]
    async fn who_is_next_stands_behind_the_leader_whatever_stands_ahead_of_it() {
        let by_hand = MemberEntry { profile: None, names: None, ready: false, ..entry(0, "x", 1) };
        let told = members(vec![by_hand, entry(1, "a", 1), entry(2, "b", 1)]).await;
        let standbys: Vec<_> =
            told["members"].as_array().unwrap().iter().map(|it| it["standby"].is_null()).collect();
        assert_eq!(standbys, [true, true, false]);
        let [problem] = &told["problems"].as_array().unwrap()[..] else { panic!("{told}") };
        assert!(problem.as_str().unwrap().starts_with("leader_0000000000 does not say"));
    }

    #[tokio::test]
    async fn a_member_outside_the_queue_says_so_and_whose_contenders_it_saw() {
        let mut scene = MemberFixture::new();
        scene.publishes(|snapshot| {
            snapshot.link.session = Some((SessionId(1), std::time::Duration::from_secs(10)));
            snapshot.link.connected = true;
            snapshot.problems = problems_of(&[(ProblemKind::Foreign, "", 2)]);
            snapshot.link.problem = Some("the servers refuse".into());
            snapshot.link.foreign = vec![contender_of_kazoo(false)];
        });
        let told = members_at(&mut scene, vec![entry(1, "a", 1)]).await;
        let [unknown, foreign] = &told["problems"].as_array().unwrap()[..] else {
            panic!("{told}")
        };
        let why =
            "who leads is not known here: this member is not in the queue: the servers refuse";
        assert_eq!(unknown, why);
        assert!(foreign.as_str().unwrap().contains("two elections in one path"), "{foreign}");
    }

    #[tokio::test]
    async fn what_is_wrong_with_any_member_is_a_sentence() {
        let leader = entry(1, "a", 1);
        let mut next = entry(2, "b", 1);
        next.ready = false;
        let unheard = entry(3, "c", 9);
        let mut ill = entry(4, "d", 1);
        ill.state = OwnState { unhealthy: true, hooks_failing: 2 };
        let duplicate_id = entry(5, "d", 1);
        let unknown_znode = MemberEntry { profile: None, names: None, ..entry(6, "e", 1) };
        let told = members(vec![leader, next, unheard, ill, duplicate_id, unknown_znode]).await;
        let problems: Vec<_> =
            told["problems"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let [several, is_next, hears, unhealthy, hooks, unknown] = problems[..] else {
            panic!("{problems:?}")
        };
        assert!(several.starts_with("2 members have the id d: "), "{several}");
        assert!(is_next.starts_with("b is next, and not ready"), "{is_next}");
        assert_eq!(hears, "c does not name the leader yet");
        assert_eq!(unhealthy, "the application of d is not healthy");
        assert_eq!(hooks, "2 hooks of d fail");
        assert!(unknown.starts_with("leader_0000000006 does not say"), "{unknown}");
    }
}
