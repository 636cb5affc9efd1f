//! The settings of a server.

use crate::state::ServerLimits;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::ServerConfig;

/// The default of `min_session_timeout_ms` in Keeper.
const KEEPER_MIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of a server. The defaults are those of ZooKeeper 3.8, on a free port of this machine.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `tickTime`: sessions expire at its multiples. Limited to at least 1 ms and at most a day.
    pub tick: Duration,
    /// `minSessionTimeout`: two ticks by default, or 10 s with `keeper`.
    pub min_session_timeout: Option<Duration>,
    /// `maxSessionTimeout`: twenty ticks by default.
    pub max_session_timeout: Option<Duration>,
    /// `jute.maxbuffer`: the longest frame that is accepted from a client, in bytes.
    pub max_frame: usize,
    /// `maxClientCnxns`: the maximum number of connections from one address; 0 for no limit.
    pub max_connections_per_address: usize,
    /// `zookeeper.extendedTypesEnabled`: whether znodes may have a TTL. Enabled by default, unlike in the real server.
    pub extended_types: bool,
    /// `znode.container.checkIntervalMs`: how often to look for containers and znodes with a TTL that must be deleted.
    pub container_check_interval: Duration,
    /// `secureClientPort`: if set, every connection must use TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Behave like ClickHouse Keeper instead of ZooKeeper, where that differs.
    pub keeper: Option<Keeper>,
}

/// How a server imitates ClickHouse Keeper, according to Keeper's source: a session that loses its connection is never
/// restored (the client gets a new session without being informed), operations that Keeper does not know close the
/// connection, and sessions last at least 10 s unless [`ServerSettings::min_session_timeout`] is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// Close the connection at a createContainer, as older versions do. Newer versions answer BadArguments.
    pub closes_at_containers: bool,
    /// Answer no four-letter words, as with an empty whitelist.
    pub refuses_words: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tick: Duration::from_millis(2000),
            min_session_timeout: None,
            max_session_timeout: None,
            max_frame: 0xf_ffff,
            max_connections_per_address: 60,
            extended_types: true,
            container_check_interval: Duration::from_secs(60),
            tls: None,
            keeper: None,
        }
    }
}

impl ServerSettings {
    pub(crate) fn limits(&self) -> ServerLimits {
        let tick = self.tick.clamp(Duration::from_millis(1), Duration::from_secs(24 * 3600));
        let default_min = if self.keeper.is_some() { KEEPER_MIN_TIMEOUT } else { tick * 2 };
        let min = self.min_session_timeout.unwrap_or(default_min);
        let max = self.max_session_timeout.unwrap_or(tick * 20).max(min);
        ServerLimits {
            tick_ms: u64::try_from(tick.as_millis()).unwrap_or(1),
            min_timeout_ms: timeout_ms(min),
            max_timeout_ms: timeout_ms(max),
            extended_types: self.extended_types,
            keeper: self.keeper,
        }
    }
}

fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_two_to_twenty_ticks() {
        let limits = ServerSettings::default().limits();
        assert_eq!((limits.min_timeout_ms, limits.max_timeout_ms), (4000, 40_000));
        let tick = Duration::from_millis(500);
        let min_session_timeout = Some(Duration::from_millis(300));
        let limits =
            ServerSettings { tick, min_session_timeout, ..ServerSettings::default() }.limits();
        assert_eq!((limits.min_timeout_ms, limits.max_timeout_ms), (300, 10_000));
    }
}
