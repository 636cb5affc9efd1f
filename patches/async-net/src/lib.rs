//! The socket of async-net, as far as zookeeper-client uses it, on those of tokio: what is read wakes the thread
//! that reads it, and no other first. And what is asked together leaves together.

#![forbid(unsafe_code)]

use futures_io::{AsyncRead, AsyncWrite};
use std::{
    io::{Error, ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    net::ToSocketAddrs,
};

/// With more than this unsent, nothing is taken.
const ENOUGH: usize = 16 * 1024;

#[derive(Debug)]
pub struct TcpStream {
    inner: tokio::net::TcpStream,
    /// It leaves when it is flushed.
    unsent: Vec<u8>,
    held: Held,
}

/// What is unsent waits for one turn of its task, in which more may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    Asked,
    /// The same turn, or the next.
    Passed,
}

impl TcpStream {
    /// Tries each address that the name stands for.
    ///
    /// # Errors
    ///
    /// Those of the last address that was tried.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> Result<Self> {
        let inner = tokio::net::TcpStream::connect(address).await?;
        // What leaves, leaves at once.
        inner.set_nodelay(true)?;
        Ok(Self { inner, unsent: vec![], held: Held::No })
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(context, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(Error::from(ErrorKind::WriteZero)));
            }
            self.unsent.drain(..sent);
        }
        self.held = Held::No;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        match this.held {
            Held::No => {}
            Held::Asked => this.held = Held::Passed,
            // TLS does not flush again what was not flushed at once: it waits for the answer.
            Held::Passed => {
                if let Poll::Ready(sent) = this.poll_send(context) {
                    sent?;
                }
            }
        }
        let mut into = ReadBuf::new(into);
        ready!(Pin::new(&mut this.inner).poll_read(context, &mut into))?;
        Poll::Ready(Ok(into.filled().len()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        if this.unsent.len() > ENOUGH {
            ready!(this.poll_send(context))?;
        }
        this.unsent.extend_from_slice(from);
        Poll::Ready(Ok(from.len()))
    }

    /// Whoever asks two things sends them one after the other; so it is first looked whether there is more.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if !this.unsent.is_empty() && this.held == Held::No {
            this.held = Held::Asked;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.poll_send(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::{io::AsyncReadExt, net::TcpListener};

    #[tokio::test]
    async fn what_is_written_before_it_is_flushed_leaves_together() {
        let (mut ours, mut theirs) = pair().await;
        for word in [&b"one "[..], b"two"] {
            assert_eq!(write(&mut ours, word).await, word.len());
        }
        flush(&mut ours).await;
        assert_eq!(heard(&mut theirs).await, b"one two");
    }

    #[tokio::test]
    async fn what_is_written_in_the_turn_before_it_leaves_goes_along() {
        let (mut ours, mut theirs) = pair().await;
        write(&mut ours, b"one ").await;
        assert!(flush_once(&mut ours).await.is_pending());
        write(&mut ours, b"two").await;
        flush(&mut ours).await;
        assert_eq!(heard(&mut theirs).await, b"one two");
    }

    #[tokio::test]
    async fn whoever_flushes_only_once_and_then_reads_has_written() {
        let (mut ours, mut theirs) = pair().await;
        write(&mut ours, b"hello").await;
        assert!(flush_once(&mut ours).await.is_pending());
        let theirs = tokio::spawn(async move {
            let heard = heard(&mut theirs).await;
            tokio::io::AsyncWriteExt::write_all(&mut theirs, &heard).await.unwrap();
        });
        let mut echo = [0; 64];
        let read = poll_fn(|context| Pin::new(&mut ours).poll_read(context, &mut echo));
        let read = tokio::time::timeout(std::time::Duration::from_secs(5), read);
        assert_eq!(read.await.expect("it is sent").unwrap(), 5);
        theirs.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_taken_from_who_writes_more_than_is_read() {
        let (mut ours, mut theirs) = pair().await;
        let block = vec![7; 8 * 1024];
        let mut written = 0;
        while let Poll::Ready(count) =
            poll_fn(|context| Poll::Ready(Pin::new(&mut ours).poll_write(context, &block))).await
        {
            written += count.unwrap();
            assert!(written < 64 << 20, "it is kept in memory");
        }
        let reading = tokio::spawn(async move {
            let mut heard = vec![];
            theirs.read_to_end(&mut heard).await.unwrap();
            heard.len()
        });
        flush(&mut ours).await;
        poll_fn(|context| Pin::new(&mut ours).poll_close(context)).await.unwrap();
        assert_eq!(reading.await.unwrap(), written);
    }

    async fn pair() -> (TcpStream, tokio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ours, listener.accept().await.unwrap().0)
    }

    async fn write(stream: &mut TcpStream, words: &[u8]) -> usize {
        poll_fn(|context| Pin::new(&mut *stream).poll_write(context, words)).await.unwrap()
    }

    /// What has come in one piece.
    async fn heard(theirs: &mut tokio::net::TcpStream) -> Vec<u8> {
        let mut heard = Vec::with_capacity(64);
        theirs.read_buf(&mut heard).await.unwrap();
        heard
    }

    async fn flush_once(stream: &mut TcpStream) -> Poll<Result<()>> {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_flush(context))).await
    }

    async fn flush(stream: &mut TcpStream) {
        poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await.unwrap();
    }
}
