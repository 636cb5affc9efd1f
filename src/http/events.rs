//! Tells who leads without being asked, as server-sent events.
//!
//! A stream holds nothing but the index of what it told last. Who does not read is told less, not
//! later: the next event is of the state at the moment it is written.

use super::problem::Unavailable;
use super::standing::{Body, RoleName};
use super::{Sight, Verdict, elector, metrics};
use crate::desk::Change;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// A comment this often shows both ends that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon a client whose stream was lost should come back.
const RETRY_MS: u64 = 1000;

#[derive(Serialize)]
struct Event<'a> {
    #[serde(flatten)]
    body: Body,
    role: RoleName,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
}

/// The state, then an event for each change, as server-sent events.
///
/// `state` comes first; then `became-leader`, `lost-leadership`, `leader-changed` or `leader-lost`, each with the
/// body of `/leader` and more. A comment comes every 15 s. `Last-Event-ID` brings what was missed.
#[utoipa::path(get, path = "/events", params(
    ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was read"),
), responses(
    (status = 200, description = "It goes on until somebody ends it", body = String, content_type = "text/event-stream"),
    Unavailable,
))]
pub(super) async fn events(State(sight): State<Sight>, headers: HeaderMap) -> Response {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let mut first = VecDeque::from([format!("retry: {RETRY_MS}\n\n")]);
    if let Some(seen) = seen {
        first.extend(missed(&sight, seen));
    }
    stream(sight, first, Some("state"), named)
}

/// Unnamed server-sent events, each with the body of `GET /`, for clients of nais/elector.
#[utoipa::path(get, path = "/sse", responses(
    (status = 200, description = "It goes on until somebody ends it", body = String, content_type = "text/event-stream"),
    Unavailable,
))]
pub(super) async fn sse(State(sight): State<Sight>) -> Response {
    let tell = |sight: &Sight, verdict: &Verdict, _: bool| {
        format!("data: {}\n\n", json(&elector::body(sight, verdict)))
    };
    stream(sight, VecDeque::new(), None, tell)
}

struct Stream<T> {
    sight: Sight,
    tell: T,
    ready: VecDeque<String>,
    told: u64,
    was_leader: bool,
    _place: OwnedSemaphorePermit,
    _open: metrics::Stream,
}

fn stream<T>(sight: Sight, ready: VecDeque<String>, name: Option<&str>, tell: T) -> Response
where
    T: Fn(&Sight, &Verdict, bool) -> String + Send + 'static,
{
    let place = match sight.place() {
        Ok(place) => place,
        Err(full) => return full.into_response(),
    };
    let verdict = sight.judge();
    let state = match name {
        Some(name) => event(&sight, name, &verdict),
        None => tell(&sight, &verdict, false),
    };
    let mut stream = Stream {
        told: sight.index(&verdict),
        was_leader: verdict.leads(),
        ready,
        tell,
        _open: sight.visits.stream(),
        sight,
        _place: place,
    };
    stream.ready.push_back(state);
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

impl<T: Fn(&Sight, &Verdict, bool) -> String> Stream<T> {
    async fn next(&mut self) -> Option<String> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        let changed = self.sight.changed_since(self.told);
        let verdict = match tokio::time::timeout(KEEP_ALIVE, changed).await {
            Ok(verdict) => verdict?,
            Err(_) => return Some(": here\n\n".into()),
        };
        let told = (self.tell)(&self.sight, &verdict, self.was_leader);
        self.told = self.sight.index(&verdict);
        self.was_leader = verdict.leads();
        Some(told)
    }
}

/// What a client missed while its stream was lost, as far as it is remembered.
fn missed(sight: &Sight, seen: u64) -> Vec<String> {
    let report = sight.judge().report;
    let mut was_leader = false;
    let mut told = vec![];
    for change in report.chronicle.iter() {
        if sight.started.index(change.index) > seen {
            told.push(past(sight, change, was_leader));
        }
        was_leader = change.is_self;
    }
    told
}

fn past(sight: &Sight, change: &Change, was_leader: bool) -> String {
    let index = sight.started.index(change.index);
    let told = Event {
        body: sight.body_of(change.leader.as_ref(), change.is_self, None, index),
        role: if change.is_self { RoleName::Leader } else { RoleName::Follower },
        at: super::date(change.at),
        cause: Some(&change.cause),
    };
    framed(name_of(was_leader, change.is_self, change.leader.is_some()), index, &json(&told))
}

fn named(sight: &Sight, verdict: &Verdict, was_leader: bool) -> String {
    let name = name_of(was_leader, verdict.leads(), verdict.leader().is_some());
    event(sight, name, verdict)
}

fn name_of(was_leader: bool, is_leader: bool, somebody_leads: bool) -> &'static str {
    match (was_leader, is_leader) {
        (false, true) => "became-leader",
        (true, false) => "lost-leadership",
        (true, true) | (false, false) if somebody_leads => "leader-changed",
        (true, true) | (false, false) => "leader-lost",
    }
}

fn event(sight: &Sight, name: &str, verdict: &Verdict) -> String {
    let told = Event {
        body: sight.body(verdict),
        role: verdict.role_name(),
        at: super::date(sight.clock.date()),
        cause: None,
    };
    framed(name, sight.index(verdict), &json(&told))
}

fn framed(name: &str, id: u64, data: &str) -> String {
    format!("event: {name}\nid: {id}\ndata: {data}\n\n")
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has nothing that JSON lacks")
}
