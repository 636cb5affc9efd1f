//! Conversions from the stat of a znode.

use crate::zookeeper::client::Connection;
use ::zookeeper::Stat;
use recipes::{FencingToken, SessionId, Ticket};
use std::time::{Duration, SystemTime};

/// Returns the session that owns a znode; `None` if it is not ephemeral.
pub(crate) fn owner(stat: &Stat) -> Option<SessionId> {
    match stat.ephemeral_owner {
        // The owner of a container is the smallest number.
        0 | i64::MIN => None,
        owner => Some(SessionId(owner)),
    }
}

/// Returns the session of a connection.
pub(super) fn session_of(connection: &Connection) -> SessionId {
    SessionId(connection.client.session_id().0)
}

/// Returns the time at which the servers' clock was at this many milliseconds since 1970.
pub(crate) fn server_time(ms: i64) -> SystemTime {
    // The end of the year 9999, after which a date cannot be written.
    const LAST: i64 = 253_402_300_799_000;
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms.clamp(0, LAST).unsigned_abs())
}

/// Returns the fencing token under which the znode's member leads: the czxid.
pub(crate) fn token(stat: &Stat) -> FencingToken {
    FencingToken(stat.czxid.cast_unsigned())
}

/// Returns the paths of a znode's ancestors, from the top, and then its own.
pub(in crate::zookeeper) fn paths_down_to(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// Returns true if this is the very znode that we created: a path can be used again.
pub(super) fn is_ours(stat: &Stat, ticket: Ticket, connection: &Connection) -> bool {
    token(stat) == ticket.token && is_of_session(stat, connection)
}

/// Returns true if the znode belongs to the connection's session.
pub(super) fn is_of_session(stat: &Stat, connection: &Connection) -> bool {
    stat.ephemeral_owner == connection.client.session_id().0
}
