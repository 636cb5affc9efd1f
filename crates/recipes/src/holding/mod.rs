//! The locks and barriers that applications request, all in one session.
//!
//! The session is opened at the first request, kept alive by one heartbeat for all holdings, and closed after it was
//! idle for a while. All holdings share its lease.
//!
//! A runner owns one [`Holdings`] and calls it in the order that [`crate`] describes: [`Holdings::step`] for each
//! event, then [`Holdings::wake_at`], and [`Holdings::standing`] for the state to publish, evaluated at the moment of
//! publishing with [`HoldingSnapshot::at`]. [`Action::Ended`] comes before the actions that delete the znode.
//!
//! A runner promises what [`crate`] lists for moments, sessions and own znodes, and in addition:
//!
//! - a [`HoldingId`] is used for only one holding;
//! - after a create whose outcome is unknown, the runner looks for the znode before it creates another: the znode
//!   belongs to the session, and its data has the id of the holding;
//! - each own znode is watched, and read again after each resumption; then each znode ahead that was watched is watched
//!   again. If the own znode was lost before a znode ahead disappeared, the loss is reported first;
//! - if several readings for one holding are under way, only the last is reported;
//! - the actions of one holding are carried out in their order.

mod display;

use crate::barrier;
use crate::lease::LeasePolicy;
use crate::lock::Mode;
use crate::place::{self, Effect, Place};
use crate::session::{Duty, LeasedSession};
use crate::{FencingToken, Margins, Moment, Sequence, SessionEvent, SessionId, Ticket};
use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU32;
use std::time::Duration;

/// Identifies one requested lock or barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldingId(pub u64);

/// A lock or barrier that an application can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldingSpec {
    Lock(Mode),
    /// A barrier that opens when this many members are present.
    Barrier(NonZeroU32),
}

/// The recipe of a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldingKind {
    Lock,
    Barrier,
}

impl HoldingSpec {
    pub fn kind(self) -> HoldingKind {
        match self {
            Self::Lock(_) => HoldingKind::Lock,
            Self::Barrier(_) => HoldingKind::Barrier,
        }
    }

    /// Returns the prefix of the names of the znodes for this lock or barrier.
    pub fn prefix(self) -> String {
        match self {
            Self::Lock(mode) => mode.prefix(),
            Self::Barrier(size) => barrier::prefix(size),
        }
    }
}

/// The inputs: requests of applications, answers and notifications from the servers, and the time. The runner delivers
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An application requests a lock or barrier. A new holding joins its queue or barrier.
    Requested(HoldingId, HoldingSpec),
    /// The application stops waiting, releases the lock, or leaves the barrier.
    Released(HoldingId),
    /// The session begins, ends, or moves to another connection.
    Session(SessionEvent),
    /// A quorum committed the heartbeat that was sent at this moment.
    Committed { sent_at: Moment },
    /// An event of the place of this holding among the znodes of its lock or barrier.
    Place(HoldingId, place::Event),
    /// The moment of [`Holdings::wake_at`] has come.
    Woke,
    /// Whether something besides the holdings, such as the shared configuration, needs the session from now on. If so,
    /// the session stays open.
    InUse(bool),
    /// A lock or barrier is about to be read over the session, for an operator. The session stays open for a while, but
    /// reading requires no lease, and so no heartbeats.
    Read,
    /// The member stops: all holdings end for good.
    Stop,
}

/// The outputs, which the runner carries out in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Open a session. The one before, if any, has ended.
    OpenSession,
    /// End the session, and with it all znodes of the holdings.
    CloseSession,
    /// Send a heartbeat: a write that changes nothing, and that a quorum commits.
    Renew { sent_at: Moment },
    /// Perform an action of the place of this holding.
    Place(HoldingId, place::Action),
    /// Report to the application that it no longer waits for the lock or barrier, or no longer holds it.
    Ended(HoldingId, End),
}

/// How a holding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The application released it, or stopped waiting.
    Released,
    /// All members have left the barrier.
    AllLeft,
    /// The name is already in use for a lock with a different mode or number of slots, or for a barrier of a different
    /// size.
    Refused { found: HoldingSpec },
    /// The lock was held, or the member was inside the barrier, until it was lost for this reason.
    Lost(Loss),
    /// [`Holdings::MAX`] locks and barriers are already requested.
    TooMany,
    /// This member is stopping.
    Stopped,
}

/// The reason why a lock is no longer held, or a member is no longer inside a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No quorum acknowledged a heartbeat in time.
    LeaseRanOut,
    /// The session ended, and the znode with it.
    SessionEnded,
    /// The znode was deleted by force.
    Deleted,
}

/// The published state of one holding. Readers evaluate it at their own moments with [`HoldingSnapshot::at`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingSnapshot {
    /// The session, whose lease decides until when the holding holds.
    session: Option<LeasedSession>,
    place: Place,
}

/// The state of a holding at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldingState {
    /// Waiting for a lock. At most `ahead` entries must go first; `None` while unknown.
    Waiting { ahead: Option<usize> },
    /// Waiting in front of a barrier. `present` is the number of members at the last reading; `None` while unknown.
    Gathering { present: Option<usize> },
    /// Holding the lock, or inside the barrier, until the lease ends.
    Held { token: FencingToken, until: Moment },
    /// This member has left the barrier, but others are still inside.
    Leaving,
    /// The holding has ended. [`HoldingSnapshot::at`] returns this only for a lease that has run out before
    /// [`Action::Ended`] was returned.
    Ended(End),
}

impl HoldingState {
    /// Returns true while the holding waits for its lock, or to enter its barrier.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Gathering { .. })
    }

    /// Returns true while the holding waits and does not know how many others are ahead or present.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Waiting { ahead: None } | Self::Gathering { present: None })
    }
}

/// The phase of the session that all holdings share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a process has one, which is nearly always open")]
enum HoldingsPhase {
    /// Nothing needs a session.
    Closed,
    /// A session was requested and is not granted yet.
    Opening,
    /// The servers grant sessions whose timeout is too short for a useful lease. Another session is requested at
    /// `retry_at`, if one is still needed then.
    TooShort { retry_at: Moment },
    /// The session is open.
    Open {
        session: LeasedSession,
        /// Since this moment, nothing but reads has needed the session; `None` while something else needs it.
        idle_since: Option<Moment>,
        /// Whether the session sends heartbeats. A session that is only used for reading sends none, and has no lease.
        sends_heartbeats: bool,
    },
}

/// All requested locks and barriers, and their session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holdings {
    lease_policy: LeasePolicy,
    /// The session is closed when nothing has needed it for this long.
    idle_after: Duration,
    phase: HoldingsPhase,
    /// The holdings that are not over.
    holdings: BTreeMap<HoldingId, Place>,
    /// Whether something besides the holdings needs the session.
    in_use: bool,
    /// When a lock or barrier was last read for an operator, which also keeps the session open for some time.
    read_at: Option<Moment>,
    /// The actions caused by the current event, in order.
    outbox: Vec<Action>,
}

impl Holdings {
    /// The maximum number of locks and barriers that are held or waited for at the same time.
    pub const MAX: usize = 1024;

    /// Begins without a session. A session is closed when nothing has needed it for `idle_after`.
    pub fn new(margins: Margins, idle_after: Duration) -> Self {
        Self {
            lease_policy: LeasePolicy { margins, reserve: Duration::ZERO },
            idle_after,
            phase: HoldingsPhase::Closed,
            holdings: BTreeMap::new(),
            in_use: false,
            read_at: None,
            outbox: vec![],
        }
    }

    /// Reserves this much of each lease for ending the work that is done under it.
    #[must_use]
    pub fn with_time_to_end(mut self, reserve: Duration) -> Self {
        self.lease_policy.reserve = reserve;
        self
    }

    /// Handles an event at this moment, and returns the actions in the order in which they must be performed.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action> {
        // If the lease has run out, first end all that is held by it: the event comes too late to renew the lease.
        self.end_if_lapsed(now);
        self.on_event(now, event);
        self.holdings.retain(|_, place| !place.is_over());
        let is_idle = self.is_idle();
        if let HoldingsPhase::Open { idle_since, sends_heartbeats, .. } = &mut self.phase {
            *idle_since = if is_idle { Some(idle_since.unwrap_or(now)) } else { None };
            // Heartbeats begin when something other than reads needs the session, and stop in `end_idle_session`.
            *sends_heartbeats |= !is_idle;
        }
        mem::take(&mut self.outbox)
    }

    /// Returns when [`Event::Woke`] is due. Waking late may cost a holding, never safety.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            HoldingsPhase::Closed | HoldingsPhase::Opening => None,
            HoldingsPhase::TooShort { retry_at } => Some(*retry_at),
            HoldingsPhase::Open { session, idle_since, sends_heartbeats } => {
                let heartbeat = if *sends_heartbeats { self.heartbeat_due(session) } else { None };
                let lease_end = if self.needs_lease() { session.lease_ends_at() } else { None };
                let idle_end = idle_since.map(|since| self.idle_until(since, *sends_heartbeats));
                [heartbeat, lease_end, idle_end].into_iter().flatten().min()
            }
        }
    }

    /// Returns the state of one holding to publish; `None` once its end was reported and its znode is gone.
    pub fn standing(&self, id: HoldingId) -> Option<HoldingSnapshot> {
        let place = self.holdings.get(&id)?.clone();
        let session = self.session().map(LeasedSession::without_heartbeats);
        Some(HoldingSnapshot { session, place })
    }

    /// Returns the ids of all holdings that wait, hold, or still have a znode to delete or a barrier to watch.
    pub fn ids(&self) -> impl Iterator<Item = HoldingId> {
        self.holdings.keys().copied()
    }

    /// Returns true if a holding holds, or only needs a lease to hold.
    fn needs_lease(&self) -> bool {
        self.holdings.values().any(Place::needs_lease)
    }

    /// Returns true if nothing but reads needs the session.
    fn is_idle(&self) -> bool {
        self.holdings.is_empty() && !self.in_use
    }

    /// Returns when [`Self::end_idle_session`] is due. While the session sends heartbeats, a read does not delay that:
    /// it only keeps the session open without them. After that, each read delays the closing.
    fn idle_until(&self, idle_since: Moment, sends_heartbeats: bool) -> Moment {
        let last_use = match self.read_at {
            Some(read_at) if !sends_heartbeats => idle_since.max(read_at),
            _ => idle_since,
        };
        last_use.after(self.idle_after)
    }

    fn session(&self) -> Option<LeasedSession> {
        match &self.phase {
            HoldingsPhase::Open { session, .. } => Some(*session),
            _ => None,
        }
    }

    fn on_event(&mut self, now: Moment, event: Event) {
        match event {
            Event::Requested(id, spec) => self.on_requested(id, spec, now),
            Event::Released(id) => {
                let Some(place) = self.holdings.get_mut(&id) else { return };
                place.release();
                self.outbox.extend(take_actions(id, place));
            }
            Event::Session(SessionEvent::Opened { session, timeout, sent_at }) => {
                self.on_session_opened(session, timeout, sent_at, now);
            }
            Event::Session(SessionEvent::Resumed { timeout, sent_at }) => {
                let HoldingsPhase::Open { session, .. } = &mut self.phase else { return };
                match session.resumed(timeout, sent_at, now) {
                    Some(resumed) => {
                        *session = resumed;
                        // A shorter timeout shortens the lease, which may have run out by that.
                        self.end_if_lapsed(now);
                    }
                    None => self.close_short_session(now),
                }
            }
            Event::Session(SessionEvent::Lost) => self.on_session_lost(),
            // A lost connection ends nothing while the lease runs. A session is never taken over, because locks and
            // barriers are not handed to the next process.
            Event::Session(SessionEvent::Disconnected | SessionEvent::TakenOver { .. }) => {}
            Event::Committed { sent_at } => self.on_committed(sent_at, now),
            Event::Place(id, event) => self.on_place(id, event, now),
            Event::Woke => self.on_woke(now),
            Event::InUse(false) => self.in_use = false,
            Event::InUse(true) => {
                self.in_use = true;
                self.open_if_closed();
            }
            Event::Read => {
                self.read_at = Some(now);
                self.open_if_closed();
            }
            Event::Stop => self.on_stop(),
        }
    }

    /// Adds a holding, which joins now if the session is open, and otherwise once a session is.
    fn on_requested(&mut self, id: HoldingId, spec: HoldingSpec, now: Moment) {
        if self.holdings.len() >= Self::MAX {
            return self.outbox.push(Action::Ended(id, End::TooMany));
        }
        self.open_for_lease(now);
        let place = self.holdings.entry(id).or_insert_with(|| Place::new(spec));
        if let HoldingsPhase::Open { .. } = self.phase {
            place.on_session_opened();
            self.outbox.extend(take_actions(id, place));
        }
    }

    /// Requests a session, unless one is open or requested, or is requested later because the last one was too short.
    fn open_if_closed(&mut self) {
        if let HoldingsPhase::Closed = self.phase {
            self.open();
        }
    }

    fn open(&mut self) {
        self.phase = HoldingsPhase::Opening;
        self.outbox.push(Action::OpenSession);
    }

    /// Requests a session that can have a lease at once, unless one is open. A session that sends no heartbeats would
    /// first have to send regular ones for a while. It is only used for reading and owns no znodes, so replace it.
    fn open_for_lease(&mut self, now: Moment) {
        if let HoldingsPhase::Open { session, sends_heartbeats: false, .. } = &self.phase
            && !session.is_unbroken(now)
        {
            self.close(HoldingsPhase::Closed);
        }
        self.open_if_closed();
    }

    /// Closes the session, and enters `phase`, in which there is none.
    fn close(&mut self, phase: HoldingsPhase) {
        self.phase = phase;
        self.outbox.push(Action::CloseSession);
    }

    fn on_session_opened(
        &mut self,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) {
        let HoldingsPhase::Opening = self.phase else { return };
        match LeasedSession::opened(self.lease_policy, id, timeout, sent_at) {
            None => self.close_short_session(now),
            Some(session) => {
                self.phase =
                    HoldingsPhase::Open { session, idle_since: None, sends_heartbeats: false };
                self.for_each_place(Place::on_session_opened);
            }
        }
    }

    fn on_session_lost(&mut self) {
        let (HoldingsPhase::Opening | HoldingsPhase::Open { .. }) = self.phase else { return };
        self.for_each_place(Place::on_session_lost);
        // The holdings that ended with the session need no other session.
        self.holdings.retain(|_, place| !place.is_over());
        self.phase = HoldingsPhase::Closed;
        if !self.is_idle() {
            self.open();
        }
    }

    /// Closes the session, whose timeout is too short for a useful lease, and schedules the request for another.
    fn close_short_session(&mut self, now: Moment) {
        self.for_each_place(Place::on_session_lost);
        // The servers' configuration limits the timeout, so a new session would hardly get a longer one at once.
        let retry_at = now.after(10 * self.lease_policy.margins.heartbeat);
        self.close(HoldingsPhase::TooShort { retry_at });
    }

    fn on_committed(&mut self, sent_at: Moment, now: Moment) {
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return };
        session.committed(sent_at, now);
        for (id, place) in &mut self.holdings {
            place.on_committed(session, sent_at, now);
            self.outbox.extend(take_actions(*id, place));
        }
    }

    fn on_place(&mut self, id: HoldingId, event: place::Event, now: Moment) {
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return };
        let Some(place) = self.holdings.get_mut(&id) else { return };
        // A quorum committed the create, so it renews the lease like a heartbeat.
        if let place::Event::Joined { sent_at: Some(sent_at), .. } = event {
            session.committed(sent_at, now);
        }
        place.step(session, now, event);
        self.outbox.extend(take_actions(id, place));
    }

    fn on_woke(&mut self, now: Moment) {
        match &self.phase {
            HoldingsPhase::TooShort { retry_at } if *retry_at > now => {}
            HoldingsPhase::TooShort { .. } if self.is_idle() => self.phase = HoldingsPhase::Closed,
            HoldingsPhase::TooShort { .. } => self.open(),
            HoldingsPhase::Open { idle_since: Some(since), sends_heartbeats, .. }
                if self.idle_until(*since, *sends_heartbeats) <= now =>
            {
                self.end_idle_session(now);
            }
            HoldingsPhase::Open { sends_heartbeats: true, .. } => self.send_heartbeat(now),
            _ => {}
        }
    }

    /// Closes the session, which nothing needs; or only stops its heartbeats if a lock or barrier was read lately.
    fn end_idle_session(&mut self, now: Moment) {
        let is_read = self.read_at.is_some_and(|at| at.after(self.idle_after) > now);
        match &mut self.phase {
            HoldingsPhase::Open { sends_heartbeats, .. } if is_read => *sends_heartbeats = false,
            _ => self.close(HoldingsPhase::Closed),
        }
    }

    /// Releases all holdings, and closes the session. Their znodes end with it, so none has to be deleted. A member
    /// that is inside a barrier, or leaving it, gets no [`Action::Ended`]: the runner reports its end.
    fn on_stop(&mut self) {
        for (id, mut place) in mem::take(&mut self.holdings) {
            place.release();
            if take_actions(id, &mut place).any(|action| matches!(action, Action::Ended(..))) {
                self.outbox.push(Action::Ended(id, End::Stopped));
            }
        }
        self.close(HoldingsPhase::Closed);
    }

    /// Ends all locks that are held and all stays inside barriers if the lease has run out.
    fn end_if_lapsed(&mut self, now: Moment) {
        let Some(session) = self.session() else { return };
        if session.lease_left(now).is_none() {
            self.for_each_place(|place| place.end_if_lapsed(&session, now));
        }
    }

    fn heartbeat_due(&self, session: &LeasedSession) -> Option<Moment> {
        // A holding that waits may need a lease at any moment. Without holdings, one may soon be requested.
        let duty = if self.needs_lease() {
            Duty::Hold
        } else if self.holdings.is_empty() {
            Duty::Wait
        } else {
            Duty::StandBy
        };
        // ZooKeeper increments the low half of session ids, so that half spreads heartbeats.
        let seed = jitter_seed(session.id().0.cast_unsigned())?;
        session.heartbeat_due(seed, duty)
    }

    fn send_heartbeat(&mut self, now: Moment) {
        // `confirm` needs the session before this heartbeat: it compares the moment of the previous heartbeat with
        // `now`.
        let Some(session_before) = self.session() else { return };
        let Some(due_at) = self.heartbeat_due(&session_before) else { return };
        if due_at > now {
            return;
        }
        if let HoldingsPhase::Open { session, .. } = &mut self.phase {
            session.heartbeat_sent(now);
        }
        self.outbox.push(Action::Renew { sent_at: now });
        self.confirm(&session_before, now);
    }

    /// Asks a quorum whether the znodes that some of the holdings wait for still exist: a server that lost a
    /// transaction may show a deleted znode indefinitely. The turns of the holdings come at different heartbeats.
    fn confirm(&mut self, session: &LeasedSession, now: Moment) {
        for (id, place) in &self.holdings {
            if let Some(ahead) = place.waits_for()
                && let Some(seed) = jitter_seed(id.0)
                && session.is_first_of_turn(seed, now)
            {
                self.outbox.push(Action::Place(*id, place::Action::Confirm(ahead)));
            }
        }
    }

    /// Calls `handle` for the place of each holding.
    fn for_each_place(&mut self, handle: impl Fn(&mut Place)) {
        for (id, place) in &mut self.holdings {
            handle(place);
            self.outbox.extend(take_actions(*id, place));
        }
    }
}

impl HoldingSnapshot {
    /// Returns the state at this moment, since a lease ends without an event; `None` once the end was reported.
    pub fn at(&self, now: Moment) -> Option<HoldingState> {
        self.place.state(self.session.as_ref(), now)
    }

    /// Returns the ticket of the own znode, if the holding has one.
    pub fn ticket(&self) -> Option<Ticket> {
        self.place.ticket()
    }
}

/// Takes the effects of the last event, and converts them to the actions of the runner.
fn take_actions(id: HoldingId, place: &mut Place) -> impl Iterator<Item = Action> + use<> {
    place.take_effects().into_iter().map(move |effect| match effect {
        Effect::Do(action) => Action::Place(id, action),
        Effect::Renew { sent_at } => Action::Renew { sent_at },
        Effect::Ended(end) => Action::Ended(id, end),
    })
}

/// Returns the low 31 bits of an id in place of a ticket's sequence. The delays of heartbeats and the turns to ask a
/// quorum are derived from such a sequence, so different ids keep sessions and holdings from asking the servers all at
/// once. Never `None`: 31 bits are not negative.
fn jitter_seed(number: u64) -> Option<Sequence> {
    i32::try_from(number & 0x7FFF_FFFF).ok().and_then(Sequence::new)
}
