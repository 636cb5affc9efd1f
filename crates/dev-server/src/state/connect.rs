//! Opens, resumes and ends sessions.

use super::{Now, ServerState};
use crate::watches::ConnectionId;
use crate::wire::Reader;
use crate::wire::reply;
use crate::wire::request::Connect;
use sha1::{Digest, Sha1};

impl ServerState {
    /// Handles the first frame of a connection, which requests a new session or resumes one. After an error, the caller
    /// closes the connection without an answer, and logs the error.
    pub(crate) fn connect(
        &mut self,
        now: Now,
        from: ConnectionId,
        frame: &[u8],
    ) -> Result<(), String> {
        self.traffic.received += 1;
        let request = Connect::decode(&mut Reader::new(frame)).map_err(|why| why.to_string())?;
        if request.last_zxid_seen > self.zxid {
            return Err(format!(
                "the client has seen zxid {:#x}, but the last one here is {:#x}: an in-memory server loses its data in a \
                 restart",
                request.last_zxid_seen, self.zxid
            ));
        }
        let timeout_ms =
            request.timeout_ms.max(self.limits.min_timeout_ms).min(self.limits.max_timeout_ms);
        let Some(connection) = self.connections.get_mut(&from) else { return Ok(()) };
        connection.traffic.received += 1;
        connection.timeout_ms = timeout_ms;
        // ClickHouse Keeper never restores a session: it creates a new one, and the previous one lives until its timeout.
        let session = if request.session == 0 || self.limits.keeper.is_some() {
            self.zxid = self.assign_zxid();
            Some(self.sessions.create(milliseconds(timeout_ms), now.elapsed_ms))
        } else {
            self.resume(now, &request, timeout_ms)
        };
        let Some(session) = session else {
            self.send(from, reply::connected(0, 0, &[0; 16], request.knows_read_only));
            self.close(from);
            return Ok(());
        };
        self.sessions.attach(session, from);
        if let Some(connection) = self.connections.get_mut(&from) {
            connection.session = session;
        }
        let password = self.password(session);
        self.send(from, reply::connected(timeout_ms, session, &password, request.knows_read_only));
        Ok(())
    }

    /// Resumes the session that a client requests, and returns it; `None` if the session does not exist, or the
    /// password is wrong.
    fn resume(&mut self, now: Now, request: &Connect, timeout_ms: i32) -> Option<i64> {
        // As in the real server, the previous connection is closed before the password is checked.
        if let Some(previous) = self.sessions.connection(request.session) {
            self.drop_connection(previous);
        }
        if request.password != self.password(request.session) {
            return None;
        }
        let exists = self.sessions.touch(request.session, milliseconds(timeout_ms), now.elapsed_ms);
        exists.then_some(request.session)
    }

    /// Ends a session as one transaction: its znodes are deleted, and their watchers are notified.
    pub(super) fn end_session(&mut self, session: i64) {
        let zxid = self.assign_zxid();
        for path in self.tree.ephemerals_of(session) {
            self.delete(&path, zxid);
        }
        self.tree.remove_ephemeral_set(session);
        self.sessions.remove(session);
        self.zxid = zxid;
    }

    /// Ends a session that its client has not closed, and closes its connection. Returns true if the session existed.
    pub(crate) fn expire(&mut self, session: i64) -> bool {
        if !self.sessions.contains(session) {
            return false;
        }
        let connection = self.sessions.connection(session);
        self.end_session(session);
        if let Some(connection) = connection {
            self.drop_connection(connection);
        }
        true
    }

    /// Ends the sessions whose timeout has passed, and returns them.
    pub(crate) fn expire_due(&mut self, now: Now) -> Vec<i64> {
        let due = self.sessions.expired(now.elapsed_ms);
        for session in &due {
            self.expire(*session);
        }
        due
    }

    /// Returns the password with which a session may be resumed. Any session id has a password, even if the session
    /// does not exist.
    fn password(&self, session: i64) -> [u8; 16] {
        let hash = Sha1::new().chain_update(self.secret).chain_update(session.to_be_bytes());
        let digest: [u8; 20] = hash.finalize().into();
        digest.first_chunk().copied().unwrap_or_default()
    }
}

/// Converts a negotiated timeout, which is never negative.
pub(super) fn milliseconds(timeout_ms: i32) -> u64 {
    u64::try_from(timeout_ms).unwrap_or(0)
}
