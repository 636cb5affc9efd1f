//! Decides when to start the command, and when to end it. Pure: no clock and no processes.

use crate::config::OnExit;
use recipes::{FencingToken, Moment};
use std::time::Duration;

/// The right to run the command, from leadership or from a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLease {
    /// The fencing token of the term or of the lock.
    pub token: FencingToken,
    /// The end of the lease, unless it is renewed.
    pub until: Moment,
}

/// The state of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandStage {
    /// The command does not run. It must not start before `not_before`, and it must not start again in the term whose
    /// token is `ended_under`, because it ended by itself in that term and is not to be restarted.
    Idle { not_before: Moment, ended_under: Option<FencingToken> },
    /// The command runs under the lease with this token.
    Runs(FencingToken),
    /// The command runs under the lease with this token, but was asked to end.
    Ends(FencingToken),
}

/// The step that the supervisor takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandStep {
    /// Start the command under the lease with this token and this end.
    Start(FencingToken, Moment),
    /// Tell the guards that the lease of the running command ends at this moment.
    Renew(Moment),
    /// End the command, because its lease is over.
    End,
    Nothing,
}

/// Returns the step to take at `now`, and the moment at which to decide again even if the lease does not change until
/// then.
///
/// `time_to_end` is the time needed to end a command. A command is started only if its lease lasts longer than
/// `time_to_end`.
pub(super) fn decide(
    stage: CommandStage,
    lease: Option<CommandLease>,
    now: Moment,
    time_to_end: Duration,
) -> (CommandStep, Option<Moment>) {
    // A lease that has ended counts as none.
    let lease = lease.filter(|lease| now < lease.until);
    match (stage, lease) {
        (CommandStage::Idle { not_before, ended_under }, Some(lease))
            if lease.until.since(now) > time_to_end && ended_under != Some(lease.token) =>
        {
            if now < not_before {
                (CommandStep::Nothing, Some(not_before))
            } else {
                (CommandStep::Start(lease.token, lease.until), None)
            }
        }
        // Also renew the lease of a command that was asked to end, so that it is not killed before `kill_after` is over.
        (CommandStage::Runs(token) | CommandStage::Ends(token), Some(lease))
            if lease.token == token =>
        {
            (CommandStep::Renew(lease.until), None)
        }
        (CommandStage::Runs(_), _) => (CommandStep::End, None),
        (CommandStage::Idle { .. } | CommandStage::Ends(_), _) => (CommandStep::Nothing, None),
    }
}

/// Returns what the member does after its command ended by itself with the exit code `code`: in general `on_exit`, the
/// setting. With `once`, the member leaves after exit code 0.
pub(super) fn after_exit(code: u8, on_exit: OnExit, once: bool) -> OnExit {
    match on_exit {
        _ if once && code == 0 => OnExit::Leave,
        // By the shell's convention, 126 means that the program cannot be run, and 127 that it was not found. A restart
        // would fail in the same way.
        _ if matches!(code, 126 | 127) => OnExit::Leave,
        other => other,
    }
}

/// The shortest and the longest delay between the end of a command and its restart.
const RESTART_DELAY_MIN: Duration = Duration::from_secs(1);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(60);

/// Returns the delay before the restart of a command that ran for `ran`. It is twice the delay of the last restart
/// (`last`), but starts again from the shortest delay if the command ran for at least the longest delay.
pub(super) fn restart_delay(last: Option<Duration>, ran: Duration) -> Duration {
    match last {
        Some(last) if ran < RESTART_DELAY_MAX => (2 * last).min(RESTART_DELAY_MAX),
        _ => RESTART_DELAY_MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_TO_END: Duration = Duration::from_millis(2250);

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn lease(token: u64, until_ms: u64) -> Option<CommandLease> {
        Some(CommandLease { token: FencingToken(token), until: at(until_ms) })
    }

    fn idle(not_before_ms: u64, ended_under: Option<u64>) -> CommandStage {
        CommandStage::Idle {
            not_before: at(not_before_ms),
            ended_under: ended_under.map(FencingToken),
        }
    }

    fn step(stage: CommandStage, lease: Option<CommandLease>) -> CommandStep {
        decide(stage, lease, at(100), TIME_TO_END).0
    }

    #[test]
    fn only_a_lease_that_leaves_time_to_end_the_command_starts_it() {
        let start = CommandStep::Start(FencingToken(7), at(6100));
        assert_eq!(step(idle(0, None), lease(7, 6100)), start);
        assert_eq!(step(idle(0, None), lease(7, 2350)), CommandStep::Nothing);
        assert_eq!(step(idle(0, None), None), CommandStep::Nothing);
    }

    #[test]
    fn a_term_that_is_spent_is_over_a_later_one_is_not() {
        assert_eq!(step(idle(0, Some(7)), lease(7, 6100)), CommandStep::Nothing);
        assert_eq!(
            step(idle(0, Some(7)), lease(8, 6100)),
            CommandStep::Start(FencingToken(8), at(6100))
        );
    }

    #[test]
    fn a_restart_waits_for_its_moment() {
        let early = decide(idle(1000, None), lease(7, 7000), at(100), TIME_TO_END);
        assert_eq!(early, (CommandStep::Nothing, Some(at(1000))));
        let due = decide(idle(1000, None), lease(7, 7000), at(1000), TIME_TO_END);
        assert_eq!(due.0, CommandStep::Start(FencingToken(7), at(7000)));
    }

    #[test]
    fn each_renewal_is_passed_on_also_to_a_command_that_is_ending() {
        let token = FencingToken(7);
        assert_eq!(step(CommandStage::Runs(token), lease(7, 150)), CommandStep::Renew(at(150)));
        assert_eq!(step(CommandStage::Ends(token), lease(7, 6100)), CommandStep::Renew(at(6100)));
    }

    #[test]
    fn what_runs_under_no_lease_or_under_another_is_ended() {
        let token = FencingToken(7);
        assert_eq!(step(CommandStage::Runs(token), lease(8, 6100)), CommandStep::End);
        for over in [None, lease(7, 100), lease(7, 50)] {
            assert_eq!(step(CommandStage::Runs(token), over), CommandStep::End);
            assert_eq!(
                step(CommandStage::Ends(token), over),
                CommandStep::Nothing,
                "once is enough"
            );
        }
    }

    #[test]
    fn once_counts_only_what_went_well() {
        assert_eq!(after_exit(0, OnExit::Restart, true), OnExit::Leave);
        assert_eq!(after_exit(1, OnExit::Restart, true), OnExit::Restart);
        assert_eq!(after_exit(0, OnExit::Restart, false), OnExit::Restart);
        assert_eq!(after_exit(1, OnExit::Leave, false), OnExit::Leave);
        assert_eq!(after_exit(0, OnExit::Stay, false), OnExit::Stay);
    }

    #[test]
    fn what_cannot_be_run_is_not_tried_again() {
        for (code, on_exit) in [(126, OnExit::Restart), (127, OnExit::Restart), (127, OnExit::Stay)]
        {
            assert_eq!(after_exit(code, on_exit, false), OnExit::Leave, "{code}");
        }
    }

    #[test]
    fn restarts_follow_ever_slower_until_the_command_has_run_for_long() {
        let s = Duration::from_secs;
        let mut rests = vec![];
        for _ in 0..8 {
            rests.push(restart_delay(rests.last().copied(), s(59)));
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60].map(s));
        assert_eq!(restart_delay(Some(s(60)), s(60)), s(1));
    }
}
