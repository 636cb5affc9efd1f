//! Prints a sidecar's events, one per line. Reconnects whenever the stream ends.

use super::answer::{EventStream, ReceivedEvent};
use super::{ClientError, OutputFormat, Sidecar, check_reader, print, remark, views};
use crate::api::{self, EVENTS};
use crate::clock::Clock;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before the stream is opened again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Prints events. Ends only if the first stream cannot be opened, or if the output is closed.
pub(super) async fn watch(
    sidecar: &Sidecar,
    clock: Clock,
    format: OutputFormat,
) -> Result<(), ClientError> {
    let mut stream = sidecar.get(EVENTS.path).events().await?;
    loop {
        let why = follow(&mut stream, format).await?;
        let at = api::date(clock.date());
        let url = sidecar.base_url();
        remark(&format!("{at}: the event stream of {url} is lost, trying again: {why}"));
        stream = loop {
            sleep(RETRY_INTERVAL).await;
            if let Ok(stream) = sidecar.get(EVENTS.path).events().await {
                break stream;
            }
        };
    }
}

/// Prints the events of a stream. Returns the reason why the stream ended.
async fn follow(stream: &mut EventStream, format: OutputFormat) -> Result<String, ClientError> {
    loop {
        let events = match stream.next().await {
            Ok(events) => events,
            Err(why) => return Ok(why),
        };
        // A sidecar also sends comments, every 15 s, which are no events. Check after these too whether standard output is
        // still read: otherwise a closed pipe would be noticed only at the next event.
        check_reader()?;
        for ReceivedEvent { name, data } in events {
            match serde_json::from_str::<api::LeaderEvent>(&data) {
                Ok(event) => {
                    print(format.render(|_| views::event(&name, &event), &add_name(&name, &data)))?;
                }
                Err(error) => remark(&format!("an event cannot be parsed: {error}")),
            }
        }
    }
}

/// Adds the event's name as the first field of its data, a JSON object, so that a script reads a single line per event.
fn add_name(name: &str, data: &str) -> String {
    let fields = data.trim_start().trim_start_matches('{');
    format!("{{\"event\":{},{fields}", serde_json::Value::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_the_name_with_the_data() {
        let line = add_name("state", " {\"is_self\":false}");
        assert_eq!(line, r#"{"event":"state","is_self":false}"#);
    }
}
