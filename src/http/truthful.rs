//! A connection that writes no answer whose claim does not hold any more, and notes whether its client reads.

use super::serve::AnswerClaim;
use super::slots::Slot;
use crate::byte_budget::ReservedBytes;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Checks the claim of each answer that is being written, and fails rather than write one whose claim does not
/// hold any more: the connection is closed then.
pub(super) struct TruthfulStream<S> {
    stream: S,
    claims: ConnectionClaims,
    /// Notes whether the client takes what is written.
    slot: Arc<Slot>,
}

/// The claims of one connection: that of the last answer, and those of answers before it that may not be
/// written in full yet.
#[derive(Clone, Default)]
pub(super) struct ConnectionClaims(Arc<ClaimsState>);

#[derive(Default)]
struct ClaimsState {
    /// Whether there may be any. Most answers claim nothing: without this, each would lock thrice for that.
    any: AtomicBool,
    unwritten: Mutex<PendingClaims>,
}

#[derive(Default)]
struct PendingClaims {
    /// In the order of their answers; `None` for one that claims nothing.
    claims: Vec<Option<Arc<dyn AnswerClaim>>>,
    /// Of the answers that may not be written in full yet.
    memory: Vec<Arc<ReservedBytes>>,
    /// Whether all bytes so far are written. The last answer's body may have more to come.
    is_flushed: bool,
}

impl ConnectionClaims {
    /// Notes that all bytes from now on may be of this answer.
    pub(super) fn begin(
        &self,
        claim: Option<Arc<dyn AnswerClaim>>,
        memory: Option<Arc<ReservedBytes>>,
    ) {
        if claim.is_none() && memory.is_none() && !self.claims_any() {
            return;
        }
        let mut unwritten = self.lock();
        unwritten.memory.extend(memory);
        if unwritten.is_flushed {
            unwritten.claims.clear();
        }
        unwritten.claims.push(claim);
        unwritten.is_flushed = false;
        self.note_any(&unwritten);
    }

    /// Notes that all bytes so far are written: only the last answer may have more of them.
    fn all_written(&self) {
        if !self.claims_any() {
            return;
        }
        let mut unwritten = self.lock();
        unwritten.memory.clear();
        let before = unwritten.claims.len().saturating_sub(1);
        unwritten.claims.drain(..before);
        if let [Some(last)] = &unwritten.claims[..] {
            last.all_written();
        }
        unwritten.is_flushed = true;
        self.note_any(&unwritten);
    }

    /// Fails if a claim does not hold any more of an answer that may be in the bytes to be written.
    fn check(&self) -> io::Result<()> {
        if !self.claims_any() {
            return Ok(());
        }
        let mut unwritten = self.lock();
        unwritten.is_flushed = false;
        if unwritten.claims.iter().flatten().all(|claim| claim.is_still_so()) {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::ConnectionAborted, "the answer has become wrong"))
    }

    fn claims_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    fn note_any(&self, unwritten: &PendingClaims) {
        let any = !unwritten.memory.is_empty() || unwritten.claims.iter().any(Option::is_some);
        self.0.any.store(any, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, PendingClaims> {
        self.0.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> TruthfulStream<S> {
    pub(super) fn over(stream: S, slot: Arc<Slot>) -> Self {
        Self { stream, claims: ConnectionClaims::default(), slot }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.slot.stalls(),
            Poll::Ready(_) => self.slot.goes_on(),
        }
        written
    }

    pub(super) fn claims(&self) -> ConnectionClaims {
        self.claims.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TruthfulStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TruthfulStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.claims.check()?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.claims.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // Hyper flushes when it has handed over all that it has.
        if flushed.is_ready() {
            self.claims.all_written();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    struct Switch(AtomicBool);

    impl AnswerClaim for Switch {
        fn is_still_so(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    async fn over(client: DuplexStream) -> TruthfulStream<DuplexStream> {
        let (slot, _leave) = Slots::new(1).one().await;
        TruthfulStream::over(client, slot)
    }

    fn holding() -> Arc<Switch> {
        Arc::new(Switch(AtomicBool::new(true)))
    }

    #[tokio::test]
    async fn an_answer_whose_claim_no_longer_holds_is_not_written() {
        let (ours, mut theirs) = duplex(64);
        let mut stream = over(ours).await;
        let claim = holding();
        stream.claims().begin(Some(claim.clone()), None);
        stream.write_all(b"yes").await.unwrap();
        claim.0.store(false, Ordering::Relaxed);
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
        stream.claims().begin(Some(first.clone()), None);
        stream.write_all(b"yes").await.unwrap();
        stream.flush().await.unwrap();
        first.0.store(false, Ordering::Relaxed);
        stream.claims().begin(None, None);
        stream.write_all(b"no").await.unwrap();
    }

    #[tokio::test]
    async fn a_claim_counts_until_its_answer_is_written_and_the_last_one_for_ever() {
        let (ours, _theirs) = duplex(64);
        let mut stream = over(ours).await;
        let first = holding();
        let second = holding();
        for claim in [&first, &second] {
            stream.claims().begin(Some(claim.clone()), None);
        }
        first.0.store(false, Ordering::Relaxed);
        stream.write_all(b"no").await.unwrap_err();
        stream.flush().await.unwrap();
        stream.write_all(b"yes").await.expect("the first was written");
        second.0.store(false, Ordering::Relaxed);
        stream.flush().await.unwrap();
        stream.write_all(b"no").await.unwrap_err();
    }
}
