//! A child process that cannot outlive the test which started it.

use crate::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fmt::Display,
    fs,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct Process {
    child: Child,
}

/// A command whose process the kernel kills when the thread that started it ends, even by SIGKILL.
///
/// So start processes from the test's own thread. `setpriv` becomes the program: the pid is the program's.
pub(crate) fn tied_to_this_thread(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Sends a signal by name to a process that is there.
#[track_caller]
pub(crate) fn send_signal(process: i32, name: &str) {
    let signal = match name {
        "ABRT" => Signal::ABORT,
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "QUIT" => Signal::QUIT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "WINCH" => Signal::WINCH,
        _ => panic!("SIG{name} is in no test so far"),
    };
    let sent = Pid::from_raw(process).map(|process| kill_process(process, signal));
    assert!(matches!(sent, Some(Ok(()))), "SIG{name} to {process}: {sent:?}");
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self { child: command.spawn().expect("util-linux (setpriv) is installed") }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name: `TERM`, `INT`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.child.id().cast_signed(), name);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child that was not waited for can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits for the end, and tells how long that took.
    pub(crate) fn wait(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        eventually("the process ends", || match self.ended() {
            Some(status) => Ok((status, start.elapsed())),
            None => Err("it runs".to_owned()),
        })
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the children of a process, which may be gone.
pub(crate) fn children_of(process: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return vec![] };
    let children = threads.flatten().filter_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).ok()?;
        Some(children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
    });
    children.flatten().collect()
}

/// Sends a signal to a process that may be gone.
pub(crate) fn signal(process: i32, signal: Signal) {
    let process = Pid::from_raw(process).expect("a process");
    let _gone = kill_process(process, signal);
}

/// Returns the most memory that the process has had.
pub(crate) fn peak_kib(process: impl Display) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line =
        status.lines().find(|line| line.starts_with("VmHWM:")).expect("as the kernel writes");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB")
}

/// Returns the CPU time of all its threads so far, in user and kernel mode, to a hundredth of a second.
pub(crate) fn cpu_time(process: impl Display) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // The program's name is in brackets; the times in user and kernel mode are the 12th and 13th behind it.
    let (_, behind_name) = stat.rsplit_once(')').expect("a name in brackets");
    let columns = behind_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = columns.map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(1000 * ticks / rustix::param::clock_ticks_per_second())
}

pub(crate) fn parent_of(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    parent.expect("it has a parent").parse().expect("a number")
}
