//! One limit for the memory of all requests, answers and watched values, whatever clients do.

use hyper::body::Bytes;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The unit of the budget in bytes. Reservations are rounded up to it.
const UNIT: usize = 1024;

/// The budget. Clones share it.
#[derive(Clone)]
pub struct ByteBudget(Arc<BudgetState>);

struct BudgetState {
    /// One permit for each free [`UNIT`].
    free: Arc<Semaphore>,
    /// The size of the whole budget.
    mib: u32,
    /// Notified when a reservation fails for lack of memory.
    shortage: Notify,
}

/// A reservation, whose bytes return to the budget when it is dropped. The default reserves nothing.
#[derive(Default)]
pub struct ReservedBytes {
    permit: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    pub fn of_mib(mib: u32) -> Self {
        let units = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1024 * 1024 / UNIT);
        let free = Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(BudgetState { free, mib, shortage: Notify::new() }))
    }

    pub fn mib(&self) -> u32 {
        self.0.mib
    }

    /// Reserves bytes. Returns `None` if too few are left.
    pub fn take(&self, bytes: usize) -> Option<ReservedBytes> {
        let taken = self.0.free.clone().try_acquire_many_owned(units(bytes));
        if taken.is_err() {
            self.0.shortage.notify_waiters();
        }
        taken.ok().map(|permit| ReservedBytes { permit: Some(permit) })
    }

    /// Reserves bytes, and waits until enough are free. Waiting counts as a [shortage](Self::shortage).
    pub async fn take_when_free(&self, bytes: usize) -> ReservedBytes {
        if let Some(taken) = self.take(bytes) {
            return taken;
        }
        let taken = self.0.free.clone().acquire_many_owned(units(bytes)).await;
        // The semaphore is never closed, so there is a permit.
        ReservedBytes { permit: taken.ok() }
    }

    /// Reserves the length of `bytes`, and returns the same bytes, which keep the reservation until their last clone is
    /// dropped. Returns `None` if too little is left.
    pub fn hold(&self, bytes: Bytes) -> Option<Bytes> {
        self.take(bytes.len()).map(|reserved| reserved.attach_to(bytes))
    }

    /// Waits until a reservation fails for lack of memory. The caller can then free some, for example by closing
    /// stalled connections.
    pub async fn shortage(&self) {
        self.0.shortage.notified().await;
    }
}

impl ReservedBytes {
    /// Adds the bytes of `more` to this reservation.
    pub fn merge(&mut self, more: Self) {
        match (&mut self.permit, more.permit) {
            (Some(own), Some(more)) => own.merge(more),
            (own @ None, more) => *own = more,
            (Some(_), None) => {}
        }
    }

    /// Returns the same bytes, which keep this reservation until their last clone is dropped.
    pub fn attach_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _reserved: self })
    }
}

/// The owner of bytes and their reservation.
struct HeldBytes {
    bytes: Bytes,
    _reserved: ReservedBytes,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Converts bytes to units, rounded up.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_accounted_for_until_the_last_of_them_is_dropped() {
        let budget = ByteBudget::of_mib(1);
        let half = budget.hold(Bytes::from(vec![0; 512 * 1024])).expect("there is room");
        let part = half.slice(..1);
        drop(half);
        let mut rest = budget.take(256 * 1024).expect("there is room");
        rest.merge(budget.take(256 * 1024).expect("there is room"));
        assert!(budget.take(1).is_none());
        drop(part);
        assert!(budget.take(512 * 1024).is_some());
        drop(rest);
        assert!(budget.take(1024 * 1024).is_some());
        assert!(budget.take(1024 * 1024 + 1).is_none());
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_bytes_that_others_drop() {
        let budget = ByteBudget::of_mib(1);
        let all = budget.take(1024 * 1024).expect("there is room");
        let waiting = budget.take_when_free(1);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(all);
        waiting.await;
    }
}
