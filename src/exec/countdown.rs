//! Decides when to ask the command to end, and when to kill it. Pure: each guard and the supervisor keep a countdown of
//! their own.

use recipes::Moment;
use std::time::Duration;

/// The interval between checks that all killed processes are dead.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

/// Counts down to the end of a lease. Each renewal postpones that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Countdown {
    /// How long the command may keep running after it was asked to end.
    kill_after: Duration,
    /// How long a killed process may take to die.
    margin: Duration,
    /// When the lease ends.
    until: Moment,
    stage: KillStage,
}

/// How far the command has been ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillStage {
    /// The command runs and has not been asked to end.
    Runs,
    /// The command was asked to end.
    Ending { kill_at: Moment },
    /// The command was killed; at `again_at`, whatever is still alive is killed again.
    Killed { again_at: Moment },
}

/// A step to take at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillStep {
    /// Ask the command to end.
    RequestEnd,
    /// Kill the command.
    Kill,
}

impl Countdown {
    pub(super) fn new(kill_after: Duration, margin: Duration, until: Moment) -> Self {
        Self { kill_after, margin, until, stage: KillStage::Runs }
    }

    /// Moves the end of the lease. A command that was already asked to end must still end.
    pub(super) fn renewed(self, until: Moment) -> Self {
        Self { until, ..self }
    }

    /// Notes that the command was asked to end at this moment. Has no effect if it was asked or killed before.
    pub(super) fn end_requested(self, now: Moment) -> Self {
        let stage = match self.stage {
            KillStage::Runs => KillStage::Ending { kill_at: now.after(self.kill_after) },
            stage @ (KillStage::Ending { .. } | KillStage::Killed { .. }) => stage,
        };
        Self { stage, ..self }
    }

    /// Makes the kill due at this moment, without `kill_after`.
    pub(super) fn kill_due_at(self, now: Moment) -> Self {
        Self { stage: KillStage::Ending { kill_at: now }, ..self }
    }

    /// Returns whether the command has not been asked to end yet.
    pub(super) fn runs(&self) -> bool {
        self.stage == KillStage::Runs
    }

    /// Returns whether the time to kill has come: from then on, every process found alive is killed as well.
    pub(super) fn kills(&self) -> bool {
        matches!(self.stage, KillStage::Killed { .. })
    }

    /// When the lease ends.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// Returns the step that is due at this moment, and the countdown after it.
    pub(super) fn at(self, now: Moment) -> (Self, Option<KillStep>) {
        if self.look_at() > now {
            return (self, None);
        }
        match self.stage {
            KillStage::Runs if now < self.last_moment() => {
                (self.end_requested(now), Some(KillStep::RequestEnd))
            }
            KillStage::Runs | KillStage::Ending { .. } | KillStage::Killed { .. } => {
                let stage = KillStage::Killed { again_at: now.after(AGAIN) };
                (Self { stage, ..self }, Some(KillStep::Kill))
            }
        }
    }

    /// Returns when to call [`at`](Self::at) next, at the latest.
    pub(super) fn look_at(&self) -> Moment {
        match self.stage {
            KillStage::Runs => before(self.last_moment(), self.kill_after),
            KillStage::Ending { kill_at } => kill_at.min(self.last_moment()),
            KillStage::Killed { again_at } => again_at,
        }
    }

    /// Returns the last moment to kill: a command that is killed later might outlive the lease.
    fn last_moment(&self) -> Moment {
        before(self.until, self.margin)
    }
}

fn before(moment: Moment, span: Duration) -> Moment {
    Moment(moment.0.saturating_sub(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    /// Of a lease that ends at 7 s: the command is told to end at 4.75 s, and killed at 6.75 s.
    fn countdown() -> Countdown {
        Countdown::new(ms(2000), ms(250), at(7000))
    }

    #[test]
    fn without_renewal_the_command_is_told_and_then_killed_before_the_lease_ends() {
        assert_eq!(countdown().look_at(), at(4750));
        assert_eq!(countdown().at(at(4749)), (countdown(), None));
        let (told, step) = countdown().at(at(4750));
        assert_eq!((step, told.look_at()), (Some(KillStep::RequestEnd), at(6750)));
        assert_eq!(told.at(at(6749)).1, None);
        let (killed, step) = told.at(at(6750));
        assert_eq!((step, killed.look_at()), (Some(KillStep::Kill), at(6760)));
        assert_eq!(killed.at(at(6760)).1, Some(KillStep::Kill), "until all are dead");
    }

    #[test]
    fn a_renewal_puts_the_end_off() {
        assert_eq!(countdown().renewed(at(9000)).at(at(4750)).1, None);
        assert_eq!(countdown().renewed(at(9000)).look_at(), at(6750));
    }

    #[test]
    fn a_command_that_was_note_end_request_ends_whatever_is_renewed() {
        let told = countdown().end_requested(at(1000));
        assert_eq!(told.look_at(), at(3000));
        assert_eq!(told.renewed(at(9000)).at(at(3000)).1, Some(KillStep::Kill));
        assert_eq!(told.end_requested(at(2000)).look_at(), at(3000), "once is enough");
    }

    #[test]
    fn a_command_that_is_told_late_has_only_until_the_lease_ends() {
        assert_eq!(countdown().end_requested(at(6000)).look_at(), at(6750));
        let (told, _) = countdown().at(at(6000));
        assert_eq!(told.look_at(), at(6750));
        assert_eq!(
            countdown().end_requested(at(1000)).renewed(at(2000)).look_at(),
            at(1750),
            "a cut lease"
        );
    }

    #[test]
    fn a_guard_that_wakes_too_late_kills_at_once() {
        assert_eq!(countdown().at(at(6750)).1, Some(KillStep::Kill));
        assert_eq!(countdown().at(at(60_000)).1, Some(KillStep::Kill));
        assert_eq!(countdown().kill_due_at(at(10)).at(at(10)).1, Some(KillStep::Kill));
    }
}
