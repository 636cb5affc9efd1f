//! The cause of a change of the leader, for operators: judged once, for all that publish it.

use super::{Command, Event, Standing};
use crate::Moment;
use std::fmt;

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This member was told to give leadership up.
    Resigned,
    /// This member was told to hand over to another, which was ready.
    Transferred,
    /// This member was told to stay out of the queue.
    Paused,
    /// This member's process ends.
    Left,
    SessionExpired,
    /// The servers grant a shorter session than a useful lease needs.
    SessionTooShort,
    LeaseRanOut,
    /// This member's own znode was deleted by force.
    ZnodeDeleted,
    ClaimRefused,
    Unhealthy,
    /// Contenders of another order stand in the path.
    Foreign,
    /// A quorum acknowledged this member's claim.
    Claimed,
    /// Address or labels are other ones.
    ProfileUpdated,
    /// The znode of another leader is not in the queue any more.
    LeaderGone,
    /// A member ahead announced who leads.
    Announced,
    /// The head of the queue announces no leader.
    NotAnnounced,
    /// This member joins the queue, or goes on in it.
    Queue,
}

impl Cause {
    /// Judges the event that a member handled while it had this standing.
    pub fn of(event: &Event, before: &Standing, now: Moment) -> Self {
        if before.has_lapsed(now) {
            return Self::LeaseRanOut;
        }
        match event {
            Event::SessionResumed { .. } => Self::SessionTooShort,
            Event::SessionLost => Self::SessionExpired,
            Event::TicketLost(_) => Self::ZnodeDeleted,
            Event::PredecessorRead { announcement, .. } | Event::HeadRead { announcement, .. } => {
                if announcement.is_some() {
                    Self::Announced
                } else {
                    Self::NotAnnounced
                }
            }
            Event::Committed { .. } => Self::Claimed,
            Event::ClaimRefused { .. } => Self::ClaimRefused,
            Event::Foreign { .. } => Self::Foreign,
            Event::PredecessorGone { .. } | Event::HeadGone { .. } | Event::QueueRead(_) => {
                Self::LeaderGone
            }
            Event::SessionOpened { .. }
            | Event::Disconnected
            | Event::Joined(_)
            | Event::OfferRead(_)
            | Event::TargetRead { .. }
            | Event::TargetGone { .. }
            | Event::PrioritiesRead(_)
            | Event::SessionTakenOver { .. }
            | Event::TicketFound { .. }
            | Event::NoTicketFound
            | Event::Woke => Self::Queue,
            Event::Command(command) => match command {
                Command::Resign => Self::Resigned,
                Command::HandOver(_) => Self::Transferred,
                Command::Pause => Self::Paused,
                Command::Resume
                | Command::ReportHealth { healthy: true }
                | Command::Transfer { .. }
                | Command::CancelTransfer(_)
                | Command::Preempt { .. }
                | Command::SetPriority(_) => Self::Queue,
                Command::ReportHealth { healthy: false } => Self::Unhealthy,
                Command::UpdateProfile { .. } => Self::ProfileUpdated,
            },
            Event::Stop => Self::Left,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resigned => "resigned",
            Self::Transferred => "transferred",
            Self::Paused => "paused",
            Self::Left => "left",
            Self::SessionExpired => "session expired",
            Self::SessionTooShort => "the servers granted too short a session",
            Self::LeaseRanOut => "the lease ran out",
            Self::ZnodeDeleted => "the znode was deleted",
            Self::ClaimRefused => "the claim was refused",
            Self::Unhealthy => "the application is not healthy",
            Self::Foreign => "contenders of another order stand in the path",
            Self::Claimed => "a quorum acknowledged the claim",
            Self::ProfileUpdated => "address or labels changed",
            Self::LeaderGone => "the leader left, or its session ended",
            Self::Announced => "a leader was announced",
            Self::NotAnnounced => "no leader is announced any more",
            Self::Queue => "the place in the queue changed",
        })
    }
}
