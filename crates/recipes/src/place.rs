//! The place of one holding (a requested lock or barrier) among the znodes of that lock or barrier: the events of the
//! place, which the runner reports, and the actions on these znodes, which the runner performs. Joining and leaving are the
//! same for all recipes, and are here; the [`Recipe`] decides what happens between them.

use crate::barrier::{Barrier, Reading, Round};
use crate::holding::{End, HoldingSpec, HoldingState};
use crate::lock::{Lock, LockEntry};
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Queue, Sequence, Ticket};
use std::mem;
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

/// The effects of the current event, in order.
pub(crate) type Outbox = Vec<Effect>;

/// The place of one holding, from its request to the end that is reported to its application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    spec: HoldingSpec,
    stage: Stage,
    outbox: Outbox,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// A session is needed to join.
    NoSession,
    /// The own znode is being created.
    Joining,
    /// The own znode exists, or the barrier was left and others may still be inside.
    Active(ActiveRecipe),
    /// The end was reported, but the znode is not deleted yet. `None` while the znode is still being created.
    Leaving(Option<Ticket>),
    /// The end was reported, and the znode is gone.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ActiveRecipe {
    Lock(Lock),
    Barrier(Barrier),
}

/// The state machine of a lock, or of a member of a barrier, once its znode exists. [`Place`] calls it, and carries out
/// the returned [`Next`].
pub(crate) trait Recipe {
    /// Returns the effects of the events so far, which [`Place`] takes.
    fn outbox(&mut self) -> &mut Outbox;

    /// Handles a new session, of a recipe that has outlived the previous one.
    fn on_session_opened(&mut self);

    /// Handles the end of the session, with which a held lock or a stay inside a barrier ends.
    fn on_session_lost(&mut self) -> Next;

    /// Releases the lock, leaves the barrier, or stops waiting.
    fn release(&mut self) -> Next;

    /// Ends a lock that is held, or a stay inside the barrier, if the lease has run out.
    fn end_if_lapsed(&self, session: &LeasedSession, now: Moment) -> Next;

    /// Handles that a quorum committed a write of this session, which was sent at `sent_at`.
    fn on_committed(&mut self, session: &mut LeasedSession, sent_at: Moment, now: Moment) -> Next;

    /// Handles an event of this place.
    fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) -> Next;

    /// Returns the watched znode that this place waits for, so that a quorum can be asked whether it still exists;
    /// `None` if the place waits for no znode, or does not know it yet.
    fn waits_for(&self) -> Option<Sequence>;

    /// Returns true if this place holds, or if only a lease is missing for it to hold. Then the session needs regular
    /// heartbeats.
    fn needs_lease(&self) -> bool;

    /// Returns the ticket of the own znode; `None` once the znode is gone.
    fn ticket(&self) -> Option<Ticket>;

    /// Returns the state at this moment.
    fn state(&self, session: Option<&LeasedSession>, now: Moment) -> HoldingState;
}

/// The next stage of a place, as its recipe decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The recipe goes on.
    Stay,
    /// The own znode is lost: create another, at the tail.
    Rejoin,
    /// The session is lost: create another znode in the next session.
    AwaitSession,
    /// Report this end, and delete the own znode.
    Leave(End),
    /// Report this end. The own znode is gone.
    Over(End),
}

impl Place {
    pub(crate) fn new(spec: HoldingSpec) -> Self {
        Self { spec, stage: Stage::NoSession, outbox: vec![] }
    }

    /// Handles a new session: a place that waits for a session creates its znode.
    pub(crate) fn on_session_opened(&mut self) {
        match &mut self.stage {
            Stage::NoSession => self.join(),
            Stage::Active(active) => {
                active.recipe_mut().on_session_opened();
                self.proceed(Next::Stay);
            }
            _ => {}
        }
    }

    /// Handles the end of the session. A place that still waits joins again, at the tail, in the next session.
    pub(crate) fn on_session_lost(&mut self) {
        match &mut self.stage {
            Stage::NoSession | Stage::Joining => self.stage = Stage::NoSession,
            Stage::Active(active) => {
                let next = active.recipe_mut().on_session_lost();
                self.proceed(next);
            }
            Stage::Leaving(_) | Stage::Over => self.stage = Stage::Over,
        }
    }

    /// Releases the lock, leaves the barrier, or stops waiting.
    pub(crate) fn release(&mut self) {
        match &mut self.stage {
            Stage::NoSession => self.end(End::Released, Stage::Over),
            Stage::Joining => self.end(End::Released, Stage::Leaving(None)),
            Stage::Active(active) => {
                let next = active.recipe_mut().release();
                self.proceed(next);
            }
            Stage::Leaving(_) | Stage::Over => {}
        }
    }

    /// If the lock is held, or the member is inside the barrier, and the lease has run out: reports the loss, and
    /// deletes the own znode.
    pub(crate) fn end_if_lapsed(&mut self, session: &LeasedSession, now: Moment) {
        if let Stage::Active(active) = &self.stage {
            let next = active.recipe().end_if_lapsed(session, now);
            self.proceed(next);
        }
    }

    /// Handles that a quorum committed a write of this session, which was sent at `sent_at`.
    pub(crate) fn on_committed(
        &mut self,
        session: &mut LeasedSession,
        sent_at: Moment,
        now: Moment,
    ) {
        if let Stage::Active(active) = &mut self.stage {
            let next = active.recipe_mut().on_committed(session, sent_at, now);
            self.proceed(next);
        }
    }

    /// Handles an event of this place.
    pub(crate) fn step(&mut self, session: &mut LeasedSession, now: Moment, event: Event) {
        match (&mut self.stage, event) {
            (Stage::Active(active), event) => {
                let next = active.recipe_mut().step(session, now, event);
                self.proceed(next);
            }
            (Stage::Joining, Event::Joined { ticket, .. }) => {
                self.stage = Stage::Active(match self.spec {
                    HoldingSpec::Lock(mode) => ActiveRecipe::Lock(Lock::joined(mode, ticket)),
                    HoldingSpec::Barrier(size) => {
                        ActiveRecipe::Barrier(Barrier::joined(size, ticket))
                    }
                });
                self.outbox.push(Effect::Do(Action::Read));
            }
            // The holding was released during the join.
            (Stage::Leaving(None), Event::Joined { ticket, .. }) => self.delete(ticket),
            (Stage::Leaving(_), Event::Left) => self.stage = Stage::Over,
            _ => {}
        }
    }

    /// Returns the effects of the events since the last call, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.outbox)
    }

    /// Returns the watched znode that this place waits for, as [`Recipe::waits_for`] does.
    pub(crate) fn waits_for(&self) -> Option<Sequence> {
        self.recipe().and_then(Recipe::waits_for)
    }

    /// Returns true once the end was reported and the own znode is gone, so that this place can be dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns true if the session needs regular heartbeats for this place, as [`Recipe::needs_lease`] does.
    pub(crate) fn needs_lease(&self) -> bool {
        self.recipe().is_some_and(Recipe::needs_lease)
    }

    /// Returns the ticket of the own znode; `None` before the znode is created, and once it is gone.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::Active(active) => active.recipe().ticket(),
            Stage::Leaving(ticket) => *ticket,
            _ => None,
        }
    }

    /// Returns the state at this moment; `None` once the end was reported.
    pub(crate) fn state(
        &self,
        session: Option<&LeasedSession>,
        now: Moment,
    ) -> Option<HoldingState> {
        match (&self.stage, self.spec) {
            (Stage::NoSession | Stage::Joining, HoldingSpec::Lock(_)) => {
                Some(HoldingState::Waiting { ahead: None })
            }
            (Stage::NoSession | Stage::Joining, HoldingSpec::Barrier(_)) => {
                Some(HoldingState::Gathering { present: None })
            }
            (Stage::Active(active), _) => Some(active.recipe().state(session, now)),
            (Stage::Leaving(_) | Stage::Over, _) => None,
        }
    }

    fn recipe(&self) -> Option<&dyn Recipe> {
        match &self.stage {
            Stage::Active(active) => Some(active.recipe()),
            _ => None,
        }
    }

    /// Takes the effects of the recipe, and enters the next stage.
    fn proceed(&mut self, next: Next) {
        if let Stage::Active(active) = &mut self.stage {
            self.outbox.append(active.recipe_mut().outbox());
        }
        match next {
            Next::Stay => {}
            Next::Rejoin => self.join(),
            Next::AwaitSession => self.stage = Stage::NoSession,
            Next::Leave(end) => {
                // A recipe that leaves has a znode.
                if let Some(ticket) = self.ticket() {
                    self.outbox.push(Effect::Ended(end));
                    self.delete(ticket);
                }
            }
            Next::Over(end) => self.end(end, Stage::Over),
        }
    }

    fn join(&mut self) {
        self.stage = Stage::Joining;
        self.outbox.push(Effect::Do(Action::Join(self.spec)));
    }

    /// Reports this end, and enters `stage`.
    fn end(&mut self, end: End, stage: Stage) {
        self.stage = stage;
        self.outbox.push(Effect::Ended(end));
    }

    /// Deletes the own znode, whose holding has ended.
    fn delete(&mut self, ticket: Ticket) {
        self.stage = Stage::Leaving(Some(ticket));
        self.outbox.push(Effect::Do(Action::Leave(ticket)));
    }
}

impl ActiveRecipe {
    fn recipe(&self) -> &dyn Recipe {
        match self {
            Self::Lock(lock) => lock,
            Self::Barrier(barrier) => barrier,
        }
    }

    fn recipe_mut(&mut self) -> &mut dyn Recipe {
        match self {
            Self::Lock(lock) => lock,
            Self::Barrier(barrier) => barrier,
        }
    }
}
