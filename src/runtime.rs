//! The one place that builds tokio runtimes: each runs all its tasks on one thread.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// Builds a single-threaded runtime.
///
/// # Errors
/// Fails if the process has too many open files.
pub fn build() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs the future to completion on the calling thread. Does not wait for blocking calls that are still running, so that a
/// file, name server or service manager that hangs cannot block the caller.
///
/// # Panics
/// Panics if the process has too many open files.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = build().expect("a runtime can be built");
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    output
}
