//! The slots for connections of one listener. An idle connection is closed after a while, and where all slots
//! are taken, the connection that has been idle for longest is closed for the next.

use crate::clock::Clock;
use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use recipes::Moment;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
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
    /// Since when each is idle, and what keeps it open.
    by_key: BTreeMap<u64, (Moment, KeepOpen)>,
}

/// A new connection may have sent a request that was not read yet, so it is not closed before this has passed.
const GRACE: Duration = Duration::from_millis(100);

/// The server copies what it writes into a buffer that it keeps as long as the connection: so a longer answer
/// is written in pieces of this size.
const PIECE_MAX: usize = 8 * 1024;

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
pub(super) struct Busy {
    slot: Arc<Slot>,
    keep_open: Option<KeepOpen>,
}

/// The body of an answer: its connection counts as being answered until all of it is taken.
pub(super) struct AnswerBody {
    body: Body,
    /// The part that the body has given, and the server has not taken yet.
    rest: Bytes,
    _answering: Busy,
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
            let (freed, first_idle) =
                (self.free.clone().acquire_owned(), self.first_idle.notified());
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
    pub(super) async fn keep_free_of_who_asks_nothing_for(&self, patience: Duration) -> Infallible {
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
        let (key, is_first) = (idle.last_key, idle.by_key.is_empty());
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
    pub(super) fn answering(self: &Arc<Self>) -> Busy {
        Busy { slot: self.clone(), keep_open: self.take_from_idle() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _dropped = self.take_from_idle();
    }
}

impl Busy {
    pub(super) fn with(self, body: Body) -> AnswerBody {
        AnswerBody { body, rest: Bytes::new(), _answering: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(keep_open) = self.keep_open.take() {
            self.slot.becomes_idle(keep_open);
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PIECE_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_long_answer_is_sent_whole_and_in_pieces() {
        let long: Vec<u8> = (0..=u8::MAX).cycle().take(3 * PIECE_MAX + 1).collect();
        let (slot, _leave) = Slots::new(1).one().await;
        let mut answer = slot.answering().with(Body::from(long.clone()));
        let mut read = vec![];
        while read.len() < long.len() {
            assert!(!answer.is_end_stream());
            assert_eq!(answer.size_hint().exact(), Some((long.len() - read.len()) as u64));
            let piece = answer.frame().await.expect("there is more").expect("nothing fails");
            let piece = piece.into_data().expect("nothing but data");
            assert!(piece.len() <= PIECE_MAX, "{}", piece.len());
            read.extend_from_slice(&piece);
        }
        assert!(answer.is_end_stream() && read == long);
    }
}
