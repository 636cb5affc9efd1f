//! The locks and barriers that applications ask for, on a session of their own: opened at the first use, closed when none
//! was asked for during a minute.
//!
//! - `session`: carries out what the holdings want in one session. `watches`: the znodes of one holding. `readings`: those
//!   of one queue. `barrier_znodes`: those of one barrier.
//! - `reader`: reads queues and barriers for those who want to look, over the same session.
//! - `data`: what stands in a znode.

mod barrier_znodes;
mod data;
mod reader;
mod readings;
mod session;
mod watches;

use self::reader::QueueReader;
use self::session::HoldingsSession;
use super::cached::ChangeCounter;
use super::client::{Credentials, PreviousEnd, SessionSettings, UnclosedSession};
use super::queue::Reports;
use super::shared_config::{self, SharedConfig};
use crate::clock::{Alarm, Clock};
use crate::config::{RecipePaths, Zookeeper};
use crate::holdings::{
    Ask, Ended, HOLDINGS_MAX, HoldingName, HoldingView, HoldingsMeter, HoldingsRequests,
    ProcessName, Published,
};
use crate::shared_config::ConfigRequests;
use crate::status::ConnectionState;
use recipes::holding::{Action, End, Event, HoldingId, HoldingSpec, HoldingState, Holdings};
use recipes::{Margins, MemberId, Moment};
use std::collections::BTreeMap;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// The session is closed when nothing was asked for during this time.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// The time in which clients that hold a lock, or are inside a barrier, may release it when this member leaves. Otherwise it is left to
/// expire with the session: they were told until when they hold it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The timer of a runner that has nothing to wait for.
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
    fn path_of(&self, wanted: HoldingSpec, name: &HoldingName) -> Arc<str> {
        let root = match wanted {
            HoldingSpec::Lock(_) => &self.paths.locks,
            HoldingSpec::Barrier(_) => &self.paths.barriers,
        };
        format!("{root}/{name}").into()
    }
}

/// Runs the locks and barriers until told to stop. Returns whether none of their znodes is surely left.
pub async fn run_holdings(
    settings: HoldingsSettings,
    clock: Clock,
    (requests, config): (&mut HoldingsRequests, &mut ConfigRequests),
    stop: &mut oneshot::Receiver<()>,
) -> bool {
    let HoldingsRequests { asks, looks, meter } = requests;
    let runner = HoldingsRunner::new(settings.clone(), clock, meter.clone(), config);
    let sessions = runner.config.sessions();
    let link = runner.reports.link.subscribe();
    let reader = QueueReader::new(
        settings,
        clock,
        sessions,
        link,
        runner.reads.clone(),
        runner.changes.clone(),
    );
    let reading = async {
        reader.run(looks).await;
        pending().await
    };
    tokio::select! {
        is_closed = runner.run(asks, config, stop) => is_closed,
        never = reading => never,
    }
}

/// The loop's state.
struct HoldingsRunner {
    holdings: Holdings,
    settings: HoldingsSettings,
    clock: Clock,
    credentials: Arc<Credentials>,
    reports: Reports,
    session: Option<HoldingsSession>,
    /// The session before, if it may live on.
    unclosed: UnclosedSession,
    asked: BTreeMap<HoldingId, RequestedHolding>,
    /// Wait until those who asked give back what they asked for.
    releases: JoinSet<HoldingId>,
    last_id: HoldingId,
    alarm: Alarm,
    config: SharedConfig,
    /// Notified when a queue is about to be read.
    reads: Arc<Notify>,
    /// Counts what has begun or ended of the locks and barriers: what was read of them before may be outdated.
    changes: ChangeCounter,
    /// Until when to wait for those who hold a lock, or are inside a barrier; `None` unless this member leaves.
    leaves_at: Option<Moment>,
    meter: Arc<HoldingsMeter>,
}

/// One lock or barrier that was asked for, and is not gone.
struct RequestedHolding {
    wanted: HoldingSpec,
    name: HoldingName,
    path: Arc<str>,
    process: Option<ProcessName>,
    at: Moment,
    published: watch::Sender<Published>,
    ended: Option<Ended>,
}

/// Which holdings an event may have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangedHoldings {
    None,
    One(HoldingId),
    All,
}

impl HoldingsRunner {
    fn new(
        settings: HoldingsSettings,
        clock: Clock,
        meter: Arc<HoldingsMeter>,
        config: &ConfigRequests,
    ) -> Self {
        let config_settings = shared_config::ConfigSettings {
            root: settings.paths.config.clone(),
            acl: settings.zookeeper.security.acl,
        };
        // This has no other readers: a member's `/status` is about its election.
        let link = watch::Sender::new(ConnectionState::default());
        Self {
            holdings: Holdings::new(settings.margins, IDLE_AFTER),
            credentials: Credentials::of(&settings.zookeeper),
            reports: Reports::new(link, Arc::default()),
            session: None,
            unclosed: None,
            asked: BTreeMap::new(),
            releases: JoinSet::new(),
            last_id: HoldingId(0),
            alarm: Alarm::new().expect("one more file can be opened"),
            config: SharedConfig::new(config_settings, clock, config),
            reads: Arc::default(),
            changes: ChangeCounter::default(),
            leaves_at: None,
            meter,
            settings,
            clock,
        }
    }

    /// Of what is there at once, in this order: the end of the process; events of the session; the timer; what is given
    /// back; what is asked for; reads; the shared configuration.
    async fn run(
        mut self,
        asks: &mut mpsc::Receiver<Ask>,
        config: &mut ConfigRequests,
        stop: &mut oneshot::Receiver<()>,
    ) -> bool {
        loop {
            let leaves = self.leaves_at.is_some();
            if leaves && self.asked.keys().all(|id| self.has_left(*id)) {
                break;
            }
            let wake_at = self.holdings.wake_at();
            let latest = self.clock.now().after(LONGEST_WAIT);
            let event = tokio::select! {
                biased;
                _ = &mut *stop, if !leaves => {
                    self.begin_to_leave().await;
                    continue;
                }
                () = self.clock.sleep_until(self.leaves_at) => break,
                event = session_event(&mut self.session) => event,
                () = self.alarm.ring_at(wake_at.map_or(latest, |at| at.min(latest))) => Event::Woke,
                Some(released) = self.releases.join_next() => {
                    Event::Released(released.expect("it neither panics nor is cancelled"))
                }
                Some(ask) = asks.recv(), if !leaves => match self.take(ask) {
                    Some(event) => event,
                    None => continue,
                },
                () = self.reads.notified(), if !leaves => Event::Read,
                () = self.config.turn(&mut config.requests), if !leaves => {
                    Event::InUse(self.config.needs_session())
                }
            };
            self.step(event).await;
        }
        let now = self.clock.now();
        if self.asked.keys().any(|id| self.is_held(*id, now)) {
            // Were it dropped, the client library would end the session.
            mem::forget(self.session.take());
            return false;
        }
        self.step(Event::Stop).await;
        self.unclosed.is_none()
    }

    /// Tells all that their lock or barrier ends, and no longer waits for those that are not held.
    async fn begin_to_leave(&mut self) {
        let now = self.clock.now();
        self.leaves_at = Some(now.after(RELEASE_TIMEOUT));
        let ids: Vec<_> = self.asked.keys().copied().collect();
        for id in ids {
            let is_held = self.is_held(id, now);
            if let Some(asked) = self.asked.get_mut(&id) {
                asked.ended = asked.ended.or(Some(Ended::Stopped));
            }
            self.publish(id, now);
            if !is_held {
                self.step(Event::Released(id)).await;
            }
        }
    }

    fn is_held(&self, id: HoldingId, now: Moment) -> bool {
        let status = self.holdings.standing(id).map(|standing| standing.at(now));
        matches!(status, Some(HoldingState::Held { .. }))
    }

    /// Whether it has left its barrier, and is only to hear when others have.
    fn has_left(&self, id: HoldingId) -> bool {
        let standing = self.holdings.standing(id);
        let status = standing.as_ref().map(|standing| standing.at(self.clock.now()));
        let ticket = standing.and_then(|standing| standing.ticket());
        matches!((status, ticket), (Some(HoldingState::Leaving), None))
    }

    fn take(&mut self, ask: Ask) -> Option<Event> {
        let Ask { name, wanted, process, published, released } = ask;
        let path = self.settings.path_of(wanted, &name);
        if self.asked.len() >= HOLDINGS_MAX {
            published.send_modify(|published| published.ended = Some(Ended::TooMany));
            return None;
        }
        let id = HoldingId(self.last_id.0 + 1);
        self.last_id = id;
        debug!("{path}: asked for {wanted}");
        let at = self.clock.now();
        let ended = None;
        let asked = RequestedHolding { wanted, name, path, process, at, published, ended };
        self.asked.insert(id, asked);
        self.releases.spawn(async move {
            let _dropped = released.await;
            id
        });
        Some(Event::Asked(id, wanted))
    }

    /// Steps the holdings. What ended is published first, then it is acted on.
    async fn step(&mut self, event: Event) {
        let now = self.clock.now();
        let touched = match &event {
            Event::Asked(id, _) | Event::Released(id) | Event::Lock(id, _) => {
                ChangedHoldings::One(*id)
            }
            Event::Barrier(id, _) => ChangedHoldings::One(*id),
            Event::SessionOpened { .. }
            | Event::SessionResumed { .. }
            | Event::SessionLost
            | Event::Committed { .. }
            | Event::Woke
            | Event::Stop => ChangedHoldings::All,
            Event::InUse(_) | Event::Read => ChangedHoldings::None,
        };
        let is_lost = event == Event::SessionLost;
        let stops = event == Event::Stop;
        if let (Event::Released(id), Some(session)) = (&event, &self.session) {
            session.withdraw(*id);
        }
        let actions = self.holdings.step(now, event);
        for action in &actions {
            if let Action::Ended(id, end) = action {
                self.end(*id, *end, stops, now);
            }
        }
        match touched {
            ChangedHoldings::None => {}
            ChangedHoldings::One(id) => self.publish(id, now),
            ChangedHoldings::All => {
                let all: Vec<_> = self.asked.keys().copied().collect();
                all.into_iter().for_each(|id| self.publish(id, now));
            }
        }
        if is_lost {
            self.close_session().await;
        }
        for action in actions {
            self.perform(action, is_lost).await;
        }
    }

    fn end(&mut self, id: HoldingId, end: End, stops: bool, now: Moment) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        let RequestedHolding { wanted, name, .. } = &asked;
        match end {
            End::Lost(loss) => {
                self.meter.of(*wanted).lost.inc();
                warn!("{} {name}: lost: {loss}", kind(*wanted));
            }
            End::Released | End::AllLeft | End::Refused { .. } => {
                debug!("{} {name}: {end}", kind(*wanted));
            }
        }
        let ended = if stops { Ended::Stopped } else { end.into() };
        asked.ended = asked.ended.or(Some(ended));
        self.publish(id, now);
    }

    /// Publishes how one stands, and forgets it if nothing of it is left.
    fn publish(&mut self, id: HoldingId, now: Moment) {
        let Some(RequestedHolding { wanted, name, at, published, ended, .. }) = self.asked.get(&id)
        else {
            return;
        };
        let standing = self.holdings.standing(id);
        let is_over = standing.is_none();
        published.send_if_modified(|published| {
            let before = published.at(now);
            *published = Published { standing, ended: *ended };
            let judged = published.at(now);
            // Before it is published: a client that hears of the change must not be given a reading from before it.
            if mem::discriminant(&judged) != mem::discriminant(&before) || is_over {
                self.changes.note_change();
            }
            if let HoldingView::Held { token, .. } = judged
                && before.is_waiting()
            {
                self.meter.of(*wanted).waits.observe(now.since(*at).as_secs_f64());
                debug!("{} {name}: held, token {token}", kind(*wanted));
            }
            judged != before
        });
        if is_over {
            self.asked.remove(&id);
            if let Some(session) = &mut self.session {
                session.forget(id);
            }
        }
    }

    async fn perform(&mut self, action: Action, is_lost: bool) {
        match action {
            Action::OpenSession => self.open_session(is_lost),
            Action::CloseSession => self.close_session().await,
            Action::Renew { sent_at } => {
                if let Some(session) = &mut self.session {
                    session.renew(sent_at);
                }
            }
            Action::Lock(id, action) => {
                if let (Some(session), Some(asked)) = (&mut self.session, self.asked.get(&id)) {
                    session.perform_lock(id, &asked.path, asked.process.as_ref(), action);
                }
            }
            Action::Barrier(id, action) => {
                if let (Some(session), Some(asked)) = (&mut self.session, self.asked.get(&id)) {
                    session.perform_barrier(id, &asked.path, asked.process.as_ref(), action);
                }
            }
            Action::Ended(..) => {}
        }
    }

    fn open_session(&mut self, is_lost: bool) {
        let session = SessionSettings {
            settings: self.settings.zookeeper.clone(),
            credentials: self.credentials.clone(),
            clock: self.clock,
            link: self.reports.link.clone(),
            purpose: "locks",
            before: if is_lost { PreviousEnd::Ended } else { PreviousEnd::Closed },
            file: None,
            former: None,
        };
        let settings = self.settings.clone();
        let reports = self.reports.clone();
        let session = HoldingsSession::open(settings, session, self.unclosed.take(), reports);
        self.config.use_session(Some(session.handle()));
        self.session = Some(session);
    }

    async fn close_session(&mut self) {
        self.config.use_session(None);
        if let Some(session) = self.session.take() {
            self.unclosed = session.close().await;
            self.reports.link.send_modify(ConnectionState::forget_session);
        }
    }
}

fn kind(wanted: HoldingSpec) -> &'static str {
    match wanted {
        HoldingSpec::Lock(_) => "lock",
        HoldingSpec::Barrier(_) => "barrier",
    }
}

async fn session_event(session: &mut Option<HoldingsSession>) -> Event {
    match session {
        Some(session) => session.next_event().await,
        None => pending().await,
    }
}
