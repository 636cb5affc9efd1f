//! Locks: exclusive, shared, and with a number of slots, in one queue by order of arrival.
//!
//! An exclusive one waits for all ahead, a shared one for the writers ahead, one of N slots until fewer than N are ahead.
//! None overtakes, so a writer behind many readers gets its turn: readers that come later wait for it.
//!
//! Each watches the nearest of those that it waits for, and one more: so the next is woken when it becomes the next, and
//! holds at the notification that the last in its way is gone, by the lease that its session has. A release wakes the next
//! and the one behind it, or, where it was a writer's, the readers behind it.
//!
//! # What is promised
//!
//! While every server shows what a quorum committed, no two hold that exclude each other: each holds only while none in
//! its way stands and its session's lease runs, and until that lease ends its own znode stands.
//!
//! A lock has no claim znode, unlike an election: readers hold together, and no one znode could exclude a writer beside
//! them. So at a server that has lost the transaction which made a holder's znode, another may hold beside it. Their
//! tokens differ, and tokens grow along the queue: where that must do no harm, the store is to refuse the smaller one. The
//! same is true of znodes that were deleted by force, until the holder hears of it.

mod mode;

pub use mode::{LockEntry, Mode, holders};

use crate::contender::{AfterCommit, AfterPredecessor, Contender, Located};
use crate::holding::{Effect, End, HoldingSpec, HoldingState, Loss};
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::collections::BTreeMap;

/// Events of one place in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its znode exists. A quorum committed that in answer to a request sent at this moment; `None` where the znode was
    /// found after a request whose outcome was unknown.
    Joined { ticket: Ticket, sent_at: Option<Moment> },
    /// Its znode is gone, although the session lives: it was deleted by force.
    TicketLost(Ticket),
    /// The queue, read at some moment not later than now.
    QueueRead(Vec<LockEntry>),
    /// This znode stands, and is watched.
    Watched(Ticket),
    /// No znode stands there any more. The token is that of the znode that was watched; `None` if none was.
    Gone { sequence: Sequence, token: Option<FencingToken> },
    /// Its own znode is deleted, as it wanted, or is not to be created any more.
    Left,
}

/// Actions of one place in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create the ephemeral sequential znode, or find the one that was created for this holding before.
    Join(Mode),
    ReadQueue,
    /// Leave a watch on this znode.
    Watch(Sequence),
    /// Have a quorum say whether the watched znode stands: the server at hand may be wrong.
    Prove(Sequence),
    /// Delete the own znode. It is asked again until it is gone, or the session is.
    Leave(Ticket),
}

type Wants = Vec<Effect<Action>>;

/// One place in a lock's queue, or on the way there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    mode: Mode,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    NoSession,
    Joining,
    InQueue(InQueue),
    /// Its end was told, and its znode is not deleted yet. `None` while it is being created.
    Leaving(Option<Ticket>),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InQueue {
    contender: Contender,
    /// The relevant znodes ahead, in order, as of the last reading, without those known to be gone since.
    ahead: Vec<Sequence>,
    /// The watched ones among them, with the tokens of the znodes that were found there.
    watched: BTreeMap<Sequence, Option<FencingToken>>,
}

impl Lock {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, stage: Stage::NoSession }
    }

    pub(crate) fn on_session_opened(&mut self) -> Wants {
        match self.stage {
            Stage::NoSession => self.join(),
            _ => vec![],
        }
    }

    /// A waiting place joins again, at the tail, in the next session.
    pub(crate) fn on_session_lost(&mut self) -> Wants {
        match &self.stage {
            Stage::InQueue(queue) if queue.contender.way().is_some() => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Lost(Loss::SessionEnded))]
            }
            Stage::NoSession | Stage::Joining | Stage::InQueue(_) => {
                self.stage = Stage::NoSession;
                vec![]
            }
            Stage::Leaving(_) | Stage::Over => {
                self.stage = Stage::Over;
                vec![]
            }
        }
    }

    /// Gives it back, or gives up waiting.
    pub(crate) fn release(&mut self) -> Wants {
        match &self.stage {
            Stage::NoSession => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Released)]
            }
            Stage::Joining => {
                self.stage = Stage::Leaving(None);
                vec![Effect::Ended(End::Released)]
            }
            Stage::InQueue(queue) => {
                let ticket = queue.contender.ticket();
                self.leave(ticket, End::Released)
            }
            Stage::Leaving(_) | Stage::Over => vec![],
        }
    }

    /// Ends it where its lease ran out.
    pub(crate) fn lapse(&mut self, session: &LeasedSession, now: Moment) -> Wants {
        match &self.stage {
            Stage::InQueue(InQueue { contender, .. })
                if contender.way().is_some() && contender.holds(session, now).is_none() =>
            {
                let ticket = contender.ticket();
                self.leave(ticket, End::Lost(Loss::LeaseRanOut))
            }
            _ => vec![],
        }
    }

    /// A quorum committed a write of this session that was sent at this moment.
    pub(crate) fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> Wants {
        let Stage::InQueue(queue) = &mut self.stage else { return vec![] };
        let ticket = queue.contender.ticket();
        match queue.contender.on_committed(session, sent_at, now) {
            AfterCommit::Unchanged => vec![],
            AfterCommit::RanOut => self.leave(ticket, End::Lost(Loss::LeaseRanOut)),
        }
    }

    pub(crate) fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Wants {
        match event {
            Event::Joined { ticket, .. } => self.on_joined(ticket),
            Event::TicketLost(ticket) => self.on_ticket_lost(ticket),
            Event::QueueRead(entries) => self.on_queue_read(session, now, entries),
            Event::Watched(znode) => {
                if let Stage::InQueue(queue) = &mut self.stage {
                    queue.on_watched(znode);
                }
                vec![]
            }
            Event::Gone { sequence, token } => match &mut self.stage {
                Stage::InQueue(queue) => queue.on_gone(self.mode, session, now, sequence, token),
                _ => vec![],
            },
            Event::Left => {
                if let Stage::Leaving(_) = self.stage {
                    self.stage = Stage::Over;
                }
                vec![]
            }
        }
    }

    /// Returns what a quorum is to be asked about the nearest znode that it waits for.
    pub(crate) fn prove(&self) -> Option<Action> {
        let Stage::InQueue(queue) = &self.stage else { return None };
        let ahead = queue.contender.predecessors()?;
        Some(Action::Prove(ahead.predecessor))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether it holds, or would if its session had a lease.
    pub(crate) fn is_first(&self) -> bool {
        matches!(&self.stage, Stage::InQueue(queue) if queue.contender.is_first())
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::InQueue(queue) => Some(queue.contender.ticket()),
            Stage::Leaving(ticket) => *ticket,
            _ => None,
        }
    }

    pub(crate) fn status(&self, session: Option<&LeasedSession>, now: Moment) -> HoldingState {
        match &self.stage {
            Stage::NoSession | Stage::Joining => HoldingState::Waiting { ahead: None },
            Stage::InQueue(InQueue { contender, ahead, .. }) => {
                match session.and_then(|session| contender.holds(session, now)) {
                    Some(left) => HoldingState::Held { token: contender.ticket().token, left },
                    None if contender.way().is_some() => HoldingState::Ended,
                    None if contender.is_first() => HoldingState::Waiting { ahead: Some(0) },
                    None => {
                        let known = contender.predecessors().map(|_| ahead.len());
                        HoldingState::Waiting { ahead: known }
                    }
                }
            }
            Stage::Leaving(_) | Stage::Over => HoldingState::Ended,
        }
    }

    fn join(&mut self) -> Wants {
        self.stage = Stage::Joining;
        vec![Effect::Do(Action::Join(self.mode))]
    }

    fn leave(&mut self, ticket: Ticket, end: End) -> Wants {
        self.stage = Stage::Leaving(Some(ticket));
        vec![Effect::Ended(end), Effect::Do(Action::Leave(ticket))]
    }

    fn on_joined(&mut self, ticket: Ticket) -> Wants {
        match self.stage {
            Stage::Joining => {
                let contender = Contender::joined(ticket);
                let queue = InQueue { contender, ahead: vec![], watched: BTreeMap::new() };
                self.stage = Stage::InQueue(queue);
                vec![Effect::Do(Action::ReadQueue)]
            }
            // The place was released while it joined.
            Stage::Leaving(None) => {
                self.stage = Stage::Leaving(Some(ticket));
                vec![Effect::Do(Action::Leave(ticket))]
            }
            _ => vec![],
        }
    }

    fn on_ticket_lost(&mut self, lost: Ticket) -> Wants {
        match &self.stage {
            Stage::InQueue(queue) if queue.contender.ticket() != lost => vec![],
            Stage::InQueue(queue) if queue.contender.way().is_some() => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Lost(Loss::Deleted))]
            }
            Stage::InQueue(_) => self.join(),
            _ => vec![],
        }
    }

    fn on_queue_read(
        &mut self,
        session: &mut LeasedSession,
        now: Moment,
        mut entries: Vec<LockEntry>,
    ) -> Wants {
        let Stage::InQueue(queue) = &mut self.stage else { return vec![] };
        let ticket = queue.contender.ticket();
        entries.sort_unstable_by_key(|entry| entry.sequence);
        let mode = self.mode;
        let own = ticket.sequence;
        if queue.contender.is_first() {
            return vec![];
        }
        if !entries.iter().any(|entry| entry.sequence == own) {
            return self.join();
        }
        entries.retain(|entry| entry.sequence < own);
        if let Some(odd) = entries.iter().find(|entry| mode.is_at_odds_with(entry.mode)) {
            return self.leave(ticket, End::Refused { found: HoldingSpec::Lock(odd.mode) });
        }
        entries.retain(|entry| mode.counts(entry.mode));
        queue.ahead = entries.into_iter().map(|entry| entry.sequence).collect();
        queue.locate(mode, session, now)
    }
}

impl InQueue {
    /// Finds its place by those ahead that count.
    fn locate(&mut self, mode: Mode, session: &mut LeasedSession, now: Moment) -> Wants {
        let own = self.contender.ticket().sequence;
        // The first N - 1 do not keep one of N slots from holding: it waits for any of those ahead.
        let in_the_way = self.ahead.iter().skip(mode.room()).copied();
        match self.contender.on_queue_read(in_the_way.chain([own]).collect()) {
            Located::Ignored | Located::Missing => vec![],
            // A znode that the contender passes over, as of a number that was not given behind the head's, exists all the same: the
            // server that showed the head may have lacked it.
            Located::First if self.ahead.len() > mode.room() => {
                self.contender.forget_queue();
                self.locate(mode, session, now)
            }
            Located::First => self.begin(session, now),
            Located::Behind { .. } => self.watch_nearest(mode),
        }
    }

    /// Watches the nearest of those that it waits for, of which one has to go, and one more.
    fn watch_nearest(&mut self, mode: Mode) -> Wants {
        let enough = self.ahead.len().saturating_sub(mode.room() + 2);
        let nearest = &self.ahead[enough..];
        self.watched.retain(|sequence, _| nearest.contains(sequence));
        for (&sequence, &token) in &self.watched {
            if let Some(token) = token {
                note_watched(&mut self.contender, Ticket { sequence, token });
            }
        }
        let unwatched = nearest.iter().filter(|sequence| !self.watched.contains_key(*sequence));
        let unwatched: Vec<_> = unwatched.copied().collect();
        self.watched.extend(unwatched.iter().map(|sequence| (*sequence, None)));
        unwatched.into_iter().map(|sequence| Effect::Do(Action::Watch(sequence))).collect()
    }

    fn on_watched(&mut self, znode: Ticket) {
        if let Some(token) = self.watched.get_mut(&znode.sequence) {
            *token = Some(znode.token);
            note_watched(&mut self.contender, znode);
        }
    }

    fn on_gone(
        &mut self,
        mode: Mode,
        session: &mut LeasedSession,
        now: Moment,
        gone: Sequence,
        token: Option<FencingToken>,
    ) -> Wants {
        let Some(known) = self.watched.remove(&gone) else { return vec![] };
        let Some(nearest) = self.contender.predecessors().map(|ahead| ahead.predecessor) else {
            return vec![];
        };
        self.ahead.retain(|one| *one != gone);
        if self.ahead.len() > mode.room() {
            self.contender.on_head_gone(gone);
            return vec![Effect::Do(Action::ReadQueue)];
        }
        // Of slots any may become free. It is as if the nearest had gone, for which the contender waits.
        let is_known = token.is_some() && token == known;
        let token = match gone == nearest {
            true => token,
            false => self.watched.get(&nearest).copied().flatten(),
        };
        let mut claimed = *session;
        let token = token.filter(|_| is_known);
        match self.contender.on_predecessor_gone(nearest, token, &mut claimed, now) {
            AfterPredecessor::Ignored | AfterPredecessor::ReadQueue => {
                vec![Effect::Do(Action::ReadQueue)]
            }
            AfterPredecessor::Claim => {
                *session = claimed;
                vec![Effect::Renew { sent_at: now }]
            }
            // The existing lease is enough: nothing is sent.
            AfterPredecessor::Hold => vec![],
        }
    }

    /// None is in the way: it holds by the lease that there is, or once a quorum has renewed it.
    fn begin(&mut self, session: &mut LeasedSession, now: Moment) -> Wants {
        self.watched.clear();
        if self.contender.hold_by_lease(session, now) {
            return vec![];
        }
        self.contender.claim(session, now);
        vec![Effect::Renew { sent_at: now }]
    }
}

/// Notes the token of a watched znode, which may be the predecessor's, the head's, or that of both.
fn note_watched(contender: &mut Contender, znode: Ticket) {
    contender.on_predecessor_read(znode);
    contender.on_head_read(znode);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;
    use crate::lease::{LeasePolicy, Margins};
    use std::time::Duration;

    const NOW: Moment = Moment(Duration::from_secs(60));

    fn ticket(number: i32) -> Ticket {
        let token = FencingToken(number.unsigned_abs().into());
        Ticket { sequence: Sequence::new(number).unwrap(), token }
    }

    fn session() -> LeasedSession {
        let second = Duration::from_secs(1);
        let margins = Margins { heartbeat: second, half_tick: second };
        let policy = LeasePolicy { margins, reserve: Duration::ZERO };
        LeasedSession::opened(policy, SessionId(1), 10 * second, NOW).expect("a useful lease")
    }

    fn read(numbers: &[i32]) -> Event {
        let entry = |number| LockEntry { sequence: ticket(number).sequence, mode: Mode::Exclusive };
        Event::QueueRead(numbers.iter().copied().map(entry).collect())
    }

    fn gone(number: i32) -> Event {
        Event::Gone { sequence: ticket(number).sequence, token: Some(ticket(number).token) }
    }

    #[test]
    fn one_that_gives_up_while_it_joins_is_over_when_no_znode_is_made() {
        let mut session = session();
        let mut lock = Lock::new(Mode::Exclusive);
        lock.on_session_opened();
        assert_eq!(lock.release(), [Effect::Ended(End::Released)]);
        assert!(!lock.is_over());
        lock.step(&mut session, NOW, Event::Left);
        assert!(lock.is_over());
    }

    /// A server that lacks the first showed the second as the head; another shows both.
    #[test]
    fn one_ahead_that_was_not_shown_before_is_waited_for() {
        let mut session = session();
        session.committed(NOW, NOW);
        let mut lock = Lock::new(Mode::Exclusive);
        lock.on_session_opened();
        let mut step = |event| lock.step(&mut session, NOW, event);
        step(Event::Joined { ticket: ticket(4), sent_at: None });
        step(read(&[2, 3, 4]));
        for watched in [2, 3] {
            step(Event::Watched(ticket(watched)));
        }
        step(gone(3));
        let first = ticket(1).sequence;
        assert_eq!(step(read(&[1, 2, 4])), [Effect::Do(Action::Watch(first))]);
        step(gone(2));
        assert_eq!(step(read(&[1, 4])), []);
        assert!(!lock.is_first());
        assert_eq!(lock.prove(), Some(Action::Prove(first)));
    }
}
