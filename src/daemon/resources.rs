//! The process's limit of open files, and the priority of its threads.

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tracing::warn;

/// Of a core that is wanted by others too, the readers' thread gets a third of an equal share.
const READERS_NICE: i32 = 5;

/// The files that a member without clients opens, and some more.
const FILES_MIN: u64 = 40;

/// Raises the limit to what the administrator allows: the usual one of 1024 is there for programs that use
/// select(2), and would keep clients waiting that could be served. Returns what it was before.
///
/// # Errors
/// With so few files this process could not run.
pub(super) fn open_more_files() -> Result<Option<u64>, String> {
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

/// Lets the other threads run before this one, which from here on only answers clients.
pub(super) fn serve_last() {
    let _as_urgent_without = setpriority_process(None, READERS_NICE);
}
