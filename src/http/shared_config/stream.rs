//! The changes of one value, as server-sent events.

use super::super::AppState;
use super::super::sse::{self, EventSource, framed};
use crate::api::{self, ConfigAbsent, ConfigValue};
use crate::byte_budget::ReservedBytes;
use crate::shared_config::{Value, ValueReading, WatchedValue};
use axum::body::Bytes;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

struct ValueStream {
    app: AppState,
    watched: WatchedValue,
    /// The reading of the last event.
    sent: Option<Arc<ValueReading>>,
}

/// Answers with the stream, which begins with the current value.
pub(super) fn stream(
    app: AppState,
    permit: OwnedSemaphorePermit,
    watched: WatchedValue,
) -> Response {
    let source = ValueStream { app: app.clone(), watched, sent: None };
    sse::stream(&app, permit, source)
}

impl EventSource for ValueStream {
    async fn next(&mut self) -> Option<(Bytes, ReservedBytes)> {
        let reading = self.next_reading().await?;
        // Format the event twice, first only for its length: a stream that waits for memory must not hold an event of 1 MiB
        // meanwhile. Reserve memory also for the copy that the connection makes.
        let length = event(&reading).len();
        let memory = self.app.budget.take_when_free(2 * length).await;
        let event = event(&reading).into();
        self.sent = Some(reading);
        Some((event, memory))
    }
}

impl ValueStream {
    /// Waits for a reading that differs from the last sent one.
    async fn next_reading(&mut self) -> Option<Arc<ValueReading>> {
        loop {
            let reading = self.watched.news_since(None).await?;
            if self.sent.as_ref().is_none_or(|sent| *sent != reading) {
                return Some(reading);
            }
            self.watched.known.changed().await.ok()?;
        }
    }
}

fn event(reading: &ValueReading) -> String {
    let index = reading.index;
    let Some(Value { data, version, owner }) = &reading.value else {
        return framed("absent", Some(index), &api::json(&ConfigAbsent { index }));
    };
    let text = str::from_utf8(data).ok().map(str::to_owned);
    let base64 = text.is_none().then(|| BASE64_STANDARD.encode(data));
    let version = *version;
    let ephemeral = owner.is_some();
    framed(
        "value",
        Some(index),
        &api::json(&ConfigValue { version, index, ephemeral, text, base64 }),
    )
}
