//! The two guards: processes between the sidecar and the command.
//!
//! The inner guard starts the command and ends it before the lease ends. The outer guard starts the inner guard, and kills
//! the processes that the inner guard leaves behind. Each guard exits only when no process below it is left.

use super::countdown::{Countdown, KillStep};
use super::guard_protocol::{FromGuard, GuardConfig, GuardLink, ToGuard, receive_config};
use super::{INNER_GUARD_KILLS, OUTER_GUARD_KILLS};
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

/// Signals that a guard ignores. The supervisor forwards signals meant for the command. A signal that reaches a guard
/// directly was sent to every process of the service, as systemd does, so the supervisor and the command received it as
/// well.
const IGNORED_SIGNALS: [SignalKind; 6] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

/// Runs the inner guard. Its standard input is the link to the supervisor, over which it receives the command's standard
/// input.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn run_inner_guard(command: &[OsString]) -> io::Result<()> {
    run_on_runtime(async {
        let (mut state, stdin) = GuardState::begin(INNER_GUARD_KILLS)?;
        // Starting took so long that the lease leaves no time to run the command.
        if state.count_down().is_some() {
            let message = FromGuard::Ended { code: 125, by_itself: false };
            let _receiver_gone = state.link.send(message);
            return Ok(());
        }
        let mut command =
            Offspring::start(command, stdin, state.config.file_limit, state.config.foreground)?;
        // If the supervisor is gone, `next_wakeup` reports it below.
        let pid = command.leader().as_raw_pid();
        let _receiver_gone = state.link.send(FromGuard::Started { pid });
        loop {
            let by_itself = state.countdown.runs();
            match command.reap(|| state.note_end_request(Duration::ZERO)) {
                Reaped::NoneLeft => return Ok(()),
                Reaped::LeaderDied { code } => {
                    let message = FromGuard::Ended { code, by_itself };
                    let _receiver_gone = state.link.send(message);
                    continue;
                }
                Reaped::StillRunning => {}
            }
            while let Some(change) = command.job_change() {
                let _receiver_gone = state.link.send(FromGuard::Job(change));
            }
            if state.count_down() == Some(KillStep::RequestEnd) {
                command.end(Signal::TERM);
            }
            if state.countdown.has_killed() {
                command.kill();
            }
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(signal)) => {
                    state.note_end_request(Duration::ZERO);
                    command.end(signal);
                }
                // Processes that a dead command left behind may be in other process groups, so kill all children and not
                // only its group.
                GuardWakeup::Message(ToGuard::Kill) | GuardWakeup::Orphaned => {
                    state.schedule_kill(Duration::ZERO);
                }
                GuardWakeup::Message(ToGuard::Signal(signal)) => command.signal(signal),
                _ => {}
            }
        }
    })
}

/// Runs the outer guard. Its standard input is the link to the supervisor, over which it receives that of the inner guard.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn run_outer_guard(command: &[OsString]) -> io::Result<()> {
    run_on_runtime(async {
        let (mut state, socket) = GuardState::begin(OUTER_GUARD_KILLS)?;
        let inner = this_program(&["exec-inner-guard"], command)
            .stdin(Stdio::from(socket))
            .process_group(0)
            .spawn()?;
        let inner = Pid::from_child(&inner);
        let mut inner_has_ended = false;
        let mut is_cut_short = false;
        // Report the kill before doing it. Otherwise the supervisor might first see the dead inner guard and take its
        // death for a failure.
        let mut kill_notice = Some(FromGuard::Kills);
        while !reap_children(|dead| {
            // The processes that the inner guard left behind are now this guard's children.
            if dead == inner {
                inner_has_ended = true;
                kill_notice = None;
                state.schedule_kill(Duration::ZERO);
            }
        }) {
            // Each step is due later here than in the inner guard, which may be done by now. If it still runs, the command
            // is cut short.
            is_cut_short |= state.count_down().is_some() && !inner_has_ended;
            if state.countdown.has_killed() {
                if let Some(message) = kill_notice.take() {
                    let _receiver_gone = state.link.send(message);
                }
                kill_children();
            }
            // The inner guard receives the same message or end of the link, and kills first. If it were killed before it
            // finished, only this guard would be left to kill the command.
            let inner_head_start = INNER_GUARD_KILLS - OUTER_GUARD_KILLS;
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(_)) => state.note_end_request(inner_head_start),
                GuardWakeup::Message(ToGuard::Kill) | GuardWakeup::Orphaned => {
                    state.schedule_kill(inner_head_start)
                }
                _ => {}
            }
        }
        if state.config.shuts_down_descriptor || is_cut_short {
            state.shut_down_descriptor();
        }
        let _receiver_gone = state.link.send(FromGuard::Gone);
        Ok(())
    })
}

/// Runs the guard on a runtime.
fn run_on_runtime(life: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    runtime::build()?.block_on(life)
}

/// State common to both guards: the link to the supervisor, and a countdown to the end of the lease.
struct GuardState {
    deaths: Signals,
    link: GuardLink,
    config: GuardConfig,
    clock: Clock,
    alarm: Alarm,
    countdown: Countdown,
    supervisor_is_gone: bool,
    /// A descriptor that stays open until every process below this guard is dead. Until then, another process cannot
    /// resume the saved session, and a lock that depends on this connection is not granted to another owner.
    descriptor: Option<OwnedFd>,
}

/// The reason for the next iteration of a guard's loop.
enum GuardWakeup {
    /// A child process died, or a step of the countdown is due.
    Look,
    Message(ToGuard),
    /// The supervisor's end of the link is closed: the sidecar was killed, so the command must be killed too.
    Orphaned,
}

impl GuardState {
    /// Prepares a guard. Also returns the standard input that the supervisor sent.
    fn begin(margin: Duration) -> io::Result<(Self, OwnedFd)> {
        // Do this first, so that no child's death is missed and no signal ends this guard before the command.
        let deaths = signal(SignalKind::child())?;
        for ignored in IGNORED_SIGNALS {
            let _never_read = signal(ignored)?;
        }
        set_child_subreaper(Some(getpid()))?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (config, sent, descriptor) = receive_config(&socket)?;
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
        Ok((state, sent))
    }

    /// Shuts down the descriptor that was kept open, if it is a connection. This works even if a frozen supervisor still
    /// has it open, so that a lock can be granted to the next owner.
    fn shut_down_descriptor(&self) {
        if let Some(descriptor) = &self.descriptor {
            let _no_connection = shutdown(descriptor, Shutdown::Both);
        }
    }

    /// Notes that the command was asked to end. `head_start` is the time by which the inner guard is ahead of this guard.
    fn note_end_request(&mut self, head_start: Duration) {
        self.countdown.note_end_request(self.clock.now().after(head_start));
    }

    /// Makes the kill due after `head_start`, the time by which the inner guard is ahead of this guard.
    fn schedule_kill(&mut self, head_start: Duration) {
        self.countdown.kill_at(self.clock.now().after(head_start));
    }

    /// Returns the step of the countdown that is due now.
    fn count_down(&mut self) -> Option<KillStep> {
        self.countdown.step(self.clock.now())
    }

    /// Waits for a message, a child's death or a step of the countdown. Applies renewals itself.
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
