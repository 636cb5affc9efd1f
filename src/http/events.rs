//! Reports changes of leadership as server-sent events.
//!
//! A stream stores only the state that it sent last. A client that reads slowly gets fewer events, but no outdated
//! ones: the next events lead from that state to the state at the moment when these events are made.

use super::claims::ConnectionClaims;
use super::page::LeaderElectorBody;
use super::problem::ProblemResponse;
use super::query::{NoQuery, Query};
use super::sse::{self, EventSource, framed};
use super::{AppState, Verdict};
use crate::api::{self, LeaderState, Role};
use crate::byte_budget::ReservedBytes;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use recipes::election::{self, Cause, Change, ChangeKind, changes};

/// How soon a client whose stream was lost should reconnect.
const RETRY_MS: u64 = 1000;

/// The state, then an event for each change, as server-sent events.
///
/// `state` comes first; then `became-leader`, `lost-leadership`, `leader-changed` or `leader-lost`, each with the body of
/// `/leader` and more. A comment is sent every 15 s.
pub(super) async fn events(
    State(app): State<AppState>,
    _: Query<NoQuery>,
) -> Result<Response, ProblemResponse> {
    let permit = app.waiting_permit()?;
    let verdict = app.evaluate_and_claim();
    let first = format!("retry: {RETRY_MS}\n\n{}", event(&app, "state", &verdict, None));
    Ok(sse::stream(&app, permit, LeaderEvents::beginning_with(&app, verdict, first, events_since)))
}

/// Unnamed server-sent events, each with the body of `GET /`, for clients of nais/elector.
pub(super) async fn sse(State(app): State<AppState>) -> Result<Response, ProblemResponse> {
    let permit = app.waiting_permit()?;
    let verdict = app.evaluate_and_claim();
    let first = unnamed_event(&app, &verdict);
    let write = |app: &AppState, verdict: &Verdict, _: &LastSent| unnamed_event(app, verdict);
    Ok(sse::stream(&app, permit, LeaderEvents::beginning_with(&app, verdict, first, write)))
}

/// Formats the event for clients of nais/elector.
fn unnamed_event(app: &AppState, verdict: &Verdict) -> String {
    format!("data: {}\n\n", api::json(&LeaderElectorBody::of(app, verdict)))
}

/// The source of the events of one stream.
struct LeaderEvents {
    app: AppState,
    /// Formats the events that lead from the last sent state to the verdict; returns an empty string if there are none.
    write: fn(&AppState, &Verdict, &LastSent) -> String,
    /// The first event, until it is sent.
    first: Option<String>,
    last_sent: LastSent,
    claims: ConnectionClaims,
}

/// The state after the events that were sent.
struct LastSent {
    index: Option<u64>,
    role: election::Role,
}

impl LeaderEvents {
    /// Returns the source of the event `first`, which describes `verdict`, and of the events after it.
    fn beginning_with(
        app: &AppState,
        verdict: Verdict,
        first: String,
        write: fn(&AppState, &Verdict, &LastSent) -> String,
    ) -> Self {
        Self {
            write,
            first: Some(first),
            last_sent: LastSent { index: verdict.index(), role: verdict.role },
            claims: ConnectionClaims::current(),
            app: app.clone(),
        }
    }
}

impl EventSource for LeaderEvents {
    async fn next(&mut self) -> Option<(Bytes, ReservedBytes)> {
        if let Some(first) = self.first.take() {
            return Some(sse::small(first));
        }
        loop {
            let verdict = self.app.changed_since(self.last_sent.index).await?;
            let events = (self.write)(&self.app, &verdict, &self.last_sent);
            self.claims.claim(self.app.claim_of(&verdict));
            self.last_sent = LastSent { index: verdict.index(), role: verdict.role };
            if !events.is_empty() {
                return Some(sse::small(events));
            }
        }
    }
}

fn body(app: &AppState, state: LeaderState, role: Role, cause: Option<Cause>) -> api::LeaderEvent {
    let cause = cause.map(|cause| cause.to_string());
    api::LeaderEvent { state, role, at: api::date(app.clock.date()), cause }
}

/// Returns the cause of a change that has not been sent to the client yet: that of the newest recorded change of this
/// kind and term. Returns `None` if it is no longer recorded.
fn cause(verdict: &Verdict, last_sent: &LastSent, change: &Change) -> Option<Cause> {
    // A lease ends by the clock. The election records the end and its cause only when it is woken next.
    if change.kind == ChangeKind::LostLeadership && verdict.has_lapsed() {
        return Some(Cause::LeaseRanOut);
    }
    let newest_first = verdict.snapshot.recent_changes.iter().rev();
    let mut unsent = newest_first.take_while(|recorded| recorded.index > last_sent.index);
    let found = unsent.find(|recorded| {
        recorded.change.kind == change.kind && recorded.change.token == change.token
    });
    found.map(|recorded| recorded.cause)
}

/// Returns the events that lead from the last sent state to `verdict`. There are two if a term of this member has ended and
/// another term has begun.
fn events_since(app: &AppState, verdict: &Verdict, last_sent: &LastSent) -> String {
    let changes = changes(&last_sent.role, &verdict.role);
    let Some((last, earlier)) = changes.split_last() else { return String::new() };
    let index = verdict.index();
    let earlier = earlier.iter().map(|change| {
        // Another change has followed, so the state after this change is past, and has no lease.
        let is_self = change.role.own_term().is_some();
        let state = app.state_without_lease(change.role.leader(), is_self, index);
        let cause = cause(verdict, last_sent, change);
        let superseded = body(app, state, Role::of(&change.role), cause);
        framed(change.kind.name(), None, &api::json(&superseded))
    });
    let last = event(app, last.kind.name(), verdict, cause(verdict, last_sent, last));
    earlier.chain([last]).collect()
}

/// Formats the event `name` with the state of this member.
fn event(app: &AppState, name: &str, verdict: &Verdict, cause: Option<Cause>) -> String {
    let data = body(app, app.state(verdict), verdict.role_name(), cause);
    framed(name, verdict.index(), &api::json(&data))
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemberFixture;
    use super::super::tests::ask;
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use recipes::election::{Command, Event};
    use serde_json::Value;

    #[tokio::test]
    async fn a_late_reader_is_sent_the_end_of_a_term_and_the_beginning_of_the_next() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut stream = opened(&scene).await;
        assert_eq!(stream.next_events().await, ["state leader 4"]);
        scene.loses(4);
        scene.leads(5);
        let both = ["lost-leadership absent null", "became-leader leader 5"];
        assert_eq!(stream.next_events().await, both);
    }

    #[tokio::test]
    async fn a_late_reader_is_sent_the_end_of_a_term_and_the_leader_since() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut stream = opened(&scene).await;
        assert_eq!(stream.next_events().await, ["state leader 4"]);
        scene.loses(4);
        scene.follows(5);
        let both = ["lost-leadership absent null", "leader-changed follower 5"];
        assert_eq!(stream.next_events().await, both);
    }

    #[tokio::test]
    async fn a_term_that_began_and_ended_unread_is_not_sent() {
        let mut scene = MemberFixture::new();
        let mut stream = opened(&scene).await;
        assert_eq!(stream.next_events().await, ["state absent null"]);
        scene.leads(4);
        scene.loses(4);
        let next = stream.next_events();
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_pending());
        scene.leads(5);
        assert_eq!(next.await, ["became-leader leader 5"]);
    }

    #[tokio::test]
    async fn every_change_is_sent_with_its_cause() {
        let mut scene = MemberFixture::new();
        let mut stream = opened(&scene).await;
        let state = stream.chunk().await;
        assert!(data(&state).get("cause").is_none(), "{state}");
        scene.follows(4);
        assert_eq!(data(&stream.chunk().await)["cause"], "a leader was announced");
        scene.step(Event::Command(Command::Pause));
        assert_eq!(data(&stream.chunk().await)["cause"], "paused");
        scene.step(Event::Command(Command::Resume));
        scene.leads(6);
        assert_eq!(data(&stream.chunk().await)["cause"], "a quorum acknowledged the claim");
        scene.step(Event::Command(Command::Resign));
        scene.follows(7);
        let both = stream.chunk().await;
        let (lost, changed) = both.split_once("\n\n").unwrap();
        assert_eq!(data(lost)["cause"], "resigned");
        assert_eq!(data(changed)["cause"], "a leader was announced");
    }

    #[tokio::test]
    async fn a_yes_is_not_written_once_the_term_is_over_though_the_end_of_the_term_comes_after_it()
    {
        for is_written_in_time in [false, true] {
            let mut scene = MemberFixture::new();
            scene.leads(4);
            let claims = ConnectionClaims::default();
            let response = claims.scope(ask(&scene.service, "/events")).await;
            let mut stream = ReceivedEvents { body: response.into_body() };
            assert_eq!(stream.next_events().await, ["state leader 4"]);
            assert!(claims.still_hold());
            if is_written_in_time {
                claims.on_all_written();
            }
            scene.loses(4);
            assert!(!claims.still_hold(), "the end of the term is not sent yet");
            assert_eq!(stream.next_events().await, ["lost-leadership absent null"]);
            assert_eq!(claims.still_hold(), is_written_in_time);
        }
    }

    async fn opened(scene: &MemberFixture) -> ReceivedEvents {
        ReceivedEvents { body: ask(&scene.service, "/events").await.into_body() }
    }

    fn field(event: &str, name: &str) -> Option<String> {
        event.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
    }

    fn data(event: &str) -> Value {
        serde_json::from_str(&field(event, "data: ").unwrap()).unwrap()
    }

    /// A client's end of a stream.
    struct ReceivedEvents {
        body: Body,
    }

    impl ReceivedEvents {
        async fn chunk(&mut self) -> String {
            let frame = self.body.frame().await.unwrap().unwrap();
            let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
            text.trim_start_matches("retry: 1000\n\n").to_owned()
        }

        /// Returns name, role and the leader's token of each event in the next chunk.
        async fn next_events(&mut self) -> Vec<String> {
            let chunk = self.chunk().await;
            let events = chunk.split_terminator("\n\n").map(|event| {
                let data = data(event);
                let name = field(event, "event: ").unwrap();
                let role = data["role"].as_str().unwrap();
                format!("{name} {role} {}", data["leader"]["token"])
            });
            events.collect()
        }
    }
}
