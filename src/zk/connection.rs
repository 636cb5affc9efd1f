//! One connection to one server, and the tasks that the client library runs for it.
//!
//! The client library would reconnect by itself, but then it hides a timeout that the server cut,
//! sends late what was given up long ago, and without a network can spin for ever. So a
//! connection that is lost is dropped with all that the library still does for it, and the keeper
//! makes another for the same session.

use super::passport::Passport;
use crate::config::Zookeeper;
use spawns_core::{Spawn, Task};
use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
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
    // Goes on if nobody waits any more: what was opened is to be closed.
    tokio::spawn(async move { serve(&settings, &passport, session, opened).await });
    let died = || Err(Failure::Unreachable("the connection's task died, see the log".into()));
    open.await.unwrap_or_else(|_| died())
}

async fn serve(
    settings: &Zookeeper,
    passport: &Passport,
    session: Option<SessionInfo>,
    opened: oneshot::Sender<Result<Connection, Failure>>,
) {
    // What of the library's is left in here ends when this does.
    let crew = Crew::default();
    let opening = crew.hires_for(open(settings, passport, session)).await;
    let (wire, granted) = match opening {
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
    let mut servers = match speaks_tls {
        true => settings.hosts.split(',').map(str::to_owned).collect(),
        false => resolve(&settings.hosts, patience).await?,
    };
    fastrand::shuffle(&mut servers);
    let resumed = session.is_some();
    let mut failure = Failure::Unreachable("there is no server".into());
    for server in servers {
        let connector = Client::connector()
            .with_session_timeout(settings.session_timeout)
            // The longest that it takes: the shorter it is, the more often the library looks whether the server has
            // been silent for so long. Whoever waits for an answer gives up sooner.
            .with_connection_timeout(settings.session_timeout * 3 / 5)
            .with_fail_eagerly();
        let connector = match session.clone() {
            Some(session) => connector.with_session(session),
            None => connector,
        };
        let connector = shown.show(connector)?;
        let connecting = async {
            match speaks_tls {
                true => connector.secure_connect(&server).await,
                false => connector.connect(&server).await,
            }
        };
        // A limit of our own for each, far below the library's for all: past that it may never yield again.
        let client = match timeout(patience, connecting).await.unwrap_or(Err(Error::Timeout)) {
            Ok(client) => client,
            Err(Error::AuthFailed) => return Err(Failure::Refused(passport.refused())),
            Err(Error::SessionExpired) => return Err(Failure::Expired),
            Err(error) => {
                failure = error.into();
                continue;
            }
        };
        let granted = client.session_timeout();
        let wire = Wire { client, suspect: Arc::new(Notify::new()), patience };
        if resumed
            && let Err(error) = wire.check("/").await
            && !is_verdict(&error)
        {
            // The client and what is hired for it end without a turn in between: else the library would close the session.
            return Err(error.into());
        }
        return Ok((wire, granted));
    }
    Err(failure)
}

/// All addresses of all servers: of several behind one name, the library tries only the first that
/// does not refuse.
async fn resolve(hosts: &str, patience: Duration) -> Result<Vec<String>, Failure> {
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
    Ok(addresses)
}

/// The library's tasks. It spawns them by way of whatever the thread names as its spawner, and then has no
/// way to end them but its own.
#[derive(Default)]
struct Crew(Mutex<JoinSet<()>>);

impl Crew {
    /// What this spawns while it is polled comes to us.
    async fn hires_for<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _spawning_for_us = spawns_core::enter(self);
            future.as_mut().poll(context)
        })
        .await
    }
}

impl Spawn for Crew {
    fn spawn(&self, task: Task) {
        let mut tasks = self.0.lock().expect("nobody panics while holding it");
        tasks.spawn(Box::into_pin(task.future));
    }
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
