//! The two guards: processes between the sidecar and the command.
//!
//! The inner guard starts the command and ends it before the lease does. The outer guard starts the
//! inner one, and kills what that leaves behind. Each is gone only when nothing is left below it.

use super::countdown::{Countdown, KillStep};
use super::guard_protocol::{FromGuard, GuardConfig, GuardLink, ToGuard, greeted};
use super::{INNER_GUARD_KILLS, OUTER_GUARD_KILLS};
use crate::clock::{Alarm, Clock};
use crate::process::{Offspring, Reaped, is_all_gone, kill_children, ourselves};
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

/// Signals that a guard ignores. The supervisor passes on those for the command; any other was sent to all
/// processes of a service, as systemd does, so the supervisor and the command get it as well.
const NOT_FOR_US: [SignalKind; 6] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

/// Runs the inner guard. Its standard input is the link to the supervisor, over which it receives the command's.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn guard_command(command: &[OsString]) -> io::Result<()> {
    in_a_runtime(async {
        let (mut state, stdin) = GuardState::begin(INNER_GUARD_KILLS)?;
        // Starting took so long that the lease leaves no time to run the command.
        if state.count_down().is_some() {
            let message = FromGuard::Ended { code: 125, by_itself: false };
            let _or_gone = state.link.tell_supervisor(message);
            return Ok(());
        }
        let mut command =
            Offspring::start(command, stdin, state.greeting.files, state.greeting.foreground)?;
        // A supervisor that is gone is noticed below.
        let _or_gone = state.link.tell_supervisor(FromGuard::Started(command.leader()));
        loop {
            let by_itself = state.countdown.runs();
            match command.reap(|| state.told_to_end(Duration::ZERO)) {
                Reaped::All => return Ok(()),
                Reaped::Leader { code } => {
                    let message = FromGuard::Ended { code, by_itself };
                    let _or_gone = state.link.tell_supervisor(message);
                    continue;
                }
                Reaped::None => {}
            }
            while let Some(change) = command.job_change() {
                let _or_gone = state.link.tell_supervisor(FromGuard::Job(change));
            }
            if state.count_down() == Some(KillStep::Tell) {
                command.end(Signal::TERM);
            }
            if state.countdown.kills() {
                command.kill();
            }
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(signal)) => {
                    state.told_to_end(Duration::ZERO);
                    command.end(signal);
                }
                // A command that is dead may have left others behind, in other process groups.
                GuardWakeup::Message(ToGuard::Signal(Signal::KILL)) | GuardWakeup::Orphaned => {
                    state.kill(Duration::ZERO);
                }
                GuardWakeup::Message(ToGuard::Signal(signal)) => command.signal(signal),
                _ => {}
            }
        }
    })
}

/// Runs the outer guard. Its standard input is the link to the supervisor, over which it receives the inner guard's.
///
/// # Errors
/// The operating system refuses a process, a socket or a timer.
pub fn guard_guard(command: &[OsString]) -> io::Result<()> {
    in_a_runtime(async {
        let (mut state, socket) = GuardState::begin(OUTER_GUARD_KILLS)?;
        let inner = ourselves(&["exec-inner-guard"], command)
            .stdin(Stdio::from(socket))
            .process_group(0)
            .spawn()?;
        let inner = Pid::from_child(&inner);
        // Said before it is done: the supervisor may not look before the inner guard is dead, and a guard that died by
        // itself is a failure.
        let mut to_say = Some(FromGuard::Kills);
        let mut inner_has_ended = false;
        let mut is_cut_short = false;
        while !is_all_gone(|dead| {
            // The processes that the inner guard left behind are this guard's children now.
            if dead == inner {
                to_say = None;
                inner_has_ended = true;
                state.kill(Duration::ZERO);
            }
        }) {
            // The inner guard is to kill before this one, and may be done with it.
            is_cut_short |= state.count_down().is_some() && !inner_has_ended;
            if state.countdown.kills() {
                if let Some(message) = to_say.take() {
                    let _or_gone = state.link.tell_supervisor(message);
                }
                kill_children();
            }
            // The inner guard sees the same end of the link, and is let kill first: were it killed meanwhile, only
            // this guard would be left to do it.
            let inner_has = INNER_GUARD_KILLS - OUTER_GUARD_KILLS;
            match state.next_wakeup().await {
                GuardWakeup::Message(ToGuard::End(_)) => state.told_to_end(inner_has),
                GuardWakeup::Message(ToGuard::Signal(Signal::KILL)) | GuardWakeup::Orphaned => {
                    state.kill(inner_has)
                }
                _ => {}
            }
        }
        if state.greeting.ends_kept || is_cut_short {
            state.let_go();
        }
        let _or_gone = state.link.tell_supervisor(FromGuard::Gone);
        Ok(())
    })
}

fn in_a_runtime(life: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    runtime::build()?.block_on(life)
}

/// State common to both guards: the link to the supervisor, and a countdown to the end of the lease.
struct GuardState {
    deaths: Signals,
    link: GuardLink,
    greeting: GuardConfig,
    clock: Clock,
    alarm: Alarm,
    countdown: Countdown,
    supervisor_is_gone: bool,
    /// Open until nothing is left below: no next process goes on with the session before, and no other is given the lock
    /// that a connection holds.
    kept: Option<OwnedFd>,
}

/// Why a guard goes through its loop once more.
enum GuardWakeup {
    /// A process below us died, or it is time to look at the countdown.
    Look,
    Message(ToGuard),
    /// The link's other end is gone: the sidecar was killed, so the command is killed too.
    Orphaned,
}

impl GuardState {
    /// Returns also the standard input that the supervisor has sent.
    fn begin(margin: Duration) -> io::Result<(Self, OwnedFd)> {
        // First, so that no child's death is missed and no signal ends this guard before the command.
        let deaths = signal(SignalKind::child())?;
        for ignored in NOT_FOR_US {
            let _never_read = signal(ignored)?;
        }
        set_child_subreaper(Some(getpid()))?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (greeting, sent, kept) = greeted(&socket)?;
        let state = Self {
            deaths,
            link: GuardLink::over(socket)?,
            greeting,
            clock: Clock::system(),
            alarm: Alarm::new()?,
            countdown: Countdown::new(greeting.kill_after, margin, greeting.until),
            supervisor_is_gone: false,
            kept,
        };
        Ok((state, sent))
    }

    /// Closes the connection that was kept open, if it is one, also where the supervisor is frozen and has it open: so a lock
    /// passes on.
    fn let_go(&self) {
        if let Some(kept) = &self.kept {
            let _no_connection = shutdown(kept, Shutdown::Both);
        }
    }

    /// Has the countdown run for a command that was told to end. The inner guard gets this head start.
    fn told_to_end(&mut self, head_start: Duration) {
        self.countdown = self.countdown.told(self.clock.now().after(head_start));
    }

    /// Has all killed, once the inner guard has had this head start.
    fn kill(&mut self, head_start: Duration) {
        self.countdown = self.countdown.given_up(self.clock.now().after(head_start));
    }

    /// Returns what is due now.
    fn count_down(&mut self) -> Option<KillStep> {
        let step;
        (self.countdown, step) = self.countdown.at(self.clock.now());
        step
    }

    /// Waits for something that the guard may have to act upon. A renewal is taken note of here.
    async fn next_wakeup(&mut self) -> GuardWakeup {
        tokio::select! {
            _ = self.deaths.recv() => GuardWakeup::Look,
            () = self.alarm.ring_at(self.countdown.look_at()) => GuardWakeup::Look,
            message = self.link.heard_from_supervisor(), if !self.supervisor_is_gone => match message {
                Some(ToGuard::Renewed(until)) => {
                    self.countdown = self.countdown.renewed(until);
                    GuardWakeup::Look
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
