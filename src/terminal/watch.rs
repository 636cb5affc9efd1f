//! Follows the events of a sidecar, one line each, over as many streams as it takes.

use super::sidecar::{ANSWER_TIMEOUT, SILENCE, Sidecar};
use super::{ClientError, OutputFormat, check_reader, formed, print, remark, views};
use crate::api::{self, EVENTS};
use crate::clock::Clock;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_secs(1);
/// The longest event that is read; every event is shorter.
const LONGEST_EVENT: usize = 1024 * 1024;

/// Ends only if no stream could be opened in the first place, or the output is closed.
pub(super) async fn watch(
    sidecar: &Sidecar,
    clock: Clock,
    form: &OutputFormat,
) -> Result<(), ClientError> {
    let mut seen = None;
    let mut stream = open(sidecar, None).await?;
    loop {
        let why = follow(&mut stream, &mut seen, form).await?;
        remark_lost(sidecar, clock, &why);
        let mut remarked = why;
        stream = loop {
            sleep(PAUSE).await;
            match open(sidecar, seen.as_deref()).await {
                Ok(stream) => break stream,
                Err(trouble) => {
                    let why = trouble.told().1.unwrap_or_default();
                    if why != remarked {
                        remark_lost(sidecar, clock, &why);
                        remarked = why;
                    }
                }
            }
        };
    }
}

fn remark_lost(sidecar: &Sidecar, clock: Clock, why: &str) {
    let at = api::date(clock.date());
    remark(&format!("{at}: the events of {} are lost, trying again: {why}", sidecar.name()));
}

async fn open(sidecar: &Sidecar, seen: Option<&str>) -> Result<Incoming, ClientError> {
    let whom = format!("{}{}", sidecar.name(), EVENTS.path);
    let opened = timeout(ANSWER_TIMEOUT, sidecar.send(Method::GET, EVENTS.path, seen)).await;
    let response = opened.map_err(|_| ClientError::unanswered(&whom, "no answer in time"))??;
    let kind = response.headers().get(hyper::header::CONTENT_TYPE);
    match response.status() {
        StatusCode::OK if kind.is_some_and(|kind| kind == "text/event-stream") => {
            Ok(response.into_body())
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            Err(ClientError::No(format!("{whom}: it accepts no further streams at the moment")))
        }
        other => Err(ClientError::nonsense(&whom, &format!("it says {other} and no events"))),
    }
}

/// Returns why the stream ended.
async fn follow(
    stream: &mut Incoming,
    seen: &mut Option<String>,
    form: &OutputFormat,
) -> Result<String, ClientError> {
    let mut reader = EventReader::default();
    loop {
        let frame = match timeout(SILENCE, stream.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Ok(error.to_string()),
            Ok(None) => return Ok("the stream has ended".into()),
            Err(_) => return Ok(format!("nothing came for {SILENCE:?}")),
        };
        check_reader()?;
        let Some(bytes) = frame.data_ref() else { continue };
        for ReceivedEvent { name, id, data } in reader.read(bytes) {
            match serde_json::from_str::<api::LeaderEvent>(&data) {
                Ok(event) => {
                    match formed(form, |_| views::event(&name, &event), &named(&name, &data)) {
                        Ok(text) => print(&text)?,
                        Err(trouble) => remark(&trouble.told().1.unwrap_or_default()),
                    }
                }
                Err(error) => remark(&format!("an event makes no sense: {error}")),
            }
            *seen = id.or_else(|| seen.take());
        }
        if reader.is_too_long() {
            return Ok("an event without an end came".into());
        }
    }
}

/// The event's data, with its name in it: a script reads lines and nothing between them.
fn named(name: &str, data: &str) -> String {
    let fields = data.trim_start().trim_start_matches('{');
    format!("{{\"event\":{},{fields}", serde_json::Value::from(name))
}

/// Makes events of bytes, however they are cut.
#[derive(Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    event: ReceivedEvent,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedEvent {
    pub(super) name: String,
    /// Only digits: it is sent back as it came.
    pub(super) id: Option<String>,
    pub(super) data: String,
}

impl EventReader {
    /// Whether what came since the last whole event is longer than any event.
    pub(super) fn is_too_long(&self) -> bool {
        let ReceivedEvent { name, id, data } = &self.event;
        let id = id.as_ref().map_or(0, String::len);
        self.line.len() + name.len() + id + data.len() > LONGEST_EVENT
    }

    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<ReceivedEvent> {
        let mut events = vec![];
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                events.extend(Some(event).filter(|event| !event.data.is_empty()));
                continue;
            }
            let line = String::from_utf8_lossy(&line);
            match line.split_once(": ") {
                Some(("event", name)) => self.event.name = name.to_owned(),
                Some(("id", id)) if id.bytes().all(|byte| byte.is_ascii_digit()) => {
                    self.event.id = Some(id.to_owned());
                }
                Some(("data", data)) => self.event.data += data,
                // A comment, or what another version says.
                _ => {}
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_the_name_with_the_data() {
        let line = named("state", " {\"is_self\":false}");
        assert_eq!(line, r#"{"event":"state","is_self":false}"#);
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "retry: 1000\n\nevent: state\nid: 7\ndata: {\"ü\":1}\n\n: here\n\n\
                    event: leader-lost\nid: x\ndata: {}\n\n";
        let event = |name: &str, id: Option<&str>, data: &str| ReceivedEvent {
            name: name.into(),
            id: id.map(Into::into),
            data: data.into(),
        };
        let expected = [event("state", Some("7"), "{\"ü\":1}"), event("leader-lost", None, "{}")];
        for size in [1, 2, 3, 7, 1000] {
            let mut reader = EventReader::default();
            let events: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|chunk| reader.read(chunk)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }
}
