//! Prints a sidecar's events, one per line. Reconnects whenever the stream ends.

use super::answer::{EventStream, ReceivedEvent};
use super::{ClientError, OutputFormat, Sidecar, check_reader, print, remark, views};
use crate::api::{self, EVENTS};
use crate::clock::Clock;
use std::time::Duration;
use tokio::time::sleep;

const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Prints events. Ends only if the first stream cannot be opened, or if the output is closed.
pub(super) async fn watch(
    sidecar: &Sidecar,
    clock: Clock,
    form: OutputFormat,
) -> Result<(), ClientError> {
    let mut stream = sidecar.get(EVENTS.path).events().await?;
    loop {
        let why = follow(&mut stream, form).await?;
        let at = api::date(clock.date());
        let name = sidecar.name();
        remark(&format!("{at}: the event stream of {name} is lost, trying again: {why}"));
        stream = loop {
            sleep(RETRY_PAUSE).await;
            if let Ok(stream) = sidecar.get(EVENTS.path).events().await {
                break stream;
            }
        };
    }
}

/// Prints the events of a stream. Returns the reason why the stream ended.
async fn follow(stream: &mut EventStream, form: OutputFormat) -> Result<String, ClientError> {
    loop {
        let events = match stream.next().await {
            Ok(events) => events,
            Err(why) => return Ok(why),
        };
        check_reader()?;
        for ReceivedEvent { name, data } in events {
            match serde_json::from_str::<api::LeaderEvent>(&data) {
                Ok(event) => {
                    print(form.render(|_| views::event(&name, &event), &named(&name, &data)))?;
                }
                Err(error) => remark(&format!("an event makes no sense: {error}")),
            }
        }
    }
}

/// Adds the event's name to its data, so that a script reads a single line per event.
fn named(name: &str, data: &str) -> String {
    let fields = data.trim_start().trim_start_matches('{');
    format!("{{\"event\":{},{fields}", serde_json::Value::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_the_name_with_the_data() {
        let line = named("state", " {\"is_self\":false}");
        assert_eq!(line, r#"{"event":"state","is_self":false}"#);
    }
}
