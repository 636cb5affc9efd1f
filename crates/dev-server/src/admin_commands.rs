//! The four-letter words, answered as by a standalone server with these words on its whitelist.

use crate::acl::host_address;
use crate::state::{ClientConnection, Now, ServerState};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// The version in answers, which tools compare with the one that they need.
const VERSION: &str = "3.8.0-bellwether-dev-server, built on an unknown day";

/// The version in answers that imitate ClickHouse Keeper.
const KEEPER_VERSION: &str = "v25.3.1.1-bellwether-dev-server";

/// Returns the four-letter word, if the first bytes of a connection are one. They cannot be the length of a frame,
/// because that would be more than 1 GiB.
pub(crate) fn parse(head: [u8; 4]) -> Option<String> {
    let is_word = head.iter().all(u8::is_ascii_lowercase);
    is_word.then(|| head.map(char::from).iter().collect())
}

/// Returns the answer to a four-letter word.
pub(crate) fn answer(word: &str, state: &ServerState, now: Now) -> String {
    if state.limits.keeper.is_some_and(|keeper| keeper.refuses_words) {
        return String::new();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _result = match word {
        "cons" => cons(&mut text, state),
        // kazoo reads the version from this.
        "envi" => writeln!(text, "Environment:\nzookeeper.version={VERSION}\nhost.name=localhost"),
        "isro" => write!(text, "rw"),
        "mntr" => mntr(&mut text, state, now),
        "ruok" => write!(text, "imok"),
        "srvr" => srvr(&mut text, state, false),
        "stat" => srvr(&mut text, state, true),
        "wchc" => wchc(&mut text, state),
        other => writeln!(text, "{other} is not executed because it is not in the whitelist."),
    };
    text
}

/// Writes the answer to `srvr`, or if `with_clients` is set, the answer to `stat`.
fn srvr(text: &mut String, state: &ServerState, with_clients: bool) -> std::fmt::Result {
    match state.limits.keeper {
        None => writeln!(text, "Zookeeper version: {VERSION}")?,
        Some(_) => writeln!(text, "ClickHouse Keeper version: {KEEPER_VERSION}")?,
    }
    if with_clients {
        writeln!(text, "Clients:")?;
        for connection in state.connections.values() {
            begin_client_line(text, connection)?;
            writeln!(text, ")")?;
        }
        writeln!(text)?;
    }
    writeln!(text, "Latency min/avg/max: 0/0.0/0")?;
    writeln!(text, "Received: {}", state.traffic.received)?;
    writeln!(text, "Sent: {}", state.traffic.sent)?;
    writeln!(text, "Connections: {}", state.connections.len())?;
    writeln!(text, "Outstanding: 0")?;
    writeln!(text, "Zxid: {:#x}", state.zxid)?;
    writeln!(text, "Mode: standalone")?;
    writeln!(text, "Node count: {}", state.tree.count())
}

/// Lists the connections of clients.
fn cons(text: &mut String, state: &ServerState) -> std::fmt::Result {
    for connection in state.connections.values() {
        begin_client_line(text, connection)?;
        if connection.session != 0 {
            let ClientConnection { session, established_ms, timeout_ms, .. } = connection;
            write!(text, ",sid={session:#x},est={established_ms},to={timeout_ms}")?;
        }
        writeln!(text, ")")?;
    }
    writeln!(text)
}

/// Writes the start of a connection's line, without the closing bracket.
fn begin_client_line(text: &mut String, connection: &ClientConnection) -> std::fmt::Result {
    // The `interestOps` of the connection in Java: 1 (to read) in a session, or 0 for a connection that has only sent a
    // four-letter word.
    let interest = i32::from(connection.session != 0);
    let traffic = connection.traffic;
    write!(text, " {}[{interest}](queued=0", socket_address(connection.address))?;
    write!(text, ",recved={},sent={}", traffic.received, traffic.sent)
}

fn mntr(text: &mut String, state: &ServerState, now: Now) -> std::fmt::Result {
    let ephemerals: usize = state.tree.ephemerals().map(|(_, paths)| paths.len()).sum();
    let watches = state.data_watches.count() + state.child_watches.count();
    writeln!(text, "zk_version\t{VERSION}")?;
    writeln!(text, "zk_server_state\tstandalone")?;
    writeln!(text, "zk_avg_latency\t0.0")?;
    writeln!(text, "zk_max_latency\t0")?;
    writeln!(text, "zk_min_latency\t0")?;
    writeln!(text, "zk_packets_received\t{}", state.traffic.received)?;
    writeln!(text, "zk_packets_sent\t{}", state.traffic.sent)?;
    writeln!(text, "zk_num_alive_connections\t{}", state.connections.len())?;
    writeln!(text, "zk_outstanding_requests\t0")?;
    writeln!(text, "zk_uptime\t{}", now.elapsed_ms)?;
    writeln!(text, "zk_znode_count\t{}", state.tree.count())?;
    writeln!(text, "zk_watch_count\t{watches}")?;
    writeln!(text, "zk_ephemerals_count\t{ephemerals}")?;
    writeln!(text, "zk_approximate_data_size\t{}", state.tree.approximate_size())?;
    writeln!(text, "zk_global_sessions\t{}", state.sessions.len())?;
    writeln!(text, "zk_local_sessions\t0")
}

/// Lists the paths with watches on data or existence, by session.
fn wchc(text: &mut String, state: &ServerState) -> std::fmt::Result {
    let mut by_session: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (path, connection) in state.data_watches.iter() {
        let session = state.connections.get(&connection).map_or(0, |client| client.session);
        by_session.entry(session).or_default().push(path);
    }
    for (session, paths) in by_session {
        writeln!(text, "{session:#x}\n\t{}", paths.join("\n\t"))?;
    }
    writeln!(text)
}

/// Returns a socket address in Java's notation.
fn socket_address(address: SocketAddr) -> String {
    let host = host_address(address.ip());
    match address.ip().to_canonical() {
        IpAddr::V4(_) => format!("/{host}:{}", address.port()),
        IpAddr::V6(_) => format!("/[{host}]:{}", address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_length_is_not_taken_for_a_four_letter_word() {
        assert_eq!(parse(*b"ruok"), Some("ruok".to_owned()));
        assert_eq!(parse([0, 0, 0, 45]), None);
    }

    #[test]
    fn socket_addresses_are_written_as_java_does() {
        assert_eq!(socket_address("127.0.0.1:80".parse().unwrap()), "/127.0.0.1:80");
        assert_eq!(socket_address("[::1]:80".parse().unwrap()), "/[0:0:0:0:0:0:0:1]:80");
    }
}
