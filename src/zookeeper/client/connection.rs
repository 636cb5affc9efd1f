//! A connection to one server, and the tasks that the client library runs for it.
//!
//! The client library could reconnect by itself, but then it hides that the server has shortened the session timeout, sends
//! requests that were given up long ago, and can spin endlessly without a network. So a lost connection is dropped with
//! everything that the library still does for it, and the session is resumed over another connection.

use super::credentials::{self, Credentials, PresentedCredentials};
use super::kerberos::BegunLogin;
use super::server_version::ServerVersion;
use crate::clock::Clock;
use crate::config::Zookeeper;
use ::zookeeper::{
    Client, Connector, Error, MultiWriteError, MultiWriteResult, MultiWriter, SessionInfo,
    SessionState, StateWatcher,
};
use futures_util::future::join_all;
use recipes::Moment;
use spawns_core::{Spawn, Task};
use std::collections::BTreeMap;
use std::future::{IntoFuture, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// An open connection, through which requests are sent.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Notified by [`Self::give_up`], which ends the connection.
    given_up: Arc<Notify>,
    /// A request that is not answered within this time ends the connection: a quarter of the session timeout.
    answer_timeout: Duration,
    /// The address of the server, `host:port`.
    server: Arc<str>,
    /// The credentials with which the connection was opened. The request for the version needs the same TLS settings.
    presented: Arc<PresentedCredentials>,
    /// The version of the server, or `None` if the server does not report it. Empty until the server was asked.
    version: Arc<OnceCell<Option<ServerVersion>>>,
    /// The servers that this session has left, shared by all of its connections.
    left_servers: LeftServers,
}

/// The servers from which a session disconnected because a quorum contradicted what they showed, and when it last did so at
/// each. Further connections try other servers first.
#[derive(Clone)]
pub(crate) struct LeftServers {
    clock: Clock,
    left_at: Arc<Mutex<BTreeMap<Arc<str>, Moment>>>,
}

/// The outcome of [`Connection::leave_server`]. It tells the caller whether to repeat its request at another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveServerOutcome {
    /// The connection is given up, and the server was not left before. The caller repeats its request over the next
    /// connection.
    First,
    /// The connection is given up, but the server was left before, and the session has come back to it: there may be no
    /// other server.
    Again,
    /// The connection is kept, because the server was left less than a session timeout ago, and no other server was found.
    /// The caller has to wait, or do without a better answer.
    NotYet,
}

/// The servers' answer to a transaction.
#[derive(Debug)]
pub(crate) enum TransactionResult {
    /// A quorum committed all operations.
    Done(Vec<MultiWriteResult>),
    /// The operation with the index `at` failed, so no operation was carried out.
    Failed { at: usize, error: Error },
}

/// A connection that was just made.
pub(crate) struct OpenedConnection {
    pub(crate) connection: Connection,
    /// The session timeout that the server granted, but at most the requested one. Leases are computed from it, and must not
    /// get longer because of a server.
    pub(crate) timeout: Duration,
    /// Receives the end of the connection.
    pub(crate) ended: oneshot::Receiver<EndedConnection>,
}

/// A connection that has ended. Dropping this value ends the library's tasks for the connection. The session must take the
/// connection away from its users first, because the library panics if a watch is polled after these tasks have ended.
pub(crate) struct EndedConnection {
    pub(crate) how: ConnectionEnd,
    _tasks: LibraryTasks,
}

/// The reason why connecting failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The servers say that the session has ended, so it cannot be resumed.
    Expired,
    /// No server gave a useful answer. The text is the library's error, and a diagnosis may find the cause.
    Unreachable(String),
    /// No server name could be resolved.
    Unresolved(String),
    /// The cause is known, so that no diagnosis is needed: the credentials cannot be read, a login is refused, or a server
    /// is too old.
    Refused(String),
}

/// A server to connect to.
struct Server {
    /// The configured name, or without TLS an IP address to which it was resolved, and the port.
    address: String,
    /// The configured name without the port: Kerberos requests a ticket for it.
    host: String,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Only the connection has ended: the session may be alive.
    Connection,
    /// The session has ended, with everything that it owned.
    Session,
}

impl Connection {
    /// Waits for the answer to a request, and gives the connection up if none comes in time.
    pub(crate) async fn request<T>(
        &self,
        request: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.answer_timeout, request.into_future()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.give_up();
                Err(Error::Timeout)
            }
        }
    }

    /// Confirms with a quorum that the znode exists. On a new connection of an old session this is also a barrier: no read
    /// after it is older than what the session has already seen.
    ///
    /// The request is sent when this is called, not when the future is first polled, so later requests come after it.
    pub(crate) fn check(&self, path: &str) -> impl Future<Output = Result<(), Error>> {
        let checked = self.transact(1, |writer| writer.add_check_version(path, -1));
        async move { checked.await?.into_result() }
    }

    /// Commits all of the operations that `build` adds, or none, through a quorum. `operations` is the number of operations.
    ///
    /// The request is sent when this is called, not when the future is first polled, so later requests come after it.
    pub(crate) fn transact(
        &self,
        operations: usize,
        build: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), Error>,
    ) -> impl Future<Output = Result<TransactionResult, Error>> {
        let mut writer = self.client.new_multi_writer();
        let commit = build(&mut writer).map(|()| writer.commit());
        async move {
            let commit = commit?;
            // The `Ok` is for `request`, which only limits the time here: transactions have an error type of their own.
            match self.request(async { Ok(commit.await) }).await? {
                Ok(results) if results.len() == operations => Ok(TransactionResult::Done(results)),
                // The library gives this answer to an empty transaction, without asking a server.
                Ok(_) => Err(Error::UnexpectedError("too few results of a transaction".into())),
                Err(MultiWriteError::OperationFailed { index, source }) => {
                    Ok(TransactionResult::Failed { at: index, error: source })
                }
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
            }
        }
    }

    /// Ends this connection, so that the session opens another one, perhaps to the same server.
    pub(crate) fn give_up(&self) {
        self.given_up.notify_one();
    }

    /// Gives this connection up because a quorum contradicted its server. From then on, the session tries other servers
    /// first. Leaves a server at most once in a session timeout, because there may be no other server.
    pub(crate) fn leave_server(&self) -> LeaveServerOutcome {
        let session_timeout = 4 * self.answer_timeout;
        let outcome = self.left_servers.leave(&self.server, session_timeout);
        if outcome != LeaveServerOutcome::NotYet {
            self.give_up();
        }
        outcome
    }

    /// Returns the address of the server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns true if the server supports `whoAmI`. An older server closes the connection at this request.
    pub(crate) async fn has_who_am_i(&self) -> bool {
        self.version().await.is_some_and(ServerVersion::has_who_am_i)
    }

    /// Returns true if the server may be asked to create container znodes. Servers other than ZooKeeper close the connection
    /// at such a request. A server that does not report its version is taken for ZooKeeper.
    pub(crate) async fn has_containers(&self) -> bool {
        match self.version().await {
            Some(version) => version.is_zookeeper(),
            None => true,
        }
    }

    /// Returns the version of the server, if the server reports it. The server is asked only once, unless it does not
    /// answer.
    pub(crate) async fn version(&self) -> Option<&ServerVersion> {
        let asking = version(&self.server, &self.presented, self.answer_timeout);
        self.version.get_or_try_init(|| asking).await.ok()?.as_ref()
    }
}

impl TransactionResult {
    /// Returns the error if any of the operations failed, in which case none was carried out.
    pub(crate) fn into_result(self) -> Result<(), Error> {
        match self {
            Self::Done(_) => Ok(()),
            Self::Failed { error, .. } => Err(error),
        }
    }
}

impl LeftServers {
    pub(crate) fn none(clock: Clock) -> Self {
        Self { clock, left_at: Arc::default() }
    }

    /// Notes that the session leaves this server, unless it has left the same server less than `pause` ago.
    fn leave(&self, server: &Arc<str>, pause: Duration) -> LeaveServerOutcome {
        let now = self.clock.now();
        let mut left_at = self.left_at.lock().expect("no panic while it is held");
        let outcome = match left_at.get(server) {
            None => LeaveServerOutcome::First,
            Some(last) if now.since(*last) < pause => return LeaveServerOutcome::NotYet,
            Some(_) => LeaveServerOutcome::Again,
        };
        left_at.insert(server.clone(), now);
        outcome
    }

    /// Moves the servers that the session has left to the end, the most recently left one last.
    fn put_last(&self, servers: &mut [Server]) {
        let left_at = self.left_at.lock().expect("no panic while it is held");
        // The key of a server that was not left is `None`, which sorts first.
        servers.sort_by_key(|server| left_at.get(server.address.as_str()).copied());
    }
}

/// Asks the server for its version, over a connection of its own.
async fn version(
    server: &str,
    presented: &PresentedCredentials,
    limit: Duration,
) -> io::Result<Option<ServerVersion>> {
    timeout(limit, ServerVersion::of(server, presented.tls.as_ref())).await?
}

/// Connects, trying each server once. Resumes the given session, or opens a new one.
pub(crate) async fn connect(
    settings: &Zookeeper,
    credentials: &Arc<Credentials>,
    session: Option<SessionInfo>,
    left_servers: &LeftServers,
) -> Result<OpenedConnection, Failure> {
    let (result, opened) = oneshot::channel();
    let settings = settings.clone();
    let credentials = credentials.clone();
    let left_servers = left_servers.clone();
    // The task goes on if the caller stops waiting, because a session that it opens must be closed.
    tokio::spawn(async move {
        open_and_await_end(&settings, &credentials, session, &left_servers, result).await;
    });
    let died = Failure::Unreachable("the connection's task died, see the log".into());
    opened.await.unwrap_or(Err(died))
}

/// Opens a connection, sends it to the caller of [`connect`], and reports its end.
async fn open_and_await_end(
    settings: &Zookeeper,
    credentials: &Credentials,
    session: Option<SessionInfo>,
    left_servers: &LeftServers,
    result: oneshot::Sender<Result<OpenedConnection, Failure>>,
) {
    // The library's tasks end with this function, or with the `EndedConnection` that it sends.
    let tasks = LibraryTasks::default();
    let opened = tasks.run(open(settings, credentials, session, left_servers)).await;
    let (connection, mut states, granted) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            let _receiver_gone = result.send(Err(failure));
            return;
        }
    };
    let given_up = connection.given_up.clone();
    let (end, ended) = oneshot::channel();
    let opened = OpenedConnection { connection, timeout: granted, ended };
    // If the caller stopped waiting, this drops the client, so the library closes the session, and its end is awaited below.
    let _receiver_gone = result.send(Ok(opened)).is_err();
    let how = tokio::select! {
        how = async {
            loop {
                match states.changed().await {
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
                    SessionState::Disconnected => return ConnectionEnd::Connection,
                    _ => return ConnectionEnd::Session,
                }
            }
        } => how,
        () = given_up.notified() => ConnectionEnd::Connection,
    };
    let _receiver_gone = end.send(EndedConnection { how, _tasks: tasks });
}

/// Tries the servers in random order, each once, until one opens or resumes the session. Also returns the states of the
/// connection, and the timeout of the session.
async fn open(
    settings: &Zookeeper,
    credentials: &Credentials,
    session: Option<SessionInfo>,
    left_servers: &LeftServers,
) -> Result<(Connection, StateWatcher, Duration), Failure> {
    let answer_timeout = settings.session_timeout / 4;
    let presented = credentials.load(answer_timeout).await.map_err(Failure::Refused)?;
    // With TLS, keep the names of the servers: the library compares the servers' certificates with them.
    let speaks_tls = presented.tls.is_some();
    let mut servers = match speaks_tls {
        true => settings.hosts.split(',').map(Server::by_name).collect(),
        false => resolve(&settings.hosts, answer_timeout).await?,
    };
    fastrand::shuffle(&mut servers);
    left_servers.put_last(&mut servers);
    let is_resumption = session.is_some();
    let mut failure = Failure::Unreachable("no server".into());
    // The reason why a Kerberos login failed. Another server may accept it, because each server has its own principal.
    let mut refused_login = None;
    for Server { address: server, host } in servers {
        let login = match credentials.begin_login(&host, answer_timeout).await {
            Ok(login) => login,
            Err(why) => {
                refused_login = Some(why);
                continue;
            }
        };
        let connector = build_connector(settings, session.as_ref(), &presented, login.as_ref())?;
        let connecting = async {
            match speaks_tls {
                true => connector.secure_connect(&server).await,
                false => connector.connect(&server).await,
            }
        };
        // Limit each attempt, far below the library's own limit for all servers: when that has passed, the library may loop
        // without yielding.
        let connecting = timeout(answer_timeout, connecting);
        let known_version = OnceCell::new();
        let connected = if is_resumption {
            connecting.await
        } else {
            // A new session is not used if its server is too old.
            let asking = version(&server, &presented, answer_timeout / 4);
            let (connected, asked) = tokio::join!(connecting, asking);
            // A server that was too slow to answer is asked again when its version matters.
            if let Ok(version) = asked {
                let problem = version.as_ref().and_then(|version| version.too_old(&server));
                if let Some(problem) = problem {
                    failure = Failure::Refused(problem);
                    continue;
                }
                known_version.set(version).expect("the cell is new");
            }
            connected
        };
        let client = match connected.unwrap_or(Err(Error::Timeout)) {
            Ok(client) => client,
            Err(Error::AuthFailed) => {
                if let Some(login) = &login {
                    refused_login = Some(credentials.explain_refused_kerberos(login));
                    continue;
                }
                // Without Kerberos, all servers check the same login, so no other server is tried.
                let version = known_version.into_inner().flatten();
                return Err(Failure::Refused(credentials.explain_refusal(version.as_ref())));
            }
            Err(Error::SessionExpired) => return Err(Failure::Expired),
            Err(error) => {
                // Perhaps this member did not accept the server.
                if let Some(why) = login.and_then(|login| login.failure(&server)) {
                    refused_login = Some(why);
                }
                failure = error.into();
                continue;
            }
        };
        // A server that opens another session than the requested one does not know the requested one.
        if session.as_ref().is_some_and(|session| client.session().id() != session.id()) {
            return Err(Failure::Expired);
        }
        let granted = client.session_timeout().min(settings.session_timeout);
        // Create the watcher before the first request: it takes the current state as known, and misses no later state.
        let states = client.state_watcher();
        let connection = Connection {
            client,
            given_up: Arc::new(Notify::new()),
            answer_timeout,
            server: server.into(),
            presented: presented.clone(),
            version: Arc::new(known_version),
            left_servers: left_servers.clone(),
        };
        // The server must show at least what the session has already seen: see `Connection::check`.
        if is_resumption
            && let Err(error) = connection.check("/").await
            && !is_server_answer(&error)
        {
            // The client and its tasks must end without a turn of the runtime in between: otherwise the library would close
            // the session.
            return Err(error.into());
        }
        return Ok((connection, states, granted));
    }
    match refused_login {
        Some(why) => Err(Failure::Refused(why)),
        None => Err(failure),
    }
}

/// Returns a connector with these settings and credentials, which resumes the session if there is one.
fn build_connector(
    settings: &Zookeeper,
    session: Option<&SessionInfo>,
    presented: &PresentedCredentials,
    login: Option<&BegunLogin>,
) -> Result<Connector, Error> {
    let mut connector = Client::connector()
        .with_session_timeout(settings.session_timeout)
        // The longest timeout that the library allows: with a shorter one, the library would check for silence more often.
        // Requests have their own, shorter limit.
        .with_connection_timeout(settings.session_timeout * 3 / 5)
        .with_fail_eagerly();
    if let Some(session) = session {
        connector = connector.with_session(session.clone());
    }
    connector = presented.apply(connector)?;
    if let Some(login) = login {
        connector = login.apply(connector);
    }
    Ok(connector)
}

impl Server {
    fn by_name(server: &str) -> Self {
        Self { address: server.to_owned(), host: credentials::host(server).to_owned() }
    }
}

/// Returns all addresses of all servers. If a name has several addresses, the library itself would try only the first one
/// that does not refuse the connection.
async fn resolve(hosts: &str, limit: Duration) -> Result<Vec<Server>, Failure> {
    let lookups = hosts.split(',').map(|server| lookup(server, limit));
    let mut servers = vec![];
    let mut problems = vec![];
    for (server, found) in hosts.split(',').zip(join_all(lookups).await) {
        match found {
            Ok(found) => servers.extend(found.iter().map(|address| Server {
                address: address.to_string(),
                host: credentials::host(server).to_owned(),
            })),
            Err(problem) => problems.push(format!("{server} {problem}")),
        }
    }
    // If several names have the same address, only the first is kept.
    servers.sort_by(|one, other| one.address.cmp(&other.address));
    servers.dedup_by(|one, other| one.address == other.address);
    if servers.is_empty() {
        return Err(Failure::Unresolved(problems.join("; ")));
    }
    Ok(servers)
}

/// Resolves the name of a server, `host:port`.
///
/// # Errors
/// The problem, in words that follow the name of the server: the name is not known, or the name server does not answer.
pub(super) async fn lookup(server: &str, limit: Duration) -> Result<Vec<SocketAddr>, String> {
    match timeout(limit, lookup_host(server)).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(format!("cannot be resolved: {error}")),
        Err(_) => Err(format!(
            "cannot be resolved: the name server does not answer within {limit:?} (/etc/resolv.conf)"
        )),
    }
}

/// The tasks that the client library spawns for one connection.
///
/// The library spawns through the spawner that `spawns_core` knows for the current thread, and gives out no handle to the
/// tasks. So this type registers itself as that spawner during each poll of the future that connects, keeps the spawned
/// tasks, and ends them when it is dropped.
#[derive(Default)]
pub(super) struct LibraryTasks(Mutex<JoinSet<()>>);

impl LibraryTasks {
    /// Runs the future, and keeps each task that is spawned while it is polled.
    pub(super) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _spawns_into_self = spawns_core::enter(self);
            future.as_mut().poll(context)
        })
        .await
    }
}

impl Spawn for LibraryTasks {
    fn spawn(&self, task: Task) {
        let mut tasks = self.0.lock().expect("no panic while it is held");
        tasks.spawn(Box::into_pin(task.future));
    }
}

impl Failure {
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Expired => "the session has expired".into(),
            Self::Unreachable(why) | Self::Unresolved(why) | Self::Refused(why) => why,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::SessionExpired => Self::Expired,
            error => Self::Unreachable(in_words(&error)),
        }
    }
}

/// Describes an error of the client library to operators.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Timeout => "ZooKeeper did not answer in time".into(),
        // When a connection ends, the library knows only that its requests were not answered.
        Error::ConnectionLoss | Error::ClientClosed => LOST_BEFORE_ANSWER.into(),
        // The library takes it for a bug if its task for the connection ends before a request is answered.
        Error::UnexpectedError(what) if what.starts_with("BUG") => LOST_BEFORE_ANSWER.into(),
        error => error.to_string(),
    }
}

const LOST_BEFORE_ANSWER: &str = "the connection to ZooKeeper was lost before the answer came";

/// Returns true if the error is the servers' answer to the request. Any other error is silence: the request may or may not
/// have been carried out.
pub(crate) fn is_server_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NoAuth
            | Error::BadVersion
            | Error::NodeExists
            | Error::NotEmpty
            | Error::NoChildrenForEphemerals
            | Error::InvalidAcl
            | Error::BadArguments(_)
            | Error::QuotaExceeded
            | Error::Unimplemented
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_words_of_the_library_do_not_reach_an_operator() {
        let bug = "BUG: GetChildren expect response, but got none".to_owned();
        let errors = [Error::Timeout, Error::ConnectionLoss, Error::UnexpectedError(bug)];
        for error in &errors {
            let words = in_words(error);
            assert!(words.contains("ZooKeeper") && !words.contains("BUG"), "{words}");
        }
        assert_eq!(in_words(&Error::NoHosts), "no available hosts");
    }
}
