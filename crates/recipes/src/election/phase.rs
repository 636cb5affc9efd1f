//! The phases of a member. Data known only in one phase is a field of that phase.

use super::announcement::KnownLeader;
use super::preemption::Preferred;
use super::transfer::OngoingTransfer;
use super::{Announcement, Offer, Priority, Profile, ZnodeData};
use crate::contender::Contender;
use crate::session::LeasedSession;
use crate::{Moment, Sequence, Ticket};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a member is in a session nearly all its life")]
pub(super) enum Phase {
    /// Out of the queue, for good.
    Stopped,
    /// Out of the queue until commanded to resume, or healthy again.
    Withdrawn,
    /// A session has been asked for.
    NoSession,
    /// The servers grant sessions too short for a useful lease: another is asked for later.
    SessionTooShort {
        retry_at: Moment,
    },
    InSession(LeasedSession, Stage),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a member is in the queue nearly all its life")]
pub(super) enum Stage {
    /// Contenders of another order are in the path. `None` while the queue is being read.
    KeptOut {
        recheck_at: Option<Moment>,
    },
    /// The own znode is being created, with this profile and priority.
    Joining {
        profile: Arc<Profile>,
        priority: Priority,
    },
    /// The session was taken over from a process before, and the znode that it owns is looked for.
    FindingTicket,
    InQueue(InQueue),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InQueue {
    pub(super) contender: Contender,
    /// By the announcements of the members ahead.
    pub(super) leader: KnownLeader,
    /// The head that contradicted what the predecessor announced: as long as it stands, only the head is believed.
    pub(super) doubted_under: Option<Sequence>,
    /// Whether a quorum is to be asked, with the next heartbeat, if that head stands.
    pub(super) prove_head: bool,
    /// A leader that was announced and is not in the queue as it was read. A quorum is asked, with the next heartbeat,
    /// whether it stands.
    pub(super) unlisted: Option<Ticket>,
    /// The last one that does not: its announcement was old.
    pub(super) last_denied: Option<Ticket>,
    /// Whether the own znode says that this member is a standby that could lead at once.
    pub(super) ready_shown: bool,
    /// To which member this one, which leads, is to hand over.
    pub(super) transfer: Option<Box<OngoingTransfer>>,
    /// The leader's last offer to this member, and whether the own znode says that it is accepted.
    pub(super) offered: Option<Box<Offer>>,
    pub(super) accepts: bool,
    /// To which member this one, which leads, is to transfer leadership for its priority.
    pub(super) preferred: Option<Preferred>,
    /// How many of these transfers came to nothing.
    pub(super) failed_preemptions: u32,
    /// Whether a process before this one has led in this session, as far as is known: its claim goes only with the session.
    pub(super) may_own_claim: bool,
}

impl Phase {
    pub(super) fn in_queue(&self) -> Option<(&LeasedSession, &InQueue)> {
        match self {
            Self::InSession(session, Stage::InQueue(queue)) => Some((session, queue)),
            _ => None,
        }
    }

    pub(super) fn in_queue_mut(&mut self) -> Option<(&mut LeasedSession, &mut InQueue)> {
        match self {
            Self::InSession(session, Stage::InQueue(queue)) => Some((session, queue)),
            _ => None,
        }
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut LeasedSession> {
        match self {
            Self::InSession(session, _) => Some(session),
            _ => None,
        }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.in_queue().map(|(_, queue)| queue.contender.ticket())
    }
}

impl InQueue {
    pub(super) fn joined(ticket: Ticket) -> Self {
        Self {
            contender: Contender::joined(ticket),
            leader: KnownLeader::Unknown,
            doubted_under: None,
            prove_head: false,
            unlisted: None,
            last_denied: None,
            ready_shown: false,
            transfer: None,
            offered: None,
            accepts: false,
            preferred: None,
            failed_preemptions: 0,
            may_own_claim: false,
        }
    }

    /// Returns what the own znode is to announce: this member itself where it claims or leads.
    pub(super) fn announcement(&self, own: &Arc<Profile>) -> Option<Announcement> {
        if self.contender.is_first() {
            Some(self.own_announcement(own))
        } else {
            self.leader.announcement().cloned()
        }
    }

    pub(super) fn own_announcement(&self, own: &Arc<Profile>) -> Announcement {
        Announcement { leader: own.clone(), ticket: self.contender.ticket() }
    }

    pub(super) fn data(&self, own: &Arc<Profile>, priority: Priority) -> ZnodeData {
        let announcement = self.announcement(own);
        let offer = self.transfer.as_ref().map(|transfer| Box::new(transfer.offer));
        let accepted = self.offered.clone().filter(|_| self.accepts);
        let profile = own.clone();
        let ready = self.ready_shown;
        ZnodeData { profile, priority, announcement, ready, offer, accepted }
    }
}
