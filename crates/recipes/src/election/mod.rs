//! The election as one member sees it.
//!
//! Everything that can happen to a member is an [`Event`]; everything it can want done is an [`Action`].
//! [`Member::step`] turns one into the other. It does no IO, reads no clock and cannot fail: an unanswered request is
//! not an event, it is silence, and silence lets the lease run out.

mod announcement;
mod cause;
mod change;
mod following;
mod joining;
mod leading;
mod member;
mod phase;
mod policy;
mod preemption;
mod standing;
mod transfer;
mod words;

pub use announcement::{Announcement, Profile, ZnodeData};
pub use cause::Cause;
pub use change::{Change, ChangeKind, View, changes};
pub use member::Member;
pub use policy::Policy;
pub use preemption::{MemberPriority, Priority};
pub use standing::{Role, Standing};
pub use transfer::{Offer, TransferTarget};

use crate::{ClaimOwner, FencingToken, Moment, Queue, Sequence, SessionId, SessionRecord, Ticket};
use std::collections::BTreeMap;
use std::time::Duration;

/// The inputs of a member: answers, notifications, commands, and the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The servers granted the session that was asked for at this moment.
    SessionOpened { session: SessionId, timeout: Duration, sent_at: Moment },
    /// The session of this member's process before goes on, with this timeout, asked for at this moment.
    SessionTakenOver { record: SessionRecord, timeout: Duration, sent_at: Moment },
    /// The connection is lost. The session may live.
    Disconnected,
    /// The session goes on over another connection, asked for at this moment; the server may have cut its timeout.
    SessionResumed { timeout: Duration, sent_at: Moment },
    /// The session ended, with everything it owned: the servers said so, or no server was reached for too long.
    SessionLost,
    /// The member's own znode exists.
    Joined(Ticket),
    /// The session that was taken over owns this znode, with this data.
    TicketFound { ticket: Ticket, data: Option<ZnodeData> },
    /// The session owns no znode.
    NoTicketFound,
    /// This znode of the member is gone, or is another's, although the session lives: it was deleted by force.
    TicketLost(Ticket),
    /// The queue, read at some moment not later than now.
    QueueRead(Queue),
    /// The predecessor's znode and what it announces. The znode is watched.
    PredecessorRead { predecessor: Ticket, announcement: Option<Announcement> },
    /// No znode of a member has this number any more. The token is that of the znode that was watched there; `None` if
    /// none was.
    PredecessorGone { predecessor: Sequence, token: Option<FencingToken> },
    /// The znode at the head of the queue and what it announces.
    HeadRead { head: Ticket, announcement: Option<Announcement>, sent_at: Moment },
    /// No znode of a member stands where the head of the queue was.
    HeadGone { head: Sequence, sent_at: Moment },
    /// Contenders that are ordered in another way stand in the path, or no longer do: a member is to keep out of a queue in
    /// which another leads as well.
    Foreign { keep_out: bool },
    /// The predecessor's znode, which was just read, has this offer.
    OfferRead(Offer),
    /// Which offer the target has accepted, by its znode.
    TargetRead { target: Sequence, accepted: Option<Offer> },
    /// No znode of a member has the target's number.
    TargetGone { target: Sequence },
    /// The members of the queue with their priorities, as their znodes say.
    PrioritiesRead(Vec<MemberPriority>),
    /// A quorum committed a write to the member's own znode that was sent at this moment.
    Committed { sent_at: Moment },
    /// A quorum refused the claim that was sent at this moment, or, with [`ClaimOwner::Gone`], a renewal: the claim znode of
    /// an acknowledged claim no longer exists.
    ClaimRefused { holder: ClaimOwner, sent_at: Moment },
    /// The moment asked for by [`Member::wake_at`] has come.
    Woke,
    /// The application, or its operator, commands this.
    Command(Command),
    /// The operator wants this member out of the queue, for good.
    Stop,
}

/// Commands of operators and applications.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Stop leading, and rejoin at the tail.
    Resign,
    /// Have the member with this number stand right behind this one, which leads, until this moment: then
    /// [`Command::HandOver`] hands over to it. Any other target is forgotten.
    Transfer { target: Sequence, until: Moment },
    /// Stop leading, and rejoin at the tail, if the target has accepted this offer and stands right behind.
    HandOver(Offer),
    /// Withdraw this offer, and continue to lead.
    CancelTransfer(Offer),
    /// Have the member of the highest priority stand right behind this one, as with [`Command::Transfer`], if the standing
    /// says that it is time for that.
    Preempt { until: Moment },
    /// Leave the queue until [`Command::Resume`].
    Pause,
    /// Rejoin after [`Command::Pause`].
    Resume,
    /// The application is healthy, or is not.
    ReportHealth { healthy: bool },
    /// The application has another address or other labels.
    UpdateProfile { address: Option<String>, labels: BTreeMap<String, String> },
    /// The member is preferred as the leader so much from now on.
    SetPriority(Priority),
}

impl Event {
    /// Returns the token of the term that a process before began, where this one goes on with it.
    pub fn resumed_term(&self) -> Option<FencingToken> {
        let Self::TicketFound { ticket, data: Some(data) } = self else { return None };
        let announced = data.announcement.as_ref()?.ticket;
        (announced == *ticket).then_some(announced.token)
    }
}

/// Actions of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    OpenSession,
    /// End the session and with it the own znode.
    CloseSession,
    /// Create the ephemeral sequential znode with this data, or find the one this session already owns.
    Join(ZnodeData),
    /// Find the znode that the session owns, after it was taken over. None is created.
    FindTicket,
    ReadQueue,
    /// Read the predecessor's data and leave a watch on it.
    WatchPredecessor(Sequence),
    /// Read the head's data, without a watch, through the servers' leader: a heartbeat. With `prove`, a quorum has to
    /// agree that the head stands: the server at hand may be wrong.
    ReadHead {
        head: Sequence,
        prove: bool,
        sent_at: Moment,
    },
    /// Write a received announcement into the own znode. With `sent_at` it is a heartbeat too: its commit is an event.
    Relay {
        data: ZnodeData,
        sent_at: Option<Moment>,
    },
    /// Write into the own znode that this member leads, and create the claim znode, both or neither: a heartbeat.
    Claim {
        data: ZnodeData,
        sent_at: Moment,
    },
    /// Read which offer the target has accepted, without a watch.
    ReadTarget(Sequence),
    /// Read the priorities of the members of the queue, without a watch.
    ReadPriorities,
    /// Write into the own znode what it says now. The member does not wait for it.
    Update(ZnodeData),
    /// Have a quorum commit a write that changes nothing but fails without the own znode: a heartbeat. After an
    /// acknowledged claim it fails without the claim znode too. It finds out whether the predecessor of the standby is
    /// gone.
    Renew {
        predecessor: Option<Sequence>,
        sent_at: Moment,
    },
}

impl Action {
    /// Whether the present session ends with it.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::OpenSession | Self::CloseSession)
    }
}
