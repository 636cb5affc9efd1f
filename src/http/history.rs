//! The last terms, as far as this member knows of them.

use super::AppState;
use super::query::{NoQuery, Query};
use crate::api::{self, History, Term, millis};
use crate::status::{RecentChanges, RecordedChange};
use axum::Json;
use axum::extract::State;
use recipes::election::{Cause, ChangeKind, Role};

/// The maximum number of terms in an answer.
const TERMS_MAX: usize = 100;

/// The last 100 terms that this member knows of, the newest last.
pub(super) async fn history(State(app): State<AppState>, _: Query<NoQuery>) -> Json<History> {
    let verdict = app.evaluate_and_claim();
    let mut terms = terms(&verdict.snapshot.recent_changes);
    // A lease ends by the clock. The election may not have handled and recorded the end yet.
    if let Some(lapsed_at) = verdict.snapshot.standing.lapsed_at(verdict.now)
        && let Some(last) = terms.last_mut().filter(|last| last.is_self && last.to.is_none())
    {
        last.to = app.clock.date_of(lapsed_at).map(api::date);
        last.ended = Some(Cause::LeaseRanOut.to_string());
    }
    let surplus = terms.len().saturating_sub(TERMS_MAX);
    Json(History { terms: terms.into_iter().skip(surplus).collect() })
}

/// Returns the terms in the recorded changes, the newest last.
fn terms(recent_changes: &RecentChanges) -> Vec<Term> {
    let mut terms: Vec<Term> = vec![];
    let mut previous_token = None;
    for RecordedChange { at, change, cause, down_for, .. } in recent_changes.iter() {
        let token = change.role.leader().map(|leader| leader.ticket.token);
        // The term goes on: only the leader's profile has changed.
        if token == previous_token {
            continue;
        }
        if let Some(last) = terms.last_mut().filter(|last| last.to.is_none()) {
            // A member that has left the queue reads no announcements, and the leader that it knew may still lead.
            let may_go_on = change.kind == ChangeKind::LeaderLost && change.role == Role::Absent;
            last.to = Some(api::date(*at));
            last.ended = Some(match may_go_on {
                true => format!("not heard of since (this member: {cause})"),
                false => cause.to_string(),
            });
        }
        if let Some(leader) = change.role.leader() {
            let token = leader.ticket.token.0;
            match terms.last_mut() {
                // The term never ended: this member did not know of the leader for a while.
                Some(last) if last.token == token => (last.to, last.ended) = (None, None),
                Some(_) | None => terms.push(Term {
                    id: leader.leader.id.to_string(),
                    token,
                    is_self: change.role.own_term().is_some(),
                    from: api::date(*at),
                    to: None,
                    ended: None,
                    down_for_ms: down_for.map(millis),
                }),
            }
        }
        previous_token = token;
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemberFixture;
    use super::super::tests::ask;
    use super::*;
    use http_body_util::BodyExt;
    use recipes::election::{Command, Event};
    use recipes::{Moment, SessionEvent};
    use std::time::Duration;

    #[tokio::test]
    async fn another_members_term_does_not_end_when_this_one_leaves_the_queue() {
        let mut scene = MemberFixture::new();
        scene.follows(4);
        scene.step(Event::Command(Command::Pause));
        let unknown_end = "4 not heard of since (this member: paused)";
        assert_eq!(ended(&scene), [unknown_end]);
        scene.step(Event::Command(Command::Resume));
        scene.follows(4);
        assert_eq!(ended(&scene), ["4 lasts"], "one token is one term");
        scene.step(Event::Session(SessionEvent::Lost));
        scene.follows(6);
        let unknown_end = "4 not heard of since (this member: session expired)";
        assert_eq!(ended(&scene), [unknown_end, "6 lasts"], "it has ended meanwhile");
    }

    #[tokio::test]
    async fn the_end_of_its_own_term_has_its_cause() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        scene.step(Event::Command(Command::Resign));
        scene.leads(5);
        scene.step(Event::Session(SessionEvent::Lost));
        assert_eq!(ended(&scene), ["4 resigned", "5 session expired"]);
    }

    #[tokio::test]
    async fn a_term_that_goes_on_after_a_restart_says_for_how_long_there_was_no_process() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut recent_changes = RecentChanges::default();
        for recorded in scene.publisher.snapshot.borrow().recent_changes.iter() {
            let down_for = Some(Duration::from_millis(1_500));
            recent_changes.push(RecordedChange { down_for, ..recorded.clone() });
        }
        let [term] = terms(&recent_changes).try_into().ok().expect("one");
        assert_eq!((term.token, term.down_for_ms), (4, Some(1_500)));
    }

    #[tokio::test]
    async fn a_term_whose_lease_ran_out_has_ended_then_though_no_event_has_come_since() {
        let mut scene = MemberFixture::new();
        // The session's timeout is a minute.
        scene.now = Moment(scene.now.0.saturating_sub(Duration::from_secs(61)));
        scene.leads(4);
        assert_eq!(ended(&scene), ["4 lasts"], "the election has not judged it");
        let answer = ask(&scene.service, "/history").await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let History { terms } = serde_json::from_slice(&body).unwrap();
        assert_eq!(terms[0].ended.as_deref(), Some("the lease ran out"));
        assert!(terms[0].to.is_some());
    }

    /// Returns the token of each term, and how it ended.
    fn ended(scene: &MemberFixture) -> Vec<String> {
        let terms = terms(&scene.publisher.snapshot.borrow().recent_changes);
        let lines = terms.into_iter().map(|Term { token, to, ended, .. }| {
            assert_eq!(to.is_some(), ended.is_some());
            format!("{token} {}", ended.unwrap_or_else(|| "lasts".into()))
        });
        lines.collect()
    }
}
