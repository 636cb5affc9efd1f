//! Serves connections within limits, so that no client can use up the file descriptors and the memory that the election
//! or the next client needs.

use super::claims::{ClaimedStream, ConnectionClaims};
use super::slots::Slots;
use super::{Service, host_check};
use crate::byte_budget::ByteBudget;
use axum::body::Body;
use axum::serve::Listener;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt::{set_socket_send_buffer_size, set_tcp_nodelay};
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio_io_timeout::TimeoutStream;
use tracing::debug;

/// The limits for the clients of one listener.
#[derive(Clone)]
pub struct ConnectionLimits {
    connections: usize,
    /// The time limit for the head of a request to arrive, from the beginning of the connection or from the previous
    /// answer.
    request_timeout: Duration,
    /// The time limit for writing any part of an answer. The connection of a client that reads nothing for so long is
    /// closed, because the client is gone, or is stuck.
    write_timeout: Duration,
    /// The memory for requests and answers in flight, shared by all listeners.
    budget: ByteBudget,
}

impl ConnectionLimits {
    /// Returns the limits of the application's listener. Its connections take at most a third of the files that the
    /// process may open.
    pub fn for_application(budget: ByteBudget) -> Self {
        Self {
            connections: share_of_files(3).clamp(1, 2048),
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(300),
            budget,
        }
    }

    /// Returns the limits of the probe listener. Its time limits are short, because probes are.
    pub fn for_probes(budget: ByteBudget) -> Self {
        Self {
            connections: share_of_files(6).clamp(1, 512),
            request_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            budget,
        }
    }

    pub fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    /// Returns how many clients may wait for a change. A quarter of the slots is left for clients that do not wait.
    pub(super) fn waiting(&self) -> usize {
        self.connections * 3 / 4
    }
}

/// The maximum length of the head of a request; a longer one is answered with 431. Hyper allows no smaller limit. Incomplete
/// heads are not charged to the memory budget: on 2,048 connections together they take at most 16 MiB.
const HEAD_MAX: usize = 8 * 1024;
/// The size of a socket's send buffer. For a client that does not read, the kernel buffers at most about twice as much.
/// By default, it would buffer megabytes.
const SEND_BUFFER: usize = 32 * 1024;

/// A listening socket.
pub trait Accept: Listener<Io: AsFd> {
    /// Returns true for a TCP socket on the loopback interface. Browsers on this machine can connect to it, so requests
    /// from web pages are refused: see `host_check`. Browsers cannot connect to a Unix socket.
    fn is_on_loopback(&self) -> bool;
}

impl Accept for TcpListener {
    fn is_on_loopback(&self) -> bool {
        self.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }
}

impl Accept for UnixListener {
    fn is_on_loopback(&self) -> bool {
        false
    }
}

/// Serves until `closing` completes, and then until the requests in progress have been answered.
pub async fn serve(
    listener: impl Accept,
    service: Service,
    limits: ConnectionLimits,
    closing: impl Future<Output = ()>,
) {
    let slots = Slots::new(limits.connections);
    tokio::select! {
        () = accept_all(listener, service, &slots, &limits, closing) => {}
        never = slots.close_stalled_at_shortages(&limits.budget) => match never {},
    }
}

async fn accept_all(
    mut listener: impl Accept,
    service: Service,
    slots: &Slots,
    limits: &ConnectionLimits,
    closing: impl Future<Output = ()>,
) {
    // The host name is checked here, before the router, so that no route is served without the check.
    let is_on_loopback = listener.is_on_loopback();
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    // Without `writev`, hyper copies head and body into one buffer. The kernel writes one buffer faster than two.
    http.max_buf_size(HEAD_MAX).writev(false);
    http.timer(TokioTimer::new()).header_read_timeout(limits.request_timeout);
    tokio::pin!(closing);
    loop {
        let (stream, slot) = tokio::select! {
            () = &mut closing => return graceful.shutdown().await,
            // Accept first: `acquire` closes an idle connection only when a new one has come. While no slot can be
            // freed, one new connection waits here, and the others in the kernel's backlog, where they cost nothing.
            accepted = async { (listener.accept().await.0, slots.acquire().await) } => accepted,
        };
        // Send each small answer at once, instead of waiting for more data. This fails for a Unix socket, which does not
        // wait.
        let _ignored = set_tcp_nodelay(&stream, true);
        // If this fails, the buffer keeps its default size.
        let _ignored = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.write_timeout));
        let claims = ConnectionClaims::default();
        let client =
            ClaimedStream { stream: Box::pin(stream), claims: claims.clone(), slot: slot.clone() };
        let service = service.clone();
        let request_slot = slot.clone();
        let handler = service_fn(move |request: hyper::Request<Incoming>| {
            let busy = request_slot.mark_busy();
            let request = request.map(boxed_unless_empty);
            let refusal = if is_on_loopback { host_check::refusal(&request) } else { None };
            let service = service.clone();
            let claims = claims.clone();
            async move {
                let answer = claims.scope(async {
                    if let Some(refusal) = refusal {
                        return refusal;
                    }
                    let Ok(answer) = service.call(request).await;
                    answer
                });
                Ok::<_, Infallible>(answer.await.map(|body| busy.attach_to(body)))
            }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(client), handler));
        tokio::spawn(async move {
            tokio::select! {
                // Poll `closed` first: otherwise a request could be read, and then dropped without an answer.
                biased;
                () = slot.closed() => debug!("a connection was closed for another one"),
                ended = connection => if let Err(error) = ended {
                    debug!(%error, "a connection failed");
                },
            }
        });
    }
}

/// Converts the body of a request. A body without bytes is replaced, because boxing it would allocate memory.
fn boxed_unless_empty(body: Incoming) -> Body {
    if body.is_end_stream() { Body::empty() } else { Body::new(body) }
}

/// Returns the number of files that the process may open, divided by `divisor`. The files that the connections of the
/// listeners do not take are left to the election.
fn share_of_files(divisor: u64) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files / divisor).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use futures_util::StreamExt;
    use hyper_util::service::TowerToHyperService;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream, UnixStream};
    use tokio::sync::oneshot;

    fn budget() -> ByteBudget {
        ByteBudget::of_mib(12)
    }

    const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
    /// Long enough for a busy machine.
    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_slow_reader_is_served_on_and_a_stuck_one_is_disconnected() {
        let piece = "more ".repeat(1000);
        let pieces = Arc::<AtomicUsize>::default();
        let (until_dropped, mut dropped) = oneshot::channel::<()>();
        let until_dropped = Arc::new(Mutex::new(Some(until_dropped)));
        let made = pieces.clone();
        let size = piece.len();
        let endless = async move || {
            let held = until_dropped.lock().expect("no code panics while holding it").take();
            Body::from_stream(futures_util::stream::repeat_with(move || {
                let _held = &held;
                made.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(piece.clone())
            }))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let limits = ConnectionLimits {
            connections: 1,
            request_timeout: LIMIT,
            write_timeout: WRITE_TIMEOUT,
            budget: budget(),
        };
        let router = Router::new().route("/", get(endless));
        let serving = tokio::spawn(serve(
            listener,
            TowerToHyperService::new(router),
            limits,
            std::future::pending(),
        ));
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(16 * 1024).expect("a size that is allowed");
        let client = socket.connect(address).await.expect("it listens");
        client.writable().await.expect("it is open");
        client.try_write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("there is room");

        let begun = Instant::now();
        while begun.elapsed() < 3 * WRITE_TIMEOUT {
            tokio::time::sleep(WRITE_TIMEOUT / 4).await;
            // Read a lot at once: the kernel opens a full TCP window only when there is much room again.
            while matches!(client.try_read(&mut [0; 64 * 1024]), Ok(1..)) {}
        }
        let still = Err(oneshot::error::TryRecvError::Empty);
        assert_eq!(dropped.try_recv(), still, "it takes some");

        let taken = pieces.load(Ordering::Relaxed);
        let end = tokio::time::timeout(LIMIT, dropped).await;
        assert!(end.expect("it is let go").is_err(), "by dropping its answer");
        let kept = (pieces.load(Ordering::Relaxed) - taken) * size;
        assert!(kept < 8 * SEND_BUFFER, "{kept} bytes were kept for it");
        serving.abort();
    }

    /// There is one slot, and its client reads nothing of an answer that does not end.
    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected_where_another_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let hour = Duration::from_secs(3600);
        let limits = ConnectionLimits {
            connections: 1,
            request_timeout: hour,
            write_timeout: hour,
            budget: budget(),
        };
        let piece = "more ".repeat(1000);
        let endless = async move || {
            let pieces = futures_util::stream::repeat(Ok::<_, Infallible>(piece.clone()));
            Body::from_stream(pieces)
        };
        let router = Router::new().route("/", get(endless)).route("/well", get(async || "well"));
        let serving = tokio::spawn(serve(
            listener,
            TowerToHyperService::new(router),
            limits,
            std::future::pending(),
        ));
        let mut stuck = TcpStream::connect(address).await.expect("it listens");
        stuck.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it is open");

        let mut next = TcpStream::connect(address).await.expect("it listens");
        let asks = b"GET /well HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        next.write_all(asks).await.expect("it is open");
        let mut text = String::new();
        let answered = tokio::time::timeout(LIMIT, next.read_to_string(&mut text)).await;
        answered.expect("it is answered").expect("in whole");
        assert!(text.ends_with("well"), "{text}");
        serving.abort();
    }

    /// DNS rebinding: a web page can read what its browser gets under the page's own host name, which may resolve to
    /// this machine. So the loopback, which such a browser reaches, checks the name; other listeners need not.
    #[tokio::test]
    async fn on_the_loopback_only_its_own_names_are_answered() {
        async fn got<S: AsyncRead + AsyncWrite + Unpin>(mut client: S, host: &str) -> String {
            let head = format!("GET / HTTP/1.1\r\n{host}connection: close\r\n\r\n");
            client.write_all(head.as_bytes()).await.expect("it is open");
            let mut text = String::new();
            client.read_to_string(&mut text).await.expect("it is answered");
            text
        }
        fn served(listener: impl Accept + Send + Sync + 'static) -> tokio::task::JoinHandle<()> {
            let limits = ConnectionLimits {
                connections: 1,
                request_timeout: LIMIT,
                write_timeout: LIMIT,
                budget: budget(),
            };
            // The host name is checked for any path, even one without a route.
            let router = Router::new().fallback(async || "secret");
            tokio::spawn(serve(
                listener,
                TowerToHyperService::new(router),
                limits,
                std::future::pending(),
            ))
        }
        let foreign = "host: evil.example:4040\r\n";
        for (address, refuses) in [("127.0.0.1:0", true), ("0.0.0.0:0", false)] {
            let listener = TcpListener::bind(address).await.expect("a free port");
            let port = listener.local_addr().expect("it is bound").port();
            let serving = served(listener);
            let connect = || TcpStream::connect(("127.0.0.1", port));
            let answer = got(connect().await.expect("it listens"), foreign).await;
            assert_eq!(answer.starts_with("HTTP/1.1 421 "), refuses, "{address}: {answer}");
            assert_eq!(answer.contains("secret"), !refuses, "{address}: {answer}");
            if refuses {
                assert!(answer.contains("application/problem+json"), "{answer}");
                assert!(
                    !answer.contains("x-bellwether-index"),
                    "no leader was evaluated: {answer}"
                );
                assert!(answer.contains("evil.example:4040") && answer.contains("127.0.0.1"));
            }
            for host in ["host: localhost:4040\r\n", ""] {
                let answer = got(connect().await.expect("it listens"), host).await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{address}, {host:?}: {answer}");
            }
            serving.abort();
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let serving = served(UnixListener::bind(&path).expect("it is ours"));
        let answer = got(UnixStream::connect(&path).await.expect("it listens"), foreign).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        serving.abort();
    }

    /// There are two slots, and one is taken by a client whose answer never ends.
    #[tokio::test]
    async fn idle_connections_are_evicted_busy_ones_are_not() {
        const WHOLE: &str = "GET /well HTTP/1.1\r\nhost: localhost\r\n\r\n";
        const HALF: &str = "GET /well HTTP/1.1\r\nho";
        const ENDLESS: &str = "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n";
        async fn reads(client: &mut TcpStream, end: &str) {
            let mut text = String::new();
            while !text.ends_with(end) {
                let mut piece = [0; 1024];
                let read = client.read(&mut piece);
                let read = tokio::time::timeout(LIMIT, read).await.expect("it is answered at once");
                let read = read.expect("it is open");
                assert_ne!(read, 0, "it is let go, after {text:?}");
                text.push_str(std::str::from_utf8(&piece[..read]).expect("text"));
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let hour = Duration::from_secs(3600);
        let limits = ConnectionLimits {
            connections: 2,
            request_timeout: hour,
            write_timeout: hour,
            budget: budget(),
        };
        let once = || futures_util::stream::once(async { Ok::<_, Infallible>("well") });
        let endless = move || Body::from_stream(once().chain(futures_util::stream::pending()));
        let router = Router::new()
            .route("/well", get(async || "well"))
            .route("/endless", get(async move || endless()));
        let serving = tokio::spawn(serve(
            listener,
            TowerToHyperService::new(router),
            limits,
            std::future::pending(),
        ));
        let connect = async |asks: &str| {
            let mut client = TcpStream::connect(address).await.expect("it listens");
            client.write_all(asks.as_bytes()).await.expect("it is open");
            client
        };

        let mut busy = connect(ENDLESS).await;
        reads(&mut busy, "well\r\n").await;
        let mut gone = vec![];
        for asks in ["", HALF, WHOLE, WHOLE] {
            let mut client = connect(asks).await;
            if asks == WHOLE {
                reads(&mut client, "well").await;
            }
            gone.push(client);
        }
        let mut last = connect(WHOLE).await;
        reads(&mut last, "well").await;
        for mut client in gone {
            let end = tokio::time::timeout(LIMIT, client.read(&mut [0; 8])).await;
            assert!(!matches!(end.expect("it is let go"), Ok(1..)), "and sent nothing more");
        }
        last.write_all(WHOLE.as_bytes()).await.expect("the last one stays");
        reads(&mut last, "well").await;
        last.write_all(ENDLESS.as_bytes()).await.expect("it is open");
        reads(&mut last, "well\r\n").await;

        // No connection is idle now, so the next one waits for one of the two to go.
        let mut next = connect(WHOLE).await;
        let mut nothing = [0; 8];
        let early = next.read(&mut nothing);
        assert!(tokio::time::timeout(Duration::from_millis(300), early).await.is_err());
        for client in [&busy, &last] {
            let still = client.try_read(&mut [0; 8]).map_err(|error| error.kind());
            assert_eq!(still, Err(io::ErrorKind::WouldBlock), "it is still open");
        }
        drop(busy);
        reads(&mut next, "well").await;
        serving.abort();
    }

    /// There is one slot, so each connection has to wait for the one before.
    #[tokio::test]
    async fn a_connection_without_a_complete_request_loses_its_slot() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let request_timeout = Duration::from_millis(200);
        let limits = ConnectionLimits {
            connections: 1,
            request_timeout,
            write_timeout: LIMIT,
            budget: budget(),
        };
        let router = Router::new().route("/", get(async || "well"));
        let serving = tokio::spawn(serve(
            listener,
            TowerToHyperService::new(router),
            limits,
            std::future::pending(),
        ));
        let whole = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

        let mut held = vec![];
        for head in ["", "GET / HTTP/1.1\r\nho", whole, whole] {
            let mut client = TcpStream::connect(address).await.expect("it listens");
            client.write_all(head.as_bytes()).await.expect("it is open");
            let mut text = String::new();
            let ends = client.read_to_string(&mut text);
            let ended = tokio::time::timeout(LIMIT, ends).await.expect("each is let go in turn");
            ended.expect("with an end that is one");
            assert_eq!(text.ends_with("\r\n\r\nwell"), head == whole, "{head:?}: {text:?}");
            held.push(client);
        }
        serving.abort();
    }
}
