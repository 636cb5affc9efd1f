//! Server-sent events of all kinds.
//!
//! The events of axum are not used: axum copies each event for each stream, although the value in it may be long, and
//! it sends one event at a time, although two may belong together.

use super::AppState;
use crate::byte_budget::ReservedBytes;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The interval of comments, which show to each side that the other is alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The source of the events of one stream.
pub(super) trait EventSource: Send + 'static {
    /// Returns the next events, and the memory that is reserved for them; `None` at the end. If the future is dropped,
    /// no event is lost.
    fn next(&mut self) -> impl Future<Output = Option<(Bytes, ReservedBytes)>> + Send;
}

/// Answers with the events of a source. The client waits for events, so it needs a permit to wait.
pub(super) fn stream(
    app: &AppState,
    permit: OwnedSemaphorePermit,
    source: impl EventSource,
) -> Response {
    let until_closed = (permit, app.requests.open_stream());
    let initial = (source, ReservedBytes::default(), until_closed);
    let chunks = stream::unfold(initial, async |(mut source, memory, until_closed)| {
        // The connection asks for the next events when it has written most of the previous ones: free their memory.
        drop(memory);
        let (events, memory) = tokio::select! {
            biased;
            next = source.next() => next?,
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => (Bytes::from_static(b": here\n\n"), ReservedBytes::default()),
        };
        Some((Ok::<_, Infallible>(events), (source, memory, until_closed)))
    });
    // All streams are boxed into one type, so that the binary contains the server's code for streams only once.
    let mut response = Body::from_stream(chunks.boxed()).into_response();
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // Otherwise proxies such as nginx would hold back events until their buffer is full.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns an event that is too small to reserve memory for it.
pub(super) fn small(event: String) -> (Bytes, ReservedBytes) {
    (event.into(), ReservedBytes::default())
}

/// Formats an event as the protocol of server-sent events requires.
pub(super) fn framed(name: &str, id: Option<u64>, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}
