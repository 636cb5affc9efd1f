//! First in the queue: to claim, to lead, and to renew.

use super::announcement::KnownLeader;
use super::{Action, Member};
use crate::contender::{AfterCommit, AfterRefusal};
use crate::{ClaimOwner, Moment};

impl Member {
    /// None is ahead, and the session has no lease to lead by: a quorum has to acknowledge the claim first.
    pub(super) fn become_candidate(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        queue.contender.claim(session, now);
        self.announce_leadership(now);
    }

    /// Announces to the queue, by a claim, that this member leads: the first in it.
    pub(super) fn announce_leadership(&mut self, now: Moment) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        queue.leader = KnownLeader::Unknown;
        queue.doubted_under = None;
        queue.ready_shown = false;
        queue.accepts = false;
        let data = queue.data(&self.profile, self.priority);
        self.outbox.push(Action::Claim { data, sent_at: now });
    }

    pub(super) fn on_committed(&mut self, sent_at: Moment, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else {
            if let Some(session) = self.phase.session_mut() {
                session.committed(sent_at, now);
            }
            return;
        };
        if queue.contender.on_committed(session, sent_at, now) == AfterCommit::RanOut {
            self.rejoin();
        }
    }

    pub(super) fn on_claim_refused(&mut self, holder: ClaimOwner, sent_at: Moment, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_claim_refused(holder, session, sent_at, now) {
            AfterRefusal::Ignored => {}
            AfterRefusal::Leave => self.rejoin(),
            AfterRefusal::Wait => {
                queue.transfer = None;
                queue.preferred = None;
                // Another profile may have been written meanwhile, with the announcement that this member leads.
                self.update_znode();
            }
        }
    }
}
