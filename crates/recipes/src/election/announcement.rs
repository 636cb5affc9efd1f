//! The announcement of the leader, which members write into their znodes.

use super::{Distance, Offer, Priority};
use crate::{FencingToken, MemberId, Moment, Sequence, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The information that a member publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub id: MemberId,
    /// The address of the member's application.
    pub address: Option<String>,
    /// The labels of the member's application.
    pub labels: BTreeMap<String, String>,
    /// Grows with each change to address or labels: a profile with a larger revision is newer.
    pub revision: u64,
}

/// The statement that a member leads. The leader writes it into its own znode. The member right behind it copies the
/// statement into its own znode, and so on: each member relays it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    pub leader: Arc<Profile>,
    /// The leader's ticket.
    pub ticket: Ticket,
}

/// The data of a member's own znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZnodeData {
    pub profile: Arc<Profile>,
    pub priority: Priority,
    /// The leader, as far as this member knows.
    pub announcement: Option<Announcement>,
    /// The distance of this member from the head.
    pub distance: Option<Distance>,
    /// Whether this member is the standby and could lead as soon as it is notified that the head is gone.
    pub ready: bool,
    /// If this member leads: its offer to hand over to another member.
    pub offer: Option<Box<Offer>>,
    /// If this member is the standby: the leader's offer that it has accepted.
    pub accepted: Option<Box<Offer>>,
}

/// The leader, according to announcements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KnownLeader {
    /// No leader is known.
    Unknown,
    /// This leader was announced. This member learned of it at `since`.
    Announced { announcement: Announcement, since: Moment },
    /// The last announced leader, with this token, has left the queue: only an announcement with a larger token is new.
    Gone(FencingToken),
}

impl ZnodeData {
    /// Returns the data of a member with the default priority that knows no leader.
    pub fn of(profile: Arc<Profile>) -> Self {
        let priority = Priority::default();
        Self {
            profile,
            priority,
            announcement: None,
            distance: None,
            ready: false,
            offer: None,
            accepted: None,
        }
    }
}

impl Announcement {
    /// Returns the key that orders announcements. A larger key is newer: a later leader, or a newer profile of the same
    /// leader.
    fn version(&self) -> (FencingToken, u64) {
        (self.ticket.token, self.leader.revision)
    }

    /// Returns true if `by_leader`, the announcement of a leader in its own znode, shows that this announcement is
    /// false. An announcement of the same leader with an older profile is only outdated, not false.
    pub(super) fn is_contradicted_by(&self, by_leader: &Self) -> bool {
        let is_older = self.ticket == by_leader.ticket && self.version() < by_leader.version();
        self != by_leader && !is_older
    }
}

impl KnownLeader {
    pub(super) fn announcement(&self) -> Option<&Announcement> {
        match self {
            Self::Announced { announcement, .. } => Some(announcement),
            Self::Unknown | Self::Gone(_) => None,
        }
    }

    /// Returns the known leader, unless its id is that of `own`, the profile of this member. This member does not lead,
    /// so such a leader is an earlier process of this member, or has a duplicate id. An application that only compares
    /// ids must not take its announcement for permission to lead.
    pub(super) fn other_than(&self, own: &Profile) -> Option<Announcement> {
        self.announcement().filter(|announcement| announcement.leader.id != own.id).cloned()
    }

    /// Returns the known leader if its id is that of this member, so that [`Self::other_than`] leaves it out.
    pub(super) fn with_same_id_as(&self, own: &Profile) -> Option<&Announcement> {
        self.announcement().filter(|announcement| announcement.leader.id == own.id)
    }

    /// Returns true if this member learned of the known leader before `moment`; false if no leader is known.
    pub(super) fn was_announced_before(&self, moment: Moment) -> bool {
        matches!(self, Self::Announced { since, .. } if *since < moment)
    }

    /// Returns true if `announcement` is about a later leader than the known one or the one that has left, or about a
    /// newer profile of the known leader, or if none was known.
    pub(super) fn is_older_than(&self, announcement: &Announcement) -> bool {
        match self {
            Self::Unknown => true,
            Self::Announced { announcement: known, .. } => known.version() < announcement.version(),
            Self::Gone(token) => *token < announcement.ticket.token,
        }
    }

    /// Keeps the known leader if `may_lead` returns true for its sequence. Otherwise notes that it has left the queue.
    pub(super) fn retain_if(&mut self, may_lead: impl Fn(Sequence) -> bool) {
        if let Some(Announcement { ticket, .. }) = self.announcement()
            && !may_lead(ticket.sequence)
        {
            *self = Self::Gone(ticket.token);
        }
    }
}
