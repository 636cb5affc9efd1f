//! Starts commands so that they die with this process. A new process of this program first asks the kernel for that, and
//! then replaces itself by the command (`exec`).

use super::controlling_terminal::take_foreground_from;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit,
};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns the command line `bellwether ARGUMENTS -- COMMAND`. It runs the same program as this process, even if its file
/// has been replaced by a newer version.
pub fn this_program<S: AsRef<OsStr>>(arguments: &[&str], command: &[S]) -> Command {
    let mut start = Command::new("/proc/self/exe");
    start.arg0("bellwether").args(arguments).arg("--").args(command);
    start
}

/// Returns a [`Command`] that starts a process which becomes `command`, and which the kernel kills when the thread that
/// started it ends. `file_limit` is the limit of open files for `command`; `None` if the number is not limited.
pub fn command_for<S: AsRef<OsStr>>(command: &[S], file_limit: Option<u64>) -> Command {
    with_foreground_of(command, file_limit, None)
}

/// Like [`command_for`], but the process also takes the foreground of the terminal, if the process group `group` has it.
pub(super) fn with_foreground_of<S: AsRef<OsStr>>(
    command: &[S],
    file_limit: Option<u64>,
    group: Option<i32>,
) -> Command {
    let limit = file_limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let group = group.map_or_else(|| "none".to_owned(), |group| group.to_string());
    this_program(&["exec-command", &getpid().as_raw_pid().to_string(), &limit, &group], command)
}

/// Replaces this process, which the process `parent` has just started, with the command. If the process group `foreground`
/// has the foreground of the terminal, the command takes it. `file_limit` is the command's limit of open files; `None` if
/// the number is not limited. Returns only on failure, with the exit code and the reason.
pub fn become_command(
    parent: i32,
    file_limit: Option<u64>,
    foreground: Option<i32>,
    command: &[OsString],
) -> (u8, String) {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return (125, format!("cannot be made to end with its parent: {error}"));
    }
    // A parent that died before the call above cannot trigger the signal.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return (125, "the process that started this is gone".into());
    }
    if let Some(group) = foreground {
        take_foreground_from(group);
    }
    let limit = getrlimit(Resource::Nofile);
    // The parent has raised its own limit of open files, and this process has inherited the raised limit. If the limit
    // cannot be lowered again, the command runs with the raised one.
    let _ignored = setrlimit(Resource::Nofile, Rlimit { current: file_limit, ..limit });
    let [program, arguments @ ..] = command else { return (125, "no command given".into()) };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    (code, format!("cannot run {}: {error}", program.display()))
}
