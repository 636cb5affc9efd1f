//! A place in a queue: the contenders ahead, and whether this one holds.
//!
//! A contender holds while no other is ahead of it and its session's lease runs. Each recipe with a queue is built on
//! one; the recipes differ in what holding means to a client: to lead, or to own a lock.

use crate::queue::{Head, Predecessors, Queue, QueuePlace};
use crate::session::{Duty, LeasedSession};
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::time::Duration;

/// A session's place in one queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    ticket: Ticket,
    place: ContenderState,
}

/// Whether this contender is ahead of all others, as far as it knows, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ContenderState {
    /// The queue is being read. The contenders that were ahead before still limit which can be ahead now.
    Locating(Option<Predecessors>),
    /// These contenders are ahead.
    Behind(Predecessors),
    /// First, but no quorum has lately confirmed that the session lives. The claim was sent at this moment.
    Claiming { sent_at: Moment },
    /// First in the last reading, but a quorum refused the claim: another contender holds, and the connected server
    /// does not show it.
    Refused,
    /// First, and the session's lease was running when this contender began to hold.
    Holding(AcquiredBy),
}

/// How a contender began to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquiredBy {
    /// The standby held as soon as it was notified that the head was gone, by its session's lease.
    Notification,
    /// A quorum acknowledged its claim; or, for a lock, no contender was ahead when it joined, and its session had a
    /// lease.
    Claim,
}

/// The owner of the claim that caused a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOwner {
    /// The contender with this ticket: its session lives, and it has not withdrawn its claim.
    Contender(Ticket),
    /// The claim was created by a client that is not a contender.
    Unknown,
    /// No contender: the claim znode of this contender's own acknowledged claim is gone.
    Gone,
}

/// The next step after the refusal of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterRefusal {
    /// This contender no longer claims or holds, or has claimed again since.
    Ignored,
    /// The holder is ahead: this contender keeps its place.
    Wait,
    /// The holder is, or may have been, behind, with a larger token. Tokens must grow from holder to holder, so this
    /// contender must not hold any longer.
    Leave,
}

/// The next step after a reading of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Located {
    /// The reading was not requested, or is outdated.
    Ignored,
    First,
    Behind {
        /// The predecessor, unless it is already watched.
        watch: Option<Sequence>,
        head: Sequence,
    },
    /// The own znode is not in the queue.
    Missing,
}

/// The next step after the predecessor's disappearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterPredecessor {
    /// The znode was not the predecessor's.
    Ignored,
    /// The predecessor was not the head, so other members may be ahead.
    ReadQueue,
    /// The predecessor was the head: this member is first, but a quorum must confirm that its session lives.
    Claim,
    /// The predecessor was the head, and enough of the session's lease is left to hold at once.
    Hold,
}

/// The next step after the head's disappearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterHead {
    /// The znode was not the known head.
    Ignored,
    /// The member with this sequence was right behind the gone head, so it is the head now: no member can have joined
    /// between them.
    Read(Sequence),
    /// The new head is not known: read the queue with the next heartbeat.
    Unknown,
}

impl Contender {
    /// Joins the queue with this ticket.
    pub(crate) fn joined(ticket: Ticket) -> Self {
        Self { ticket, place: ContenderState::Locating(None) }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the members ahead, if they are known.
    pub(crate) fn predecessors(&self) -> Option<&Predecessors> {
        match &self.place {
            ContenderState::Behind(predecessors) => Some(predecessors),
            _ => None,
        }
    }

    pub(crate) fn is_first(&self) -> bool {
        matches!(self.place, ContenderState::Claiming { .. } | ContenderState::Holding(_))
    }

    /// Returns how this contender began to hold, if it has.
    pub(crate) fn acquired_by(&self) -> Option<AcquiredBy> {
        match self.place {
            ContenderState::Holding(way) => Some(way),
            _ => None,
        }
    }

    /// Returns true if the claim was refused and it is not known yet which member is ahead.
    pub(crate) fn is_refused(&self) -> bool {
        self.place == ContenderState::Refused
    }

    /// Returns how much longer this contender holds, if it does.
    pub(crate) fn holds(&self, session: &LeasedSession, now: Moment) -> Option<Duration> {
        self.acquired_by().and_then(|_| session.lease_left(now))
    }

    /// Returns true for the standby, the one member right behind the head.
    pub(crate) fn is_standby(&self) -> bool {
        self.predecessors().is_some_and(Predecessors::is_only_the_head)
    }

    /// Returns the purpose of this contender's heartbeats; `None` while it sends none.
    pub(crate) fn duty(&self) -> Option<Duty> {
        match &self.place {
            ContenderState::Locating(_) => None,
            ContenderState::Behind(_) if self.is_standby() => Some(Duty::StandBy),
            ContenderState::Behind(_) => Some(Duty::Wait),
            ContenderState::Claiming { .. }
            | ContenderState::Refused
            | ContenderState::Holding(_) => Some(Duty::Hold),
        }
    }

    /// Returns true if a member with this ticket would be ahead of all members that the queue showed: it has left since
    /// it was announced, or the server that listed the queue does not show it.
    pub(crate) fn is_ahead_of_queue(&self, ticket: Ticket) -> bool {
        ticket.token < self.ticket.token
            && self.predecessors().is_some_and(|ahead| ahead.is_before_head(ticket))
    }

    /// Forgets the queue, which must be read again: the server that listed it did not show all of it.
    pub(crate) fn forget_queue(&mut self) {
        self.place = ContenderState::Locating(None);
    }

    pub(crate) fn on_queue_read(&mut self, queue: Queue) -> Located {
        let (known, watched) = match &self.place {
            ContenderState::Locating(known) => (known.as_ref(), None),
            ContenderState::Behind(known) => (Some(known), Some(known.predecessor)),
            ContenderState::Refused => (None, None),
            ContenderState::Claiming { .. } | ContenderState::Holding(_) => {
                return Located::Ignored;
            }
        };
        // ZooKeeper never assigns a sequence below the head's after the head's. Such a znode was created by hand.
        let queue = match known {
            Some(known) => {
                queue.iter().filter(|sequence| known.head.may_be_followed_by(*sequence)).collect()
            }
            None => queue,
        };
        match queue.place_of(self.ticket.sequence) {
            QueuePlace::First => Located::First,
            QueuePlace::Missing => Located::Missing,
            QueuePlace::Behind { predecessor, head } => {
                let watch = (watched != Some(predecessor)).then_some(predecessor);
                let known_predecessor =
                    known.filter(|known| watch.is_none() && known.predecessor == predecessor);
                let known_head = known.filter(|known| known.head == Head::Stands(head));
                self.place = ContenderState::Behind(Predecessors {
                    predecessor,
                    predecessor_token: known_predecessor.and_then(|known| known.predecessor_token),
                    queue,
                    head: Head::Stands(head),
                    head_token: known_head.and_then(|known| known.head_token),
                });
                Located::Behind { watch, head }
            }
        }
    }

    /// Notes the ticket of the watched znode. Returns true if it is the predecessor's.
    pub(crate) fn on_predecessor_read(&mut self, read: Ticket) -> bool {
        let ContenderState::Behind(ahead) = &mut self.place else { return false };
        if ahead.predecessor != read.sequence {
            return false;
        }
        ahead.predecessor_token = Some(read.token);
        if ahead.is_only_the_head() {
            ahead.head_token = Some(read.token);
        }
        true
    }

    /// Handles the disappearance of the znode with this sequence. The token is that of the znode that was watched
    /// there, if any.
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
    ) -> AfterPredecessor {
        let ContenderState::Behind(ahead) = &self.place else { return AfterPredecessor::Ignored };
        if ahead.predecessor != gone {
            return AfterPredecessor::Ignored;
        }
        if ahead.head.sequence() != gone {
            self.place = ContenderState::Locating(Some(ahead.clone()));
            return AfterPredecessor::ReadQueue;
        }
        // Compare tokens, since a re-created path assigns the same sequences again. A token larger than the own one
        // belongs to a znode created by hand.
        let is_known = token.is_some() && token == ahead.predecessor_token;
        let is_older = token.is_some_and(|token| token < self.ticket.token);
        if is_known && is_older && session.has_enough_lease(now) {
            session.heartbeat_sent(now);
            self.place = ContenderState::Holding(AcquiredBy::Notification);
            AfterPredecessor::Hold
        } else {
            AfterPredecessor::Claim
        }
    }

    /// Notes the ticket of the head. Returns true if it is the head as it is known here.
    pub(crate) fn on_head_read(&mut self, head: Ticket) -> bool {
        let ContenderState::Behind(ahead) = &mut self.place else { return false };
        if ahead.head != Head::Stands(head.sequence) {
            return false;
        }
        ahead.head_token = Some(head.token);
        true
    }

    pub(crate) fn on_head_gone(&mut self, gone: Sequence) -> AfterHead {
        let own = self.ticket.sequence;
        let ContenderState::Behind(ahead) = &mut self.place else { return AfterHead::Ignored };
        if ahead.head != Head::Stands(gone) {
            return AfterHead::Ignored;
        }
        let next = ahead.queue.behind(gone).filter(|next| *next < own);
        match next.filter(|_| ahead.head_token.is_some()) {
            Some(next) => {
                ahead.head = Head::Stands(next);
                ahead.head_token = None;
                AfterHead::Read(next)
            }
            None => {
                ahead.head = Head::Gone(gone);
                AfterHead::Unknown
            }
        }
    }

    /// Begins to claim, with a quorum write sent at this moment.
    pub(crate) fn claim(&mut self, session: &mut LeasedSession, now: Moment) {
        session.heartbeat_sent(now);
        self.place = ContenderState::Claiming { sent_at: now };
    }

    /// Begins to hold by the session's lease, if enough of it is left, and returns whether it does. The queue showed no
    /// member ahead, and never grows at its head.
    pub(crate) fn hold_by_lease(&mut self, session: &LeasedSession, now: Moment) -> bool {
        let holds = session.has_enough_lease(now);
        if holds {
            self.place = ContenderState::Holding(AcquiredBy::Claim);
        }
        holds
    }

    /// Handles the commit of a write to the own znode, sent at this moment. Returns false if the lease had run out before the
    /// answer came: the servers may already be ending the session.
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
        // Only the claim and later writes confirm that the znode contains the claim.
        if let ContenderState::Claiming { sent_at: claimed_at } = self.place
            && sent_at >= claimed_at
            && session.lease_left(now).is_some()
        {
            self.place = ContenderState::Holding(AcquiredBy::Claim);
        }
        true
    }

    /// Handles the refusal, by a quorum, of the claim sent at this moment or of a renewal. The server that showed this
    /// contender as the first is wrong, or an unknown client used force.
    ///
    /// The answer earns no lease, since nothing was committed.
    pub(crate) fn on_claim_refused(
        &mut self,
        holder: ClaimOwner,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> AfterRefusal {
        session.answered(sent_at, now);
        match self.place {
            ContenderState::Claiming { sent_at: claimed_at } if claimed_at <= sent_at => {}
            ContenderState::Holding(_) => {}
            _ => return AfterRefusal::Ignored,
        }
        // Compare tokens, since a re-created path assigns the same sequences again.
        let is_ahead = match holder {
            ClaimOwner::Contender(holder) => holder.token < self.ticket.token,
            ClaimOwner::Unknown => true,
            ClaimOwner::Gone => false,
        };
        if is_ahead {
            self.place = ContenderState::Refused;
            AfterRefusal::Wait
        } else {
            AfterRefusal::Leave
        }
    }
}
