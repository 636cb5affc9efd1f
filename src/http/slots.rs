//! The slots for the connections of one listener. If all slots are taken, a new connection replaces the connection that has
//! been idle for longest. If none is idle, it replaces a connection whose client does not read.

use crate::byte_budget::ByteBudget;
use crate::clock::Clock;
use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use recipes::Moment;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub(super) struct Slots {
    /// A permit for each free slot.
    free: Arc<Semaphore>,
    /// The slots of all connections. The entry of a connection that has ended can no longer be upgraded.
    open: Mutex<Vec<Weak<Slot>>>,
    clock: Clock,
}

/// A reason for which a connection may be closed, so that another one gets its slot.
#[derive(Clone, Copy)]
pub(super) enum CloseReason {
    /// No request of the connection is being answered.
    Idle,
    /// There are bytes to write, but the client does not read.
    Stalled,
}

impl CloseReason {
    /// Returns how long the reason must have existed before the connection is closed.
    fn grace_period(self) -> Duration {
        match self {
            // A new connection may have sent a request that was not read yet.
            Self::Idle => Duration::from_millis(100),
            Self::Stalled => Duration::from_secs(2),
        }
    }
}

/// While no slot is free, a connection that may be closed is looked for at this interval.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The slot of one connection. Dropping the last reference frees the slot.
pub(super) struct Slot {
    /// The moment since which the connection may be closed, for each [`CloseReason`]; `None` while the reason does not
    /// exist.
    closable_since: Mutex<[Option<Moment>; 2]>,
    clock: Clock,
    /// Notified when the connection must be closed.
    close: Notify,
    _permit: OwnedSemaphorePermit,
}

/// A guard for a request that is being answered. While the guard exists, the connection is not idle.
pub(super) struct BusySlot(Arc<Slot>);

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        let free = Arc::new(Semaphore::new(slots));
        Self { free, open: Mutex::default(), clock: Clock::system() }
    }

    /// Returns a slot for a new connection. If no slot is free, closes a connection, or waits until one can be closed.
    pub(super) async fn acquire(&self) -> Arc<Slot> {
        let permit = loop {
            if self.free.available_permits() == 0 {
                let _closes_one =
                    self.close_one(CloseReason::Idle) || self.close_one(CloseReason::Stalled);
            }
            // A closed connection frees its slot when its task ends.
            let freed = timeout(RETRY_INTERVAL, self.free.clone().acquire_owned());
            if let Ok(permit) = freed.await {
                break permit.expect("the semaphore is never closed");
            }
        };
        let slot = Arc::new(Slot {
            closable_since: Mutex::default(),
            clock: self.clock,
            close: Notify::new(),
            _permit: permit,
        });
        slot.allow_closing(CloseReason::Idle);
        let mut open = self.open.lock().expect("no code panics while holding it");
        open.retain(|slot| slot.strong_count() > 0);
        open.push(Arc::downgrade(&slot));
        slot
    }

    /// Closes all stalled connections whenever a reservation of memory fails, because their answers take memory until
    /// they are written.
    pub(super) async fn close_stalled_at_shortages(&self, budget: &ByteBudget) -> Infallible {
        loop {
            budget.shortage().await;
            while self.close_one(CloseReason::Stalled) {}
        }
    }

    /// Notifies one connection that it must close: the one for which this reason has existed longest. Returns false if
    /// no connection may be closed for this reason.
    fn close_one(&self, reason: CloseReason) -> bool {
        let now = self.clock.now();
        let open = self.open.lock().expect("no code panics while holding it");
        let closable = open.iter().filter_map(|slot| {
            let slot = slot.upgrade()?;
            let since = slot.closable_since()[reason as usize]?;
            (now.since(since) >= reason.grace_period()).then_some((since, slot))
        });
        let Some((_, slot)) = closable.min_by_key(|(since, _)| *since) else {
            return false;
        };
        // Clear both moments, so that the next call chooses another connection while this one closes.
        *slot.closable_since() = [None; 2];
        slot.close.notify_one();
        true
    }
}

impl Slot {
    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Allows closing the connection for this reason, once the grace period is over. If it was allowed before, the
    /// period does not begin again.
    pub(super) fn allow_closing(&self, reason: CloseReason) {
        self.closable_since()[reason as usize].get_or_insert_with(|| self.clock.now());
    }

    /// Forbids closing the connection for this reason.
    pub(super) fn forbid_closing(&self, reason: CloseReason) {
        self.closable_since()[reason as usize] = None;
    }

    /// Marks the connection as busy, because its client has sent a request.
    pub(super) fn mark_busy(self: &Arc<Self>) -> BusySlot {
        self.forbid_closing(CloseReason::Idle);
        BusySlot(self.clone())
    }

    fn closable_since(&self) -> MutexGuard<'_, [Option<Moment>; 2]> {
        self.closable_since.lock().expect("no code panics while holding it")
    }
}

impl BusySlot {
    /// Moves the guard into the body of the answer: the connection stays busy until hyper drops the body, which it does
    /// when it has put the end of the body into its write buffer.
    pub(super) fn attach_to(self, body: Body) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
        body.map_frame(move |frame| {
            // Naming `self` moves the guard into the closure.
            let _guard = &self;
            frame
        })
    }
}

impl Drop for BusySlot {
    fn drop(&mut self) {
        self.0.allow_closing(CloseReason::Idle);
    }
}
