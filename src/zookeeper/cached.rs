//! Readings that are shared by several callers.

use recipes::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a reading may be returned to further callers.
const TTL: Duration = Duration::from_secs(1);

/// The number of changes that this member has made. A caller that knows of a change must not get a reading from before it.
#[derive(Clone, Default)]
pub(super) struct ChangeCounter(Arc<AtomicU64>);

/// A reading, the time when it ended, and the number of changes when it began.
pub(super) struct Cached<T> {
    pub(super) value: T,
    read_at: Moment,
    changes: u64,
}

impl ChangeCounter {
    pub(super) fn note_change(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> Cached<T> {
    pub(super) fn new(value: T, read_at: Moment, changes: u64) -> Self {
        Self { value, read_at, changes }
    }

    pub(super) fn is_fresh(&self, now: Moment, changes: u64) -> bool {
        now.since(self.read_at) < TTL && self.changes == changes
    }
}
