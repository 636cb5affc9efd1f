//! The slots for connections of one listener. An idle connection is closed after a while, and where all slots
//! are taken, the connection that has been idle for longest is closed for the next.

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
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

pub(super) struct Slots {
    free: Arc<Semaphore>,
    idle: Mutex<IdleConnections>,
    /// Notified when a connection becomes idle and none was.
    first_idle: Notify,
    clock: Clock,
}

/// The idle connections, those without a first request included, in the order in which that began.
#[derive(Default)]
struct IdleConnections {
    /// The key that was given last. Keys only grow, so the first in the map has been idle for longest.
    last_key: u64,
    /// The start of each connection's idle time, and the guard that keeps it open.
    by_key: BTreeMap<u64, (Moment, KeepOpen)>,
}

/// A new connection may have sent a request that was not read yet, so it is not closed before this has passed.
const GRACE: Duration = Duration::from_millis(100);

/// Its connection is closed when this is dropped.
type KeepOpen = oneshot::Sender<()>;

/// Ends when the connection has to be closed.
pub(super) type Leave = oneshot::Receiver<()>;

/// The slot of one connection, for as long as that lasts.
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// The connection's key among those that are idle.
    idle_key: AtomicU64,
    _taken: OwnedSemaphorePermit,
}

/// A request that is being answered: while this is held, its connection is not idle and not closed for another.
pub(super) struct BusySlot {
    slot: Arc<Slot>,
    keep_open: Option<KeepOpen>,
}

impl Slots {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(slots));
        Arc::new(Self {
            free,
            idle: Mutex::default(),
            first_idle: Notify::new(),
            clock: Clock::system(),
        })
    }

    /// Returns a slot, at once unless all connections are being answered.
    pub(super) async fn one(self: &Arc<Self>) -> (Arc<Slot>, Leave) {
        let never = "the semaphore is never closed";
        let taken = loop {
            if let Ok(free) = self.free.clone().try_acquire_owned() {
                break free;
            }
            let freed = self.free.clone().acquire_owned();
            let first_idle = self.first_idle.notified();
            match self.longest_idle_since() {
                Some(since) if self.clock.now().since(since) >= GRACE => {
                    self.evict_oldest();
                    break freed.await.expect(never);
                }
                Some(since) => tokio::select! {
                    freed = freed => break freed.expect(never),
                    () = self.clock.sleep_until(Some(since.after(GRACE))) => {}
                },
                None => tokio::select! {
                    freed = freed => break freed.expect(never),
                    () = first_idle => {}
                },
            }
        };
        let (keep_open, leave) = oneshot::channel();
        let idle_key = AtomicU64::new(0);
        let slot = Arc::new(Slot { slots: self.clone(), idle_key, _taken: taken });
        slot.becomes_idle(keep_open);
        (slot, leave)
    }

    /// Closes connections that have been idle for so long, whether or not all slots are taken.
    pub(super) async fn close_idle_after(&self, patience: Duration) -> Infallible {
        loop {
            let first_idle = self.first_idle.notified();
            match self.longest_idle_since() {
                Some(since) if self.clock.now().since(since) >= patience => self.evict_oldest(),
                Some(since) => self.clock.sleep_until(Some(since.after(patience))).await,
                None => first_idle.await,
            }
        }
    }

    fn longest_idle_since(&self) -> Option<Moment> {
        self.idle().by_key.first_key_value().map(|(_, (since, _))| *since)
    }

    /// Closes the connection that has been idle for longest.
    fn evict_oldest(&self) {
        // Dropping the sender ends the connection's `Leave`.
        drop(self.idle().by_key.pop_first());
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().expect("no code panics while holding it")
    }
}

impl Slot {
    fn becomes_idle(&self, keep_open: KeepOpen) {
        let mut idle = self.slots.idle();
        idle.last_key += 1;
        self.idle_key.store(idle.last_key, Ordering::Relaxed);
        let key = idle.last_key;
        let is_first = idle.by_key.is_empty();
        idle.by_key.insert(key, (self.slots.clock.now(), keep_open));
        drop(idle);
        if is_first {
            self.slots.first_idle.notify_waiters();
        }
    }

    /// Takes the connection from among the idle ones; `None` if it was not idle, or is being closed.
    fn take_from_idle(&self) -> Option<KeepOpen> {
        let key = self.idle_key.load(Ordering::Relaxed);
        self.slots.idle().by_key.remove(&key).map(|(_, keep_open)| keep_open)
    }

    /// Marks that the connection's client has sent a request.
    pub(super) fn answering(self: &Arc<Self>) -> BusySlot {
        BusySlot { slot: self.clone(), keep_open: self.take_from_idle() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _dropped = self.take_from_idle();
    }
}

impl BusySlot {
    /// Returns the body with this inside: its connection counts as being answered until all of it is taken.
    pub(super) fn with(self, body: Body) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
        body.map_frame(move |frame| {
            let _answering = &self;
            frame
        })
    }
}

impl Drop for BusySlot {
    fn drop(&mut self) {
        if let Some(keep_open) = self.keep_open.take() {
            self.slot.becomes_idle(keep_open);
        }
    }
}
