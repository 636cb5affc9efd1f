//! Writes values of the shared configuration to files (`[[config]]`). A value is written when it is first read and at each
//! change. After each write, the configured action runs.
//!
//! While ZooKeeper cannot be reached, or the value does not exist, the file is left unchanged.

use super::file::{self, WriteLock};
use super::perform::{Notice, perform};
use super::{HookError, StopReason};
use crate::api::{self, ConfigMessage, SyncedFile, SyncedFileStatus};
use crate::clock::Clock;
use crate::config::{CHANGE_VARIABLE, HookAction, SyncedFileConfig};
use crate::shared_config::{ConfigHandle, ConfigRequest, Value, ValueState, WatchedValue};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tracing::{info, warn};

/// The name of the change, in the environment of commands and in the messages to webhooks.
const CHANGED: &str = "config-changed";

/// The delay before a failed write is repeated, and before a value is requested again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Writes one value to its file.
struct FileSync {
    config: SyncedFileConfig,
    /// The position of this value's record in `records`.
    n: usize,
    /// The limit of open files for a command, if there is one.
    file_limit: Option<u64>,
    clock: Clock,
    /// Publishes the states of all files.
    records: Arc<watch::Sender<Vec<SyncedFile>>>,
    /// The lock of the file.
    lock: WriteLock,
    /// SIGCHLD, at which dead children are reaped while a command runs.
    deaths: Signal,
    /// The index (the zxid of the last change) of the value that this process last wrote to the file.
    written: Option<u64>,
}

/// Writes all values to their files, at each change. Returns only if an error prevents the start.
///
/// # Errors
/// The operating system refuses a signal handler.
pub async fn sync_all(
    all: Vec<SyncedFileConfig>,
    handle: ConfigHandle,
    file_limit: Option<u64>,
    clock: Clock,
    records: watch::Sender<Vec<SyncedFile>>,
) -> io::Result<()> {
    let records = Arc::new(records);
    let mut syncs = tokio::task::JoinSet::new();
    for (n, config) in all.into_iter().enumerate() {
        let sync = FileSync {
            config,
            n,
            file_limit,
            clock,
            records: records.clone(),
            lock: WriteLock::default(),
            deaths: signal(SignalKind::child())?,
            written: None,
        };
        syncs.spawn(sync.run(handle.clone()));
    }
    while let Some(died) = syncs.join_next().await {
        if let Err(error) = died {
            warn!(%error, "the task that writes a value to a file panicked; the file is no longer updated");
        }
    }
    std::future::pending().await
}

/// Returns the initial records: no file has been written yet.
pub fn records(all: &[SyncedFileConfig]) -> Vec<SyncedFile> {
    all.iter()
        .map(|config| SyncedFile {
            name: config.name.to_string(),
            file: config.file.display().to_string(),
            version: None,
            state: SyncedFileStatus::Away,
            problem: None,
        })
        .collect()
}

impl FileSync {
    async fn run(mut self, handle: ConfigHandle) {
        let mut watched = self.watch_value(&handle).await;
        loop {
            let known = watched.known.borrow_and_update().clone();
            let must_repeat = self.apply(&known).await;
            tokio::select! {
                changed = watched.known.changed() => if changed.is_err() {
                    // The sender is gone: the thread of the locks and barriers starts again after a panic, or this member
                    // leaves.
                    self.publish(SyncedFileStatus::Away, None);
                    sleep(RETRY_INTERVAL).await;
                    watched = self.watch_value(&handle).await;
                },
                () = sleep(RETRY_INTERVAL), if must_repeat => {}
            }
        }
    }

    /// Requests a watch of the value, until the request is accepted: it fails while the thread of the locks and
    /// barriers starts again, or while too many names are watched. Returns the receiver of the value's states.
    async fn watch_value(&self, handle: &ConfigHandle) -> WatchedValue {
        loop {
            let (answer, answered) = oneshot::channel();
            let sent =
                handle.requests.send(ConfigRequest::Watch(self.config.name.clone(), answer)).await;
            if sent.is_ok()
                && let Ok(Ok(watched)) = answered.await
            {
                return watched;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Handles a new state of the value: writes the value if this process has not written it yet, and publishes the state
    /// of the file. Returns true if the write failed and must be repeated.
    async fn apply(&mut self, known: &ValueState) -> bool {
        let reading = known.reading.as_deref();
        let value = reading.and_then(|reading| Some((reading.index, reading.value.as_ref()?)));
        let result = match value {
            Some((index, value)) if self.written != Some(index) => self.write(index, value).await,
            _ => Ok(()),
        };
        if let Err(why) = result {
            let why = format!("{}: {why}", self.path());
            if self.publish(SyncedFileStatus::Unwritten, Some(&why)) {
                warn!("config {}: {why}; trying again", self.config.name);
            }
            return true;
        }
        let state = match value {
            _ if reading.is_none() || !known.is_live => SyncedFileStatus::Away,
            Some(_) => SyncedFileStatus::Current,
            None => SyncedFileStatus::Absent,
        };
        if self.publish(state, known.problem.as_deref()) {
            let name = &self.config.name;
            let file = self.path();
            match (state, value) {
                (SyncedFileStatus::Absent, _) => {
                    warn!("config {name}: the value does not exist; {file} is unchanged");
                }
                (SyncedFileStatus::Away, Some((_, Value { version, .. }))) => {
                    warn!("config {name}: lost ZooKeeper; {file} stays at version {version}");
                }
                _ => {}
            }
        }
        false
    }

    /// Writes the value to the file, and then performs the configured action. A failure of the action is logged, and
    /// not returned, so the action is not repeated.
    async fn write(&mut self, index: u64, value: &Value) -> Result<(), String> {
        let data = Some(value.data.to_vec());
        file::update(&self.lock, &self.config.file, self.config.mode, data).await?;
        self.written = Some(index);
        let version = value.version;
        info!("config {}: wrote version {version} to {}", self.config.name, self.path());
        self.record(|record| record.version = Some(version));
        if let Some(then) = self.config.then.clone()
            && let Err(error) = self.run_action(&then, index, version).await
        {
            warn!("config {}: {then}: {error}", self.config.name);
        }
        Ok(())
    }

    /// Performs the configured action after the file was written.
    async fn run_action(
        &mut self,
        then: &HookAction,
        index: u64,
        version: i32,
    ) -> Result<(), HookError> {
        let name = self.config.name.to_string();
        let file = self.path();
        let environment = vec![
            (CHANGE_VARIABLE, Some(CHANGED.to_owned())),
            ("BELLWETHER_VALUE_NAME", Some(name.clone())),
            ("BELLWETHER_VALUE_VERSION", Some(version.to_string())),
            ("BELLWETHER_VALUE_FILE", Some(file.clone())),
        ];
        let change = CHANGED.to_owned();
        let body = api::json(&ConfigMessage { change, name, file, version, index });
        let notice = Notice { environment, input: String::new(), body };
        let stopped = async |limit| {
            sleep(limit).await;
            StopReason::TimedOut(limit)
        };
        perform(then, &notice, self.file_limit, self.clock, &mut self.deaths, stopped).await
    }

    fn path(&self) -> String {
        self.config.file.display().to_string()
    }

    /// Publishes the state of the file. Returns whether the state or the problem has changed.
    fn publish(&self, state: SyncedFileStatus, problem: Option<&str>) -> bool {
        let mut is_new = false;
        self.record(|record| {
            is_new = record.state != state || record.problem.as_deref() != problem;
            (record.state, record.problem) = (state, problem.map(str::to_owned));
        });
        is_new
    }

    /// Changes this file's record, and publishes it.
    fn record(&self, change: impl FnOnce(&mut SyncedFile)) {
        self.records.send_modify(|records| {
            if let Some(record) = records.get_mut(self.n) {
                change(record);
            }
        });
    }
}
