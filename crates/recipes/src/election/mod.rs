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
pub use change::{Change, ChangeKind, changes};
pub use distance::Distance;
pub use member::Member;
pub use policy::Policy;
pub use preemption::{MemberPriority, Priority};
pub use standing::{Role, Standing};
pub use transfer::{Offer, TransferTarget};

use crate::{ClaimOwner, FencingToken, Moment, Queue, Sequence, SessionEvent, Ticket};
use std::collections::BTreeMap;

/// The inputs of a member: answers to its actions, notifications, commands, and the time. The runner delivers them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The session begins, ends, or moves to another connection.
    Session(SessionEvent),
    /// The member's own znode exists.
    Joined(Ticket),
    /// The session that was taken over owns the znode with this ticket. `data` is what the previous process
    /// published; `None` if it cannot be decoded. The member continues at its place in the queue, with the same token.
    TicketFound { ticket: Ticket, data: Option<ZnodeData> },
    /// The session that was taken over owns no znode in the queue that this member can use. The member opens another
    /// session.
    NoTicketFound,
    /// The own znode, which had this ticket, was deleted by force: it is gone, or another session's znode has its name,
    /// although the member's session lives. The member joins again, at the tail.
    TicketLost(Ticket),
    /// The answer to [`Action::ReadQueue`], which may already be outdated.
    QueueRead(Queue),
    /// The predecessor's znode, which is now watched, with the announcement in it, if there is one, and the
    /// predecessor's distance from the announced leader.
    PredecessorRead {
        predecessor: Ticket,
        announcement: Option<Announcement>,
        distance: Option<Distance>,
    },
    /// The znode with the predecessor's sequence is gone. The token is that of the watched znode; `None` if no member's
    /// znode could be watched.
    PredecessorGone { predecessor: Sequence, token: Option<FencingToken> },
    /// The answer to [`Action::ReadHead`], which was sent at `sent_at`: the znode exists, with this announcement.
    HeadRead { head: Ticket, announcement: Option<Announcement>, sent_at: Moment },
    /// The answer to [`Action::ReadHead`], which was sent at `sent_at`: no member's znode has this sequence, or no
    /// server that was reached shows that znode. Also reported for the znode ahead of an [`Action::Renew`] if a quorum
    /// says that it is gone.
    HeadGone { head: Sequence, sent_at: Moment },
    /// With `keep_out`, the path has foreign contenders: their client sorts the queue by another rule than members do.
    /// A member must stay out of the queue until they are gone, since each rule would have its own leader. Without
    /// `keep_out`, the path has none.
    Foreign { keep_out: bool },
    /// A znode that was just read contains this offer: the predecessor's znode, or the head's if this member is the
    /// target. The target accepts the offer, and a standby that is not the target makes way for the target.
    OfferRead(Offer),
    /// The answer to [`Action::ReadTarget`]: the offer that the target of a transfer has accepted, if any.
    TargetRead { target: Sequence, accepted: Option<Offer> },
    /// The answer to [`Action::ReadTarget`]: no member's znode has the target's sequence.
    TargetGone { target: Sequence },
    /// The answer to [`Action::ReadPriorities`]: the members of the queue with the priorities in their znodes.
    PrioritiesRead(Vec<MemberPriority>),
    /// A quorum committed a write to the member's own znode, sent at `sent_at`. The commit renews the lease.
    Committed { sent_at: Moment },
    /// A quorum refused the claim that was sent at `sent_at`, because `holder` owns the claim znode. With
    /// [`ClaimOwner::Gone`], a quorum refused a renewal, because the claim znode that this member created is gone.
    ClaimRefused { holder: ClaimOwner, sent_at: Moment },
    /// The moment returned by [`Member::wake_at`] has come.
    Woke,
    /// A command from the application or its operator.
    Command(Command),
    /// The process is shutting down: the member leaves the queue for good.
    Stop,
}

/// Commands of operators and applications.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Stop leading and rejoin at the tail. Does nothing unless this member leads.
    Resign,
    /// Offer leadership to the member with the sequence `target`, until the moment `until`; the members in between make
    /// way. [`Command::HandOver`] completes the transfer. The offer replaces an earlier one.
    Transfer { target: Sequence, until: Moment },
    /// Stop leading and rejoin at the tail, if the target has accepted this offer and is right behind this leader.
    HandOver(Offer),
    /// Withdraw this offer and keep leading.
    CancelTransfer(Offer),
    /// Offer leadership to the member of the highest priority, as with [`Command::Transfer`], if
    /// [`Standing::due_preemption`] says that it is time. The daemon sends this command by itself.
    Preempt { until: Moment },
    /// Leave the queue until [`Command::Resume`].
    Pause,
    /// Rejoin after [`Command::Pause`], unless the application is unhealthy.
    Resume,
    /// The application is healthy or unhealthy. An unhealthy member is out of the queue until it is healthy again.
    ReportHealth { healthy: bool },
    /// The application has a new address or new labels.
    UpdateProfile { address: Option<String>, labels: BTreeMap<String, String> },
    /// Change the priority of this member.
    SetPriority(Priority),
}

impl Event {
    /// Returns the token of the term that the previous process began, if this event continues that term: the
    /// znode that was found announces its own ticket as the leader's.
    pub fn resumed_term(&self) -> Option<FencingToken> {
        let Self::TicketFound { ticket, data: Some(data) } = self else { return None };
        let announced = data.announcement.as_ref()?.ticket;
        if announced == *ticket { Some(announced.token) } else { None }
    }
}

/// Actions of a member. [`Self::CloseSession`], [`Self::Update`], and [`Self::Relay`] without `sent_at` have no answer;
/// that of [`Self::ReadPriorities`] may be missing. All others are answered by an event, unless the session ends first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Open a session. The one before, if any, has ended.
    OpenSession,
    /// End the session and with it the own znode.
    CloseSession,
    /// Create the ephemeral sequential znode with this data, or find the one that this session already owns.
    Join(ZnodeData),
    /// Find the own znode of a session that was taken over, but do not create one. The answer is [`Event::TicketFound`]
    /// or [`Event::NoTicketFound`].
    FindTicket,
    /// List the members of the queue.
    ReadQueue,
    /// Read the predecessor's data and set a watch on it: [`Event::PredecessorRead`] follows now and after each change
    /// of the data, and [`Event::PredecessorGone`] once the znode is gone.
    WatchPredecessor(Sequence),
    /// Read the head's data, without a watch, as a heartbeat. `head` may also be an announced leader that the queue
    /// does not show.
    ReadHead { head: Sequence, sent_at: Moment },
    /// Write a received announcement into the own znode. With `sent_at`, the write is also a heartbeat: its commit is
    /// reported as [`Event::Committed`].
    Relay { data: ZnodeData, sent_at: Option<Moment> },
    /// In one transaction, write this data, which says that this member leads, into the own znode, and create the claim
    /// znode. Also a heartbeat.
    Claim { data: ZnodeData, sent_at: Moment },
    /// Read, without a watch, which offer the target has accepted.
    ReadTarget(Sequence),
    /// Read the priorities of the members of the queue, without a watch.
    ReadPriorities,
    /// Write this data into the own znode. The member does not wait for the result.
    Update(ZnodeData),
    /// A heartbeat: commit a write that changes nothing but fails if the own znode is gone. After an acknowledged
    /// claim, it also fails if the claim znode is gone. A member that waits may name a znode `ahead`, and then also
    /// learns from a quorum whether that znode exists. If it is gone, [`Event::HeadGone`] follows; and if the connected
    /// server still shows it, that server has lost a transaction, and the runner first goes to another.
    Renew { ahead: Option<Sequence>, sent_at: Moment },
}

impl Action {
    /// Returns true if this action ends the current session, or follows from its end, as [`Self::OpenSession`] does.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::OpenSession | Self::CloseSession)
    }
}
