//! The locks and barriers that applications ask for, all in one session.
//!
//! The session is opened at the first use, kept alive and proved by one heartbeat for all, and closed after some idle
//! time. Its lease is that of every holding.
//!
//! A runner owns one [`Holdings`], and calls it as [`crate`] says: [`Holdings::step`] for each event,
//! [`Holdings::wake_at`] after each step, [`Holdings::standing`] for what may be published, judged at the moment of
//! publishing by [`HoldingStanding::at`]. [`Action::Ended`] comes before all that is done about an end.
//!
//! A runner promises, beside what [`crate`] says of moments, sessions and the own znodes:
//!
//! - a number is given to one holding only;
//! - a create whose outcome is unknown is looked for by the session and the holding's number, which the znode's data says,
//!   before another is sent;
//! - each own znode is watched, and looked at after each resumption; each watched znode is watched again then, and
//!   the loss of an own znode is reported before the disappearance of another that was committed later;
//! - of several readings for one holding under way, only the last is reported;
//! - what is wanted for one holding is carried out in the order in which it was wanted.

mod words;

use crate::barrier::{self, Barrier};
use crate::lease::LeasePolicy;
use crate::lock::{self, Lock, Mode};
use crate::session::{Duty, LeasedSession};
use crate::{FencingToken, Margins, Moment, Sequence, SessionId, Ticket};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Bound;
use std::time::Duration;

/// One lock or barrier that an application asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldingId(pub u64);

/// The lock or barrier that an application may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldingSpec {
    Lock(Mode),
    /// A barrier that opens when so many are there.
    Barrier(NonZeroU32),
}

/// Events from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An application asks for this.
    Asked(HoldingId, HoldingSpec),
    /// The application stops waiting, releases the lock, or leaves the barrier.
    Released(HoldingId),
    /// The servers granted the session that was asked for at this moment.
    SessionOpened {
        session: SessionId,
        timeout: Duration,
        sent_at: Moment,
    },
    /// The session goes on over another connection, asked for at this moment; the server may have cut its timeout.
    SessionResumed {
        timeout: Duration,
        sent_at: Moment,
    },
    /// The session ended, with everything it owned.
    SessionLost,
    /// A quorum committed the renewal that was sent at this moment.
    Committed {
        sent_at: Moment,
    },
    Lock(HoldingId, lock::Event),
    Barrier(HoldingId, barrier::Event),
    /// The moment asked for by [`Holdings::wake_at`] has come.
    Woke,
    /// Whether something beside the holdings needs the session.
    InUse(bool),
    /// A queue is about to be read over the session, which takes no lease.
    Read,
    /// All holdings end, for good.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    OpenSession,
    /// End the session, and with it all znodes of the holdings.
    CloseSession,
    /// Have a quorum commit a write of this session that changes nothing: a heartbeat.
    Renew {
        sent_at: Moment,
    },
    Lock(HoldingId, lock::Action),
    Barrier(HoldingId, barrier::Action),
    /// Report to the application that it no longer waits for this, or holds it.
    Ended(HoldingId, End),
}

/// How a holding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// As its application wanted.
    Released,
    /// All have left the barrier.
    AllLeft,
    /// Another asked before, of the same name, for a lock of another kind or number of slots, or a barrier of another size.
    Refused {
        found: HoldingSpec,
    },
    Lost(Loss),
}

/// The reason why a lock is no longer held, or a member is no longer inside a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No quorum acknowledged a heartbeat in time.
    LeaseRanOut,
    SessionEnded,
    /// Its znode was deleted by force.
    Deleted,
}

/// The known state of one holding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingStanding {
    session: Option<LeasedSession>,
    holding: HeldRecipe,
}

/// A standing, judged at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldingState {
    /// Waiting for a lock. At most `ahead` entries must go before it; `None` while unknown.
    Waiting {
        ahead: Option<usize>,
    },
    /// Waiting in front of a barrier, with the number of participants at the last reading.
    Gathering {
        present: Option<usize>,
    },
    /// Holding the lock, or inside the barrier, for the rest of the lease.
    Held {
        token: FencingToken,
        left: Duration,
    },
    /// The barrier was left, and others are still inside.
    Leaving,
    Ended,
}

/// A request of a holding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect<A> {
    Do(A),
    /// A heartbeat, now.
    Renew {
        sent_at: Moment,
    },
    Ended(End),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HeldRecipe {
    Lock(Lock),
    Barrier(Barrier),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "there is one, and it is open nearly all the time")]
enum HoldingsPhase {
    Closed,
    Opening,
    /// The servers grant sessions too short for a useful lease: another is asked for later.
    TooShort {
        retry_at: Moment,
    },
    Open {
        session: LeasedSession,
        /// The moment since when only reads need the session.
        idle_since: Option<Moment>,
        /// Whether heartbeats are sent. A session that only reads takes none, and has no lease.
        renews: bool,
    },
}

/// All that is asked for in one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holdings {
    lease_policy: LeasePolicy,
    idle_after: Duration,
    phase: HoldingsPhase,
    holdings: BTreeMap<HoldingId, HeldRecipe>,
    /// Whether something else needs the session.
    in_use: bool,
    /// When a queue was last read.
    read_at: Option<Moment>,
    /// The last for which a quorum was asked about the znode that it waits for.
    proved: HoldingId,
    /// Grows with each heartbeat by how many there are; one is asked for each time that it comes to
    /// [`Self::PROVE_ONE_IN`].
    unproved: usize,
}

impl Holdings {
    /// With each heartbeat a quorum is asked for one in so many holdings, if it waits.
    const PROVE_ONE_IN: usize = 32;

    /// Begins without a session. It is closed once nothing was asked for during `idle_after`.
    pub fn new(margins: Margins, idle_after: Duration) -> Self {
        Self {
            lease_policy: LeasePolicy { margins, reserve: Duration::ZERO },
            idle_after,
            phase: HoldingsPhase::Closed,
            holdings: BTreeMap::new(),
            in_use: false,
            read_at: None,
            proved: HoldingId(0),
            unproved: 0,
        }
    }

    /// Holds only by leases that leave so much time to end what is done under them.
    #[must_use]
    pub fn reserving(mut self, reserve: Duration) -> Self {
        self.lease_policy.reserve = reserve;
        self
    }

    /// Takes one event at one moment, and returns what is to be done about it, in this order.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action> {
        // Whatever the event says comes too late for a lease that ran out.
        let mut actions = self.lapse(now);
        actions.extend(self.handle(now, event));
        self.holdings.retain(|_, holding| !holding.is_over());
        let is_idle = self.is_idle();
        if let HoldingsPhase::Open { idle_since, renews, .. } = &mut self.phase {
            *idle_since = is_idle.then_some(idle_since.unwrap_or(now));
            *renews |= !is_idle;
        }
        actions
    }

    /// Returns when [`Event::Woke`] is due. Being late costs the holding, never safety.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            HoldingsPhase::Closed | HoldingsPhase::Opening => None,
            HoldingsPhase::TooShort { retry_at } => Some(*retry_at),
            HoldingsPhase::Open { session, idle_since, renews } => {
                let is_held = self.holdings.values().any(HeldRecipe::is_first);
                let lease = session.lease_ends_at().filter(|_| is_held);
                let heartbeat = self.heartbeat_due(session).filter(|_| *renews);
                let idle = idle_since.map(|since| self.idle_until(since, *renews));
                [heartbeat, lease, idle].into_iter().flatten().min()
            }
        }
    }

    /// Returns what is known of one holding; `None` once its end was told and its znode is gone.
    pub fn standing(&self, id: HoldingId) -> Option<HoldingStanding> {
        let holding = self.holdings.get(&id)?.clone();
        let session = self.session().map(LeasedSession::without_heartbeats);
        Some(HoldingStanding { session, holding })
    }

    /// Returns all that is waited for, held, or not yet out of the way.
    pub fn ids(&self) -> impl Iterator<Item = HoldingId> {
        self.holdings.keys().copied()
    }

    fn is_idle(&self) -> bool {
        self.holdings.is_empty() && !self.in_use
    }

    /// Returns when heartbeats end that nothing needs, or when a session without heartbeats is closed.
    fn idle_until(&self, idle_since: Moment, renews: bool) -> Moment {
        let last_read = self.read_at.filter(|_| !renews).unwrap_or(idle_since);
        idle_since.max(last_read).after(self.idle_after)
    }

    fn session(&self) -> Option<LeasedSession> {
        match &self.phase {
            HoldingsPhase::Open { session, .. } => Some(*session),
            _ => None,
        }
    }

    fn handle(&mut self, now: Moment, event: Event) -> Vec<Action> {
        match event {
            Event::Asked(id, wanted) => self.on_asked(id, wanted, now),
            Event::Released(id) => match self.holdings.get_mut(&id) {
                Some(holding) => holding.release(id),
                None => vec![],
            },
            Event::SessionOpened { session, timeout, sent_at } => {
                self.on_session_opened(session, timeout, sent_at, now)
            }
            Event::SessionResumed { timeout, sent_at } => {
                let HoldingsPhase::Open { session, .. } = &mut self.phase else { return vec![] };
                match session.resumed(timeout, sent_at, now) {
                    Some(resumed) => {
                        *session = resumed;
                        self.lapse(now)
                    }
                    None => self.become_too_short(now),
                }
            }
            Event::SessionLost => self.on_session_lost(),
            Event::Committed { sent_at } => self.on_committed(sent_at, now),
            Event::Lock(id, event) => self.on_lock(id, event, now),
            Event::Barrier(id, event) => self.on_barrier(id, event, now),
            Event::Woke => self.on_woke(now),
            Event::InUse(in_use) => self.on_in_use(in_use),
            Event::Read => self.on_read(now),
            Event::Stop => self.on_stop(),
        }
    }

    fn on_asked(&mut self, id: HoldingId, wanted: HoldingSpec, now: Moment) -> Vec<Action> {
        let holding = match wanted {
            HoldingSpec::Lock(mode) => HeldRecipe::Lock(Lock::new(mode)),
            HoldingSpec::Barrier(size) => HeldRecipe::Barrier(Barrier::new(size)),
        };
        let actions = self.open_for_lease(now);
        let holding = self.holdings.entry(id).or_insert(holding);
        if let HoldingsPhase::Open { .. } = self.phase {
            holding.on_session_opened(id)
        } else {
            actions
        }
    }

    fn on_in_use(&mut self, in_use: bool) -> Vec<Action> {
        self.in_use = in_use;
        if in_use { self.open_unless_begun() } else { vec![] }
    }

    fn on_read(&mut self, now: Moment) -> Vec<Action> {
        self.read_at = Some(now);
        self.open_unless_begun()
    }

    fn open_unless_begun(&mut self) -> Vec<Action> {
        if let HoldingsPhase::Closed = self.phase { self.open() } else { vec![] }
    }

    fn open(&mut self) -> Vec<Action> {
        self.phase = HoldingsPhase::Opening;
        vec![Action::OpenSession]
    }

    /// Opens a session that can have a lease, if there is none. One that has only read would have to send regular heartbeats
    /// for a while first: it owns nothing, so another takes its place.
    fn open_for_lease(&mut self, now: Moment) -> Vec<Action> {
        if let HoldingsPhase::Open { session, renews: false, .. } = &self.phase
            && !session.is_unbroken(now)
        {
            self.phase = HoldingsPhase::Opening;
            return vec![Action::CloseSession, Action::OpenSession];
        }
        self.open_unless_begun()
    }

    fn on_session_opened(
        &mut self,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Vec<Action> {
        let HoldingsPhase::Opening = self.phase else { return vec![] };
        match LeasedSession::opened(self.lease_policy, id, timeout, sent_at) {
            None => self.become_too_short(now),
            Some(session) => {
                self.phase = HoldingsPhase::Open { session, idle_since: None, renews: false };
                self.each(|id, holding| holding.on_session_opened(id))
            }
        }
    }

    fn on_session_lost(&mut self) -> Vec<Action> {
        match self.phase {
            HoldingsPhase::Closed | HoldingsPhase::TooShort { .. } => vec![],
            HoldingsPhase::Opening | HoldingsPhase::Open { .. } => {
                let mut actions = self.each(|id, holding| holding.on_session_lost(id));
                self.holdings.retain(|_, holding| !holding.is_over());
                self.phase = HoldingsPhase::Closed;
                if !self.is_idle() {
                    actions.extend(self.open());
                }
                actions
            }
        }
    }

    fn become_too_short(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = self.each(|id, holding| holding.on_session_lost(id));
        let retry_at = now.after(10 * self.lease_policy.margins.heartbeat);
        self.phase = HoldingsPhase::TooShort { retry_at };
        actions.push(Action::CloseSession);
        actions
    }

    fn on_committed(&mut self, sent_at: Moment, now: Moment) -> Vec<Action> {
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return vec![] };
        session.committed(sent_at, now);
        let holdings = self.holdings.iter_mut();
        holdings
            .flat_map(|(id, holding)| holding.on_committed(*id, session, sent_at, now))
            .collect()
    }

    fn on_lock(&mut self, id: HoldingId, event: lock::Event, now: Moment) -> Vec<Action> {
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return vec![] };
        let Some(HeldRecipe::Lock(lock)) = self.holdings.get_mut(&id) else { return vec![] };
        // The create is a quorum write of this session like another.
        if let lock::Event::Joined { sent_at: Some(sent_at), .. } = event {
            session.committed(sent_at, now);
        }
        tagged(id, lock.step(session, now, event), Action::Lock)
    }

    fn on_barrier(&mut self, id: HoldingId, event: barrier::Event, now: Moment) -> Vec<Action> {
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return vec![] };
        let Some(HeldRecipe::Barrier(barrier)) = self.holdings.get_mut(&id) else { return vec![] };
        if let barrier::Event::Joined { sent_at: Some(sent_at), .. } = event {
            session.committed(sent_at, now);
        }
        tagged(id, barrier.step(session, now, event), Action::Barrier)
    }

    fn on_woke(&mut self, now: Moment) -> Vec<Action> {
        match &self.phase {
            HoldingsPhase::Closed | HoldingsPhase::Opening => vec![],
            HoldingsPhase::TooShort { retry_at } if *retry_at > now => vec![],
            HoldingsPhase::TooShort { .. } if self.is_idle() => {
                self.phase = HoldingsPhase::Closed;
                vec![]
            }
            HoldingsPhase::TooShort { .. } => self.open(),
            HoldingsPhase::Open { idle_since: Some(since), renews, .. }
                if self.idle_until(*since, *renews) <= now =>
            {
                self.end_idle_session(now)
            }
            HoldingsPhase::Open { renews: true, .. } => self.send_heartbeat(now),
            HoldingsPhase::Open { renews: false, .. } => vec![],
        }
    }

    /// Closes the session, or stops the heartbeats in it while only reads use it.
    fn end_idle_session(&mut self, now: Moment) -> Vec<Action> {
        let is_read = self.read_at.is_some_and(|at| at.after(self.idle_after) > now);
        if let HoldingsPhase::Open { renews, .. } = &mut self.phase
            && is_read
        {
            *renews = false;
            return vec![];
        }
        self.phase = HoldingsPhase::Closed;
        vec![Action::CloseSession]
    }

    fn on_stop(&mut self) -> Vec<Action> {
        let ended = self.each(|id, holding| holding.release(id)).into_iter();
        let mut actions: Vec<_> =
            ended.filter(|action| matches!(action, Action::Ended(..))).collect();
        self.holdings.clear();
        self.phase = HoldingsPhase::Closed;
        actions.push(Action::CloseSession);
        actions
    }

    /// Ends what is held by a lease that ran out.
    fn lapse(&mut self, now: Moment) -> Vec<Action> {
        match self.session() {
            Some(session) if session.lease_left(now).is_none() => {
                self.each(|id, holding| holding.lapse(id, &session, now))
            }
            Some(_) | None => vec![],
        }
    }

    fn heartbeat_due(&self, session: &LeasedSession) -> Option<Moment> {
        // The lower half: the servers count there.
        let number = i32::try_from(session.id().0 & 0x7FFF_FFFF).unwrap_or(0);
        let duty = if self.holdings.values().any(HeldRecipe::is_first) {
            Duty::Hold
        } else if self.holdings.is_empty() {
            Duty::Wait
        } else {
            Duty::StandBy
        };
        Sequence::new(number).and_then(|pace| session.heartbeat_due(pace, duty))
    }

    fn send_heartbeat(&mut self, now: Moment) -> Vec<Action> {
        let due = self.session().and_then(|session| self.heartbeat_due(&session));
        let HoldingsPhase::Open { session, .. } = &mut self.phase else { return vec![] };
        if due.is_none_or(|due| due > now) {
            return vec![];
        }
        session.heartbeat_sent(now);
        let mut actions = vec![Action::Renew { sent_at: now }];
        actions.extend(self.prove());
        actions
    }

    /// Has a quorum asked about the znodes that some wait for, in turn: a server that lost a transaction may show one that
    /// is gone for good.
    fn prove(&mut self) -> Vec<Action> {
        self.unproved += self.holdings.len();
        let turns = self.unproved / Self::PROVE_ONE_IN;
        self.unproved %= Self::PROVE_ONE_IN;
        let behind = self.holdings.range((Bound::Excluded(self.proved), Bound::Unbounded));
        let in_turn = behind.chain(self.holdings.range(..=self.proved)).take(turns);
        let asked: Vec<_> = in_turn.map(|(id, holding)| (*id, holding.prove(*id))).collect();
        self.proved = asked.last().map_or(self.proved, |(id, _)| *id);
        asked.into_iter().filter_map(|(_, action)| action).collect()
    }

    fn each(&mut self, of: impl Fn(HoldingId, &mut HeldRecipe) -> Vec<Action>) -> Vec<Action> {
        self.holdings.iter_mut().flat_map(|(id, holding)| of(*id, holding)).collect()
    }
}

impl HoldingStanding {
    /// Returns the status at this moment. It depends on the time, since a lease ends without an event.
    pub fn at(&self, now: Moment) -> HoldingState {
        match &self.holding {
            HeldRecipe::Lock(lock) => lock.status(self.session.as_ref(), now),
            HeldRecipe::Barrier(barrier) => barrier.status(self.session.as_ref(), now),
        }
    }

    pub fn ticket(&self) -> Option<Ticket> {
        match &self.holding {
            HeldRecipe::Lock(lock) => lock.ticket(),
            HeldRecipe::Barrier(barrier) => barrier.ticket(),
        }
    }
}

impl HeldRecipe {
    fn on_session_opened(&mut self, id: HoldingId) -> Vec<Action> {
        match self {
            Self::Lock(lock) => tagged(id, lock.on_session_opened(), Action::Lock),
            Self::Barrier(barrier) => tagged(id, barrier.on_session_opened(), Action::Barrier),
        }
    }

    fn on_session_lost(&mut self, id: HoldingId) -> Vec<Action> {
        match self {
            Self::Lock(lock) => tagged(id, lock.on_session_lost(), Action::Lock),
            Self::Barrier(barrier) => tagged(id, barrier.on_session_lost(), Action::Barrier),
        }
    }

    fn release(&mut self, id: HoldingId) -> Vec<Action> {
        match self {
            Self::Lock(lock) => tagged(id, lock.release(), Action::Lock),
            Self::Barrier(barrier) => tagged(id, barrier.release(), Action::Barrier),
        }
    }

    fn lapse(&mut self, id: HoldingId, session: &LeasedSession, now: Moment) -> Vec<Action> {
        match self {
            Self::Lock(lock) => tagged(id, lock.lapse(session, now), Action::Lock),
            Self::Barrier(barrier) => tagged(id, barrier.lapse(session, now), Action::Barrier),
        }
    }

    fn on_committed(
        &mut self,
        id: HoldingId,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> Vec<Action> {
        match self {
            Self::Lock(lock) => tagged(id, lock.on_committed(session, sent_at, now), Action::Lock),
            Self::Barrier(barrier) => {
                tagged(id, barrier.on_committed(session, now), Action::Barrier)
            }
        }
    }

    fn prove(&self, id: HoldingId) -> Option<Action> {
        match self {
            Self::Lock(lock) => lock.prove().map(|action| Action::Lock(id, action)),
            Self::Barrier(barrier) => barrier.prove().map(|action| Action::Barrier(id, action)),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Lock(lock) => lock.is_over(),
            Self::Barrier(barrier) => barrier.is_over(),
        }
    }

    /// Whether its lease is of use: nothing keeps it from holding but a lease, if it does not hold.
    fn is_first(&self) -> bool {
        match self {
            Self::Lock(lock) => lock.is_first(),
            Self::Barrier(barrier) => barrier.is_open(),
        }
    }
}

fn tagged<A>(id: HoldingId, wants: Vec<Effect<A>>, of: fn(HoldingId, A) -> Action) -> Vec<Action> {
    wants
        .into_iter()
        .map(|want| match want {
            Effect::Do(action) => of(id, action),
            Effect::Renew { sent_at } => Action::Renew { sent_at },
            Effect::Ended(end) => Action::Ended(id, end),
        })
        .collect()
}
