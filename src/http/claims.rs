//! The claims of answers, such as that this member leads. They are checked again right before each write to the
//! connection.
//!
//! Between the evaluation of an answer and the system call that writes it, the process may be stopped for so long that
//! another member leads by then. The connection is closed instead of writing an answer whose claim no longer holds.

use super::slots::{CloseReason, Slot};
use crate::byte_budget::ReservedBytes;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

tokio::task_local! {
    static CURRENT: ConnectionClaims;
}

/// The claim of an answer: a function that returns true while the claim holds.
pub(super) type Claim = Box<dyn Fn() -> bool + Send>;

/// The claims of the answers on one connection, until the answers are written. A stream of events sets one claim after
/// another.
#[derive(Clone, Default)]
pub(super) struct ConnectionClaims(Arc<Mutex<PendingClaims>>);

#[derive(Default)]
struct PendingClaims {
    /// Earlier claims, whose bytes may not be written yet.
    earlier: Vec<Claim>,
    /// The claim of the bytes that are made from now on; `None` if they claim nothing.
    last: Option<Claim>,
    /// True if all bytes were written after `last` was set.
    is_written: bool,
    /// The memory of answers that may not be written yet.
    memory: Vec<ReservedBytes>,
}

impl ConnectionClaims {
    /// Returns the claims of the connection whose request this task answers. Without a connection, as in tests, nobody
    /// checks the returned claims.
    pub(super) fn current() -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_default()
    }

    /// Runs the future that makes an answer. The answer claims nothing, unless the future sets a claim.
    pub(super) async fn scope<T>(&self, answering: impl Future<Output = T>) -> T {
        self.claim(None);
        CURRENT.scope(self.clone(), answering).await
    }

    /// Sets the claim of the bytes that are made from now on; `None` if they claim nothing.
    pub(super) fn claim(&self, claim: Option<Claim>) {
        let mut pending = self.lock();
        let previous = std::mem::replace(&mut pending.last, claim);
        if !pending.is_written {
            // Bytes with the previous claim may still be in the buffer of hyper.
            pending.earlier.extend(previous);
        }
        pending.is_written = false;
    }

    /// Holds the memory of an answer until it is written.
    pub(super) fn hold(&self, memory: ReservedBytes) {
        self.lock().memory.push(memory);
    }

    /// Returns true if every claim whose bytes may not be written yet still holds.
    pub(super) fn still_hold(&self) -> bool {
        let pending = self.lock();
        pending.earlier.iter().chain(&pending.last).all(|claim| claim())
    }

    /// Drops the earlier claims, and the memory of the answers, because all bytes are written.
    pub(super) fn on_all_written(&self) {
        let mut pending = self.lock();
        pending.earlier.clear();
        pending.memory.clear();
        pending.is_written = true;
    }

    fn lock(&self) -> MutexGuard<'_, PendingClaims> {
        self.0.lock().expect("no code panics while holding it")
    }
}

/// A connection that fails instead of writing an answer that has become wrong, and that records whether its client reads.
pub(super) struct ClaimedStream<S> {
    pub(super) stream: S,
    pub(super) claims: ConnectionClaims,
    pub(super) slot: Arc<Slot>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ClaimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

// Vectored writes are not needed: `serve` disables them in hyper.
impl<S: AsyncWrite + Unpin> AsyncWrite for ClaimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.claims.still_hold() {
            let wrong = io::Error::new(ErrorKind::ConnectionAborted, "a claim no longer holds");
            return Poll::Ready(Err(wrong));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        match written {
            // The send buffer is full: the client does not read.
            Poll::Pending => self.slot.allow_closing(CloseReason::Stalled),
            Poll::Ready(_) => self.slot.forbid_closing(CloseReason::Stalled),
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        // Hyper flushes this stream when it has written its own buffer completely.
        self.claims.on_all_written();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    async fn over(stream: DuplexStream) -> ClaimedStream<DuplexStream> {
        let slot = Slots::new(1).acquire().await;
        ClaimedStream { stream, claims: ConnectionClaims::default(), slot }
    }

    fn holding() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }

    fn claim(holds: &Arc<AtomicBool>) -> Option<Claim> {
        let holds = holds.clone();
        Some(Box::new(move || holds.load(Ordering::Relaxed)))
    }

    #[tokio::test]
    async fn an_answer_whose_claim_no_longer_holds_is_not_written() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = over(ours).await;
        let holds = holding();
        stream.claims.claim(claim(&holds));
        stream.write_all(b"yes").await.unwrap();
        holds.store(false, Ordering::Relaxed);
        let refused = stream.write_all(b"yes").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionAborted);
        drop(stream);
        let mut read = String::new();
        theirs.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "yes");
    }

    #[tokio::test]
    async fn the_claim_of_a_written_answer_does_not_count_for_the_next_one() {
        let (ours, _theirs) = duplex(64);
        let mut stream = over(ours).await;
        let first = holding();
        stream.claims.claim(claim(&first));
        stream.write_all(b"yes").await.unwrap();
        stream.flush().await.unwrap();
        first.store(false, Ordering::Relaxed);
        stream.claims.scope(std::future::ready(())).await;
        stream.write_all(b"no").await.unwrap();
    }

    #[tokio::test]
    async fn a_claim_counts_until_its_answer_is_written_and_the_last_one_until_the_next() {
        let (ours, _theirs) = duplex(64);
        let mut stream = over(ours).await;
        let first = holding();
        let second = holding();
        for holds in [&first, &second] {
            stream.claims.claim(claim(holds));
        }
        first.store(false, Ordering::Relaxed);
        stream.write_all(b"no").await.unwrap_err();
        stream.flush().await.unwrap();
        stream.write_all(b"yes").await.expect("the first was written");
        second.store(false, Ordering::Relaxed);
        stream.flush().await.unwrap();
        stream.write_all(b"no").await.unwrap_err();
    }
}
