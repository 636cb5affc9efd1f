//! The one place that builds tokio runtimes: each drives all its tasks on one thread.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// Builds a runtime that runs on the thread that drives it.
///
/// # Errors
/// No more files may be opened.
pub fn build() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs the future to its end on the calling thread. Does not wait for blocking calls that are still under way: no
/// file, name server or service manager that hangs keeps the caller.
///
/// # Panics
/// No more files may be opened.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = build().expect("a runtime can be built");
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    output
}
