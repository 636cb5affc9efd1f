//! The problems of this member, for `/status` and the page, and of the queue, for `/members`.

use super::{AppState, Verdict};
use crate::api::{self, Hook, OwnProblem};
use crate::problems::{Problem, ProblemKind};
use crate::status::{HookRecord, Snapshot};
use std::time::SystemTime;

/// Returns the problems of this member, the most serious first. Leaves out problems that only follow from others.
pub(super) fn of_member(app: &AppState, verdict: &Verdict) -> Vec<OwnProblem> {
    let snapshot = &*verdict.snapshot;
    let has = |kind| snapshot.problems.get(kind).is_some();
    // A paused or unhealthy member has no session, so what it knows of ZooKeeper may be outdated.
    let is_out = has(ProblemKind::Paused) || has(ProblemKind::Unhealthy);
    // Each of these problems explains why no leader is known, so that is not a problem of its own.
    let is_explained = is_out || has(ProblemKind::Zookeeper) || has(ProblemKind::UnknownZnode);

    let mut problems = vec![];
    if verdict.leader().is_none() && !is_explained {
        let text = format!("no leader is known: {}", verdict.reason());
        let since = leaderless_since(app, snapshot);
        problems.push(Problem { kind: ProblemKind::NoLeader, text, since });
    }
    for problem in snapshot.problems.iter() {
        let text = match problem.kind {
            ProblemKind::Paused => "paused: out of the queue until `bellwether resume`".into(),
            ProblemKind::Unhealthy => {
                let failure = app.status.application.borrow().clone().and_then(|app| app.failure);
                let why = failure.unwrap_or_else(|| "its health is not known yet".into());
                format!("the application is not healthy: {why}")
            }
            ProblemKind::Zookeeper if is_out => continue,
            ProblemKind::SlowZookeeper if is_out || has(ProblemKind::Zookeeper) => continue,
            // While no leader is known, these texts are the reason in the problem `NoLeader`: see `Verdict::reason`.
            ProblemKind::EarlierLife => continue,
            ProblemKind::DuplicateId if verdict.leader().is_none() && !is_explained => continue,
            ProblemKind::Foreign => {
                problems.extend(foreign(app, snapshot));
                continue;
            }
            _ => problem.text.clone(),
        };
        problems.push(Problem { text, ..problem.clone() });
    }
    problems.extend(app.status.hooks.borrow().records.iter().filter_map(failing_hook));
    problems.into_iter().map(body).collect()
}

/// Returns when the last leader was lost. Returns the start of this process if no leader was recorded, and the present
/// time if the loss is not recorded yet, because a lease has just ended by the clock.
fn leaderless_since(app: &AppState, snapshot: &Snapshot) -> SystemTime {
    match snapshot.recent_changes.iter().next_back() {
        None => app.started.date,
        Some(last) if last.change.role.leader().is_none() => last.at,
        Some(_) => app.clock.date(),
    }
}

fn body(problem: Problem) -> OwnProblem {
    let Problem { kind, text, since } = problem;
    OwnProblem { kind, problem: text, since: api::date(since) }
}

/// Returns the problem of a hook that failed, and has not succeeded since.
fn failing_hook(record: &HookRecord) -> Option<Problem> {
    let since = record.failing_since?;
    let Hook { hook, runs, failures, last, .. } = &record.report;
    let why = last.as_ref().and_then(|last| last.failure.as_deref()).unwrap_or_default();
    let text = format!("hook {hook}: {failures} of {runs} runs failed, {why}");
    Some(Problem { kind: ProblemKind::Hook, text, since })
}

/// Returns the other clients' queues in the election's path, as problems.
fn foreign(app: &AppState, snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    // Without a session, the current content of the path is unknown, so there is nothing to report.
    let known = snapshot.problems.get(ProblemKind::Foreign);
    let since = known.filter(|_| snapshot.link.session.is_some()).map(|problem| problem.since);
    snapshot.link.foreign.iter().filter_map(move |queue| {
        let text = queue.problem(&app.names.path);
        Some(Problem { kind: ProblemKind::Foreign, text, since: since? })
    })
}

/// Returns the problems of the election, except those of its members.
pub(super) fn of_election(app: &AppState, verdict: &Verdict) -> impl Iterator<Item = String> {
    let no_leader = match verdict.leader() {
        Some(_) => None,
        None => Some(format!("no leader is known here: {}", verdict.reason())),
    };
    no_leader.into_iter().chain(foreign(app, &verdict.snapshot).map(|problem| problem.text))
}

#[cfg(test)]
mod tests_of_member {
    use super::super::testing::{MemberFixture, at, problems_of};
    use super::super::tests::ask;
    use crate::api::{Application, Hook, HookRun};
    use crate::problems::ProblemKind;
    use crate::status::{HookRecord, Hooks};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_problem_hides_those_that_only_follow_from_it() {
        let scene = MemberFixture::new();
        let [(kind, problem, _)] = scene.problems().await.try_into().expect("one");
        assert_eq!((&*kind, &*problem), ("no-leader", "no leader is known: not in the queue"));

        scene.publishes(|snapshot| {
            snapshot.problems = problems_of(&[(ProblemKind::Zookeeper, "the servers refuse", 2)]);
        });
        scene.has_problems(&[("zookeeper", "the servers refuse", 2)]).await;

        scene.publishes(|snapshot| {
            let unlinked = (ProblemKind::Zookeeper, "the servers refuse", 2);
            snapshot.problems = problems_of(&[unlinked, (ProblemKind::Unhealthy, "", 3)]);
        });
        let unchecked = "the application is not healthy: its health is not known yet";
        scene.has_problems(&[("unhealthy", unchecked, 3)]).await;
        let failure = Some("the answer is 500".into());
        scene.application.send_replace(Some(Application { healthy: false, failure }));
        let unhealthy = ("unhealthy", "the application is not healthy: the answer is 500", 3);
        scene.has_problems(&[unhealthy]).await;

        scene.publishes(|snapshot| {
            snapshot.link.forget_session();
            snapshot.problems = problems_of(&[(ProblemKind::Paused, "", 4)]);
        });
        scene
            .has_problems(&[("paused", "paused: out of the queue until `bellwether resume`", 4)])
            .await;
    }

    #[tokio::test]
    async fn a_member_of_a_newer_format_is_a_problem() {
        let scene = MemberFixture::new();
        let problem = "/q/leader_0000000003 has data of format 2";
        scene.publishes(|snapshot| {
            snapshot.problems = problems_of(&[(ProblemKind::NewerFormat, problem, 3)]);
        });
        let problems = scene.problems().await;
        let newer = ("newer-format".into(), problem.into(), crate::api::date(at(3)));
        assert!(problems.contains(&newer), "{problems:?}");
    }

    #[tokio::test]
    async fn an_unknown_znode_at_the_head_is_told_in_place_of_no_leader_and_a_session_file_beside_it()
     {
        let mut scene = MemberFixture::new();
        scene.enters(4, &[3, 4]);
        let behind = "this member waits behind /q/leader_0000000003, which is not a member's";
        scene.publishes(|snapshot| {
            snapshot.problems = problems_of(&[(ProblemKind::UnknownZnode, behind, 3)]);
        });
        scene.has_problems(&[("unknown-znode", behind, 3)]).await;
        scene.publishes(|snapshot| {
            let unwritten = (ProblemKind::SessionFile, "it cannot be written", 5);
            snapshot.problems = problems_of(&[(ProblemKind::UnknownZnode, behind, 3), unwritten]);
        });
        let unwritten = ("session-file", "it cannot be written", 5);
        scene.has_problems(&[("unknown-znode", behind, 3), unwritten]).await;
        let answer = ask(&scene.service, "/readyz").await.into_body().collect().await.unwrap();
        assert!(String::from_utf8_lossy(&answer.to_bytes()).contains(behind));
    }

    #[tokio::test]
    async fn a_failing_hook_is_a_problem_until_it_succeeds() {
        let scene = MemberFixture::new();
        scene
            .publishes(|snapshot| snapshot.problems = problems_of(&[(ProblemKind::Paused, "", 4)]));
        let run = |failure: &str| HookRun {
            change: "became-leader".into(),
            at: crate::api::date(at(9)),
            took_ms: 1000,
            failure: Some(failure.to_owned()),
        };
        let report = |failure| Hook {
            hook: "run notify".into(),
            runs: 15,
            failures: 14,
            cut_short: 1,
            last: Some(run(failure)),
            ..Hook::default()
        };
        let record = |failing_since, failure| HookRecord {
            report: report(failure),
            spent: SECOND,
            failing_since,
        };
        let records = vec![record(Some(at(8)), "exit code 7"), record(None, "cut short")];
        scene.hooks.send_replace(Hooks { records, done_up_to: None });
        scene
            .has_problems(&[
                ("paused", "paused: out of the queue until `bellwether resume`", 4),
                ("hook", "hook run notify: 14 of 15 runs failed, exit code 7", 8),
            ])
            .await;
    }

    impl MemberFixture {
        async fn problems(&self) -> Vec<(String, String, String)> {
            let status = ask(&self.service, "/status").await.into_body().collect().await.unwrap();
            let status: Value = serde_json::from_slice(&status.to_bytes()).unwrap();
            let problems = status["problems"].as_array().cloned().unwrap_or_default();
            let text = |problem: &Value, name| problem[name].as_str().expect("text").to_owned();
            let parts = |it| (text(&it, "kind"), text(&it, "problem"), text(&it, "since"));
            problems.into_iter().map(parts).collect()
        }

        async fn has_problems(&self, wanted: &[(&str, &str, u64)]) {
            let wanted = wanted.iter().map(|(kind, problem, second)| {
                let since = crate::api::date(at(*second));
                ((*kind).to_owned(), (*problem).to_owned(), since)
            });
            assert_eq!(self.problems().await, wanted.collect::<Vec<_>>());
        }
    }
}

#[cfg(test)]
mod tests_of_queue {
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

    fn entry(number: i32, id: &str, leader_number: i32) -> MemberEntry {
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
        let announcement = Some(Announcement { leader, ticket: ticket(leader_number) });
        let ticket = ticket(number);
        let profile = Some(profile(id));
        MemberEntry {
            profile,
            announcement,
            ready: true,
            ..MemberEntry::of_unknown(ticket, SessionId(1), at(60))
        }
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
                MemberRequest::PublishState(_) | MemberRequest::Command(..) => {
                    panic!("it only asks")
                }
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
        let by_hand =
            MemberEntry { profile: None, announcement: None, ready: false, ..entry(0, "x", 1) };
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
        let why = "no leader is known here: not in the queue: the servers refuse";
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
        let unknown_znode = MemberEntry { profile: None, announcement: None, ..entry(6, "e", 1) };
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
