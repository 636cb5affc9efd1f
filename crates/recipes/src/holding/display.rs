//! `Display` implementations, for logs and scenario files.

use super::{
    Action, End, Event, HoldingId, HoldingKind, HoldingSpec, HoldingState, Holdings, Loss,
};
use crate::barrier::Reading;
use crate::lock::{LockEntry, Mode};
use crate::place;
use std::fmt;

impl fmt::Display for HoldingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slots(slots) => write!(f, "one of {slots} slots"),
        }
    }
}

impl fmt::Display for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first letter of the prefix of the znode's name.
        let mode = match self.mode {
            Mode::Exclusive => "w",
            Mode::Shared => "r",
            Mode::Slots(_) => "s",
        };
        write!(f, "{}{mode}", self.sequence)
    }
}

impl fmt::Display for HoldingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Barrier => "barrier",
        })
    }
}

impl fmt::Display for HoldingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(mode) => write!(f, "a lock, {mode}"),
            Self::Barrier(size) => write!(f, "a barrier of {size}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(id, spec) => write!(f, "{id}: asked for {spec}"),
            Self::Released(id) => write!(f, "{id}: told to release"),
            Self::Session(event) => event.fmt(f),
            Self::Committed { sent_at } => write!(f, "committed, sent at {:?}", sent_at.0),
            Self::Place(id, event) => write!(f, "{id}: {event}"),
            Self::Woke => f.write_str("woke"),
            Self::InUse(true) => f.write_str("the session is needed"),
            Self::InUse(false) => f.write_str("the session is not needed"),
            Self::Read => f.write_str("a queue is read"),
            Self::Stop => f.write_str("told to stop"),
        }
    }
}

impl fmt::Display for place::Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { ticket, .. } => write!(f, "joined as {}", ticket.sequence),
            Self::TicketLost(ticket) => write!(f, "lost ticket {}", ticket.sequence),
            Self::QueueRead(entries) => {
                f.write_str("the queue is")?;
                entries.iter().try_for_each(|entry| write!(f, " {entry}"))
            }
            Self::BarrierRead(Reading { round, size: _, members, ready }) => {
                write!(f, "round {} has {members}", round.0)?;
                ready.map_or(Ok(()), |last| write!(f, ", ready up to {last}"))
            }
            Self::BarrierChanged => f.write_str("the barrier changed"),
            Self::Watched(znode) => write!(f, "{} is watched", znode.sequence),
            Self::Gone { sequence, .. } => write!(f, "{sequence} is gone"),
            Self::Left => f.write_str("left"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenSession => f.write_str("open a session"),
            Self::CloseSession => f.write_str("close the session"),
            Self::Renew { .. } => f.write_str("renew"),
            Self::Place(id, action) => write!(f, "{id}: {action}"),
            Self::Ended(id, end) => write!(f, "{id}: {end}"),
        }
    }
}

impl fmt::Display for place::Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(_) => f.write_str("join"),
            Self::Read => f.write_str("read"),
            Self::Watch(sequence) => write!(f, "watch {sequence}"),
            Self::Confirm(sequence) => write!(f, "confirm {sequence}"),
            Self::MakeReady { round, members, .. } => {
                write!(f, "make ready in round {} for {members}", round.0)
            }
            Self::EndRound(round) => write!(f, "end round {}", round.0),
            Self::Leave(ticket) => write!(f, "delete {}", ticket.sequence),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("it was given back"),
            Self::AllLeft => f.write_str("all have left"),
            Self::Refused { found } => write!(f, "another asked before for {found}"),
            Self::Lost(loss) => write!(f, "{loss}"),
            Self::TooMany => write!(
                f,
                "{} locks and barriers are held or waited for through this member: give some back, or try later",
                Holdings::MAX
            ),
            Self::Stopped => f.write_str("this member leaves"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseRanOut => "the lease ran out",
            Self::SessionEnded => "the session ended",
            Self::Deleted => "its znode was deleted, or an operator broke it",
        })
    }
}

impl fmt::Display for HoldingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { ahead: Some(ahead) } => write!(f, "waits behind {ahead}"),
            Self::Waiting { ahead: None } => f.write_str("waits"),
            Self::Gathering { present: Some(present) } => write!(f, "waits, {present} are there"),
            Self::Gathering { present: None } => f.write_str("waits"),
            Self::Held { token, until } => write!(f, "holds until {:?}, token {token}", until.0),
            Self::Leaving => f.write_str("has left, others have not"),
            Self::Ended(end) => write!(f, "has ended: {end}"),
        }
    }
}
