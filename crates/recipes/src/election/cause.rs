//! The cause of a change of the leader, for operators, determined in one place for everything that publishes it.

use super::{Command, Event, Standing};
use crate::{Moment, SessionEvent};
use std::fmt;

/// Why the leader changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This member was commanded to resign.
    Resigned,
    /// This member was commanded to hand over to another member, which was ready.
    Transferred,
    /// This member was commanded to leave the queue until it is resumed.
    Paused,
    /// This member's process is shutting down.
    Left,
    /// This member's session ended, and its znode with it.
    SessionExpired,
    /// The servers granted a session too short for a useful lease.
    SessionTooShort,
    /// No quorum acknowledged a heartbeat of this leader in time.
    LeaseRanOut,
    /// This member's own znode was deleted by force.
    ZnodeDeleted,
    /// A quorum refused this member's claim, or a renewal because its claim znode is gone.
    ClaimRefused,
    /// This member's application is unhealthy, so the member left the queue.
    Unhealthy,
    /// This member left the queue because the path has foreign contenders, whose client sorts it by another rule.
    Foreign,
    /// A quorum acknowledged this member's claim.
    Claimed,
    /// The address or labels of this member changed.
    ProfileUpdated,
    /// The znode of the previous leader is no longer in the queue. This member may lead now, if it was next.
    LeaderGone,
    /// A member ahead announced the leader.
    Announced,
    /// The head of the queue announces no leader.
    NotAnnounced,
    /// This member joined the queue, or continues in it.
    Queue,
}

impl Cause {
    /// Returns the cause of a change of leader by this event, given the member's standing before the event. The result
    /// means something only if the leader has changed. For example, a resumption of the session changes the leader only
    /// if the granted timeout is too short, so the cause is then the timeout.
    pub fn of(event: &Event, before: &Standing, now: Moment) -> Self {
        // The term had ended before the event, whatever the event is.
        if before.has_lapsed(now) {
            return Self::LeaseRanOut;
        }
        match event {
            Event::Session(SessionEvent::Resumed { .. }) => Self::SessionTooShort,
            Event::Session(SessionEvent::Lost) => Self::SessionExpired,
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
            // The queue is read when a znode ahead is gone, so a change by that reading has the same cause.
            Event::PredecessorGone { .. } | Event::HeadGone { .. } | Event::QueueRead(_) => {
                Self::LeaderGone
            }
            Event::Command(command) => match command {
                Command::Resign => Self::Resigned,
                Command::HandOver(_) => Self::Transferred,
                Command::Pause => Self::Paused,
                Command::ReportHealth { healthy: false } => Self::Unhealthy,
                Command::UpdateProfile { .. } => Self::ProfileUpdated,
                _ => Self::Queue,
            },
            Event::Stop => Self::Left,
            _ => Self::Queue,
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
            Self::Foreign => "foreign contenders are in the path",
            Self::Claimed => "a quorum acknowledged the claim",
            Self::ProfileUpdated => "address or labels changed",
            Self::LeaderGone => "the leader left, or its session ended",
            Self::Announced => "a leader was announced",
            Self::NotAnnounced => "no leader is announced any more",
            Self::Queue => "the place in the queue changed",
        })
    }
}
