//! The slots for connections of one listener. An idle connection is closed after a while, and where all slots
//! are taken, the connection that has been idle for longest is closed for the next, or one whose client reads nothing.

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
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// The idle connections, those without a first request included.
    idle: Mutex<OldestFirst<KeepOpen>>,
    /// The connections with bytes to write of which the client takes none.
    stalled: Mutex<OldestFirst<Arc<Notify>>>,
    /// Notified when a connection becomes idle or stalls, and none was.
    first_idle: Notify,
    clock: Clock,
}

/// Connections in the order in which they were added, each with what closes it.
struct OldestFirst<T> {
    /// The key that was given last, 0 before the first. Keys only grow, so the first in the map is the oldest.
    last_key: u64,
    by_key: BTreeMap<u64, (Moment, T)>,
}

/// A client that reads nothing for so long is disconnected where others wait for its slot, or for its memory.
const STALL: Duration = Duration::from_secs(2);

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
    /// The connection's key among those that are stalled; 0 while it is not.
    stalled_key: AtomicU64,
    /// Notified when the stalled connection is to be closed.
    evicted: Arc<Notify>,
    _taken: OwnedSemaphorePermit,
}

/// A request that is being answered: while this is held, its connection is not idle and not closed for another.
pub(super) struct BusySlot {
    slot: Arc<Slot>,
    keep_open: Option<KeepOpen>,
}

impl<T> OldestFirst<T> {
    /// Returns the key, and whether there was no other.
    fn add(&mut self, now: Moment, closer: T) -> (u64, bool) {
        self.last_key += 1;
        let is_first = self.by_key.is_empty();
        self.by_key.insert(self.last_key, (now, closer));
        (self.last_key, is_first)
    }

    fn remove(&mut self, key: u64) -> Option<T> {
        self.by_key.remove(&key).map(|(_, closer)| closer)
    }

    fn oldest_since(&self) -> Option<Moment> {
        self.by_key.first_key_value().map(|(_, (since, _))| *since)
    }

    /// Takes the oldest, if it was added so long ago.
    fn take_oldest(&mut self, now: Moment, age: Duration) -> Option<T> {
        let oldest = self.by_key.first_entry()?;
        (now.since(oldest.get().0) >= age).then(|| oldest.remove().1)
    }
}

impl<T> Default for OldestFirst<T> {
    fn default() -> Self {
        Self { last_key: 0, by_key: BTreeMap::new() }
    }
}

impl Slots {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(slots));
        Arc::new(Self {
            free,
            idle: Mutex::default(),
            stalled: Mutex::default(),
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
            if self.evict_one() {
                break freed.await.expect(never);
            }
            let idle_at = self.idle().oldest_since().map(|since| since.after(GRACE));
            let stalled_at = self.stalled().oldest_since().map(|since| since.after(STALL));
            let evict_at = [idle_at, stalled_at].into_iter().flatten().min();
            tokio::select! {
                freed = freed => break freed.expect(never),
                () = self.clock.sleep_until(evict_at) => {}
                () = first_idle => {}
            }
        };
        let (keep_open, leave) = oneshot::channel();
        let slot = Arc::new(Slot {
            slots: self.clone(),
            idle_key: AtomicU64::new(0),
            stalled_key: AtomicU64::new(0),
            evicted: Arc::default(),
            _taken: taken,
        });
        slot.becomes_idle(keep_open);
        (slot, leave)
    }

    /// Closes connections that have been idle for so long, whether or not all slots are taken.
    pub(super) async fn close_idle_after(&self, patience: Duration) -> Infallible {
        loop {
            let first_idle = self.first_idle.notified();
            if self.evict_idle(patience) {
                continue;
            }
            let oldest_since = self.idle().oldest_since();
            match oldest_since {
                Some(since) => self.clock.sleep_until(Some(since.after(patience))).await,
                None => first_idle.await,
            }
        }
    }

    /// Closes all connections that are stalled, whenever there is not enough memory for others.
    pub(super) async fn close_stalled_when_short(&self, budget: &ByteBudget) -> Infallible {
        loop {
            budget.shortage().await;
            while self.evict_stalled() {}
        }
    }

    /// Closes the connection that has been idle for longest, or else stalled, if there is one that may be closed.
    fn evict_one(&self) -> bool {
        self.evict_idle(GRACE) || self.evict_stalled()
    }

    /// Closes the connection that has been idle for longest, if that is so long.
    fn evict_idle(&self, age: Duration) -> bool {
        // Dropping the sender ends the connection's `Leave`.
        self.idle().take_oldest(self.clock.now(), age).is_some()
    }

    /// Closes the connection that has been stalled for longest, if that is long enough.
    fn evict_stalled(&self) -> bool {
        let evicted = self.stalled().take_oldest(self.clock.now(), STALL);
        evicted.inspect(|evicted| evicted.notify_one()).is_some()
    }

    fn stalled(&self) -> MutexGuard<'_, OldestFirst<Arc<Notify>>> {
        self.stalled.lock().expect("no code panics while holding it")
    }

    fn idle(&self) -> MutexGuard<'_, OldestFirst<KeepOpen>> {
        self.idle.lock().expect("no code panics while holding it")
    }

    fn note_added(&self, is_first: bool) {
        if is_first {
            self.first_idle.notify_waiters();
        }
    }
}

impl Slot {
    fn becomes_idle(&self, keep_open: KeepOpen) {
        let mut idle = self.slots.idle();
        let (key, is_first) = idle.add(self.slots.clock.now(), keep_open);
        self.idle_key.store(key, Ordering::Relaxed);
        drop(idle);
        self.slots.note_added(is_first);
    }

    /// Takes the connection from among the idle ones; `None` if it was not idle, or is being closed.
    fn take_from_idle(&self) -> Option<KeepOpen> {
        let key = self.idle_key.load(Ordering::Relaxed);
        self.slots.idle().remove(key)
    }

    /// Ends when the connection is to be closed although it is being answered.
    pub(super) async fn is_evicted(&self) {
        self.evicted.notified().await;
    }

    /// Notes that the client takes nothing of what is to be written.
    pub(super) fn stalls(&self) {
        if self.stalled_key.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut stalled = self.slots.stalled();
        let (key, is_first) = stalled.add(self.slots.clock.now(), self.evicted.clone());
        self.stalled_key.store(key, Ordering::Relaxed);
        drop(stalled);
        self.slots.note_added(is_first);
    }

    /// Notes that the client has taken something.
    pub(super) fn goes_on(&self) {
        let key = self.stalled_key.load(Ordering::Relaxed);
        if key != 0 {
            self.stalled_key.store(0, Ordering::Relaxed);
            self.slots.stalled().remove(key);
        }
    }

    /// Marks that the connection's client has sent a request.
    pub(super) fn answering(self: &Arc<Self>) -> BusySlot {
        BusySlot { slot: self.clone(), keep_open: self.take_from_idle() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _dropped = self.take_from_idle();
        self.goes_on();
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
