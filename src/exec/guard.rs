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
        let (mut duty, stdin) = GuardState::begin(INNER_GUARD_KILLS)?;
        // It took so long to get here that the lease leaves no time to run the command.
        if duty.count_down().is_some() {
            let message = FromGuard::Ended { code: 125, by_itself: false };
            let _or_gone = duty.link.tell_supervisor(message);
            return Ok(());
        }
        let mut command = Offspring::start(command, stdin, duty.greeting.files)?;
        // Where the supervisor is gone, that is noticed below.
        let _or_gone = duty.link.tell_supervisor(FromGuard::Started(command.leader()));
        loop {
            let by_itself = duty.countdown.runs();
            match command.reap(|| duty.told(Duration::ZERO)) {
                Reaped::All => return Ok(()),
                Reaped::Leader { code } => {
                    let message = FromGuard::Ended { code, by_itself };
                    let _or_gone = duty.link.tell_supervisor(message);
                    continue;
                }
                Reaped::None => {}
            }
            if duty.count_down() == Some(KillStep::Tell) {
                command.end(Signal::TERM);
            }
            if duty.countdown.kills() {
                command.kill();
            }
            match duty.news().await {
                News::Told(ToGuard::End(signal)) => {
                    duty.told(Duration::ZERO);
                    command.end(signal);
                }
                // A command that is dead may have left others behind, in other process groups.
                News::Told(ToGuard::Signal(Signal::KILL)) | News::Orphaned => {
                    duty.kill(Duration::ZERO);
                }
                News::Told(ToGuard::Signal(signal)) => command.signal(signal),
                News::Told(ToGuard::Renewed(_)) | News::Look => {}
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
        let (mut duty, socket) = GuardState::begin(OUTER_GUARD_KILLS)?;
        let inner = ourselves(&["exec-inner-guard"], command)
            .stdin(Stdio::from(socket))
            .process_group(0)
            .spawn()?;
        let inner = Pid::from_child(&inner);
        while !is_all_gone(|dead| {
            // The processes that the inner guard left behind are this guard's children now.
            if dead == inner {
                duty.kill(Duration::ZERO);
            }
        }) {
            duty.count_down();
            if duty.countdown.kills() {
                kill_children();
            }
            // The inner guard sees the same end of the link, and is let kill first: were it killed meanwhile, only
            // this guard would be left to do it.
            let inner_has = INNER_GUARD_KILLS - OUTER_GUARD_KILLS;
            match duty.news().await {
                News::Told(ToGuard::End(_)) => duty.told(inner_has),
                News::Told(ToGuard::Signal(Signal::KILL)) | News::Orphaned => duty.kill(inner_has),
                News::Told(ToGuard::Signal(_) | ToGuard::Renewed(_)) | News::Look => {}
            }
        }
        let _or_gone = duty.link.tell_supervisor(FromGuard::Gone);
        Ok(())
    })
}

fn in_a_runtime(life: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    runtime::build()?.block_on(life)
}

/// What both guards have: the link to the supervisor, and a countdown to the end of the lease.
struct GuardState {
    deaths: Signals,
    link: GuardLink,
    greeting: GuardConfig,
    clock: Clock,
    alarm: Alarm,
    countdown: Countdown,
    supervisor_is_gone: bool,
}

enum News {
    /// A process below us died, or it is time to look at the countdown.
    Look,
    Told(ToGuard),
    /// The link's other end is gone: the sidecar was killed, so the command is killed too.
    Orphaned,
}

impl GuardState {
    /// Returns also the standard input that the supervisor has sent.
    fn begin(margin: Duration) -> io::Result<(Self, OwnedFd)> {
        // First, so that no child's death is missed and no signal ends this guard before the command.
        let deaths = signal(SignalKind::child())?;
        let _unread_signals = NOT_FOR_US.map(signal);
        set_child_subreaper(Some(getpid()))?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (greeting, sent) = greeted(&socket)?;
        let duty = Self {
            deaths,
            link: GuardLink::over(socket)?,
            greeting,
            clock: Clock::system(),
            alarm: Alarm::new()?,
            countdown: Countdown::new(greeting.kill_after, margin, greeting.until),
            supervisor_is_gone: false,
        };
        Ok((duty, sent))
    }

    /// The command was told to end; for so long, the other processes see to that.
    fn told(&mut self, others: Duration) {
        self.countdown = self.countdown.told(self.clock.now().after(others));
    }

    /// All is to be killed; for so long, the other processes see to that.
    fn kill(&mut self, others: Duration) {
        self.countdown = self.countdown.given_up(self.clock.now().after(others));
    }

    fn count_down(&mut self) -> Option<KillStep> {
        let step;
        (self.countdown, step) = self.countdown.at(self.clock.now());
        step
    }

    async fn news(&mut self) -> News {
        tokio::select! {
            _ = self.deaths.recv() => News::Look,
            () = self.alarm.ring_at(self.countdown.look_at()) => News::Look,
            word = self.link.heard_from_supervisor(), if !self.supervisor_is_gone => match word {
                Some(ToGuard::Renewed(until)) => {
                    self.countdown = self.countdown.renewed(until);
                    News::Look
                }
                Some(word) => News::Told(word),
                None => {
                    self.supervisor_is_gone = true;
                    News::Orphaned
                }
            },
        }
    }
}
