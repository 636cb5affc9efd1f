//! Starts processes and waits for them, in one place: waiting for any child, as the first process of
//! a container has to, takes from others the end of those they wait for.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::processes;
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
    collect(&mut awaited());
}

fn collect(awaited: &mut Awaited) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Some(ended) = awaited.remove(&pid.as_raw_pid()) {
            let _nobody_asks = ended.send(status);
        }
    }
}

/// Returns this child, and all processes that were left to us because we are a subreaper, but for those
/// with the given variable in their environment: those of them that are alive.
pub fn left_to_us(child: Pid, spared: &str) -> Vec<Pid> {
    alive(&mut awaited(), child, spared)
}

/// Kills the same, and returns them. What they leave behind is left to us in turn, so it is called
/// again until none is alive.
pub fn kill_with_all_left_to_us(child: Pid, spared: &str) -> Vec<Pid> {
    // For as long as nobody else waits for them, their numbers are no other processes'.
    let mut awaited = awaited();
    let alive = alive(&mut awaited, child, spared);
    for process in &alive {
        let _dead_already = kill_process(*process, Signal::KILL);
    }
    alive
}

fn alive(awaited: &mut Awaited, child: Pid, spared: &str) -> Vec<Pid> {
    collect(awaited);
    let is_of_it = |process: &Pid| match awaited.contains_key(&process.as_raw_pid()) {
        true => *process == child,
        false => !processes::has_variable(*process, spared),
    };
    processes::children().into_iter().filter(is_of_it).collect()
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
