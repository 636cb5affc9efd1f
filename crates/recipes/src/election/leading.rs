//! The behaviour of the first member in the queue: it claims, leads and renews.

use super::announcement::KnownLeader;
use super::{Action, Member};
use crate::contender::AfterRefusal;
use crate::{ClaimOwner, Moment};

impl Member {
    /// Claims leadership, without leading yet: a quorum has to acknowledge the claim first. This is for a member that
    /// found itself first in a reading of the queue, or that cannot lead by the notification that the head is gone.
    pub(super) fn become_candidate(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        // Only the commit of the claim makes this member the leader, and a commit is recognized by the moment of
        // sending. A renewal may have been sent at this moment too, so the claim gets a later moment.
        let sent_at = session.after_last_heartbeat(now);
        queue.contender.claim(session, sent_at);
        self.announce_leadership(sent_at);
    }

    /// Sends the claim, which also announces to the queue that this member leads.
    pub(super) fn announce_leadership(&mut self, sent_at: Moment) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        // The own znode now announces this member, so reset what only a follower knows, or writes into its znode.
        queue.leader = KnownLeader::Unknown;
        queue.contradicting_head = None;
        queue.ready_in_znode = false;
        queue.accepts_in_znode = false;
        let data = queue.data_to_write(&self.profile, self.priority);
        self.outbox.push(Action::Claim { data, sent_at });
    }

    /// Renews the lease after a committed write. A commit of the claim also makes this member the leader. If this
    /// member led by a lease that has run out meanwhile, it leaves the queue and joins again.
    pub(super) fn on_committed(&mut self, sent_at: Moment, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else {
            // The znode that was written is lost, and the member is joining again in the same session. The commit still
            // confirms that this session lives.
            if let Some(session) = self.phase.session_mut() {
                session.committed(sent_at, now);
            }
            return;
        };
        if !queue.contender.on_committed(session, sent_at, now) {
            self.rejoin();
        }
    }

    /// Waits or leaves, depending on whether the owner of the claim is ahead.
    pub(super) fn on_claim_refused(&mut self, owner: ClaimOwner, sent_at: Moment, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_claim_refused(owner, session, sent_at, now) {
            AfterRefusal::Ignored => {}
            AfterRefusal::Leave => self.rejoin(),
            AfterRefusal::Wait => {
                // This member does not lead, so it can neither transfer leadership nor prefer another leader.
                queue.transfer = None;
                queue.preferred = None;
                // An update after the claim may have written into the own znode that this member leads: correct it.
                self.update_znode();
            }
        }
    }
}
