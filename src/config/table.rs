//! The table of settings: each key once, with its flag, its variable, its default, its help and its parser.
//!
//! The command line, its help, the manual pages, the file, `check-config` and SIGHUP are generated from it.
//! `tests/settings.rs` checks the sample file and the documents against it, so a new key needs a row here, a paragraph in
//! config/bellwether.toml and a row in the documentation.

use super::health::{self, Check};
use super::parse::{
    duration, duration_or_never, file, foreign_client, group, labels, listen_at, log_format,
    log_level, member_id, mode, number, on_exit, principal, priority, probe_address, service,
    shown_labels, text,
};
use super::security::{AclPolicy, Scheme};
use super::servers::{self, Servers};
use super::setting::{DefaultValue, Flag, Row, Scope, Setting, ValueKind};
use super::{Listen, LogFormat, OnExit};
use recipes::election::Priority;
use recipes::{ForeignClient, MemberId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Declares a static [`Setting`] for each row, and [`ALL`]. rustfmt does not format the rows.
macro_rules! table {
    ($($name:ident: $type:ty = $parser:expr => { $($field:ident: $value:expr),* $(,)? };)*) => {
        $(pub static $name: Setting<$type> = Setting {
            row: Row { $($field: $value,)* error: |values| values.get_optional(&$name).err(), ..Row::DEFAULTS },
            parser: $parser,
        };)*

        /// Every setting, in the order of `check-config` and `--help`.
        pub static ALL: &[&Row] = &[$(&$name.row),*];
    };
}

const fn flag(name: &'static str, value: &'static str) -> Option<Flag> {
    Some(Flag { name, short: None, value })
}

/// Declares a flag that also has a short form of one letter.
const fn lettered(letter: char, name: &'static str, value: &'static str) -> Option<Flag> {
    Some(Flag { name, short: Some(letter), value })
}

table! {
    SERVERS: Servers = servers::parse => {
        key: "zookeeper.servers", flag: lettered('z', "zookeeper", "SERVERS"), variable: Some("BELLWETHER_ZOOKEEPER"),
        default: DefaultValue::Text("127.0.0.1:2181"), scope: Scope::Zookeeper,
        help: "ZooKeeper's servers, host:port,host:port/chroot",
    };

    TLS_CA: PathBuf = file => {
        key: "zookeeper.tls.ca", flag: flag("tls-ca", "FILE"), variable: Some("BELLWETHER_TLS_CA"),
        scope: Scope::Zookeeper, may_be_secret: true,
        help: "Speak TLS, with servers whose certificates a CA in this PEM file has signed",
    };

    TLS_CERT: PathBuf = file => {
        key: "zookeeper.tls.cert", flag: flag("tls-cert", "FILE"), variable: Some("BELLWETHER_TLS_CERT"),
        scope: Scope::Zookeeper, may_be_secret: true,
        help: "This member's certificate, in PEM, for servers that ask for one",
    };

    TLS_KEY: PathBuf = file => {
        key: "zookeeper.tls.key", flag: flag("tls-key", "FILE"), variable: Some("BELLWETHER_TLS_KEY"),
        scope: Scope::Zookeeper, may_be_secret: true,
        help: "The private key to that certificate, in PEM",
    };

    AUTH: Scheme = Scheme::parse => {
        key: "zookeeper.auth", flag: flag("auth", "SCHEME"), variable: Some("BELLWETHER_AUTH"),
        scope: Scope::Zookeeper, may_be_secret: true, unset_by: Some(""),
        help: "How to log in: digest or sasl (DIGEST-MD5) with user and password, or kerberos",
    };

    CREDENTIALS_FILE: PathBuf = file => {
        key: "zookeeper.credentials_file", flag: flag("credentials-file", "FILE"), variable: Some("BELLWETHER_CREDENTIALS_FILE"),
        scope: Scope::Zookeeper, may_be_secret: true,
        help: "A file with the line user:password, instead of BELLWETHER_CREDENTIALS in the environment",
    };

    KERBEROS_PRINCIPAL: String = principal => {
        key: "zookeeper.kerberos.principal", flag: flag("kerberos-principal", "PRINCIPAL"), variable: Some("BELLWETHER_KERBEROS_PRINCIPAL"),
        scope: Scope::Zookeeper, unset_by: Some(""),
        help: "This member's principal, app@EXAMPLE.ORG; without it, that of the default credential cache",
    };

    KERBEROS_KEYTAB: PathBuf = file => {
        key: "zookeeper.kerberos.keytab", flag: flag("kerberos-keytab", "FILE"), variable: Some("BELLWETHER_KERBEROS_KEYTAB"),
        scope: Scope::Zookeeper,
        help: "The file with the principal's key; without it, the default credential cache is used",
    };

    KERBEROS_SERVICE: String = service => {
        key: "zookeeper.kerberos.service", flag: flag("kerberos-service", "NAME"), variable: Some("BELLWETHER_KERBEROS_SERVICE"),
        default: DefaultValue::Text("zookeeper"), scope: Scope::Zookeeper,
        help: "The first part of the servers' principals, NAME/host",
    };

    ACL: AclPolicy = AclPolicy::parse => {
        key: "zookeeper.acl", flag: flag("acl", "ACL"), variable: Some("BELLWETHER_ACL"),
        default: DefaultValue::Derived("creator-readable with an identity, else open"), scope: Scope::Lease, unset_by: Some(""),
        help: "Who may touch what members create: open, creator or creator-readable; an identity is one of --auth or --tls-cert",
    };

    SESSION_TIMEOUT: Duration = duration => {
        key: "zookeeper.session_timeout", flag: flag("session-timeout", "DURATION"), variable: Some("BELLWETHER_SESSION_TIMEOUT"),
        default: DefaultValue::Text("10s"), scope: Scope::Lease,
        help: "The session timeout to ask for: 500ms, 10s, 2m",
    };

    SESSION_FILE: PathBuf = file => {
        key: "zookeeper.session_file", flag: flag("session-file", "FILE"), variable: Some("BELLWETHER_SESSION_FILE"),
        help: "Keep the session in this file, best in memory, so that a restart need not look like a crash",
    };

    TICK_TIME: Duration = duration => {
        key: "zookeeper.tick_time", flag: flag("tick-time", "DURATION"), variable: Some("BELLWETHER_TICK_TIME"),
        default: DefaultValue::Text("2s"), scope: Scope::Lease,
        help: "The largest tickTime among the servers, for the lease's margin",
    };

    HEARTBEAT: Duration = duration => {
        key: "lease.heartbeat", flag: flag("heartbeat", "DURATION"), variable: Some("BELLWETHER_HEARTBEAT"),
        default: DefaultValue::Derived("a tenth of zookeeper.session_timeout"), scope: Scope::Lease,
        help: "The longest time between two heartbeats",
    };

    PATH: String = servers::parse_election => {
        key: "election.path", flag: lettered('e', "election", "PATH"), variable: Some("BELLWETHER_ELECTION"),
        default: DefaultValue::Text("/election"), scope: Scope::Election,
        help: "The group's path in ZooKeeper",
    };

    PREFIX: String = servers::parse_prefix => {
        key: "election.prefix", flag: flag("prefix", "PREFIX"), variable: Some("BELLWETHER_PREFIX"),
        default: DefaultValue::Text("leader_"), scope: Scope::Election,
        help: "The start of the members' znodes' names",
    };

    COMPATIBLE_WITH: ForeignClient = foreign_client => {
        key: "election.compatible_with", flag: flag("compatible-with", "CLIENT"), variable: Some("BELLWETHER_COMPATIBLE_WITH"),
        default: DefaultValue::Text("none"), scope: Scope::Election, unset_by: Some("none"),
        help: "Stand in the queue of another client's election: curator-latch, curator-selector, kazoo or zookeeper-recipe",
    };

    PRIORITY: Priority = priority => {
        key: "election.priority", flag: flag("priority", "0-100"), variable: Some("BELLWETHER_PRIORITY"),
        kind: ValueKind::Number, default: DefaultValue::Text("50"), changes_without_restart: true,
        help: "How much this member is preferred as the leader; 0: only where no other is ready",
    };

    PREEMPT_AFTER: Duration = duration_or_never => {
        key: "election.preempt_after", flag: flag("preempt-after", "DURATION"), variable: Some("BELLWETHER_PREEMPT_AFTER"),
        default: DefaultValue::Text("never"), unset_by: Some("never"),
        help: "For how long this member, if it leads, sees one of higher priority before it hands over to it, or never",
    };

    RECIPES_ROOT: String = servers::parse_root => {
        key: "recipes.root", flag: flag("recipes-root", "PATH"), variable: Some("BELLWETHER_RECIPES_ROOT"),
        default: DefaultValue::Text("/"), scope: Scope::Lease, unset_by: Some(""),
        help: "The path in ZooKeeper with locks, barriers and config below it, for any application; empty switches them off",
    };

    ID: MemberId = member_id => {
        key: "member.id", flag: lettered('i', "id", "NAME"), variable: Some("BELLWETHER_ID"),
        default: DefaultValue::Derived("$POD_NAME, else the host's name"), scope: Scope::Lease,
        help: "This member's name, which no other member of the election may have",
    };

    ADDRESS: String = text => {
        key: "member.address", flag: lettered('a', "address", "ADDRESS"), variable: Some("BELLWETHER_ADDRESS"),
        changes_without_restart: true, unset_by: Some(""),
        help: "Where the application can be reached; told to the others",
    };

    LABELS: BTreeMap<String, String> = labels => {
        key: "member.labels", flag: lettered('l', "label", "KEY=VALUE"), variable: Some("BELLWETHER_LABELS"),
        kind: ValueKind::Labels, changes_without_restart: true, show: shown_labels,
        help: "Metadata told to the others; may be given again, and the variable is KEY=VALUE,KEY=VALUE",
    };

    LISTEN: Listen = listen_at => {
        key: "http.listen", flag: flag("listen", "IP:PORT|unix:PATH"), variable: Some("BELLWETHER_LISTEN"),
        default: DefaultValue::Text("127.0.0.1:4040"),
        help: "Where to serve the application's API",
    };

    BUFFERS: u32 = number::<4, 4096> => {
        key: "http.buffers_mib", flag: flag("buffers-mib", "NUMBER"), variable: Some("BELLWETHER_BUFFERS_MIB"),
        kind: ValueKind::Number, default: DefaultValue::Text("12"),
        help: "How many MiB all requests, answers and watched values may take at a time",
    };

    SOCKET_MODE: u32 = mode => {
        key: "http.socket_mode", flag: flag("socket-mode", "MODE"), variable: Some("BELLWETHER_SOCKET_MODE"),
        default: DefaultValue::Derived("0666"),
        help: "Who may connect to the Unix socket of --listen, as chmod has it",
    };

    SOCKET_GROUP: String = group => {
        key: "http.socket_group", flag: flag("socket-group", "GROUP"), variable: Some("BELLWETHER_SOCKET_GROUP"),
        help: "The group of that socket: a name of /etc/group, or a number",
    };

    PROBE_LISTEN: SocketAddr = probe_address => {
        key: "http.probe_listen", flag: flag("probe-listen", "IP:PORT"), variable: Some("BELLWETHER_PROBE_LISTEN"),
        unset_by: Some(""),
        help: "Where to serve probes, read-only, for a kubelet or a load balancer",
    };

    TOKEN_FILE: PathBuf = file => {
        key: "http.token_file", flag: flag("token-file", "FILE"), variable: Some("BELLWETHER_TOKEN_FILE"),
        may_be_secret: true,
        help: "A file with the command token, which a command has to show as Authorization: Bearer",
    };

    HEALTH_CHECK: Check = Check::parse => {
        key: "health.check", flag: flag("app-health", "URL|COMMAND"), variable: Some("BELLWETHER_APP_HEALTH"),
        show: health::shown, unset_by: Some(""),
        help: "Take part only while the application is healthy: the URL to GET, or a command that begins with its absolute path",
    };

    HEALTH_INTERVAL: Duration = duration => {
        key: "health.interval", flag: flag("app-health-interval", "DURATION"), variable: Some("BELLWETHER_APP_HEALTH_INTERVAL"),
        default: DefaultValue::Text("5s"),
        help: "How long to wait between two checks",
    };

    HEALTH_TIMEOUT: Duration = duration => {
        key: "health.timeout", flag: flag("app-health-timeout", "DURATION"), variable: Some("BELLWETHER_APP_HEALTH_TIMEOUT"),
        default: DefaultValue::Text("2s"),
        help: "How long a check may take",
    };

    HEALTH_FAILURES: u32 = number::<1, 1000> => {
        key: "health.failures", flag: flag("app-health-failures", "NUMBER"), variable: Some("BELLWETHER_APP_HEALTH_FAILURES"),
        kind: ValueKind::Number, default: DefaultValue::Text("3"),
        help: "How many failures in a row make the application unhealthy",
    };

    KILL_AFTER: Duration = duration => {
        key: "exec.kill_after", flag: flag("kill-after", "DURATION"), variable: Some("BELLWETHER_KILL_AFTER"),
        default: DefaultValue::Text("2s"), scope: Scope::Exec,
        help: "From SIGTERM to SIGKILL, when the program has to end",
    };

    STOPPED_FOR: Duration = duration => {
        key: "exec.stopped_for", flag: flag("stopped-for", "DURATION"), variable: Some("BELLWETHER_STOPPED_FOR"),
        default: DefaultValue::Text("1m"), scope: Scope::Exec,
        help: "How long the program may be stopped, as by Ctrl-Z, until it is killed",
    };

    ON_EXIT: OnExit = on_exit => {
        key: "exec.on_exit", flag: flag("on-exit", "WHAT"), variable: Some("BELLWETHER_ON_EXIT"),
        default: DefaultValue::Text("leave"), scope: Scope::Exec,
        help: "What to do when the program has ended: leave (hand over, and exit with its code), stay (lead on without it) or restart",
    };

    LOG_FORMAT: LogFormat = log_format => {
        key: "log.format", flag: flag("log-format", "FORMAT"), variable: Some("BELLWETHER_LOG_FORMAT"),
        default: DefaultValue::Text("text"),
        help: "How to write the log, to stderr: text or json; its level is RUST_LOG or log.level",
    };

    LOG_LEVEL: String = log_level => {
        key: "log.level", variable: Some("RUST_LOG"),
        default: DefaultValue::Text("info"), changes_without_restart: true,
        help: "How much to log: error, warn, info, debug or trace, also for a part: info,bellwether=debug",
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_flag_or_variable_is_there_twice() {
        let mut seen = BTreeSet::new();
        for row in ALL {
            let flag = row.flag.as_ref().map(|flag| flag.name);
            for name in [Some(row.key), flag, row.variable].into_iter().flatten() {
                assert!(seen.insert(name), "{name}");
            }
            assert!(row.key.contains('.'), "{} is in no table of the file", row.key);
            assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.key);
        }
    }
}
