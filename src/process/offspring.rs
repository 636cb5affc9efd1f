//! The command that a guard starts, and every process that the command started. A guard may reap and kill any child,
//! because it has no children for other purposes.

use super::command::with_foreground_of;
use super::procfs;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    wait, waitid, waitpid,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// A command, and every process that it started.
pub struct Offspring {
    /// The command's own process, which leads a process group of its own.
    leader: Pid,
    leader_is_dead: bool,
}

/// The result of [`Offspring::reap`].
pub enum Reaped {
    /// No child is left: the command and all processes that it started have ended.
    NoneLeft,
    /// The command's own process has died since the last call, with this exit code.
    LeaderDied { code: u8 },
    /// Children are left, and the command's own process has not died since the last call.
    StillRunning,
}

/// A change of the command's process under job control, for example by Ctrl-Z and `fg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobChange {
    /// The command was stopped, by the signal with this number.
    Stopped {
        signal: i32,
    },
    Continued,
}

impl Offspring {
    /// Starts the command, with a limit of open files if `file_limit` is given. The command takes the foreground of the
    /// terminal if the process group `foreground` has it.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(
        command: &[OsString],
        stdin: OwnedFd,
        file_limit: Option<u64>,
        foreground: Option<i32>,
    ) -> io::Result<Self> {
        let mut command = with_foreground_of(command, file_limit, foreground);
        let child = command.stdin(Stdio::from(stdin)).process_group(0).spawn()?;
        Ok(Self { leader: Pid::from_child(&child), leader_is_dead: false })
    }

    /// Returns the command's process, which leads its own process group.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// Asks the command's process group to end: sends `signal`, then SIGCONT, because a stopped process handles a
    /// signal only when it is continued.
    pub fn end(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    /// Sends `signal` to the command's process group, unless the command's own process is dead.
    pub fn signal(&self, signal: Signal) {
        // Once the leader was reaped, the number of its group may have been reused.
        if !self.leader_is_dead {
            let _dead_already = kill_process_group(self.leader, signal);
        }
    }

    /// Kills the command's process group, and all children of this process. Their own children then become children of
    /// this process, so call this again until no child is left.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        kill_children();
    }

    /// Returns the next report that the command's own process was stopped or continued; `None` if there is no new one.
    pub fn job_change(&self) -> Option<JobChange> {
        if self.leader_is_dead {
            return None;
        }
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.leader), changes).ok()??;
        if status.continued() {
            return Some(JobChange::Continued);
        }
        status.stopping_signal().map(|signal| JobChange::Stopped { signal })
    }

    /// Reaps dead children, until the command's own process (the leader) is among them or no further child is dead. If
    /// the leader is dead, calls `on_leader_death`, and asks the rest of the command's process group to end with
    /// SIGTERM.
    pub fn reap(&mut self, on_leader_death: impl FnOnce()) -> Reaped {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !self.leader_is_dead && matches!(waitid(WaitId::Pid(self.leader), peek), Ok(Some(_))) {
            on_leader_death();
            // Send SIGTERM before the leader is reaped: until then, the number of its process group is not reused.
            self.end(Signal::TERM);
            self.leader_is_dead = true;
            let status = waitpid(Some(self.leader), WaitOptions::NOHANG);
            let code = status.ok().flatten().map_or(125, |(_, status)| code(status));
            return Reaped::LeaderDied { code };
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                // The leader died after the check above. Now that it is reaped, the number of its group may be reused,
                // so the group gets no SIGTERM.
                Ok(Some((pid, status))) if pid == self.leader => {
                    on_leader_death();
                    self.leader_is_dead = true;
                    return Reaped::LeaderDied { code: code(status) };
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Reaped::StillRunning,
                // The error is ECHILD: this process has no children.
                Err(_) => return Reaped::NoneLeft,
            }
        }
    }
}

/// Reaps all dead children, and calls `on_death` for each. Returns true if no child is left.
pub fn reap_children(mut on_death: impl FnMut(Pid)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => on_death(pid),
            Err(Errno::INTR) => {}
            Ok(None) => return false,
            // The error is ECHILD: this process has no children.
            Err(_) => return true,
        }
    }
}

/// Kills all children of this process. A child's process id is not reused until the child was reaped, so no other process
/// can be killed by mistake.
pub fn kill_children() {
    // If the children cannot be listed now, the guard calls this function again later, because a guard exits only when
    // no child is left.
    for child in procfs::children().unwrap_or_default() {
        let _dead_already = kill_process(child, Signal::KILL);
    }
}

/// Returns the exit code of a dead process by the shell's convention: 128 plus the signal's number if a signal ended it.
fn code(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
