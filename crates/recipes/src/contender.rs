//! One place in a queue: which contenders are ahead, and when this member holds.
//!
//! A contender holds while none is ahead of it and its session's lease runs. Every recipe with a queue is made of one;
//! they differ in what holding means to a client: to lead, to own a lock.

use crate::queue::{Head, Predecessors, Queue, QueuePlace};
use crate::session::{Duty, LeasedSession};
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    ticket: Ticket,
    place: ContenderState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ContenderState {
    /// The queue is being read. What was known of it before still bounds what it can be now.
    Locating(Option<Predecessors>),
    Behind(Predecessors),
    /// First, but no quorum has lately said that the session lives: the claim was sent at this moment.
    Claiming {
        sent_at: Moment,
    },
    /// First as far as was read, but a quorum refused the claim: another holds, and is not seen from here.
    Refused,
    /// First, and the session's lease ran when it began.
    Holding(AcquiredBy),
}

/// By what a member began to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquiredBy {
    /// The standby held at the notification that the head was gone, by its session's lease.
    Notification,
    /// A quorum acknowledged its claim; or, of a lock, none was ahead when it joined, and its session had a lease.
    Claim,
}

/// The owner of the claim that kept another from being committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOwner {
    /// The contender with this ticket: its session lives, and it has not withdrawn its claim.
    Contender(Ticket),
    /// The claim was created by a client that is not a contender.
    Unknown,
    /// No other claim: the claim znode of this contender's own acknowledged claim is gone.
    Gone,
}

/// The next step after the refusal of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterRefusal {
    /// This contender no longer claims or holds, or has claimed again since.
    Ignored,
    /// The holder is ahead: this contender keeps its place.
    Wait,
    /// The holder is behind, or was: the own token may be smaller than one that has led, and must not lead any more.
    Leave,
}

/// The next step after a reading of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Located {
    /// The reading was not requested, or is outdated.
    Ignored,
    First,
    Behind {
        /// The predecessor, unless it is watched already.
        watch: Option<Sequence>,
        head: Sequence,
    },
    /// The own znode is not there.
    Missing,
}

/// The next step after the predecessor's disappearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterPredecessor {
    /// The znode was not the predecessor.
    Ignored,
    /// The predecessor was not the head: others may be ahead.
    ReadQueue,
    /// The predecessor was the head: this member is first, but must prove that its session lives.
    Claim,
    /// The predecessor was the head, and the session's lease has enough left.
    Hold,
}

/// The next step after the head's disappearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterHead {
    Ignored,
    /// This one was next to it, so it is the head now: none can have come in between.
    Read(Sequence),
    /// The queue is to be read with the next heartbeat.
    Unknown,
}

/// The meaning of a committed write for the holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterCommit {
    Unchanged,
    /// The lease had run out before the answer came: the servers may be at work on the session's end.
    RanOut,
}

impl Contender {
    /// Enters the queue with this ticket.
    pub(crate) fn joined(ticket: Ticket) -> Self {
        Self { ticket, place: ContenderState::Locating(None) }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the members ahead, while they are known.
    pub(crate) fn predecessors(&self) -> Option<&Predecessors> {
        match &self.place {
            ContenderState::Behind(predecessors) => Some(predecessors),
            _ => None,
        }
    }

    pub(crate) fn is_first(&self) -> bool {
        matches!(self.place, ContenderState::Claiming { .. } | ContenderState::Holding(_))
    }

    /// How it began to hold, if it has.
    pub(crate) fn way(&self) -> Option<AcquiredBy> {
        match self.place {
            ContenderState::Holding(way) => Some(way),
            _ => None,
        }
    }

    /// Whether its claim was refused, and it does not know yet which member is ahead.
    pub(crate) fn is_refused(&self) -> bool {
        self.place == ContenderState::Refused
    }

    /// Returns for how long it holds yet, if it does.
    pub(crate) fn holds(&self, session: &LeasedSession, now: Moment) -> Option<Duration> {
        self.way().and_then(|_| session.lease_left(now))
    }

    /// The standby is the one member right behind the head.
    pub(crate) fn is_standby(&self) -> bool {
        self.predecessors().is_some_and(Predecessors::is_only_the_head)
    }

    /// Returns the purpose of heartbeats; `None` while none are sent.
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

    /// Whether a member with this ticket came before all that the queue showed: it has gone since it was announced, or
    /// the server that showed the queue lacks it.
    pub(crate) fn is_ahead_of_queue(&self, ticket: Ticket) -> bool {
        ticket.token < self.ticket.token
            && self.predecessors().is_some_and(|ahead| ahead.is_before_head(ticket))
    }

    /// Forgets the queue: the server that showed it did not show all of it. It is to be read again.
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
        // A number smaller than the head's was not given by ZooKeeper after the head's: it was made by hand.
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

    /// Notes whose znode it is that is watched. Returns whether it is the predecessor's.
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

    /// The znode with this number is gone; the token is that of the znode which was watched there, if there was one.
    ///
    /// The queue never grows at its head. So with the head gone, the member right behind it is first, and holds at once
    /// by a lease that its session has: until that lease ends, its own znode stands, and none behind it can be first.
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
        // Compared by token, since a re-created path has the same numbers again. A larger token than our own belongs to
        // a znode made by hand.
        let is_known = token.is_some() && token == ahead.predecessor_token;
        let is_older = token.is_some_and(|token| token < self.ticket.token);
        if is_known && is_older && session.has_enough_lease(now) {
            session.heartbeat_sent(now);
            self.place = ContenderState::Holding(AcquiredBy::Notification);
            AfterPredecessor::Hold
        } else {
            self.claim(session, now);
            AfterPredecessor::Claim
        }
    }

    /// Notes which znode the head's is. Returns whether that is the head as it is known here.
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

    /// Begins to claim: the quorum write that says so is sent at this moment.
    pub(crate) fn claim(&mut self, session: &mut LeasedSession, now: Moment) {
        session.heartbeat_sent(now);
        self.place = ContenderState::Claiming { sent_at: now };
    }

    /// Begins to hold by the lease that its session has, if there is enough of it: the queue showed none ahead, and never
    /// grows at its head.
    pub(crate) fn hold_by_lease(&mut self, session: &LeasedSession, now: Moment) -> bool {
        let holds = session.has_enough_lease(now);
        if holds {
            self.place = ContenderState::Holding(AcquiredBy::Claim);
        }
        holds
    }

    /// A quorum committed a write to the own znode that was sent at this moment.
    pub(crate) fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> AfterCommit {
        match self.place {
            ContenderState::Holding(_) if session.lease_left(now).is_none() => AfterCommit::RanOut,
            // Only the claim and later writes prove that the znode says what was claimed.
            ContenderState::Claiming { sent_at: claimed_at } if sent_at >= claimed_at => {
                session.committed(sent_at, now);
                if session.lease_left(now).is_none() {
                    return AfterCommit::Unchanged;
                }
                self.place = ContenderState::Holding(AcquiredBy::Claim);
                AfterCommit::Unchanged
            }
            ContenderState::Locating(_)
            | ContenderState::Behind(_)
            | ContenderState::Claiming { .. }
            | ContenderState::Refused
            | ContenderState::Holding(_) => {
                session.committed(sent_at, now);
                AfterCommit::Unchanged
            }
        }
    }

    /// A quorum refused the claim that was sent at this moment, or a renewal of it: so the server that showed this
    /// contender as the first is wrong, or an unknown client used force.
    ///
    /// That the servers answered is worth no lease: nothing was committed.
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
        // Compared by token, since a re-created path has the same numbers again.
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
