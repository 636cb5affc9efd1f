//! Starts processes and waits for them, in one place. The first process of a container has to wait for any child, which
//! would take the exit status from other code that waits for a particular child.

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
    /// Children that this process started, each with the channel that receives its exit status.
    awaited: BTreeMap<i32, oneshot::Sender<WaitStatus>>,
    /// Adopted children, which this process did not start, and whether to spare them. This is decided when a child is first
    /// seen: later it may have become another program, or hang so that `/proc` cannot be read.
    adopted: BTreeMap<i32, bool>,
}

/// Children belong to the whole process, so this is a static. A child is started, and waited for, only while the lock is
/// held. So the process ids in here have not been reused.
static REGISTRY: Mutex<ChildRegistry> =
    Mutex::new(ChildRegistry { awaited: BTreeMap::new(), adopted: BTreeMap::new() });

/// Limits the wait for a killed child: a process that is stuck in the kernel may never end.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

const UNKNOWN_STATUS: &str = "unknown exit status";

/// A child that leads its own process group.
pub struct Child {
    pid: Pid,
    end: oneshot::Receiver<WaitStatus>,
}

/// Starts a command, without the member's credentials in its environment. Its end is noticed only if [`reap`] is called at
/// each SIGCHLD.
///
/// # Errors
/// It cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut registry = registry();
    let started = command.env_remove(CREDENTIALS_VARIABLE).process_group(0).spawn()?;
    let pid = Pid::from_child(&started);
    let (ended, end) = oneshot::channel();
    registry.awaited.insert(pid.as_raw_pid(), ended);
    Ok(Child { pid, end })
}

/// Reaps all dead children, including adopted ones.
pub fn reap() {
    registry().reap();
}

/// Spares, from now on, the existing children that this process did not start: those of the program that became this
/// process by `exec`, and adopted ones.
///
/// # Errors
/// `/proc` cannot be read.
pub fn spare_existing_children() -> io::Result<()> {
    let mut registry = registry();
    registry.reap();
    for process in procfs::children()? {
        let number = process.as_raw_pid();
        if !registry.awaited.contains_key(&number) {
            registry.adopted.insert(number, true);
        }
    }
    Ok(())
}

/// Returns whether this child, which this process started, is alive.
pub fn is_alive(child: Pid) -> bool {
    let mut registry = registry();
    registry.reap();
    registry.awaited.contains_key(&child.as_raw_pid())
}

/// Returns this child, if it is alive, and all live children that were adopted because this process is a subreaper, except
/// those that are spared or have the given variable in their environment.
///
/// # Errors
/// `/proc` cannot be read. The processes may be alive.
pub fn alive_with_adopted(child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
    registry().alive(child, sparing_variable)
}

/// Kills the processes that [`alive_with_adopted`] returns, and returns them. Their own children are then adopted in turn, so call
/// this again until it returns no process.
///
/// # Errors
/// `/proc` cannot be read. The processes may be alive.
pub fn kill_with_adopted(child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
    // While the lock is held, no other code reaps these processes, so their process ids are not reused.
    let mut registry = registry();
    let alive = registry.alive(child, sparing_variable)?;
    for process in &alive {
        let _dead_already = kill_process(*process, Signal::KILL);
    }
    Ok(alive)
}

impl ChildRegistry {
    /// Reaps all dead children, and forwards the exit status of those that this process started.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.adopted.remove(&pid.as_raw_pid());
            if let Some(ended) = self.awaited.remove(&pid.as_raw_pid()) {
                let _receiver_gone = ended.send(status);
            }
        }
    }

    /// Returns this child and the adopted children, without the spared and the dead ones.
    fn alive(&mut self, child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
        self.reap();
        let mut alive = vec![];
        for process in procfs::children()? {
            let number = process.as_raw_pid();
            let is_wanted = match self.awaited.contains_key(&number) {
                true => process == child,
                false => !*self
                    .adopted
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

    /// Waits until the child has ended. Reaps all dead children at each event of `deaths`.
    ///
    /// # Errors
    /// The child did not end with exit code 0.
    pub async fn wait(&mut self, deaths: &mut Deaths) -> Result<(), String> {
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

    /// Kills the child and its process group, unless it has ended: then its process id may have been reused.
    pub async fn kill(&mut self, deaths: &mut Deaths) {
        {
            // While the lock is held, the child is not reaped, so its process id is not reused.
            let registry = registry();
            if registry.awaited.contains_key(&self.pid.as_raw_pid()) {
                let _dead_already = kill_process_group(self.pid, Signal::KILL);
            }
        }
        let _dead_or_stuck = tokio::time::timeout(REAP_TIMEOUT, self.wait(deaths)).await;
    }
}

fn registry() -> MutexGuard<'static, ChildRegistry> {
    // The data stays consistent even if a holder of the lock panics.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
