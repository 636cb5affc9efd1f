//! The changes of one value, as server-sent events.

use super::super::AppState;
use super::super::sse::{self, EventSource, framed};
use crate::api::{self, ConfigAbsent, ConfigValue};
use crate::byte_budget::{ByteBudget, ReservedBytes};
use crate::shared_config::{Value, ValueReading, WatchedValue};
use axum::body::Bytes;
use axum::response::Response;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::OwnedSemaphorePermit;

/// The event for each reading that is still in use. All streams of a value share it, because a value may be long and
/// have many streams.
#[derive(Default)]
pub(in super::super) struct ValueEvents(Mutex<Vec<(Weak<ValueReading>, Bytes)>>);

struct ValueStream {
    app: AppState,
    watched: WatchedValue,
    /// The reading in the last event; `None` before the first event.
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
        let event = self.app.value_events.of(&reading, &self.app.budget);
        // Reserve memory for the copy that the connection makes.
        let memory = self.app.budget.take_when_free(event.len()).await;
        self.sent = Some(reading);
        Some((event, memory))
    }
}

impl ValueStream {
    /// Waits for a reading that differs from the last sent one. Returns `None` if this member is shutting down.
    async fn next_reading(&mut self) -> Option<Arc<ValueReading>> {
        loop {
            // The latest reading, or the first one to come.
            let reading = self.watched.news_since(None).await?;
            if self.sent.as_ref().is_none_or(|sent| *sent != reading) {
                return Some(reading);
            }
            self.watched.known.changed().await.ok()?;
        }
    }
}

impl ValueEvents {
    /// Returns the event for `reading`. It is formatted only once, and forgotten with the reading.
    fn of(&self, reading: &Arc<ValueReading>, budget: &ByteBudget) -> Bytes {
        let mut all = self.0.lock().expect("no code panics while holding it");
        all.retain(|(of, _)| of.strong_count() > 0);
        let known = all.iter().find(|(of, _)| ptr::eq(of.as_ptr(), Arc::as_ptr(reading)));
        if let Some((_, event)) = known {
            return event.clone();
        }
        let event = Bytes::from(event(reading));
        // If the budget is used up, use the event without counting its memory.
        let event = budget.hold(event.clone()).unwrap_or(event);
        all.push((Arc::downgrade(reading), event.clone()));
        event
    }
}

fn event(reading: &ValueReading) -> String {
    let index = reading.index;
    let Some(Value { data, version, owner }) = &reading.value else {
        return framed("absent", Some(index), &api::json(&ConfigAbsent { index }));
    };
    let value = ConfigValue::new(data, Some(*version), Some(index), Some(owner.is_some()));
    framed("value", Some(index), &api::json(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_of_a_reading_is_written_once_and_kept_for_no_longer_than_the_reading() {
        let events = ValueEvents::default();
        let budget = ByteBudget::of_mib(1);
        let reading = |index| Arc::new(ValueReading { index, value: None });
        let first = reading(1);
        let second = reading(1);
        assert_eq!(events.of(&first, &budget).as_ptr(), events.of(&first, &budget).as_ptr());
        assert_ne!(events.of(&first, &budget).as_ptr(), events.of(&second, &budget).as_ptr());
        drop(first);
        events.of(&second, &budget);
        assert_eq!(events.0.lock().unwrap().len(), 1);
    }
}
