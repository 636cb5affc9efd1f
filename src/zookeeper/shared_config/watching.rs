//! Keeps the known state of one name up to date: reads it after each change, for each question, and over each new
//! connection.

use super::ConfigContext;
use super::reading::{current_as_of, read_and_watch};
use crate::shared_config::{ValueReading, ValueState};
use crate::zookeeper::client::{Connection, is_server_answer};
use crate::zookeeper::queue::{REFUSED_DELAY, RETRY_DELAY};
use ::zookeeper::{Error, OneshotWatcher};
use recipes::SessionId;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

/// The state of the task that watches one name.
struct Watching {
    shared: ConfigContext,
    path: String,
    known: watch::Sender<ValueState>,
    readings_requested: watch::Receiver<u64>,
}

/// Keeps the known state of one name up to date, over each connection. A question is a request for a newer reading.
pub(super) async fn watch_value(
    shared: ConfigContext,
    path: String,
    known: watch::Sender<ValueState>,
    readings_requested: watch::Receiver<u64>,
) {
    let mut session = shared.session.clone();
    let mut watching = Watching { shared, path, known, readings_requested };
    loop {
        let connection = session.connection().await;
        session.mark_seen();
        tokio::select! {
            biased;
            // This comes first: the watch ends with its connection, and the library panics if an ended watch is polled.
            () = session.changed() => {}
            () = watching.watch_over(&connection) => {}
        }
        // From now on the value may change without a notification. `take` sets `is_live` to false, and clients are
        // notified if it was true.
        watching.known.send_if_modified(|known| std::mem::take(&mut known.is_live));
    }
}

impl Watching {
    /// Reads the name, and reads it again after each change, over this connection. Never returns.
    async fn watch_over(&mut self, connection: &Connection) {
        loop {
            // The reading that begins now answers all requests up to this number.
            let number = *self.readings_requested.borrow_and_update();
            // Keep the permit until the memory of the value is counted in the budget.
            let permit = self.shared.reads.acquire().await;
            let read = match self.read(connection).await {
                Ok((reading, watcher)) => Ok((self.count_in_budget(reading), watcher)),
                Err(error) => Err(error),
            };
            drop(permit);
            match read {
                Ok((Some(reading), watcher)) => {
                    self.publish(reading, number, connection);
                    self.answer_until_fired(connection, watcher).await;
                }
                Ok((None, _)) => {
                    let problem = format!(
                        "{} is not kept in memory: requests, answers and watched values take the {} MiB that \
                         http.buffers_mib allows",
                        self.path,
                        self.shared.budget.mib()
                    );
                    self.publish_problem(number, problem);
                    sleep(REFUSED_DELAY).await;
                }
                Err(error) if is_server_answer(&error) => {
                    let problem = self.shared.explain(connection, &self.path, &error).await;
                    self.publish_problem(number, problem);
                    sleep(REFUSED_DELAY).await;
                }
                // No answer came. The next reading may succeed, so clients wait for that.
                Err(error) => {
                    debug!(%error, "{} is not read yet", self.path);
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Reads the name, and watches it. If the reading is older than the known one, the server may lag, so the name is read
    /// again after the answer of a quorum. The second reading counts even if it is older too, for example because ZooKeeper
    /// has lost its data.
    async fn read(&self, connection: &Connection) -> Result<(ValueReading, OneshotWatcher), Error> {
        let read = read_and_watch(connection, &self.path).await?;
        let known = self.known.borrow().reading.as_ref().map(|known| known.index);
        if known.is_none_or(|known| known <= read.0.index) {
            return Ok(read);
        }
        // After the quorum's answer, the current server shows everything that was committed before that answer.
        match connection.check("/").await {
            Err(error) if !is_server_answer(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        read_and_watch(connection, &self.path).await
    }

    /// Counts the memory of the value in the budget, and returns the reading; `None` if the budget is used up.
    fn count_in_budget(&self, mut reading: ValueReading) -> Option<ValueReading> {
        if let Some(value) = &mut reading.value {
            value.data = self.shared.budget.hold(std::mem::take(&mut value.data))?;
        }
        Some(reading)
    }

    /// Publishes a reading that answers the request with this number, and all earlier requests. If the value has not
    /// changed, keeps the known reading, and publishes only that it is still current.
    fn publish(&self, reading: ValueReading, number: u64, connection: &Connection) {
        let session = Some(SessionId(connection.client.session_id().0));
        self.known.send_modify(|known| {
            known.as_of = reading.index;
            if reading.is_news_after(known.reading.as_deref()) {
                if known.reading.is_some() {
                    self.shared.meter.changes.inc();
                }
                known.reading = Some(Arc::new(reading));
            }
            (known.is_live, known.answered_up_to, known.problem) = (true, number, None);
            known.session = session;
        });
    }

    /// Publishes why the name cannot be read, as the answer to the question with this number, and to all questions before that.
    fn publish_problem(&self, number: u64, problem: String) {
        let is_new = self.known.borrow().problem.as_deref() != Some(&*problem);
        if is_new {
            warn!("{problem}; trying again");
        }
        self.known.send_modify(|known| {
            (known.is_live, known.answered_up_to) = (false, number);
            known.problem = Some(problem.into());
        });
    }

    /// Answers questions with the known reading, after a check for each that the reading is still current. Returns when the
    /// watch has fired, or a check has failed or shows that the reading is outdated. Then the caller reads again.
    async fn answer_until_fired(&mut self, connection: &Connection, watcher: OneshotWatcher) {
        let mut fired = pin!(watcher.changed());
        loop {
            tokio::select! {
                biased;
                _ = &mut fired => return,
                // An error means that the name was forgotten, and this task is about to be aborted.
                asked = self.readings_requested.changed() => if asked.is_err() { return pending().await },
            }
            let number = *self.readings_requested.borrow_and_update();
            // There always is one: the caller has published it.
            let Some(reading) = self.known.borrow().reading.clone() else { return };
            match current_as_of(connection, &self.path, &reading).await {
                Ok(Some(as_of)) => self.known.send_modify(|known| {
                    (known.answered_up_to, known.as_of) = (number, as_of);
                }),
                // The reading is outdated, or the check failed: the question is answered by the next reading.
                Ok(None) | Err(_) => return self.readings_requested.mark_changed(),
            }
        }
    }
}
