//! A guard's command, and every process that it started: a guard waits for any child, and kills any.

use super::command::started_in_foreground;
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

/// A command, which leads its own process group, and every process that it started.
pub struct Offspring {
    leader: Pid,
    leader_is_dead: bool,
}

/// The result of reaping dead processes: no child is left, the command's own process died, or neither.
pub enum Reaped {
    /// No child is left.
    All,
    /// The command's own process has died, with this exit code.
    Leader { code: u8 },
    /// Children are left, and the command's own process has not died just now.
    None,
}

/// The command's process was stopped or continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobChange {
    /// The command was stopped, by the signal with this number.
    Stopped {
        signal: i32,
    },
    Continued,
}

impl Offspring {
    /// Starts the command. It takes the foreground of the terminal if the process group `foreground` has it.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(
        command: &[OsString],
        stdin: OwnedFd,
        file_limit: Option<u64>,
        foreground: Option<i32>,
    ) -> io::Result<Self> {
        let mut command = started_in_foreground(command, file_limit, foreground);
        let child = command.stdin(Stdio::from(stdin)).process_group(0).spawn()?;
        Ok(Self { leader: Pid::from_child(&child), leader_is_dead: false })
    }

    /// Returns the command's process, which leads its own process group.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends this signal to the command's process group, then SIGCONT, so that stopped processes receive it.
    pub fn end(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    pub fn signal(&self, signal: Signal) {
        // Once the leader was reaped, its process id may have been reused.
        if !self.leader_is_dead {
            let _dead_already = kill_process_group(self.leader, signal);
        }
    }

    /// Kills the process group, and all children. Their own children are then reparented to this process, so call this
    /// again until none is left.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        kill_children();
    }

    /// Returns whether the command's process was stopped or continued since the last call.
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

    /// Reaps dead processes. If the leader is among them, calls `leader_is_dead`, and then sends SIGTERM to the rest of
    /// its group.
    pub fn reap(&mut self, leader_is_dead: impl FnOnce()) -> Reaped {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !self.leader_is_dead && matches!(waitid(WaitId::Pid(self.leader), peek), Ok(Some(_))) {
            leader_is_dead();
            // Do this before the leader is reaped: until then, the group's number is not reused.
            self.end(Signal::TERM);
            self.leader_is_dead = true;
            let status = waitpid(Some(self.leader), WaitOptions::NOHANG);
            let code = status.ok().flatten().map_or(125, |(_, status)| code(status));
            return Reaped::LeaderDied { code };
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                // The leader died since the check above.
                Ok(Some((pid, status))) if pid == self.leader => {
                    leader_is_dead();
                    self.leader_is_dead = true;
                    return Reaped::LeaderDied { code: code(status) };
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Reaped::StillRunning,
                Err(_) => return Reaped::NoneLeft,
            }
        }
    }
}

/// Reaps dead children, and calls `died` for each. Returns whether no child is left.
pub fn reap_children(mut died: impl FnMut(Pid)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => died(pid),
            Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Kills all children. A child's process id is not reused until the child was reaped, so no other process is hit.
pub fn kill_children() {
    // If the children cannot be listed now, the guard tries again. It stays until they are gone.
    for child in procfs::children().unwrap_or_default() {
        let _dead_already = kill_process(child, Signal::KILL);
    }
}

/// Returns the exit code by the shell's convention: for a process that a signal ended, 128 plus the signal's number.
fn code(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
