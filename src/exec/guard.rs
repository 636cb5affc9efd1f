//! The two guards: processes between the sidecar (or `bellwether lock`) and the command.
//!
//! The inner guard starts the command and ends it before the lease ends. The outer guard starts the inner guard, and kills
//! the processes that the inner guard leaves behind. Each guard exits only when none of its children is left,
//! including the processes that it adopted.

use super::countdown::{Countdown, KillStep};
use super::guard_protocol::{FromGuard, GuardConfig, GuardLink, ToGuard, receive_config};
use super::{INNER_GUARD_MARGIN, OUTER_GUARD_MARGIN};
use crate::clock::{Alarm, Clock};
use crate::process::{Offspring, Reaped, kill_children, reap_children, this_program};
use crate::runtime;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// The signals that a guard ignores. The supervisor forwards signals for the command as messages. If a guard itself
/// receives one of these signals, the signal was sent to every process of the service, for example by systemd, so the
/// supervisor and the command have received it as well.
const IGNORED_SIGNALS: [SignalKind; 6] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

/// Runs the inner guard, with the link to the supervisor as its standard input. Over the link, the guard also receives
/// the descriptor of the command's standard input.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn run_inner_guard(command: &[OsString]) -> io::Result<()> {
    run_on_runtime(async {
        let (mut state, stdin) = GuardState::begin(INNER_GUARD_MARGIN)?;
        // If a step is already due, starting this guard took so long that the lease leaves no time to run the command.
        // So do not start the command, and report that it has ended.
        if state.take_due_step().is_some() {
            let message = FromGuard::Ended { code: 125, by_itself: false };
            let _receiver_gone = state.link.send(message);
            return Ok(());
        }
        let mut command =
            Offspring::start(command, stdin, state.config.file_limit, state.config.foreground)?;
        let pid = command.leader().as_raw_pid();
        // If the supervisor is gone, the message cannot be sent, and `next_wakeup` reports the closed link below.
        let _receiver_gone = state.link.send(FromGuard::Started { pid });
        loop {
            // If `reap` finds the command dead, the command ended by itself, unless it was asked to end before. Find
            // that out now, because the call below notes an end request: the processes that the command left behind
            // have `kill_after` to end.
            let by_itself = !state.countdown.is_ending();
            match command.reap(|| state.note_end_request(Duration::ZERO)) {
                Reaped::NoneLeft => return Ok(()),
                Reaped::LeaderDied { code } => {
                    let message = FromGuard::Ended { code, by_itself };
                    let _receiver_gone = state.link.send(message);
                    // Other children may be dead as well, so reap again.
                    continue;
                }
                Reaped::StillRunning => {}
            }
            while let Some(change) = command.job_change() {
                let _receiver_gone = state.link.send(FromGuard::Job(change));
            }
            if state.take_due_step() == Some(KillStep::RequestEnd) {
                command.end(Signal::TERM);
            }
            // This kills all children of the guard, and not only the command's process group, because processes that
            // the command left behind may be in other groups.
            if state.countdown.has_killed() {
                command.kill();
            }
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(signal)) => {
                    state.note_end_request(Duration::ZERO);
                    command.end(signal);
                }
                GuardWakeup::Message(ToGuard::Kill) | GuardWakeup::Orphaned => {
                    state.schedule_kill(Duration::ZERO);
                }
                GuardWakeup::Message(ToGuard::Signal(signal)) => command.signal(signal),
                // The next iteration checks whether a child died or a step is due.
                _ => {}
            }
        }
    })
}

/// Runs the outer guard, with the link to the supervisor as its standard input. Over the link, the guard also receives
/// the descriptor that becomes the standard input of the inner guard.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn run_outer_guard(command: &[OsString]) -> io::Result<()> {
    run_on_runtime(async {
        let (mut state, socket) = GuardState::begin(OUTER_GUARD_MARGIN)?;
        let inner = this_program(&["exec-inner-guard"], command)
            .stdin(Stdio::from(socket))
            .process_group(0)
            .spawn()?;
        let inner = Pid::from_child(&inner);
        let mut inner_has_ended = false;
        let mut inner_is_late = false;
        // The message to send once, before this guard kills the inner guard. Otherwise the supervisor might first see
        // that the inner guard is dead, and take its death for a failure.
        let mut kill_notice = Some(FromGuard::Kills);
        loop {
            let none_left = reap_children(|dead| {
                // The inner guard is dead. Kill the processes that it left behind, which are this guard's children now.
                if dead == inner {
                    inner_has_ended = true;
                    kill_notice = None;
                    state.schedule_kill(Duration::ZERO);
                }
            });
            if none_left {
                break;
            }
            let step = state.take_due_step();
            // Each step is due later in this guard than in the inner guard. If the inner guard still runs by then, it
            // did not end the command in time.
            inner_is_late |= step.is_some() && !inner_has_ended;
            if state.countdown.has_killed() {
                if let Some(message) = kill_notice.take() {
                    let _receiver_gone = state.link.send(message);
                }
                kill_children();
            }
            // The inner guard receives the same message, or sees its own link closed, and is given time to kill first.
            // If this guard killed it before that, only this guard would be left to kill the command.
            let inner_head_start = INNER_GUARD_MARGIN - OUTER_GUARD_MARGIN;
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(_)) => state.note_end_request(inner_head_start),
                GuardWakeup::Message(ToGuard::Kill) | GuardWakeup::Orphaned => {
                    state.schedule_kill(inner_head_start)
                }
                // The inner guard forwards the signals, and the next iteration does the rest.
                _ => {}
            }
        }
        if state.config.shuts_down_descriptor || inner_is_late {
            state.shut_down_descriptor();
        }
        let _receiver_gone = state.link.send(FromGuard::Gone);
        Ok(())
    })
}

/// Runs a guard on a new Tokio runtime.
fn run_on_runtime(guard: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    runtime::build()?.block_on(guard)
}

/// The state that both guards have: the link to the supervisor, and a countdown to the end of the lease.
struct GuardState {
    /// SIGCHLD, which reports the death of a child.
    deaths: Signals,
    /// The link to the supervisor.
    link: GuardLink,
    config: GuardConfig,
    clock: Clock,
    alarm: Alarm,
    countdown: Countdown,
    /// Whether the supervisor has closed its end of the link. The link is then no longer read, because every read would
    /// return at once.
    supervisor_is_gone: bool,
    /// The session file, which this descriptor keeps locked; or the connection for which a sidecar holds a lock or stays
    /// in a barrier. The descriptor stays open until every process below this guard is dead. Until then, no other process
    /// can resume the saved session, and the sidecar does not release the lock or leave the barrier.
    descriptor: Option<OwnedFd>,
}

/// The reason for the next iteration of a guard's loop.
enum GuardWakeup {
    /// A child process died, the lease was renewed, or a step of the countdown is due.
    Check,
    /// The supervisor sent this message, which is not a renewal.
    Message(ToGuard),
    /// The supervisor's end of the link is closed: the supervisor died, or it closed the link to the inner guard
    /// because the outer guard died. The command must be killed at once.
    Orphaned,
}

impl GuardState {
    /// Prepares a guard, which kills at the time `margin` before the end of the lease. Also returns the descriptor for
    /// the standard input of the guard's child, which the supervisor sent.
    fn begin(margin: Duration) -> io::Result<(Self, OwnedFd)> {
        // Set up the signals first, so that the guard misses no child's death, and so that no signal ends the guard
        // before the command.
        let deaths = signal(SignalKind::child())?;
        // A signal handler stays installed after its stream is dropped.
        for ignored in IGNORED_SIGNALS {
            let _never_read = signal(ignored)?;
        }
        set_child_subreaper(Some(getpid()))?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (config, stdin, descriptor) = receive_config(&socket)?;
        let state = Self {
            deaths,
            link: GuardLink::over(socket)?,
            config,
            clock: Clock::system(),
            alarm: Alarm::new()?,
            countdown: Countdown::new(config.kill_after, margin, config.until),
            supervisor_is_gone: false,
            descriptor,
        };
        Ok((state, stdin))
    }

    /// Shuts down the connection in `descriptor`, if there is one. So the sidecar sees that the connection has ended,
    /// even if a frozen supervisor still has a descriptor of it, and can release the lock.
    fn shut_down_descriptor(&self) {
        if let Some(descriptor) = &self.descriptor {
            // This fails for the lock of a session file, which is not a connection.
            let _ignored = shutdown(descriptor, Shutdown::Both);
        }
    }

    /// Notes that the command was asked to end. `head_start` delays this guard's own kill, so that the inner guard kills
    /// first.
    fn note_end_request(&mut self, head_start: Duration) {
        self.countdown.note_end_request(self.clock.now().after(head_start));
    }

    /// Makes the kill due after `head_start`, the time for which this guard leaves the kill to the inner guard.
    fn schedule_kill(&mut self, head_start: Duration) {
        self.countdown.schedule_kill(self.clock.now().after(head_start));
    }

    /// Returns the step of the countdown that is due now, if any, and notes that it is taken.
    fn take_due_step(&mut self) -> Option<KillStep> {
        self.countdown.take_due_step(self.clock.now())
    }

    /// Waits for a message, a child's death or the next step of the countdown. Applies a renewal of the lease to the
    /// countdown.
    async fn next_wakeup(&mut self) -> GuardWakeup {
        tokio::select! {
            _ = self.deaths.recv() => GuardWakeup::Check,
            () = self.alarm.ring_at(self.countdown.next_step_at()) => GuardWakeup::Check,
            message = self.link.receive(), if !self.supervisor_is_gone => match message {
                Some(ToGuard::Renewed(until)) => {
                    self.countdown.renew(until);
                    GuardWakeup::Check
                }
                Some(message) => GuardWakeup::Message(message),
                None => {
                    self.supervisor_is_gone = true;
                    GuardWakeup::Orphaned
                }
            },
        }
    }
}
