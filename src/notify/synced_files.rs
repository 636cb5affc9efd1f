//! Keeps values of the shared configuration in files. A value is written when it is first read and at each change, and then
//! the configured action runs.
//!
//! While ZooKeeper cannot be reached, or the value does not exist, the file is left unchanged.

use super::file::{self, WriteLock};
use super::{HookError, StopReason, command, post, process};
use crate::api::{self, ConfigMessage, SyncedFile, SyncedFileStatus};
use crate::clock::Clock;
use crate::config::{HOOKS_VARIABLE, HookAction, SyncedFileConfig, Webhook};
use crate::random;
use crate::shared_config::{
    ConfigHandle, ConfigRequest, Value, ValueReading, ValueState, WatchedValue,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// The name of the change, for commands and webhooks.
const CHANGED: &str = "config-changed";

/// How long to wait before a failed write is repeated, and before a value is requested again.
const AGAIN: Duration = Duration::from_secs(2);

/// A value that has not been read within this time is reported in the log.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps one value in its file.
struct FileSync {
    config: SyncedFileConfig,
    /// The position of this value's record in `records`.
    n: usize,
    /// The limit of open files for a command, if there is one.
    files: Option<u64>,
    clock: Clock,
    records: Arc<watch::Sender<Vec<SyncedFile>>>,
    lock: WriteLock,
    deaths: Signal,
    /// The index of the value that the file contains, if this process has written it.
    written: Option<u64>,
    /// Whether the log already reports that the value has not been read yet.
    is_late: bool,
}

/// Keeps all values in their files. Does not return.
///
/// # Errors
/// The operating system refuses a signal handler.
pub async fn sync_all(
    all: Vec<SyncedFileConfig>,
    handle: ConfigHandle,
    files: Option<u64>,
    clock: Clock,
    records: watch::Sender<Vec<SyncedFile>>,
) -> io::Result<()> {
    let records = Arc::new(records);
    let mut syncs = tokio::task::JoinSet::new();
    for (n, config) in all.into_iter().enumerate() {
        let deaths = signal(SignalKind::child())?;
        let lock = WriteLock::default();
        let records = records.clone();
        let sync = FileSync {
            config,
            n,
            files,
            clock,
            records,
            lock,
            deaths,
            written: None,
            is_late: false,
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
        let mut watched = self.watched(&handle).await;
        loop {
            let known = watched.known.borrow_and_update().clone();
            let is_behind = self.take(&known).await;
            let is_unknown = known.reading.is_none() && !self.is_late;
            tokio::select! {
                changed = watched.known.changed() => if changed.is_err() {
                    // Either the thread of the locks and barriers starts again, or this member leaves.
                    self.publish(SyncedFileStatus::Away, None);
                    sleep(AGAIN).await;
                    watched = self.watched(&handle).await;
                },
                () = sleep(AGAIN), if is_behind => {}
                () = sleep(FIRST_READ_TIMEOUT), if is_unknown => {
                    self.is_late = true;
                    let name = &self.config.name;
                    warn!("config {name}: no answer from ZooKeeper yet; {} is unchanged", self.path());
                }
            }
        }
    }

    /// Watches the value. Repeats the request until it is accepted.
    async fn watched(&self, handle: &ConfigHandle) -> WatchedValue {
        loop {
            let (answer, answered) = oneshot::channel();
            let asked =
                handle.requests.send(ConfigRequest::Watch(self.config.name.clone(), answer)).await;
            if asked.is_ok()
                && let Ok(Ok(watched)) = answered.await
            {
                return watched;
            }
            sleep(AGAIN).await;
        }
    }

    /// Writes the value if it is new, and publishes the state of the file. Returns whether the write failed and must be
    /// repeated.
    async fn take(&mut self, known: &ValueState) -> bool {
        let name = self.config.name.clone();
        let Some(reading) = &known.reading else {
            self.publish(SyncedFileStatus::Away, known.problem.as_deref());
            return false;
        };
        let state = if known.is_live { SyncedFileStatus::Current } else { SyncedFileStatus::Away };
        let Some(value) = &reading.value else {
            let state = if known.is_live { SyncedFileStatus::Absent } else { state };
            if self.publish(state, known.problem.as_deref()) && state == SyncedFileStatus::Absent {
                warn!("config {name}: the value does not exist; {} is unchanged", self.path());
            }
            return false;
        };
        if self.written != Some(reading.index)
            && let Err(why) = self.write(reading, value).await
        {
            let why = format!("{}: {why}", self.path());
            if self.publish(SyncedFileStatus::Unwritten, Some(&why)) {
                warn!("config {name}: {why}; trying again");
            }
            return true;
        }
        if self.publish(state, known.problem.as_deref()) && state == SyncedFileStatus::Away {
            let version = value.version;
            warn!("config {name}: lost ZooKeeper; {} stays at version {version}", self.path());
        }
        false
    }

    /// Writes the value to the file, and then performs the configured action.
    async fn write(&mut self, reading: &ValueReading, value: &Value) -> Result<(), String> {
        let data = Some(value.data.to_vec());
        file::keep(&self.lock, &self.config.file, self.config.mode, data).await?;
        self.written = Some(reading.index);
        let version = value.version;
        info!("config {}: wrote version {version} to {}", self.config.name, self.path());
        self.record(|record| record.version = Some(version));
        if let Some(then) = self.config.then.clone()
            && let Err(error) = self.perform(&then, reading.index, version).await
        {
            warn!("config {}: {then}: {error}", self.config.name);
        }
        Ok(())
    }

    /// Performs the configured action after the file was written.
    async fn perform(
        &mut self,
        then: &HookAction,
        index: u64,
        version: i32,
    ) -> Result<(), HookError> {
        match then {
            HookAction::Run { command, timeout } => {
                let environment = [
                    (HOOKS_VARIABLE, CHANGED.to_owned()),
                    ("BELLWETHER_VALUE_NAME", self.config.name.to_string()),
                    ("BELLWETHER_VALUE_VERSION", version.to_string()),
                    ("BELLWETHER_VALUE_FILE", self.path()),
                ];
                let environment = environment.map(|(name, value)| (name, Some(value)));
                let late = async {
                    sleep(*timeout).await;
                    StopReason::TimedOut(*timeout)
                };
                let files = self.files;
                command::run(command, files, &environment, "", &mut self.deaths, late).await
            }
            HookAction::Signal { signal, pid_file } => {
                process::send(*signal, pid_file).map_err(HookError::Failed)
            }
            HookAction::Post(post) => self.post(post, index, version).await,
            HookAction::Keep { .. } | HookAction::Kubernetes(_) => {
                unreachable!("the configuration has none of these here")
            }
        }
    }

    /// Posts a message about the change, with retries.
    async fn post(&self, post: &Webhook, index: u64, version: i32) -> Result<(), HookError> {
        let body = api::json(&ConfigMessage {
            change: CHANGED.to_owned(),
            name: self.config.name.to_string(),
            file: self.path(),
            version,
            index,
        });
        let id = format!("msg_{:032x}", random::id());
        let mut tries = 0;
        loop {
            let attempt = post::attempt(post, &id, &body, self.clock.date());
            let failure = match timeout(post.timeout, attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(_) => format!("no answer within {:?}", post.timeout),
            };
            if tries == post.retries {
                let tries = tries + 1;
                return Err(HookError::Failed(format!("{failure} (tried {tries} times)")));
            }
            sleep(post::pause(tries)).await;
            tries += 1;
        }
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

    fn record(&self, change: impl FnOnce(&mut SyncedFile)) {
        self.records.send_modify(|records| {
            if let Some(record) = records.get_mut(self.n) {
                change(record);
            }
        });
    }
}
