//! What the kernel says of processes, read from `/proc`.

use rustix::process::Pid;
use std::fs;
use std::path::Path;

/// Returns the children of this process, those that are dead and not waited for included.
///
/// A process that gets a child while this is read may be missing it in the answer.
pub fn children() -> Vec<Pid> {
    // The kernel may be built without CONFIG_PROC_CHILDREN.
    if !Path::new("/proc/thread-self/children").exists() {
        return children_among_all();
    }
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return vec![] };
    let of_each = threads.flatten().map(|thread| fs::read(thread.path().join("children")));
    let numbers = of_each.flatten().map(|numbers| String::from_utf8_lossy(&numbers).into_owned());
    let of_each = numbers
        .map(|numbers| numbers.split_ascii_whitespace().filter_map(number).collect::<Vec<_>>());
    of_each.flatten().collect()
}

/// Reads all processes of the machine, which takes the longer the more there are.
fn children_among_all() -> Vec<Pid> {
    let us = rustix::process::getpid();
    let Ok(processes) = fs::read_dir("/proc") else { return vec![] };
    processes
        .flatten()
        .filter_map(|process| number(process.file_name().to_str()?))
        .filter(|process| parent_of(*process) == Some(us))
        .collect()
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, which may hold anything, is in brackets; then come the state and the parent.
    number(stat.rsplit_once(") ")?.1.split(' ').nth(1)?)
}

/// Returns whether the process was started with this variable in its environment, as far as that
/// can be seen.
pub fn has_variable(process: Pid, name: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_pid()));
    environment.is_ok_and(|environment| {
        environment.split(|byte| *byte == 0).any(|variable| {
            variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        })
    })
}

fn number(text: &str) -> Option<Pid> {
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
        for found in [children(), children_among_all()] {
            assert!(pids.iter().all(|pid| found.contains(pid)), "{pids:?} in {found:?}");
        }
        for child in &mut ours {
            child.kill().unwrap();
        }
        // It is dead, and a child until it is waited for.
        assert!(children().contains(&pids[0]));
        for mut child in ours {
            child.wait().unwrap();
        }
        assert!(!children().iter().any(|pid| pids.contains(pid)));
    }

    #[test]
    fn a_variable_is_its_whole_name() {
        let mut child = sleeping();
        let pid = Pid::from_child(&child);
        // Before it is another program, it has our environment.
        while !has_variable(pid, "BELLWETHER_TEST") {
            std::thread::yield_now();
        }
        assert!(!has_variable(pid, "BELLWETHER_TES") && !has_variable(pid, "BELLWETHER_TEST1"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
