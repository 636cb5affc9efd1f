//! First in the queue: to claim, to lead, and to renew.

use super::announcement::KnownLeader;
use super::phase::{InQueue, Next, Phase, Stage, rejoin, stay};
use super::{Action, Member};
use crate::contender::{AfterCommit, AfterRefusal};
use crate::session::LeasedSession;
use crate::{ClaimOwner, Moment};

impl Member {
    /// None is ahead, and the session has no lease to lead by: a quorum has to acknowledge the claim first.
    pub(super) fn become_candidate(
        &self,
        mut session: LeasedSession,
        mut queue: InQueue,
        now: Moment,
    ) -> Next {
        queue.contender.claim(&mut session, now);
        self.announce_leadership(session, queue, now)
    }

    /// Has the queue told, by a claim, that this member leads: the first in it.
    pub(super) fn announce_leadership(
        &self,
        session: LeasedSession,
        mut queue: InQueue,
        now: Moment,
    ) -> Next {
        queue.leader = KnownLeader::Unknown;
        queue.doubted_under = None;
        queue.ready_shown = false;
        queue.accepts = false;
        let claim = Action::Claim { data: queue.data(&self.profile, self.priority), sent_at: now };
        (Phase::InSession(session, Stage::InQueue(queue)), vec![claim])
    }

    pub(super) fn on_committed(&self, phase: Phase, sent_at: Moment, now: Moment) -> Next {
        let Phase::InSession(mut session, stage) = phase else { return stay(phase) };
        let Stage::InQueue(mut queue) = stage else {
            session.committed(sent_at, now);
            return stay(Phase::InSession(session, stage));
        };
        if queue.contender.on_committed(&mut session, sent_at, now) == AfterCommit::RanOut {
            return rejoin();
        }
        stay(Phase::InSession(session, Stage::InQueue(queue)))
    }

    pub(super) fn on_claim_refused(
        &self,
        phase: Phase,
        holder: ClaimOwner,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        let Phase::InSession(mut session, stage) = phase else { return stay(phase) };
        let Stage::InQueue(mut queue) = stage else {
            return stay(Phase::InSession(session, stage));
        };
        match queue.contender.on_claim_refused(holder, &mut session, sent_at, now) {
            AfterRefusal::Ignored => stay(Phase::InSession(session, Stage::InQueue(queue))),
            AfterRefusal::Leave => rejoin(),
            AfterRefusal::Wait => {
                queue.transfer = None;
                queue.preferred = None;
                // Another profile may have been written meanwhile, with the announcement that this member leads.
                let update = Action::Update(queue.data(&self.profile, self.priority));
                (Phase::InSession(session, Stage::InQueue(queue)), vec![update])
            }
        }
    }
}
