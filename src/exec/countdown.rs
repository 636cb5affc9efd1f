//! Decides when to ask the command to end, and when to kill it. Pure: no clock and no processes. Each guard and the
//! supervisor have a countdown of their own.

use recipes::Moment;
use std::time::Duration;

/// The interval at which to check whether all killed processes are dead, and to kill those that are not.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Counts down to the end of a lease. Each renewal of the lease moves that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Countdown {
    /// The time between asking the command to end and killing it.
    kill_after: Duration,
    /// The time before the end of the lease at which to kill, so that killed processes are dead when the lease ends.
    margin: Duration,
    /// The end of the lease.
    until: Moment,
    stage: KillStage,
}

/// The steps already taken to end the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillStage {
    /// The command has not been asked to end.
    Running,
    /// The command was asked to end. It is killed at `kill_at`, or earlier if the lease ends before that.
    Ending { kill_at: Moment },
    /// The command was killed. At `again_at`, all processes that are still alive are killed again.
    Killed { again_at: Moment },
}

/// The step that the owner of the countdown takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillStep {
    /// Ask the command to end.
    RequestEnd,
    /// Kill the command.
    Kill,
}

impl Countdown {
    pub(super) fn new(kill_after: Duration, margin: Duration, until: Moment) -> Self {
        Self { kill_after, margin, until, stage: KillStage::Running }
    }

    /// Moves the end of the lease to `until`. A command that was already asked to end is killed after `kill_after` all
    /// the same.
    pub(super) fn renew(&mut self, until: Moment) {
        self.until = until;
    }

    /// Notes that the command was asked to end at the moment `at`. Has no effect on a command that was asked to end
    /// before, or killed.
    pub(super) fn note_end_request(&mut self, at: Moment) {
        if !self.is_ending() {
            self.stage = KillStage::Ending { kill_at: at.after(self.kill_after) };
        }
    }

    /// Makes the kill due at the moment `kill_at`, whatever `kill_after` is.
    pub(super) fn schedule_kill(&mut self, kill_at: Moment) {
        self.stage = KillStage::Ending { kill_at };
    }

    /// Returns whether the command was asked to end, or killed.
    pub(super) fn is_ending(&self) -> bool {
        self.stage != KillStage::Running
    }

    /// Returns whether the command was killed. From then on, the owner also kills every process that it still finds alive.
    pub(super) fn has_killed(&self) -> bool {
        matches!(self.stage, KillStage::Killed { .. })
    }

    /// Returns the end of the lease.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// Returns the step that is due at `now`, if any, and notes that the owner has taken it.
    pub(super) fn take_due_step(&mut self, now: Moment) -> Option<KillStep> {
        if self.next_step_at() > now {
            return None;
        }
        // At or after the last moment, no time is left to ask first.
        if !self.is_ending() && now < self.last_moment() {
            self.note_end_request(now);
            return Some(KillStep::RequestEnd);
        }
        self.stage = KillStage::Killed { again_at: now.after(RECHECK_INTERVAL) };
        Some(KillStep::Kill)
    }

    /// Returns when to call [`take_due_step`](Self::take_due_step) next, at the latest.
    pub(super) fn next_step_at(&self) -> Moment {
        match self.stage {
            KillStage::Running => before(self.last_moment(), self.kill_after),
            KillStage::Ending { kill_at } => kill_at.min(self.last_moment()),
            KillStage::Killed { again_at } => again_at,
        }
    }

    /// Returns the last moment at which to kill the command. If it is killed later, it might outlive the lease.
    fn last_moment(&self) -> Moment {
        before(self.until, self.margin)
    }
}

/// Returns the moment that is `span` before `moment`.
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

    /// Returns the countdown to the end of a lease at 7 s: the command is asked to end at 4.75 s, and killed at 6.75 s.
    fn countdown() -> Countdown {
        Countdown::new(ms(2000), ms(250), at(7000))
    }

    /// Returns the same countdown for a command that was asked to end at this moment.
    fn asked_at(moment: Moment) -> Countdown {
        let mut countdown = countdown();
        countdown.note_end_request(moment);
        countdown
    }

    fn renewed(mut countdown: Countdown, until: Moment) -> Countdown {
        countdown.renew(until);
        countdown
    }

    #[test]
    fn without_renewal_the_command_is_asked_to_end_and_then_killed_before_the_lease_ends() {
        let mut countdown = countdown();
        assert_eq!(countdown.next_step_at(), at(4750));
        assert_eq!(countdown.take_due_step(at(4749)), None);
        assert!(!countdown.is_ending());
        assert_eq!(countdown.take_due_step(at(4750)), Some(KillStep::RequestEnd));
        assert_eq!(countdown.next_step_at(), at(6750));
        assert_eq!(countdown.take_due_step(at(6749)), None);
        assert_eq!(countdown.take_due_step(at(6750)), Some(KillStep::Kill));
        assert_eq!(countdown.next_step_at(), at(6760));
        assert_eq!(countdown.take_due_step(at(6760)), Some(KillStep::Kill), "until all are dead");
    }

    #[test]
    fn a_renewal_delays_the_first_step() {
        assert_eq!(renewed(countdown(), at(9000)).take_due_step(at(4750)), None);
        assert_eq!(renewed(countdown(), at(9000)).next_step_at(), at(6750));
    }

    #[test]
    fn a_command_that_was_asked_to_end_is_killed_despite_renewals() {
        let mut asked = asked_at(at(1000));
        assert_eq!(asked.next_step_at(), at(3000));
        assert_eq!(renewed(asked, at(9000)).take_due_step(at(3000)), Some(KillStep::Kill));
        asked.note_end_request(at(2000));
        assert_eq!(asked.next_step_at(), at(3000), "a second request has no effect");
    }

    #[test]
    fn a_command_that_is_asked_late_has_only_until_the_lease_ends() {
        assert_eq!(asked_at(at(6000)).next_step_at(), at(6750));
        let mut late = countdown();
        assert_eq!(late.take_due_step(at(6000)), Some(KillStep::RequestEnd));
        assert_eq!(late.next_step_at(), at(6750));
        assert_eq!(renewed(asked_at(at(1000)), at(2000)).next_step_at(), at(1750), "cut short");
    }

    #[test]
    fn a_guard_that_wakes_too_late_kills_at_once() {
        assert_eq!(countdown().take_due_step(at(6750)), Some(KillStep::Kill));
        assert_eq!(countdown().take_due_step(at(60_000)), Some(KillStep::Kill));
        let mut hurried = countdown();
        hurried.schedule_kill(at(10));
        assert_eq!(hurried.take_due_step(at(10)), Some(KillStep::Kill));
    }
}
