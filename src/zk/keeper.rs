//! Keeps one session alive over as many connections as it takes.

use super::connection::{Connection, End, Failure, Wire, connect, is_verdict};
use super::diagnosis::diagnose;
use super::passport::Passport;
use crate::clock::Clock;
use crate::config::Zookeeper;
use crate::desk::Link;
use recipes::election::{Event, Moment, SessionId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zookeeper::SessionInfo;

/// Whoever has given up its place comes back so much later. Its new session would be another burden on the
/// servers, in the few milliseconds in which the next one claims.
const MAKING_WAY: Duration = Duration::from_millis(50);

/// A session that may still own a znode: it is closed before another is opened.
pub(super) type Leftover = Option<SessionInfo>;

pub(super) struct Keeper {
    pub(super) settings: Zookeeper,
    pub(super) passport: Arc<Passport>,
    pub(super) clock: Clock,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) wire: watch::Sender<Option<Wire>>,
    pub(super) link: watch::Sender<Link>,
    pub(super) makes_way: bool,
}

/// Why there is no connection, found out beside the attempts to get one.
struct Trouble<'a> {
    keeper: &'a Keeper,
    /// Before the reason.
    what: String,
    /// What the log has said of it already.
    said: BTreeSet<String>,
    /// How the last cause was found.
    found: Option<Source>,
    /// At most one at a time. It ends with what the library said if it finds nothing.
    search: JoinSet<Result<String, Vague>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Seen by a look of our own: the next one that sees nothing disproves it.
    Look,
    /// Said by the servers, or known without them: nothing vaguer is told from then on.
    Verdict,
}

/// What the library makes of it, which may be another thing each time.
struct Vague(String);

impl Keeper {
    /// Ends when the session has ended, or when told to close it.
    pub(super) async fn keep(
        self,
        leftover: Leftover,
        mut close: oneshot::Receiver<()>,
    ) -> Leftover {
        let opening = async {
            if self.makes_way {
                tokio::time::sleep(MAKING_WAY).await;
            }
            self.open(leftover.clone()).await
        };
        let (mut session, mut connection) = tokio::select! {
            opened = opening => opened,
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
            self.tell_problem(LOST.into());
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
        let mut trouble =
            self.trouble(format!("no session with ZooKeeper at {}", self.settings.hosts));
        loop {
            let sent_at = self.clock.now();
            match trouble.beside(self.open_once(&mut leftover)).await {
                Ok(connection) => {
                    let session = connection.wire.client.session().clone();
                    self.tell_connected(&connection);
                    let id = SessionId(session.id().0);
                    let timeout = connection.timeout;
                    self.tell(Event::SessionOpened { session: id, timeout, sent_at });
                    return (session, connection);
                }
                Err(Failure::Expired) => {}
                Err(Failure::Unreachable(why)) => trouble.look_into(why),
                Err(Failure::Refused(why)) => trouble.tell(&why, Source::Verdict),
            }
            trouble.beside(pause.wait()).await;
        }
    }

    async fn open_once(&self, leftover: &mut Leftover) -> Result<Connection, Failure> {
        let connection = connect(&self.settings, &self.passport, None).await?;
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
        if let Ok(Connection { wire, ended, .. }) =
            connect(&self.settings, &self.passport, Some(old)).await
        {
            drop(wire);
            let _ended_or_lost = ended.await;
        }
    }

    /// Tries for as long as the servers would keep the session if they heard nothing of it.
    async fn resume(&self, session: &SessionInfo) -> Result<(Connection, Moment), Leftover> {
        let lost_at = self.clock.now();
        let mut pause = Pause::new();
        let mut trouble = self.trouble(LOST.to_owned());
        loop {
            let sent_at = self.clock.now();
            let resuming = connect(&self.settings, &self.passport, Some(session.clone()));
            match trouble.beside(resuming).await {
                Ok(connection) => return Ok((connection, sent_at)),
                Err(Failure::Expired) => {
                    self.lost("the session expired");
                    return Err(None);
                }
                Err(Failure::Unreachable(why)) => {
                    debug!("not resumed: {why}");
                    trouble.look_into(why);
                }
                Err(Failure::Refused(why)) => trouble.tell(&why, Source::Verdict),
            }
            if self.clock.now().since(lost_at) > self.settings.session_timeout {
                self.lost("no server was reached for as long as the session lasts");
                return Err(Some(session.clone()));
            }
            trouble.beside(pause.wait()).await;
        }
    }

    fn trouble(&self, what: String) -> Trouble<'_> {
        let (said, search) = (BTreeSet::new(), JoinSet::new());
        Trouble { keeper: self, what, said, found: None, search }
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

const LOST: &str = "the connection to ZooKeeper is lost";

impl Trouble<'_> {
    /// Does this, and whatever is found out in the meantime is told: no attempt waits for a reason.
    async fn beside<T>(&mut self, attempt: impl Future<Output = T>) -> T {
        let mut attempt = std::pin::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                done = &mut attempt => return done,
                Some(found) = self.search.join_next() => {
                    match found {
                        Ok(Ok(cause)) => self.tell(&cause, Source::Look),
                        Ok(Err(Vague(why))) if self.found != Some(Source::Verdict) => self.say(&why),
                        Ok(Err(_)) | Err(_) => {}
                    }
                }
            }
        }
    }

    /// Unless that is under way already.
    fn look_into(&mut self, why: String) {
        if self.found.is_none() {
            self.show(&why);
        }
        if self.search.is_empty() {
            let Keeper { settings, passport, .. } = self.keeper;
            let (settings, shown) = (settings.clone(), passport.last());
            let patience = settings.session_timeout / 4;
            // Where it slows nothing: it computes, and reads files.
            self.search.spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let found =
                    runtime.map(|runtime| runtime.block_on(diagnose(&settings, shown, patience)));
                found.ok().flatten().ok_or(Vague(why))
            });
        }
    }

    fn tell(&mut self, cause: &str, source: Source) {
        self.say(cause);
        self.found = Some(source);
    }

    /// Says so once, however often it is found again.
    fn say(&mut self, why: &str) {
        let problem = self.show(why);
        if self.said.insert(why.to_owned()) {
            warn!("{problem}; trying again until it is there");
        }
    }

    fn show(&self, why: &str) -> String {
        let problem = format!("{}: {why}", self.what);
        self.keeper.link.send_modify(|link| {
            link.connected = false;
            link.problem = Some(problem.clone());
        });
        problem
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::security::{Acl, Security};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_the_library_makes_of_it_is_not_told_instead_of_a_cause() {
        // Nothing is wrong with it that can be seen.
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = server.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            while let Ok((mut visitor, _)) = server.accept().await {
                let _gone_already = visitor.write_all(b"Zookeeper version: 3.8.0\n").await;
            }
        });
        let security =
            Security { tls: None, login: None, acl: Acl::Open, is_open_by_choice: false };
        let settings = Zookeeper { hosts, session_timeout: Duration::from_secs(4), security };
        let (link, told) = watch::channel(Link::default());
        let keeper = Keeper {
            passport: Passport::of(&settings),
            settings,
            clock: Clock::system(),
            events: mpsc::unbounded_channel().0,
            wire: watch::channel(None).0,
            link,
            makes_way: false,
        };
        let told = || told.borrow().problem.clone().unwrap_or_default();
        let mut trouble = keeper.trouble("no session".into());
        let look_into = async |trouble: &mut Trouble<'_>, why: &str| {
            trouble.look_into(why.into());
            while !trouble.search.is_empty() {
                trouble.beside(tokio::time::sleep(Duration::from_millis(1))).await;
            }
        };

        look_into(&mut trouble, "no available hosts").await;
        assert_eq!(told(), "no session: no available hosts");
        trouble.tell("a wrong password", Source::Verdict);
        for vague in ["no available hosts", "the connection is lost"] {
            look_into(&mut trouble, vague).await;
            assert_eq!(told(), "no session: a wrong password");
        }

        // What is found is another matter.
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        look_into(&mut trouble, "no available hosts").await;
        assert!(told().contains("cannot be reached"), "{}", told());
    }
}
