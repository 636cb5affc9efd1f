//! One connection to one server, on a thread and a small runtime of its own.
//!
//! The client library would reconnect by itself, but then it hides a timeout that the server cut,
//! sends late what was given up long ago, and without a network can spin for ever. So a
//! connection that is lost is dropped with its thread and all that runs on it, and the keeper
//! makes another for the same session.

use super::passport::Passport;
use crate::config::Zookeeper;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use zookeeper::{Client, Error, SessionInfo, SessionState};

/// What a request needs of a connection.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) client: Client,
    suspect: Arc<Notify>,
    patience: Duration,
}

pub(super) struct Connection {
    pub(super) wire: Wire,
    /// The timeout which the server granted, or granted anew.
    pub(super) timeout: Duration,
    pub(super) ended: oneshot::Receiver<End>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// The servers say that the session has ended.
    Expired,
    /// No server said anything of use.
    Unreachable(String),
    /// It is known why, and no server has to be asked.
    Refused(String),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Only the connection: the session may live.
    Connection,
    /// The session, with everything it owned.
    Session,
}

impl Wire {
    /// Waits for an answer, and gives the connection up if there is none in time.
    pub(super) async fn ask<T>(
        &self,
        request: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.patience, request.into_future()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.suspect.notify_one();
                Err(Error::Timeout)
            }
        }
    }

    /// Has a quorum agree that the znode exists. On a new connection to an old session this is
    /// also the barrier behind which no read is older than what the session has seen.
    ///
    /// The request leaves with the call, not with the first poll: what is asked next comes behind.
    pub(super) fn check(&self, path: &str) -> impl Future<Output = Result<(), Error>> {
        let mut writer = self.client.new_multi_writer();
        let added = writer.add_check_version(path, -1);
        let checked = writer.commit();
        async move {
            added?;
            self.ask(async { checked.await.map(drop).map_err(unwrap_multi) }).await
        }
    }
}

/// Connects, trying each server once. Resumes the session if there is one.
pub(super) async fn connect(
    settings: &Zookeeper,
    passport: &Arc<Passport>,
    session: Option<SessionInfo>,
) -> Result<Connection, Failure> {
    let (opened, open) = oneshot::channel();
    let (settings, passport) = (settings.clone(), passport.clone());
    let thread = std::thread::Builder::new().name("zookeeper".into());
    let spawned = thread.spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            // Dropping the runtime ends whatever the library still does.
            Ok(runtime) => runtime.block_on(serve(&settings, &passport, session, opened)),
            Err(error) => {
                let failure = Failure::Unreachable(format!("no runtime can be built: {error}"));
                let _nobody_waits = opened.send(Err(failure));
            }
        }
    });
    if let Err(error) = spawned {
        return Err(Failure::Unreachable(format!("no thread can be started: {error}")));
    }
    let died = || Err(Failure::Unreachable("the connection's thread died, see the log".into()));
    open.await.unwrap_or_else(|_| died())
}

async fn serve(
    settings: &Zookeeper,
    passport: &Passport,
    session: Option<SessionInfo>,
    opened: oneshot::Sender<Result<Connection, Failure>>,
) {
    let (wire, granted) = match open(settings, passport, session).await {
        Ok(open) => open,
        Err(failure) => {
            let _nobody_waits = opened.send(Err(failure));
            return;
        }
    };
    let mut states = wire.client.state_watcher();
    let suspect = wire.suspect.clone();
    let (end, ended) = oneshot::channel();
    let connection = Connection { wire, timeout: granted, ended };
    // If nobody waits any more, the client is dropped here and the session closes below.
    let _nobody_waits = opened.send(Ok(connection)).is_err();
    let ending = tokio::select! {
        ending = async {
            loop {
                match states.changed().await {
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
                    SessionState::Disconnected => return End::Connection,
                    SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => {
                        return End::Session;
                    }
                }
            }
        } => ending,
        () = suspect.notified() => End::Connection,
    };
    let _nobody_waits = end.send(ending);
}

async fn open(
    settings: &Zookeeper,
    passport: &Passport,
    session: Option<SessionInfo>,
) -> Result<(Wire, Duration), Failure> {
    let patience = settings.session_timeout / 4;
    let shown = passport.renewed().map_err(Failure::Refused)?;
    // With TLS it has to be names: the library holds the servers' certificates against them.
    let speaks_tls = shown.tls.is_some();
    let addresses = match speaks_tls {
        true => settings.hosts.clone(),
        false => resolve(&settings.hosts, patience).await?,
    };
    let resumed = session.is_some();
    let connector = Client::connector()
        .with_session_timeout(settings.session_timeout)
        .with_connection_timeout(patience)
        .with_fail_eagerly();
    let connector = match session {
        Some(session) => connector.with_session(session),
        None => connector,
    };
    // A limit of our own, below the library's deadline: past that it may never yield again.
    let connector = shown.show(connector)?;
    let connecting = async {
        match speaks_tls {
            true => connector.secure_connect(&addresses).await,
            false => connector.connect(&addresses).await,
        }
    };
    let connected = timeout(settings.session_timeout * 9 / 10, connecting);
    let client = match connected.await.unwrap_or(Err(Error::Timeout)) {
        Err(Error::AuthFailed) => return Err(Failure::Refused(passport.refused())),
        connected => connected?,
    };
    let granted = client.session_timeout();
    let wire = Wire { client, suspect: Arc::new(Notify::new()), patience };
    if resumed
        && let Err(error) = wire.check("/").await
        && !is_verdict(&error)
    {
        return Err(error.into());
    }
    Ok((wire, granted))
}

/// All addresses of all servers: of several behind one name, the library tries only the first that
/// does not refuse.
async fn resolve(hosts: &str, patience: Duration) -> Result<String, Failure> {
    let mut addresses = vec![];
    let mut problems = vec![];
    for host in hosts.split(',') {
        match timeout(patience, tokio::net::lookup_host(host)).await {
            Ok(Ok(found)) => addresses.extend(found.map(|address| address.to_string())),
            Ok(Err(error)) => problems.push(format!("{host}: {error}")),
            Err(_) => problems.push(format!("{host}: the name is not resolved in time")),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(Failure::Unreachable(problems.join("; ")));
    }
    Ok(addresses.join(","))
}

impl Failure {
    pub(super) fn told(self) -> String {
        match self {
            Self::Expired => "the session has expired".into(),
            Self::Unreachable(why) | Self::Refused(why) => why,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::SessionExpired => Self::Expired,
            error => Self::Unreachable(error.to_string()),
        }
    }
}

/// Whether the error proves that the servers judged the request. Any other error is silence: the
/// request may or may not have been carried out.
pub(super) fn is_verdict(error: &Error) -> bool {
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

pub(super) fn unwrap_multi(error: zookeeper::MultiWriteError) -> Error {
    match error {
        zookeeper::MultiWriteError::RequestFailed { source }
        | zookeeper::MultiWriteError::OperationFailed { source, .. } => source,
    }
}
