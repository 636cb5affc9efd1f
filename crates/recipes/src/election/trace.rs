//! Events and actions in words. Logs and scenario files speak the same ones, so that a log of
//! what went wrong can be pasted into a scenario.

use super::{Action, Announcement, Event, Line, Role, Ticket};
use std::fmt;

impl Event {
    /// For programs that read logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SessionOpened { .. } => "session-opened",
            Self::Disconnected => "disconnected",
            Self::SessionResumed { .. } => "session-resumed",
            Self::SessionLost => "session-lost",
            Self::TicketDrawn(_) => "ticket-drawn",
            Self::TicketLost(_) => "ticket-lost",
            Self::LineRead(_) => "line-read",
            Self::PredecessorRead { .. } => "predecessor-read",
            Self::PredecessorGone(_) => "predecessor-gone",
            Self::HeadRead { .. } => "head-read",
            Self::HeadGone { .. } => "head-gone",
            Self::Committed { .. } => "committed",
            Self::Woke => "woke",
            Self::Acknowledge(_) => "acknowledge",
            Self::Unhealthy => "unhealthy",
            Self::Healthy => "healthy",
            Self::Resign => "resign",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Describe { .. } => "describe",
            Self::Stop => "stop",
        }
    }
}

impl Role {
    /// For programs that read logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leader { .. } => "leader",
            Self::Candidate => "candidate",
            Self::Follower { .. } => "follower",
            Self::Absent => "absent",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionOpened { session, timeout, .. } => {
                write!(f, "session {session} opened, timeout {timeout:?}")
            }
            Self::Disconnected => f.write_str("disconnected"),
            Self::SessionResumed { timeout, .. } => {
                write!(f, "session resumed, timeout {timeout:?}")
            }
            Self::SessionLost => f.write_str("session lost"),
            Self::TicketDrawn(ticket) => write!(f, "drew ticket {}", ticket.sequence),
            Self::TicketLost(ticket) => write!(f, "lost ticket {}", ticket.sequence),
            Self::LineRead(line) => write!(f, "the line is {line}"),
            Self::PredecessorRead { predecessor: who, says: Some(says) }
            | Self::HeadRead { head: Ticket { sequence: who, .. }, says: Some(says), .. } => {
                write!(f, "{who} says {says}")
            }
            Self::PredecessorRead { predecessor: who, says: None }
            | Self::HeadRead { head: Ticket { sequence: who, .. }, says: None, .. } => {
                write!(f, "{who} says nothing")
            }
            Self::PredecessorGone(predecessor) => write!(f, "{predecessor} is gone"),
            Self::HeadGone { head, .. } => write!(f, "the head, {head}, is gone"),
            Self::Committed { sent_at } => write!(f, "committed, sent at {:?}", sent_at.0),
            Self::Woke => f.write_str("woke"),
            Self::Acknowledge(token) => write!(f, "its application acknowledges token {token}"),
            Self::Unhealthy => f.write_str("its application is not healthy"),
            Self::Healthy => f.write_str("its application is healthy"),
            Self::Resign => f.write_str("told to resign"),
            Self::Pause => f.write_str("told to pause"),
            Self::Unpause => f.write_str("told to stand again"),
            Self::Describe { .. } => f.write_str("told another address or other labels"),
            Self::Stop => f.write_str("told to stop"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenSession => f.write_str("open a session"),
            Self::DrawTicket(_) => f.write_str("draw a ticket"),
            Self::ReadLine => f.write_str("read the line"),
            Self::WatchPredecessor(predecessor) => write!(f, "watch {predecessor}"),
            Self::ReadHead { head, .. } => write!(f, "read the head, {head}"),
            Self::PassOn { announcement, .. } => write!(f, "pass on {announcement}"),
            Self::Introduce { profile, says: Some(says) } => {
                write!(f, "introduce ourselves, revision {}, saying {says}", profile.revision)
            }
            Self::Introduce { profile, says: None } => {
                write!(f, "introduce ourselves, revision {}", profile.revision)
            }
            Self::Claim { announcement, .. } => write!(f, "claim {announcement}"),
            Self::Renew { .. } => f.write_str("renew"),
            Self::CloseSession => f.write_str("close the session"),
        }
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = if self.active { "leads" } else { "is elected" };
        write!(f, "«{} {leads}, token {}", self.leader.id, self.ticket.token)?;
        if self.leader.revision > 0 {
            write!(f, ", revision {}", self.leader.revision)?;
        }
        f.write_str("»")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("empty");
        }
        for (i, sequence) in self.iter().enumerate() {
            write!(f, "{}{sequence}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader { announcement: Announcement { ticket, .. }, left } => {
                write!(f, "leads, token {}, for {left:?} yet", ticket.token)
            }
            Self::Candidate => f.write_str("stands first, leads not"),
            Self::Follower { heard: Some(heard) } => write!(f, "follows, has heard {heard}"),
            Self::Follower { heard: None } => f.write_str("follows, has heard nothing"),
            Self::Absent => f.write_str("is not in the line"),
        }
    }
}
