//! A connection to one server, and the tasks that the client library runs for it.
//!
//! The client library could reconnect by itself. But then the library hides that the server has shortened the session
//! timeout, sends requests that were given up long ago, and can spin endlessly without a network. So a lost connection
//! is dropped, together with the library's tasks for it, and the session is resumed over another connection.

use super::credentials::{self, Credentials, PresentedCredentials};
use super::diagnosis::explain;
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
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

/// An open connection, through which requests are sent.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Notified by [`Self::give_up`], which ends the connection.
    given_up: Arc<Notify>,
    /// A request that is not answered within this time ends the connection: a quarter of the session timeout, so that
    /// time is left to resume the session at another server.
    answer_timeout: Duration,
    /// The configured session timeout.
    session_timeout: Duration,
    /// The address of the server, `host:port`.
    server: Arc<str>,
    /// The TLS settings of the connection. The server is asked for its version over a second connection, with the same ones.
    tls: Option<Arc<ClientConfig>>,
    /// The version of the server, or `None` if the server does not report it. Empty until the server has answered.
    version: Arc<OnceCell<Option<ServerVersion>>>,
    /// True once [`Self::leave_server`] has given this connection up.
    has_left: Arc<AtomicBool>,
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

/// The servers' answer to a transaction.
#[derive(Debug)]
pub(crate) enum TransactionResult {
    /// A quorum committed all operations.
    Done(Vec<MultiWriteResult>),
    /// The operation with the index `at` failed, so no operation was carried out.
    Failed { at: usize, error: Error },
}

/// A connection that was just opened.
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
    /// True if the session has ended as well, with everything that it owned.
    pub(crate) session_has_ended: bool,
    _tasks: LibraryTasks,
}

/// The reason why connecting failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The servers say that the session has ended, so it cannot be resumed.
    Expired,
    /// The cause is known from the servers or from our own files: what is wrong with the credentials or with the login.
    Explained(String),
    /// The fault of each server, as far as it can be seen from outside.
    Diagnosed(String),
    /// The servers answer other questions. The text is the library's error. A server may refuse a login just by closing the
    /// connection, so perhaps that is the cause.
    Unexplained(String),
}

/// A server to connect to.
struct Server {
    /// The configured name and port.
    name: String,
    /// With TLS, the same: the library compares the server's certificate with the name. Otherwise an IP address to which the
    /// name was resolved, and the port.
    address: String,
}

impl Server {
    /// Returns the servers by their names.
    fn named(hosts: &str) -> Vec<Self> {
        let hosts = hosts.split(',').map(str::to_owned);
        hosts.map(|name| Self { address: name.clone(), name }).collect()
    }
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

    /// Confirms with a quorum that the znode exists. On a new connection of a resumed session, this is also a barrier:
    /// later reads over the connection show at least what the session has already seen.
    ///
    /// The request is sent when this is called, not when the future is first polled, so later requests come after it.
    pub(crate) fn check(&self, path: &str) -> impl Future<Output = Result<(), Error>> {
        let checked = self.transact(1, |writer| writer.add_check_version(path, -1));
        async move { checked.await?.into_result() }
    }

    /// Commits all of the operations that `build` adds, or none, through a quorum. `operations` is their number: an
    /// answer with another number of results is an error.
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
                // A wrong answer. Or `build` added nothing: then the library answers, without asking a server.
                Ok(_) => Err(Error::UnexpectedError("wrong number of transaction results".into())),
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
    /// first. Returns true if the connection is given up, so that the caller repeats its request over the next one.
    ///
    /// Leaves the same server at most once in a session timeout. If there is no other server, the session comes back to
    /// this one, and must not reconnect again and again: then this returns false, and the caller has to wait, or do
    /// without a better answer.
    pub(crate) fn leave_server(&self) -> bool {
        if self.has_left.load(Ordering::Relaxed) {
            return true;
        }
        let leaves = self.left_servers.leave(&self.server, self.session_timeout);
        if leaves {
            self.has_left.store(true, Ordering::Relaxed);
            self.give_up();
        }
        leaves
    }

    /// Returns the address of the server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns true if the server is known to support `whoAmI`. An older server closes the connection at this request.
    pub(crate) async fn has_who_am_i(&self) -> bool {
        self.version().await.is_some_and(ServerVersion::has_who_am_i)
    }

    /// Returns true if the server may be asked to create container znodes. Servers other than ZooKeeper close the
    /// connection at such a request. A server whose version is not known is taken for ZooKeeper.
    pub(crate) async fn has_containers(&self) -> bool {
        self.version().await.is_none_or(ServerVersion::is_zookeeper)
    }

    /// Returns the version of the server; `None` if the server does not report it, or does not answer. The server is
    /// asked only until it has answered once.
    pub(crate) async fn version(&self) -> Option<&ServerVersion> {
        let asking = ask_version(&self.server, self.tls.as_ref(), self.answer_timeout);
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

    /// Notes that the session leaves this server, and returns true, unless it has left the same server less than `pause`
    /// ago.
    fn leave(&self, server: &Arc<str>, pause: Duration) -> bool {
        let now = self.clock.now();
        let mut left_at = self.left_at.lock().expect("no panic while it is held");
        let leaves = left_at.get(server).is_none_or(|last| now.since(*last) >= pause);
        if leaves {
            left_at.insert(server.clone(), now);
        }
        leaves
    }

    /// Moves the servers that the session has left to the end, the most recently left one last.
    fn put_last(&self, servers: &mut [Server]) {
        let left_at = self.left_at.lock().expect("no panic while it is held");
        // The key of a server that was not left is `None`, which sorts first.
        servers.sort_by_key(|server| left_at.get(server.address.as_str()).copied());
    }
}

/// Asks the server for its version, over another connection. Fails if the server does not answer within the limit.
async fn ask_version(
    server: &str,
    tls: Option<&Arc<ClientConfig>>,
    limit: Duration,
) -> io::Result<Option<ServerVersion>> {
    timeout(limit, ServerVersion::of(server, tls)).await?
}

/// Connects, trying each server once. Resumes the given session, or opens a new one.
pub(crate) async fn connect(
    settings: &Zookeeper,
    credentials: &Arc<Credentials>,
    session: Option<SessionInfo>,
    left_servers: &LeftServers,
) -> Result<OpenedConnection, Failure> {
    let settings = settings.clone();
    let credentials = credentials.clone();
    let left_servers = left_servers.clone();
    // The task goes on if the caller stops waiting. Then its result is dropped, so that the library closes the session that the
    // task has opened.
    let opening = tokio::spawn(async move {
        // The library's tasks end with this function, or with the `EndedConnection`.
        let tasks = LibraryTasks::default();
        let (connection, states, timeout) =
            tasks.run(open(&settings, &credentials, session, &left_servers)).await?;
        let (end, ended) = oneshot::channel();
        tokio::spawn(report_end(states, connection.given_up.clone(), tasks, end));
        Ok(OpenedConnection { connection, timeout, ended })
    });
    let died = Failure::Unexplained("the connection's task died, see the log".into());
    opening.await.unwrap_or(Err(died))
}

/// Waits for the end of a connection, and reports it.
async fn report_end(
    mut states: StateWatcher,
    given_up: Arc<Notify>,
    tasks: LibraryTasks,
    end: oneshot::Sender<EndedConnection>,
) {
    let session_has_ended = tokio::select! {
        has_ended = async {
            loop {
                match states.changed().await {
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
                    SessionState::Disconnected => return false,
                    _ => return true,
                }
            }
        } => has_ended,
        () = given_up.notified() => false,
    };
    let _receiver_gone = end.send(EndedConnection { session_has_ended, _tasks: tasks });
}

/// Tries the servers, each once, until one opens or resumes the session. Servers that the session has left come last;
/// otherwise, the order is random. Also returns the states of the connection, and its [`OpenedConnection::timeout`].
async fn open(
    settings: &Zookeeper,
    credentials: &Credentials,
    session: Option<SessionInfo>,
    left_servers: &LeftServers,
) -> Result<(Connection, StateWatcher, Duration), Failure> {
    let answer_timeout = settings.session_timeout / 4;
    // Limits questions beside the attempt to connect, so that they hardly delay it, or the next one.
    let question_timeout = answer_timeout / 2;
    let presented = credentials.load(answer_timeout).await.map_err(Failure::Explained)?;
    let trust = presented.tls.as_ref();
    let tls = trust.map(|trust| &trust.config);
    // With TLS, the library resolves each name itself. So do not wait here for a name that cannot be resolved in time.
    let (mut servers, mut causes) = match tls {
        Some(_) => (Server::named(&settings.hosts), vec![]),
        None => resolve(&settings.hosts, answer_timeout).await,
    };
    // Several names may have the same address.
    servers.sort_by(|one, other| one.address.cmp(&other.address));
    servers.dedup_by(|one, other| one.address == other.address);
    fastrand::shuffle(&mut servers);
    left_servers.put_last(&mut servers);
    let is_resumption = session.is_some();
    // The servers at which connecting failed, and the last error.
    let mut failed = vec![];
    let mut last_error = Error::NoHosts;
    // The reason why a Kerberos login failed. Other servers are still tried: each has its own principal.
    let mut refused_login = None;
    for server in &servers {
        let address = &server.address;
        let host = credentials::host(&server.name);
        let login = match credentials.begin_login(host, answer_timeout).await {
            Ok(login) => login,
            Err(why) => {
                refused_login = Some(why);
                continue;
            }
        };
        let connector = build_connector(settings, session.as_ref(), &presented, login.as_ref());
        let connecting = async {
            match tls {
                Some(_) => connector.secure_connect(address).await,
                None => connector.connect(address).await,
            }
        };
        // Limit each attempt, so that a silent server leaves time for the others. The library waits longer.
        let connecting = timeout(answer_timeout, connecting);
        let known_version = OnceCell::new();
        let connected = if is_resumption {
            connecting.await
        } else {
            // A new session is not used if its server is too old. A server that was too slow to answer is asked again when
            // its version matters.
            let asking = ask_version(address, tls, question_timeout);
            let (connected, asked) = tokio::join!(connecting, asking);
            if let Ok(version) = asked {
                let problem = version.as_ref().and_then(|version| version.too_old(&server.name));
                if let Some(problem) = problem {
                    causes.push(problem);
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
                    refused_login = Some(login.explain_refusal());
                    continue;
                }
                // Without Kerberos, all servers check the same login, so no other server is tried.
                let version = known_version.into_inner().flatten();
                return Err(Failure::Explained(credentials.explain_refusal(version.as_ref())));
            }
            Err(Error::SessionExpired) => return Err(Failure::Expired),
            Err(error) => {
                // With Kerberos, the cause may be that this member did not accept the server.
                if let Some(why) = login.and_then(|login| login.failure(&server.name)) {
                    refused_login = Some(why);
                }
                failed.push(server);
                last_error = error;
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
            session_timeout: settings.session_timeout,
            server: address.as_str().into(),
            tls: tls.cloned(),
            version: Arc::new(known_version),
            has_left: Arc::default(),
            left_servers: left_servers.clone(),
        };
        // The server must show at least what the session has already seen: see `Connection::check`. Any answer will do.
        if is_resumption
            && let Err(error) = connection.check("/").await
            && !is_server_answer(&error)
        {
            // Return, without trying the other servers: the library's tasks must end without a turn of the runtime
            // after the client is dropped. Otherwise they would close the session.
            return Err(error.into());
        }
        return Ok((connection, states, granted));
    }
    if let Some(why) = refused_login {
        return Err(Failure::Explained(why));
    }
    if tls.is_some() {
        let (resolved, problems) = resolve(&settings.hosts, answer_timeout).await;
        failed.retain(|server| resolved.iter().any(|other| other.name == server.name));
        causes.extend(problems);
    }
    let examinations =
        failed.iter().map(|server| explain(&server.name, &server.address, trust, question_timeout));
    causes.extend(join_all(examinations).await.into_iter().flatten());
    if causes.is_empty() {
        return Err(last_error.into());
    }
    causes.sort();
    // The addresses of one name often have the same problem.
    causes.dedup();
    Err(Failure::Diagnosed(causes.join("; ")))
}

/// Returns a connector with these settings and credentials, which resumes the session if there is one.
fn build_connector(
    settings: &Zookeeper,
    session: Option<&SessionInfo>,
    presented: &PresentedCredentials,
    login: Option<&BegunLogin>,
) -> Connector {
    let mut connector = Client::connector()
        .with_session_timeout(settings.session_timeout)
        // The longest timeout that the library accepts: it replaces a longer one by 2/5 of the session timeout. The
        // library pings after 3/8 of this timeout, which is just after an idle member sends its next read
        // (`idle_delay`). With a shorter timeout, idle members would ping as well, and wake up more often. Requests
        // have their own, shorter limit.
        .with_connection_timeout(settings.session_timeout * 3 / 5)
        // The library must try the server only once: `open` tries the next one. Otherwise the library would try it
        // until the session timeout has passed, and could then loop without yielding.
        .with_fail_eagerly();
    if let Some(session) = session {
        connector = connector.with_session(session.clone());
    }
    connector = presented.apply(connector);
    match login {
        Some(login) => login.apply(connector),
        None => connector,
    }
}

/// Returns the servers whose names can be resolved, and for each other name the reason why it cannot.
///
/// Each address of each server is a server of its own. The library would try the addresses of a name one after another, but
/// within the limit of one attempt: behind an address that does not answer, the others would not be tried.
async fn resolve(hosts: &str, limit: Duration) -> (Vec<Server>, Vec<String>) {
    let lookups = hosts.split(',').map(|name| timeout(limit, lookup_host(name)));
    let mut servers = vec![];
    let mut problems = vec![];
    for (name, found) in hosts.split(',').zip(join_all(lookups).await) {
        match found {
            Ok(Ok(found)) => servers.extend(found.map(|address| Server {
                name: name.to_owned(),
                address: address.to_string(),
            })),
            Ok(Err(error)) => problems.push(format!("{name} cannot be resolved: {error}")),
            Err(_) => problems.push(format!(
                "{name} cannot be resolved: the name server does not answer within {limit:?} (/etc/resolv.conf)"
            )),
        }
    }
    (servers, problems)
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
            Self::Explained(why) | Self::Diagnosed(why) | Self::Unexplained(why) => why,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::SessionExpired => Self::Expired,
            error => Self::Unexplained(in_words(&error)),
        }
    }
}

/// Describes an error of the client library to operators.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Timeout => "ZooKeeper did not answer in time".into(),
        // Both mean that the connection ended before the answer came.
        Error::ConnectionLoss | Error::ClientClosed => LOST_BEFORE_ANSWER.into(),
        // The library takes it for a bug if its task for the connection ends before a request is answered.
        Error::UnexpectedError(what) if what.starts_with("BUG") => LOST_BEFORE_ANSWER.into(),
        error => error.to_string(),
    }
}

const LOST_BEFORE_ANSWER: &str = "the connection to ZooKeeper was lost before the answer came";

/// Returns true if the error is the servers' answer to the request, which they have not carried out. (An invalid path
/// or ACL is refused by the library itself.) Any other error is silence: perhaps the request was carried out.
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
    use crate::config::security::{AclPolicy, Security};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn each_server_that_does_not_serve_is_reported() {
        let idle = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = format!("127.0.0.1:1,127.0.0.1:2,{}", idle.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((mut client, _)) = idle.accept().await {
                let answer = b"This ZooKeeper instance is not currently serving requests\n";
                let _already_gone = client.write_all(answer).await;
            }
        });
        let security =
            Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: false };
        let session_timeout = Duration::from_secs(40);
        let settings = Zookeeper { hosts: hosts.clone(), session_timeout, security };
        let credentials = Credentials::of(&settings);
        let left = LeftServers::none(Clock::system());
        let connected = connect(&settings, &credentials, None, &left).await;
        let Err(Failure::Diagnosed(found)) = connected else { panic!("nothing is explained") };
        let named: Vec<_> =
            found.split("; ").map(|what| what.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(named, hosts.split(',').collect::<Vec<_>>(), "{found}");
        assert!(found.contains(":1 cannot be reached"), "{found}");
        assert!(found.ends_with("see each other?"), "{found}");
        serving.abort();
    }

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
