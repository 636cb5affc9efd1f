//! The faults that tests can inject into a server.

use crate::shared::ServerHandle;
use crate::watches::ConnectionId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A handle with which a test injects faults. Each method takes effect at once.
#[derive(Clone, Debug)]
pub struct Knobs {
    shared: Arc<ServerHandle>,
}

impl Knobs {
    pub(crate) fn new(shared: Arc<ServerHandle>) -> Self {
        Self { shared }
    }

    /// Delays everything that is sent from now on, including the answers to pings. The order stays the same.
    pub fn delay(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        // A longer delay could overflow an `Instant`.
        let a_year_ms = 365 * 24 * 3600 * 1000;
        self.shared.delay_ms.store(delay_ms.min(a_year_ms), Ordering::Relaxed);
    }

    /// Closes each new connection at once, or accepts them again. Existing connections stay open.
    pub fn refuse(&self, refuse: bool) {
        self.shared.is_refusing.store(refuse, Ordering::Relaxed);
    }

    /// Closes the connection of a session, which lives on until it expires. Returns true if there was a connection.
    pub fn drop_connection(&self, session: i64) -> bool {
        self.shared.with_state(|state, _now| {
            let connection = state.sessions.connection(session);
            if let Some(connection) = connection {
                state.drop_connection(connection);
            }
            connection.is_some()
        })
    }

    /// Closes all connections.
    pub fn drop_connections(&self) {
        self.shared.with_state(|state, _now| {
            let connections: Vec<ConnectionId> = state.connections.keys().copied().collect();
            for connection in connections {
                state.drop_connection(connection);
            }
        });
    }

    /// Ends a session as if its time were up. Returns true if it existed.
    pub fn expire(&self, session: i64) -> bool {
        self.shared.with_state(|state, _now| state.expire(session))
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.shared.with_state(|state, _now| state.sessions.ids().collect())
    }
}
