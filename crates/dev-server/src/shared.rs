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
    locked: Mutex<LockedState>,
}

/// The data behind the server's lock: its state, and the outboxes of the connections.
#[derive(Debug)]
struct LockedState {
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
            locked: Mutex::new(LockedState { state, outboxes: HashMap::new(), admitted: 0 }),
        }
    }

    /// Admits a connection, unless its address has too many already.
    pub(crate) fn admit(&self, address: SocketAddr) -> Option<(ConnectionId, Arc<Outbox>)> {
        let now = self.now();
        let max = self.settings.max_connections_per_address;
        let mut locked = self.locked();
        let connections = locked.state.connections.values();
        let of_address = connections.filter(|other| other.address.ip() == address.ip()).count();
        if max > 0 && of_address >= max {
            return None;
        }
        locked.admitted += 1;
        let id = ConnectionId(locked.admitted);
        let outbox = Arc::new(Outbox::default());
        locked.outboxes.insert(id, Arc::clone(&outbox));
        locked.state.accept(id, address, now);
        Some((id, outbox))
    }

    /// Forgets a connection that is closed.
    pub(crate) fn forget_connection(&self, id: ConnectionId) {
        let mut locked = self.locked();
        locked.outboxes.remove(&id);
        locked.state.disconnect(id);
    }

    /// Answers a four-letter word. The connection is closed after the answer.
    pub(crate) fn answer_admin_command(&self, from: ConnectionId, word: &str) {
        let mut locked = self.locked();
        locked.state.traffic.received += 1;
        if let Some(connection) = locked.state.connections.get_mut(&from) {
            connection.traffic.received += 1;
        }
        let text = admin_commands::answer(word, &locked.state, self.now());
        if let Some(outbox) = locked.outboxes.get(&from) {
            // The connection is closed in any case, even if the answer does not fit.
            let _fits = outbox.push(text.into_bytes());
            outbox.finish();
        }
    }

    /// Calls `change` with the state, and moves the resulting outputs into the outboxes of their connections.
    pub(crate) fn with_state<R>(&self, change: impl FnOnce(&mut ServerState, Now) -> R) -> R {
        let mut locked = self.locked();
        // Read the time under the lock, so that no later transaction has an earlier time.
        let result = change(&mut locked.state, self.now());
        for (id, output) in locked.state.take_outputs() {
            let Some(outbox) = locked.outboxes.get(&id) else { continue };
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
                Output::Drop => outbox.abort(),
            }
        }
        result
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = self.started.elapsed().as_millis();
        // The fallback is half of the maximum, so that a timeout can be added to it.
        Now { wall_ms: wall_ms(), elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX / 2) }
    }

    /// Returns the moment `elapsed_ms` milliseconds after the start of the server.
    pub(crate) fn instant_of(&self, elapsed_ms: u64) -> Instant {
        self.started + Duration::from_millis(elapsed_ms)
    }

    fn locked(&self) -> MutexGuard<'_, LockedState> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time of day, in milliseconds since 1970.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a random secret, made from the seeds of std's hash tables: good enough for development.
fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    for half in secret.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_be_bytes());
    }
    secret
}
