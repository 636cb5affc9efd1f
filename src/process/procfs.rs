//! Information about processes from `/proc`.

use rustix::process::Pid;
use std::path::Path;
use std::{fs, io};

/// Returns the children of this process, zombies included.
///
/// A child that is created during the call may be missing from the result.
///
/// # Errors
/// `/proc` cannot be read. It is then not known which children are alive.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    // A kernel that was built without CONFIG_PROC_CHILDREN does not list children, so read the parent of each process.
    if !Path::new("/proc/thread-self/children").exists() {
        return children_among_all();
    }
    let mut found = vec![];
    for thread in fs::read_dir("/proc/self/task")? {
        match fs::read(thread?.path().join("children")) {
            Ok(numbers) => {
                let numbers = String::from_utf8_lossy(&numbers);
                found.extend(numbers.split_ascii_whitespace().filter_map(pid));
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the children of this process by reading the parent of every process on the machine, which takes longer the more
/// processes there are.
fn children_among_all() -> io::Result<Vec<Pid>> {
    let us = rustix::process::getpid();
    let mut found = vec![];
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(pid) else { continue };
        match parent_of(process) {
            Ok(parent) if parent == Some(us) => found.push(process),
            Err(error) if !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns whether the error means that the process or thread has ended meanwhile.
fn is_gone(error: &io::Error) -> bool {
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    gone.iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// Returns the parent of `process`.
fn parent_of(process: Pid) -> io::Result<Option<Pid>> {
    Ok(stat_after_name(process)?.split(' ').nth(1).and_then(pid))
}

/// Returns whether a signal has stopped `process`, such as SIGSTOP.
pub fn is_stopped(process: Pid) -> bool {
    stat_after_name(process).is_ok_and(|stat| stat.starts_with('T'))
}

/// Returns the part of `/proc/PID/stat` after the name of the process: the state, the parent, and more. The name is in
/// parentheses, and may itself contain any character.
fn stat_after_name(process: Pid) -> io::Result<String> {
    let stat = fs::read(format!("/proc/{}/stat", process.as_raw_pid()))?;
    let stat = String::from_utf8_lossy(&stat);
    Ok(stat.rsplit_once(") ").map(|(_, after)| after.to_owned()).unwrap_or_default())
}

/// Returns whether `process` was started with the variable `name` in its environment. Returns `false` if the environment
/// cannot be read.
pub(super) fn has_variable(process: Pid, name: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_pid()));
    environment.is_ok_and(|environment| {
        environment.split(|byte| *byte == 0).any(|variable| {
            variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        })
    })
}

/// Parses a process id.
fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeping() -> Child {
        Command::new("sleep").arg("600").env("BELLWETHER_TEST", "1").spawn().expect("it starts")
    }

    #[test]
    fn both_ways_find_the_children_of_all_threads() {
        let mut ours = [sleeping(), std::thread::spawn(sleeping).join().unwrap()];
        let pids = ours.each_ref().map(Pid::from_child);
        for found in [children().unwrap(), children_among_all().unwrap()] {
            assert!(pids.iter().all(|pid| found.contains(pid)), "{pids:?} in {found:?}");
        }
        for child in &mut ours {
            child.kill().unwrap();
        }
        // A dead child is still a child, until it is waited for.
        assert!(children().unwrap().contains(&pids[0]));
        for mut child in ours {
            child.wait().unwrap();
        }
        assert!(!children().unwrap().iter().any(|pid| pids.contains(pid)));
    }

    #[test]
    fn a_variable_is_its_whole_name() {
        let mut child = sleeping();
        let pid = Pid::from_child(&child);
        // Until the child has become `sleep`, it shows the environment of this process.
        while !has_variable(pid, "BELLWETHER_TEST") {
            std::thread::yield_now();
        }
        assert!(!has_variable(pid, "BELLWETHER_TES") && !has_variable(pid, "BELLWETHER_TEST1"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
