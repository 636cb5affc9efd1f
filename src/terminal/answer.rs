//! A sidecar's answers: a complete answer, or a stream of events.

use super::text::visible;
use super::{ClientError, NO, UNANSWERED};
use crate::api::{PROBLEM_TYPE_PREFIX, Problem};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::{Response, StatusCode};
use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The limit of an answer's size. Even the queue of very many members is shorter. So is every value of the shared
/// configuration, because ZooKeeper accepts no longer data, unless its operators have raised its limits.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// A stream counts as dead after this time without data. A sidecar sends at least a comment every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// The limit of an event's size. Every event that a sidecar sends is shorter.
const LONGEST_EVENT: usize = 1024 * 1024;

/// A sidecar's complete answer.
pub struct SidecarAnswer {
    /// The URL that was requested, for errors.
    url: String,
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) bytes: Bytes,
}

impl SidecarAnswer {
    /// Reads the whole answer to the request for `url`.
    pub(super) async fn read(url: &str, response: Response<Incoming>) -> Result<Self, ClientError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| ClientError::no_answer(url, &error.to_string()))?;
        let bytes = body.to_bytes();
        Ok(Self { url: url.to_owned(), status: head.status, headers: head.headers, bytes })
    }

    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the index of the answer, which is sent even if there is no leader.
    pub fn index(&self) -> Option<u64> {
        self.header(HeaderName::from_static("x-bellwether-index"))?.parse().ok()
    }

    /// Checks that the command was carried out.
    pub(super) fn check_done(&self) -> Result<(), ClientError> {
        if self.status == StatusCode::NO_CONTENT {
            return Ok(());
        }
        self.check_success()?;
        Err(self.nonsense("it does not say that it is done"))
    }

    /// Parses the body of a successful answer.
    ///
    /// # Errors
    /// The exit code is 1 for a refusal, and 3 for any other failure.
    pub fn body<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        self.check_success()?;
        self.parsed()
    }

    /// Returns whether the answer is a problem document.
    pub(super) fn is_problem(&self) -> bool {
        self.header(CONTENT_TYPE) == Some("application/problem+json")
    }

    /// Returns an error unless the answer is a success. A refusal has the exit code [`NO`], unless its reason is that
    /// the sidecar could not read or write ZooKeeper.
    pub(super) fn check_success(&self) -> Result<(), ClientError> {
        if self.status.is_success() {
            return Ok(());
        }
        if !self.is_problem() {
            return Err(self.unexpected_status());
        }
        let Problem { r#type, title, detail, .. } = self.parsed()?;
        // The kind is empty if the problem is not one of a sidecar.
        let kind = r#type.strip_prefix(PROBLEM_TYPE_PREFIX).unwrap_or_default();
        // A sidecar sends a problem with another status only if the request was wrong. A 404 with any other kind means
        // that the URL does not exist.
        let is_refusal = match self.status.as_u16() {
            401 | 403 | 409 | 412 | 413 | 503 => !kind.is_empty(),
            404 => kind.ends_with("-off") || ["no-such-value", "no-such-place"].contains(&kind),
            _ => false,
        };
        if !is_refusal {
            return Err(self.unexpected_status());
        }
        let why = visible(&format!("{title}: {detail}"));
        let lacks_zookeeper = kind.ends_with("-unavailable") || WITHOUT_ZOOKEEPER.contains(&kind);
        Err(ClientError::new(if lacks_zookeeper { UNANSWERED } else { NO }, why))
    }

    /// Parses the body, even if the answer is a refusal.
    pub(super) fn parsed<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.bytes).map_err(|error| self.nonsense(&error.to_string()))
    }

    /// Returns an error for a status that a sidecar does not send for this request.
    fn unexpected_status(&self) -> ClientError {
        self.nonsense(&format!("it says {}", self.status))
    }

    /// Returns an error for an answer that a sidecar would not send.
    pub(super) fn nonsense(&self, why: &str) -> ClientError {
        ClientError::nonsense(&self.url, why)
    }
}

/// The kinds of problems that mean that ZooKeeper does not answer, in addition to all kinds that end with
/// `-unavailable`.
const WITHOUT_ZOOKEEPER: [&str; 2] = ["not-written", "unconfirmed"];

impl ClientError {
    /// Returns the error for a request without an answer.
    pub(super) fn no_answer(url: &str, why: &str) -> Self {
        Self::new(UNANSWERED, format!("{} gives no answer: {}", visible(url), visible(why)))
    }

    /// Returns the error for an answer that a sidecar would not send.
    pub(super) fn nonsense(url: &str, why: &str) -> Self {
        let why = format!("{} does not answer as a sidecar does: {}", visible(url), visible(why));
        Self::new(UNANSWERED, why)
    }
}

/// A sidecar's stream of events.
pub(super) struct EventStream {
    incoming: Incoming,
    reader: EventReader,
    /// A second descriptor of the connection, for other processes. For the sidecar, the connection is open until both
    /// descriptors are closed.
    pub(super) descriptor: Arc<OwnedFd>,
}

impl EventStream {
    /// Checks the beginning of the answer to the request for `url`.
    pub(super) async fn new(
        url: &str,
        response: Response<Incoming>,
        descriptor: OwnedFd,
    ) -> Result<Self, ClientError> {
        let kind = response.headers().get(CONTENT_TYPE);
        if response.status() == StatusCode::OK
            && kind.is_some_and(|kind| kind == "text/event-stream")
        {
            let incoming = response.into_body();
            let reader = EventReader::default();
            return Ok(Self { incoming, reader, descriptor: Arc::new(descriptor) });
        }
        let answer = SidecarAnswer::read(url, response).await?;
        answer.check_success()?;
        Err(answer.nonsense("it sends no events"))
    }

    /// Returns the events that have arrived, possibly none, or the reason why the stream has ended.
    pub(super) async fn next(&mut self) -> Result<Vec<ReceivedEvent>, String> {
        let frame = match timeout(SILENCE_TIMEOUT, self.incoming.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| error.to_string())?,
            Ok(None) => return Err("the stream has ended".into()),
            Err(_) => return Err(format!("nothing came for {SILENCE_TIMEOUT:?}")),
        };
        let events = frame.data_ref().map(|bytes| self.reader.read(bytes)).unwrap_or_default();
        // Return complete events first. If the next one is too long, the next call finds that.
        match events.is_empty() && self.reader.is_too_long() {
            true => Err("an event is too long".into()),
            false => Ok(events),
        }
    }
}

/// Parses events from chunks of bytes, which may end anywhere.
#[derive(Default)]
struct EventReader {
    /// The bytes of the line that has not ended.
    line: Vec<u8>,
    /// The event that has not ended.
    event: ReceivedEvent,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedEvent {
    pub(super) name: String,
    pub(super) data: String,
}

impl EventReader {
    /// Returns whether the event that has not ended is longer than any event of a sidecar.
    fn is_too_long(&self) -> bool {
        let ReceivedEvent { name, data } = &self.event;
        self.line.len() + name.len() + data.len() > LONGEST_EVENT
    }

    /// Returns the events that these bytes complete.
    fn read(&mut self, bytes: &[u8]) -> Vec<ReceivedEvent> {
        let mut events = vec![];
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if line.is_empty() {
                // An empty line ends an event. An event without data is to be ignored.
                let event = std::mem::take(&mut self.event);
                events.extend(Some(event).filter(|event| !event.data.is_empty()));
                continue;
            }
            let line = String::from_utf8_lossy(&line);
            match line.split_once(": ") {
                Some(("event", name)) => self.event.name = name.to_owned(),
                Some(("data", data)) => self.event.data += data,
                // A comment, which has no field name, or a field that is not needed.
                _ => {}
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    /// A script may rely on a no. So an answer that only ZooKeeper could give is not a no while ZooKeeper does not
    /// answer.
    #[test]
    fn a_problem_without_zookeeper_is_not_a_no() {
        let error_of = |status: u16, kind: &str, detail: &str| {
            let r#type = format!("{PROBLEM_TYPE_PREFIX}{kind}");
            let body = serde_json::json!({"type": r#type, "title": "t", "status": status, "detail": detail});
            let answer = SidecarAnswer {
                url: "http://h:1/x".into(),
                status: StatusCode::from_u16(status).expect("a status"),
                headers: [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))]
                    .into_iter()
                    .collect(),
                bytes: body.to_string().into(),
            };
            let refused = answer.body::<()>().expect_err("a problem");
            (refused.exit_code, refused.message.unwrap_or_default())
        };
        for kind in [
            "config-unavailable",
            "locks-unavailable",
            "barriers-unavailable",
            "queue-unavailable",
            "not-written",
            "unconfirmed",
        ] {
            assert_eq!(error_of(503, kind, "see /status"), (3, "t: see /status".into()), "{kind}");
        }
        for (status, kind) in [(503, "no-leader"), (409, "not-leader"), (503, "command-pending")] {
            assert_eq!(error_of(status, kind, "d"), (1, "t: d".into()), "{kind}");
        }
        for (status, kind) in
            [(401, "unauthorized"), (404, "no-such-value"), (412, "other-version")]
        {
            assert_eq!(error_of(status, kind, "d"), (1, "t: d".into()), "{kind}");
        }
        assert_eq!(error_of(404, "no-such-path", "d").0, 3, "the URL does not exist");
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "retry: 1000\n\nevent: state\nid: 7\ndata: {\"ü\":1}\n\n: here\n\n\
                    event: leader-lost\nid: x\ndata: {}\n\n";
        let event = |name: &str, data: &str| ReceivedEvent { name: name.into(), data: data.into() };
        let expected = [event("state", "{\"ü\":1}"), event("leader-lost", "{}")];
        for size in [1, 2, 3, 7, 1000] {
            let mut reader = EventReader::default();
            let events: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|chunk| reader.read(chunk)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }
}
