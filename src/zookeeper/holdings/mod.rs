//! The locks and barriers that applications request, called holdings, on a session of their own. The session is opened at
//! the first request, and closed when nothing has needed it for a minute.
//!
//! - `session`: performs the actions of the holdings in one session. `readings`: reads a queue once for all holdings that
//!   wait in it. `barrier_znodes`: reads and changes the znodes of one barrier.
//! - `reader`: answers requests to read queues and barriers, over the same session.
//! - `data`: encodes and decodes the data of a znode.

mod barrier_znodes;
mod data;
mod reader;
mod readings;
mod session;

use self::reader::QueueReader;
use self::session::HoldingsSession;
use super::client::{Connection, Credentials, SessionHandle, SessionSettings, UnclosedSession};
use super::queue::Reports;
use super::shared_config::SharedConfig;
use crate::cached::ChangeCounter;
use crate::clock::{Alarm, Clock};
use crate::config::{RecipePaths, Zookeeper};
use crate::holdings::{
    HoldRequest, HoldingName, HoldingsMeter, HoldingsRequests, ProcessName, Published,
};
use crate::shared_config::ConfigRequests;
use crate::status::ConnectionState;
use recipes::holding::{
    Action, End, Event, HoldingId, HoldingKind, HoldingSpec, HoldingState, Holdings,
};
use recipes::{Margins, MemberId, Moment, SessionEvent};
use std::collections::BTreeMap;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// The session is closed when nothing has needed it for this long.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// How long a leaving member waits for clients to release their locks and leave their barriers. After that, the member
/// lets the session expire instead of closing it, so that no lock ends before the time that its client was given.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The timer rings after this time at the latest, also if nothing is due.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The settings of locks and barriers.
#[derive(Clone, Debug)]
pub struct HoldingsSettings {
    pub zookeeper: Zookeeper,
    pub paths: RecipePaths,
    pub margins: Margins,
    pub member: MemberId,
}

impl HoldingsSettings {
    /// Returns the path below which all locks, or all barriers, have their paths.
    fn root(&self, kind: HoldingKind) -> &str {
        match kind {
            HoldingKind::Lock => &self.paths.locks,
            HoldingKind::Barrier => &self.paths.barriers,
        }
    }
}

/// Runs the locks and barriers until stopped. Returns true only if all of their znodes are known to be deleted.
pub async fn run_holdings(
    settings: HoldingsSettings,
    credentials: Arc<Credentials>,
    clock: Clock,
    (requests, config): (&mut HoldingsRequests, &mut ConfigRequests),
    stop: &mut oneshot::Receiver<()>,
) -> bool {
    let HoldingsRequests { hold_requests, read_requests, meter } = requests;
    let acl = settings.zookeeper.security.acl;
    let connections = watch::Sender::new(None);
    let session = SessionHandle::of(&connections);
    // Only this module reads this state: `/status` shows the connection of the election.
    let link = watch::Sender::new(ConnectionState::default());
    let runner = HoldingsRunner {
        holdings: Holdings::new(settings.margins, IDLE_AFTER),
        settings: settings.clone(),
        clock,
        credentials,
        reports: Reports::new(link, Arc::default()),
        session: None,
        unclosed: None,
        requested: BTreeMap::new(),
        releases: JoinSet::new(),
        last_id: HoldingId(0),
        alarm: Alarm::new().expect("one more file can be opened"),
        config: SharedConfig::new(&settings.paths.config, acl, session.clone(), clock, config),
        connections,
        about_to_read: Arc::default(),
        changes: ChangeCounter::default(),
        leave_deadline: None,
        meter: meter.clone(),
    };
    let reader = QueueReader {
        settings,
        clock,
        session,
        link: runner.reports.link.subscribe(),
        about_to_read: runner.about_to_read.clone(),
        changes: runner.changes.clone(),
        names: BTreeMap::new(),
        queues: BTreeMap::new(),
        barriers: BTreeMap::new(),
    };
    // The reader ends when all senders of requests are dropped. The runner goes on until it is stopped.
    let reading = async {
        reader.run(read_requests).await;
        pending().await
    };
    tokio::select! {
        is_closed = runner.run(hold_requests, config, stop) => is_closed,
        never = reading => never,
    }
}

/// Runs the loop of locks and barriers: takes an event, steps [`Holdings`], publishes the new states, and performs the
/// actions.
struct HoldingsRunner {
    holdings: Holdings,
    settings: HoldingsSettings,
    clock: Clock,
    credentials: Arc<Credentials>,
    reports: Reports,
    /// The current session; `None` while nothing needs a session.
    session: Option<HoldingsSession>,
    /// The previous session, if it may still be alive.
    unclosed: UnclosedSession,
    /// The requested locks and barriers that are not over yet.
    requested: BTreeMap<HoldingId, RequestedHolding>,
    /// Tasks that wait until a client releases its lock, leaves its barrier, or stops waiting.
    releases: JoinSet<HoldingId>,
    last_id: HoldingId,
    /// Rings when [`Holdings::wake_at`] has come.
    alarm: Alarm,
    config: SharedConfig,
    /// Publishes the connection of the current session, to the shared configuration and the reader as well.
    connections: watch::Sender<Option<Connection>>,
    /// Notified when a queue or barrier is about to be read for a client. The reading needs a session.
    about_to_read: Arc<Notify>,
    /// Counts the changes of locks and barriers: a reading that began before the last change may be outdated.
    changes: ChangeCounter,
    /// The moment until which a leaving member waits for clients that hold a lock or are inside a barrier; `None`
    /// unless this member is leaving.
    leave_deadline: Option<Moment>,
    meter: Arc<HoldingsMeter>,
}

/// A requested lock or barrier that is not over yet.
struct RequestedHolding {
    wanted: HoldingSpec,
    name: HoldingName,
    path: Arc<str>,
    process: Option<ProcessName>,
    requested_at: Moment,
    /// Publishes the state to the client. Dropped when the holding is over.
    publisher: watch::Sender<Published>,
    /// The end, once it was reported. The entry exists until the znode is deleted too.
    ended: Option<End>,
}

impl HoldingsRunner {
    /// Runs until this member has left, after a stop. Returns true only if all znodes are known to be deleted.
    ///
    /// If several events are ready, they are taken in this order: the stop, or the deadline for leaving; events of the
    /// session; the timer; releases; new requests; reads; the shared configuration.
    async fn run(
        mut self,
        hold_requests: &mut mpsc::Receiver<HoldRequest>,
        config: &mut ConfigRequests,
        stop: &mut oneshot::Receiver<()>,
    ) -> bool {
        loop {
            let is_leaving = self.leave_deadline.is_some();
            // Do not wait for a holding that has left its barrier: it has no znode, and waits only for others.
            if is_leaving && self.requested.keys().all(|id| self.has_left(*id)) {
                break;
            }
            let wake_at = self.holdings.wake_at();
            let latest = self.clock.now().after(LONGEST_WAIT);
            let event = tokio::select! {
                biased;
                _ = &mut *stop, if !is_leaving => {
                    self.begin_to_leave().await;
                    continue;
                }
                () = self.clock.sleep_until(self.leave_deadline) => break,
                event = session_event(&mut self.session) => event,
                () = self.alarm.ring_at(wake_at.map_or(latest, |at| at.min(latest))) => Event::Woke,
                Some(released) = self.releases.join_next() => {
                    Event::Released(released.expect("the task neither panics nor is cancelled"))
                }
                Some(request) = hold_requests.recv(), if !is_leaving => self.register(request),
                () = self.about_to_read.notified(), if !is_leaving => Event::Read,
                () = self.config.handle_next(&mut config.requests), if !is_leaving => {
                    Event::InUse(self.config.needs_session())
                }
            };
            self.step(event).await;
        }
        let now = self.clock.now();
        if self.requested.keys().any(|id| self.is_held(*id, now)) {
            // Not all clients have released in time. They may rely on their locks until their leases end, so let the
            // session expire: if it were dropped, the client library would close it, and others would get the locks.
            mem::forget(self.session.take());
            return false;
        }
        self.step(Event::Stop).await;
        self.unclosed.is_none()
    }

    /// Reports to all clients that their lock or barrier ends, and releases the locks and barriers that are not held.
    async fn begin_to_leave(&mut self) {
        let now = self.clock.now();
        self.leave_deadline = Some(now.after(RELEASE_TIMEOUT));
        let ids: Vec<_> = self.requested.keys().copied().collect();
        for id in ids {
            let is_held = self.is_held(id, now);
            if let Some(requested) = self.requested.get_mut(&id) {
                requested.ended = requested.ended.or(Some(End::Stopped));
            }
            self.publish(id, now);
            // A lock that is held is released by its client, which has just been notified.
            if !is_held {
                self.step(Event::Released(id)).await;
            }
        }
    }

    fn is_held(&self, id: HoldingId, now: Moment) -> bool {
        let state = self.holdings.standing(id).and_then(|standing| standing.at(now));
        matches!(state, Some(HoldingState::Held { .. }))
    }

    /// Returns true if this member has left the barrier and deleted its znode, and only waits until the others have
    /// left.
    fn has_left(&self, id: HoldingId) -> bool {
        let standing = self.holdings.standing(id);
        let state = standing.as_ref().and_then(|standing| standing.at(self.clock.now()));
        let ticket = standing.and_then(|standing| standing.ticket());
        matches!((state, ticket), (Some(HoldingState::Leaving), None))
    }

    /// Registers a client's request, and returns the event that passes it to [`Holdings`].
    fn register(&mut self, request: HoldRequest) -> Event {
        let HoldRequest { name, wanted, process, publisher, released } = request;
        let path: Arc<str> = format!("{}/{name}", self.settings.root(wanted.kind())).into();
        let id = HoldingId(self.last_id.0 + 1);
        self.last_id = id;
        debug!("{path}: asked for {wanted}");
        let requested_at = self.clock.now();
        let requested =
            RequestedHolding { wanted, name, path, process, requested_at, publisher, ended: None };
        self.requested.insert(id, requested);
        self.releases.spawn(async move {
            // The client releases the lock or leaves the barrier by dropping its end of the channel.
            let _dropped = released.await;
            id
        });
        Event::Requested(id, wanted)
    }

    /// Passes an event to [`Holdings`], and performs the actions that follow. Ends are published first, so that a client
    /// learns that it no longer holds a lock before an action frees the lock for others.
    async fn step(&mut self, event: Event) {
        let now = self.clock.now();
        // The holdings whose state the event may change.
        let affected = match &event {
            Event::Requested(id, _) | Event::Released(id) | Event::Place(id, _) => vec![*id],
            Event::InUse(_) | Event::Read => vec![],
            _ => self.requested.keys().copied().collect(),
        };
        let is_lost = event == Event::Session(SessionEvent::Lost);
        // If the holding is still joining, its create must not be sent any more.
        if let (Event::Released(id), Some(session)) = (&event, &self.session) {
            session.withdraw_join(*id);
        }
        let actions = self.holdings.step(now, event);
        for action in &actions {
            if let Action::Ended(id, end) = action {
                self.report_end(*id, *end, now);
            }
        }
        for id in affected {
            self.publish(id, now);
        }
        if is_lost {
            // Close the lost session before an action opens the next one.
            self.close_session().await;
        }
        for action in actions {
            self.perform(action).await;
        }
    }

    /// Logs and publishes the end of a holding.
    fn report_end(&mut self, id: HoldingId, end: End, now: Moment) {
        let Some(requested) = self.requested.get_mut(&id) else { return };
        let RequestedHolding { wanted, name, .. } = &requested;
        match end {
            End::Lost(loss) => {
                self.meter.of(*wanted).lost.inc();
                warn!("{} {name}: lost: {loss}", wanted.kind());
            }
            _ => debug!("{} {name}: {end}", wanted.kind()),
        }
        // The first end counts: a member that leaves sets `Stopped` before the end that follows from the release.
        requested.ended = requested.ended.or(Some(end));
        self.publish(id, now);
    }

    /// Publishes the state of a holding. Forgets the holding if it is over, that is, if it has ended and its znode is gone.
    fn publish(&mut self, id: HoldingId, now: Moment) {
        let Some(requested) = self.requested.get(&id) else { return };
        let RequestedHolding { wanted, name, requested_at, publisher, ended, .. } = requested;
        let standing = self.holdings.standing(id);
        let is_over = standing.is_none();
        publisher.send_if_modified(|current| {
            let previous = current.at(now);
            *current = Published { standing, ended: *ended };
            let state = current.at(now);
            // Count the change before it is published, so that a client that knows of the change never gets an older reading
            // of the queue. A renewed lease, or another number of entries ahead, does not count.
            if mem::discriminant(&state) != mem::discriminant(&previous) || is_over {
                self.changes.note_change();
            }
            if let HoldingState::Held { token, .. } = state
                && previous.is_waiting()
            {
                let waited = now.since(*requested_at);
                self.meter.of(*wanted).waits.observe(waited.as_secs_f64());
                debug!("{} {name}: held, token {token}", wanted.kind());
            }
            state != previous
        });
        if is_over {
            self.requested.remove(&id);
            if let Some(session) = &mut self.session {
                session.forget(id);
            }
        }
    }

    async fn perform(&mut self, action: Action) {
        match action {
            Action::OpenSession => self.open_session(),
            Action::CloseSession => self.close_session().await,
            Action::Renew { sent_at } => {
                if let Some(session) = &mut self.session {
                    session.renew(sent_at);
                }
            }
            Action::Place(id, action) => {
                if let Some(session) = &mut self.session
                    && let Some(requested) = self.requested.get(&id)
                {
                    session.perform(id, &requested.path, requested.process.as_ref(), action);
                }
            }
            // `step` has reported the end already.
            Action::Ended(..) => {}
        }
    }

    fn open_session(&mut self) {
        let session = SessionSettings {
            zookeeper: self.settings.zookeeper.clone(),
            credentials: self.credentials.clone(),
            clock: self.clock,
            link: self.reports.link.clone(),
            purpose: "locks",
            // A delay after a close is for the next head of an election. After a deletion of our znode, the join itself waits.
            delay: Duration::ZERO,
            connections: self.connections.clone(),
            file: None,
            former: None,
        };
        let settings = self.settings.clone();
        let reports = self.reports.clone();
        let session = HoldingsSession::open(settings, session, self.unclosed.take(), reports);
        self.session = Some(session);
    }

    async fn close_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.unclosed = session.close().await;
            self.reports.link.send_modify(ConnectionState::forget_session);
        }
    }
}

/// Waits for the next event of the session; without a session, forever.
async fn session_event(session: &mut Option<HoldingsSession>) -> Event {
    match session {
        Some(session) => session.next_event().await,
        None => pending().await,
    }
}
