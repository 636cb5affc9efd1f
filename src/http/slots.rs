//! The slots for the connections of one listener. If all slots are taken, a new connection replaces the connection that has
//! been idle for longest, or one whose client does not read.

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
    free: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Slot>>>,
    clock: Clock,
}

/// Why a connection may be closed for another.
#[derive(Clone, Copy)]
pub(super) enum Reason {
    /// None of its requests is being answered. Also before the first request.
    Idle,
    /// There are bytes to write, but its client does not read.
    Stalled,
}

impl Reason {
    /// Returns how long the connection is kept open nevertheless.
    fn patience(self) -> Duration {
        match self {
            // A new connection may have sent a request that was not read yet.
            Self::Idle => Duration::from_millis(100),
            Self::Stalled => Duration::from_secs(2),
        }
    }
}

/// The interval at which a connection that waits for a slot looks for one that may be closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The slot of one connection. It becomes free when this is dropped.
pub(super) struct Slot {
    /// Since when the connection may be closed, by reason.
    since: Mutex<[Option<Moment>; 2]>,
    clock: Clock,
    /// Notified when the connection must be closed.
    close: Notify,
    _taken: OwnedSemaphorePermit,
}

/// A request that is being answered: while this is held, its connection is not idle.
pub(super) struct BusySlot(Arc<Slot>);

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        let free = Arc::new(Semaphore::new(slots));
        Self { free, open: Mutex::default(), clock: Clock::system() }
    }

    /// Returns a slot: at once, unless all connections are busy.
    pub(super) async fn one(&self) -> Arc<Slot> {
        let taken = loop {
            if self.free.available_permits() == 0 && !self.close_one(Reason::Idle) {
                self.close_one(Reason::Stalled);
            }
            let freed = timeout(RETRY_INTERVAL, self.free.clone().acquire_owned());
            if let Ok(taken) = freed.await {
                break taken.expect("the semaphore is never closed");
            }
        };
        let slot = Arc::new(Slot {
            since: Mutex::default(),
            clock: self.clock,
            close: Notify::new(),
            _taken: taken,
        });
        slot.may_be_closed(Reason::Idle);
        let mut open = self.open.lock().expect("no code panics while holding it");
        open.retain(|slot| slot.strong_count() > 0);
        open.push(Arc::downgrade(&slot));
        slot
    }

    /// Closes all stalled connections whenever a reservation of memory fails.
    pub(super) async fn close_stalled_when_short(&self, budget: &ByteBudget) -> Infallible {
        loop {
            budget.shortage().await;
            while self.close_one(Reason::Stalled) {}
        }
    }

    /// Closes the connection that could be closed for this reason for the longest time. Returns false if there is none.
    fn close_one(&self, reason: Reason) -> bool {
        let now = self.clock.now();
        let open = self.open.lock().expect("no code panics while holding it");
        let closable = open.iter().filter_map(|slot| {
            let slot = slot.upgrade()?;
            let since = slot.since()[reason as usize]?;
            (now.since(since) >= reason.patience()).then_some((since, slot))
        });
        let Some((_, slot)) = closable.min_by_key(|(since, _)| *since) else {
            return false;
        };
        // The connection is closed only once.
        *slot.since() = [None; 2];
        slot.close.notify_one();
        true
    }
}

impl Slot {
    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Allows closing the connection for another one, after a while.
    pub(super) fn may_be_closed(&self, reason: Reason) {
        self.since()[reason as usize].get_or_insert_with(|| self.clock.now());
    }

    /// Forbids closing the connection for this reason.
    pub(super) fn stays(&self, reason: Reason) {
        self.since()[reason as usize] = None;
    }

    /// Marks the connection as busy, because its client has sent a request.
    pub(super) fn answering(self: &Arc<Self>) -> BusySlot {
        self.stays(Reason::Idle);
        BusySlot(self.clone())
    }

    fn since(&self) -> MutexGuard<'_, [Option<Moment>; 2]> {
        self.since.lock().expect("no code panics while holding it")
    }
}

impl BusySlot {
    /// Returns the body with this slot inside: the connection is busy until the whole body has been taken.
    pub(super) fn with(self, body: Body) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
        body.map_frame(move |frame| {
            let _answering = &self;
            frame
        })
    }
}

impl Drop for BusySlot {
    fn drop(&mut self) {
        self.0.may_be_closed(Reason::Idle);
    }
}
