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
    resting: Mutex<Resting>,
    /// Notified when a connection becomes idle and none was.
    rests: Notify,
    clock: Clock,
}

/// The idle connections, those without a first request included, in the order in which that began.
#[derive(Default)]
struct Resting {
    turns: u64,
    clients: BTreeMap<u64, (Moment, Welcome)>,
}

/// A new connection may have sent a request that was not read yet, so it is not closed before this has passed.
const GRACE: Duration = Duration::from_millis(100);

/// The server copies what it writes into a buffer that it keeps as long as the connection: so a longer answer
/// is written in pieces of this size.
const PIECE_MAX: usize = 8 * 1024;

/// Its connection is closed when this is dropped.
type Welcome = oneshot::Sender<()>;

/// Ends when the connection has to be closed.
pub(super) type Leave = oneshot::Receiver<()>;

/// The slot of one connection, for as long as that lasts.
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// The connection's key among those that are idle.
    turn: AtomicU64,
    _taken: OwnedSemaphorePermit,
}

/// While there is one, its connection is being answered, and is not closed for another.
pub(super) struct Busy {
    slot: Arc<Slot>,
    welcome: Option<Welcome>,
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
            resting: Mutex::default(),
            rests: Notify::new(),
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
            let (freed, rests) = (self.free.clone().acquire_owned(), self.rests.notified());
            match self.first_rests_since() {
                Some(since) if self.clock.now().since(since) >= GRACE => {
                    self.send_first_away();
                    break freed.await.expect(never);
                }
                Some(since) => tokio::select! {
                    freed = freed => break freed.expect(never),
                    () = self.clock.sleep_until(Some(since.after(GRACE))) => {}
                },
                None => tokio::select! {
                    freed = freed => break freed.expect(never),
                    () = rests => {}
                },
            }
        };
        let (welcome, leave) = oneshot::channel();
        let turn = AtomicU64::new(0);
        let slot = Arc::new(Slot { slots: self.clone(), turn, _taken: taken });
        slot.rest(welcome);
        (slot, leave)
    }

    /// Closes connections that have been idle for so long, full or not.
    pub(super) async fn keep_free_of_who_asks_nothing_for(&self, patience: Duration) -> Infallible {
        loop {
            let rests = self.rests.notified();
            match self.first_rests_since() {
                Some(since) if self.clock.now().since(since) >= patience => self.send_first_away(),
                Some(since) => self.clock.sleep_until(Some(since.after(patience))).await,
                None => rests.await,
            }
        }
    }

    fn first_rests_since(&self) -> Option<Moment> {
        self.resting().clients.first_key_value().map(|(_, (since, _))| *since)
    }

    fn send_first_away(&self) {
        // Dropping the sender ends the connection's `Leave`.
        drop(self.resting().clients.pop_first());
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().expect("no code panics while holding it")
    }
}

impl Slot {
    fn rest(&self, welcome: Welcome) {
        let mut resting = self.slots.resting();
        resting.turns += 1;
        self.turn.store(resting.turns, Ordering::Relaxed);
        let (turn, is_first) = (resting.turns, resting.clients.is_empty());
        resting.clients.insert(turn, (self.slots.clock.now(), welcome));
        drop(resting);
        if is_first {
            self.slots.rests.notify_waiters();
        }
    }

    fn rest_no_more(&self) -> Option<Welcome> {
        let turn = self.turn.load(Ordering::Relaxed);
        self.slots.resting().clients.remove(&turn).map(|(_, welcome)| welcome)
    }

    /// Marks that the connection's client has sent a request.
    pub(super) fn answering(self: &Arc<Self>) -> Busy {
        Busy { slot: self.clone(), welcome: self.rest_no_more() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _dropped = self.rest_no_more();
    }
}

impl Busy {
    pub(super) fn with(self, body: Body) -> AnswerBody {
        AnswerBody { body, rest: Bytes::new(), _answering: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(welcome) = self.welcome.take() {
            self.slot.rest(welcome);
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
    async fn a_long_answer_is_told_whole_and_in_pieces() {
        let long: Vec<u8> = (0..=u8::MAX).cycle().take(3 * PIECE_MAX + 1).collect();
        let (slot, _leave) = Slots::new(1).one().await;
        let mut answer = slot.answering().with(Body::from(long.clone()));
        let mut told = vec![];
        while told.len() < long.len() {
            assert!(!answer.is_end_stream());
            assert_eq!(answer.size_hint().exact(), Some((long.len() - told.len()) as u64));
            let piece = answer.frame().await.expect("there is more").expect("nothing fails");
            let piece = piece.into_data().expect("nothing but data");
            assert!(piece.len() <= PIECE_MAX, "{}", piece.len());
            told.extend_from_slice(&piece);
        }
        assert!(answer.is_end_stream() && told == long);
    }
}
