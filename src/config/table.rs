//! The table of settings: each key once, with its flag, its variable, its default, its help and its parser.
//!
//! The command line, its help, the manual pages, the file, `check-config` and SIGHUP are made from it. The sample
//! file and the documents are held against it by `tests/settings.rs`, so a new key is a row here, a paragraph in
//! config/bellwether.toml and a row in the documentation.

use super::health::{self, Check};
use super::parse::{
    duration, failures, family, file, group, labels, listen_at, log_format, log_level, mebibytes,
    member_address, member_id, mode, on_exit, principal, priority, probe_address, service,
    shown_labels, wait,
};
use super::security::{AclPolicy, Scheme};
use super::servers::{self, Servers};
use super::setting::{Row, Scope, Setting, ValueKind};
use super::sources::Checked;
use super::{Listen, LogFormat, OnExit};
use recipes::election::Priority;
use recipes::{ForeignClient, MemberId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Declares each setting by name, and all of them as a list. rustfmt leaves the rows as they are.
macro_rules! table {
    ($($name:ident: $type:ty = $setting:expr;)*) => {
        $(pub static $name: Setting<$type> = $setting;)*

        /// Every setting, in the order of `check-config` and `--help`.
        pub static ALL: &[&Row] = &[$(&$name.row),*];

        pub(super) static SETTINGS: &[&(dyn Checked + Sync)] = &[$(&$name),*];
    };
}

table! {
    SERVERS: Servers = Setting::new("zookeeper.servers", servers::parse)
        .flag("zookeeper", "SERVERS").short('z').variable("BELLWETHER_ZOOKEEPER")
        .default("127.0.0.1:2181").scope(Scope::Zookeeper)
        .help("ZooKeeper's servers, host:port,host:port/chroot");

    TLS_CA: PathBuf = Setting::new("zookeeper.tls.ca", file)
        .flag("tls-ca", "FILE").variable("BELLWETHER_TLS_CA")
        .scope(Scope::Zookeeper).may_be_secret()
        .help("Speak TLS, with servers whose certificates a CA in this PEM file has signed");

    TLS_CERT: PathBuf = Setting::new("zookeeper.tls.cert", file)
        .flag("tls-cert", "FILE").variable("BELLWETHER_TLS_CERT")
        .scope(Scope::Zookeeper).may_be_secret()
        .help("This member's certificate, in PEM, for servers that ask for one");

    TLS_KEY: PathBuf = Setting::new("zookeeper.tls.key", file)
        .flag("tls-key", "FILE").variable("BELLWETHER_TLS_KEY")
        .scope(Scope::Zookeeper).may_be_secret()
        .help("The private key to that certificate, in PEM");

    AUTH: Option<Scheme> = Setting::new("zookeeper.auth", Scheme::parse)
        .flag("auth", "SCHEME").variable("BELLWETHER_AUTH")
        .scope(Scope::Zookeeper).may_be_secret()
        .help("How to log in: digest or sasl (DIGEST-MD5) with user and password, or kerberos");

    CREDENTIALS_FILE: PathBuf = Setting::new("zookeeper.credentials_file", file)
        .flag("credentials-file", "FILE").variable("BELLWETHER_CREDENTIALS_FILE")
        .scope(Scope::Zookeeper).may_be_secret()
        .help(
            "A file with the line user:password, instead of BELLWETHER_CREDENTIALS in the \
             environment",
        );

    KERBEROS_PRINCIPAL: Option<String> = Setting::new("zookeeper.kerberos.principal", principal)
        .flag("kerberos-principal", "PRINCIPAL").variable("BELLWETHER_KERBEROS_PRINCIPAL")
        .scope(Scope::Zookeeper)
        .help("This member's principal, app@EXAMPLE.ORG; without it, that of the default credential cache");

    KERBEROS_KEYTAB: PathBuf = Setting::new("zookeeper.kerberos.keytab", file)
        .flag("kerberos-keytab", "FILE").variable("BELLWETHER_KERBEROS_KEYTAB")
        .scope(Scope::Zookeeper)
        .help("The file with the principal's key; without it, the default credential cache is used");

    KERBEROS_SERVICE: String = Setting::new("zookeeper.kerberos.service", service)
        .flag("kerberos-service", "NAME").variable("BELLWETHER_KERBEROS_SERVICE")
        .default("zookeeper").scope(Scope::Zookeeper)
        .help("The first part of the servers' principals, NAME/host");

    ACL: Option<AclPolicy> = Setting::new("zookeeper.acl", AclPolicy::parse)
        .flag("acl", "ACL").variable("BELLWETHER_ACL")
        .derived("creator-readable with an identity, else open").scope(Scope::Lease)
        .help(
            "Who may touch what members create: open, creator or creator-readable; an identity \
             is one of --auth or --tls-cert",
        );

    SESSION_TIMEOUT: Duration = Setting::new("zookeeper.session_timeout", duration)
        .flag("session-timeout", "DURATION").variable("BELLWETHER_SESSION_TIMEOUT")
        .default("10s").scope(Scope::Lease)
        .help("The session timeout to ask for: 500ms, 10s, 2m");

    SESSION_FILE: PathBuf = Setting::new("zookeeper.session_file", file)
        .flag("session-file", "FILE").variable("BELLWETHER_SESSION_FILE")
        .help("Keep the session in this file, best in memory, so that a restart need not look like a crash");

    TICK_TIME: Duration = Setting::new("zookeeper.tick_time", duration)
        .flag("tick-time", "DURATION").variable("BELLWETHER_TICK_TIME")
        .default("2s").scope(Scope::Lease)
        .help("The largest tickTime among the servers, for the lease's margin");

    HEARTBEAT: Duration = Setting::new("lease.heartbeat", duration)
        .flag("heartbeat", "DURATION").variable("BELLWETHER_HEARTBEAT")
        .derived("a tenth of zookeeper.session_timeout").scope(Scope::Lease)
        .help("The longest time between two heartbeats");

    PATH: String = Setting::new("election.path", servers::parse_election)
        .flag("election", "PATH").short('e').variable("BELLWETHER_ELECTION")
        .default("/election").scope(Scope::Election)
        .help("The group's path in ZooKeeper");

    PREFIX: String = Setting::new("election.prefix", servers::parse_prefix)
        .flag("prefix", "PREFIX").variable("BELLWETHER_PREFIX")
        .default("leader_").scope(Scope::Election)
        .help("The start of the members' znodes' names");

    COMPATIBLE_WITH: Option<ForeignClient> = Setting::new("election.compatible_with", family)
        .flag("compatible-with", "CLIENT").variable("BELLWETHER_COMPATIBLE_WITH")
        .default("none").scope(Scope::Election)
        .help(
            "Stand in the queue of another client's election: curator-latch, curator-selector, kazoo or \
             zookeeper-recipe",
        );

    PRIORITY: Priority = Setting::new("election.priority", priority)
        .flag("priority", "0-100").variable("BELLWETHER_PRIORITY")
        .kind(ValueKind::Number).default("50").in_flight()
        .help("How much this member is preferred as the leader; 0: only where no other is ready");

    PREEMPT_AFTER: Option<Duration> = Setting::new("election.preempt_after", wait)
        .flag("preempt-after", "DURATION").variable("BELLWETHER_PREEMPT_AFTER")
        .default("never")
        .help("For how long this member, if it leads, sees one of higher priority before it hands over to it, or never");

    RECIPES_ROOT: Option<String> = Setting::new("recipes.root", servers::parse_root)
        .flag("recipes-root", "PATH").variable("BELLWETHER_RECIPES_ROOT")
        .default("/").scope(Scope::Lease)
        .help("The path in ZooKeeper with locks, barriers and config below it, for any application; empty switches them off");

    ID: MemberId = Setting::new("member.id", member_id)
        .flag("id", "NAME").short('i').variable("BELLWETHER_ID")
        .derived("$POD_NAME, else the host's name").scope(Scope::Lease)
        .help("This member's name, which no other member of the election may have");

    ADDRESS: Option<String> = Setting::new("member.address", member_address)
        .flag("address", "ADDRESS").short('a').variable("BELLWETHER_ADDRESS")
        .in_flight()
        .help("Where the application can be reached; told to the others");

    LABELS: BTreeMap<String, String> = Setting::new("member.labels", labels)
        .flag("label", "KEY=VALUE").short('l').variable("BELLWETHER_LABELS")
        .kind(ValueKind::Labels).shown_by(shown_labels).in_flight()
        .help("Metadata told to the others; may be given again, and the variable is KEY=VALUE,KEY=VALUE");

    LISTEN: Listen = Setting::new("http.listen", listen_at)
        .flag("listen", "IP:PORT|unix:PATH").variable("BELLWETHER_LISTEN")
        .default("127.0.0.1:4040")
        .help("Where to serve the application's API");

    BUFFERS: u32 = Setting::new("http.buffers_mib", mebibytes)
        .flag("buffers-mib", "NUMBER").variable("BELLWETHER_BUFFERS_MIB")
        .kind(ValueKind::Number).default("12")
        .help("How many MiB all requests, answers and watched values may take at a time");

    SOCKET_MODE: u32 = Setting::new("http.socket_mode", mode)
        .flag("socket-mode", "MODE").variable("BELLWETHER_SOCKET_MODE")
        .derived("0666")
        .help("Who may connect to the Unix socket of --listen, as chmod has it");

    SOCKET_GROUP: String = Setting::new("http.socket_group", group)
        .flag("socket-group", "GROUP").variable("BELLWETHER_SOCKET_GROUP")
        .help("The group of that socket: a name of /etc/group, or a number");

    PROBE_LISTEN: Option<SocketAddr> = Setting::new("http.probe_listen", probe_address)
        .flag("probe-listen", "IP:PORT").variable("BELLWETHER_PROBE_LISTEN")
        .help("Where to serve probes, read-only, for a kubelet or a load balancer");

    TOKEN_FILE: PathBuf = Setting::new("http.token_file", file)
        .flag("token-file", "FILE").variable("BELLWETHER_TOKEN_FILE")
        .may_be_secret()
        .help("A file with the command token, which a command has to show as Authorization: Bearer");

    HEALTH_CHECK: Option<Check> = Setting::new("health.check", Check::parse)
        .flag("app-health", "URL|COMMAND").variable("BELLWETHER_APP_HEALTH")
        .shown_by(health::shown)
        .help(
            "Take part only while the application is healthy: the URL to GET, or a command that \
             begins with its absolute path",
        );

    HEALTH_INTERVAL: Duration = Setting::new("health.interval", duration)
        .flag("app-health-interval", "DURATION").variable("BELLWETHER_APP_HEALTH_INTERVAL")
        .default("5s")
        .help("How long to wait between two checks");

    HEALTH_TIMEOUT: Duration = Setting::new("health.timeout", duration)
        .flag("app-health-timeout", "DURATION").variable("BELLWETHER_APP_HEALTH_TIMEOUT")
        .default("2s")
        .help("How long a check may take");

    HEALTH_FAILURES: u32 = Setting::new("health.failures", failures)
        .flag("app-health-failures", "NUMBER").variable("BELLWETHER_APP_HEALTH_FAILURES")
        .kind(ValueKind::Number).default("3")
        .help("How many failures in a row make the application unhealthy");

    KILL_AFTER: Duration = Setting::new("exec.kill_after", duration)
        .flag("kill-after", "DURATION").variable("BELLWETHER_KILL_AFTER")
        .default("2s").scope(Scope::Exec)
        .help("From SIGTERM to SIGKILL, when the program has to end");

    STOPPED_FOR: Duration = Setting::new("exec.stopped_for", duration)
        .flag("stopped-for", "DURATION").variable("BELLWETHER_STOPPED_FOR")
        .default("1m").scope(Scope::Exec)
        .help("How long the program may be stopped, as by Ctrl-Z, until it is killed");

    ON_EXIT: OnExit = Setting::new("exec.on_exit", on_exit)
        .flag("on-exit", "WHAT").variable("BELLWETHER_ON_EXIT")
        .default("leave").scope(Scope::Exec)
        .help(
            "What to do when the program has ended: leave (hand over, and exit with its code), \
             stay (lead on without it) or restart",
        );

    LOG_FORMAT: LogFormat = Setting::new("log.format", log_format)
        .flag("log-format", "FORMAT").variable("BELLWETHER_LOG_FORMAT")
        .default("text")
        .help("How to write the log, to stderr: text or json; its level is RUST_LOG or log.level");

    LOG_LEVEL: String = Setting::new("log.level", log_level)
        .variable("RUST_LOG")
        .default("info").in_flight()
        .help(
            "How much to log: error, warn, info, debug or trace, also for a part: \
             info,bellwether=debug",
        );
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
