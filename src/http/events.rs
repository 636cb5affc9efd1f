//! Tells who leads without being asked, as server-sent events.
//!
//! A stream holds nothing but what it told last. A client that does not read is told less, not later:
//! the next events lead from there to the state at the moment they are written.

use super::claim::Claim;
use super::problem::Unavailable;
use super::routes::ApiRouter;
use super::visits::OpenStream;
use super::{Sight, Verdict, elector};
use crate::api::{self, Role};
use crate::desk::Recorded;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use recipes::election::{Change, View, changes};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
use utoipa_axum::routes;

/// How often a comment is sent, so that each end sees that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon a client whose stream was lost should come back.
const RETRY_MS: u64 = 1000;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(sse)).routes(routes!(events))
}

/// The state, then an event for each change, as server-sent events.
///
/// `state` comes first; then `became-leader`, `lost-leadership`, `leader-changed` or `leader-lost`, each with the
/// body of `/leader` and more. A comment comes every 15 s. `Last-Event-ID` brings what was missed.
#[utoipa::path(get, path = api::EVENTS.path, params(
    ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was read"),
), responses(
    (status = 200, description = "It goes on until one side ends it", body = String, content_type = "text/event-stream"),
    Unavailable,
))]
async fn events(State(sight): State<Sight>, headers: HeaderMap) -> Response {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let mut first = VecDeque::from([format!("retry: {RETRY_MS}\n\n")]);
    if let Some(seen) = seen {
        first.extend(missed(&sight, seen));
    }
    stream(sight, first, |sight, verdict| event(sight, "state", verdict), news)
}

/// Unnamed server-sent events, each with the body of `GET /`, for clients of nais/elector.
#[utoipa::path(get, path = "/sse", responses(
    (status = 200, description = "It goes on until one side ends it", body = String, content_type = "text/event-stream"),
    Unavailable,
))]
async fn sse(State(sight): State<Sight>) -> Response {
    let state = |sight: &Sight, verdict: &Verdict| {
        format!("data: {}\n\n", api::json(&elector::body(sight, verdict)))
    };
    stream(sight, VecDeque::new(), state, move |sight, verdict, _| state(sight, verdict))
}

struct Stream<T> {
    sight: Sight,
    /// Writes the news since what was told, which may be none.
    tell: T,
    ready: VecDeque<String>,
    told: u64,
    told_view: View,
    /// Of the answer whose body this is.
    claim: Option<Arc<Claim>>,
    _place: OwnedSemaphorePermit,
    _open: OpenStream,
}

fn stream<T>(
    sight: Sight,
    mut ready: VecDeque<String>,
    state: impl Fn(&Sight, &Verdict) -> String,
    tell: T,
) -> Response
where
    T: Fn(&Sight, &Verdict, &View) -> String + Send + 'static,
{
    let place = match sight.place() {
        Ok(place) => place,
        Err(full) => return full.into_response(),
    };
    let (verdict, claim) = (sight.judge(), Claim::of_this_answer());
    if let Some(claim) = &claim {
        claim.follow(&verdict);
    }
    ready.push_back(state(&sight, &verdict));
    let stream = Stream {
        told: sight.index(&verdict),
        told_view: verdict.view,
        claim,
        ready,
        tell,
        _open: sight.visits.stream(),
        sight,
        _place: place,
    };
    let chunks = futures_util::stream::unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    });
    let mut response = Bytes::from_stream(chunks).into_response();
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // Proxies would otherwise keep events until they have a buffer full of them.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<T: Fn(&Sight, &Verdict, &View) -> String> Stream<T> {
    async fn next(&mut self) -> Option<String> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        loop {
            let changed = self.sight.changed_since(self.told);
            let verdict = match tokio::time::timeout(KEEP_ALIVE, changed).await {
                Ok(verdict) => verdict?,
                Err(_) => return Some(": here\n\n".into()),
            };
            let news = (self.tell)(&self.sight, &verdict, &self.told_view);
            self.told = self.sight.index(&verdict);
            // For a client that reads slowly what was told before may be unwritten yet. It is told in order.
            if let Some(claim) = &self.claim {
                claim.follow(&verdict);
            }
            self.told_view = verdict.view;
            if !news.is_empty() {
                return Some(news);
            }
        }
    }
}

/// What a client missed while its stream was lost, as far as it is remembered.
fn missed(sight: &Sight, seen: u64) -> Vec<String> {
    let report = sight.judge().report;
    let unseen = |recorded: &&Recorded| sight.started.index(recorded.index) > seen;
    report.chronicle.iter().filter(unseen).map(|recorded| past(sight, recorded)).collect()
}

fn past(sight: &Sight, recorded: &Recorded) -> String {
    let Recorded { change, index, at, cause, down_for: _ } = recorded;
    let index = sight.started.index(*index);
    framed(change.kind.name(), Some(index), &over(sight, change, index, *at, Some(cause)))
}

/// The data of a change that others have followed, or may have.
fn over(sight: &Sight, change: &Change, index: u64, at: SystemTime, cause: Option<&str>) -> String {
    let view = change.view();
    let state = sight.past_state(view.leader(), view.own_term().is_some(), index);
    let (role, at, cause) = (Role::of(&change.role), api::date(at), cause.map(str::to_owned));
    api::json(&api::Event { state, role, at, cause })
}

/// The events that lead from what was told to the verdict: two if a term of this member's ended and
/// another began.
///
/// Only the last one has an `id`: a client sends it as `Last-Event-ID` to say that it has read all
/// up to this index. With an `id` on the first of two, a client cut off between them would never be
/// told the second; without, it is told both again.
fn news(sight: &Sight, verdict: &Verdict, told: &View) -> String {
    let changes = changes(told, &verdict.role);
    let Some((last, earlier)) = changes.split_last() else { return String::new() };
    let (index, at) = (sight.index(verdict), sight.clock.date());
    let earlier = earlier
        .iter()
        .map(|change| framed(change.kind.name(), None, &over(sight, change, index, at, None)));
    let last = event(sight, last.kind.name(), verdict);
    earlier.chain([last]).collect()
}

fn event(sight: &Sight, name: &str, verdict: &Verdict) -> String {
    let told = api::Event {
        state: sight.state(verdict),
        role: verdict.role_name(),
        at: api::date(sight.clock.date()),
        cause: None,
    };
    framed(name, Some(sight.index(verdict)), &api::json(&told))
}

fn framed(name: &str, id: Option<u64>, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{api, member};
    use super::super::{Clerk, Service};
    use super::*;
    use crate::clock::Clock;
    use crate::desk::Back;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use recipes::election::{Announcement, Event, Member, Profile};
    use recipes::{FencingToken, MemberId, Moment, Sequence, SessionId, Ticket};
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_late_reader_hears_that_its_term_ended_and_that_another_began() {
        let mut scene = Scene::new();
        scene.leads(4);
        let mut stream = scene.stream(None).await;
        assert_eq!(stream.heard().await, ["state leader 4"]);
        scene.loses(4);
        scene.leads(5);
        let both = ["lost-leadership absent null", "became-leader leader 5"];
        assert_eq!(stream.heard().await, both);
    }

    #[tokio::test]
    async fn a_late_reader_hears_that_its_term_ended_and_who_leads_since() {
        let mut scene = Scene::new();
        scene.leads(4);
        let mut stream = scene.stream(None).await;
        assert_eq!(stream.heard().await, ["state leader 4"]);
        scene.loses(4);
        scene.follows(5);
        let both = ["lost-leadership absent null", "leader-changed follower 5"];
        assert_eq!(stream.heard().await, both);
    }

    #[tokio::test]
    async fn what_came_and_went_unread_is_not_told() {
        let mut scene = Scene::new();
        let mut stream = scene.stream(None).await;
        assert_eq!(stream.heard().await, ["state absent null"]);
        scene.leads(4);
        scene.loses(4);
        let heard = stream.heard();
        tokio::pin!(heard);
        assert!(futures_util::poll!(&mut heard).is_pending());
        scene.leads(5);
        assert_eq!(heard.await, ["became-leader leader 5"]);
    }

    #[tokio::test]
    async fn what_was_missed_is_told_with_the_role_of_its_time() {
        let mut scene = Scene::new();
        scene.leads(4);
        scene.loses(4);
        scene.follows(5);
        let mut stream = scene.stream(Some(0)).await;
        for told in [
            "became-leader leader 4",
            "lost-leadership absent null",
            "leader-changed follower 5",
            "state follower 5",
        ] {
            assert_eq!(stream.heard().await, [told]);
        }
    }

    #[tokio::test]
    async fn a_client_cut_off_between_two_events_of_one_index_is_told_both_again() {
        let mut scene = Scene::new();
        scene.leads(4);
        let mut stream = scene.stream(None).await;
        let state = stream.chunk().await;
        scene.loses(4);
        scene.leads(5);
        let both = stream.chunk().await;
        let (lost, became) = both.split_once("\n\n").unwrap();
        assert_eq!(field(lost, "id: "), None, "what follows it is not read yet");
        assert!(field(became, "id: ") > field(&state, "id: "));

        let read = field(&state, "id: ").unwrap().parse().unwrap();
        let mut again = scene.stream(Some(read)).await;
        for told in ["lost-leadership absent null", "became-leader leader 5", "state leader 5"] {
            assert_eq!(again.heard().await, [told]);
        }
    }

    struct Scene {
        member: Member,
        service: Service,
        back: Back,
        now: Moment,
    }

    impl Scene {
        fn new() -> Self {
            let (service, back) = api(Duration::ZERO);
            Self { member: member(), service, back, now: Clock::system().now() }
        }

        fn step(&mut self, event: Event) {
            self.member.step(self.now, event);
            let (standing, now) = (self.member.standing(), self.now);
            self.back.report.send_modify(|report| {
                let chronicle = Arc::make_mut(&mut report.chronicle);
                for change in changes(&chronicle.view(), &standing.at(now)) {
                    let (index, at) = (standing.index_at(now), SystemTime::UNIX_EPOCH);
                    chronicle.push(Recorded {
                        change,
                        index,
                        at,
                        cause: "the test".into(),
                        down_for: None,
                    });
                }
                report.standing = standing;
            });
        }

        fn enters(&mut self, number: i32, queue: &[i32]) {
            let (session, sent_at) = (SessionId(number.into()), self.now);
            let timeout = Duration::from_secs(60);
            self.step(Event::SessionOpened { session, timeout, sent_at });
            self.step(Event::Joined(ticket(number)));
            self.step(Event::QueueRead(queue.iter().map(|n| ticket(*n).sequence).collect()));
        }

        fn leads(&mut self, number: i32) {
            self.enters(number, &[number]);
            self.step(Event::Committed { sent_at: self.now });
        }

        fn loses(&mut self, number: i32) {
            self.step(Event::TicketLost(ticket(number)));
            self.step(Event::SessionLost);
        }

        fn follows(&mut self, number: i32) {
            self.enters(number + 1, &[number, number + 1]);
            let (id, labels) = (MemberId::new("b").unwrap(), BTreeMap::new());
            let leader = Arc::new(Profile { id, address: None, labels, revision: 0 });
            let ticket = ticket(number);
            let says = Some(Announcement { leader, ticket, active: true });
            self.step(Event::PredecessorRead { predecessor: ticket, announcement: says });
        }

        async fn stream(&self, seen: Option<u64>) -> Incoming {
            let request = Request::get("/events");
            let request = match seen {
                Some(seen) => request.header("last-event-id", seen),
                None => request,
            };
            let response = self.service.answer(request.body(Bytes::empty()).unwrap()).await;
            let mut stream = Incoming { body: response.into_body() };
            assert!(stream.chunk().await.starts_with("retry"));
            stream
        }
    }

    fn ticket(number: i32) -> Ticket {
        let token = FencingToken(number.unsigned_abs().into());
        Ticket { sequence: Sequence::new(number).unwrap(), token }
    }

    fn field(event: &str, name: &str) -> Option<String> {
        event.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
    }

    struct Incoming {
        body: Bytes,
    }

    impl Incoming {
        async fn chunk(&mut self) -> String {
            let frame = self.body.frame().await.unwrap().unwrap();
            String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
        }

        /// Returns name, role and the leader's token of each event in the next chunk.
        async fn heard(&mut self) -> Vec<String> {
            let chunk = self.chunk().await;
            let events = chunk.split_terminator("\n\n").map(|event| {
                let field = |name| field(event, name);
                let data: Value = serde_json::from_str(&field("data: ").unwrap()).unwrap();
                let (name, role) = (field("event: ").unwrap(), data["role"].as_str().unwrap());
                format!("{name} {role} {}", data["leader"]["token"])
            });
            events.collect()
        }
    }
}
