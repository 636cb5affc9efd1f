//! Double barriers: all enter together once enough are there, and all have left before any learns that.
//!
//! Each has a znode in the barrier's path. One that finds enough of them makes `ready`, if a quorum agrees that all of them
//! stand: so there is one moment at which so many are there. It says who is inside: all with a number up to the largest of
//! them. So one that comes later knows that it is not, and waits for the next round.
//! One that leaves deletes its znode, and has left when the znodes of all others inside are gone, of the dead too. Then
//! `ready` is deleted, and the next round can begin.
//!
//! Rounds are distinguished by the last write to the barrier's path: `ready` is made only in the round that was read, and is
//! deleted together with the step to the next, both or neither. So none that is late can open a barrier which others have
//! left already, or take the `ready` of another round away.
//!
//! All that use a barrier are to name the same size: the first of those that stand there says which, or `ready` once it
//! is made. One that names another is refused, and not counted.
//!
//! A member is inside only while its session's lease runs, so that its znode stands and keeps the others from being told
//! that it has left. What a server shows that is gone keeps nobody waiting forever: a quorum is asked. But at a server that lost the
//! transaction which made a znode, and where znodes are deleted by force, one may be told so while another is inside.

use crate::holding::{Effect, End, HoldingSpec, HoldingState, Loss};
use crate::session::LeasedSession;
use crate::{Moment, Queue, Sequence, Ticket};
use std::num::NonZeroU32;

/// One use of a barrier: another each time that all have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round(pub i64);

/// Events of one member of a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its znode exists. A quorum committed that in answer to a request sent at this moment; `None` where the znode was
    /// found after a request whose outcome was unknown.
    Joined { ticket: Ticket, sent_at: Option<Moment> },
    /// Its znode is gone, although the session lives: it was deleted by force.
    TicketLost(Ticket),
    /// The barrier, read at some moment not later than now.
    Read(Reading),
    /// The znode that was to be watched is gone.
    Gone(Sequence),
    /// `ready` was made or deleted, or a request to do so was answered, whatever the answer.
    Changed,
    /// Its own znode is deleted, as it wanted.
    Left,
}

/// A reading of a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    pub round: Round,
    /// The one that all are to name; `None` if none that is there says one.
    pub size: Option<NonZeroU32>,
    /// Members whose znode does not name another.
    pub members: Queue,
    /// The largest number that is inside, where there is `ready`.
    pub ready: Option<Sequence>,
}

/// A member's znode in the path of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierEntry {
    pub sequence: Sequence,
    /// `None` for another ZooKeeper client.
    pub size: Option<NonZeroU32>,
}

/// The content of `ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ready {
    /// The largest number that is inside.
    pub last: Sequence,
    /// `None` if another ZooKeeper client made it.
    pub size: Option<NonZeroU32>,
}

/// Returns what the names of the znodes of members begin with that name this size.
pub fn prefix(size: NonZeroU32) -> String {
    format!("size-{size}-")
}

impl BarrierEntry {
    /// Reads an entry from a znode's name, of which any will do that ends in `-` and a number. Returns `None` for others.
    pub fn of_name(name: &str) -> Option<Self> {
        let (begins, _) = name.rsplit_once('-')?;
        let sequence = Sequence::of_name(name, &format!("{begins}-"))?;
        let size = begins.strip_prefix("size-").and_then(|size| size.parse().ok());
        Some(Self { sequence, size })
    }
}

impl Reading {
    /// Judges who is counted of those that stand there.
    pub fn of(round: Round, mut entries: Vec<BarrierEntry>, ready: Option<Ready>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.sequence);
        let of_ready = ready.and_then(|ready| ready.size);
        let size = of_ready.or_else(|| entries.iter().find_map(|entry| entry.size));
        let members = entries
            .iter()
            .filter(|entry: &&BarrierEntry| entry.size.is_none() || entry.size == size)
            .map(|entry| entry.sequence)
            .collect();
        Self { round, size, members, ready: ready.map(|ready| ready.last) }
    }
}

/// Actions of one member of a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create the ephemeral sequential znode, which names this size, or find the one that was created for this holding
    /// before.
    Join(NonZeroU32),
    /// Read the barrier, and leave a watch for `ready` to be made or deleted.
    Read,
    /// Leave a watch on this member's znode.
    Watch(Sequence),
    /// Have a quorum say whether the watched znode stands: the server at hand may be wrong.
    Prove(Sequence),
    /// Make `ready`, which says the size and that all up to the last of these are inside, unless the round is over or a
    /// quorum says that one of them is gone.
    MakeReady { round: Round, size: NonZeroU32, members: Queue },
    /// Delete `ready` and begin the next round, both or neither, unless this round is over.
    EndRound(Round),
    /// Delete the own znode. It is asked again until it is gone, or the session is.
    Leave(Ticket),
}

type Wants = Vec<Effect<Action>>;

/// One member of a barrier, or on the way there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Barrier {
    size: NonZeroU32,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    NoSession,
    Joining,
    Waiting {
        ticket: Ticket,
        present: Option<usize>,
        watched: Option<Sequence>,
    },
    /// The barrier is open, and the session has no lease to be inside by.
    Open {
        ticket: Ticket,
        inside: Inside,
    },
    Inside {
        ticket: Ticket,
        inside: Inside,
    },
    /// Its znode is being deleted, and it is to hear when all have left.
    Leaving {
        ticket: Ticket,
        inside: Inside,
    },
    /// Its znode is gone. Others may be inside yet.
    Outside {
        inside: Inside,
        watched: Option<Sequence>,
    },
    /// The same, without a session to read by.
    OutsideNoSession(Inside),
    /// Its end was told, and its znode is not deleted yet. `None` while it is being created.
    Withdrawing(Option<Ticket>),
    Over,
}

/// The members inside: all with a number up to the last, in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inside {
    round: Round,
    last: Sequence,
}

impl Inside {
    /// Returns the last of them in this reading, unless all have left.
    fn nearest(self, reading: &Reading) -> Option<Sequence> {
        if reading.round != self.round {
            return None;
        }
        reading.members.iter().filter(|member| *member <= self.last).last()
    }
}

impl Barrier {
    pub(crate) fn new(size: NonZeroU32) -> Self {
        Self { size, stage: Stage::NoSession }
    }

    pub(crate) fn on_session_opened(&mut self) -> Wants {
        match self.stage {
            Stage::NoSession => self.join(),
            Stage::OutsideNoSession(inside) => self.look(inside),
            _ => vec![],
        }
    }

    /// A waiting member joins again in the next session.
    pub(crate) fn on_session_lost(&mut self) -> Wants {
        match self.stage {
            Stage::NoSession | Stage::Joining | Stage::Waiting { .. } | Stage::Open { .. } => {
                self.stage = Stage::NoSession;
                vec![]
            }
            Stage::Inside { .. } => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Lost(Loss::SessionEnded))]
            }
            Stage::Leaving { inside, .. }
            | Stage::Outside { inside, .. }
            | Stage::OutsideNoSession(inside) => {
                self.stage = Stage::OutsideNoSession(inside);
                vec![]
            }
            Stage::Withdrawing(_) | Stage::Over => {
                self.stage = Stage::Over;
                vec![]
            }
        }
    }

    /// Leaves the barrier, or gives up waiting for it.
    pub(crate) fn release(&mut self) -> Wants {
        match self.stage {
            Stage::NoSession => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Released)]
            }
            Stage::Joining => {
                self.stage = Stage::Withdrawing(None);
                vec![Effect::Ended(End::Released)]
            }
            Stage::Waiting { ticket, .. } | Stage::Open { ticket, .. } => {
                self.withdraw(ticket, End::Released)
            }
            Stage::Inside { ticket, inside } => {
                self.stage = Stage::Leaving { ticket, inside };
                vec![Effect::Do(Action::Leave(ticket))]
            }
            _ => vec![],
        }
    }

    /// Ends it where its lease ran out inside.
    pub(crate) fn lapse(&mut self, session: &LeasedSession, now: Moment) -> Wants {
        match self.stage {
            Stage::Inside { ticket, .. } if session.lease_left(now).is_none() => {
                self.withdraw(ticket, End::Lost(Loss::LeaseRanOut))
            }
            _ => vec![],
        }
    }

    /// A quorum committed a write of this session.
    pub(crate) fn on_committed(&mut self, session: &LeasedSession, now: Moment) -> Wants {
        if let Stage::Open { ticket, inside } = self.stage {
            self.enter(session, now, ticket, inside);
        }
        vec![]
    }

    pub(crate) fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Wants {
        match event {
            Event::Joined { ticket, .. } => self.on_joined(ticket),
            Event::TicketLost(ticket) => self.on_ticket_lost(ticket),
            Event::Read(reading) => self.on_read(session, now, &reading),
            Event::Gone(gone) => match &mut self.stage {
                Stage::Waiting { watched, .. } | Stage::Outside { watched, .. }
                    if *watched == Some(gone) =>
                {
                    *watched = None;
                    vec![Effect::Do(Action::Read)]
                }
                _ => vec![],
            },
            Event::Changed => match self.stage {
                Stage::Waiting { .. } | Stage::Outside { .. } => vec![Effect::Do(Action::Read)],
                _ => vec![],
            },
            Event::Left => self.on_left(),
        }
    }

    /// Returns what a quorum is to be asked about the znode that it waits for.
    pub(crate) fn prove(&self) -> Option<Action> {
        match self.stage {
            Stage::Waiting { watched, .. } | Stage::Outside { watched, .. } => {
                watched.map(Action::Prove)
            }
            _ => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether it is inside, or would be if its session had a lease.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. } | Stage::Inside { .. })
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waiting { ticket, .. }
            | Stage::Open { ticket, .. }
            | Stage::Inside { ticket, .. }
            | Stage::Leaving { ticket, .. } => Some(ticket),
            Stage::Withdrawing(ticket) => ticket,
            _ => None,
        }
    }

    pub(crate) fn status(&self, session: Option<&LeasedSession>, now: Moment) -> HoldingState {
        match self.stage {
            Stage::NoSession | Stage::Joining => HoldingState::Gathering { present: None },
            Stage::Waiting { present, .. } => HoldingState::Gathering { present },
            Stage::Open { .. } => {
                HoldingState::Gathering { present: Some(self.size.get() as usize) }
            }
            Stage::Inside { ticket: Ticket { token, .. }, .. } => {
                let left = session.and_then(|session| session.lease_left(now));
                left.map_or(HoldingState::Ended, |left| HoldingState::Held { token, left })
            }
            Stage::Leaving { .. } | Stage::Outside { .. } | Stage::OutsideNoSession(_) => {
                HoldingState::Leaving
            }
            Stage::Withdrawing(_) | Stage::Over => HoldingState::Ended,
        }
    }

    fn join(&mut self) -> Wants {
        self.stage = Stage::Joining;
        vec![Effect::Do(Action::Join(self.size))]
    }

    fn withdraw(&mut self, ticket: Ticket, end: End) -> Wants {
        self.stage = Stage::Withdrawing(Some(ticket));
        vec![Effect::Ended(end), Effect::Do(Action::Leave(ticket))]
    }

    /// Goes inside by the lease that there is, if there is enough of it.
    fn enter(&mut self, session: &LeasedSession, now: Moment, ticket: Ticket, inside: Inside) {
        self.stage = match session.has_enough_lease(now) {
            true => Stage::Inside { ticket, inside },
            false => Stage::Open { ticket, inside },
        };
    }

    /// Looks from outside whether all have left.
    fn look(&mut self, inside: Inside) -> Wants {
        self.stage = Stage::Outside { inside, watched: None };
        vec![Effect::Do(Action::Read)]
    }

    fn on_joined(&mut self, ticket: Ticket) -> Wants {
        match self.stage {
            Stage::Joining => {
                self.stage = Stage::Waiting { ticket, present: None, watched: None };
                vec![Effect::Do(Action::Read)]
            }
            // The member gave up while it joined.
            Stage::Withdrawing(None) => {
                self.stage = Stage::Withdrawing(Some(ticket));
                vec![Effect::Do(Action::Leave(ticket))]
            }
            _ => vec![],
        }
    }

    fn on_ticket_lost(&mut self, lost: Ticket) -> Wants {
        match self.stage {
            Stage::Waiting { ticket, .. } | Stage::Open { ticket, .. } if ticket == lost => {
                self.join()
            }
            Stage::Inside { ticket, .. } if ticket == lost => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::Lost(Loss::Deleted))]
            }
            // A znode that should go is deleted, whatever ended the membership.
            _ => vec![],
        }
    }

    fn on_left(&mut self) -> Wants {
        match self.stage {
            Stage::Leaving { inside, .. } => self.look(inside),
            Stage::Withdrawing(_) => {
                self.stage = Stage::Over;
                vec![]
            }
            _ => vec![],
        }
    }

    fn on_read(&mut self, session: &LeasedSession, now: Moment, reading: &Reading) -> Wants {
        match self.stage {
            Stage::Waiting { ticket, watched, .. } => {
                self.on_read_in_front(session, now, reading, ticket, watched)
            }
            Stage::Outside { inside, watched } => self.on_read_outside(reading, inside, watched),
            _ => vec![],
        }
    }

    fn on_read_in_front(
        &mut self,
        session: &LeasedSession,
        now: Moment,
        reading: &Reading,
        ticket: Ticket,
        watched: Option<Sequence>,
    ) -> Wants {
        let own = ticket.sequence;
        let round = reading.round;
        if let Some(found) = reading.size.filter(|size| *size != self.size) {
            return self.withdraw(ticket, End::Refused { found: HoldingSpec::Barrier(found) });
        }
        if !reading.members.iter().any(|member| member == own) {
            return self.join();
        }
        let present = Some(reading.members.iter().count());
        let mut wants = vec![];
        let watch = match reading.ready {
            Some(last) if own <= last => {
                self.enter(session, now, ticket, Inside { round, last });
                return vec![];
            }
            // Others are inside, or have died there. The first of those that wait sees to the end of their round.
            Some(last) => {
                if (Inside { round, last }).nearest(reading).is_none() {
                    wants.push(Effect::Do(Action::EndRound(round)));
                }
                reading.members.iter().filter(|member| *member < own).last()
            }
            None => {
                if present >= Some(self.size.get() as usize) {
                    let size = self.size;
                    let members = reading.members.clone();
                    wants.push(Effect::Do(Action::MakeReady { round, size, members }));
                }
                None
            }
        };
        let unwatched = watch.filter(|_| watch != watched);
        wants.extend(unwatched.map(|sequence| Effect::Do(Action::Watch(sequence))));
        self.stage = Stage::Waiting { ticket, present, watched: watch };
        wants
    }

    fn on_read_outside(
        &mut self,
        reading: &Reading,
        inside: Inside,
        watched: Option<Sequence>,
    ) -> Wants {
        match inside.nearest(reading) {
            Some(nearest) => {
                self.stage = Stage::Outside { inside, watched: Some(nearest) };
                let unwatched = Some(nearest).filter(|_| watched != Some(nearest));
                unwatched.map(|sequence| Effect::Do(Action::Watch(sequence))).into_iter().collect()
            }
            // So that the barrier can be used again at once by one that hears of it.
            None if reading.round == inside.round && reading.ready.is_some() => {
                vec![Effect::Do(Action::EndRound(inside.round))]
            }
            None => {
                self.stage = Stage::Over;
                vec![Effect::Ended(End::AllLeft)]
            }
        }
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
