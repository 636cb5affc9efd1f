//! Waiting for what must happen, and watching that nothing does.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Long enough for a busy machine. A test that needs all of it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(15);

/// Looks again and again until `look` succeeds; its last complaint is the test's.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    within(LIMIT, look)
        .unwrap_or_else(|last| panic!("{what}: not within {LIMIT:?}. Last seen: {last}"))
}

/// Looks again and again for at most so long, and returns the last complaint if that was in vain.
pub(crate) fn within<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let start = Instant::now();
    loop {
        match look() {
            Err(_) if start.elapsed() < limit => thread::sleep(POLL),
            seen => return seen,
        }
    }
}

/// Looks again and again for a whole period: that nothing happens cannot be seen in less.
#[track_caller]
pub(crate) fn throughout(
    what: &str,
    period: Duration,
    mut look: impl FnMut() -> Result<(), String>,
) {
    let start = Instant::now();
    while start.elapsed() < period {
        if let Err(seen) = look() {
            panic!("{what}: no longer so after {:?}. Seen: {seen}", start.elapsed());
        }
        thread::sleep(POLL);
    }
}
