//! The one command of a guard, and all that it started: a guard waits for any child, and kills any.

use super::command::started_in_foreground;
use super::procfs;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    wait, waitid, waitpid,
};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// A command, which leads a process group of its own, and all that it started.
pub struct Offspring {
    leader: Pid,
    leader_is_dead: bool,
}

/// The processes found dead.
pub enum Reaped {
    /// Nothing is left.
    All,
    Leader {
        code: u8,
    },
    None,
}

/// A change of the command's process that is no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// By this signal, if it is a known one.
    Stopped(Option<Signal>),
    Continued,
}

impl Offspring {
    /// Starts it, in the foreground of the terminal if this process group is there.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        command: &[OsString],
        stdin: OwnedFd,
        files: Option<u64>,
        foreground: Option<Pid>,
    ) -> io::Result<Self> {
        let mut command = started_in_foreground(command, files, foreground);
        let child = command.stdin(Stdio::from(stdin)).process_group(0).spawn()?;
        Ok(Self { leader: Pid::from_child(&child), leader_is_dead: false })
    }

    /// The command's process, which leads a process group of its own.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// Signals the command and its group to end, and continues them if they are stopped.
    pub fn end(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    pub fn signal(&self, signal: Signal) {
        // Once the leader was waited for, its number may be another's.
        if !self.leader_is_dead {
            let _dead_already = kill_process_group(self.leader, signal);
        }
    }

    /// Kills the process group, and all children. What these leave behind is left to us, so it is done
    /// again until there are none.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        kill_children();
    }

    /// Returns whether the command's process was stopped or continued since this was asked.
    pub fn job_change(&self) -> Option<JobChange> {
        if self.leader_is_dead {
            return None;
        }
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.leader), changes).ok()??;
        if status.continued() {
            return Some(JobChange::Continued);
        }
        status.stopping_signal().map(|signal| JobChange::Stopped(Signal::from_named_raw(signal)))
    }

    /// Reaps dead processes. If the leader is among them, calls `leader_is_dead`, and then sends SIGTERM to the rest of
    /// its group.
    pub fn reap(&mut self, leader_is_dead: impl FnOnce()) -> Reaped {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !self.leader_is_dead && matches!(waitid(WaitId::Pid(self.leader), peek), Ok(Some(_))) {
            leader_is_dead();
            // Until it is waited for, no other process gets the group's number.
            self.end(Signal::TERM);
            self.leader_is_dead = true;
            let status = waitpid(Some(self.leader), WaitOptions::NOHANG);
            let code = status.ok().flatten().map_or(125, |(_, status)| code(status));
            return Reaped::Leader { code };
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                // The leader died since the check above.
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

/// Reaps dead children, calling `died` for each. Returns whether none is left.
pub fn is_all_gone(mut died: impl FnMut(Pid)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => died(pid),
            Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Kills all children. A child's number is not reused until it has been waited for, so no other process is hit.
pub fn kill_children() {
    // If they cannot be listed now, the guard tries again, and stays until they are gone.
    for child in procfs::children().unwrap_or_default() {
        let _dead_already = kill_process(child, Signal::KILL);
    }
}

/// Returns the exit code by the shell's convention: of a process that a signal ended, 128 and the signal's number.
fn code(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
