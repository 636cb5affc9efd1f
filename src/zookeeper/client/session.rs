//! Keeps one session alive over as many connections as necessary.

use super::EventSender;
use super::connection::{
    Connection, Failure, LeftServers, OpenedConnection, connect, is_server_answer,
};
use super::credentials::Credentials;
use super::failure_reporter::FailureReporter;
use super::session_file::{SavedSession, SessionFile};
use crate::clock::Clock;
use crate::config::Zookeeper;
use crate::status::{ConnectionState, SessionRestart};
use ::zookeeper::SessionInfo;
use recipes::{Moment, SessionEvent, SessionId};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// Delay before the next session is opened, after a session that was closed on purpose. Meanwhile, the new head of the
/// queue sends its claim, which the load of opening a session at the same time would slow down.
pub(crate) const DELAY_AFTER_CLOSE: Duration = Duration::from_millis(50);

/// Returns the delay before the next session, or the next join, after a client has deleted our znode. Perhaps the
/// client is deleting the whole path, and cannot if members create new znodes in it at once. The delay is random, so
/// that members do not join all at the same time.
pub(crate) fn rejoin_delay() -> Duration {
    Duration::from_millis(500).mul_f64(1.0 + fastrand::f64())
}

/// A session that is given up, if it may still be alive and own a znode: the task of the next session closes it. `None`
/// if the session has certainly ended, or there was none.
pub(crate) type UnclosedSession = Option<SessionInfo>;

/// The parameters for opening a session.
pub(crate) struct SessionSettings {
    pub(crate) zookeeper: Zookeeper,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: Clock,
    /// Publishes the state of the session, for `/status`.
    pub(crate) link: watch::Sender<ConnectionState>,
    /// The purpose of the session, which tells a sidecar's sessions apart in the log.
    pub(crate) purpose: &'static str,
    /// The delay before the session is opened.
    pub(crate) delay: Duration,
    /// Publishes the current connection: see [`SessionHandle`].
    pub(crate) connections: watch::Sender<Option<Connection>>,
    /// The file in which the session is saved for the next process.
    pub(crate) file: Option<Arc<SessionFile>>,
    /// The session of the previous process, to be resumed instead of opening a new one.
    pub(crate) former: Option<SavedSession>,
}

/// A session that its own task keeps alive.
pub(crate) struct SessionTask {
    handle: SessionHandle,
    /// Requests the task to close the session.
    close: oneshot::Sender<()>,
    /// Runs [`SessionKeeper::keep`], which returns the session if it could not close it: the next task tries again.
    task: JoinHandle<UnclosedSession>,
}

/// Gives access to the current connection of a session, or of sessions that follow one another. Any number of users share a
/// session, each with a clone of this handle. The channel has `None` while there is no connection.
#[derive(Clone)]
pub(crate) struct SessionHandle(watch::Receiver<Option<Connection>>);

/// The state of the task of a [`SessionTask`], which opens the session, resumes it over new connections, and closes it.
struct SessionKeeper {
    settings: SessionSettings,
    events: EventSender<SessionEvent>,
    left_servers: LeftServers,
}

impl SessionTask {
    /// Opens a session, after the previous one is closed.
    pub(crate) fn open(
        settings: SessionSettings,
        previous: UnclosedSession,
        events: EventSender<SessionEvent>,
    ) -> Self {
        let handle = SessionHandle::of(&settings.connections);
        let (close, closing) = oneshot::channel();
        let left_servers = LeftServers::none(settings.clock);
        let keeper = SessionKeeper { settings, events, left_servers };
        let task = tokio::spawn(keeper.keep(previous, closing));
        Self { handle, close, task }
    }

    pub(crate) fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Closes the session with one request, by which the servers delete all znodes of this session and of no other. The
    /// library sends that request when the last clone of the connection is dropped, so users must drop theirs.
    ///
    /// Returns as soon as [`SessionHandle`] no longer gives out the connection. The returned future waits until the
    /// session has ended, within a limit, and returns the session if it may still be alive.
    pub(crate) async fn close(self) -> impl Future<Output = UnclosedSession> {
        let Self { handle: SessionHandle(mut connections), close, task } = self;
        let _already_gone = close.send(());
        let _already_gone = connections.wait_for(Option::is_none).await.is_ok();
        async { task.await.expect("the task neither panics nor is cancelled") }
    }
}

impl SessionHandle {
    pub(crate) fn of(connections: &watch::Sender<Option<Connection>>) -> Self {
        Self(connections.subscribe())
    }

    /// Returns the current connection; waits until there is one.
    pub(crate) async fn connection(&self) -> Connection {
        let mut connections = self.0.clone();
        let found = connections.wait_for(Option::is_some).await.map(|found| found.clone());
        match found {
            Ok(found) => found.expect("just waited for"),
            // No session will follow, and the users are about to end.
            Err(_) => std::future::pending().await,
        }
    }

    /// Marks the current connection, or its absence, as seen, so that [`Self::changed`] waits for the next change.
    pub(crate) fn mark_seen(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits until the connection differs from what was last seen: it is new, gone or replaced.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // No session will follow, and the users are about to end.
            std::future::pending().await
        }
    }
}

impl SessionKeeper {
    /// Keeps the session until it has ended or must be closed. Returns the session that the next task has to close:
    /// this one, or else the previous one, if it may still be alive.
    async fn keep(
        self,
        previous: UnclosedSession,
        mut close: oneshot::Receiver<()>,
    ) -> UnclosedSession {
        // The previous session, until it is closed.
        let unclosed = Arc::new(Mutex::new(previous));
        let take_unclosed = || locked(&unclosed).take();
        let starting = async {
            tokio::time::sleep(self.settings.delay).await;
            match &self.settings.former {
                Some(former) => self.take_over(former, &unclosed).await,
                None => Ok(self.open(&unclosed).await),
            }
        };
        let started = tokio::select! {
            started = starting => Some(started),
            _ = &mut close => None,
        };
        let mut opened = match started {
            Some(Ok(opened)) => opened,
            // The session of the previous process could not be resumed.
            Some(Err(former)) => return former,
            // The request to close came before a session was ready.
            None => return take_unclosed(),
        };
        loop {
            let session = opened.connection.client.session().clone();
            self.settings.connections.send_replace(Some(opened.connection));
            let end = tokio::select! {
                end = &mut opened.ended => end,
                _ = &mut close => {
                    self.settings.connections.send_replace(None);
                    // When the last client is dropped, the library closes the session and reports its end.
                    let ended = timeout(close_limit(&self.settings.zookeeper), opened.ended).await;
                    let is_closed = matches!(ended, Ok(Ok(ended)) if ended.session_has_ended);
                    return if is_closed { take_unclosed() } else { Some(session) };
                }
            };
            // The users must lose the connection before `end` is dropped: see `EndedConnection`. (`end` is an error if
            // the task of the connection has panicked.)
            self.settings.connections.send_replace(None);
            if end.is_ok_and(|ended| ended.session_has_ended) {
                self.report_lost(&session, "the session has ended");
                // The library may be wrong about the end, so the task of the next session closes this one first.
                return Some(session);
            }
            (self.events)(SessionEvent::Disconnected);
            warn!("{}: {DISCONNECTED}; reconnecting", self.name(Some(&session)));
            self.set_problem(DISCONNECTED);
            let resumed = tokio::select! {
                resumed = self.resume(&session, DISCONNECTED) => resumed,
                _ = &mut close => return Some(session),
            };
            let (reopened, sent_at) = match resumed {
                Ok(resumed) => resumed,
                Err(lost) => return lost.or_else(take_unclosed),
            };
            opened = reopened;
            self.report_connected(&opened);
            (self.events)(SessionEvent::Resumed { timeout: opened.timeout, sent_at });
        }
    }

    /// Resumes the session of the previous process. Sets `unclosed` to that session at once, because the session must be
    /// closed if this future is dropped early. Fails as [`Self::resume`] does.
    async fn take_over(
        &self,
        former: &SavedSession,
        unclosed: &Mutex<UnclosedSession>,
    ) -> Result<OpenedConnection, UnclosedSession> {
        let session = former.session();
        *locked(unclosed) = Some(session.clone());
        let what = "the session of the process before is not resumed yet";
        let (opened, sent_at) = self.resume(&session, what).await?;
        let record = former.record();
        let restart = SessionRestart {
            down_for: self.settings.clock.now().since(former.noted_at()),
            restarts: former.restarts.saturating_add(1),
        };
        if let Some(file) = &self.settings.file {
            // The smallest timeout that the session ever had counts: see `LeasedSession::resumed`.
            let timeout = opened.timeout.min(record.timeout);
            let now = self.settings.clock.now();
            file.note_taken_over(timeout, restart.restarts, now);
        }
        info!(
            session = %record.session,
            down_for_ms = restart.down_for.as_millis(),
            restarts = restart.restarts,
            "resumed the session of the process before"
        );
        self.settings.link.send_modify(|link| link.restart = Some(restart));
        self.report_connected(&opened);
        let timeout = opened.timeout;
        (self.events)(SessionEvent::TakenOver { record, timeout, sent_at });
        *locked(unclosed) = None;
        Ok(opened)
    }

    /// Opens a new session, trying until that succeeds or the caller drops this future.
    async fn open(&self, previous: &Arc<Mutex<UnclosedSession>>) -> OpenedConnection {
        let SessionSettings { zookeeper, clock, file, .. } = &self.settings;
        let mut backoff = Backoff::new();
        let what = format!("no session with ZooKeeper at {}", zookeeper.hosts);
        let mut reporter = self.reporter(None, what);
        loop {
            let sent_at = clock.now();
            match self.open_once(previous).await {
                Ok(opened) => {
                    let session = opened.connection.client.session().clone();
                    if let Some(file) = file {
                        file.save(&session, opened.timeout, clock.now());
                    }
                    self.report_connected(&opened);
                    let id = SessionId(session.id().0);
                    let timeout = opened.timeout;
                    (self.events)(SessionEvent::Opened { session: id, timeout, sent_at });
                    return opened;
                }
                Err(failure) => reporter.report(failure),
            }
            backoff.wait().await;
        }
    }

    /// Opens a new session, and closes the previous one over another connection. On failure, `previous` still has the session
    /// to close.
    async fn open_once(
        &self,
        previous: &Arc<Mutex<UnclosedSession>>,
    ) -> Result<OpenedConnection, Failure> {
        let SessionSettings { zookeeper, credentials, clock, .. } = &self.settings;
        let opened = connect(zookeeper, credentials, None, &self.left_servers).await?;
        let unclosed = locked(previous).clone();
        if let Some(session) = unclosed {
            // Closing the old session takes a handshake, which keeps that session alive if the request to close it then
            // fails. So it is closed only if the servers answer requests, and is left to expire until then.
            match opened.connection.check("/").await {
                Err(error) if !is_server_answer(&error) => return Err(error.into()),
                _ => {}
            }
            // The old znode should be gone before a new one is created. If that takes long, the new session is already
            // used meanwhile.
            close_in_time(*clock, zookeeper, credentials, session, previous.clone()).await;
        }
        Ok(opened)
    }

    /// Tries to resume the session for as long as the servers keep it without requests. `what` is the beginning of the
    /// sentence in which a failure is reported.
    ///
    /// Returns the connection, and when the successful attempt began: the session was certainly alive at that time. On
    /// failure, another session has to be opened; the error has this session if it may still be alive.
    async fn resume(
        &self,
        session: &SessionInfo,
        what: &str,
    ) -> Result<(OpenedConnection, Moment), UnclosedSession> {
        let SessionSettings { zookeeper, credentials, clock, .. } = &self.settings;
        let lost_at = clock.now();
        let mut backoff = Backoff::new();
        let mut reporter = self.reporter(Some(session), what.to_owned());
        loop {
            let sent_at = clock.now();
            let resuming =
                connect(zookeeper, credentials, Some(session.clone()), &self.left_servers);
            match resuming.await {
                Ok(opened) => return Ok((opened, sent_at)),
                Err(Failure::Expired) => {
                    self.report_lost(session, "the session has expired");
                    return Err(None);
                }
                Err(failure) => reporter.report(failure),
            }
            if clock.now().since(lost_at) > zookeeper.session_timeout {
                self.report_lost(session, "no server was reached for as long as the session lasts");
                return Err(Some(session.clone()));
            }
            backoff.wait().await;
        }
    }

    fn reporter(&self, session: Option<&SessionInfo>, what: String) -> FailureReporter<'_> {
        FailureReporter::new(&self.settings, self.name(session), what)
    }

    /// Returns the session's name in the log.
    fn name(&self, session: Option<&SessionInfo>) -> String {
        let purpose = self.settings.purpose;
        match session {
            Some(session) => format!("{purpose} session {}", SessionId(session.id().0)),
            None => format!("{purpose} session"),
        }
    }

    /// Reports that the session has ended, or must be given up, so that its owner opens another one.
    fn report_lost(&self, session: &SessionInfo, why: &str) {
        warn!("{}: {why}; opening another", self.name(Some(session)));
        self.set_problem(why);
        (self.events)(SessionEvent::Lost);
    }

    fn set_problem(&self, problem: &str) {
        self.settings.link.send_modify(|link| {
            link.connected = false;
            link.problem = Some(problem.to_owned());
        });
    }

    fn report_connected(&self, opened: &OpenedConnection) {
        let id = SessionId(opened.connection.client.session_id().0);
        let server = opened.connection.server();
        let timeout = opened.timeout;
        info!(
            "{} session {id}: connected to ZooKeeper at {server}, timeout {timeout:?}",
            self.settings.purpose
        );
        self.settings.link.send_modify(|link| {
            link.session = Some((id, timeout));
            link.connected = true;
            link.server = Some(server.into());
            link.granted = Some(opened.connection.client.session_timeout());
            link.problem = None;
        });
    }
}

/// Returns the longest time to wait for the end of a session. The limit is short, because the wait delays the next
/// session, or the end of the process.
fn close_limit(settings: &Zookeeper) -> Duration {
    (settings.session_timeout / 4).min(Duration::from_secs(1))
}

fn locked(session: &Mutex<UnclosedSession>) -> MutexGuard<'_, UnclosedSession> {
    session.lock().expect("no panic while it is held")
}

/// Closes a session that was given up. Returns it if it may still be alive.
pub(crate) async fn close_session(
    clock: Clock,
    settings: &Zookeeper,
    credentials: &Arc<Credentials>,
    session: SessionInfo,
) -> UnclosedSession {
    let unclosed = Arc::new(Mutex::new(Some(session.clone())));
    close_in_time(clock, settings, credentials, session, unclosed.clone()).await;
    locked(&unclosed).take()
}

/// Closes a session, and clears `unclosed` when it has ended. Waits only for a limited time, while a task goes on to close
/// the session.
async fn close_in_time(
    clock: Clock,
    settings: &Zookeeper,
    credentials: &Arc<Credentials>,
    session: SessionInfo,
    unclosed: Arc<Mutex<UnclosedSession>>,
) {
    let closing = close_through_any(clock, settings.clone(), credentials.clone(), session);
    let closing = tokio::spawn(async move {
        if closing.await {
            *locked(&unclosed) = None;
        }
    });
    let _goes_on = timeout(close_limit(settings), closing).await;
}

const DISCONNECTED: &str = "lost connection to ZooKeeper";

/// Closes a session through any server that answers, and logs the outcome. Returns true if the session has ended, and false
/// if no server closed it in time, so that its znodes exist until the session expires.
async fn close_through_any(
    clock: Clock,
    settings: Zookeeper,
    credentials: Arc<Credentials>,
    session: SessionInfo,
) -> bool {
    let id = SessionId(session.id().0);
    info!(session = %id, "closing the previous session");
    let mut backoff = Backoff::new();
    let begun_at = clock.now();
    // No server was left: any that answers can close the session.
    let left_servers = LeftServers::none(clock);
    // Each attempt may keep the session alive for another session timeout, by its handshake. So stop soon.
    while clock.now().since(begun_at) < settings.session_timeout / 2 {
        match connect(&settings, &credentials, Some(session.clone()), &left_servers).await {
            Ok(OpenedConnection { connection, ended, .. }) => {
                // When the last client is dropped, the library closes the session and reports its end.
                drop(connection);
                let ended = timeout(settings.session_timeout / 4, ended).await;
                if matches!(ended, Ok(Ok(ended)) if ended.session_has_ended) {
                    info!(session = %id, "the previous session is closed");
                    return true;
                }
            }
            Err(Failure::Expired) => {
                info!(session = %id, "the previous session has ended");
                return true;
            }
            Err(failure) => debug!("the previous session is not closed yet: {}", failure.reason()),
        }
        backoff.wait().await;
    }
    warn!(
        session = %id,
        "no server closed the previous session: its znode exists until the servers end the session, {:?} and a tick from now \
         at most",
        settings.session_timeout,
    );
    false
}

/// The delay before the next attempt. It doubles with each attempt up to a limit, and is random in part, so that members do
/// not try at the same time.
struct Backoff(Duration);

impl Backoff {
    const CAP: Duration = Duration::from_secs(2);

    fn new() -> Self {
        Self(Duration::from_millis(50))
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.0 = (self.0 * 2).min(Self::CAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::security::{AclPolicy, Security};
    use std::io::{self, Read, Seek};
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    const LIMIT: Duration = Duration::from_secs(30);

    /// Servers that grant sessions, close them, and know no znode.
    struct FakeServers {
        granted: Mutex<i64>,
        /// At which server a session was resumed, or was tried to be.
        resumed: Mutex<Vec<usize>>,
        closed: watch::Sender<Vec<i64>>,
        /// The first server at which a session is resumed hangs. Another waits for this.
        may_resume: watch::Sender<bool>,
    }

    impl FakeServers {
        async fn serve(&self, number: usize, client: &mut TcpStream) -> io::Result<()> {
            let greeting = frame(client).await?;
            let mut session = i64::from_be_bytes(greeting[16..24].try_into().unwrap());
            if session == 0 {
                let mut granted = self.granted.lock().unwrap();
                *granted += 1;
                session = *granted;
            } else {
                let tries = {
                    let mut resumed = self.resumed.lock().unwrap();
                    resumed.push(number);
                    resumed.len()
                };
                if tries == 1 {
                    return std::future::pending().await;
                }
                let mut may_resume = self.may_resume.subscribe();
                may_resume.wait_for(|may| *may).await.map_err(io::Error::other)?;
            }
            let mut granted = vec![0; 4];
            granted.extend(&greeting[12..16]);
            granted.extend(session.to_be_bytes());
            granted.extend(16_i32.to_be_bytes());
            granted.extend([7; 16]);
            granted.push(0);
            answer(client, &granted).await?;
            loop {
                let request = frame(client).await?;
                let xid = &request[..4];
                let kind = i32::from_be_bytes(request[4..8].try_into().unwrap());
                let error: i32 = match kind {
                    // A ping, and the end of the session. There is no znode for any other request.
                    11 | -11 => 0,
                    _ => -101,
                };
                answer(client, &[xid, &[0; 8], &error.to_be_bytes()].concat()).await?;
                if kind == -11 {
                    self.closed.send_modify(|closed| closed.push(session));
                }
            }
        }
    }

    async fn frame(client: &mut TcpStream) -> io::Result<Vec<u8>> {
        let length = client.read_i32().await?;
        let mut frame = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        client.read_exact(&mut frame).await?;
        Ok(frame)
    }

    async fn answer(client: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
        let length = i32::try_from(frame.len()).map_err(io::Error::other)?;
        client.write_all(&[&length.to_be_bytes(), frame].concat()).await
    }

    #[tokio::test]
    async fn the_session_before_is_closed_by_whichever_server_answers_while_the_new_one_is_used() {
        let log = Arc::new(tempfile::tempfile().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::clone(&log)).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let servers = Arc::new(FakeServers {
            granted: Mutex::default(),
            resumed: Mutex::default(),
            closed: watch::Sender::default(),
            may_resume: watch::Sender::default(),
        });
        let mut hosts = vec![];
        for number in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            hosts.push(listener.local_addr().unwrap().to_string());
            let servers = Arc::clone(&servers);
            tokio::spawn(async move {
                while let Ok((mut client, _)) = listener.accept().await {
                    let servers = Arc::clone(&servers);
                    tokio::spawn(async move {
                        let _client_gone = servers.serve(number, &mut client).await;
                    });
                }
            });
        }
        let security =
            Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: false };
        // A server that hangs is given up after a quarter of it.
        let session_timeout = Duration::from_secs(4);
        let settings = Zookeeper { hosts: hosts.join(","), session_timeout, security };
        let clock = Clock::system();
        let credentials = Credentials::of(&settings);
        let left = LeftServers::none(clock);
        let opened = connect(&settings, &credentials, None, &left).await.ok().unwrap();
        let before = opened.connection.client.session().clone();
        opened.connection.give_up();
        opened.ended.await.unwrap();

        let link = watch::Sender::default();
        let settings = SessionSettings {
            zookeeper: settings,
            credentials,
            clock,
            link,
            purpose: "election",
            delay: Duration::ZERO,
            connections: watch::Sender::new(None),
            file: None,
            former: None,
        };
        let may_resume = servers.may_resume.clone();
        let events = move |event| {
            if matches!(event, SessionEvent::Opened { .. }) {
                may_resume.send_replace(true);
            }
        };
        let session = SessionTask::open(settings, Some(before), Box::new(events));

        let mut closed = servers.closed.subscribe();
        let is_closed = closed.wait_for(|closed| closed.contains(&1));
        timeout(LIMIT, is_closed).await.expect("the previous session is closed").unwrap();
        let resumed = servers.resumed.lock().unwrap().clone();
        assert!(resumed.contains(&0) && resumed.contains(&1), "both were tried: {resumed:?}");
        let left_open = timeout(LIMIT, session.close().await).await.expect("it ends");
        assert!(left_open.is_none(), "neither session may live on");
        let mut said = String::new();
        (&*log).rewind().unwrap();
        (&*log).read_to_string(&mut said).unwrap();
        assert!(said.contains("the previous session is closed"), "{said}");
    }
}
