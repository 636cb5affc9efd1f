//! Starts child processes and waits for them. In a process that uses this module, all code must do so here: [`reap`]
//! reaps every child, as the first process of a container must, and so takes the exit status away from code that waits
//! for a child in another way.

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
use tokio::signal::unix::Signal as SignalStream;
use tokio::sync::oneshot;

/// The children of this process, by process id.
struct ChildRegistry {
    /// Children that this process started, each with the channel that receives its exit status.
    awaited: BTreeMap<i32, oneshot::Sender<WaitStatus>>,
    /// Adopted children, which this process did not start. The value is true if the child must not be killed. This is
    /// decided when the child is first seen: later its environment in `/proc` may be that of another program, or
    /// unreadable because the child hangs.
    adopted_is_spared: BTreeMap<i32, bool>,
}

/// The registry is a static because children belong to the whole process. A child is started, and reaped, only while the
/// lock is held. So the process ids in the registry have not been reused for other processes.
static REGISTRY: Mutex<ChildRegistry> =
    Mutex::new(ChildRegistry { awaited: BTreeMap::new(), adopted_is_spared: BTreeMap::new() });

/// The time limit to wait for a killed child, because a process that is stuck in the kernel may never end.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

const UNKNOWN_STATUS: &str = "unknown exit status";

/// A child that [`spawn`] started, and that leads its own process group.
pub struct Child {
    pid: Pid,
    /// Receives the exit status when [`reap`] has found the child dead.
    exit_status: oneshot::Receiver<WaitStatus>,
}

/// Starts a command, without the member's credentials in its environment. The caller must call [`reap`] (or
/// [`Child::wait`]) at each SIGCHLD: otherwise the end of the child is not noticed.
///
/// # Errors
/// The command cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut registry = registry();
    let started = command.env_remove(CREDENTIALS_VARIABLE).process_group(0).spawn()?;
    let pid = Pid::from_child(&started);
    let (status_sender, exit_status) = oneshot::channel();
    registry.awaited.insert(pid.as_raw_pid(), status_sender);
    Ok(Child { pid, exit_status })
}

/// Reaps all dead children, including adopted ones, and passes the exit status of each started child to its [`Child`].
pub fn reap() {
    registry().reap();
}

/// Makes [`kill_with_adopted`] spare the children that exist now and that this process did not start. Such a child was
/// adopted, or was started by the program that replaced itself by this one (`exec`). So it does not belong to a command
/// that this process starts later.
///
/// # Errors
/// `/proc` cannot be read.
pub fn spare_existing_children() -> io::Result<()> {
    let mut registry = registry();
    registry.reap();
    for process in procfs::children()? {
        let number = process.as_raw_pid();
        if !registry.awaited.contains_key(&number) {
            registry.adopted_is_spared.insert(number, true);
        }
    }
    Ok(())
}

/// Returns whether `child`, which [`spawn`] started, is alive.
pub fn is_alive(child: Pid) -> bool {
    let mut registry = registry();
    registry.reap();
    registry.awaited.contains_key(&child.as_raw_pid())
}

/// Returns `child`, if it is alive, and all live children that were adopted because this process is a subreaper. Adopted
/// children are left out if [`spare_existing_children`] excluded them or if their environment has `sparing_variable`.
///
/// # Errors
/// `/proc` cannot be read. The processes may be alive.
pub fn alive_with_adopted(child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
    registry().alive(child, sparing_variable)
}

/// Kills the processes that [`alive_with_adopted`] returns, and returns them. This process then adopts their children, so
/// call this function again until it returns no process.
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
    /// Reaps all dead children, and sends the exit status of each child that this process started to its [`Child`].
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.adopted_is_spared.remove(&pid.as_raw_pid());
            if let Some(status_sender) = self.awaited.remove(&pid.as_raw_pid()) {
                let _receiver_gone = status_sender.send(status);
            }
        }
    }

    /// Does the work of [`alive_with_adopted`].
    fn alive(&mut self, child: Pid, sparing_variable: &str) -> io::Result<Vec<Pid>> {
        self.reap();
        let mut alive = vec![];
        for process in procfs::children()? {
            let number = process.as_raw_pid();
            let is_included = if self.awaited.contains_key(&number) {
                process == child
            } else {
                let entry = self.adopted_is_spared.entry(number);
                let is_spared =
                    entry.or_insert_with(|| procfs::has_variable(process, sparing_variable));
                !*is_spared
            };
            if is_included {
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

    /// Waits until the child has ended. Reaps all dead children at each SIGCHLD, which `deaths` receives.
    ///
    /// # Errors
    /// The child did not end with exit code 0.
    pub async fn wait(&mut self, deaths: &mut SignalStream) -> Result<(), String> {
        let status = loop {
            tokio::select! {
                status = &mut self.exit_status => break status.ok(),
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

    /// Kills the child and its process group, and waits for the child's death. Does nothing if the child has ended,
    /// because its process id may have been reused.
    pub async fn kill(&mut self, deaths: &mut SignalStream) {
        {
            // While the lock is held, the child is not reaped, so its process id is not reused.
            let registry = registry();
            if registry.awaited.contains_key(&self.pid.as_raw_pid()) {
                let _dead_already = kill_process_group(self.pid, Signal::KILL);
            }
        }
        // The result does not matter: the child is dead, or stuck in the kernel.
        let _ignored = tokio::time::timeout(REAP_TIMEOUT, self.wait(deaths)).await;
    }
}

fn registry() -> MutexGuard<'static, ChildRegistry> {
    // Use the registry even after a panic in a thread that held the lock: no panic leaves it half changed.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
