//! Watches the members of the queue for clients, with one reading a second, however many clients there are, and none while
//! there are none.

use super::AppState;
use crate::status::QueueReading;
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

    /// Publishes a reading.
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
