//! The changes of one value, as server-sent events.

use super::super::AppState;
use super::super::events::{KEEP_ALIVE, framed, streamed};
use super::super::requests::OpenStream;
use crate::api::{self, ConfigAbsent, ConfigValue};
use crate::shared_config::{Reading, Value, Watched};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

struct ValueStream {
    watched: Watched,
    /// That of the last event.
    sent: Option<Arc<Reading>>,
    _open: OpenStream,
    _permit: OwnedSemaphorePermit,
}

/// Whether the client asks for a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|accepted| {
        let accepted = accepted.to_str().unwrap_or_default();
        accepted.split(',').any(|one| {
            let kind = one.split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("text/event-stream")
        })
    })
}

/// Answers with the stream, which begins with what is there.
pub(super) fn stream(app: AppState, permit: OwnedSemaphorePermit, watched: Watched) -> Response {
    let stream = ValueStream { watched, sent: None, _open: app.requests.stream(), _permit: permit };
    streamed(futures_util::stream::unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((chunk, stream))
    }))
}

impl ValueStream {
    /// Returns the next event, or a comment; `None` when this member leaves.
    async fn next(&mut self) -> Option<String> {
        match timeout(KEEP_ALIVE, self.news()).await {
            Ok(reading) => {
                let reading = reading?;
                let event = event(&reading);
                self.sent = Some(reading);
                Some(event)
            }
            Err(_) => Some(": here\n\n".into()),
        }
    }

    async fn news(&mut self) -> Option<Arc<Reading>> {
        loop {
            let reading = self.watched.news_since(None).await?;
            if self.sent.as_ref().is_none_or(|sent| *sent != reading) {
                return Some(reading);
            }
            self.watched.known.changed().await.ok()?;
        }
    }
}

fn event(reading: &Reading) -> String {
    let index = reading.index;
    let Some(Value { data, version, owner }) = &reading.value else {
        return framed("absent", Some(index), &api::json(&ConfigAbsent { index }));
    };
    let text = str::from_utf8(data).ok().map(str::to_owned);
    let base64 = text.is_none().then(|| BASE64_STANDARD.encode(data));
    let (version, ephemeral) = (*version, owner.is_some());
    framed(
        "value",
        Some(index),
        &api::json(&ConfigValue { version, index, ephemeral, text, base64 }),
    )
}
