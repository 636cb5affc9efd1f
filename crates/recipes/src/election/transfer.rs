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

use super::phase::{InQueue, Next, Phase, Stage, rejoin, stay};
use super::{Action, Member};
use crate::session::LeasedSession;
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
    pub(super) fn on_transfer(
        &self,
        phase: Phase,
        target: Sequence,
        until: Moment,
        now: Moment,
    ) -> Next {
        if !self.relays {
            return stay(phase);
        }
        let Phase::InSession(session, Stage::InQueue(mut queue)) = phase else {
            return stay(phase);
        };
        let Ticket { sequence: own, token: leader } = queue.contender.ticket();
        if queue.contender.holds(&session, now).is_none() || target <= own {
            return stay(Phase::InSession(session, Stage::InQueue(queue)));
        }
        // A process that goes on with this term after a restart must not make the same offer again.
        let number = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        let offer = Offer { leader, target, number };
        queue.transfer = Some(Box::new(OngoingTransfer {
            offer,
            until,
            seen: TransferTarget::Awaited,
            is_preemption: false,
        }));
        let update = Action::Update(queue.data(&self.profile, self.priority));
        let phase = Phase::InSession(session, Stage::InQueue(queue));
        (phase, vec![update, Action::ReadTarget(target)])
    }

    /// Leaves the queue to the target, if that has accepted this offer. Otherwise it leads on: the target may have gone while
    /// the application ended its work.
    pub(super) fn hand_over(phase: Phase, offer: Offer) -> Next {
        let transfer = phase.in_queue().and_then(|(_, queue)| queue.transfer.as_deref());
        match transfer {
            Some(transfer) if transfer.offer == offer && transfer.seen == TransferTarget::Ready => {
                rejoin()
            }
            _ => stay(phase),
        }
    }

    pub(super) fn cancel_transfer(&self, phase: Phase, offer: Offer) -> Next {
        let Phase::InSession(session, Stage::InQueue(queue)) = phase else {
            return stay(phase);
        };
        match queue.transfer.as_ref().is_some_and(|transfer| transfer.offer == offer) {
            true => self.end_transfer(session, queue),
            false => stay(Phase::InSession(session, Stage::InQueue(queue))),
        }
    }

    /// Continues to lead, and withdraws the offer.
    pub(super) fn end_transfer(&self, session: LeasedSession, mut queue: InQueue) -> Next {
        Self::end_preemption(&mut queue);
        queue.transfer = None;
        let update = Action::Update(queue.data(&self.profile, self.priority));
        (Phase::InSession(session, Stage::InQueue(queue)), vec![update])
    }

    pub(super) fn on_target_read(phase: Phase, target: Sequence, accepted: Option<Offer>) -> Next {
        Self::note_target(phase, target, |offer| match accepted == Some(offer) {
            true => TransferTarget::Ready,
            false => TransferTarget::Awaited,
        })
    }

    pub(super) fn on_target_gone(phase: Phase, target: Sequence) -> Next {
        Self::note_target(phase, target, |_| TransferTarget::Gone)
    }

    fn note_target(
        mut phase: Phase,
        target: Sequence,
        seen: impl Fn(Offer) -> TransferTarget,
    ) -> Next {
        if let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase
            && let Some(transfer) = &mut queue.transfer
            && transfer.offer.target == target
        {
            transfer.seen = seen(transfer.offer);
        }
        stay(phase)
    }

    /// Notes the offer of the member right ahead. For another target it makes way: once for each, since the target's znode may
    /// be gone, or never have been.
    pub(super) fn on_offer_read(&mut self, phase: Phase, offer: Offer) -> Next {
        let Phase::InSession(session, Stage::InQueue(mut queue)) = phase else {
            return stay(phase);
        };
        let own = queue.contender.ticket().sequence;
        let ahead = queue.contender.predecessors();
        if ahead.is_some_and(|predecessors| {
            predecessors.is_only_the_head() && predecessors.is_right_behind(offer.leader)
        }) {
            if offer.target == own {
                // That an earlier offer was accepted is not believed of this one: it must be written again.
                queue.accepts &= queue.offered.as_deref() == Some(&offer);
                queue.offered = Some(Box::new(offer));
            } else if offer.target > own && self.made_way != Some((offer.leader, offer.target)) {
                self.made_way = Some((offer.leader, offer.target));
                return rejoin();
            }
        }
        stay(Phase::InSession(session, Stage::InQueue(queue)))
    }
}
