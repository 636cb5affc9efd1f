//! The four-letter words, answered as by a standalone server with all of them on its whitelist.

use crate::acl::host_address;
use crate::shared::ServerHandle;
use crate::state::{ClientConnection, Now, ServerState};
use crate::watches::ConnectionId;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// The version in answers, which tools compare with the one that they need.
const VERSION: &str = "3.8.0-bellwether-dev-server, built on an unknown day";

/// The version in answers that imitate ClickHouse Keeper.
const KEEPER_VERSION: &str = "v25.3.1.1-bellwether-dev-server";

/// A four-letter word of the real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdminCommand(&'static str);

impl AdminCommand {
    const WORDS: [&str; 18] = [
        "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok",
        "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
    ];

    pub(crate) fn parse(head: [u8; 4]) -> Option<Self> {
        Self::WORDS.into_iter().find(|word| word.as_bytes() == head).map(Self)
    }
}

/// Returns the answer to a four-letter word.
pub(crate) fn answer(
    word: AdminCommand,
    state: &ServerState,
    now: Now,
    server: &ServerHandle,
) -> String {
    if state.limits.keeper.is_some_and(|keeper| keeper.refuses_words) {
        return String::new();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _written = match word.0 {
        "conf" => conf(&mut text, state, server),
        "cons" => cons(&mut text, state, now),
        "dump" => dump(&mut text, state, now),
        "envi" => writeln!(text, "Environment:\nzookeeper.version={VERSION}\nhost.name=localhost"),
        "isro" => write!(text, "rw"),
        "mntr" => mntr(&mut text, state, now),
        "ruok" => write!(text, "imok"),
        "srvr" => srvr(&mut text, state, false),
        "stat" => srvr(&mut text, state, true),
        "wchc" => wchc(&mut text, state),
        "wchp" => wchp(&mut text, state),
        "wchs" => wchs(&mut text, state),
        // The real server has this word, and this one does not.
        other => writeln!(text, "{other} is not executed because it is not in the whitelist."),
    };
    text
}

fn conf(text: &mut String, state: &ServerState, server: &ServerHandle) -> std::fmt::Result {
    writeln!(text, "clientPort={}", server.address.port())?;
    writeln!(text, "secureClientPort=-1")?;
    writeln!(text, "dataDir=")?;
    writeln!(text, "dataDirSize=0")?;
    writeln!(text, "dataLogDir=")?;
    writeln!(text, "dataLogSize=0")?;
    writeln!(text, "tickTime={}", state.limits.tick_ms)?;
    writeln!(text, "maxClientCnxns={}", server.settings.max_connections_per_address)?;
    writeln!(text, "minSessionTimeout={}", state.limits.min_timeout_ms)?;
    writeln!(text, "maxSessionTimeout={}", state.limits.max_timeout_ms)?;
    writeln!(text, "clientPortListenBacklog=-1")?;
    writeln!(text, "serverId=0")
}

fn srvr(text: &mut String, state: &ServerState, with_clients: bool) -> std::fmt::Result {
    match state.limits.keeper {
        None => writeln!(text, "Zookeeper version: {VERSION}")?,
        Some(_) => writeln!(text, "ClickHouse Keeper version: {KEEPER_VERSION}")?,
    }
    if with_clients {
        writeln!(text, "Clients:")?;
        for connection in state.connections.values() {
            brief(text, connection)?;
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

fn cons(text: &mut String, state: &ServerState, now: Now) -> std::fmt::Result {
    for connection in state.connections.values() {
        brief(text, connection)?;
        if connection.session != 0 {
            let ClientConnection { session, established_ms, timeout_ms, last, .. } = connection;
            write!(text, ",sid={session:#x},lop={},est={established_ms}", last.name)?;
            write!(text, ",to={timeout_ms}")?;
            if last.xid >= 0 {
                write!(text, ",lcxid={:#x}", last.xid)?;
            }
            write!(text, ",lzxid={:#x},lresp={}", last.zxid, last.elapsed_ms.min(now.elapsed_ms))?;
            write!(text, ",llat=0,minlat=0,avglat=0,maxlat=0")?;
        }
        writeln!(text, ")")?;
    }
    writeln!(text)
}

/// Writes the start of a connection's line, without the closing bracket.
fn brief(text: &mut String, connection: &ClientConnection) -> std::fmt::Result {
    // The operations that Java waits for: none for a connection that has only sent a four-letter word.
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

fn dump(text: &mut String, state: &ServerState, now: Now) -> std::fmt::Result {
    let started_ms = now.wall_ms.saturating_sub_unsigned(now.elapsed_ms);

    writeln!(text, "SessionTracker dump:")?;
    let buckets = state.sessions.buckets();
    writeln!(text, "Session Sets ({})/({}):", buckets.len(), state.sessions.len())?;
    for (elapsed_ms, sessions) in buckets {
        let date = date(started_ms.saturating_add_unsigned(*elapsed_ms));
        writeln!(text, "{} expire at {date}:", sessions.len())?;
        for session in sessions {
            writeln!(text, "\t{session:#x}")?;
        }
    }
    writeln!(text, "ephemeral nodes dump:")?;
    writeln!(text, "Sessions with Ephemerals ({}):", state.tree.ephemerals().count())?;
    for (session, paths) in state.tree.ephemerals() {
        writeln!(text, "{session:#x}:")?;
        for path in paths {
            writeln!(text, "\t{path}")?;
        }
    }
    writeln!(text, "Connections dump:")?;
    // Connections have no buckets here, so list all of them in one that is due at the next check.
    let connections = state.connections.len();
    writeln!(text, "Connections Sets (1)/({connections}):")?;
    let next_ms = state.sessions.next_check_ms(now.elapsed_ms);
    let date = date(started_ms.saturating_add_unsigned(next_ms));
    writeln!(text, "{connections} expire at {date}:")?;
    for connection in state.connections.values() {
        let address = socket_address(connection.address);
        writeln!(text, "\tip: {address} sessionId: {:#x}", connection.session)?;
    }
    Ok(())
}

/// Counts only the watches on data and existence, as the real server does.
fn wchs(text: &mut String, state: &ServerState) -> std::fmt::Result {
    let watches = &state.data_watches;
    let connections = watches.by_connection().len();
    let paths = watches.by_path().len();
    writeln!(text, "{connections} connections watching {paths} paths")?;
    writeln!(text, "Total watches:{}", watches.count())
}

fn wchc(text: &mut String, state: &ServerState) -> std::fmt::Result {
    for (connection, paths) in state.data_watches.by_connection() {
        writeln!(text, "{:#x}", session(state, *connection))?;
        for path in paths {
            writeln!(text, "\t{path}")?;
        }
    }
    writeln!(text)
}

fn wchp(text: &mut String, state: &ServerState) -> std::fmt::Result {
    for (path, connections) in state.data_watches.by_path() {
        writeln!(text, "{path}")?;
        let sessions: BTreeSet<i64> =
            connections.iter().map(|connection| session(state, *connection)).collect();
        for session in sessions {
            writeln!(text, "\t{session:#x}")?;
        }
    }
    writeln!(text)
}

fn session(state: &ServerState, connection: ConnectionId) -> i64 {
    state.connections.get(&connection).map_or(0, |connection| connection.session)
}

/// Returns a socket address in Java's notation.
fn socket_address(address: SocketAddr) -> String {
    let host = host_address(address.ip());
    match address.ip().to_canonical() {
        IpAddr::V4(_) => format!("/{host}:{}", address.port()),
        IpAddr::V6(_) => format!("/[{host}]:{}", address.port()),
    }
}

/// Returns a moment, given in milliseconds since 1970, as Java's `Date` writes it.
fn date(wall_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = wall_ms.div_euclid(1000);
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // The calendar's 400-year eras begin on March 1, so that a leap day is the last day of its year.
    let from_march = days + 719_468;
    let era = from_march.div_euclid(146_097);
    let of_era = from_march.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * of_year + 2) / 153;
    let day = of_year - (153 * months + 2) / 5 + 1;
    let month = (months + 2) % 12;
    let year = era * 400 + year_of_era + i64::from(month < 2);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        name_at(&DAYS, days.rem_euclid(7)),
        name_at(&MONTHS, month),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

fn name_at(names: &[&'static str], index: i64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_length_is_not_taken_for_a_four_letter_word() {
        assert_eq!(AdminCommand::parse(*b"ruok"), Some(AdminCommand("ruok")));
        assert_eq!(AdminCommand::parse(*b"crst"), Some(AdminCommand("crst")));
        assert_eq!(AdminCommand::parse([0, 0, 0, 45]), None);
    }

    #[test]
    fn dates_are_written_as_java_does() {
        assert_eq!(date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(date(1_795_337_456_789), "Sun Nov 22 08:50:56 UTC 2026");
    }

    #[test]
    fn socket_addresses_are_written_as_java_does() {
        assert_eq!(socket_address("127.0.0.1:80".parse().unwrap()), "/127.0.0.1:80");
        assert_eq!(socket_address("[::1]:80".parse().unwrap()), "/[0:0:0:0:0:0:0:1]:80");
    }
}
