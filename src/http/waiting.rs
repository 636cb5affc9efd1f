//! Waits for a change of who leads; only a limited number of clients may wait at a time.

use super::problem::ProblemResponse;
use super::{AppState, Verdict};
use tokio::sync::OwnedSemaphorePermit;

impl AppState {
    /// Waits until the index is another than this one: at once if it comes from another member. `None` if this process
    /// ends.
    pub(super) async fn changed_since(&self, seen: Option<u64>) -> Option<Verdict> {
        self.until(|verdict| verdict.index() != seen).await
    }

    /// Waits for a verdict of which `so` is true. `None` if this process ends.
    pub(super) async fn until(&self, so: impl Fn(&Verdict) -> bool) -> Option<Verdict> {
        let mut snapshots = self.status.snapshot.clone();
        loop {
            snapshots.mark_unchanged();
            let verdict = self.judge();
            if so(&verdict) {
                return Some(verdict);
            }
            // The end of a lease is a change without any event from the runner.
            let lease_end = verdict.snapshot.standing.changes_at(verdict.now);
            tokio::select! {
                changed = snapshots.changed() => changed.ok()?,
                () = self.clock.sleep_until(lease_end) => {}
            }
        }
    }

    /// Returns a place among the clients that wait for a change.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, ProblemResponse> {
        let place = self.waiting.clone().try_acquire_owned();
        let crowded = "more streams and blocking queries are open than this member serves: close \
                       some, or poll";
        place.map_err(|_| ProblemResponse::crowded(crowded))
    }
}
