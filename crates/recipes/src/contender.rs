//! A contender: a session's place in a queue. It keeps track of the contenders ahead, and of whether this contender
//! holds.
//!
//! A contender holds while no other is ahead of it and its session's lease runs. The election and the locks are both
//! built on it: for a member of an election, to hold means to lead; for a lock, it means to own the lock.

use crate::queue::{Head, Predecessors, Queue, QueuePlace};
use crate::session::{Duty, LeasedSession};
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::time::Duration;

/// A session's place in one queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    ticket: Ticket,
    state: ContenderState,
    /// Members that a quorum says are gone. The connected server may have lost the transactions that ended them, and
    /// list them for as long as it runs.
    denied: Vec<Sequence>,
}

/// The state of a contender, from joining the queue to holding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ContenderState {
    /// The queue is being read. `Some` has the contenders that were ahead at the last reading. Nobody can join ahead of
    /// their head, so znodes with a smaller sequence in the next reading are ignored.
    Locating(Option<Predecessors>),
    /// These contenders are ahead.
    Behind(Predecessors),
    /// First, but no quorum has confirmed yet that this contender may hold. The claim was sent at `sent_at`, and this
    /// contender holds once a quorum has acknowledged it.
    Claiming { sent_at: Moment },
    /// The connected server shows no contender ahead, but a quorum refused the claim: a contender ahead, which that
    /// server does not show, owns the claim znode, or an unknown client does.
    Refused,
    /// First, and the session's lease was running when this contender began to hold. The lease may have run out since:
    /// see [`Contender::holds_for`].
    Holding(AcquiredBy),
}

/// How a contender began to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquiredBy {
    /// The contender right behind the head was notified that the head is gone. Its session had a lease, so it held at
    /// once.
    Notification,
    /// A quorum acknowledged its claim; or, for a lock, the queue showed no contender ahead, and its session had a
    /// lease.
    Claim,
}

/// The owner of the claim znode because of which a quorum refused this contender's claim or renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOwner {
    /// The contender with this ticket. The session that made the claim lives, since the claim znode ends with it.
    Contender(Ticket),
    /// The claim was created by a client that is not a contender.
    Unknown,
    /// A session whose claim znode the connected server does not show: that server has lost a transaction.
    NotShown,
    /// No owner: this contender's claim was acknowledged, but its claim znode has been deleted since.
    Gone,
}

/// The result of [`Contender::on_claim_refused`]: the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterRefusal {
    /// This contender no longer claims or holds, or has claimed again since.
    Ignored,
    /// The owner of the claim is ahead: this contender keeps its place and waits.
    Wait,
    /// A contender behind this one owns the claim, or may have owned it in between. Its token is larger, and tokens
    /// must grow from holder to holder, so this contender must leave the queue.
    Leave,
}

/// The result of [`Contender::on_queue_read`]: this contender's place, and the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterQueueRead {
    /// This contender already claims or holds, so the reading is outdated.
    Ignored,
    /// No contender is ahead. The caller must claim; a lock may hold at once by its session's lease instead.
    First,
    /// Other contenders are ahead, the first of which is `head`. The caller must set a watch on `watch`, which is the
    /// predecessor; `None` if the predecessor is the same as before, and so is watched already.
    Behind { watch: Option<Sequence>, head: Sequence },
    /// The own znode is not in the queue. The caller must join again.
    Missing,
}

/// The result of [`Contender::on_predecessor_gone`]: the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterPredecessorGone {
    /// The znode was not the predecessor's.
    Ignored,
    /// The predecessor was not the head, so other members may still be ahead.
    ReadQueue,
    /// The predecessor was the head, so this contender is first. The caller must claim: a quorum has to confirm that
    /// the session lives.
    Claim,
    /// The predecessor was the head, and enough of the session's lease is left, so this contender holds already.
    Hold,
}

/// The result of [`Contender::on_head_gone`]: the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterHeadGone {
    /// The znode was not the known head.
    Ignored,
    /// The member with this sequence was right behind the gone head, so it is the head now: no member can have joined
    /// between them. The caller must read its znode.
    Read(Sequence),
    /// The new head is not known. The caller must read the queue with the next heartbeat.
    Unknown,
}

impl Contender {
    /// Creates a contender whose own znode has this ticket, and whose queue is not read yet.
    pub(crate) fn joined(ticket: Ticket) -> Self {
        Self { ticket, state: ContenderState::Locating(None), denied: vec![] }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the members ahead; `None` if no member is ahead, or if it is not known which, as while the queue is
    /// read.
    pub(crate) fn predecessors(&self) -> Option<&Predecessors> {
        match &self.state {
            ContenderState::Behind(predecessors) => Some(predecessors),
            _ => None,
        }
    }

    /// Returns true if no contender is ahead, as far as is known, so that this one claims or holds. False after a
    /// refusal, because another may be ahead.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.state, ContenderState::Claiming { .. } | ContenderState::Holding(_))
    }

    /// Returns how this contender began to hold; `None` if it has not begun. It need not hold any longer: for that, see
    /// [`Self::holds_for`].
    pub(crate) fn acquired_by(&self) -> Option<AcquiredBy> {
        match self.state {
            ContenderState::Holding(acquired_by) => Some(acquired_by),
            _ => None,
        }
    }

    /// Returns true if the claim was refused and it is not known yet which member is ahead.
    pub(crate) fn is_refused(&self) -> bool {
        self.state == ContenderState::Refused
    }

    /// Returns how much longer this contender holds; `None` if it has not begun to hold, or its lease has run out.
    pub(crate) fn holds_for(&self, session: &LeasedSession, now: Moment) -> Option<Duration> {
        let ContenderState::Holding(_) = self.state else { return None };
        session.lease_left(now)
    }

    /// Returns true for the standby, the one member right behind the head.
    pub(crate) fn is_standby(&self) -> bool {
        self.predecessors().is_some_and(Predecessors::predecessor_is_head)
    }

    /// Returns the purpose of this contender's heartbeats, which its place decides; `None` while the queue is read.
    pub(crate) fn duty(&self) -> Option<Duty> {
        match &self.state {
            ContenderState::Locating(_) => None,
            ContenderState::Behind(_) if self.is_standby() => Some(Duty::StandBy),
            ContenderState::Behind(_) => Some(Duty::Wait),
            ContenderState::Claiming { .. }
            | ContenderState::Refused
            | ContenderState::Holding(_) => Some(Duty::Hold),
        }
    }

    /// Returns true if `leader`, the ticket of an announced leader, has a smaller sequence than all members in the last
    /// listing of the queue. Then that leader has left since it was announced, or the server that listed the queue does
    /// not show it. False if its token is larger than the own one: such a leader cannot be ahead, so it is not looked
    /// for.
    pub(crate) fn is_ahead_of_queue(&self, leader: Ticket) -> bool {
        leader.token < self.ticket.token
            && self.predecessors().is_some_and(|ahead| ahead.is_before_head(leader))
    }

    /// Forgets the queue, which must be read again: the server that listed it did not show all of it.
    pub(crate) fn forget_queue(&mut self) {
        self.state = ContenderState::Locating(None);
    }

    /// Finds this contender's place in a listing of the queue.
    pub(crate) fn on_queue_read(&mut self, queue: Queue) -> AfterQueueRead {
        // The contenders that were known to be ahead, and the predecessor that is watched.
        let (known, watched) = match &self.state {
            ContenderState::Locating(known) => (known.as_ref(), None),
            ContenderState::Behind(known) => (Some(known), Some(known.predecessor)),
            ContenderState::Refused => (None, None),
            ContenderState::Claiming { .. } | ContenderState::Holding(_) => {
                return AfterQueueRead::Ignored;
            }
        };
        self.denied.retain(|denied| queue.contains(*denied));
        // Also ignore znodes that sort before the known head: ZooKeeper assigns growing sequences, so they were created
        // by hand. If instead an earlier server did not show them, the caller finds that out and forgets the queue.
        let queue = match known {
            None if self.denied.is_empty() => queue,
            _ => queue
                .iter()
                .filter(|sequence| !self.denied.contains(sequence))
                .filter(|sequence| known.is_none_or(|known| known.head.allows_first(*sequence)))
                .collect(),
        };
        match queue.place_of(self.ticket.sequence) {
            QueuePlace::First => AfterQueueRead::First,
            QueuePlace::Missing => AfterQueueRead::Missing,
            QueuePlace::Behind { predecessor, head } => {
                let is_watched = watched == Some(predecessor);
                // Keep the tokens that were read, if the predecessor and the head are the same as before.
                let mut predecessor_token = None;
                let mut head_token = None;
                if let Some(known) = known {
                    if is_watched {
                        predecessor_token = known.predecessor_token;
                    }
                    if known.head == Head::Present(head) {
                        head_token = known.head_token;
                    }
                }
                self.state = ContenderState::Behind(Predecessors {
                    predecessor,
                    predecessor_token,
                    queue,
                    head: Head::Present(head),
                    head_token,
                });
                let watch = if is_watched { None } else { Some(predecessor) };
                AfterQueueRead::Behind { watch, head }
            }
        }
    }

    /// Notes the token of a znode that was read and is watched. Returns false if the znode is not the predecessor's:
    /// then nothing is noted.
    pub(crate) fn on_predecessor_read(&mut self, read: Ticket) -> bool {
        let ContenderState::Behind(ahead) = &mut self.state else { return false };
        if ahead.predecessor != read.sequence {
            return false;
        }
        ahead.predecessor_token = Some(read.token);
        if ahead.predecessor_is_head() {
            ahead.head_token = Some(read.token);
        }
        true
    }

    /// Notes that a quorum says that the predecessor is gone, so that the next listing is read without it.
    pub(crate) fn predecessor_denied(&mut self, predecessor: Sequence) {
        self.denied.push(predecessor);
    }

    /// Handles the disappearance of the znode with the sequence `gone`. The token is that of the watched znode with
    /// this sequence, if it was read.
    ///
    /// The queue never grows at its head. So once the head is gone, the member right behind it is first, and holds at
    /// once if its session has a lease: until that lease ends, its own znode exists, and no member behind it can be
    /// first.
    pub(crate) fn on_predecessor_gone(
        &mut self,
        gone: Sequence,
        token: Option<FencingToken>,
        session: &mut LeasedSession,
        now: Moment,
    ) -> AfterPredecessorGone {
        let ContenderState::Behind(ahead) = &self.state else {
            return AfterPredecessorGone::Ignored;
        };
        if ahead.predecessor != gone {
            return AfterPredecessorGone::Ignored;
        }
        if !ahead.predecessor_is_head() {
            self.state = ContenderState::Locating(Some(ahead.clone()));
            return AfterPredecessorGone::ReadQueue;
        }
        // A re-created path assigns the same sequences again, so only an equal token shows that the predecessor itself
        // is gone. A token larger than the own one belongs to a znode created by hand, whose end does not show that
        // this contender is next.
        let is_known = token.is_some() && token == ahead.predecessor_token;
        let is_older = token.is_some_and(|token| token < self.ticket.token);
        if is_known && is_older && session.has_enough_lease(now) {
            // In an election, the caller sends the claim now, which is also a heartbeat.
            session.heartbeat_sent(now);
            self.state = ContenderState::Holding(AcquiredBy::Notification);
            AfterPredecessorGone::Hold
        } else {
            AfterPredecessorGone::Claim
        }
    }

    /// Notes the token of the head's znode. Returns false if `head` is not the head that this contender knows.
    pub(crate) fn on_head_read(&mut self, head: Ticket) -> bool {
        let ContenderState::Behind(ahead) = &mut self.state else { return false };
        if ahead.head != Head::Present(head.sequence) {
            return false;
        }
        ahead.head_token = Some(head.token);
        true
    }

    /// Handles the disappearance of the znode with the sequence `gone`, if it is the head that this contender knows. It is
    /// not the predecessor's, which [`Self::on_predecessor_gone`] handles.
    pub(crate) fn on_head_gone(&mut self, gone: Sequence) -> AfterHeadGone {
        let ContenderState::Behind(ahead) = &mut self.state else { return AfterHeadGone::Ignored };
        if ahead.head != Head::Present(gone) {
            return AfterHeadGone::Ignored;
        }
        match ahead.queue.behind(gone) {
            // Try the next member only if the gone head was read while it existed. If it was gone before, many members
            // may have died at once, and one reading of the queue replaces the attempts to read one after the other.
            Some(next) if ahead.head_token.is_some() => {
                ahead.head = Head::Present(next);
                ahead.head_token = None;
                AfterHeadGone::Read(next)
            }
            _ => {
                ahead.head = Head::Gone(gone);
                AfterHeadGone::Unknown
            }
        }
    }

    /// Begins to claim. The caller sends a quorum write at `now`, and this contender holds once the write is committed.
    pub(crate) fn claim(&mut self, session: &mut LeasedSession, now: Moment) {
        session.heartbeat_sent(now);
        self.state = ContenderState::Claiming { sent_at: now };
    }

    /// Begins to hold a lock by the session's lease, and returns true, if enough of the lease is left. Otherwise does
    /// nothing, and returns false. The caller has read the queue and found no entry in the way. None can come later,
    /// since the queue never grows at its head.
    pub(crate) fn hold_by_lease(&mut self, session: &LeasedSession, now: Moment) -> bool {
        let holds = session.has_enough_lease(now);
        if holds {
            self.state = ContenderState::Holding(AcquiredBy::Claim);
        }
        holds
    }

    /// Handles the commit of a write to the own znode, sent at `sent_at`. Returns false if this contender held, but its
    /// lease had run out before the answer came. A lease that ran out is never renewed, because the servers may already
    /// be ending the session: the caller must leave the queue.
    pub(crate) fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> bool {
        if self.acquired_by().is_some() && session.lease_left(now).is_none() {
            return false;
        }
        session.committed(sent_at, now);
        // Only the claim and later writes confirm that the znode contains the claim: ignore an earlier write. If the
        // answer to the claim comes too late for a lease, the commit of a later renewal makes this contender hold.
        if let ContenderState::Claiming { sent_at: claimed_at } = self.state
            && sent_at >= claimed_at
            && session.lease_left(now).is_some()
        {
            self.state = ContenderState::Holding(AcquiredBy::Claim);
        }
        true
    }

    /// Handles the refusal, by a quorum, of the claim or of a renewal, sent at `sent_at`. Another session owns the
    /// claim znode, or the claim znode is gone. So the server that showed this contender as the first is wrong, or an
    /// unknown client has created or deleted a znode.
    ///
    /// The answer earns no lease, since nothing was committed.
    pub(crate) fn on_claim_refused(
        &mut self,
        owner: ClaimOwner,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> AfterRefusal {
        session.answered(sent_at, now);
        match self.state {
            ContenderState::Claiming { sent_at: claimed_at } if claimed_at <= sent_at => {}
            // This contender held by the notification before its claim was answered, or a renewal was refused.
            ContenderState::Holding(_) => {}
            _ => return AfterRefusal::Ignored,
        }
        // Compare tokens, since a re-created path assigns the same sequences again.
        let is_ahead = match owner {
            ClaimOwner::Contender(holder) => holder.token < self.ticket.token,
            ClaimOwner::Unknown | ClaimOwner::NotShown => true,
            ClaimOwner::Gone => false,
        };
        if is_ahead {
            self.state = ContenderState::Refused;
            AfterRefusal::Wait
        } else {
            AfterRefusal::Leave
        }
    }
}
