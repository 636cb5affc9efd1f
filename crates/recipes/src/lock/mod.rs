//! Locks: exclusive, shared, and with a number of slots, in one queue by order of arrival.
//!
//! An exclusive lock (a writer) waits for all entries ahead, a shared lock (a reader) for the writers ahead, and a lock
//! with N slots until fewer than N entries are ahead. No entry overtakes another, so a writer behind many readers gets
//! its turn: readers that come later wait for it.
//!
//! Each entry watches the nearest znode that it waits for (with N slots, the nearest N), and one more before that. When
//! one of these znodes goes, the entry learns whether it is the next to hold. The next to hold does so as soon as it is
//! notified that the last znode in its way is gone, if its session has a lease. A release wakes the next entry and the
//! one behind that; the release of a writer may instead wake all readers behind it.
//!
//! # Guarantees
//!
//! As long as no server has lost a transaction, two locks that exclude each other are never held at the same time: a
//! lock is held only while no entry is in its way and its session's lease runs, and its own znode exists until that
//! lease ends.
//!
//! Unlike an election, a lock has no claim znode: readers hold together, and no single znode could exclude a writer
//! from all of them. So at a server that has lost the transaction that created a holder's znode, a second entry may
//! hold at the same time. The tokens of the two differ, and tokens grow along the queue: where two holders could do
//! harm, the store must refuse the smaller token. The same is true when a holder's znode was deleted by force, until
//! the holder is notified.

mod mode;

pub use mode::{LockEntry, Mode, holders};

use crate::contender::{AfterPredecessorGone, AfterQueueRead, Contender};
use crate::holding::{End, HoldingSpec, HoldingState, Loss};
use crate::place::{Action, Effect, Event, Recipe};
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::collections::BTreeMap;

/// An entry in a lock's queue, also before it has joined and after it has left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    mode: Mode,
    stage: Stage,
}

/// The stage of a lock, from its request to the end that is reported to its application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The lock needs a session to join its queue.
    NoSession,
    /// The own znode is being created.
    Joining,
    /// The own znode exists: the lock is waited for or held.
    InQueue(InQueue),
    /// The end was reported, but the znode is not deleted yet. `None` while the znode is still being created.
    Leaving(Option<Ticket>),
    /// The end was reported, and the znode is gone.
    Over,
}

/// The state of a lock that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InQueue {
    contender: Contender,
    /// The znodes ahead that [count](Mode::counts), in order, as of the last reading, without the znodes that are known
    /// to be gone since.
    ahead: Vec<Sequence>,
    /// The watched znodes among `ahead`, each with its token; `None` until the znode was read.
    watched: BTreeMap<Sequence, Option<FencingToken>>,
}

impl Lock {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, stage: Stage::NoSession }
    }
}

impl Recipe for Lock {
    fn on_session_opened(&mut self) -> Vec<Effect> {
        match self.stage {
            Stage::NoSession => self.join(),
            _ => vec![],
        }
    }

    fn on_session_lost(&mut self) -> Vec<Effect> {
        match &self.stage {
            Stage::InQueue(queue) if queue.contender.acquired_by().is_some() => {
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

    fn release(&mut self) -> Vec<Effect> {
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

    fn end_if_lapsed(&mut self, session: &LeasedSession, now: Moment) -> Vec<Effect> {
        match &self.stage {
            Stage::InQueue(InQueue { contender, .. })
                if contender.acquired_by().is_some()
                    && contender.holds_for(session, now).is_none() =>
            {
                let ticket = contender.ticket();
                self.leave(ticket, End::Lost(Loss::LeaseRanOut))
            }
            _ => vec![],
        }
    }

    fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> Vec<Effect> {
        let Stage::InQueue(queue) = &mut self.stage else { return vec![] };
        let ticket = queue.contender.ticket();
        if queue.contender.on_committed(session, sent_at, now) {
            return vec![];
        }
        // The lease had run out before this commit. `Holdings` ends such a lock before it handles any event, so this is
        // only a second safeguard.
        self.leave(ticket, End::Lost(Loss::LeaseRanOut))
    }

    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Vec<Effect> {
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
            // Only barriers need these.
            Event::BarrierRead(_) | Event::BarrierChanged => vec![],
        }
    }

    fn waits_for(&self) -> Option<Sequence> {
        let Stage::InQueue(queue) = &self.stage else { return None };
        queue.contender.predecessors().map(|ahead| ahead.predecessor)
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn needs_lease(&self) -> bool {
        matches!(&self.stage, Stage::InQueue(queue) if queue.contender.is_first())
    }

    fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::InQueue(queue) => Some(queue.contender.ticket()),
            Stage::Leaving(ticket) => *ticket,
            _ => None,
        }
    }

    fn status(&self, session: Option<&LeasedSession>, now: Moment) -> Option<HoldingState> {
        let queue = match &self.stage {
            Stage::NoSession | Stage::Joining => {
                return Some(HoldingState::Waiting { ahead: None });
            }
            Stage::InQueue(queue) => queue,
            Stage::Leaving(_) | Stage::Over => return None,
        };
        let contender = &queue.contender;
        if let Some(left) = session.and_then(|session| contender.holds_for(session, now)) {
            let token = contender.ticket().token;
            return Some(HoldingState::Held { token, until: now.after(left) });
        }
        Some(if contender.acquired_by().is_some() {
            HoldingState::Ended(End::Lost(Loss::LeaseRanOut))
        } else if contender.is_first() {
            // The lock is held once a quorum has committed a heartbeat.
            HoldingState::Waiting { ahead: Some(0) }
        } else if contender.predecessors().is_some() {
            HoldingState::Waiting { ahead: Some(queue.ahead.len()) }
        } else {
            // The queue is being read.
            HoldingState::Waiting { ahead: None }
        })
    }
}

impl Lock {
    fn join(&mut self) -> Vec<Effect> {
        self.stage = Stage::Joining;
        vec![Effect::Do(Action::Join(HoldingSpec::Lock(self.mode)))]
    }

    fn leave(&mut self, ticket: Ticket, end: End) -> Vec<Effect> {
        self.stage = Stage::Leaving(Some(ticket));
        vec![Effect::Ended(end), Effect::Do(Action::Leave(ticket))]
    }

    fn on_joined(&mut self, ticket: Ticket) -> Vec<Effect> {
        match self.stage {
            Stage::Joining => {
                let contender = Contender::joined(ticket);
                let queue = InQueue { contender, ahead: vec![], watched: BTreeMap::new() };
                self.stage = Stage::InQueue(queue);
                vec![Effect::Do(Action::Read)]
            }
            // The lock was released during the join.
            Stage::Leaving(None) => {
                self.stage = Stage::Leaving(Some(ticket));
                vec![Effect::Do(Action::Leave(ticket))]
            }
            _ => vec![],
        }
    }

    fn on_ticket_lost(&mut self, lost: Ticket) -> Vec<Effect> {
        match &self.stage {
            // The lost znode is an earlier one.
            Stage::InQueue(queue) if queue.contender.ticket() != lost => vec![],
            Stage::InQueue(queue) if queue.contender.acquired_by().is_some() => {
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
    ) -> Vec<Effect> {
        let Stage::InQueue(queue) = &mut self.stage else { return vec![] };
        let ticket = queue.contender.ticket();
        entries.sort_unstable_by_key(|entry| entry.sequence);
        let mode = self.mode;
        let own = ticket.sequence;
        // This entry is first already, so the reading is outdated.
        if queue.contender.is_first() {
            return vec![];
        }
        // The own znode is lost: a reading without it is delivered only if a quorum agrees.
        if !entries.iter().any(|entry| entry.sequence == own) {
            return self.join();
        }
        entries.retain(|entry| entry.sequence < own);
        // All entries must have compatible modes. Refuse this request rather than the earlier ones.
        if let Some(other) = entries.iter().find(|entry| mode.is_incompatible_with(entry.mode)) {
            return self.leave(ticket, End::Refused { found: HoldingSpec::Lock(other.mode) });
        }
        entries.retain(|entry| mode.counts(entry.mode));
        queue.ahead = entries.into_iter().map(|entry| entry.sequence).collect();
        queue.locate(mode, session, now)
    }
}

impl InQueue {
    /// Finds the place of this entry among the znodes ahead that count.
    fn locate(&mut self, mode: Mode, session: &mut LeasedSession, now: Moment) -> Vec<Effect> {
        let own = self.contender.ticket().sequence;
        // With N slots, this entry may hold while N - 1 entries are ahead, so hide the first N - 1 from the contender.
        let in_the_way = self.ahead.iter().skip(mode.max_ahead()).copied();
        match self.contender.on_queue_read(in_the_way.chain([own]).collect()) {
            // Neither happens: the caller has returned if this entry was first, and the queue above has the own znode.
            AfterQueueRead::Ignored | AfterQueueRead::Missing => vec![],
            // The contender is first only because it ignores znodes with a smaller sequence than the head that it knew.
            // But such a znode exists now, and may hold: the server that showed that head may have lost the transaction
            // that created the znode. So forget the head, and count the znode.
            AfterQueueRead::First if self.ahead.len() > mode.max_ahead() => {
                self.contender.forget_queue();
                self.locate(mode, session, now)
            }
            AfterQueueRead::First => self.begin(session, now),
            AfterQueueRead::Behind { .. } => self.watch_nearest(mode),
        }
    }

    /// Watches the nearest znodes ahead, of which one must go before this entry holds, and one more before them: when
    /// that one is gone, this entry may be the next to hold.
    fn watch_nearest(&mut self, mode: Mode) -> Vec<Effect> {
        let farther = self.ahead.len().saturating_sub(mode.max_ahead() + 2);
        let to_watch = &self.ahead[farther..];
        self.watched.retain(|sequence, _| to_watch.contains(sequence));
        // The contender has forgotten the tokens if its predecessor or its head changed with this reading.
        for (&sequence, &token) in &self.watched {
            if let Some(token) = token {
                note_watched(&mut self.contender, Ticket { sequence, token });
            }
        }
        let unwatched = to_watch.iter().filter(|sequence| !self.watched.contains_key(*sequence));
        let unwatched: Vec<_> = unwatched.copied().collect();
        self.watched.extend(unwatched.iter().map(|sequence| (*sequence, None)));
        unwatched.into_iter().map(|sequence| Effect::Do(Action::Watch(sequence))).collect()
    }

    /// Notes the token of a znode that is watched now.
    fn on_watched(&mut self, znode: Ticket) {
        if let Some(token) = self.watched.get_mut(&znode.sequence) {
            *token = Some(znode.token);
            note_watched(&mut self.contender, znode);
        }
    }

    /// Handles the disappearance of a watched znode: holds, claims, or reads the queue again.
    fn on_gone(
        &mut self,
        mode: Mode,
        session: &mut LeasedSession,
        now: Moment,
        gone: Sequence,
        token: Option<FencingToken>,
    ) -> Vec<Effect> {
        let Some(known_token) = self.watched.remove(&gone) else { return vec![] };
        let Some(nearest) = self.contender.predecessors().map(|ahead| ahead.predecessor) else {
            return vec![];
        };
        self.ahead.retain(|sequence| *sequence != gone);
        // Other entries are still in the way. Read the queue to learn which of them to watch.
        if self.ahead.len() > mode.max_ahead() {
            self.contender.on_head_gone(gone);
            return vec![Effect::Do(Action::Read)];
        }
        // With several slots, any watched entry that goes frees one. The contender knows only the nearest entry, so
        // report to it that the nearest entry is gone, with the token of that entry. If the gone znode is perhaps not
        // the one that was watched, report no token: then the contender claims, instead of holding by the session's
        // lease.
        let is_known = token.is_some() && token == known_token;
        let nearest_token = if !is_known {
            None
        } else if gone == nearest {
            token
        } else {
            self.watched.get(&nearest).copied().flatten()
        };
        // When it holds, the contender notes a heartbeat in the session, because an election sends a claim. A lock
        // sends none, so pass a copy of the session.
        let mut copy = *session;
        match self.contender.on_predecessor_gone(nearest, nearest_token, &mut copy, now) {
            // The contender does not know that the nearest entry was the head.
            AfterPredecessorGone::Ignored | AfterPredecessorGone::ReadQueue => {
                vec![Effect::Do(Action::Read)]
            }
            AfterPredecessorGone::Claim => {
                self.contender.claim(session, now);
                vec![Effect::Renew { sent_at: now }]
            }
            // The session has enough of its lease left, so no heartbeat is needed.
            AfterPredecessorGone::Hold => vec![],
        }
    }

    /// Begins to hold, because no entry is in the way: now if the session has enough of its lease left, otherwise once
    /// a quorum has committed a heartbeat.
    fn begin(&mut self, session: &mut LeasedSession, now: Moment) -> Vec<Effect> {
        self.watched.clear();
        if self.contender.hold_by_lease(session, now) {
            return vec![];
        }
        self.contender.claim(session, now);
        vec![Effect::Renew { sent_at: now }]
    }
}

/// Notes the token of a watched znode, which may be the predecessor, the head, or both.
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

    /// A server without the first znode showed the second as the head; another server shows both.
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
        assert!(!lock.needs_lease());
        assert_eq!(lock.waits_for(), Some(first));
    }
}
