//! The place of one holding (a requested lock or barrier) among the znodes of that lock or barrier: the events of the
//! place, which the runner reports, and the actions on these znodes, which the runner performs.

use crate::barrier::{Reading, Round};
use crate::holding::{End, HoldingSpec, HoldingState};
use crate::lock::LockEntry;
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Queue, Sequence, Ticket};
use std::num::NonZeroU32;

/// Events of one place, reported by the runner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The own znode exists. A quorum committed the create that was sent at `sent_at`; `None` if the outcome of the
    /// create was unknown, and the znode was found by a search.
    Joined { ticket: Ticket, sent_at: Option<Moment> },
    /// The own znode was deleted by force, or an operator marked it as broken, although the session is still alive.
    TicketLost(Ticket),
    /// The answer to [`Action::Read`] for a lock: the entries of its queue. The reading may already be outdated.
    QueueRead(Vec<LockEntry>),
    /// The answer to [`Action::Read`] for a barrier. The reading may already be outdated.
    BarrierRead(Reading),
    /// The znode `ready` may have been created or deleted, so the barrier must be read again. The runner reports this
    /// after a notification, after the end of the watch, and after any answer to a request to create or delete `ready`.
    BarrierChanged,
    /// The answer to [`Action::Watch`]: the znode exists, has this ticket, and is watched.
    Watched(Ticket),
    /// The znode with this sequence is gone, or must be ignored because it is not ephemeral. The token is the one that
    /// the znode had when it was watched; `None` if no ephemeral znode with this sequence was read.
    Gone { sequence: Sequence, token: Option<FencingToken> },
    /// The own znode is deleted, as [`Action::Leave`] requested; or the holding was released before a znode was
    /// created.
    Left,
}

/// Actions of one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create the own ephemeral sequential znode, whose name contains the mode of the lock or the size of the barrier.
    /// After a create with unknown outcome, first look for its znode, which may exist.
    Join(HoldingSpec),
    /// Read the lock's queue, or the barrier. At a barrier, also watch for `ready` to be created or deleted.
    Read,
    /// Watch this znode. [`Event::Watched`] follows if it exists, and [`Event::Gone`] once it does not.
    Watch(Sequence),
    /// Ask a quorum whether the watched znode exists: the connected server may be wrong. [`Event::Gone`] follows if it
    /// does not.
    Confirm(Sequence),
    /// Create the znode `ready`, which opens the barrier for these members. `ready` contains the size and the largest
    /// sequence of these members. A quorum refuses the create if the round is over or if one of these members is gone.
    /// [`Event::BarrierChanged`] follows in any case.
    MakeReady { round: Round, size: NonZeroU32, members: Queue },
    /// Delete `ready` and begin the next round, in one transaction, unless this round is over already.
    /// [`Event::BarrierChanged`] follows in any case.
    EndRound(Round),
    /// Delete the own znode. The runner repeats the request until the znode or the session is gone.
    Leave(Ticket),
}

/// An effect of an event on a place: an action on its znodes, a heartbeat of the session, or the end of the holding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// Perform this action.
    Do(Action),
    /// Send a heartbeat now.
    Renew { sent_at: Moment },
    /// Report this end to the application.
    Ended(End),
}

/// The state machine of one holding: a lock, or a member of a barrier. [`Holdings`](crate::holding::Holdings) calls it,
/// and takes the effects after each call.
pub(crate) trait Recipe {
    /// Handles a new session: a place that waits for a session creates its znode.
    fn on_session_opened(&mut self);

    /// Handles the end of the session, with which a held lock or a stay inside a barrier ends. A place that still waits
    /// joins again, at the tail, in the next session.
    fn on_session_lost(&mut self);

    /// Releases the lock, leaves the barrier, or stops waiting.
    fn release(&mut self);

    /// If the lock is held, or the member is inside the barrier, and the lease has run out: reports the loss, and
    /// deletes the own znode.
    fn end_if_lapsed(&mut self, session: &LeasedSession, now: Moment);

    /// Handles that a quorum committed a write of this session, which was sent at `sent_at`.
    fn on_committed(&mut self, session: &mut LeasedSession, sent_at: Moment, now: Moment);

    /// Handles an event of this place.
    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event);

    /// Returns the effects of the events since the last call, in order.
    fn take_effects(&mut self) -> Vec<Effect>;

    /// Returns the watched znode that this place waits for, so that a quorum can be asked whether it still exists;
    /// `None` if the place waits for no znode, or does not know it yet.
    fn waits_for(&self) -> Option<Sequence>;

    /// Returns true once the end was reported and the own znode is gone, so that this place can be dropped.
    fn is_over(&self) -> bool;

    /// Returns true if this place holds, or if only a lease is missing for it to hold. Then the session needs regular
    /// heartbeats.
    fn needs_lease(&self) -> bool;

    /// Returns the ticket of the own znode; `None` before the znode is created, and once it is gone.
    fn ticket(&self) -> Option<Ticket>;

    /// Returns the state at this moment; `None` once the end was reported.
    fn status(&self, session: Option<&LeasedSession>, now: Moment) -> Option<HoldingState>;
}
