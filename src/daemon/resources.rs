//! Sets the process's limit of open files, and the priority of the thread that serves clients.

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tracing::warn;

/// The nice value of the thread that serves clients. On a busy core it gets a third of an equal share.
const SERVING_NICE: i32 = 5;

/// The minimum limit of open files: enough for a member without clients, and a few more.
const FILES_MIN: u64 = 40;

/// Raises the limit of open files as far as the administrator allows. The usual limit of 1024 exists for programs that use
/// select(2), and would make clients wait that could be served. Returns the previous limit.
///
/// # Errors
/// The limit is too low for this process to run.
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

/// Lowers the priority of this thread, which only serves clients from now on, so that the other threads run first.
pub(super) fn lower_thread_priority() {
    let _as_urgent_without = setpriority_process(None, SERVING_NICE);
}
