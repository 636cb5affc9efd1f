//! The slots for the connections of one listener. If all slots are taken, a new connection replaces the connection that has
//! been idle for longest, or one whose client does not read.

use crate::byte_budget::ByteBudget;
use crate::clock::Clock;
use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use recipes::Moment;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// The connections that may be closed for others, in the order of the moments from which this is allowed.
    closable: Mutex<BTreeMap<Key, (Reason, Arc<Notify>)>>,
    /// Notified when a connection is added that may be closed earlier than all others.
    first_closable: Notify,
    keys: AtomicU64,
    clock: Clock,
}

/// The moment from which a connection may be closed, and a unique number.
type Key = (Moment, u64);

/// Why a connection may be closed for another.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// The slot of one connection. It becomes free when this is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// The connection's keys among those that may be closed, by reason.
    keys: Mutex<[Option<Key>; 2]>,
    /// Notified when the connection must be closed.
    close: Arc<Notify>,
    _taken: OwnedSemaphorePermit,
}

/// A request that is being answered: while this is held, its connection is not idle.
pub(super) struct BusySlot(Arc<Slot>);

impl Slots {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(slots)),
            closable: Mutex::default(),
            first_closable: Notify::new(),
            keys: AtomicU64::new(0),
            clock: Clock::system(),
        })
    }

    /// Returns a slot: at once, unless all connections are busy.
    pub(super) async fn one(self: &Arc<Self>) -> Arc<Slot> {
        let never = "the semaphore is never closed";
        let taken = loop {
            let freed = self.free.clone().acquire_owned();
            let first_closable = self.first_closable.notified();
            let is_free = self.free.available_permits() > 0;
            if is_free || self.close_one(Reason::Idle) || self.close_one(Reason::Stalled) {
                break freed.await.expect(never);
            }
            let closable_at = self.closable().first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                freed = freed => break freed.expect(never),
                () = self.clock.sleep_until(closable_at) => {}
                () = first_closable => {}
            }
        };
        let slots = self.clone();
        let slot = Slot { slots, keys: Mutex::default(), close: Arc::default(), _taken: taken };
        slot.may_be_closed(Reason::Idle);
        Arc::new(slot)
    }

    /// Closes all stalled connections whenever a reservation of memory fails.
    pub(super) async fn close_stalled_when_short(&self, budget: &ByteBudget) -> Infallible {
        loop {
            budget.shortage().await;
            while self.close_one(Reason::Stalled) {}
        }
    }

    /// Closes the connection that could be closed for this reason for the longest time. Returns false if there is none.
    fn close_one(&self, wanted: Reason) -> bool {
        let mut closable = self.closable();
        let mut due = closable.range(..=(self.clock.now(), u64::MAX));
        let Some((key, _)) = due.find(|(_, (reason, _))| *reason == wanted) else { return false };
        let key = *key;
        closable.remove(&key).inspect(|(_, close)| close.notify_one()).is_some()
    }

    fn closable(&self) -> MutexGuard<'_, BTreeMap<Key, (Reason, Arc<Notify>)>> {
        self.closable.lock().expect("no code panics while holding it")
    }
}

impl Slot {
    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Allows closing the connection for another one, after a while.
    pub(super) fn may_be_closed(&self, reason: Reason) {
        let mut keys = self.keys();
        let key = &mut keys[reason as usize];
        if key.is_some() {
            return;
        }
        let at = self.slots.clock.now().after(reason.patience());
        let key = *key.insert((at, self.slots.keys.fetch_add(1, Ordering::Relaxed)));
        let mut closable = self.slots.closable();
        closable.insert(key, (reason, self.close.clone()));
        if closable.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.slots.first_closable.notify_waiters();
        }
    }

    /// Forbids closing the connection for this reason.
    pub(super) fn stays(&self, reason: Reason) {
        if let Some(key) = self.keys()[reason as usize].take() {
            self.slots.closable().remove(&key);
        }
    }

    /// Marks the connection as busy, because its client has sent a request.
    pub(super) fn answering(self: &Arc<Self>) -> BusySlot {
        self.stays(Reason::Idle);
        BusySlot(self.clone())
    }

    fn keys(&self) -> MutexGuard<'_, [Option<Key>; 2]> {
        self.keys.lock().expect("no code panics while holding it")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.stays(Reason::Idle);
        self.stays(Reason::Stalled);
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
