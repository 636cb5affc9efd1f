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
use crate::place::{Action, Effect, Event, Next, Outbox, Recipe};
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// An entry in a lock's queue: the lock is waited for or held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    mode: Mode,
    contender: Contender,
    /// The znodes ahead that [count](Mode::counts), in order, as of the last reading, without the znodes that are known
    /// to be gone since.
    ahead: Vec<Sequence>,
    /// The watched znodes among `ahead`, each with its token; `None` until the znode was read.
    watched: BTreeMap<Sequence, Option<FencingToken>>,
    outbox: Outbox,
}

impl Recipe for Lock {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn on_session_opened(&mut self) {}

    fn on_session_lost(&mut self) -> Next {
        if self.is_held() { Next::Over(End::Lost(Loss::SessionEnded)) } else { Next::AwaitSession }
    }

    fn release(&mut self) -> Next {
        Next::Leave(End::Released)
    }

    fn end_if_lapsed(&self, session: &LeasedSession, now: Moment) -> Next {
        if self.is_held() && self.contender.holds_for(session, now).is_none() {
            Next::Leave(End::Lost(Loss::LeaseRanOut))
        } else {
            Next::Stay
        }
    }

    fn on_committed(&mut self, session: &mut LeasedSession, sent_at: Moment, now: Moment) -> Next {
        if self.contender.on_committed(session, sent_at, now) {
            Next::Stay
        } else {
            // The lease had run out before this commit. `Holdings` ends such a lock before it handles any event, so
            // this is only a second safeguard.
            Next::Leave(End::Lost(Loss::LeaseRanOut))
        }
    }

    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Next {
        match event {
            Event::TicketLost(lost) if lost == self.contender.ticket() => {
                return if self.is_held() {
                    Next::Over(End::Lost(Loss::Deleted))
                } else {
                    Next::Rejoin
                };
            }
            Event::QueueRead(entries) => return self.on_queue_read(session, now, entries),
            Event::Watched(znode) => self.on_watched(znode),
            Event::Gone { sequence, token } => self.on_gone(session, now, sequence, token),
            _ => {}
        }
        Next::Stay
    }

    fn waits_for(&self) -> Option<Sequence> {
        self.contender.predecessors().map(|ahead| ahead.predecessor)
    }

    fn needs_lease(&self) -> bool {
        self.contender.is_first()
    }

    fn ticket(&self) -> Option<Ticket> {
        Some(self.contender.ticket())
    }

    fn state(&self, session: Option<&LeasedSession>, now: Moment) -> HoldingState {
        let contender = &self.contender;
        if let Some(left) = session.and_then(|session| contender.holds_for(session, now)) {
            return HoldingState::Held { token: contender.ticket().token, until: now.after(left) };
        }
        if self.is_held() {
            HoldingState::Ended(End::Lost(Loss::LeaseRanOut))
        } else if contender.is_first() {
            // The lock is held once a quorum has committed a heartbeat.
            HoldingState::Waiting { ahead: Some(0) }
        } else if contender.predecessors().is_some() {
            HoldingState::Waiting { ahead: Some(self.ahead.len()) }
        } else {
            // The queue is being read.
            HoldingState::Waiting { ahead: None }
        }
    }
}

impl Lock {
    pub(crate) fn joined(mode: Mode, ticket: Ticket) -> Self {
        let contender = Contender::joined(ticket);
        Self { mode, contender, ahead: vec![], watched: BTreeMap::new(), outbox: vec![] }
    }

    /// Returns true if the lock is held, or was held until its lease ran out.
    fn is_held(&self) -> bool {
        self.contender.acquired_by().is_some()
    }

    fn on_queue_read(
        &mut self,
        session: &mut LeasedSession,
        now: Moment,
        mut entries: Vec<LockEntry>,
    ) -> Next {
        // This entry is first already, so the reading is outdated.
        if self.contender.is_first() {
            return Next::Stay;
        }
        let own = self.contender.ticket().sequence;
        // The own znode is lost: a reading without it is delivered only if a quorum agrees.
        if !entries.iter().any(|entry| entry.sequence == own) {
            return Next::Rejoin;
        }
        entries.sort_unstable_by_key(|entry| entry.sequence);
        entries.retain(|entry| entry.sequence < own);
        // All entries of a queue must be for the same kind of lock: a read/write lock and a lock with slots, for example,
        // cannot share a queue. Refuse this request rather than the earlier ones.
        if let Some(other) = entries.iter().find(|entry| self.mode.is_incompatible_with(entry.mode))
        {
            return Next::Leave(End::Refused { found: HoldingSpec::Lock(other.mode) });
        }
        entries.retain(|entry| self.mode.counts(entry.mode));
        self.ahead = entries.into_iter().map(|entry| entry.sequence).collect();
        self.locate(session, now);
        Next::Stay
    }

    /// Finds the place of this entry among the znodes ahead that count. If none is in the way, begins to hold: now if
    /// the session has enough of its lease left, otherwise once a quorum has committed a heartbeat.
    fn locate(&mut self, session: &mut LeasedSession, now: Moment) {
        let own = self.contender.ticket().sequence;
        // With N slots, this entry may hold while N - 1 entries are ahead, so hide the first N - 1 from the contender.
        let in_the_way = self.ahead.iter().skip(self.mode.max_ahead()).copied();
        match self.contender.on_queue_read(in_the_way.chain([own]).collect()) {
            // Neither happens: the caller has returned if this entry was first, and the queue above has the own znode.
            AfterQueueRead::Ignored | AfterQueueRead::Missing => {}
            // The contender is first only because it ignores znodes with a smaller sequence than the head that it knew.
            // But such a znode exists now, and may hold: the server that showed that head may have lost the transaction
            // that created the znode. So forget the head, and count the znode.
            AfterQueueRead::First if self.ahead.len() > self.mode.max_ahead() => {
                self.contender.forget_queue();
                self.locate(session, now);
            }
            AfterQueueRead::First => {
                self.watched.clear();
                if !self.contender.hold_by_lease(session, now) {
                    self.contender.claim(session, now);
                    self.outbox.push(Effect::Renew { sent_at: now });
                }
            }
            AfterQueueRead::Behind { .. } => self.watch_nearest(),
        }
    }

    /// Watches the nearest znodes ahead, of which one must go before this entry holds, and one more before them: when
    /// that one is gone, this entry may be the next to hold.
    fn watch_nearest(&mut self) {
        let farther = self.ahead.len().saturating_sub(self.mode.max_ahead() + 2);
        let to_watch = &self.ahead[farther..];
        self.watched.retain(|sequence, _| to_watch.contains(sequence));
        // The contender has forgotten the tokens if its predecessor or its head changed with this reading.
        for (&sequence, &token) in &self.watched {
            if let Some(token) = token {
                note_watched(&mut self.contender, Ticket { sequence, token });
            }
        }
        for &sequence in to_watch {
            if let Entry::Vacant(unwatched) = self.watched.entry(sequence) {
                unwatched.insert(None);
                self.outbox.push(Effect::Do(Action::Watch(sequence)));
            }
        }
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
        session: &mut LeasedSession,
        now: Moment,
        gone: Sequence,
        token: Option<FencingToken>,
    ) {
        let Some(known_token) = self.watched.remove(&gone) else { return };
        let Some(nearest) = self.waits_for() else { return };
        self.ahead.retain(|sequence| *sequence != gone);
        // Other entries are still in the way. The gone one may have been the head. Read the queue to learn which of the
        // others to watch.
        if self.ahead.len() > self.mode.max_ahead() {
            self.contender.on_head_gone(gone);
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
            self.watched.get(&nearest).copied().flatten()
        };
        // If the contender holds at once, it notes a heartbeat in the session, because a member of an election then sends
        // its claim. A lock sends nothing then, so pass a copy of the session.
        let mut copy = *session;
        match self.contender.on_predecessor_gone(nearest, nearest_token, &mut copy, now) {
            // The contender does not know that the nearest entry was the head.
            AfterPredecessorGone::Ignored | AfterPredecessorGone::ReadQueue => {
                self.outbox.push(Effect::Do(Action::Read));
            }
            AfterPredecessorGone::Claim => {
                self.contender.claim(session, now);
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
    use crate::place::Place;
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
        let mut lock = Place::new(HoldingSpec::Lock(Mode::Exclusive));
        lock.on_session_opened();
        lock.take_effects();
        lock.release();
        assert_eq!(lock.take_effects(), [Effect::Ended(End::Released)]);
        assert!(!lock.is_over());
        lock.step(&mut session, NOW, Event::Left);
        assert!(lock.is_over());
    }

    /// A server without the first znode showed the second as the head; another server shows both.
    #[test]
    fn one_ahead_that_was_not_shown_before_is_waited_for() {
        let mut session = session();
        session.committed(NOW, NOW);
        let mut lock = Place::new(HoldingSpec::Lock(Mode::Exclusive));
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
