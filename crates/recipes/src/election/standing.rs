//! The state that a member may report to its application, evaluated at a moment.

use super::phase::Phase;
use super::{Announcement, Member, Offer, Priority, Profile, TransferTarget};
use crate::contender::AcquiredBy;
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// The published state of a member: a copy of its state without its heartbeats, but with its lease. The runner
/// publishes it after each step, and readers evaluate it at their own moments with [`Standing::at`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    profile: Arc<Profile>,
    priority: Priority,
    paused: bool,
    unhealthy: bool,
    phase: Phase,
    index: Option<u64>,
}

/// The role of a member at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads, with `left` remaining of its lease.
    Leader { announcement: Announcement, left: Duration },
    /// First in the queue, but its claim is not acknowledged, or its lease has run out: as far as is known, no member
    /// leads.
    Candidate,
    /// Behind others in the queue, or reading it to find its own place. Follows this leader, if one is known.
    Follower { leader: Option<Announcement> },
    /// Not in the queue.
    Absent,
}

impl Role {
    /// Returns the leader that a member in this role may report.
    pub fn leader(&self) -> Option<&Announcement> {
        match self {
            Self::Leader { announcement, .. } => Some(announcement),
            Self::Follower { leader } => leader.as_ref(),
            Self::Candidate | Self::Absent => None,
        }
    }

    /// Returns the token under which this member leads; `None` if it does not lead.
    pub fn own_term(&self) -> Option<FencingToken> {
        match self {
            Self::Leader { announcement, .. } => Some(announcement.ticket.token),
            _ => None,
        }
    }

    /// Returns true if both roles report the same leader, with the same profile, and agree whether that is this member.
    pub fn has_same_leader(&self, other: &Self) -> bool {
        self.leader() == other.leader() && self.own_term() == other.own_term()
    }
}

impl Standing {
    pub(super) fn of(member: &Member) -> Self {
        let phase = match &member.phase {
            Phase::InSession(session, stage) => {
                Phase::InSession(session.without_heartbeats(), stage.clone())
            }
            phase => phase.clone(),
        };
        let Member { priority, paused, unhealthy, index, .. } = *member;
        Self { profile: member.profile.clone(), priority, paused, unhealthy, phase, index }
    }

    /// Returns true if readers that saw `before` need to see this standing. Readers look again when the state [changes
    /// by itself](Self::changes_at), so a lease that was only extended makes no difference to them.
    pub fn differs_for_readers(&self, before: &Self, now: Moment) -> bool {
        let wait_for_wrong_end = match (self.changes_at(now), before.changes_at(now)) {
            // Readers of `before` look again at its end, which is too late only if the end is earlier now.
            (Some(end), Some(end_before)) => end < end_before,
            (None, None) => false,
            // This member has begun or ceased to lead.
            _ => true,
        };
        wait_for_wrong_end || self.without_lease() != before.without_lease()
    }

    fn without_lease(&self) -> Self {
        let mut standing = self.clone();
        if let Phase::InSession(session, _) = &mut standing.phase {
            session.drop_lease();
        }
        standing
    }

    /// Returns the role at the moment `now`. The role depends on the time, since a lease ends without an event.
    pub fn at(&self, now: Moment) -> Role {
        let Some((session, queue)) = self.phase.in_queue() else { return Role::Absent };
        if !queue.contender.is_first() {
            return Role::Follower { leader: queue.leader.other_than(&self.profile) };
        }
        match queue.contender.holds_for(session, now) {
            Some(left) => {
                let announcement = queue.own_announcement(&self.profile);
                Role::Leader { announcement, left }
            }
            None => Role::Candidate,
        }
    }

    /// Returns when the role changes by itself, at the end of the lease; `None` unless this member leads.
    pub fn changes_at(&self, now: Moment) -> Option<Moment> {
        match self.at(now) {
            Role::Leader { left, .. } => Some(now.after(left)),
            _ => None,
        }
    }

    /// Returns a number that grows at each change of the leader that this member reports, also across restarts; `None`
    /// until the member has joined. The end of a lease is such a change, even if the member has not been woken yet to
    /// handle it.
    pub fn index_at(&self, now: Moment) -> Option<u64> {
        self.index.map(|index| index.saturating_add(u64::from(self.has_lapsed(now))))
    }

    /// Returns true if this member led, its lease has run out, and it has not been woken yet to leave the queue.
    pub fn has_lapsed(&self, now: Moment) -> bool {
        self.acquired_by().is_some() && matches!(self.at(now), Role::Candidate)
    }

    /// Returns when the lease ended; `None` unless the member [has lapsed](Self::has_lapsed).
    pub fn lapsed_at(&self, now: Moment) -> Option<Moment> {
        let (session, _) = self.phase.in_queue()?;
        if self.has_lapsed(now) { session.lease_ends_at() } else { None }
    }

    /// Returns the index as of the member's last step: unlike [`Self::index_at`], it does not count the end of a lease
    /// for which the member has not been woken yet.
    pub fn index(&self) -> Option<u64> {
        self.index
    }

    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    pub fn ticket(&self) -> Option<Ticket> {
        self.phase.ticket()
    }

    /// Returns the member right ahead in the queue; `None` if there is none, or it is not known.
    pub fn predecessor(&self) -> Option<Sequence> {
        let (_, queue) = self.phase.in_queue()?;
        queue.contender.predecessors().map(|ahead| ahead.predecessor)
    }

    /// Returns the place in the queue, where the head has place 1. It is an upper bound: members ahead can only leave.
    /// `None` if the member is not in the queue, or has yet to find its place.
    pub fn place(&self) -> Option<usize> {
        let (_, queue) = self.phase.in_queue()?;
        if queue.contender.is_first() {
            return Some(1);
        }
        let own = queue.contender.ticket().sequence;
        queue.contender.predecessors().map(|ahead| ahead.count(own) + 1)
    }

    /// Returns true if no member is ahead, as far as is known: this member claims or leads.
    pub fn is_first(&self) -> bool {
        self.phase.in_queue().is_some_and(|(_, queue)| queue.contender.is_first())
    }

    /// Returns how this member acquired leadership; `None` unless it leads, or its lease has just run out.
    pub fn acquired_by(&self) -> Option<AcquiredBy> {
        self.phase.in_queue().and_then(|(_, queue)| queue.contender.acquired_by())
    }

    /// Returns true if this member is the standby, right behind the head.
    pub fn is_standby(&self) -> bool {
        self.phase.in_queue().is_some_and(|(_, queue)| queue.contender.is_standby())
    }

    /// Returns whether this standby could lead as soon as it is notified that the head is gone; `None` unless this
    /// member is the standby, right behind the head.
    pub fn standby_readiness(&self, now: Moment) -> Option<bool> {
        let (session, queue) = self.phase.in_queue()?;
        queue.contender.is_standby().then(|| session.has_enough_lease(now))
    }

    /// Returns the offer of the transfer under way, and the known state of its target; `None` unless this member leads
    /// and transfers leadership.
    pub fn target(&self) -> Option<(Offer, TransferTarget)> {
        let (_, queue) = self.phase.in_queue()?;
        queue.transfer.as_ref().map(|transfer| (transfer.offer, transfer.target_state))
    }

    /// Returns the member of higher priority to which it is time to transfer leadership, with
    /// [`Command::Preempt`](super::Command::Preempt). `None` unless this member leads, and while a transfer is under
    /// way.
    pub fn due_preemption(&self) -> Option<Sequence> {
        self.phase.in_queue().and_then(|(_, queue)| queue.due_preemption())
    }

    /// Returns two members whose sequences are in another order than their tokens, if any are known: one of the two
    /// znodes was created by hand, so the head's announcement is not believed.
    pub fn out_of_order(&self) -> Option<(Sequence, Sequence)> {
        self.phase.in_queue().and_then(|(_, queue)| queue.out_of_order())
    }

    /// Returns the known leader if it has the id of this member, and so is not reported to the application. It is an
    /// earlier process of this member, or another member with the same id.
    pub fn duplicate_id(&self) -> Option<&Announcement> {
        let (_, queue) = self.phase.in_queue()?;
        // After a restart, the known leader may be this member itself, from its own znode.
        let own = queue.contender.ticket();
        let duplicate = queue.leader.with_same_id_as(&self.profile)?;
        if duplicate.ticket == own { None } else { Some(duplicate) }
    }

    /// Returns true if the servers granted a session too short for a useful lease, and another is requested later.
    pub fn is_session_too_short(&self) -> bool {
        matches!(self.phase, Phase::SessionTooShort { .. })
    }

    /// Returns true if this member was commanded to stay out of the queue.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns true if the application is unhealthy.
    pub fn is_unhealthy(&self) -> bool {
        self.unhealthy
    }

    /// Returns true if this member is out of the queue until it is resumed, or its application is healthy again.
    pub fn is_withdrawn(&self) -> bool {
        matches!(self.phase, Phase::Withdrawn)
    }
}
