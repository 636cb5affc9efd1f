//! Watches the members of the queue for clients, with one reading a second, however many clients there are, and none while
//! there are none.

use super::AppState;
use crate::status::{MemberEntry, QueueReading};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// The time between two readings.
const PAUSE: Duration = Duration::from_secs(1);

/// The last reading, for all watchers.
#[derive(Clone, Default)]
pub(super) struct MemberWatch {
    published: watch::Sender<QueueReading>,
    /// True while the task that reads the queue runs. The lock is held to start or end that task.
    is_reading: Arc<Mutex<bool>>,
}

impl AppState {
    /// Subscribes to the readings of the queue. The first subscriber starts the task that reads it.
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

    /// Publishes a reading, even if it has no changes: a stream without its first reading waits for it.
    pub(super) fn note_members(&self, reading: QueueReading) {
        self.member_watch.published.send_replace(reading);
    }
}

/// Reads the queue once a second, until the last watcher is gone.
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

/// Returns the members that left and then the members that joined, in the order of the queue, with the name of the event.
pub(super) fn moved<'a>(
    before: &'a [MemberEntry],
    now: &'a [MemberEntry],
) -> impl Iterator<Item = (&'static str, &'a MemberEntry)> {
    let left = before.iter().filter(|entry| !is_in(now, entry));
    let joined = now.iter().filter(|entry| !is_in(before, entry));
    left.map(|entry| ("member-left", entry)).chain(joined.map(|entry| ("member-joined", entry)))
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
        let told = moved(&before, &now)
            .map(|(event, entry)| format!("{event} {}", entry.ticket.sequence))
            .collect::<Vec<_>>();
        let all = ["member-left #1", "member-left #3", "member-joined #3", "member-joined #4"];
        assert_eq!(told, all);
        assert_eq!(moved(&now, &now).count(), 0);
    }
}
