//! Text for events and actions. Logs and scenario files use the same text, so that the log of a failure can be pasted
//! into a scenario.

use super::{Action, Announcement, Command, Event, Offer, Priority, Role, ZnodeData};
use crate::{AcquiredBy, ClaimOwner, Queue, Ticket};
use std::fmt;

impl Event {
    /// Returns the name for programs that read logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Session(event) => event.name(),
            Self::Joined(_) => "joined",
            Self::TicketFound { .. } => "ticket-found",
            Self::NoTicketFound => "no-ticket-found",
            Self::TicketLost(_) => "ticket-lost",
            Self::QueueRead(_) => "queue-read",
            Self::PredecessorRead { .. } => "predecessor-read",
            Self::PredecessorGone { .. } => "predecessor-gone",
            Self::HeadRead { .. } => "head-read",
            Self::HeadGone { .. } => "head-gone",
            Self::Foreign { .. } => "foreign",
            Self::OfferRead(_) => "offer-read",
            Self::TargetRead { .. } => "target-read",
            Self::TargetGone { .. } => "target-gone",
            Self::PrioritiesRead(_) => "priorities-read",
            Self::Committed { .. } => "committed",
            Self::ClaimRefused { .. } => "claim-refused",
            Self::Woke => "woke",
            Self::Command(command) => command.name(),
            Self::Stop => "stop",
        }
    }
}

impl Command {
    /// Returns the name for programs that read logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Resign => "resign",
            Self::Transfer { .. } => "transfer",
            Self::HandOver(_) => "hand-over",
            Self::CancelTransfer(_) => "cancel-transfer",
            Self::Preempt { .. } => "preempt",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::ReportHealth { healthy: true } => "healthy",
            Self::ReportHealth { healthy: false } => "unhealthy",
            Self::UpdateProfile { .. } => "profile-updated",
            Self::SetPriority(_) => "set-priority",
        }
    }
}

impl AcquiredBy {
    /// Returns the name for programs that read metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notification => "notification",
            Self::Claim => "claim",
        }
    }
}

impl Role {
    /// Returns the name for programs that read logs.
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
            Self::Session(event) => event.fmt(f),
            Self::Joined(ticket) => write!(f, "joined as {}", ticket.sequence),
            Self::TicketFound { ticket, .. } => write!(f, "found ticket {}", ticket.sequence),
            Self::NoTicketFound => f.write_str("found no ticket"),
            Self::TicketLost(ticket) => write!(f, "lost ticket {}", ticket.sequence),
            Self::QueueRead(queue) => write!(f, "the queue is {queue}"),
            Self::PredecessorRead {
                predecessor: Ticket { sequence, .. }, announcement, ..
            }
            | Self::HeadRead { head: Ticket { sequence, .. }, announcement, .. } => {
                match announcement {
                    Some(announcement) => write!(f, "{sequence} announces {announcement}"),
                    None => write!(f, "{sequence} announces nothing"),
                }
            }
            Self::PredecessorGone { predecessor, .. } => write!(f, "{predecessor} is gone"),
            Self::HeadGone { head, .. } => write!(f, "the head, {head}, is gone"),
            Self::Foreign { keep_out: true } => f.write_str("foreign contenders are in the path"),
            Self::Foreign { keep_out: false } => f.write_str("no foreign contender is in the path"),
            Self::OfferRead(offer) => write!(f, "a member ahead offers: {offer}"),
            Self::TargetRead { target, accepted: Some(offer) } => {
                write!(f, "the target, {target}, accepts: {offer}")
            }
            Self::TargetRead { target, accepted: None } => {
                write!(f, "the target, {target}, accepts nothing")
            }
            Self::TargetGone { target } => write!(f, "the target, {target}, is gone"),
            Self::PrioritiesRead(members) => {
                f.write_str("the priorities are")?;
                members.iter().try_for_each(|other| {
                    write!(f, " {}:{}", other.member, other.priority.number())
                })
            }
            Self::Committed { sent_at } => write!(f, "committed, sent at {:?}", sent_at.0),
            Self::ClaimRefused { holder, .. } => match holder {
                ClaimOwner::Contender(ticket) => {
                    write!(f, "claim refused: {} holds it, token {}", ticket.sequence, ticket.token)
                }
                ClaimOwner::Unknown => f.write_str("claim refused: an unknown client holds it"),
                ClaimOwner::NotShown => {
                    f.write_str("claim refused: another holds it, whom no server shows")
                }
                ClaimOwner::Gone => f.write_str("the claim is gone"),
            },
            Self::Woke => f.write_str("woke"),
            Self::Command(command) => command.fmt(f),
            Self::Stop => f.write_str("told to stop"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resign => f.write_str("told to resign"),
            Self::Transfer { target, .. } => write!(f, "told to transfer to {target}"),
            Self::HandOver(Offer { target, .. }) => write!(f, "told to hand over to {target}"),
            Self::CancelTransfer(_) => f.write_str("told to cancel the transfer"),
            Self::Preempt { .. } => f.write_str("told to transfer to the highest priority"),
            Self::Pause => f.write_str("told to pause"),
            Self::Resume => f.write_str("told to resume"),
            Self::ReportHealth { healthy: true } => f.write_str("its application is healthy"),
            Self::ReportHealth { healthy: false } => f.write_str("its application is not healthy"),
            Self::UpdateProfile { .. } => f.write_str("told another address or other labels"),
            Self::SetPriority(priority) => write!(f, "told to have {priority}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenSession => f.write_str("open a session"),
            Self::CloseSession => f.write_str("close the session"),
            Self::Join(_) => f.write_str("join"),
            Self::FindTicket => f.write_str("find its ticket"),
            Self::ReadQueue => f.write_str("read the queue"),
            Self::WatchPredecessor(predecessor) => write!(f, "watch {predecessor}"),
            Self::ReadHead { head, .. } => write!(f, "read the head, {head}"),
            Self::Relay { data, .. } => write!(f, "relay {data}"),
            Self::Claim { data, .. } => write!(f, "claim {data}"),
            Self::ReadTarget(target) => write!(f, "read the target, {target}"),
            Self::ReadPriorities => f.write_str("read the priorities"),
            Self::Update(data) => {
                write!(f, "update its znode: revision {}, {data}", data.profile.revision)
            }
            Self::Renew { ahead: None, .. } => f.write_str("renew"),
            Self::Renew { ahead: Some(ahead), .. } => write!(f, "renew, and ask for {ahead}"),
        }
    }
}

impl fmt::Display for ZnodeData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.announcement {
            Some(announcement) => announcement.fmt(f)?,
            None => f.write_str("no leader")?,
        }
        f.write_str(if self.ready { ", a ready standby" } else { "" })?;
        if let Some(offer) = &self.offer {
            write!(f, ", offers: {offer}")?;
        }
        self.accepted.as_ref().map_or(Ok(()), |offer| write!(f, ", accepts: {offer}"))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority {}", self.number())
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hand over to {} ({})", self.target, self.number)
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "«{} leads, token {}", self.leader.id, self.ticket.token)?;
        if self.leader.revision > 0 {
            write!(f, ", revision {}", self.leader.revision)?;
        }
        f.write_str("»")
    }
}

impl fmt::Display for Queue {
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
            Self::Candidate => f.write_str("is first, does not lead"),
            Self::Follower { leader: Some(leader) } => write!(f, "follows {leader}"),
            Self::Follower { leader: None } => f.write_str("follows, knows no leader"),
            Self::Absent => f.write_str("is not in the queue"),
        }
    }
}
