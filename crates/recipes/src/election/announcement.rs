//! The announcement of the leader, as members write it into their znodes.

use super::{Offer, Priority};
use crate::{FencingToken, MemberId, Moment, Sequence, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The information that a member publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub id: MemberId,
    /// The address of its application.
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The number of changes to address or labels in this life of the member: the larger is the newer.
    pub revision: u64,
}

/// That a member leads. The leader writes it into its own znode, its successor relays it into its own, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    pub leader: Arc<Profile>,
    pub ticket: Ticket,
}

/// The data of a member's own znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZnodeData {
    pub profile: Arc<Profile>,
    pub priority: Priority,
    /// The leader, as far as this member knows.
    pub announcement: Option<Announcement>,
    /// Whether this member is the standby, and could lead at the notification that the head is gone.
    pub ready: bool,
    /// To which member this one, which leads, would hand over.
    pub offer: Option<Box<Offer>>,
    /// The offer that this member, the standby, has accepted.
    pub accepted: Option<Box<Offer>>,
}

/// The leader, as far as announcements say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KnownLeader {
    Unknown,
    Announced {
        announcement: Announcement,
        since: Moment,
    },
    /// The leader announced last has left the queue: only an announcement with a larger token is new.
    Gone(FencingToken),
}

impl ZnodeData {
    /// Returns the data of a member of the usual priority that knows of no leader.
    pub fn of(profile: Arc<Profile>) -> Self {
        let priority = Priority::default();
        let announcement = None;
        Self { profile, priority, announcement, ready: false, offer: None, accepted: None }
    }
}

impl Announcement {
    /// Returns what orders announcements, the larger being the newer: a later leader, or the same one with another
    /// profile.
    fn version(&self) -> (FencingToken, u64) {
        (self.ticket.token, self.leader.revision)
    }

    /// Whether it cannot be true if the leader itself announces `own`: a newer one of the same leader only adds to it.
    pub(super) fn is_contradicted_by(&self, own: &Self) -> bool {
        let is_older = self.ticket == own.ticket && self.version() < own.version();
        self != own && !is_older
    }
}

impl KnownLeader {
    pub(super) fn announcement(&self) -> Option<&Announcement> {
        match self {
            Self::Announced { announcement, .. } => Some(announcement),
            Self::Unknown | Self::Gone(_) => None,
        }
    }

    /// Returns the leader unless it has the name of this member, which does not lead: the announcement is then of an
    /// earlier life of this member. An application that only compares names must not take it for permission to lead.
    pub(super) fn other_than(&self, own: &Profile) -> Option<Announcement> {
        self.announcement().filter(|announcement| announcement.leader.id != own.id).cloned()
    }

    /// Returns the leader that [`Self::other_than`] leaves out.
    pub(super) fn duplicate_id_of(&self, own: &Profile) -> Option<&Announcement> {
        self.announcement().filter(|announcement| announcement.leader.id == own.id)
    }

    pub(super) fn was_announced_before(&self, moment: Moment) -> bool {
        matches!(self, Self::Announced { since, .. } if *since < moment)
    }

    pub(super) fn is_older_than(&self, announcement: &Announcement) -> bool {
        match self {
            Self::Unknown => true,
            Self::Announced { announcement: known, .. } => known.version() < announcement.version(),
            Self::Gone(token) => *token < announcement.ticket.token,
        }
    }

    /// Notes that the leader has gone, unless it may lead.
    pub(super) fn retain_if(&mut self, may_lead: impl Fn(Sequence) -> bool) {
        if let Some(Announcement { ticket, .. }) = self.announcement()
            && !may_lead(ticket.sequence)
        {
            *self = Self::Gone(ticket.token);
        }
    }
}
