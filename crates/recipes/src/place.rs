//! The place of one holding, which is a requested lock or barrier, among the znodes of that lock or barrier: the
//! actions that the runner performs for it, and the events that the runner reports to it.

use crate::barrier::{Reading, Round};
use crate::holding::{End, HoldingSpec, HoldingState};
use crate::lock::LockEntry;
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Queue, Sequence, Ticket};
use std::num::NonZeroU32;

/// Events of one place, reported by the runner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The own znode exists. A quorum committed the create that was sent at this moment; `None` if the znode was found
    /// after a create whose outcome was unknown.
    Joined { ticket: Ticket, sent_at: Option<Moment> },
    /// The own znode was deleted by force, although the session is still alive.
    TicketLost(Ticket),
    /// The answer to [`Action::Read`] for a lock: the entries of its queue. The reading may already be outdated.
    QueueRead(Vec<LockEntry>),
    /// The answer to [`Action::Read`] for a barrier. The reading may already be outdated.
    BarrierRead(Reading),
    /// The barrier must be read again, since `ready` may have been created or deleted: after a notification, the end of
    /// its watch, or any answer to a request to create or delete it.
    BarrierChanged,
    /// The answer to [`Action::Watch`]: the znode exists, has this ticket, and is watched.
    Watched(Ticket),
    /// The znode with this number is gone. The token is that of the watched znode; `None` if it was never read.
    Gone { sequence: Sequence, token: Option<FencingToken> },
    /// The own znode is deleted, as [`Action::Leave`] requested; or the holding was released before a znode was
    /// created.
    Left,
}

/// Actions of one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create the ephemeral sequential znode, whose name shows the spec, or find the one that was created earlier for
    /// this holding.
    Join(HoldingSpec),
    /// Read the lock's queue, or the barrier. At a barrier, also watch for `ready` to be created or deleted.
    Read,
    /// Watch this znode. [`Event::Watched`] follows if it exists, and [`Event::Gone`] once it does not.
    Watch(Sequence),
    /// Ask a quorum whether the watched znode exists: the current server may be wrong.
    Confirm(Sequence),
    /// Create `ready`, with the size and the last of these members, unless the round is over or a quorum says that one
    /// of these members is gone.
    MakeReady { round: Round, size: NonZeroU32, members: Queue },
    /// Delete `ready` and begin the next round, in one transaction, unless this round is over already.
    EndRound(Round),
    /// Delete the own znode. The runner repeats the request until the znode or the session is gone.
    Leave(Ticket),
}

/// An effect of an event on a place: an action on its znodes, or a change that concerns the whole session or holding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Perform this action.
    Do(Action),
    /// Send a heartbeat now.
    Renew { sent_at: Moment },
    /// Report this end to the application.
    Ended(End),
}

/// The state machine of one holding: a lock, or a member of a barrier. [`Holdings`](crate::holding::Holdings) calls it.
pub(crate) trait Recipe {
    /// Handles a new session: a waiting place joins in it.
    fn on_session_opened(&mut self) -> Vec<Effect>;

    /// Handles the end of the session, which ends what is held. A waiting place joins again, at the tail, in the next
    /// session.
    fn on_session_lost(&mut self) -> Vec<Effect>;

    /// Releases the lock, leaves the barrier, or stops waiting.
    fn release(&mut self) -> Vec<Effect>;

    /// Ends what is held if the lease has run out.
    fn end_if_lapsed(&mut self, session: &LeasedSession, now: Moment) -> Vec<Effect>;

    /// Handles the commit of a write of this session, which was sent at this moment.
    fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) -> Vec<Effect>;

    /// Handles an event of this place.
    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Vec<Effect>;

    /// Returns the znode that this place waits for, so that a quorum can be asked whether it still exists.
    fn waits_for(&self) -> Option<Sequence>;

    /// Returns true once nothing is left to do: the end was reported, and the own znode is gone.
    fn is_over(&self) -> bool;

    /// Returns true if this place holds, or if only a lease is missing for it to hold. Then the session needs regular
    /// heartbeats.
    fn needs_lease(&self) -> bool;

    fn ticket(&self) -> Option<Ticket>;

    /// Returns the state at this moment; `None` once its end was reported.
    fn status(&self, session: Option<&LeasedSession>, now: Moment) -> Option<HoldingState>;
}
