//! To hand over to a chosen member: the heir.
//!
//! The queue never grows at its head, and a member keeps its place. So that the heir stands right behind the leader, those
//! between have to rejoin behind it. The leader writes an offer into its own znode. The standby, which watches that znode,
//! makes way, the next one is the standby then, and reads the same, until the heir is the standby. It writes that it
//! accepts, while it could lead at the notification. When the leader reads that, it may leave: the heir leads, and no other
//! member has led in between.
//!
//! Until it leaves, the leader leads as ever. So a transfer that comes to nothing costs those between their places, and
//! no more. That the heir is ready is not read from a mark of before the offer: the heir may have lost its connection since.

use super::phase::{InQueue, Next, Phase, Stage, rejoin, stay};
use super::{Action, Member};
use crate::session::Session;
use crate::{FencingToken, Moment, Sequence, Ticket};

/// That a leader would hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The leader's token.
    pub leader: FencingToken,
    /// The member that is to lead.
    pub heir: Sequence,
    /// Distinguishes the offers of one leader: when it was made, in nanoseconds by its clock.
    pub number: u64,
}

/// To which member a leader is to hand over, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transfer {
    pub(super) offer: Offer,
    /// When it is given up.
    pub(super) until: Moment,
    pub(super) seen: Heir,
    /// Whether it is made for the target's priority.
    pub(super) is_preemption: bool,
}

impl Transfer {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.until <= now
    }
}

/// The known state of the heir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heir {
    /// The heir has not accepted yet.
    Awaited,
    /// The heir is right behind the leader, and had a lease when it accepted: the leader may leave.
    Ready,
    /// The heir has left the queue.
    Gone,
}

impl Member {
    /// Makes an offer, if this member leads. A member ahead, or itself, cannot be the heir.
    pub(super) fn on_transfer(
        &self,
        phase: Phase,
        heir: Sequence,
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
        if queue.contender.holds(&session, now).is_none() || heir <= own {
            return stay(Phase::InSession(session, Stage::InQueue(queue)));
        }
        // A process that goes on with this term after a restart must not make the same offer again.
        let number = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        let offer = Offer { leader, heir, number };
        queue.transfer =
            Some(Box::new(Transfer { offer, until, seen: Heir::Awaited, is_preemption: false }));
        let update = Action::Update(queue.data(&self.profile, self.priority));
        let phase = Phase::InSession(session, Stage::InQueue(queue));
        (phase, vec![update, Action::ReadHeir(heir)])
    }

    /// Leaves the queue to the heir, if that has accepted this offer. Otherwise it leads on: the heir may have gone while
    /// the application ended its work.
    pub(super) fn hand_over(phase: Phase, offer: Offer) -> Next {
        let accepted = |it: &Transfer| it.offer == offer && it.seen == Heir::Ready;
        match phase.in_queue() {
            Some((_, queue)) if queue.transfer.as_deref().is_some_and(accepted) => rejoin(),
            Some(_) | None => stay(phase),
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
    pub(super) fn end_transfer(&self, session: Session, mut queue: InQueue) -> Next {
        Self::end_preemption(&mut queue);
        queue.transfer = None;
        let update = Action::Update(queue.data(&self.profile, self.priority));
        (Phase::InSession(session, Stage::InQueue(queue)), vec![update])
    }

    pub(super) fn on_heir_read(phase: Phase, heir: Sequence, accepted: Option<Offer>) -> Next {
        Self::note_heir(phase, heir, |offer| match accepted == Some(offer) {
            true => Heir::Ready,
            false => Heir::Awaited,
        })
    }

    pub(super) fn on_heir_gone(phase: Phase, heir: Sequence) -> Next {
        Self::note_heir(phase, heir, |_| Heir::Gone)
    }

    fn note_heir(mut phase: Phase, heir: Sequence, seen: impl Fn(Offer) -> Heir) -> Next {
        if let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase
            && let Some(transfer) = &mut queue.transfer
            && transfer.offer.heir == heir
        {
            transfer.seen = seen(transfer.offer);
        }
        stay(phase)
    }

    /// Notes the offer of the member right ahead. For another heir it makes way: once for each, since the heir's znode may
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
            if offer.heir == own {
                // That an earlier offer was accepted is not believed of this one: it is to be written anew.
                queue.accepts &= queue.offered.as_deref() == Some(&offer);
                queue.offered = Some(Box::new(offer));
            } else if offer.heir > own && self.made_way != Some((offer.leader, offer.heir)) {
                self.made_way = Some((offer.leader, offer.heir));
                return rejoin();
            }
        }
        stay(Phase::InSession(session, Stage::InQueue(queue)))
    }
}
