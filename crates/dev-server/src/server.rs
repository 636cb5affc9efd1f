//! A running server.

use crate::connection;
use crate::knobs::Knobs;
use crate::outbox::Outbox;
use crate::settings::ServerSettings;
use crate::shared::ServerHandle;
use crate::watches::ConnectionId;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

/// The wait after a failed `accept`, which may be due to a lack of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum duration of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A server that runs in the tokio runtime in which it was started, until it is stopped or dropped.
///
/// Its state is in memory only.
#[derive(Debug)]
pub struct DevServer {
    shared: Arc<ServerHandle>,
    tasks: JoinSet<()>,
}

impl DevServer {
    /// Starts a server, which listens as soon as this returns.
    ///
    /// # Errors
    ///
    /// Fails if it cannot listen on the configured address.
    pub async fn start(settings: ServerSettings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ServerHandle::new(settings, address));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        tasks.spawn(expire_sessions(Arc::clone(&shared)));
        tasks.spawn(delete_outlived(Arc::clone(&shared)));
        info!(%address, "an in-memory ZooKeeper for development is listening; its data is lost when it ends");
        Ok(Self { shared, tasks })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns a handle with which a test looks at the sessions, and ends them.
    pub fn knobs(&self) -> Knobs {
        Knobs::new(Arc::clone(&self.shared))
    }

    /// Closes all connections and stops listening.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Accepts connections, and serves each in a task.
async fn accept(listener: TcpListener, shared: Arc<ServerHandle>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Remove the task of a connection that has ended.
            Some(_) = connections.join_next() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        let Some((id, outbox)) = shared.admit(address) else {
            warn!(%address, "refusing a connection: its address has too many");
            continue;
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(connection = id.0, "answers may be delayed: cannot set TCP_NODELAY: {error}");
        }
        connections.spawn(serve(stream, Arc::clone(&shared), id, outbox));
    }
}

/// Serves a connection until it is closed, over TLS if that is configured.
async fn serve(
    stream: TcpStream,
    shared: Arc<ServerHandle>,
    id: ConnectionId,
    outbox: Arc<Outbox>,
) {
    let Some(tls) = shared.settings.tls.clone() else {
        return connection::serve(stream, shared, id, outbox).await;
    };
    let handshake = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await;
    match handshake.unwrap_or_else(|elapsed| Err(elapsed.into())) {
        Ok(stream) => connection::serve(stream, shared, id, outbox).await,
        Err(error) => {
            warn!(connection = id.0, "closing a connection: the TLS handshake failed: {error}");
            shared.forget_connection(id);
        }
    }
}

/// Ends sessions whose timeout has passed, at each multiple of the tick.
async fn expire_sessions(shared: Arc<ServerHandle>) {
    loop {
        let next_ms = shared.with_state(|state, now| state.sessions.next_check_ms(now.elapsed_ms));
        sleep_until(shared.instant_of(next_ms)).await;
        for session in shared.with_state(|state, now| state.expire_due(now)) {
            info!("session {session:#x} has expired");
        }
    }
}

/// Deletes containers whose last child is gone, and znodes whose TTL has passed, at regular intervals.
async fn delete_outlived(shared: Arc<ServerHandle>) {
    let every = shared.settings.container_check_interval;
    // Stay within the range of a timer.
    let mut interval = interval(every.clamp(Duration::from_millis(1), A_YEAR));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick completes at once.
    interval.tick().await;
    loop {
        interval.tick().await;
        for path in shared.with_state(|state, now| state.delete_outlived(now)) {
            info!("{path} was deleted: it was an empty container, or its TTL has passed");
        }
    }
}
