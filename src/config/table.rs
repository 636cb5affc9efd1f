//! The table of settings: each key once, with its flag, its variable, its default, its help and its parser.
//!
//! The command line, its help, the manual pages, the file, `check-config` and SIGHUP are generated from it.
//! `tests/settings.rs` checks the sample file and the documents against it, so a new key needs a row here, a paragraph in
//! config/bellwether.toml and a row in the documentation.

use super::health::{self, Check};
use super::parse::{
    duration, duration_or_never, file, foreign_client, group, kerberos_name, labels, listen_at,
    log_level, member_id, mode, number, one_of, priority, socket_address, text,
};
use super::security::{self, AclPolicy, Scheme};
use super::servers::{self, Servers};
use super::setting::{DefaultValue, Row, Scope, Setting};
use super::{Listen, LogFormat, OnExit};
use recipes::election::Priority;
use recipes::{ForeignClient, MemberId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Declares a static [`Setting`] for each row, and [`ALL`]. A row's comment is the help of its flag. rustfmt does not format
/// the rows.
macro_rules! table {
    ($(#[doc = $help:literal] $name:ident: $type:ty = $parser:expr => { $($field:ident: $value:expr),* $(,)? };)*) => {
        $(#[doc = $help] pub static $name: Setting<$type> = Setting {
            row: Row {
                $($field: $value,)*
                help: $help.trim_ascii_start(),
                error: |values| values.get_optional(&$name).err(),
                ..Row::DEFAULTS
            },
            parser: $parser,
        };)*

        /// Every setting, in the order of `check-config` and `--help`.
        pub static ALL: &[&Row] = &[$(&$name.row),*];
    };
}

table! {
    /// ZooKeeper's servers, host:port,host:port/chroot
    SERVERS: Servers = servers::parse => {
        key: "zookeeper.servers", flag: "zookeeper", letter: Some('z'), placeholder: "SERVERS", variable: "BELLWETHER_ZOOKEEPER",
        default: DefaultValue::Text("127.0.0.1:2181"), scope: Scope::Zookeeper,
    };

    /// Speak TLS, with servers whose certificates a CA in this PEM file has signed
    TLS_CA: PathBuf = file => {
        key: "zookeeper.tls.ca", flag: "tls-ca", placeholder: "FILE", variable: "BELLWETHER_TLS_CA",
        scope: Scope::Zookeeper,
    };

    /// This member's certificate, in PEM, for servers that ask for one
    TLS_CERT: PathBuf = file => {
        key: "zookeeper.tls.cert", flag: "tls-cert", placeholder: "FILE", variable: "BELLWETHER_TLS_CERT",
        scope: Scope::Zookeeper,
    };

    /// The private key to that certificate, in PEM
    TLS_KEY: PathBuf = file => {
        key: "zookeeper.tls.key", flag: "tls-key", placeholder: "FILE", variable: "BELLWETHER_TLS_KEY",
        scope: Scope::Zookeeper,
    };

    /// How to log in: digest or sasl (DIGEST-MD5) with user and password, or kerberos
    AUTH: Scheme = security::scheme => {
        key: "zookeeper.auth", flag: "auth", placeholder: "SCHEME", variable: "BELLWETHER_AUTH",
        scope: Scope::Zookeeper,
    };

    /// A file with the line user:password, instead of BELLWETHER_CREDENTIALS in the environment
    CREDENTIALS_FILE: PathBuf = file => {
        key: "zookeeper.credentials_file", flag: "credentials-file", placeholder: "FILE", variable: "BELLWETHER_CREDENTIALS_FILE",
        scope: Scope::Zookeeper,
    };

    /// This member's principal, app@EXAMPLE.ORG; without it, that of the default credential cache
    KERBEROS_PRINCIPAL: String = kerberos_name => {
        key: "zookeeper.kerberos.principal", flag: "kerberos-principal", placeholder: "PRINCIPAL", variable: "BELLWETHER_KERBEROS_PRINCIPAL",
        scope: Scope::Zookeeper,
    };

    /// The file with the principal's key; without it, the default credential cache is used
    KERBEROS_KEYTAB: PathBuf = file => {
        key: "zookeeper.kerberos.keytab", flag: "kerberos-keytab", placeholder: "FILE", variable: "BELLWETHER_KERBEROS_KEYTAB",
        scope: Scope::Zookeeper,
    };

    /// The first part of the servers' principals, NAME/host
    KERBEROS_SERVICE: String = kerberos_name => {
        key: "zookeeper.kerberos.service", flag: "kerberos-service", placeholder: "NAME", variable: "BELLWETHER_KERBEROS_SERVICE",
        default: DefaultValue::Text("zookeeper"), scope: Scope::Zookeeper,
    };

    /// The access to what members create: open, creator or creator-readable; an identity is one of --auth or --tls-cert
    ACL: AclPolicy = one_of => {
        key: "zookeeper.acl", flag: "acl", placeholder: "ACL", variable: "BELLWETHER_ACL",
        default: DefaultValue::Derived("creator-readable with an identity, else open"), scope: Scope::Lease,
    };

    /// The session timeout to ask for: 500ms, 10s, 2m
    SESSION_TIMEOUT: Duration = duration => {
        key: "zookeeper.session_timeout", flag: "session-timeout", placeholder: "DURATION", variable: "BELLWETHER_SESSION_TIMEOUT",
        default: DefaultValue::Text("10s"), scope: Scope::Lease,
    };

    /// Keep the session in this file, best in memory, so that a restart need not look like a crash
    SESSION_FILE: PathBuf = file => {
        key: "zookeeper.session_file", flag: "session-file", placeholder: "FILE", variable: "BELLWETHER_SESSION_FILE",
    };

    /// The largest tickTime among the servers, for the lease's margin
    TICK_TIME: Duration = duration => {
        key: "zookeeper.tick_time", flag: "tick-time", placeholder: "DURATION", variable: "BELLWETHER_TICK_TIME",
        default: DefaultValue::Text("2s"), scope: Scope::Lease,
    };

    /// The longest time between two heartbeats
    HEARTBEAT: Duration = duration => {
        key: "lease.heartbeat", flag: "heartbeat", placeholder: "DURATION", variable: "BELLWETHER_HEARTBEAT",
        default: DefaultValue::Derived("a tenth of zookeeper.session_timeout"), scope: Scope::Lease,
    };

    /// The group's path in ZooKeeper
    PATH: String = servers::parse_election => {
        key: "election.path", flag: "election", letter: Some('e'), placeholder: "PATH", variable: "BELLWETHER_ELECTION",
        default: DefaultValue::Text("/election"), scope: Scope::Election,
    };

    /// The start of the members' znodes' names
    PREFIX: String = servers::parse_prefix => {
        key: "election.prefix", flag: "prefix", placeholder: "PREFIX", variable: "BELLWETHER_PREFIX",
        default: DefaultValue::Text("leader_"), scope: Scope::Election,
    };

    /// Stand in the queue of another client's election: curator-latch, curator-selector, kazoo or zookeeper-recipe
    COMPATIBLE_WITH: ForeignClient = foreign_client => {
        key: "election.compatible_with", flag: "compatible-with", placeholder: "CLIENT", variable: "BELLWETHER_COMPATIBLE_WITH",
        default: DefaultValue::Text("none"), scope: Scope::Election,
    };

    /// How much this member is preferred as the leader; 0: only where no other is ready
    PRIORITY: Priority = priority => {
        key: "election.priority", flag: "priority", placeholder: "0-100", variable: "BELLWETHER_PRIORITY",
        default: DefaultValue::Text("50"), changes_without_restart: true,
    };

    /// The time for which this member, if it leads, sees one of higher priority before it hands over to it, or never
    PREEMPT_AFTER: Duration = duration_or_never => {
        key: "election.preempt_after", flag: "preempt-after", placeholder: "DURATION", variable: "BELLWETHER_PREEMPT_AFTER",
        default: DefaultValue::Text("never"),
    };

    /// The path in ZooKeeper with locks, barriers and config below it, for any application; empty switches them off
    RECIPES_ROOT: Option<String> = servers::parse_root => {
        key: "recipes.root", flag: "recipes-root", placeholder: "PATH", variable: "BELLWETHER_RECIPES_ROOT",
        default: DefaultValue::Text("/"), scope: Scope::Lease,
    };

    /// This member's name, which no other member of the election may have
    ID: MemberId = member_id => {
        key: "member.id", flag: "id", letter: Some('i'), placeholder: "NAME", variable: "BELLWETHER_ID",
        default: DefaultValue::Derived("$POD_NAME, else the host's name"), scope: Scope::Lease,
    };

    /// The address of the application, published to the others
    ADDRESS: String = text => {
        key: "member.address", flag: "address", letter: Some('a'), placeholder: "ADDRESS", variable: "BELLWETHER_ADDRESS",
        changes_without_restart: true,
    };

    /// Metadata published to the others; may be given again, and the variable is KEY=VALUE,KEY=VALUE
    LABELS: BTreeMap<String, String> = labels => {
        key: "member.labels", flag: "label", letter: Some('l'), placeholder: "KEY=VALUE", variable: "BELLWETHER_LABELS",
        changes_without_restart: true,
    };

    /// The address of the application's API
    LISTEN: Listen = listen_at => {
        key: "http.listen", flag: "listen", placeholder: "IP:PORT|unix:PATH", variable: "BELLWETHER_LISTEN",
        default: DefaultValue::Text("127.0.0.1:4040"),
    };

    /// How many MiB all requests, answers and watched values may take at a time
    BUFFERS: u32 = number::<4, 4096> => {
        key: "http.buffers_mib", flag: "buffers-mib", placeholder: "NUMBER", variable: "BELLWETHER_BUFFERS_MIB",
        default: DefaultValue::Text("12"),
    };

    /// The permissions of the Unix socket of --listen, as chmod has it
    SOCKET_MODE: u32 = mode => {
        key: "http.socket_mode", flag: "socket-mode", placeholder: "MODE", variable: "BELLWETHER_SOCKET_MODE",
        default: DefaultValue::Text("0666"),
    };

    /// The group of that socket: a name of /etc/group, or a number
    SOCKET_GROUP: u32 = group => {
        key: "http.socket_group", flag: "socket-group", placeholder: "GROUP", variable: "BELLWETHER_SOCKET_GROUP",
    };

    /// The address of probes, read-only, for a kubelet or a load balancer
    PROBE_LISTEN: SocketAddr = socket_address => {
        key: "http.probe_listen", flag: "probe-listen", placeholder: "IP:PORT", variable: "BELLWETHER_PROBE_LISTEN",
    };

    /// A file with the command token, which a command has to show as Authorization: Bearer
    TOKEN_FILE: PathBuf = file => {
        key: "http.token_file", flag: "token-file", placeholder: "FILE", variable: "BELLWETHER_TOKEN_FILE",
    };

    /// Take part only while the application is healthy: the URL to GET, or a command that begins with its absolute path
    HEALTH_CHECK: Check = Check::parse => {
        key: "health.check", flag: "app-health", placeholder: "URL|COMMAND", variable: "BELLWETHER_APP_HEALTH",
        show: health::shown,
    };

    /// How long to wait between two checks
    HEALTH_INTERVAL: Duration = duration => {
        key: "health.interval", flag: "app-health-interval", placeholder: "DURATION", variable: "BELLWETHER_APP_HEALTH_INTERVAL",
        default: DefaultValue::Text("5s"),
    };

    /// How long a check may take
    HEALTH_TIMEOUT: Duration = duration => {
        key: "health.timeout", flag: "app-health-timeout", placeholder: "DURATION", variable: "BELLWETHER_APP_HEALTH_TIMEOUT",
        default: DefaultValue::Text("2s"),
    };

    /// How many failures in a row make the application unhealthy
    HEALTH_FAILURES: u32 = number::<1, 1000> => {
        key: "health.failures", flag: "app-health-failures", placeholder: "NUMBER", variable: "BELLWETHER_APP_HEALTH_FAILURES",
        default: DefaultValue::Text("3"),
    };

    /// From SIGTERM to SIGKILL, when the program has to end
    KILL_AFTER: Duration = duration => {
        key: "exec.kill_after", flag: "kill-after", placeholder: "DURATION", variable: "BELLWETHER_KILL_AFTER",
        default: DefaultValue::Text("2s"), scope: Scope::Exec,
    };

    /// How long the program may be stopped, as by Ctrl-Z, until it is killed
    STOPPED_FOR: Duration = duration => {
        key: "exec.stopped_for", flag: "stopped-for", placeholder: "DURATION", variable: "BELLWETHER_STOPPED_FOR",
        default: DefaultValue::Text("1m"), scope: Scope::Exec,
    };

    /// How to go on when the program has ended: leave (hand over, and exit with its code), stay (lead on without it) or restart
    ON_EXIT: OnExit = one_of => {
        key: "exec.on_exit", flag: "on-exit", placeholder: "WHAT", variable: "BELLWETHER_ON_EXIT",
        default: DefaultValue::Text("leave"), scope: Scope::Exec,
    };

    /// How to write the log, to stderr: text or json
    LOG_FORMAT: LogFormat = one_of => {
        key: "log.format", flag: "log-format", placeholder: "FORMAT", variable: "BELLWETHER_LOG_FORMAT",
        default: DefaultValue::Text("text"),
    };

    /// How much to log: error, warn, info, debug or trace, also for a part: info,bellwether=debug
    LOG_LEVEL: String = log_level => {
        key: "log.level", flag: "log-level", placeholder: "LEVEL", variable: "RUST_LOG",
        default: DefaultValue::Text("info"), changes_without_restart: true,
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
            for name in [row.key, row.flag, row.variable] {
                assert!(seen.insert(name), "{name}");
            }
            assert!(row.key.contains('.'), "{} is in no table of the file", row.key);
            assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.key);
        }
    }
}
