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
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

pub(super) struct Slots {
    free: Arc<Semaphore>,
    idle: Mutex<IdleConnections>,
    stalled: Mutex<StalledConnections>,
    /// Notified when a connection becomes idle or stalls, and none was.
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

/// The connections with bytes to write whose clients take none, in the order in which that began.
#[derive(Default)]
struct StalledConnections {
    /// As that of [`IdleConnections`].
    last_key: u64,
    by_key: BTreeMap<u64, (Moment, Arc<Notify>)>,
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
            let idle_at = self.longest_idle_since().map(|since| since.after(GRACE));
            let stalled_at = self.longest_stalled_since().map(|since| since.after(STALL));
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
            match self.longest_idle_since() {
                Some(since) if self.clock.now().since(since) >= patience => self.evict_oldest(),
                Some(since) => self.clock.sleep_until(Some(since.after(patience))).await,
                None => first_idle.await,
            }
        }
    }

    /// Closes all connections that are stalled, whenever there is not enough memory for others.
    pub(super) async fn close_stalled_when_short(&self, budget: &ByteBudget) -> Infallible {
        loop {
            budget.is_short().await;
            while self.evict_stalled() {}
        }
    }

    /// Closes the connection that has been idle for longest, or else stalled, if there is one that may be closed.
    fn evict_one(&self) -> bool {
        let is_idle =
            self.longest_idle_since().is_some_and(|since| self.clock.now().since(since) >= GRACE);
        if is_idle {
            self.evict_oldest();
        }
        is_idle || self.evict_stalled()
    }

    /// Closes the connection that has been stalled for longest, if that is long enough.
    fn evict_stalled(&self) -> bool {
        let now = self.clock.now();
        let mut stalled = self.stalled();
        let oldest = stalled.by_key.first_entry();
        let Some(oldest) = oldest.filter(|oldest| now.since(oldest.get().0) >= STALL) else {
            return false;
        };
        let (_, evicted) = oldest.remove();
        evicted.notify_one();
        true
    }

    fn longest_stalled_since(&self) -> Option<Moment> {
        self.stalled().by_key.first_key_value().map(|(_, (since, _))| *since)
    }

    fn stalled(&self) -> MutexGuard<'_, StalledConnections> {
        self.stalled.lock().expect("no code panics while holding it")
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

    /// Ends when the connection is to be closed although it is being answered.
    pub(super) async fn is_evicted(&self) {
        self.evicted.notified().await;
    }

    /// Returns the connection, and notes from now on whether its client takes what is written.
    pub(super) fn watching_writes<S>(self: &Arc<Self>, stream: S) -> WatchedWrites<S> {
        WatchedWrites { stream, slot: self.clone() }
    }

    fn stalls(&self) {
        if self.stalled_key.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut stalled = self.slots.stalled();
        stalled.last_key += 1;
        let key = stalled.last_key;
        self.stalled_key.store(key, Ordering::Relaxed);
        let is_first = stalled.by_key.is_empty();
        stalled.by_key.insert(key, (self.slots.clock.now(), self.evicted.clone()));
        drop(stalled);
        if is_first {
            self.slots.first_idle.notify_waiters();
        }
    }

    fn goes_on(&self) {
        let key = self.stalled_key.load(Ordering::Relaxed);
        if key != 0 {
            self.stalled_key.store(0, Ordering::Relaxed);
            self.slots.stalled().by_key.remove(&key);
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

/// A connection whose slot knows whether its client takes what is written.
pub(super) struct WatchedWrites<S> {
    stream: S,
    slot: Arc<Slot>,
}

impl<S> WatchedWrites<S> {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.slot.stalls(),
            Poll::Ready(_) => self.slot.goes_on(),
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
