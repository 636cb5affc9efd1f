//! Starts processes and waits for them, in one place: waiting for any child, as the first process of
//! a container has to, takes from others the end of those they wait for.

use crate::config::security::CREDENTIALS_VARIABLE;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};
use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::signal::unix::Signal as Deaths;
use tokio::sync::oneshot;

type Awaited = BTreeMap<i32, oneshot::Sender<WaitStatus>>;

/// A process has its children once, so this is there once. Nobody waits for a child, and nobody
/// starts one, but with this in hand: a number that stands here is no other process's yet.
static AWAITED: Mutex<Awaited> = Mutex::new(BTreeMap::new());

/// Whoever was killed is waited for no longer: in the kernel's hands it may be for ever.
const TO_DIE: Duration = Duration::from_secs(1);

/// A child that leads a process group of its own.
pub struct Child {
    pid: Pid,
    end: oneshot::Receiver<WaitStatus>,
}

/// Starts it, without what is ours alone to log in with. Its end is told as long as somebody calls
/// [`reap`] at each SIGCHLD.
///
/// # Errors
/// It cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut awaited = awaited();
    let started = command.env_remove(CREDENTIALS_VARIABLE).process_group(0).spawn()?;
    let pid = Pid::from_child(&started);
    let (ended, end) = oneshot::channel();
    awaited.insert(pid.as_raw_pid(), ended);
    Ok(Child { pid, end })
}

/// Waits for whoever is dead, also for those we inherited from others.
pub fn reap() {
    let mut awaited = awaited();
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Some(ended) = awaited.remove(&pid.as_raw_pid()) {
            let _nobody_asks = ended.send(status);
        }
    }
}

impl Child {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns when it has ended. Whoever hears of `deaths` here reaps all that are dead.
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
        let unknown = || "nobody knows how it ended".to_owned();
        let status = status.ok_or_else(unknown)?;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ok(()),
            (Some(127), _) => Err("exit code 127: not found".into()),
            (Some(126), _) => Err("exit code 126: cannot be run".into()),
            (Some(code), _) => Err(format!("exit code {code}")),
            (None, Some(signal)) => Err(format!("ended by signal {signal}")),
            (None, None) => Err(unknown()),
        }
    }

    /// Kills it and its group, if it has not ended: else the number may be another's.
    pub async fn end_by_force(&mut self, deaths: &mut Deaths) {
        if awaited().contains_key(&self.pid.as_raw_pid()) {
            let _dead_already = kill_process_group(self.pid, Signal::KILL);
        }
        let _dead_or_stuck = tokio::time::timeout(TO_DIE, self.success(deaths)).await;
    }
}

fn awaited() -> MutexGuard<'static, Awaited> {
    // What a panic left is as true as before.
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}
