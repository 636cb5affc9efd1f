//! The election as one member sees it.
//!
//! Everything that can happen to a member is an [`Event`]; everything it can want done is an
//! [`Action`]. [`Member::step`] turns one into the other. It does no IO, reads no clock and cannot
//! fail: an unanswered request is not an event, it is silence, and silence lets the lease run out.

#![deny(clippy::wildcard_enum_match_arm)]

mod change;
mod id;
mod lease;
mod line;
mod member;
mod trace;

pub use change::{Change, ChangeKind, View, changes};
pub use id::{FencingToken, MemberId, Profile, Sequence, SessionId};
pub use lease::{Activation, Disconnect, Lease, Margins, Moment, Policy, Term, Unhealthy};
pub use line::{Line, Place};
pub use member::{Member, Role, Standing};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What the outside world can tell a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The servers granted the session that was asked for at this moment.
    SessionOpened { session: SessionId, timeout: Duration, sent_at: Moment },
    /// The connection is lost. The session may live.
    Disconnected,
    /// The session goes on over another connection, asked for at this moment; the server may have
    /// cut its timeout.
    SessionResumed { timeout: Duration, sent_at: Moment },
    /// The servers, or our own patience, ended the session and everything it owned.
    SessionLost,
    /// Our znode stands in the line.
    TicketDrawn(Ticket),
    /// This znode of ours is gone, or is another's, although the session lives: somebody deleted
    /// it.
    TicketLost(Ticket),
    /// The line, read at some moment not later than now.
    LineRead(Line),
    /// What the predecessor's znode says; it is being watched.
    PredecessorRead { predecessor: Sequence, says: Option<Announcement> },
    /// The predecessor's znode is gone.
    PredecessorGone(Sequence),
    /// The znode at the head of the line: which one it is, and what it says.
    HeadRead { head: Ticket, says: Option<Announcement>, sent_at: Moment },
    /// No member's znode stands where the head of the line was.
    HeadGone { head: Sequence, sent_at: Moment },
    /// A quorum committed a write to our znode that was sent at this moment.
    Committed { sent_at: Moment },
    /// The moment asked for by [`Member::wake_at`] has come.
    Woke,
    /// The application has taken up its work as leader under this token.
    Acknowledge(FencingToken),
    /// The application is not healthy.
    Unhealthy,
    /// It is healthy again.
    Healthy,
    /// The operator wants this leader to lead no more, and to stand at the tail.
    Resign,
    /// The operator wants this member out of the line until told otherwise.
    Pause,
    /// The operator wants it in the line again.
    Unpause,
    /// The application has another address or other labels now.
    Describe { address: Option<String>, labels: BTreeMap<String, String> },
    /// The operator wants this member out of the line, for good.
    Stop,
}

/// What a member wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    OpenSession,
    /// Create the ephemeral sequential znode, saying this of ourselves, or find the one this
    /// session already owns.
    DrawTicket(Arc<Profile>),
    ReadLine,
    /// Read the predecessor's data and leave a watch on it.
    WatchPredecessor(Sequence),
    /// Read the head's data, without a watch, by way of the servers' leader.
    ReadHead {
        head: Sequence,
        sent_at: Moment,
    },
    /// Write into our own znode that somebody leads.
    PassOn {
        announcement: Announcement,
        sent_at: Moment,
    },
    /// Write into our own znode what we say of ourselves now, and who leads, as it says already.
    /// Nobody waits for that.
    Introduce {
        profile: Arc<Profile>,
        says: Option<Announcement>,
    },
    /// Write into our own znode that we lead.
    Claim {
        announcement: Announcement,
        sent_at: Moment,
    },
    /// Have a quorum commit a write that changes nothing but fails without our znode.
    Renew {
        sent_at: Moment,
    },
    /// End the session and with it our znode.
    CloseSession,
}

impl Action {
    /// Whether the session that there is ends with it.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::OpenSession | Self::CloseSession)
    }
}

/// A member's own znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub sequence: Sequence,
    pub token: FencingToken,
}

/// What members write into their znodes: who leads, as far as the line has heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    pub leader: Arc<Profile>,
    pub ticket: Ticket,
    /// Whether its application has taken up its work as leader.
    pub active: bool,
}

impl Announcement {
    /// The larger is the newer: a later leader, or the same one with another address, or active by
    /// now.
    fn edition(&self) -> (FencingToken, u64, bool) {
        (self.ticket.token, self.leader.revision, self.active)
    }
}
