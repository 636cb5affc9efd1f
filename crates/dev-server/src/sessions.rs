//! Sessions: when they expire, and which connection each uses.

use crate::watches::ConnectionId;
use std::collections::BTreeMap;

/// The sessions of a server.
///
/// As in `ExpiryQueue`, the moment of expiry is rounded up to the next multiple of the tick, even if it is a multiple
/// already. Times are in milliseconds since the server started.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: BTreeMap<i64, SessionEntry>,
    tick_ms: u64,
    next_id: i64,
}

#[derive(Debug)]
struct SessionEntry {
    expires_ms: u64,
    connection: Option<ConnectionId>,
}

impl Sessions {
    /// Creates an empty set. The first session's id is derived from `wall_ms`, the time of day, as in the real server.
    pub(crate) fn new(tick_ms: u64, wall_ms: i64) -> Self {
        // The highest byte is the server's id, which is 1. The next 40 bits are the lower bits of the time. The 16 bits
        // at the end number the sessions.
        let server = 1_i64 << 56;
        let milliseconds = (wall_ms.cast_unsigned() << 24 >> 8).cast_signed();
        Self { by_id: BTreeMap::new(), tick_ms: tick_ms.max(1), next_id: server | milliseconds }
    }

    pub(crate) fn create(&mut self, timeout_ms: u64, now_ms: u64) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let expires_ms = self.rounded_up(now_ms + timeout_ms);
        self.by_id.insert(id, SessionEntry { expires_ms, connection: None });
        id
    }

    /// Restarts a session's timeout. Returns true if the session exists.
    pub(crate) fn touch(&mut self, id: i64, timeout_ms: u64, now_ms: u64) -> bool {
        let expires_ms = self.rounded_up(now_ms + timeout_ms);
        let Some(session) = self.by_id.get_mut(&id) else { return false };
        session.expires_ms = expires_ms;
        true
    }

    /// Returns the sessions whose timeout has passed. They stay in the set until the caller removes them.
    pub(crate) fn expired(&self, now_ms: u64) -> Vec<i64> {
        let due = self.by_id.iter().filter(|(_, session)| session.expires_ms <= now_ms);
        due.map(|(id, _)| *id).collect()
    }

    /// Returns the next moment at which a session may expire.
    pub(crate) fn next_check_ms(&self, now_ms: u64) -> u64 {
        self.rounded_up(now_ms)
    }

    pub(crate) fn remove(&mut self, id: i64) {
        self.by_id.remove(&id);
    }

    pub(crate) fn attach(&mut self, id: i64, connection: ConnectionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.connection = Some(connection);
        }
    }

    /// Leaves a session without a connection, unless it has a newer connection than `connection`.
    pub(crate) fn detach(&mut self, id: i64, connection: ConnectionId) {
        if let Some(session) = self.by_id.get_mut(&id)
            && session.connection == Some(connection)
        {
            session.connection = None;
        }
    }

    pub(crate) fn connection(&self, id: i64) -> Option<ConnectionId> {
        self.by_id.get(&id)?.connection
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.by_id.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn rounded_up(&self, time_ms: u64) -> u64 {
        (time_ms / self.tick_ms + 1) * self.tick_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_expires_at_the_tick_after_its_timeout() {
        let mut sessions = Sessions::new(2000, 1);
        let id = sessions.create(4000, 0);
        // Not at 4000, although that is a multiple of the tick: the real server rounds up to the next one.
        assert_eq!(sessions.expired(5999), [0_i64; 0]);
        assert_eq!(sessions.expired(6000), [id]);
        assert_eq!(sessions.next_check_ms(4000), 6000);
    }

    #[test]
    fn a_touch_gives_a_session_another_timeout() {
        let mut sessions = Sessions::new(2000, 1);
        let id = sessions.create(4000, 0);
        assert!(sessions.touch(id, 4000, 2500));
        assert_eq!(sessions.expired(7999), [0_i64; 0]);
        assert_eq!(sessions.expired(8000), [id]);
        // A touch with a shorter timeout may also make the session expire earlier.
        assert!(sessions.touch(id, 1000, 2500));
        assert_eq!(sessions.expired(4000), [id]);
        sessions.remove(id);
        assert!(!sessions.touch(id, 4000, 2500));
        assert_eq!(sessions.expired(u64::MAX), [0_i64; 0]);
    }

    #[test]
    fn ids_follow_each_other_below_the_server_id() {
        let mut sessions = Sessions::new(2000, 0x1_2345_6789_abcd);
        let id = sessions.create(4000, 0);
        assert_eq!(id, 0x0145_6789_abcd_0000);
        assert_eq!(sessions.create(4000, 0), id + 1);
    }

    #[test]
    fn an_older_connection_does_not_detach_a_newer_one() {
        let mut sessions = Sessions::new(2000, 1);
        let id = sessions.create(4000, 0);
        sessions.attach(id, ConnectionId(1));
        sessions.attach(id, ConnectionId(2));
        sessions.detach(id, ConnectionId(1));
        assert_eq!(sessions.connection(id), Some(ConnectionId(2)));
    }
}
