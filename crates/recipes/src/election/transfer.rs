//! The transfer of leadership to a chosen member, the target.
//!
//! The queue never grows at its head, and a member keeps its place. So the members between the leader and the target
//! have to rejoin behind the target, until the target is right behind the leader. The leader writes an offer into its
//! own znode. The standby, which watches that znode, makes way; the next member becomes the standby and reads the same
//! offer, until the target is the standby. The target writes that it accepts, as long as its lease would let it lead at
//! once when the leader is gone. When the leader has read that, it may leave: then the target leads, and no other
//! member has led in between.
//!
//! Until it leaves, the leader leads as before. So a failed transfer costs the members in between their places, but
//! nothing else. The target's acceptance must be newer than the offer, since a target that was ready before may have
//! lost its connection.

use super::{Action, Member};
use crate::{FencingToken, Moment, Sequence, Ticket};

/// A leader's offer to hand over to another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The leader's token.
    pub leader: FencingToken,
    /// The member that is to take over.
    pub target: Sequence,
    /// The moment of the offer by the leader's clock, in nanoseconds. It distinguishes the offers of one leader.
    pub number: u64,
}

/// A leader's transfer under way, and what is known of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OngoingTransfer {
    pub(super) offer: Offer,
    /// When the leader withdraws the offer, unless leadership is handed over before.
    pub(super) until: Moment,
    /// The state of the target, as last read.
    pub(super) target_state: TransferTarget,
    /// Whether the transfer is made because of the target's priority, and not because a caller chose the target.
    pub(super) is_preemption: bool,
}

impl OngoingTransfer {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.until <= now
    }
}

/// The known state of a transfer's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferTarget {
    /// The target has not accepted the offer, as far as is known.
    Awaited,
    /// The target is right behind the leader and had a lease when it accepted, so the leader may leave.
    Ready,
    /// The target has left the queue.
    Gone,
}

impl Member {
    /// Offers leadership to the target until the moment `until`, if this member leads and the target is behind it.
    pub(super) fn offer(
        &mut self,
        target: Sequence,
        until: Moment,
        is_preemption: bool,
        now: Moment,
    ) {
        // The contenders of other clients support no transfers.
        if !self.relays {
            return;
        }
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let Ticket { sequence: own, token: leader } = queue.contender.ticket();
        if queue.contender.holds_for(session, now).is_none() || target <= own {
            return;
        }
        // A process that continues this term after a restart must not reuse the number of an earlier offer, so offers
        // are numbered by time.
        let number = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        queue.transfer = Some(Box::new(OngoingTransfer {
            offer: Offer { leader, target, number },
            until,
            target_state: TransferTarget::Awaited,
            is_preemption,
        }));
        self.update_znode();
        self.outbox.push(Action::ReadTarget(target));
    }

    /// Leaves the queue, so that the target leads, if the target has accepted this offer. Otherwise this member keeps
    /// leading: after the target had accepted, this member's application ended its work, and the target may have left
    /// meanwhile.
    pub(super) fn hand_over(&mut self, offer: Offer) {
        let Some((_, queue)) = self.phase.in_queue() else { return };
        let Some(transfer) = &queue.transfer else { return };
        if transfer.offer == offer && transfer.target_state == TransferTarget::Ready {
            self.rejoin();
        }
    }

    /// Withdraws this offer, unless another one has replaced it since.
    pub(super) fn cancel_transfer(&mut self, offer: Offer) {
        let Some((_, queue)) = self.phase.in_queue() else { return };
        if queue.transfer.as_ref().is_some_and(|transfer| transfer.offer == offer) {
            self.end_transfer();
        }
    }

    /// Withdraws the offer and keeps leading: the time of the offer is over, or the transfer was cancelled.
    pub(super) fn end_transfer(&mut self) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        queue.end_preemption();
        queue.transfer = None;
        self.update_znode();
    }

    /// Notes whether the target has accepted the current offer.
    pub(super) fn on_target_read(&mut self, target: Sequence, accepted: Option<Offer>) {
        let Some(transfer) = self.transfer_to(target) else { return };
        transfer.target_state = if accepted == Some(transfer.offer) {
            TransferTarget::Ready
        } else {
            TransferTarget::Awaited
        };
    }

    pub(super) fn on_target_gone(&mut self, target: Sequence) {
        let Some(transfer) = self.transfer_to(target) else { return };
        transfer.target_state = TransferTarget::Gone;
    }

    /// Returns the transfer under way, if it is to this target.
    fn transfer_to(&mut self, target: Sequence) -> Option<&mut OngoingTransfer> {
        let (_, queue) = self.phase.in_queue_mut()?;
        queue.transfer.as_deref_mut().filter(|transfer| transfer.offer.target == target)
    }

    /// Handles the leader's offer. A target notes the offer, and accepts it as soon as it is ready. If the target is
    /// behind this member, and this member is the standby, it makes way: it rejoins behind the target. But it does so
    /// only once for each target, since the target's znode may be gone, or may never have existed.
    pub(super) fn on_offer_read(&mut self, offer: Offer) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        let own = queue.contender.ticket().sequence;
        let is_leaders_standby = queue.contender.predecessors().is_some_and(|predecessors| {
            predecessors.predecessor_is_head() && predecessors.predecessor_has_token(offer.leader)
        });
        let leader = queue.leader.announcement().map(|known| known.ticket.token);
        // Only an offer of the current leader counts.
        if offer.target == own && (is_leaders_standby || leader == Some(offer.leader)) {
            // The acceptance of an earlier offer does not count for this one: it must be written again.
            if queue.received_offer.as_deref() != Some(&offer) {
                queue.accepts_in_znode = false;
            }
            queue.received_offer = Some(Box::new(offer));
        } else if is_leaders_standby
            && offer.target > own
            && self.made_way != Some((offer.leader, offer.target))
        {
            self.made_way = Some((offer.leader, offer.target));
            self.rejoin();
        }
    }
}
