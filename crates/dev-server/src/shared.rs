//! State shared by the tasks of a server, and the outbox of each connection.

use crate::admin_commands;
use crate::outbox::Outbox;
use crate::settings::ServerSettings;
use crate::state::{Now, Output, ServerState};
use crate::watches::ConnectionId;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use tracing::warn;

/// A server, as shared by its tasks and the knobs.
#[derive(Debug)]
pub(crate) struct ServerHandle {
    pub(crate) settings: ServerSettings,
    pub(crate) address: SocketAddr,
    started: Instant,
    hosted: Mutex<Hosted>,
}

/// The data behind the lock: the state, and the outboxes of the connections.
#[derive(Debug)]
struct Hosted {
    state: ServerState,
    outboxes: HashMap<ConnectionId, Arc<Outbox>>,
    /// The number of connections ever admitted, which is the id of the last one.
    admitted: u64,
}

impl ServerHandle {
    pub(crate) fn new(settings: ServerSettings, address: SocketAddr) -> Self {
        let state = ServerState::new(settings.limits(), secret(), wall_ms());
        Self {
            settings,
            address,
            started: Instant::now(),
            hosted: Mutex::new(Hosted { state, outboxes: HashMap::new(), admitted: 0 }),
        }
    }

    /// Admits a connection, unless its address has too many already.
    pub(crate) fn admit(&self, address: SocketAddr) -> Option<(ConnectionId, Arc<Outbox>)> {
        let now = self.now();
        let max = self.settings.max_connections_per_address;
        let mut hosted = self.hosted();
        let connections = hosted.state.connections.values();
        let of_address = connections.filter(|other| other.address.ip() == address.ip()).count();
        if max > 0 && of_address >= max {
            return None;
        }
        hosted.admitted += 1;
        let id = ConnectionId(hosted.admitted);
        let outbox = Arc::new(Outbox::default());
        hosted.outboxes.insert(id, Arc::clone(&outbox));
        hosted.state.accept(id, address, now);
        Some((id, outbox))
    }

    /// Forgets a connection that is closed.
    pub(crate) fn leave(&self, id: ConnectionId) {
        let mut hosted = self.hosted();
        hosted.outboxes.remove(&id);
        hosted.state.disconnect(id);
    }

    /// Answers a four-letter word. The connection is closed after the answer.
    pub(crate) fn word(&self, from: ConnectionId, word: &str) {
        let mut hosted = self.hosted();
        hosted.state.traffic.received += 1;
        if let Some(connection) = hosted.state.connections.get_mut(&from) {
            connection.traffic.received += 1;
        }
        let text = admin_commands::answer(word, &hosted.state, self.now(), self);
        if let Some(outbox) = hosted.outboxes.get(&from) {
            let _fits = outbox.push(text.into_bytes());
            outbox.finish();
        }
    }

    /// Calls `with` on the state, and moves the resulting outputs into the outboxes of their connections.
    pub(crate) fn with_state<R>(&self, with: impl FnOnce(&mut ServerState, Now) -> R) -> R {
        let mut hosted = self.hosted();
        // Read the time under the lock, so that no later transaction has an earlier time.
        let result = with(&mut hosted.state, self.now());
        for (id, output) in hosted.state.take_outputs() {
            let Some(outbox) = hosted.outboxes.get(&id) else { continue };
            match output {
                Output::Frame(frame) => {
                    if !outbox.push(frame) {
                        warn!(
                            connection = id.0,
                            "closing: the client does not read what it is sent"
                        );
                    }
                }
                Output::Close => outbox.finish(),
                Output::Drop => outbox.drop_all(),
            }
        }
        result
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = self.started.elapsed().as_millis();
        Now { wall_ms: wall_ms(), elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX / 2) }
    }

    /// Returns the moment that is `elapsed_ms` after the start.
    pub(crate) fn until(&self, elapsed_ms: u64) -> Instant {
        self.started + Duration::from_millis(elapsed_ms)
    }

    fn hosted(&self) -> MutexGuard<'_, Hosted> {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time of day, in milliseconds since 1970.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a secret that is hard enough to guess for development, from the random seeds of std's hash tables.
fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    for half in secret.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_be_bytes());
    }
    secret
}
