//! Leader election from the point of view of one member.
//!
//! An [`Event`] is something that happens to the member, an [`Action`] is a request to its runner. [`Member::step`]
//! turns events into actions. It does no IO, reads no clock and cannot fail: an unanswered request produces no event,
//! and without events the lease runs out.

mod announcement;
mod cause;
mod change;
mod display;
mod distance;
mod following;
mod joining;
mod leading;
mod member;
mod phase;
mod policy;
mod preemption;
mod standing;
mod transfer;

pub use announcement::{Announcement, Profile, ZnodeData};
pub use cause::Cause;
pub use change::{Change, ChangeKind, View, changes};
pub use distance::Distance;
pub use member::Member;
pub use policy::Policy;
pub use preemption::{MemberPriority, Priority};
pub use standing::{Role, Standing};
pub use transfer::{Offer, TransferTarget};

use crate::{ClaimOwner, FencingToken, Moment, Queue, Sequence, SessionEvent, Ticket};
use std::collections::BTreeMap;

/// The inputs of a member: answers, notifications, commands, and the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The session begins, ends, or moves to another connection.
    Session(SessionEvent),
    /// The member's own znode exists.
    Joined(Ticket),
    /// The session that was taken over owns this znode, which has this data.
    TicketFound { ticket: Ticket, data: Option<ZnodeData> },
    /// The session that was taken over owns no znode in the queue.
    NoTicketFound,
    /// This znode of the member was deleted by force: it is gone, or belongs to another session, although the session
    /// lives.
    TicketLost(Ticket),
    /// A reading of the queue, which may already be outdated.
    QueueRead(Queue),
    /// The predecessor's znode, which is now watched, with its announcement and its distance from the head.
    PredecessorRead {
        predecessor: Ticket,
        announcement: Option<Announcement>,
        distance: Option<Distance>,
    },
    /// No member's znode has this sequence any longer. The token is that of the znode that was watched there; `None` if
    /// there was none.
    PredecessorGone { predecessor: Sequence, token: Option<FencingToken> },
    /// The znode at the head of the queue and its announcement, read by a request sent at `sent_at`.
    HeadRead { head: Ticket, announcement: Option<Announcement>, sent_at: Moment },
    /// No member's znode has the sequence of the head any longer.
    HeadGone { head: Sequence, sent_at: Moment },
    /// Whether the path has contenders of another order. A member must keep out while it does: each order would have
    /// its own leader.
    Foreign { keep_out: bool },
    /// The predecessor's znode, which was just read, contains this offer; or the head's znode does, and this member is
    /// its target.
    OfferRead(Offer),
    /// The target's znode was read: the offer that the target has accepted, if any.
    TargetRead { target: Sequence, accepted: Option<Offer> },
    /// No member's znode has the target's sequence.
    TargetGone { target: Sequence },
    /// The members of the queue with the priorities in their znodes.
    PrioritiesRead(Vec<MemberPriority>),
    /// A quorum committed a write to the member's own znode, sent at this moment.
    Committed { sent_at: Moment },
    /// A quorum refused the claim sent at this moment, or, with [`ClaimOwner::Gone`], a renewal: the claim znode of an
    /// acknowledged claim no longer exists.
    ClaimRefused { holder: ClaimOwner, sent_at: Moment },
    /// The moment returned by [`Member::wake_at`] has come.
    Woke,
    /// A command from the application or its operator.
    Command(Command),
    /// The member must leave the queue for good.
    Stop,
}

/// Commands of operators and applications.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Stop leading and rejoin at the tail.
    Resign,
    /// Offer leadership to the member with this sequence until this moment; the members in between make way.
    /// [`Command::HandOver`] completes the transfer. An offer to another target is dropped.
    Transfer { target: Sequence, until: Moment },
    /// Stop leading and rejoin at the tail, if the target has accepted this offer and is right behind.
    HandOver(Offer),
    /// Withdraw this offer and keep leading.
    CancelTransfer(Offer),
    /// Offer leadership to the member of the highest priority, as with [`Command::Transfer`], if
    /// [`Standing::due_preemption`] says that it is time.
    Preempt { until: Moment },
    /// Leave the queue until [`Command::Resume`].
    Pause,
    /// Rejoin after [`Command::Pause`].
    Resume,
    /// The application is healthy or unhealthy.
    ReportHealth { healthy: bool },
    /// The application has a new address or new labels.
    UpdateProfile { address: Option<String>, labels: BTreeMap<String, String> },
    /// Change the priority of this member.
    SetPriority(Priority),
}

impl Event {
    /// Returns the token of the term that the previous process began, if this event continues that term.
    pub fn resumed_term(&self) -> Option<FencingToken> {
        let Self::TicketFound { ticket, data: Some(data) } = self else { return None };
        let announced = data.announcement.as_ref()?.ticket;
        (announced == *ticket).then_some(announced.token)
    }
}

/// Actions of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Open a session. The one before, if any, has ended.
    OpenSession,
    /// End the session and with it the own znode.
    CloseSession,
    /// Create the ephemeral sequential znode with this data, or find the one that this session already owns.
    Join(ZnodeData),
    /// Find the znode of a session that was taken over. Never creates one.
    FindTicket,
    /// List the members of the queue.
    ReadQueue,
    /// Read the predecessor's data and set a watch on it.
    WatchPredecessor(Sequence),
    /// Read the head's data, without a watch, as a heartbeat. With `confirm`, a quorum must confirm that the head
    /// exists: the connected server may be wrong.
    ReadHead { head: Sequence, confirm: bool, sent_at: Moment },
    /// Write a received announcement into the own znode. With `sent_at`, the write is also a heartbeat: its commit is
    /// an event.
    Relay { data: ZnodeData, sent_at: Option<Moment> },
    /// Write into the own znode that this member leads and create the claim znode, in one transaction. Also a
    /// heartbeat.
    Claim { data: ZnodeData, sent_at: Moment },
    /// Read, without a watch, which offer the target has accepted.
    ReadTarget(Sequence),
    /// Read the priorities of the members of the queue, without a watch.
    ReadPriorities,
    /// Write this data into the own znode. The member does not wait for the result.
    Update(ZnodeData),
    /// A heartbeat: commit a write that changes nothing but fails if the own znode is gone. After an acknowledged
    /// claim, it also fails if the claim znode is gone. With `predecessor`, that of the standby, it also finds out
    /// whether the predecessor is gone.
    Renew { predecessor: Option<Sequence>, sent_at: Moment },
}

impl Action {
    /// Returns true if this action ends the current session.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::OpenSession | Self::CloseSession)
    }
}
