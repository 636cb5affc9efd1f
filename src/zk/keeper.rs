//! Keeps one session alive over as many connections as it takes.

use super::connection::{Connection, End, Failure, Wire, connect, is_verdict};
use crate::clock::Clock;
use crate::config::Zookeeper;
use crate::desk::Link;
use crate::election::{Event, Moment, SessionId};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zookeeper::SessionInfo;

/// A session that may still own a znode: it is closed before another is opened.
pub(super) type Leftover = Option<SessionInfo>;

pub(super) struct Keeper {
    pub(super) settings: Zookeeper,
    pub(super) clock: Clock,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) wire: watch::Sender<Option<Wire>>,
    pub(super) link: watch::Sender<Link>,
}

impl Keeper {
    /// Ends when the session has ended, or when told to close it.
    pub(super) async fn keep(
        self,
        leftover: Leftover,
        mut close: oneshot::Receiver<()>,
    ) -> Leftover {
        let (mut session, mut connection) = tokio::select! {
            opened = self.open(leftover.clone()) => opened,
            _ = &mut close => return leftover,
        };
        loop {
            self.wire.send_replace(Some(connection.wire));
            let end = tokio::select! {
                end = &mut connection.ended => end.unwrap_or(End::Connection),
                _ = &mut close => {
                    self.wire.send_replace(None);
                    // The clients are dropped: the library closes the session and tells.
                    let ended = timeout(self.patience(), connection.ended).await;
                    let closed = matches!(ended, Ok(Ok(End::Session)));
                    return (!closed).then_some(session);
                }
            };
            self.wire.send_replace(None);
            if end == End::Session {
                self.lost("the session ended");
                // It may be the library alone that thinks so.
                return Some(session);
            }
            self.tell(Event::Disconnected);
            self.tell_problem("the connection to ZooKeeper is lost".into());
            let sent_at;
            let resumed = tokio::select! {
                resumed = self.resume(&session) => resumed,
                _ = &mut close => return Some(session),
            };
            match resumed {
                Ok((resumed, asked_at)) => {
                    connection = resumed;
                    sent_at = asked_at;
                }
                Err(leftover) => return leftover,
            }
            session = connection.wire.client.session().clone();
            self.tell_connected(&connection);
            let timeout = connection.timeout;
            self.tell(Event::SessionResumed { timeout, sent_at });
        }
    }

    async fn open(&self, mut leftover: Leftover) -> (SessionInfo, Connection) {
        let mut pause = Pause::new();
        loop {
            let sent_at = self.clock.now();
            match self.open_once(&mut leftover).await {
                Ok(connection) => {
                    let session = connection.wire.client.session().clone();
                    self.tell_connected(&connection);
                    let id = SessionId(session.id().0);
                    let timeout = connection.timeout;
                    self.tell(Event::SessionOpened { session: id, timeout, sent_at });
                    return (session, connection);
                }
                Err(Failure::Expired) => {}
                Err(Failure::Unreachable(why)) => self.tell_problem(self.unreachable(&why)),
            }
            pause.wait().await;
        }
    }

    async fn open_once(&self, leftover: &mut Leftover) -> Result<Connection, Failure> {
        let connection = connect(&self.settings, None).await?;
        if leftover.is_some() {
            // Every greeting keeps the old session alive. So it is asked for only when servers not
            // only greet but answer; else it is left alone, and ends by itself.
            match connection.wire.check("/").await {
                Err(error) if !is_verdict(&error) => return Err(error.into()),
                _ => {}
            }
        }
        if let Some(old) = leftover.take() {
            info!(session = %old.id(), "closing the session before");
            if timeout(self.patience(), self.close(old)).await.is_err() {
                warn!("the session before may live until the servers end it");
            }
        }
        Ok(connection)
    }

    async fn close(&self, old: SessionInfo) {
        if let Ok(Connection { wire, ended, .. }) = connect(&self.settings, Some(old)).await {
            drop(wire);
            let _ended_or_lost = ended.await;
        }
    }

    /// Tries for as long as the servers would keep the session if they heard nothing of it.
    async fn resume(&self, session: &SessionInfo) -> Result<(Connection, Moment), Leftover> {
        let lost_at = self.clock.now();
        let mut pause = Pause::new();
        loop {
            let sent_at = self.clock.now();
            match connect(&self.settings, Some(session.clone())).await {
                Ok(connection) => return Ok((connection, sent_at)),
                Err(Failure::Expired) => {
                    self.lost("the session expired");
                    return Err(None);
                }
                Err(Failure::Unreachable(why)) => debug!("not resumed: {why}"),
            }
            if self.clock.now().since(lost_at) > self.settings.session_timeout {
                self.lost("no server was reached for as long as the session lasts");
                return Err(Some(session.clone()));
            }
            pause.wait().await;
        }
    }

    fn unreachable(&self, why: &str) -> String {
        format!("no session with ZooKeeper at {}: {why}", self.settings.hosts)
    }

    /// How long a session's end is waited for, with the driver waiting too.
    fn patience(&self) -> Duration {
        (self.settings.session_timeout / 4).min(Duration::from_secs(1))
    }

    fn lost(&self, why: &str) {
        self.tell_problem(why.into());
        self.tell(Event::SessionLost);
    }

    fn tell(&self, event: Event) {
        let _nobody_listens = self.events.send(event);
    }

    /// Says so once, however often it is tried again.
    fn tell_problem(&self, problem: String) {
        let was_connected = self.link.borrow().connected;
        let was_silent = self.link.borrow().problem.is_none();
        if was_connected || was_silent {
            warn!("{problem}; trying again until it is there");
        }
        self.link.send_modify(|link| {
            link.connected = false;
            link.problem = Some(problem);
        });
    }

    fn tell_connected(&self, connection: &Connection) {
        let id = SessionId(connection.wire.client.session_id().0);
        info!(session = %id, timeout_ms = connection.timeout.as_millis(), "connected to ZooKeeper");
        self.link.send_replace(Link {
            session: Some((id, connection.timeout)),
            connected: true,
            problem: None,
        });
    }
}

/// A back-off: doubling, capped, and jittered so that members do not try in step.
struct Pause(Duration);

impl Pause {
    const CAP: Duration = Duration::from_secs(2);

    fn new() -> Self {
        Self(Duration::from_millis(50))
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.0 = (self.0 * 2).min(Self::CAP);
    }
}
