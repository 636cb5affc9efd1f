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
use std::mem;

/// An entry in a lock's queue, also before it has joined and after it has left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    mode: Mode,
    stage: Stage,
    /// The effects of the current event, in order.
    outbox: Vec<Effect>,
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
        Self { mode, stage: Stage::NoSession, outbox: vec![] }
    }
}

impl Recipe for Lock {
    fn on_session_opened(&mut self) {
        if let Stage::NoSession = self.stage {
            self.join();
        }
    }

    fn on_session_lost(&mut self) {
        match &self.stage {
            Stage::InQueue(queue) if queue.contender.acquired_by().is_some() => {
                self.end(End::Lost(Loss::SessionEnded), Stage::Over);
            }
            Stage::NoSession | Stage::Joining | Stage::InQueue(_) => self.stage = Stage::NoSession,
            Stage::Leaving(_) | Stage::Over => self.stage = Stage::Over,
        }
    }

    fn release(&mut self) {
        match &self.stage {
            Stage::NoSession => self.end(End::Released, Stage::Over),
            Stage::Joining => self.end(End::Released, Stage::Leaving(None)),
            Stage::InQueue(queue) => self.leave(queue.contender.ticket(), End::Released),
            Stage::Leaving(_) | Stage::Over => {}
        }
    }

    fn end_if_lapsed(&mut self, session: &LeasedSession, now: Moment) {
        let Stage::InQueue(InQueue { contender, .. }) = &self.stage else { return };
        if contender.acquired_by().is_some() && contender.holds_for(session, now).is_none() {
            self.leave(contender.ticket(), End::Lost(Loss::LeaseRanOut));
        }
    }

    fn on_committed(&mut self, session: &mut LeasedSession, sent_at: Moment, now: Moment) {
        let Stage::InQueue(InQueue { contender, .. }) = &mut self.stage else { return };
        if !contender.on_committed(session, sent_at, now) {
            // The lease had run out before this commit. `Holdings` ends such a lock before it handles any event, so
            // this is only a second safeguard.
            let ticket = contender.ticket();
            self.leave(ticket, End::Lost(Loss::LeaseRanOut));
        }
    }

    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) {
        match event {
            Event::Joined { ticket, .. } => self.on_joined(ticket),
            Event::TicketLost(ticket) => self.on_ticket_lost(ticket),
            Event::QueueRead(entries) => self.on_queue_read(session, now, entries),
            Event::Watched(znode) => self.on_watched(znode),
            Event::Gone { sequence, token } => self.on_gone(session, now, sequence, token),
            Event::Left => {
                if let Stage::Leaving(_) = self.stage {
                    self.stage = Stage::Over;
                }
            }
            // Only barriers need these.
            Event::BarrierRead(_) | Event::BarrierChanged => {}
        }
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.outbox)
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
    fn join(&mut self) {
        self.stage = Stage::Joining;
        self.outbox.push(Effect::Do(Action::Join(HoldingSpec::Lock(self.mode))));
    }

    /// Reports this end, and enters `stage`.
    fn end(&mut self, end: End, stage: Stage) {
        self.stage = stage;
        self.outbox.push(Effect::Ended(end));
    }

    fn leave(&mut self, ticket: Ticket, end: End) {
        self.end(end, Stage::Leaving(Some(ticket)));
        self.outbox.push(Effect::Do(Action::Leave(ticket)));
    }

    fn on_joined(&mut self, ticket: Ticket) {
        match self.stage {
            Stage::Joining => {
                let contender = Contender::joined(ticket);
                let queue = InQueue { contender, ahead: vec![], watched: BTreeMap::new() };
                self.stage = Stage::InQueue(queue);
                self.outbox.push(Effect::Do(Action::Read));
            }
            // The lock was released during the join.
            Stage::Leaving(None) => {
                self.stage = Stage::Leaving(Some(ticket));
                self.outbox.push(Effect::Do(Action::Leave(ticket)));
            }
            _ => {}
        }
    }

    fn on_ticket_lost(&mut self, lost: Ticket) {
        match &self.stage {
            // The lost znode is an earlier one.
            Stage::InQueue(queue) if queue.contender.ticket() != lost => {}
            Stage::InQueue(queue) if queue.contender.acquired_by().is_some() => {
                self.end(End::Lost(Loss::Deleted), Stage::Over);
            }
            Stage::InQueue(_) => self.join(),
            _ => {}
        }
    }

    fn on_queue_read(
        &mut self,
        session: &mut LeasedSession,
        now: Moment,
        mut entries: Vec<LockEntry>,
    ) {
        let Stage::InQueue(queue) = &mut self.stage else { return };
        // This entry is first already, so the reading is outdated.
        if queue.contender.is_first() {
            return;
        }
        let mode = self.mode;
        let ticket = queue.contender.ticket();
        let own = ticket.sequence;
        // The own znode is lost: a reading without it is delivered only if a quorum agrees.
        if !entries.iter().any(|entry| entry.sequence == own) {
            return self.join();
        }
        entries.sort_unstable_by_key(|entry| entry.sequence);
        entries.retain(|entry| entry.sequence < own);
        // All entries of a queue must be for the same kind of lock: a read/write lock and a lock with slots, for example,
        // cannot share a queue. Refuse this request rather than the earlier ones.
        if let Some(other) = entries.iter().find(|entry| mode.is_incompatible_with(entry.mode)) {
            return self.leave(ticket, End::Refused { found: HoldingSpec::Lock(other.mode) });
        }
        entries.retain(|entry| mode.counts(entry.mode));
        queue.ahead = entries.into_iter().map(|entry| entry.sequence).collect();
        self.locate(session, now);
    }

    /// Finds the place of this entry among the znodes ahead that count. If none is in the way, begins to hold: now if
    /// the session has enough of its lease left, otherwise once a quorum has committed a heartbeat.
    fn locate(&mut self, session: &mut LeasedSession, now: Moment) {
        let Stage::InQueue(queue) = &mut self.stage else { return };
        let own = queue.contender.ticket().sequence;
        // With N slots, this entry may hold while N - 1 entries are ahead, so hide the first N - 1 from the contender.
        let in_the_way = queue.ahead.iter().skip(self.mode.max_ahead()).copied();
        match queue.contender.on_queue_read(in_the_way.chain([own]).collect()) {
            // Neither happens: the caller has returned if this entry was first, and the queue above has the own znode.
            AfterQueueRead::Ignored | AfterQueueRead::Missing => {}
            // The contender is first only because it ignores znodes with a smaller sequence than the head that it knew.
            // But such a znode exists now, and may hold: the server that showed that head may have lost the transaction
            // that created the znode. So forget the head, and count the znode.
            AfterQueueRead::First if queue.ahead.len() > self.mode.max_ahead() => {
                queue.contender.forget_queue();
                self.locate(session, now);
            }
            AfterQueueRead::First => {
                queue.watched.clear();
                if !queue.contender.hold_by_lease(session, now) {
                    queue.contender.claim(session, now);
                    self.outbox.push(Effect::Renew { sent_at: now });
                }
            }
            AfterQueueRead::Behind { .. } => self.watch_nearest(),
        }
    }

    /// Watches the nearest znodes ahead, of which one must go before this entry holds, and one more before them: when
    /// that one is gone, this entry may be the next to hold.
    fn watch_nearest(&mut self) {
        let Stage::InQueue(queue) = &mut self.stage else { return };
        let farther = queue.ahead.len().saturating_sub(self.mode.max_ahead() + 2);
        let to_watch = &queue.ahead[farther..];
        queue.watched.retain(|sequence, _| to_watch.contains(sequence));
        // The contender has forgotten the tokens if its predecessor or its head changed with this reading.
        for (&sequence, &token) in &queue.watched {
            if let Some(token) = token {
                note_watched(&mut queue.contender, Ticket { sequence, token });
            }
        }
        let unwatched = to_watch.iter().filter(|sequence| !queue.watched.contains_key(*sequence));
        let unwatched: Vec<_> = unwatched.copied().collect();
        queue.watched.extend(unwatched.iter().map(|sequence| (*sequence, None)));
        let watches = unwatched.into_iter().map(|sequence| Effect::Do(Action::Watch(sequence)));
        self.outbox.extend(watches);
    }

    /// Notes the token of a znode that is watched now.
    fn on_watched(&mut self, znode: Ticket) {
        let Stage::InQueue(queue) = &mut self.stage else { return };
        if let Some(token) = queue.watched.get_mut(&znode.sequence) {
            *token = Some(znode.token);
            note_watched(&mut queue.contender, znode);
        }
    }

    /// Handles the disappearance of a watched znode: holds, claims, or reads the queue again.
    fn on_gone(
        &mut self,
        session: &mut LeasedSession,
        now: Moment,
        gone: Sequence,
        token: Option<FencingToken>,
    ) {
        let Stage::InQueue(queue) = &mut self.stage else { return };
        let Some(known_token) = queue.watched.remove(&gone) else { return };
        let Some(predecessors) = queue.contender.predecessors() else { return };
        let nearest = predecessors.predecessor;
        queue.ahead.retain(|sequence| *sequence != gone);
        // Other entries are still in the way. The gone one may have been the head. Read the queue to learn which of the
        // others to watch.
        if queue.ahead.len() > self.mode.max_ahead() {
            queue.contender.on_head_gone(gone);
            return self.outbox.push(Effect::Do(Action::Read));
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
            queue.watched.get(&nearest).copied().flatten()
        };
        // If the contender holds at once, it notes a heartbeat in the session, because a member of an election then sends
        // its claim. A lock sends nothing then, so pass a copy of the session.
        let mut copy = *session;
        match queue.contender.on_predecessor_gone(nearest, nearest_token, &mut copy, now) {
            // The contender does not know that the nearest entry was the head.
            AfterPredecessorGone::Ignored | AfterPredecessorGone::ReadQueue => {
                self.outbox.push(Effect::Do(Action::Read));
            }
            AfterPredecessorGone::Claim => {
                queue.contender.claim(session, now);
                self.outbox.push(Effect::Renew { sent_at: now });
            }
            // The session has enough of its lease left, so no heartbeat is needed.
            AfterPredecessorGone::Hold => {}
        }
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
        lock.outbox.clear();
        lock.release();
        assert_eq!(lock.outbox, [Effect::Ended(End::Released)]);
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
        let mut step = |event| {
            lock.step(&mut session, NOW, event);
            lock.take_effects()
        };
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
