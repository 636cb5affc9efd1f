//! The phases of a member. Data that is known only in one phase is a field of that phase.

use super::announcement::KnownLeader;
use super::preemption::Preferred;
use super::transfer::OngoingTransfer;
use super::{Announcement, Distance, Offer, Priority, Profile, ZnodeData};
use crate::contender::Contender;
use crate::session::LeasedSession;
use crate::{Moment, Sequence, Ticket};
use std::sync::Arc;

/// The phase of a member, from being out of the queue to being in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a member is in a session nearly all its life")]
pub(super) enum Phase {
    /// Out of the queue, for good.
    Stopped,
    /// Out of the queue until commanded to resume, or until the application is healthy again.
    Withdrawn,
    /// A session was requested and is not granted yet.
    NoSession,
    /// The servers granted a session too short for a useful lease, which was closed. Another one is requested at
    /// `retry_at`.
    SessionTooShort { retry_at: Moment },
    /// In this session, but not necessarily in the queue.
    InSession(LeasedSession, Stage),
}

/// The stage of a member that has a session, from being kept out to being in the queue.
#[expect(clippy::large_enum_variant, reason = "a member is in the queue nearly all its life")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Out of the queue because the path has foreign contenders, whose client sorts the queue by another rule. The
    /// queue is read again at `recheck_at`; `None` while it is being read.
    KeptOut { recheck_at: Option<Moment> },
    /// The own znode is being created with this profile and priority.
    Joining { profile: Arc<Profile>, priority: Priority },
    /// The session was taken over from the previous process, and the member is looking for the session's znode.
    FindingTicket,
    /// The own znode exists.
    InQueue(InQueue),
}

/// The state of a member that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InQueue {
    pub(super) contender: Contender,
    /// The leader according to the announcements of the members ahead; after a restart of a leader, according to its
    /// own znode, until it leads again.
    pub(super) leader: KnownLeader,
    /// The leader that the predecessor announces, and the predecessor's distance from that leader. `None` also if that
    /// leader was asked for, and is gone.
    pub(super) relayed: Option<(Ticket, Option<Distance>)>,
    /// The own distance from the leader, as last written into the own znode.
    pub(super) distance_in_znode: Option<Distance>,
    /// The last head that contradicted the announcement of the known leader. While this head exists, no announcement
    /// but the one in the head's own znode is believed.
    pub(super) contradicting_head: Option<Sequence>,
    /// Whether the next heartbeat must ask a quorum whether the head exists.
    pub(super) confirm_head: bool,
    /// Whether the own znode shows that this member is the standby and could lead as soon as the head is gone.
    pub(super) ready_in_znode: bool,
    /// The transfer that this leader has under way.
    pub(super) transfer: Option<Box<OngoingTransfer>>,
    /// The leader's last offer to this member.
    pub(super) received_offer: Option<Box<Offer>>,
    /// Whether the own znode shows that this member accepts `received_offer`.
    pub(super) accepts_in_znode: bool,
    /// The member of higher priority to which this leader may transfer leadership.
    pub(super) preferred: Option<Preferred>,
    /// The number of transfers to a member of higher priority that failed in this leader's term.
    pub(super) failed_preemptions: u32,
    /// Whether the previous process may have led in this session. The claim znode of that process disappears only with
    /// the session, so a member that loses its ticket must not join again in this session: until the session ends, that
    /// znode keeps all others from leading.
    pub(super) may_own_claim: bool,
}

impl Phase {
    /// Returns the session and the state in the queue of a member that is in the queue.
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
            relayed: None,
            distance_in_znode: None,
            contradicting_head: None,
            confirm_head: false,
            ready_in_znode: false,
            transfer: None,
            received_offer: None,
            accepts_in_znode: false,
            preferred: None,
            failed_preemptions: 0,
            may_own_claim: false,
        }
    }

    /// Returns the announcement for the own znode: of this member if it claims or leads, otherwise of the known leader.
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

    /// Returns the current data for the own znode, and notes the distance in it as written: the caller writes it now.
    pub(super) fn data_to_write(&mut self, own: &Arc<Profile>, priority: Priority) -> ZnodeData {
        self.distance_in_znode = self.distance();
        let distance = self.distance_in_znode;
        let announcement = self.announcement(own);
        let offer = self.transfer.as_ref().map(|transfer| Box::new(transfer.offer));
        let accepted = if self.accepts_in_znode { self.received_offer.clone() } else { None };
        let profile = own.clone();
        let ready = self.ready_in_znode;
        ZnodeData { profile, priority, announcement, distance, ready, offer, accepted }
    }
}
