//! Reports changes of leadership as server-sent events.
//!
//! A stream stores only the state that it sent last. A client that does not read gets fewer events, not outdated ones: the
//! next events lead from that state to the state at the moment when they are written.

use super::claims::ConnectionClaims;
use super::members::GroupStream;
use super::page::Elector;
use super::problem::{ProblemResponse, QueryRefusal};
use super::query::{flag, values};
use super::sse::{self, EventSource, framed};
use super::{AppState, Verdict};
use crate::api::{self, LeaderState, Role};
use crate::byte_budget::ReservedBytes;
use crate::status::RecordedChange;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use futures_util::future::OptionFuture;
use recipes::election::{Cause, Change, ChangeKind, View, changes};
use std::collections::VecDeque;
use std::time::SystemTime;

/// How soon a client whose stream was lost should reconnect.
const RETRY_MS: u64 = 1000;

/// An example of a valid query, for error messages.
const WRITE: &str = "?members=1";

/// The state, then an event for each change, as server-sent events.
///
/// `state` comes first; then `became-leader`, `lost-leadership`, `leader-changed` or `leader-lost`, each with the body of
/// `/leader` and more. A comment is sent every 15 s. With `Last-Event-ID`, a `missed` is sent before `state` for each change
/// that was missed.
///
/// With `members=1` also the members of the queue: `members` once, then `member-joined` and `member-left`, each with `index`
/// as in `GET /members`. These events have no `id`: after a reconnect, `members` is sent again.
#[utoipa::path(get, path = api::EVENTS.path, params(
    ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was read"),
    ("members" = inline(Option<String>), Query, description = "1: tell also who joins and leaves, read once a second", pattern = "^[01]$"),
), responses(
    (status = 200, description = "It goes on until one side ends it; the data of each event is such a body", body = api::LeaderEvent, content_type = "text/event-stream"),
    QueryRefusal,
))]
pub(super) async fn events(
    State(app): State<AppState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let [members] = values(&uri, ["members"], WRITE)?;
    let has_members = flag("members", members.as_deref(), WRITE)?;
    let permit = app.place()?;
    let group = match has_members {
        true => Some(GroupStream::open(&app).await),
        false => None,
    };
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let verdict = app.judge_and_claim();
    let mut first = VecDeque::from([format!("retry: {RETRY_MS}\n\n")]);
    first.extend(seen.into_iter().flat_map(|seen| missed(&app, &verdict, seen)));
    first.push_back(event(&app, "state", &verdict, None));
    let events = LeaderEvents::after(&app, verdict, first, events_since)?;
    Ok(sse::stream(&app, permit, LeaderEvents { group, ..events }))
}

/// Unnamed server-sent events, each with the body of `GET /`, for clients of nais/elector.
#[utoipa::path(get, path = "/sse", responses(
    (status = 200, description = "It goes on until one side ends it; the data of each event is such a body", body = Elector, content_type = "text/event-stream"),
    (status = 503, description = "Not now: `Retry-After` says when to ask again."),
))]
pub(super) async fn sse(State(app): State<AppState>) -> Result<Response, ProblemResponse> {
    let permit = app.place()?;
    let verdict = app.judge_and_claim();
    let first = VecDeque::from([unnamed_event(&app, &verdict)]);
    let write = |app: &AppState, verdict: &Verdict, _: &LastSent| unnamed_event(app, verdict);
    let events = LeaderEvents::after(&app, verdict, first, write)?;
    Ok(sse::stream(&app, permit, events))
}

fn unnamed_event(app: &AppState, verdict: &Verdict) -> String {
    format!("data: {}\n\n", api::json(&Elector::of(app, verdict)))
}

/// The source of the events of one stream.
struct LeaderEvents {
    app: AppState,
    /// Formats the events since `last_sent`; returns an empty string if there are none.
    write: fn(&AppState, &Verdict, &LastSent) -> String,
    /// The first events, and the memory for them.
    first: VecDeque<String>,
    first_memory: ReservedBytes,
    /// Follows the members of the queue, if the client asked for `members=1`.
    group: Option<GroupStream>,
    last_sent: LastSent,
    claims: ConnectionClaims,
}

/// The state after the events that were sent.
struct LastSent {
    index: Option<u64>,
    view: View,
}

impl LeaderEvents {
    /// Begins with these events, which describe this verdict.
    fn after(
        app: &AppState,
        verdict: Verdict,
        first: VecDeque<String>,
        write: fn(&AppState, &Verdict, &LastSent) -> String,
    ) -> Result<Self, ProblemResponse> {
        let first_memory = app.budget.take(first.iter().map(String::len).sum());
        Ok(Self {
            write,
            first,
            first_memory: first_memory.ok_or_else(|| ProblemResponse::buffers_full(&app.budget))?,
            group: None,
            last_sent: LastSent { index: verdict.index(), view: verdict.view },
            claims: ConnectionClaims::current(),
            app: app.clone(),
        })
    }
}

impl EventSource for LeaderEvents {
    async fn next(&mut self) -> Option<(Bytes, ReservedBytes)> {
        if let Some(first) = self.first.pop_front() {
            return Some(sse::small(first));
        }
        self.first_memory = ReservedBytes::default();
        loop {
            let members = self.group.as_mut().map(|group| group.next(&self.app));
            let verdict = tokio::select! {
                biased;
                verdict = self.app.changed_since(self.last_sent.index) => verdict?,
                Some((events, memory)) = OptionFuture::from(members) => {
                    return Some((events.into(), memory));
                }
            };
            let events = (self.write)(&self.app, &verdict, &self.last_sent);
            self.claims.claim(self.app.claim_of(&verdict));
            self.last_sent = LastSent { index: verdict.index(), view: verdict.view };
            if !events.is_empty() {
                return Some(sse::small(events));
            }
        }
    }
}

/// Returns an event for each change that the client missed while its stream was lost, as far as they are remembered.
///
/// An index that this member has not reached comes from another member: the client has not seen any of these changes.
fn missed(app: &AppState, verdict: &Verdict, seen: u64) -> Vec<String> {
    let seen = Some(seen).filter(|seen| verdict.index().is_some_and(|index| *seen <= index));
    let recorded = verdict.snapshot.recent_changes.iter();
    let unseen = recorded.filter(|recorded| recorded.index > seen);
    unseen.map(|recorded| missed_event(app, verdict, recorded)).collect()
}

/// Formats a change as the event `missed`, which happened while the client's stream was lost. It names the leader at that
/// time, but the current role: a client that acts on events must not start to work for a term that is over. Of a term of this
/// member that still lasts, it gives the current deadline.
fn missed_event(app: &AppState, verdict: &Verdict, recorded: &RecordedChange) -> String {
    let RecordedChange { change, index, at, cause, down_for: _ } = recorded;
    let view = change.view();
    let index = *index;
    let own_term = view.own_term();
    let still_lasts = own_term.is_some() && own_term == verdict.view.own_term();
    let state = if still_lasts {
        LeaderState { index, ..app.state(verdict) }
    } else {
        app.past_state(view.leader(), false, index)
    };
    let missed = api::LeaderEvent {
        change: Some(change.kind.name().to_owned()),
        ..body(state, verdict.role_name(), *at, Some(*cause))
    };
    framed("missed", index, &api::json(&missed))
}

fn body(state: LeaderState, role: Role, at: SystemTime, cause: Option<Cause>) -> api::LeaderEvent {
    let cause = cause.map(|cause| cause.to_string());
    api::LeaderEvent { state, role, at: api::date(at), cause, change: None }
}

/// Returns the cause of a change that has not been sent to the client yet.
fn cause(verdict: &Verdict, last_sent: &LastSent, change: &Change) -> Option<Cause> {
    // A lease ends by the clock, before the election has recorded that change and its cause.
    if change.kind == ChangeKind::LostLeadership && verdict.has_lapsed() {
        return Some(Cause::LeaseRanOut);
    }
    let unsent = verdict.snapshot.recent_changes.iter().rev();
    let mut unsent = unsent.take_while(|change| change.index > last_sent.index);
    unsent
        .find(|recorded| {
            let RecordedChange { change: Change { kind, token, .. }, .. } = recorded;
            (*kind, *token) == (change.kind, change.token)
        })
        .map(|recorded| recorded.cause)
}

/// Returns the events that lead from the last sent state to the verdict: two if a term of this member ended and another
/// began.
///
/// Only the last event has an `id`: a client sends it as `Last-Event-ID` to say that it has read everything up to this
/// index. If the first of two events had an `id`, a client whose stream breaks between them would never get the second
/// event. Without it, the client gets both again.
fn events_since(app: &AppState, verdict: &Verdict, last_sent: &LastSent) -> String {
    let changes = changes(&last_sent.view, &verdict.role);
    let Some((last, earlier)) = changes.split_last() else { return String::new() };
    let index = verdict.index();
    let earlier = earlier.iter().map(|change| {
        // A later change has followed this one, and the lease of its term is over.
        let view = change.view();
        let state = app.past_state(view.leader(), view.own_term().is_some(), index);
        let cause = cause(verdict, last_sent, change);
        let superseded = body(state, Role::of(&change.role), app.clock.date(), cause);
        framed(change.kind.name(), None, &api::json(&superseded))
    });
    let last = event(app, last.kind.name(), verdict, cause(verdict, last_sent, last));
    earlier.chain([last]).collect()
}

fn event(app: &AppState, name: &str, verdict: &Verdict, cause: Option<Cause>) -> String {
    let data = body(app.state(verdict), verdict.role_name(), app.clock.date(), cause);
    framed(name, verdict.index(), &api::json(&data))
}

#[cfg(test)]
mod tests {
    use super::super::Handler;
    use super::super::testing::MemberFixture;
    use super::*;
    use crate::status::QueueReading;
    use axum::body::Body;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use recipes::election::{Command, Event};
    use serde_json::Value;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_late_reader_is_sent_the_end_of_a_term_and_the_beginning_of_the_next() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut stream = opened(&scene, None).await;
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
        let mut stream = opened(&scene, None).await;
        assert_eq!(stream.next_events().await, ["state leader 4"]);
        scene.loses(4);
        scene.follows(5);
        let both = ["lost-leadership absent null", "leader-changed follower 5"];
        assert_eq!(stream.next_events().await, both);
    }

    #[tokio::test]
    async fn a_term_that_began_and_ended_unread_is_not_sent() {
        let mut scene = MemberFixture::new();
        let mut stream = opened(&scene, None).await;
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
    async fn missed_changes_are_sent_under_a_name_of_their_own_and_with_the_present_role() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        scene.loses(4);
        scene.follows(5);
        // An index larger than any of this process is an earlier one's: the client has seen none of these changes.
        for seen in [0, u64::MAX] {
            let mut stream = opened(&scene, Some(seen)).await;
            for (change, token, cause) in [
                ("became-leader", Value::from(4), "a quorum acknowledged the claim"),
                ("lost-leadership", Value::Null, "the znode was deleted"),
                ("leader-changed", Value::from(5), "a leader was announced"),
            ] {
                let text = stream.chunk().await;
                assert_eq!(field(&text, "event: ").unwrap(), "missed", "no handler starts by it");
                let body = data(&text);
                assert_eq!((&body["change"], &body["cause"]), (&change.into(), &cause.into()));
                assert_eq!(body["leader"]["token"], token);
                assert_eq!((&body["role"], &body["is_self"]), (&"follower".into(), &false.into()));
                assert_eq!(body["valid_until_boottime_ns"], Value::Null);
            }
            assert_eq!(stream.next_events().await, ["state follower 5"]);
        }
    }

    #[tokio::test]
    async fn a_missed_change_of_a_term_that_lasts_has_its_lease() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut stream = opened(&scene, Some(0)).await;
        let missed = data(&stream.chunk().await);
        let state = data(&stream.chunk().await);
        assert_eq!((&missed["role"], &missed["is_self"]), (&"leader".into(), &true.into()));
        assert!(state["valid_until_boottime_ns"].is_u64());
        assert_eq!(missed["valid_until_boottime_ns"], state["valid_until_boottime_ns"]);
    }

    #[tokio::test]
    async fn every_change_is_sent_with_its_cause() {
        let mut scene = MemberFixture::new();
        let mut stream = opened(&scene, None).await;
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
    async fn a_client_cut_off_between_two_events_of_one_index_is_sent_both_again() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let mut stream = opened(&scene, None).await;
        let state = stream.chunk().await;
        scene.loses(4);
        scene.leads(5);
        let both = stream.chunk().await;
        let (lost, became) = both.split_once("\n\n").unwrap();
        assert_eq!(field(lost, "id: "), None, "what follows it is not read yet");
        assert!(field(became, "id: ") > field(&state, "id: "));

        let read = field(&state, "id: ").unwrap().parse().unwrap();
        let mut again = opened(&scene, Some(read)).await;
        for change in ["lost-leadership", "became-leader"] {
            assert_eq!(data(&again.chunk().await)["change"], change);
        }
        assert_eq!(again.next_events().await, ["state leader 5"]);
    }

    #[tokio::test]
    async fn a_yes_is_not_written_once_the_term_is_over_though_the_end_of_the_term_comes_after_it()
    {
        for is_written_in_time in [false, true] {
            let mut scene = MemberFixture::new();
            scene.leads(4);
            let request = Request::get("/events").body(Body::empty()).unwrap();
            let claims = ConnectionClaims::default();
            let response = claims.scope(scene.service.answer(request)).await;
            let mut stream = ReceivedEvents { body: response.into_body() };
            assert!(stream.chunk().await.starts_with("retry"));
            assert_eq!(stream.next_events().await, ["state leader 4"]);
            assert!(claims.are_true());
            if is_written_in_time {
                claims.all_written();
            }
            scene.loses(4);
            assert!(!claims.are_true(), "the end is not told yet");
            assert_eq!(stream.next_events().await, ["lost-leadership absent null"]);
            assert_eq!(claims.are_true(), is_written_in_time);
        }
    }

    #[tokio::test]
    async fn events_of_members_that_wait_for_memory_delay_no_change_of_leadership() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        scene.publishes(|snapshot| snapshot.link.problem = Some("no connection".into()));
        let request = Request::get("/events?members=1").body(Body::empty()).unwrap();
        let response = scene.service.answer(request).await;
        let mut stream = ReceivedEvents { body: response.into_body() };
        assert!(stream.chunk().await.starts_with("retry"));
        assert_eq!(stream.next_events().await, ["state leader 4"]);

        let app = scene.service.app.clone();
        let memory: Vec<_>;
        {
            let next = stream.next_events();
            tokio::pin!(next);
            assert!(futures_util::poll!(&mut next).is_pending(), "it gives its memory back");
            memory = std::iter::from_fn(|| app.budget.take(1)).collect();
            app.note_members(QueueReading { index: 1, members: Arc::default() });
            assert!(futures_util::poll!(&mut next).is_pending());
            scene.loses(4);
            assert_eq!(next.await, ["lost-leadership absent null"]);
        }
        let next = stream.chunk();
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(memory);
        assert!(next.await.starts_with("event: members"), "they are sent afterwards");
    }

    async fn opened(scene: &MemberFixture, seen: Option<u64>) -> ReceivedEvents {
        let request = Request::get("/events");
        let request = match seen {
            Some(seen) => request.header("last-event-id", seen),
            None => request,
        };
        let response = scene.service.answer(request.body(Body::empty()).unwrap()).await;
        let mut stream = ReceivedEvents { body: response.into_body() };
        assert!(stream.chunk().await.starts_with("retry"));
        stream
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
            String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
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
