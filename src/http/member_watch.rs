//! Watches who is in the queue, for clients that ask for that: by one reading a second, however many they are, and none while
//! there is no such client.

use super::AppState;
use crate::status::{MemberEntry, QueueReading};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

const PAUSE: Duration = Duration::from_secs(1);

/// The last reading, for all that watch.
#[derive(Clone, Default)]
pub(super) struct MemberWatch {
    published: watch::Sender<QueueReading>,
    /// Held by the one that starts or ends the reading.
    is_reading: Arc<Mutex<bool>>,
}

/// A member that joined or left.
pub(super) enum Moved<'a> {
    Joined(&'a MemberEntry),
    Left(&'a MemberEntry),
}

impl AppState {
    /// Returns who is in the queue from now on.
    pub(super) fn watch_members(&self) -> watch::Receiver<QueueReading> {
        let watch = &self.member_watch;
        let receiver = watch.published.subscribe();
        let mut is_reading = watch.is_reading.lock().expect("no code panics while holding it");
        if !*is_reading {
            *is_reading = true;
            tokio::spawn(read_while_watched(self.clone()));
        }
        receiver
    }

    /// Publishes what was read, also where none has moved: a stream that could not begin waits for the next reading.
    pub(super) fn note_members(&self, reading: QueueReading) {
        self.member_watch.published.send_replace(reading);
    }
}

async fn read_while_watched(app: AppState) {
    let watch = &app.member_watch;
    loop {
        // A reading that fails is repeated a second later.
        if let Ok(reading) = app.status.members().await {
            app.note_members(reading);
        }
        tokio::time::sleep(PAUSE).await;
        let mut is_reading = watch.is_reading.lock().expect("no code panics while holding it");
        if watch.published.is_closed() {
            *is_reading = false;
            return;
        }
    }
}

/// Returns who left and then who joined, each in the order of the queue.
pub(super) fn moved<'a>(before: &'a [MemberEntry], now: &'a [MemberEntry]) -> Vec<Moved<'a>> {
    let left = before.iter().filter(|entry| !is_in(now, entry)).map(Moved::Left);
    left.chain(now.iter().filter(|entry| !is_in(before, entry)).map(Moved::Joined)).collect()
}

fn is_in(entries: &[MemberEntry], entry: &MemberEntry) -> bool {
    entries.iter().any(|other| other.ticket == entry.ticket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::{FencingToken, Sequence, Ticket};

    fn entry(number: i32) -> MemberEntry {
        let sequence = Sequence::new(number).unwrap();
        let ticket = Ticket { sequence, token: FencingToken(number.unsigned_abs().into()) };
        MemberEntry::of_unknown(ticket, std::time::SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn who_left_and_who_joined_is_told_by_tickets() {
        let before = [entry(1), entry(2), entry(3)];
        let again = MemberEntry {
            ticket: Ticket { token: FencingToken(9), ..entry(3).ticket },
            ..entry(3)
        };
        let now = [entry(2), again, entry(4)];
        let told: Vec<_> = moved(&before, &now)
            .into_iter()
            .map(|moved| match moved {
                Moved::Left(entry) => format!("left {}", entry.ticket.sequence),
                Moved::Joined(entry) => format!("joined {}", entry.ticket.sequence),
            })
            .collect();
        assert_eq!(told, ["left #1", "left #3", "joined #3", "joined #4"]);
        assert!(moved(&now, &now).is_empty());
    }
}
