//! The shared configuration: one znode for each name below a path, in the session of the locks.
//!
//! - `watching`: keeps the known state of one name up to date. `reading`: reads one name once.
//! - `writing`: carries out one write.
//!
//! Each name has one watch, however many clients use the name, and keeps that watch for some time after the last client has
//! gone. The session must stay open while a name is watched, and while a value exists that ends with the session.
//! [`SharedConfig::needs_session`] reports that to the runner of the locks.

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
use tokio::time::{sleep, timeout};
use tracing::error;

/// A name is watched for this long after its last client has gone, because clients often come back.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// The number of values that are read at the same time. A value has up to a megabyte, which is counted in the memory budget
/// only after it was read.
const READS_MAX: usize = 4;

/// How long a write, a confirmation of a version or a listing of the names waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The number that stands for any version in a request to ZooKeeper.
const ANY_VERSION: i32 = -1;

/// The settings of the shared configuration.
#[derive(Clone, Debug)]
pub(super) struct ConfigSettings {
    /// The path below which the values are stored, including the connect string's chroot.
    pub(super) root: String,
    pub(super) acl: AclPolicy,
}

/// The shared configuration. It belongs to the runner of the locks, whose session it uses.
pub(super) struct SharedConfig {
    shared: ConfigContext,
    /// Publishes the current session to all tasks; `None` while there is none.
    sessions: watch::Sender<Option<SessionHandle>>,
    names: BTreeMap<ConfigName, WatchedName>,
    /// Tasks that keep the known state of names up to date.
    watches: JoinSet<()>,
    /// Tasks that write, check the version of a value, or read all names.
    requests: JoinSet<()>,
}

/// The state shared by all tasks.
#[derive(Clone)]
struct ConfigContext {
    settings: Arc<ConfigSettings>,
    sessions: CurrentSession,
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

/// Receives the current session, which the runner of the locks opens and closes as needed.
#[derive(Clone)]
pub(super) struct CurrentSession(watch::Receiver<Option<SessionHandle>>);

/// A name that is watched.
struct WatchedName {
    /// Publishes the known state of the name to clients.
    known: Arc<watch::Sender<ValueState>>,
    /// The number of the last question. A question requests a reading that begins after the question.
    readings_requested: Arc<watch::Sender<u64>>,
    /// Runs [`watch_value`].
    task: AbortHandle,
}

impl SharedConfig {
    pub(super) fn new(settings: ConfigSettings, clock: Clock, requests: &ConfigRequests) -> Self {
        let (sessions, current_session) = watch::channel(None);
        let shared = ConfigContext {
            settings: Arc::new(settings),
            sessions: CurrentSession(current_session),
            clock,
            budget: requests.budget.clone(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            meter: requests.meter.clone(),
            listed: SharedReading::default(),
        };
        Self {
            shared,
            sessions,
            names: BTreeMap::new(),
            watches: JoinSet::new(),
            requests: JoinSet::new(),
        }
    }

    /// Returns true while the session is needed.
    pub(super) fn needs_session(&self) -> bool {
        !self.names.is_empty() || !self.requests.is_empty()
    }

    /// Returns a receiver of the current session, for others that read over it.
    pub(super) fn sessions(&self) -> CurrentSession {
        self.shared.sessions.clone()
    }

    /// Continues in this session. With `None`, the tasks wait for the next session.
    pub(super) fn use_session(&self, session: Option<SessionHandle>) {
        self.sessions.send_replace(session);
    }

    /// Handles the next request, or the next end of a task. Both may change whether the session is needed. Cancel-safe: no
    /// request is lost.
    pub(super) async fn handle_next(&mut self, requests: &mut mpsc::Receiver<ConfigRequest>) {
        tokio::select! {
            biased;
            Some(ended) = self.watches.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    error!("the task that watches a value panicked; restarting it");
                }
                self.forget_or_rewatch_ended();
            }
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
        if let Some(WatchedName { known, readings_requested, .. }) = self.names.get(&name) {
            return Ok(WatchedValue {
                known: known.subscribe(),
                readings_requested: readings_requested.clone(),
            });
        }
        if self.names.len() >= NAMES_MAX {
            // To make room, forget a name at once that would be forgotten soon.
            let unused = self.names.iter().find(|(_, watched)| is_unused(&watched.known));
            let unused = unused.map(|(name, _)| name.clone()).ok_or(TooMany)?;
            self.forget(&unused);
        }
        let (known, receiver) = watch::channel(ValueState::default());
        let known = Arc::new(known);
        let readings_requested = Arc::new(watch::Sender::new(0));
        let task = self.spawn_watch(&name, &known, &readings_requested);
        let watched =
            WatchedValue { known: receiver, readings_requested: readings_requested.clone() };
        self.names.insert(name, WatchedName { known, readings_requested, task });
        self.shared.meter.watched.set(self.names.len().try_into().unwrap_or(i64::MAX));
        Ok(watched)
    }

    /// Starts the task that keeps the known state of a name up to date, until no client has used the name for a while.
    fn spawn_watch(
        &mut self,
        name: &ConfigName,
        known: &Arc<watch::Sender<ValueState>>,
        readings_requested: &watch::Sender<u64>,
    ) -> AbortHandle {
        let shared = self.shared.clone();
        let path = self.shared.path_of(name);
        let watching = watch_value(shared, path, known.clone(), readings_requested.subscribe());
        let known = known.clone();
        self.watches.spawn(async move {
            tokio::select! {
                () = watching => {}
                () = until_unused(&known) => {}
            }
        })
    }

    /// Handles the names whose task has ended: forgets those that are still unused. A name that is used, because a client
    /// has requested it since or because the task panicked, is watched again.
    fn forget_or_rewatch_ended(&mut self) {
        let ended = self.names.iter().filter(|(_, watched)| watched.task.is_finished());
        let ended: Vec<_> = ended.map(|(name, _)| name.clone()).collect();
        for name in ended {
            let Some(watched) = self.names.get(&name) else { continue };
            let known = watched.known.clone();
            let readings_requested = watched.readings_requested.clone();
            if is_unused(&known) {
                self.forget(&name);
                continue;
            }
            let task = self.spawn_watch(&name, &known, &readings_requested);
            if let Some(watched) = self.names.get_mut(&name) {
                watched.task = task;
            }
        }
    }

    fn forget(&mut self, name: &ConfigName) {
        let Some(WatchedName { task, .. }) = self.names.remove(name) else { return };
        task.abort();
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

/// Waits until this name has no client, and has still none after [`FORGET_AFTER`].
async fn until_unused(known: &watch::Sender<ValueState>) {
    loop {
        known.closed().await;
        sleep(FORGET_AFTER).await;
        if is_unused(known) {
            return;
        }
    }
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

impl CurrentSession {
    /// Returns the current session; waits until there is one.
    async fn session(&mut self) -> SessionHandle {
        match self.0.wait_for(Option::is_some).await.map(|session| session.clone()) {
            Ok(session) => session.expect("just waited for"),
            // The runner has ended, and this task is about to end.
            Err(_) => pending().await,
        }
    }

    /// Waits until the session changes.
    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The runner has ended, and this task is about to end.
            pending().await
        }
    }

    /// Returns the current connection, in whichever session; waits until there is one.
    pub(super) async fn connection(&mut self) -> Connection {
        loop {
            let session = self.session().await;
            tokio::select! {
                connection = session.connection() => return connection,
                () = self.changed() => {}
            }
        }
    }
}

impl ConfigContext {
    fn path_of(&self, name: &ConfigName) -> String {
        format!("{}/{name}", self.settings.root)
    }

    /// Returns the current connection, or `None` if there is none within [`CONNECT_TIMEOUT`].
    async fn connection(&self) -> Option<Connection> {
        timeout(CONNECT_TIMEOUT, self.sessions.clone().connection()).await.ok()
    }

    /// Describes to operators why the servers refused a request about this path.
    async fn refusal(&self, connection: &Connection, path: &str, error: &Error) -> String {
        refusal(connection, self.settings.acl, path, error).await
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
            Err(error) if is_server_answer(&error) => {
                return Err(self.refusal(&connection, &path, &error).await);
            }
            Err(error) => return Err(in_words(&error)),
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
        let root = &self.settings.root;
        let mut names = match names_below(&connection, root).await {
            Ok(names) => names,
            Err(ListError::Crowded(problem)) => return Err(problem),
            Err(ListError::Failed(error)) if is_server_answer(&error) => {
                return Err(self.refusal(&connection, root, &error).await);
            }
            Err(ListError::Failed(error)) => return Err(in_words(&error)),
        };
        names.retain(|name| ConfigName::new(name).is_some());
        names.sort_unstable();
        Ok(names.into())
    }
}
