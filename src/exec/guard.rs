//! The guard: a process that starts the command, ends it before the lease does, and is gone only
//! when nothing is left of it.
//!
//! It adopts whatever the command leaves behind, also what has left the command's process group,
//! so that nothing outlives it unseen. The command itself dies with the guard.

use super::countdown::{Blow, Countdown};
use super::link::{FromGuard, Link, ToGuard, greeted};
use crate::clock::{Alarm, Clock};
use crate::config::TO_DIE;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, getppid,
    getrlimit, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, setrlimit, wait, waitid, waitpid,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tokio::signal::unix::{SignalKind, signal};

/// This very program, also if its file was replaced since.
pub(super) const OURSELVES: &str = "/proc/self/exe";

/// Who asks for a signal is the supervisor. What reaches the guard besides was sent to all
/// processes of a service, as systemd does, and each of them hears it for itself.
const NOT_FOR_US: [SignalKind; 6] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

/// The life of a guard. Its standard input is the supervisor, who sends the command's.
///
/// # Errors
/// The machine does not give us what we need.
pub fn guard(command: &[OsString]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // From now on, so that no death is missed and nobody ends us before the command.
        let mut deaths = signal(SignalKind::child())?;
        let _heard_by_nobody = NOT_FOR_US.map(signal);
        set_child_subreaper(Some(getpid()))?;
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (greeting, stdin) = greeted(&socket)?;
        let link = Link::over(socket)?;
        let clock = Clock::system();
        let alarm = Alarm::new()?;
        let mut countdown = Countdown::new(greeting.kill_after, TO_DIE, greeting.until);
        let mut command = Flock::start(command, stdin, greeting.files)?;
        // Whoever is gone is noticed below.
        let _or_gone = link.tell_supervisor(FromGuard::Started(command.leader));
        loop {
            let by_itself = countdown.runs();
            match command.reap(|| countdown = countdown.told(clock.now())) {
                Reaped::All => break,
                Reaped::Leader { code } => {
                    let _or_gone = link.tell_supervisor(FromGuard::Ended { code, by_itself });
                    continue;
                }
                Reaped::None => {}
            }
            let (next, blow) = countdown.at(clock.now());
            countdown = next;
            match blow {
                Some(Blow::Tell) => command.end(Signal::TERM),
                Some(Blow::Kill) => command.kill(),
                None => {}
            }
            tokio::select! {
                _ = deaths.recv() => {}
                () = alarm.ring_at(countdown.look_at()) => {}
                word = link.heard_from_supervisor() => match word {
                    Some(ToGuard::Renewed(until)) => countdown = countdown.renewed(until),
                    Some(ToGuard::End(signal)) => {
                        countdown = countdown.told(clock.now());
                        command.end(signal);
                    }
                    Some(ToGuard::Signal(signal)) => command.signal(signal),
                    // The sidecar was killed, and takes the command along.
                    None => {
                        command.kill();
                        countdown = countdown.given_up(clock.now());
                        tokio::select! {
                            _ = deaths.recv() => {}
                            () = alarm.ring_at(countdown.look_at()) => {}
                        }
                    }
                },
            }
        }
        let _or_gone = link.tell_supervisor(FromGuard::Gone);
        Ok(())
    })
}

/// A process that turns itself into the command, and dies with the thread that starts it.
pub fn started_by_us<S: AsRef<OsStr>>(command: &[S], files: Option<u64>) -> Command {
    let files = files.map_or_else(|| "none".to_owned(), |files| files.to_string());
    let mut start = Command::new(OURSELVES);
    start
        .arg0("bellwether")
        .args(["exec-command", &getpid().as_raw_pid().to_string(), &files, "--"])
        .args(command);
    start
}

/// Turns this process, which a guard has just made, into the command. Returns only if that fails:
/// the exit code and the reason.
pub fn become_command(guard: i32, files: Option<u64>, command: &[OsString]) -> (u8, String) {
    let dies_with_the_guard = set_parent_process_death_signal(Some(Signal::KILL));
    if dies_with_the_guard.is_err() || getppid().map(Pid::as_raw_pid) != Some(guard) {
        return (125, "the guard is gone before the command was started".into());
    }
    let limit = getrlimit(Resource::Nofile);
    // Fewer than we opened ourselves is what whoever started us had in mind.
    let _as_it_is = setrlimit(Resource::Nofile, Rlimit { current: files, ..limit });
    let [program, arguments @ ..] = command else { return (125, "there is no command".into()) };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    (code, format!("cannot run {}: {error}", program.display()))
}

/// The command's process, and all that it started.
struct Flock {
    leader: Pid,
    leader_is_dead: bool,
}

enum Reaped {
    /// Nobody is left.
    All,
    Leader {
        code: u8,
    },
    None,
}

impl Flock {
    fn start(command: &[OsString], stdin: OwnedFd, files: Option<u64>) -> io::Result<Self> {
        let child =
            started_by_us(command, files).stdin(Stdio::from(stdin)).process_group(0).spawn()?;
        Ok(Self { leader: Pid::from_child(&child), leader_is_dead: false })
    }

    /// Tells it to end, also if it is stopped.
    fn end(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // Once the leader was waited for, its number may be another's.
        if !self.leader_is_dead {
            let _dead_already = kill_process_group(self.leader, signal);
        }
    }

    /// Kills all there are. Those whose parent dies by it become our children, so it is done again
    /// until there are none.
    fn kill(&self) {
        self.signal(Signal::KILL);
        for child in our_children() {
            let _dead_already = kill_process(child, Signal::KILL);
        }
    }

    /// Waits for whoever is dead. If the leader is, the rest of its group is told to end, and whoever
    /// counts is told before.
    fn reap(&mut self, leader_is_dead: impl FnOnce()) -> Reaped {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !self.leader_is_dead && matches!(waitid(WaitId::Pid(self.leader), peek), Ok(Some(_))) {
            leader_is_dead();
            // Not waited for yet, it keeps the group's number for us.
            self.end(Signal::TERM);
            self.leader_is_dead = true;
            let status = waitpid(Some(self.leader), WaitOptions::NOHANG);
            let code = status.ok().flatten().map_or(125, |(_, status)| code(status));
            return Reaped::Leader { code };
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                // It died since we looked.
                Ok(Some((pid, status))) if pid == self.leader => {
                    leader_is_dead();
                    self.leader_is_dead = true;
                    return Reaped::Leader { code: code(status) };
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Reaped::None,
                Err(_) => return Reaped::All,
            }
        }
    }
}

/// As a shell tells it.
fn code(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}

fn our_children() -> Vec<Pid> {
    let us = getpid();
    let Ok(processes) = std::fs::read_dir("/proc") else { return vec![] };
    processes
        .flatten()
        .filter_map(|process| number(&process.file_name()))
        .filter(|process| parent_of(*process) == Some(us))
        .collect()
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, which may hold anything, is in brackets; then come the state and the parent.
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
    number(OsStr::new(parent))
}

fn number(text: &OsStr) -> Option<Pid> {
    Pid::from_raw(text.to_str()?.parse().ok()?)
}
