//! The shared configuration: one znode for each name below a path, in the session of the locks.
//!
//! - `watching`: keeps the known state of one name up to date. `reading`: reads one name once.
//! - `writing`: carries out one write.
//!
//! Each name has one watch, however many clients use the name, and keeps that watch for some time after the last client has
//! gone. The session must stay open while a name is watched, and while a value exists that ends with the session.
//! [`SharedConfig::needs_session`] reports that to the runner of the locks, which opens and closes sessions as needed. All
//! tasks here go on in whichever session is current.

mod reading;
mod watching;
mod writing;

use self::watching::watch_value;
use super::client::{Connection, SessionHandle, TransactionResult, in_words, is_server_answer};
use super::queue::{ListError, leave_wrong_server, names_below, refusal};
use crate::byte_budget::ByteBudget;
use crate::cached::SharedReading;
use crate::clock::Clock;
use crate::config::security::AclPolicy;
use crate::counters::ConfigMeter;
use crate::shared_config::{
    Answer, ConfigName, ConfigRequest, ConfigRequests, NAMES_MAX, TooMany, ValueState, ValueWrite,
    WatchedValue, WriteAction, WriteError, WriteOutcome,
};
use ::zookeeper::Error;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::error;

/// The interval at which names without a client are looked for. A name is forgotten when it was found twice, because clients
/// often come back.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);

/// The pause before a value is watched again whose task has panicked.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The number of values that are read at the same time. A value has up to a megabyte, which is counted in the memory budget
/// only after it was read.
const READS_MAX: usize = 4;

/// How long a write, a confirmation of a version or a listing of the names waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The number that stands for any version in a request to ZooKeeper.
const ANY_VERSION: i32 = -1;

/// The shared configuration. It belongs to the runner of the locks, whose session it uses.
pub(super) struct SharedConfig {
    shared: ConfigContext,
    names: BTreeMap<ConfigName, WatchedName>,
    /// Rings when names without a client are to be looked for.
    forgetting: Interval,
    /// Tasks that keep the known state of names up to date.
    watches: JoinSet<()>,
    /// Tasks that write, check the version of a value, or read all names.
    requests: JoinSet<()>,
}

/// The state shared by all tasks.
#[derive(Clone)]
struct ConfigContext {
    /// The path below which the values are stored, including the connect string's chroot.
    root: Arc<str>,
    acl: AclPolicy,
    session: SessionHandle,
    clock: Clock,
    budget: ByteBudget,
    /// The permits to read values, [`READS_MAX`] in all.
    reads: Arc<Semaphore>,
    meter: Arc<ConfigMeter>,
    /// The last reading of all names, which answers all requests for a second.
    listed: SharedReading<ValueNames>,
}

/// The names of all values, in order.
type ValueNames = Arc<[String]>;

/// A name that is watched.
struct WatchedName {
    /// Publishes the known state of the name to clients.
    known: watch::Sender<ValueState>,
    /// The number of the last question. A question requests a reading that begins after the question.
    readings_requested: watch::Sender<u64>,
    /// True if the name had no client when that was last looked for.
    was_unused: bool,
    /// Runs [`watch_value`].
    task: AbortHandle,
}

impl SharedConfig {
    /// `session` has the current connection, in whichever session.
    pub(super) fn new(
        root: &str,
        acl: AclPolicy,
        session: SessionHandle,
        clock: Clock,
        requests: &ConfigRequests,
    ) -> Self {
        let shared = ConfigContext {
            root: root.into(),
            acl,
            session,
            clock,
            budget: requests.budget.clone(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            meter: requests.meter.clone(),
            listed: SharedReading::default(),
        };
        let mut forgetting = interval(FORGET_INTERVAL);
        forgetting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            shared,
            names: BTreeMap::new(),
            forgetting,
            watches: JoinSet::new(),
            requests: JoinSet::new(),
        }
    }

    /// Returns true while the session is needed.
    pub(super) fn needs_session(&self) -> bool {
        !self.names.is_empty() || !self.requests.is_empty()
    }

    /// Handles the next request, or the next end of a task. Both may change whether the session is needed. Cancel-safe: no
    /// request is lost.
    pub(super) async fn handle_next(&mut self, requests: &mut mpsc::Receiver<ConfigRequest>) {
        tokio::select! {
            biased;
            Some(ended) = self.watches.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    error!("the task that watches a value panicked: watching the value again");
                    self.restart_watches();
                }
            }
            _ = self.forgetting.tick(), if !self.names.is_empty() => self.forget_unused(),
            // If the task panicked, its answer channel is closed, which the requester notices.
            Some(_) = self.requests.join_next() => {}
            Some(request) = requests.recv() => self.handle(request),
            else => pending().await,
        }
    }

    fn handle(&mut self, request: ConfigRequest) {
        match request {
            ConfigRequest::Watch(name, answer) => {
                let _receiver_gone = answer.send(self.watch(name));
            }
            ConfigRequest::Write(write, answer) => self.write(write, answer),
            ConfigRequest::Confirm(name, version, answer) => {
                let shared = self.shared.clone();
                self.requests.spawn(async move {
                    let _receiver_gone = answer.send(shared.has_version(&name, version).await);
                });
            }
            ConfigRequest::Names(answer) => {
                let shared = self.shared.clone();
                self.requests.spawn(async move {
                    let _receiver_gone = answer.send(shared.names().await);
                });
            }
        }
    }

    /// Returns a handle to this name, and starts to watch the name unless it is watched already. Fails if too many other
    /// names are in use.
    fn watch(&mut self, name: ConfigName) -> Result<WatchedValue, TooMany> {
        if !self.names.contains_key(&name) && self.names.len() >= NAMES_MAX {
            // To make room, forget the names at once that would be forgotten soon.
            self.forget(|watched| is_unused(&watched.known));
            if self.names.len() >= NAMES_MAX {
                return Err(TooMany);
            }
        }
        let path = self.shared.path_of(&name);
        let watched = self.names.entry(name).or_insert_with(|| {
            let known = watch::Sender::<ValueState>::default();
            let readings_requested = watch::Sender::new(0);
            let requested = readings_requested.subscribe();
            let watching = watch_value(self.shared.clone(), path, known.clone(), requested);
            let task = self.watches.spawn(watching);
            WatchedName { known, readings_requested, was_unused: false, task }
        });
        watched.was_unused = false;
        let value = WatchedValue {
            known: watched.known.subscribe(),
            readings_requested: watched.readings_requested.clone(),
        };
        self.count_names();
        Ok(value)
    }

    /// Watches the names again whose tasks have ended, after a pause.
    fn restart_watches(&mut self) {
        for (name, watched) in &mut self.names {
            if watched.task.is_finished() {
                let path = self.shared.path_of(name);
                let requested = watched.readings_requested.subscribe();
                let watching =
                    watch_value(self.shared.clone(), path, watched.known.clone(), requested);
                watched.task = self.watches.spawn(async {
                    sleep(RESTART_DELAY).await;
                    watching.await;
                });
            }
        }
    }

    /// Forgets the names that have had no client since the last call.
    fn forget_unused(&mut self) {
        self.forget(|watched| {
            let was_unused = watched.was_unused;
            watched.was_unused = is_unused(&watched.known);
            was_unused && watched.was_unused
        });
    }

    /// Stops to watch the names for which `is_over` returns true.
    fn forget(&mut self, mut is_over: impl FnMut(&mut WatchedName) -> bool) {
        self.names.retain(|_, watched| {
            let is_over = is_over(watched);
            if is_over {
                watched.task.abort();
            }
            !is_over
        });
        self.count_names();
    }

    fn count_names(&self) {
        self.shared.meter.watched.set(self.names.len().try_into().unwrap_or(i64::MAX));
    }

    /// Writes a value in a task, which sends the answer. An ephemeral value is watched, so that the session is kept for as
    /// long as the value exists.
    fn write(&mut self, write: ValueWrite, answer: Answer<WriteOutcome, WriteError>) {
        let mut watched = None;
        if let WriteAction::Put { is_ephemeral: true, .. } = write.action {
            let Ok(value) = self.watch(write.name.clone()) else {
                let _receiver_gone = answer.send(Err(WriteError::TooMany));
                return;
            };
            watched = Some(value);
        }
        let shared = self.shared.clone();
        self.requests.spawn(async move {
            let written = shared.write(&write).await;
            let result = result_label(&written);
            shared.meter.writes.with_label_values(&[result]).inc();
            let _receiver_gone = answer.send(written);
            if let Some(mut watched) = watched
                && result != REFUSED
            {
                // The value may now belong to this session, which must then stay open. `watched` keeps the name in use
                // until a reading has shown the owner. If that reading fails, the task that watches the name reads again.
                let _result = watched.read_now().await;
            }
        });
    }
}

/// Returns true if no client uses this name, and its value, if it has one, is not an ephemeral one of our own session: our
/// session must stay open while such a value exists.
fn is_unused(known: &watch::Sender<ValueState>) -> bool {
    known.receiver_count() == 0 && !known.borrow().is_own()
}

/// The metrics label of a write that certainly was not carried out, because its condition was not met or the servers refused
/// it.
const REFUSED: &str = "refused";

/// Returns the metrics label of this outcome. It is `failed` if the servers have not answered.
fn result_label(written: &Result<WriteOutcome, WriteError>) -> &'static str {
    match written {
        Ok(_) => "done",
        Err(WriteError::NotSent | WriteError::Unknown) => "failed",
        Err(_) => REFUSED,
    }
}

impl ConfigContext {
    fn path_of(&self, name: &ConfigName) -> String {
        format!("{}/{name}", self.root)
    }

    /// Returns the current connection, or `None` if there is none within [`CONNECT_TIMEOUT`].
    async fn connection(&self) -> Option<Connection> {
        timeout(CONNECT_TIMEOUT, self.session.connection()).await.ok()
    }

    /// Describes to operators why a request about this path failed.
    async fn explain(&self, connection: &Connection, path: &str, error: &Error) -> String {
        match is_server_answer(error) {
            true => refusal(connection, self.acl, path, error).await,
            false => in_words(error),
        }
    }

    /// Returns true if a quorum confirms that the value has this version, or with `None`, that it does not exist. Returns
    /// false if the quorum denies that. Then, if the current server still shows what the quorum denies, leaves that server.
    ///
    /// # Errors
    /// Why the quorum could not be asked, for operators.
    async fn has_version(&self, name: &ConfigName, version: Option<i32>) -> Result<bool, String> {
        let connection = self.connection().await.ok_or("not connected to ZooKeeper")?;
        let path = self.path_of(name);
        let checked = connection
            .transact(1, |writer| writer.add_check_version(&path, version.unwrap_or(ANY_VERSION)))
            .await;
        match checked.and_then(TransactionResult::into_result) {
            Ok(()) if version.is_some() => return Ok(true),
            Err(Error::NoNode) if version.is_none() => return Ok(true),
            // The quorum denies it: the value exists although it should not, does not exist, or has another version.
            Ok(()) | Err(Error::NoNode | Error::BadVersion) => {}
            Err(error) => return Err(self.explain(&connection, &path, &error).await),
        }
        // The server that passed on the quorum's answer has applied everything that was committed before. If it still shows
        // the version that the quorum has just denied, it has lost a transaction.
        let shown = connection.request(connection.client.check_stat(&path)).await;
        let shown = shown.map_err(|error| in_words(&error))?;
        if shown.map(|stat| stat.version) == version {
            leave_wrong_server(
                &connection,
                &path,
                "shows another version of",
                "it is not that one",
            );
        }
        Ok(false)
    }

    /// Returns all names, in order, from a reading that is at most a second old.
    async fn names(&self) -> Result<ValueNames, String> {
        self.listed.get(self.clock, self.read_names()).await
    }

    async fn read_names(&self) -> Result<ValueNames, String> {
        let connection = self.connection().await.ok_or("not connected to ZooKeeper")?;
        let root = &self.root;
        let mut names = match names_below(&connection, root).await {
            Ok(names) => names,
            Err(ListError::Crowded(problem)) => return Err(problem),
            Err(ListError::Failed(error)) => {
                return Err(self.explain(&connection, root, &error).await);
            }
        };
        names.retain(|name| ConfigName::new(name).is_some());
        names.sort_unstable();
        Ok(names.into())
    }
}
