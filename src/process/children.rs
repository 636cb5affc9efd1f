//! Starts processes and waits for them, in one place: the first process of a container has to wait for any
//! child, which would take from other code the exit status of the child that it waits for.

use super::procfs;
use crate::config::security::CREDENTIALS_VARIABLE;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait,
};
use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::Signal as Deaths;
use tokio::sync::oneshot;

/// The children of this process, by process id.
struct ChildRegistry {
    awaited: BTreeMap<i32, oneshot::Sender<WaitStatus>>,
    /// Children that were left to us, and whether they are to be spared: judged when each is first seen, as
    /// later it may have become another program, or hang so that it cannot be looked at.
    left_to_us: BTreeMap<i32, bool>,
}

/// Children belong to the whole process, so this is a static. A child is started, and waited for, only
/// while the lock is held: so a process id in here has not been given to another process yet.
static KNOWN: Mutex<ChildRegistry> =
    Mutex::new(ChildRegistry { awaited: BTreeMap::new(), left_to_us: BTreeMap::new() });

/// Limits the wait for a killed child: one that is stuck in the kernel may never end.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

const UNKNOWN_STATUS: &str = "unknown exit status";

/// A child that leads a process group of its own.
pub struct Child {
    pid: Pid,
    end: oneshot::Receiver<WaitStatus>,
}

/// Starts a command, without the member's own credentials in its environment. Its end is noticed as long as
/// [`reap`] is called at each SIGCHLD.
///
/// # Errors
/// It cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut known = known();
    let started = command.env_remove(CREDENTIALS_VARIABLE).process_group(0).spawn()?;
    let pid = Pid::from_child(&started);
    let (ended, end) = oneshot::channel();
    known.awaited.insert(pid.as_raw_pid(), ended);
    Ok(Child { pid, end })
}

/// Waits for all children that are dead, also for those we inherited from others.
pub fn reap() {
    known().collect();
}

/// From now on, spares the children that we have already and did not start: those of the program that
/// became this one, and what others have left to us.
///
/// # Errors
/// The system does not let us look.
pub fn spare_those_left_to_us() -> io::Result<()> {
    let mut known = known();
    known.collect();
    for process in procfs::children()? {
        let number = process.as_raw_pid();
        if !known.awaited.contains_key(&number) {
            known.left_to_us.insert(number, true);
        }
    }
    Ok(())
}

/// Whether this child of ours lives.
pub fn is_alive(child: Pid) -> bool {
    let mut known = known();
    known.collect();
    known.awaited.contains_key(&child.as_raw_pid())
}

/// Returns this child, and all processes that were left to us because we are a subreaper, but for those
/// that were spared or have the given variable in their environment: those of them that are alive.
///
/// # Errors
/// The system does not let us look. They may be alive.
pub fn left_to_us(child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
    known().alive(child, sparing_variable)
}

/// Kills the processes that [`left_to_us`] returns, and returns them. What they leave behind is left to us in turn, so
/// this is called again until none is alive.
///
/// # Errors
/// The system does not let us look. They may be alive.
pub fn kill_with_all_left_to_us(child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
    // While the lock is held, no other code waits for them: so their process ids are not given to others.
    let mut known = known();
    let alive = known.alive(child, sparing_variable)?;
    for process in &alive {
        let _dead_already = kill_process(*process, Signal::KILL);
    }
    Ok(alive)
}

impl ChildRegistry {
    /// Waits for all children that are dead, and passes on the status of those that we started.
    fn collect(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.left_to_us.remove(&pid.as_raw_pid());
            if let Some(ended) = self.awaited.remove(&pid.as_raw_pid()) {
                let _receiver_gone = ended.send(status);
            }
        }
    }

    /// Returns this child and the children that were left to us, without the spared ones and the dead ones.
    fn alive(&mut self, child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
        self.collect();
        let mut alive = vec![];
        for process in procfs::children()? {
            let number = process.as_raw_pid();
            let is_wanted = match self.awaited.contains_key(&number) {
                true => process == child,
                false => !*self
                    .left_to_us
                    .entry(number)
                    .or_insert_with(|| procfs::has_variable(process, sparing_variable)),
            };
            if is_wanted {
                alive.push(process);
            }
        }
        Ok(alive)
    }
}

impl Child {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns when it has ended. At each of `deaths`, all that are dead are reaped.
    ///
    /// # Errors
    /// It did not end with exit code 0.
    pub async fn success(&mut self, deaths: &mut Deaths) -> Result<(), String> {
        let status = loop {
            tokio::select! {
                ended = &mut self.end => break ended.ok(),
                _ = deaths.recv() => reap(),
            }
        };
        let status = status.ok_or(UNKNOWN_STATUS)?;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ok(()),
            (Some(127), _) => Err("exit code 127: not found".into()),
            (Some(126), _) => Err("exit code 126: cannot be run".into()),
            (Some(code), _) => Err(format!("exit code {code}")),
            (None, Some(signal)) => Err(format!("ended by signal {signal}")),
            (None, None) => Err(UNKNOWN_STATUS.into()),
        }
    }

    /// Kills it and its group, if it has not ended: else the number may be another's.
    pub async fn end_by_force(&mut self, deaths: &mut Deaths) {
        {
            // While the lock is held, its number is not given to another.
            let known = known();
            if known.awaited.contains_key(&self.pid.as_raw_pid()) {
                let _dead_already = kill_process_group(self.pid, Signal::KILL);
            }
        }
        let _dead_or_stuck = tokio::time::timeout(REAP_TIMEOUT, self.success(deaths)).await;
    }
}

fn known() -> MutexGuard<'static, ChildRegistry> {
    // A panic cannot have left it half changed.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
