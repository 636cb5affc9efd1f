//! Readings of ZooKeeper that are shared by several callers, so that the load on the servers does not grow with the number
//! of HTTP clients.

use crate::clock::Clock;
use recipes::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// The time for which a reading is also returned to later callers.
const TTL: Duration = Duration::from_secs(1);

/// The number of changes that this member has made or noticed. A caller that knows of a change must not get a reading that
/// began before that change, so a reading is outdated once this number has grown since the reading began.
#[derive(Clone, Default)]
pub(crate) struct ChangeCounter(Arc<AtomicU64>);

/// The value of a reading, the time when the reading ended, and the count of [`ChangeCounter`] when the reading began.
pub(crate) struct Cached<T> {
    pub(crate) value: T,
    read_at: Moment,
    changes_at_start: u64,
}

/// The last reading of something, which its callers share. One caller reads at a time, and the others wait for its result.
#[derive(Clone)]
pub(crate) struct SharedReading<T> {
    pub(crate) changes: ChangeCounter,
    last: Arc<Mutex<Option<Cached<T>>>>,
}

impl<T> Default for SharedReading<T> {
    fn default() -> Self {
        Self { changes: ChangeCounter::default(), last: Arc::default() }
    }
}

impl<T: Clone> SharedReading<T> {
    /// Returns the last reading, or awaits `read` if the last one is outdated. An error is returned only to the caller whose
    /// `read` has failed; the next caller reads again.
    pub(crate) async fn get<E>(
        &self,
        clock: Clock,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // This lock is held during the reading, so that the other callers wait for it.
        let mut last = self.last.lock().await;
        // Counted before the reading begins, so that a change during the reading makes the reading outdated.
        let changes = self.changes.get();
        if let Some(last) = &*last
            && last.is_fresh(clock.now(), changes)
        {
            return Ok(last.value.clone());
        }
        let value = read.await?;
        *last = Some(Cached::new(value.clone(), clock.now(), changes));
        Ok(value)
    }
}

impl ChangeCounter {
    pub(crate) fn note_change(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> Cached<T> {
    pub(crate) fn new(value: T, read_at: Moment, changes_at_start: u64) -> Self {
        Self { value, read_at, changes_at_start }
    }

    /// Returns true if the reading ended less than [`TTL`] ago, and no change was counted since the reading began.
    /// `changes_now` is the current count.
    pub(crate) fn is_fresh(&self, now: Moment, changes_now: u64) -> bool {
        now.since(self.read_at) < TTL && self.changes_at_start == changes_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::pin::pin;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn no_caller_is_answered_by_a_reading_from_before_a_change_that_it_may_know_of() {
        let shared = SharedReading::<u32>::default();
        let clock = Clock::system();
        let begun = Cell::new(0);
        let go_on = Notify::new();
        let read = async || {
            begun.set(begun.get() + 1);
            let number = begun.get();
            go_on.notified().await;
            Ok::<_, Infallible>(number)
        };
        go_on.notify_one();
        assert_eq!(shared.get(clock, read()).await, Ok(1));
        assert_eq!(shared.get(clock, read()).await, Ok(1), "within a second, the same reading");

        shared.changes.note_change();
        let mut before = pin!(shared.get(clock, read()));
        tokio::select! { biased; _ = &mut before => panic!("it waits"), () = async {} => {} }
        shared.changes.note_change();
        let after = shared.get(clock, read());
        go_on.notify_one();
        assert_eq!(before.await, Ok(2));
        go_on.notify_one();
        assert_eq!(after.await, Ok(3), "the other reading began before the change");
    }

    #[tokio::test]
    async fn a_reading_that_fails_is_not_shared() {
        let shared = SharedReading::<u32>::default();
        let clock = Clock::system();
        assert_eq!(shared.get(clock, async { Err("no answer") }).await, Err("no answer"));
        assert_eq!(shared.get(clock, async { Ok::<_, &str>(7) }).await, Ok(7));
    }
}
