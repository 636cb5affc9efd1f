//! Serves connections within limits, so that no visitor can take what the election or the next
//! visitor needs.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// What the visitors of one listener may take.
#[derive(Clone, Copy)]
pub struct Limits {
    connections: usize,
    /// For the head of a request, and between two requests.
    to_ask: Duration,
}

impl Limits {
    /// For the application: at most a third of the files that the process may open.
    pub fn for_application() -> Self {
        Self { connections: files(3).clamp(1, 1024), to_ask: Duration::from_secs(30) }
    }

    /// For probes, from wherever they come: few at a time, and each soon over.
    pub fn for_probes() -> Self {
        Self { connections: files(6).clamp(1, 64), to_ask: Duration::from_secs(5) }
    }
}

/// A longer head is answered 431.
const HEAD_MAX: usize = 16 * 1024;

/// Where visitors come in.
pub trait Door {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Door for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = Self::accept(self).await?;
        // Answers are small and awaited: none shall wait for the next one.
        let _slower_without = stream.set_nodelay(true);
        Ok(stream)
    }
}

impl Door for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }
}

/// Serves until `closing` ends, and then until what is under way has been answered.
pub async fn serve(
    door: impl Door,
    router: Router,
    limits: Limits,
    closing: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.to_ask).max_buf_size(HEAD_MAX);
    tokio::pin!(closing);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut closing => return graceful.shutdown().await,
            // Who waits outside costs us nothing.
            accepted = async {
                let place = places.clone().acquire_owned().await;
                (accept(&door).await, place.expect("the semaphore is never closed"))
            } => accepted,
        };
        let service = TowerToHyperService::new(router.clone());
        let visit = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = visit.await {
                debug!(%error, "a visitor left");
            }
            drop(place);
        });
    }
}

/// One part in so many of the files that the process may open. What no listener takes is the
/// election's.
fn files(part: u64) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files / part).unwrap_or(usize::MAX))
}

async fn accept<D: Door>(door: &D) -> D::Stream {
    loop {
        match door.accept().await {
            Ok(stream) => return stream,
            Err(error) => {
                warn!("cannot take a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
