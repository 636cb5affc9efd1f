//! A handle with which tests look at sessions and end them.

use crate::shared::ServerHandle;
use std::sync::Arc;

/// A handle with which a test looks at a server's sessions, and ends them.
#[derive(Clone, Debug)]
pub struct Knobs {
    shared: Arc<ServerHandle>,
}

impl Knobs {
    pub(crate) fn new(shared: Arc<ServerHandle>) -> Self {
        Self { shared }
    }

    /// Ends a session as if its timeout had passed. Returns true if the session existed.
    pub fn expire(&self, session: i64) -> bool {
        self.shared.with_state(|state, _now| state.expire(session))
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.shared.with_state(|state, _now| state.sessions.ids().collect())
    }
}
