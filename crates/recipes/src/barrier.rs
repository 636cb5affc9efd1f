//! Double barriers: all members enter together once enough are present, and a member learns that all have left only
//! after they have.
//!
//! Each member has a znode in the barrier's path. A member that finds enough of these znodes creates the znode `ready`,
//! if a quorum confirms that all of them exist: so there is a moment at which that many members are present. `ready`
//! contains the largest sequence among them, and all members up to that sequence are inside. So a member that joins
//! later knows that it is not inside, and waits for the next round.
//!
//! To leave, a member deletes its znode, and then waits until the znodes of all others inside are gone. (The znode of a
//! dead member goes with its session.) Then the member deletes `ready`, which begins the next round.
//!
//! A round is identified by the last write to the data of the barrier's path. `ready` is created only if the round is
//! still the one that was read, and it is deleted in one transaction with the write that begins the next round. So a
//! member with an outdated reading can neither open a barrier that others have already left, nor delete the `ready` of
//! another round.
//!
//! All members of a barrier must name the same size in the names of their znodes. The first existing znode that names a
//! size decides which; once `ready` exists, the size in `ready` does. A member that names a different size is refused,
//! and not counted.
//!
//! A member is inside only while its session's lease runs. Until the lease ends, its znode exists, so no other member
//! is notified that all have left. A server that still shows a deleted znode does not keep a member waiting forever,
//! because the member asks a quorum. But if a server lost the transaction that created a member's znode, or if the
//! znode was deleted by force, others may be notified that all have left while that member is still inside.

use crate::holding::{End, HoldingSpec, HoldingState, Loss};
use crate::place::{Action, Effect, Event, Next, Outbox, Recipe};
use crate::session::LeasedSession;
use crate::{Moment, Queue, Sequence, Ticket};
use std::num::NonZeroU32;

/// One use of a barrier, identified by the zxid of the last write to the data of the barrier's path (the mzxid). A new
/// round begins each time that all members have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round(pub i64);

/// The state of a barrier, as read at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    pub round: Round,
    /// The size that all members must name; `None` if neither `ready` nor a znode names a size.
    pub size: Option<NonZeroU32>,
    /// The members that count: all whose znodes name the size in `size`, or no size.
    pub members: Queue,
    /// The sequence in `ready`: all members up to it are inside. `None` if `ready` does not exist.
    pub ready: Option<Sequence>,
}

/// A member's znode in the path of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierEntry {
    pub sequence: Sequence,
    /// The size in the znode's name; `None` for other ZooKeeper clients.
    pub size: Option<NonZeroU32>,
}

/// The content of the znode `ready`, whose existence means that the barrier is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ready {
    /// The largest sequence among the members that may enter.
    pub last: Sequence,
    /// The size of the barrier; `None` if another ZooKeeper client created `ready`.
    pub size: Option<NonZeroU32>,
}

/// Returns the prefix of the names of znodes with this size.
pub fn prefix(size: NonZeroU32) -> String {
    format!("size-{size}-")
}

impl BarrierEntry {
    /// Parses the name of a znode: any prefix that ends in `-`, then ten digits. Returns `None` for other names.
    pub fn of_name(name: &str) -> Option<Self> {
        let (start, _) = name.rsplit_once('-')?;
        let sequence = Sequence::of_name(name, &format!("{start}-"))?;
        let size = start.strip_prefix("size-").and_then(|size| size.parse().ok());
        Some(Self { sequence, size })
    }
}

impl Reading {
    /// Determines the size, and the members that count, from the entries and `ready`.
    pub fn of(round: Round, mut entries: Vec<BarrierEntry>, ready: Option<Ready>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.sequence);
        let size_in_ready = ready.and_then(|ready| ready.size);
        // If `ready` names no size, the first entry that names one decides.
        let size = size_in_ready.or_else(|| entries.iter().find_map(|entry| entry.size));
        let members = entries
            .iter()
            .filter(|entry: &&BarrierEntry| entry.size.is_none() || entry.size == size)
            .map(|entry| entry.sequence)
            .collect();
        Self { round, size, members, ready: ready.map(|ready| ready.last) }
    }
}

/// A member of a barrier, from its join until it knows that all others have left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Barrier {
    size: NonZeroU32,
    stage: Stage,
    outbox: Outbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The barrier is not open yet, or it was opened for others, who are still inside. `present` is the number of members at the last reading,
    /// including those inside; `None` before the first reading. `watched` is the nearest znode ahead, if it is watched:
    /// only while others are inside.
    Waiting { ticket: Ticket, present: Option<usize>, watched: Option<Sequence> },
    /// The barrier is open for this member, but too little of the session's lease is left to enter.
    Open { ticket: Ticket, insiders: Insiders },
    /// The member is inside.
    Inside { ticket: Ticket, insiders: Insiders },
    /// The own znode is being deleted. After that, the member waits until all others have left.
    Leaving { ticket: Ticket, insiders: Insiders },
    /// The own znode is gone, but others may still be inside. `watched` is the one of them with the largest sequence,
    /// if its znode is watched.
    Left { insiders: Insiders, watched: Option<Sequence> },
    /// Like `Left`, but without a session to read the barrier.
    LeftNoSession(Insiders),
}

/// The members inside a barrier in one round: all with a sequence up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Insiders {
    round: Round,
    last: Sequence,
}

impl Insiders {
    /// Returns the largest sequence of these members that this reading still shows; `None` if all have left.
    fn last_present(self, reading: &Reading) -> Option<Sequence> {
        // The reading is of a later round, which begins only when all have left.
        if reading.round != self.round {
            return None;
        }
        reading.members.iter().filter(|member| *member <= self.last).last()
    }
}

impl Recipe for Barrier {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn on_session_opened(&mut self) {
        if let Stage::LeftNoSession(insiders) = self.stage {
            self.wait_for_others(insiders);
        }
    }

    fn on_session_lost(&mut self) -> Next {
        match self.stage {
            Stage::Waiting { .. } | Stage::Open { .. } => Next::AwaitSession,
            Stage::Inside { .. } => Next::Over(End::Lost(Loss::SessionEnded)),
            // The own znode, if it still existed, ended with the session.
            Stage::Leaving { insiders, .. }
            | Stage::Left { insiders, .. }
            | Stage::LeftNoSession(insiders) => {
                self.stage = Stage::LeftNoSession(insiders);
                Next::Stay
            }
        }
    }

    fn release(&mut self) -> Next {
        match self.stage {
            Stage::Waiting { .. } | Stage::Open { .. } => return Next::Leave(End::Released),
            // The end is reported later, when all others have left, too.
            Stage::Inside { ticket, insiders } => {
                self.stage = Stage::Leaving { ticket, insiders };
                self.outbox.push(Effect::Do(Action::Leave(ticket)));
            }
            // The member is leaving or has left already.
            _ => {}
        }
        Next::Stay
    }

    fn end_if_lapsed(&self, session: &LeasedSession, now: Moment) -> Next {
        match self.stage {
            Stage::Inside { .. } if session.lease_left(now).is_none() => {
                Next::Leave(End::Lost(Loss::LeaseRanOut))
            }
            _ => Next::Stay,
        }
    }

    fn on_committed(&mut self, session: &mut LeasedSession, _sent_at: Moment, now: Moment) -> Next {
        // The commit may have renewed the lease.
        if let Stage::Open { ticket, insiders } = self.stage {
            self.enter(session, now, ticket, insiders);
        }
        Next::Stay
    }

    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Next {
        match (event, &mut self.stage) {
            (
                Event::TicketLost(lost),
                Stage::Waiting { ticket, .. } | Stage::Open { ticket, .. },
            ) if *ticket == lost => return Next::Rejoin,
            (Event::TicketLost(lost), Stage::Inside { ticket, .. }) if *ticket == lost => {
                return Next::Over(End::Lost(Loss::Deleted));
            }
            (Event::BarrierRead(reading), Stage::Waiting { .. }) => {
                return self.on_read_waiting(session, now, &reading);
            }
            (Event::BarrierRead(reading), Stage::Left { .. }) => {
                return self.on_read_left(&reading);
            }
            (
                Event::Gone { sequence: gone, .. },
                Stage::Waiting { watched, .. } | Stage::Left { watched, .. },
            ) if *watched == Some(gone) => {
                *watched = None;
                self.outbox.push(Effect::Do(Action::Read));
            }
            (Event::BarrierChanged, Stage::Waiting { .. } | Stage::Left { .. }) => {
                self.outbox.push(Effect::Do(Action::Read));
            }
            (Event::Left, Stage::Leaving { insiders, .. }) => {
                let insiders = *insiders;
                self.wait_for_others(insiders);
            }
            // In any other stage, the member does not need the event.
            _ => {}
        }
        Next::Stay
    }

    fn waits_for(&self) -> Option<Sequence> {
        match self.stage {
            Stage::Waiting { watched, .. } | Stage::Left { watched, .. } => watched,
            _ => None,
        }
    }

    fn needs_lease(&self) -> bool {
        matches!(self.stage, Stage::Open { .. } | Stage::Inside { .. })
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waiting { ticket, .. }
            | Stage::Open { ticket, .. }
            | Stage::Inside { ticket, .. }
            | Stage::Leaving { ticket, .. } => Some(ticket),
            Stage::Left { .. } | Stage::LeftNoSession(_) => None,
        }
    }

    fn state(&self, session: Option<&LeasedSession>, now: Moment) -> HoldingState {
        match self.stage {
            Stage::Waiting { present, .. } => HoldingState::Gathering { present },
            // The barrier opened when at least this many members were present.
            Stage::Open { .. } => {
                HoldingState::Gathering { present: Some(self.size.get() as usize) }
            }
            Stage::Inside { ticket, .. } => {
                match session.and_then(|session| session.lease_left(now)) {
                    Some(left) => {
                        HoldingState::Held { token: ticket.token, until: now.after(left) }
                    }
                    None => HoldingState::Ended(End::Lost(Loss::LeaseRanOut)),
                }
            }
            Stage::Leaving { .. } | Stage::Left { .. } | Stage::LeftNoSession(_) => {
                HoldingState::Leaving
            }
        }
    }
}

impl Barrier {
    pub(crate) fn joined(size: NonZeroU32, ticket: Ticket) -> Self {
        let stage = Stage::Waiting { ticket, present: None, watched: None };
        Self { size, stage, outbox: vec![] }
    }

    /// Enters the open barrier if enough of the session's lease is left, and otherwise once a committed heartbeat has
    /// renewed the lease.
    fn enter(&mut self, session: &LeasedSession, now: Moment, ticket: Ticket, insiders: Insiders) {
        self.stage = if session.has_enough_lease(now) {
            Stage::Inside { ticket, insiders }
        } else {
            Stage::Open { ticket, insiders }
        };
    }

    /// Begins to wait, after this member has left the barrier, until all others have left it.
    fn wait_for_others(&mut self, insiders: Insiders) {
        self.stage = Stage::Left { insiders, watched: None };
        self.outbox.push(Effect::Do(Action::Read));
    }

    /// Enters if the barrier is open for this member. If the barrier is open only for earlier members, ends their round
    /// once they are gone. If the barrier is not open, opens it once enough members are present.
    fn on_read_waiting(&mut self, session: &LeasedSession, now: Moment, reading: &Reading) -> Next {
        let Stage::Waiting { ticket, watched, .. } = self.stage else { return Next::Stay };
        let own = ticket.sequence;
        let round = reading.round;
        if let Some(found) = reading.size
            && found != self.size
        {
            return Next::Leave(End::Refused { found: HoldingSpec::Barrier(found) });
        }
        // If the reading lacks the own znode, that is lost: such a reading is delivered only if a quorum agrees.
        if !reading.members.iter().any(|member| member == own) {
            return Next::Rejoin;
        }
        let present = reading.members.iter().count();
        let to_watch = match reading.ready {
            // The barrier is open for this member.
            Some(last) if own <= last => {
                self.enter(session, now, ticket, Insiders { round, last });
                return Next::Stay;
            }
            // The barrier is open for earlier members, which are inside or died there. If all are gone, end their
            // round: those that died cannot. Watch only the nearest member ahead, so that the end of a znode wakes one
            // waiting member. For the first of them, the nearest one ahead is the insider with the largest sequence.
            Some(last) => {
                let insiders = Insiders { round, last };
                if insiders.last_present(reading).is_none() {
                    self.outbox.push(Effect::Do(Action::EndRound(round)));
                }
                reading.members.iter().filter(|member| *member < own).last()
            }
            // The barrier is not open. Each member reads it after joining, so the one that completes the size opens it.
            // The others need no watch but that of `ready`, which each reading sets.
            None => {
                if present >= self.size.get() as usize {
                    let size = self.size;
                    let members = reading.members.clone();
                    self.outbox.push(Effect::Do(Action::MakeReady { round, size, members }));
                }
                None
            }
        };
        if let Some(ahead) = to_watch
            && watched != Some(ahead)
        {
            self.outbox.push(Effect::Do(Action::Watch(ahead)));
        }
        self.stage = Stage::Waiting { ticket, present: Some(present), watched: to_watch };
        Next::Stay
    }

    /// Waits until all others inside have left, by watching the one with the largest sequence. Then ends the round, and
    /// reports the end after the next reading.
    fn on_read_left(&mut self, reading: &Reading) -> Next {
        let Stage::Left { insiders, watched } = self.stage else { return Next::Stay };
        match insiders.last_present(reading) {
            Some(last) => {
                self.stage = Stage::Left { insiders, watched: Some(last) };
                if watched != Some(last) {
                    self.outbox.push(Effect::Do(Action::Watch(last)));
                }
            }
            // End the round before reporting that all have left, so that the caller can use the barrier again at once.
            // After the request, the barrier is read again.
            None if reading.round == insiders.round && reading.ready.is_some() => {
                self.outbox.push(Effect::Do(Action::EndRound(insiders.round)));
            }
            None => return Next::Over(End::AllLeft),
        }
        Next::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: i32) -> Sequence {
        Sequence::new(number).unwrap()
    }

    const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();
    const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();

    #[test]
    fn a_name_says_the_size_and_unknown_clients_may_say_none() {
        let own = BarrierEntry::of_name(&sequence(7).name(&prefix(THREE)));
        assert_eq!(own, Some(BarrierEntry { sequence: sequence(7), size: Some(THREE) }));
        for (name, size) in [("p-0000000007", None), ("size-2-0000000007", Some(TWO))] {
            assert_eq!(
                BarrierEntry::of_name(name),
                Some(BarrierEntry { sequence: sequence(7), size }),
                "{name}"
            );
        }
        for unknown_client in
            ["ready", "0000000007", "p-7", "5e0d61f04d7d4f1f9b3c0000000007", "p-00000000071"]
        {
            assert_eq!(BarrierEntry::of_name(unknown_client), None, "{unknown_client}");
        }
        let none = BarrierEntry::of_name("size-0-0000000007");
        assert_eq!(none, Some(BarrierEntry { sequence: sequence(7), size: None }));
    }

    #[test]
    fn the_first_that_names_a_size_says_who_is_counted_unless_the_barrier_is_open() {
        let entry = |number, size| BarrierEntry { sequence: sequence(number), size };
        let entries = || {
            vec![entry(4, Some(TWO)), entry(2, Some(THREE)), entry(1, None), entry(5, Some(THREE))]
        };
        let members = |numbers: &[i32]| numbers.iter().copied().map(sequence).collect();
        let round = Round(0);
        let ready = None;
        let expected = Reading { round, size: Some(THREE), members: members(&[1, 2, 5]), ready };
        assert_eq!(Reading::of(round, entries(), None), expected);
        let ready = Some(sequence(4));
        let expected = Reading { round, size: Some(TWO), members: members(&[1, 4]), ready };
        let open = Some(Ready { last: sequence(4), size: Some(TWO) });
        assert_eq!(Reading::of(round, entries(), open), expected);
        let unknown_clients = Some(Ready { last: sequence(4), size: None });
        assert_eq!(Reading::of(round, entries(), unknown_clients).size, Some(THREE));
    }
}
