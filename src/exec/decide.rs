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
    /// The command does not run. It must not start before `not_before`, nor under a lease with the token `ended_under`:
    /// the command ended by itself under that lease, and the setting [`OnExit::Stay`] forbids a restart.
    Idle { not_before: Moment, ended_under: Option<FencingToken> },
    /// The command runs under the lease with this token.
    Running(FencingToken),
    /// The command runs under the lease with this token, but was asked to end.
    Ending(FencingToken),
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

/// Returns the step to take at `now`. While only `not_before` forbids a start, also returns that moment, at which to
/// decide again even if the lease does not change until then.
///
/// `time_to_end` is the part of a lease that is needed to end the command. Under a lease that lasts no longer than
/// that, a command is not started, because it would have to end at once.
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
        (CommandStage::Running(token) | CommandStage::Ending(token), Some(lease))
            if lease.token == token =>
        {
            (CommandStep::Renew(lease.until), None)
        }
        // The lease has ended, or it is already the lease of a later term, with another token.
        (CommandStage::Running(_), _) => (CommandStep::End, None),
        // An idle command may not be started now. A command that was asked to end must not be asked again.
        (CommandStage::Idle { .. } | CommandStage::Ending(_), _) => (CommandStep::Nothing, None),
    }
}

/// Returns what the member does after its command ended by itself with the exit code `code`. In general, that is the
/// setting `on_exit`. With `once`, the member leaves after exit code 0.
pub(super) fn after_exit(code: u8, on_exit: OnExit, once: bool) -> OnExit {
    // By the shell's convention, 126 means that the program cannot be run, and 127 that it was not found. A restart
    // would fail in the same way, so the member leaves: another member may be able to run the program.
    let cannot_be_run = matches!(code, 126 | 127);
    if cannot_be_run || (once && code == 0) { OnExit::Leave } else { on_exit }
}

/// The shortest and the longest delay between the end of a command and its restart.
const RESTART_DELAY_MIN: Duration = Duration::from_secs(1);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(60);

/// Returns the delay before the restart of a command that ran for `ran`. It is twice the delay of the last restart
/// (`last`), but starts again from the shortest delay if the command ran for at least as long as the longest delay.
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
    fn a_command_that_is_not_to_be_restarted_starts_again_in_a_later_term() {
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
        assert_eq!(step(CommandStage::Running(token), lease(7, 150)), CommandStep::Renew(at(150)));
        assert_eq!(step(CommandStage::Ending(token), lease(7, 6100)), CommandStep::Renew(at(6100)));
    }

    #[test]
    fn a_command_is_ended_when_its_lease_is_over_or_another_begins() {
        let token = FencingToken(7);
        assert_eq!(step(CommandStage::Running(token), lease(8, 6100)), CommandStep::End);
        for over in [None, lease(7, 100), lease(7, 50)] {
            assert_eq!(step(CommandStage::Running(token), over), CommandStep::End);
            assert_eq!(
                step(CommandStage::Ending(token), over),
                CommandStep::Nothing,
                "it was asked before"
            );
        }
    }

    #[test]
    fn with_once_the_member_leaves_only_after_exit_code_0() {
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
    fn each_restart_is_delayed_longer_until_the_command_has_run_for_long() {
        let s = Duration::from_secs;
        let mut delays = vec![];
        for _ in 0..8 {
            delays.push(restart_delay(delays.last().copied(), s(59)));
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60].map(s));
        assert_eq!(restart_delay(Some(s(60)), s(60)), s(1));
    }
}
