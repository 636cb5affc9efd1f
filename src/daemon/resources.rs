//! Sets the process's limit of open files, and the priority of the thread that serves clients.

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tracing::warn;

/// The nice value of the thread that serves clients. On a busy core, this thread gets about a third of the processor time
/// of a thread with the normal nice value, 0.
const SERVING_NICE: i32 = 5;

/// The lowest limit of open files with which the daemon starts: enough for a member with a few clients.
const FILES_MIN: u64 = 40;

/// Raises the process's limit of open files to the highest value that the administrator allows (the hard limit),
/// because each client needs an open file. Returns the previous limit, to which commands are set back: the usual 1024
/// exists for programs that use select(2). Returns `None` if there was no limit.
///
/// # Errors
/// Even the raised limit is too low for this process to run.
pub(super) fn raise_file_limit() -> Result<Option<u64>, String> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        warn!("serving fewer clients: cannot raise the limit of open files: {error}");
    }
    match getrlimit(Resource::Nofile).current {
        Some(files) if files < FILES_MIN => Err(format!(
            "this process may open {files} files, and needs {FILES_MIN} at least: raise the limit (ulimit -n, LimitNOFILE=)"
        )),
        Some(_) | None => Ok(limit.current),
    }
}

/// Lowers the priority of the calling thread, which only serves clients from now on, so that the other threads run first.
pub(super) fn lower_thread_priority() {
    // `None` is the calling thread: on Linux, a nice value belongs to a thread. If this fails, the normal priority stays.
    let _ignored = setpriority_process(None, SERVING_NICE);
}
