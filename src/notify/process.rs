//! Sends a signal to the process whose process id is in a file.

use crate::files::{self, Size};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::path::Path;

/// Sends `signal` to the process whose process id is in `pid_file`.
pub(super) fn send(signal: Signal, pid_file: &Path) -> Result<(), String> {
    let name = pid_file.display();
    let text = files::read(pid_file, Size::Line).map_err(|why| format!("{name} {why}"))?;
    let process = pid_in(&text, getpid()).map_err(|why| format!("{name} {why}"))?;
    kill_process(process, signal).map_err(|error| match error {
        Errno::SRCH => {
            format!("process {}, which {name} names, does not exist", process.as_raw_pid())
        }
        error => format!("process {}, which {name} names: {error}", process.as_raw_pid()),
    })
}

/// Returns the process id in the first line of `text`, unless it is that of this process (`us`) or of process 1. Further
/// lines are ignored, because some programs write other values after their process id.
fn pid_in(text: &[u8], us: Pid) -> Result<Pid, String> {
    let first = String::from_utf8_lossy(text.split(|byte| *byte == b'\n').next().unwrap_or(text));
    // kill(2) takes zero and negative numbers for process groups, or for all processes.
    let number = first.trim().parse().ok().filter(|number: &i32| *number > 0);
    match number.and_then(Pid::from_raw) {
        None => Err("does not begin with a line that holds a process id".into()),
        Some(Pid::INIT) => Err("names process 1, which is not an application".into()),
        Some(process) if process == us => Err("names this very process".into()),
        Some(process) => Ok(process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_that_of_one_other_process() {
        let us = Pid::from_raw(4711).unwrap();
        let number = |text: &str| pid_in(text.as_bytes(), us).map(Pid::as_raw_pid);
        assert_eq!(number("1234\n"), Ok(1234));
        assert_eq!(number("  77 \n/var/lib/postgresql\n"), Ok(77));
        for wrong in ["", "\n", "0", "1", "-1", "-4", "4711", "12 13", "x", "99999999999", "\n12"] {
            assert!(number(wrong).is_err(), "{wrong:?}");
        }
    }
}
