//! To hand over to a chosen member: the target.
//!
//! The queue never grows at its head, and a member keeps its place. So that the target stands right behind the leader, those
//! between have to rejoin behind it. The leader writes an offer into its own znode. The standby, which watches that znode,
//! makes way, the next one is the standby then, and reads the same, until the target is the standby. It writes that it
//! accepts, while it could lead at the notification. When the leader reads that, it may leave: the target leads, and no other
//! member has led in between.
//!
//! Until it leaves, the leader leads as ever. So a transfer that comes to nothing costs those between their places, and
//! no more. That the target is ready is not read from a mark of before the offer: the target may have lost its connection since.

use super::{Action, Member};
use crate::{FencingToken, Moment, Sequence, Ticket};

/// That a leader would hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The leader's token.
    pub leader: FencingToken,
    /// The member that is to lead.
    pub target: Sequence,
    /// Distinguishes the offers of one leader: when it was made, in nanoseconds by its clock.
    pub number: u64,
}

/// To which member a leader is to hand over, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OngoingTransfer {
    pub(super) offer: Offer,
    /// When it is given up.
    pub(super) until: Moment,
    pub(super) seen: TransferTarget,
    /// Whether it is made for the target's priority.
    pub(super) is_preemption: bool,
}

impl OngoingTransfer {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.until <= now
    }
}

/// The known state of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferTarget {
    /// The target has not accepted yet.
    Awaited,
    /// The target is right behind the leader, and had a lease when it accepted: the leader may leave.
    Ready,
    /// The target has left the queue.
    Gone,
}

impl Member {
    /// Makes an offer, if this member leads. A member ahead, or itself, cannot be the target.
    pub(super) fn offer(
        &mut self,
        target: Sequence,
        until: Moment,
        is_preemption: bool,
        now: Moment,
    ) {
        if !self.relays {
            return;
        }
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let Ticket { sequence: own, token: leader } = queue.contender.ticket();
        if queue.contender.holds(session, now).is_none() || target <= own {
            return;
        }
        // A process that goes on with this term after a restart must not make the same offer again.
        let number = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        queue.transfer = Some(Box::new(OngoingTransfer {
            offer: Offer { leader, target, number },
            until,
            seen: TransferTarget::Awaited,
            is_preemption,
        }));
        self.update_znode();
        self.outbox.push(Action::ReadTarget(target));
    }

    /// Leaves the queue to the target, if that has accepted this offer. Otherwise it leads on: the target may have gone while
    /// the application ended its work.
    pub(super) fn hand_over(&mut self, offer: Offer) {
        let transfer = self.phase.in_queue().and_then(|(_, queue)| queue.transfer.as_deref());
        if transfer.is_some_and(|transfer| {
            transfer.offer == offer && transfer.seen == TransferTarget::Ready
        }) {
            self.rejoin();
        }
    }

    pub(super) fn cancel_transfer(&mut self, offer: Offer) {
        let Some((_, queue)) = self.phase.in_queue() else { return };
        if queue.transfer.as_ref().is_some_and(|transfer| transfer.offer == offer) {
            self.end_transfer();
        }
    }

    /// Continues to lead, and withdraws the offer.
    pub(super) fn end_transfer(&mut self) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        queue.end_preemption();
        queue.transfer = None;
        self.update_znode();
    }

    pub(super) fn on_target_read(&mut self, target: Sequence, accepted: Option<Offer>) {
        let Some(transfer) = self.transfer_to(target) else { return };
        transfer.seen = match accepted == Some(transfer.offer) {
            true => TransferTarget::Ready,
            false => TransferTarget::Awaited,
        };
    }

    pub(super) fn on_target_gone(&mut self, target: Sequence) {
        let Some(transfer) = self.transfer_to(target) else { return };
        transfer.seen = TransferTarget::Gone;
    }

    fn transfer_to(&mut self, target: Sequence) -> Option<&mut OngoingTransfer> {
        let (_, queue) = self.phase.in_queue_mut()?;
        queue.transfer.as_deref_mut().filter(|transfer| transfer.offer.target == target)
    }

    /// Notes the offer of the member right ahead. For another target it makes way: once for each, since the target's znode may
    /// be gone, or never have been.
    pub(super) fn on_offer_read(&mut self, offer: Offer) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        let own = queue.contender.ticket().sequence;
        let ahead = queue.contender.predecessors();
        if !ahead.is_some_and(|predecessors| {
            predecessors.is_only_the_head() && predecessors.is_right_behind(offer.leader)
        }) {
            return;
        }
        if offer.target == own {
            // That an earlier offer was accepted is not believed of this one: it must be written again.
            queue.accepts &= queue.offered.as_deref() == Some(&offer);
            queue.offered = Some(Box::new(offer));
        } else if offer.target > own && self.made_way != Some((offer.leader, offer.target)) {
            self.made_way = Some((offer.leader, offer.target));
            self.rejoin();
        }
    }
}
