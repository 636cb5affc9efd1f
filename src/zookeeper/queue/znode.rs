//! Helpers for a znode's stat and path.

use crate::zookeeper::client::Connection;
use ::zookeeper::Stat;
use recipes::{FencingToken, SessionId, Ticket};
use std::time::{Duration, SystemTime};

/// Returns the session that owns a znode; `None` if it is not ephemeral.
pub(crate) fn owner(stat: &Stat) -> Option<SessionId> {
    match stat.ephemeral_owner {
        // ZooKeeper marks a container by the smallest number as its owner.
        0 | i64::MIN => None,
        owner => Some(SessionId(owner)),
    }
}

/// Returns the session of a connection.
pub(super) fn session_of(connection: &Connection) -> SessionId {
    SessionId(connection.client.session_id().0)
}

/// Converts a time by the servers' clock, in milliseconds since 1970, to a date.
pub(crate) fn server_time(ms: i64) -> SystemTime {
    // The end of the year 9999, after which a date cannot be written.
    const LAST: i64 = 253_402_300_799_000;
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms.clamp(0, LAST).unsigned_abs())
}

/// Returns the fencing token under which the znode's member leads: the czxid.
pub(crate) fn token(stat: &Stat) -> FencingToken {
    FencingToken(stat.czxid.cast_unsigned())
}

/// Returns the paths of a znode's ancestors, the topmost first, and then the path itself.
pub(in crate::zookeeper) fn paths_down_to(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// Returns true if `stat` is of the znode with our ticket, and not of another znode that was created later at the same path.
pub(super) fn is_ours(stat: &Stat, ticket: Ticket, connection: &Connection) -> bool {
    token(stat) == ticket.token && is_of_session(stat, connection)
}

/// Returns true if the znode belongs to the connection's session.
pub(super) fn is_of_session(stat: &Stat, connection: &Connection) -> bool {
    stat.ephemeral_owner == connection.client.session_id().0
}
