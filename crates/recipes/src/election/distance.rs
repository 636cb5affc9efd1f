//! The distance of a member from the head, which decides how often the member has to send a heartbeat.
//!
//! The leader, the standby and the third member send regular heartbeats, since any of them may soon need a lease. The
//! others only keep their sessions alive. A member learns that it has come near to the head from its predecessor, which
//! writes its own distance next to the announcement that it relays, or from its own listing of the queue. Leases do not
//! depend on distances: irregular heartbeats earn no lease at any distance.

use super::phase::InQueue;
use crate::session::Duty;

/// The number of members ahead; [`Self::FAR`] means three or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Distance(u8);

impl Distance {
    const HEAD: Self = Self(0);
    /// The distance of members that may be idle: three or more members are ahead.
    pub const FAR: Self = Self(3);

    /// Returns the distance of a member that has this many members ahead.
    pub fn new(ahead: usize) -> Self {
        u8::try_from(ahead).map_or(Self::FAR, Self).min(Self::FAR)
    }

    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the distance of the member right behind.
    fn next(self) -> Self {
        Self::new(usize::from(self.0) + 1)
    }
}

impl InQueue {
    /// Returns the purpose of this member's heartbeats; `None` while it sends none.
    pub(super) fn duty(&self) -> Option<Duty> {
        match self.contender.duty() {
            Some(Duty::Wait) if self.is_idle() => Some(Duty::Idle),
            duty => duty,
        }
    }

    /// Returns an upper bound of the distance: the smaller of the distance by the last listing of the queue and the one
    /// by the predecessor's distance. `None` while the queue is not known.
    pub(super) fn distance(&self) -> Option<Distance> {
        if self.contender.is_first() {
            return Some(Distance::HEAD);
        }
        let ahead = self.contender.predecessors()?;
        let listed = Distance::new(ahead.count(self.contender.ticket().sequence));
        Some(match self.predecessors_distance() {
            Some(relayed) => listed.min(relayed.next()),
            None => listed,
        })
    }

    /// Returns the distance that the predecessor relayed together with the announcement of the known leader; `None` if
    /// the predecessor does not announce that leader.
    fn predecessors_distance(&self) -> Option<Distance> {
        let leader = self.leader.announcement()?.ticket;
        let (announced, distance) = self.relayed?;
        if announced == leader { distance } else { None }
    }

    /// Returns true if nothing depends on regular heartbeats: this member is far from the head, is not the target of a
    /// transfer, and its predecessor relays the known leader. Suppose that some member between the head and this one is
    /// frozen. Then the predecessor does not relay the next leader. So once this member has learned of that leader from
    /// the head, it stops being idle: only by reading the head often does it learn soon of the leader after that.
    fn is_idle(&self) -> bool {
        let leader = self.leader.announcement().map(|known| known.ticket.token);
        let is_target =
            self.received_offer.as_ref().is_some_and(|offer| Some(offer.leader) == leader);
        self.distance() == Some(Distance::FAR)
            && self.predecessors_distance().is_some()
            && !is_target
    }
}
