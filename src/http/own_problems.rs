//! Problems of this member, or of the election as it sees it, and their start: for `/status` and the page.

use super::{AppState, Verdict};
use crate::api::{self, OwnProblem};
use crate::problems::{Problem, ProblemKind};
use crate::status::{ForeignQueue, HookRecord, RecentChanges, Snapshot};
use recipes::election::View;
use std::time::SystemTime;

/// Returns the problems, the gravest first. One that only follows from another is left out.
pub(super) fn problems(app: &AppState, verdict: &Verdict) -> Vec<OwnProblem> {
    let snapshot = &*verdict.snapshot;
    let known = &snapshot.problems;
    let since_of = |kind| known.get(kind).map(|problem| problem.since);
    let mut problems = vec![];
    let paused = since_of(ProblemKind::Paused);
    let unhealthy = since_of(ProblemKind::Unhealthy);
    // A member that is not supposed to have a session may know outdated things about ZooKeeper.
    let is_out = paused.or(unhealthy).is_some();
    let unlinked = known.get(ProblemKind::Zookeeper).filter(|_| !is_out);
    problems.extend(unlinked.cloned());
    problems.extend(paused.map(|since| {
        let text = "paused: out of the queue until `bellwether resume`".into();
        Problem { kind: ProblemKind::Paused, text, since }
    }));
    problems.extend(unhealthy.map(|since| {
        let failure = app.status.application.borrow().clone().and_then(|health| health.failure);
        let why = failure.unwrap_or_else(|| "its health is not known yet".into());
        let text = format!("the application is not healthy: {why}");
        Problem { kind: ProblemKind::Unhealthy, text, since }
    }));
    // Contenders that keep this member out explain why it does not lead, and perhaps why no leader is known.
    problems.extend(foreign_problems(app, snapshot, true));
    let unknown_znode = known.get(ProblemKind::UnknownZnode);
    problems.extend(unknown_znode.cloned());
    // An unknown znode at the head is why.
    let is_explained = is_out || unlinked.or(unknown_znode).is_some();
    if verdict.leader().is_none() && !is_explained {
        let since = match snapshot.recent_changes.iter().next() {
            Some(_) => view_began(&snapshot.recent_changes, &verdict.view),
            None => Some(app.started.date),
        };
        let since = since.unwrap_or_else(|| app.clock.date());
        let text = format!("no leader is known: {}", verdict.reason());
        problems.push(Problem { kind: ProblemKind::NoLeader, text, since });
    }
    // A leader with this member's id explains why no leader is known.
    if let (Some(_), Some(duplicate_id)) = (verdict.leader(), verdict.duplicate_id()) {
        let kind = ProblemKind::DuplicateId;
        let since = since_of(kind).unwrap_or_else(|| app.clock.date());
        problems.push(Problem { kind, text: duplicate_id.to_string(), since });
    }
    problems.extend(foreign_problems(app, snapshot, false));
    problems.extend(
        known
            .iter()
            .filter(|problem| match problem.kind {
                ProblemKind::NewerFormat
                | ProblemKind::LongerSession
                | ProblemKind::TickTime
                | ProblemKind::SessionFile => true,
                ProblemKind::SlowZookeeper => unlinked.is_none() && !is_out,
                _ => false,
            })
            .cloned(),
    );
    for HookRecord { what, runs, failures, last, failing_since, .. } in
        &app.status.hooks.borrow().records
    {
        if let Some(since) = *failing_since {
            let why = last.as_ref().and_then(|last| last.failure.as_deref()).unwrap_or_default();
            let text = format!("hook {what}: {failures} of {runs} runs failed, {why}");
            problems.push(Problem { kind: ProblemKind::Hook, text, since });
        }
    }
    problems
        .into_iter()
        .map(|Problem { kind, text, since }| OwnProblem {
            kind: kind.name().to_owned(),
            problem: text,
            since: api::date(since),
        })
        .collect()
}

/// Returns the queues of other clients in the election's path that keep this member out, or that do not.
fn foreign_problems(app: &AppState, snapshot: &Snapshot, keeps_out: bool) -> Vec<Problem> {
    foreign(snapshot, keeps_out)
        .map(|(queue, since)| {
            let text = queue.problem(&app.names.election);
            Problem { kind: ProblemKind::Foreign, text, since }
        })
        .collect()
}

/// Returns the queues of other clients in the election's path that keep this member out, or that do not, and since when.
pub(super) fn foreign(
    snapshot: &Snapshot,
    keeps_out: bool,
) -> impl Iterator<Item = (&ForeignQueue, SystemTime)> {
    let Snapshot { link, problems, .. } = snapshot;
    // Without a session, the current content of the path is unknown.
    let known = problems.get(ProblemKind::Foreign).filter(|_| link.session.is_some());
    let since = known.map(|problem| problem.since);
    let queues = link.foreign.iter().filter(move |queue| queue.keeps_out() == keeps_out);
    queues.filter_map(move |queue| Some((queue, since?)))
}

/// Returns when the term of this view, or its time without a leader, began; `None` if that is not recorded.
pub(super) fn view_began(recent_changes: &RecentChanges, view: &View) -> Option<SystemTime> {
    fn term(view: &View) -> Option<recipes::FencingToken> {
        view.leader().map(|leader| leader.ticket.token)
    }
    let same =
        recent_changes.iter().rev().take_while(|change| term(&change.change.view()) == term(view));
    same.last().map(|recorded| recorded.at)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MemberFixture, at, contender_of_kazoo, problems_of};
    use super::super::tests::ask;
    use crate::problems::ProblemKind;
    use crate::status::{ApplicationHealth, HookRecord, Hooks, LastHookRun};
    use http_body_util::BodyExt;
    use recipes::{FencingToken, SessionId};
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
        scene.application.send_replace(Some(ApplicationHealth { healthy: false, failure }));
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
    async fn a_member_that_follows_a_leader_with_another_of_its_id_says_so() {
        let mut scene = MemberFixture::new();
        scene.follows(4);
        scene.publishes(|snapshot| {
            snapshot.same_id = Some(FencingToken(3));
            snapshot.problems = problems_of(&[(ProblemKind::DuplicateId, "", 6)]);
            snapshot.counters.earlier_lives_end_at = Some(scene.now.after(SECOND));
        });
        scene.has_problems(&[]).await;
        scene.publishes(|snapshot| snapshot.counters.earlier_lives_end_at = Some(scene.now));
        let duplicate_id = "another member of the queue has the id of this one, with token 3: give each member an id of \
                        its own (member.id, --id)";
        scene.has_problems(&[("duplicate-id", duplicate_id, 6)]).await;
        scene.publishes(|snapshot| snapshot.same_id = None);
        scene.has_problems(&[]).await;
    }

    #[tokio::test]
    async fn contenders_that_keep_a_member_out_come_before_what_follows_from_them() {
        let scene = MemberFixture::new();
        for (keeps_out, kinds) in
            [(true, ["foreign", "no-leader"]), (false, ["no-leader", "foreign"])]
        {
            scene.publishes(|snapshot| {
                snapshot.link.session = Some((SessionId(1), SECOND));
                snapshot.problems = problems_of(&[(ProblemKind::Foreign, "", 2)]);
                snapshot.link.foreign = vec![contender_of_kazoo(keeps_out)];
            });
            let told: Vec<_> = scene.problems().await.into_iter().map(|(kind, ..)| kind).collect();
            assert_eq!(told, kinds);
        }
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
        let run = |failure: &str| LastHookRun {
            change: "became-leader",
            at: at(9),
            took: SECOND,
            failure: Some(failure.to_owned()),
        };
        let record = |failing_since, failure| HookRecord {
            what: "run notify".into(),
            on: vec![],
            runs: 15,
            failures: 14,
            cut_short: 1,
            spent: SECOND,
            running: None,
            last: Some(run(failure)),
            failing_since,
        };
        let records = vec![record(Some(at(8)), "exit code 7"), record(None, "cut short")];
        scene.hooks.send_replace(Hooks { records, told: None });
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
