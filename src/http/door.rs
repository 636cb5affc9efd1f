//! Lets in as many at a time as this process can bear: who waits outside costs it nothing.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// More than anybody needs who asks from the same machine.
const CONNECTIONS_MAX: usize = 512;

pub struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection and its place, which is free again when it ends.
pub struct Visit {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Door {
    /// Keeps half of the file descriptors that the process may open for the election.
    pub fn new(listener: TcpListener) -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = files.and_then(|files| usize::try_from(files / 2).ok());
        let places = half.unwrap_or(CONNECTIONS_MAX).clamp(1, CONNECTIONS_MAX);
        Self { listener, places: Arc::new(Semaphore::new(places)) }
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        let place = self.places.clone().acquire_owned().await;
        let _place = place.expect("the semaphore is never closed");
        let (stream, from) = Listener::accept(&mut self.listener).await;
        (Visit { stream, _place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
