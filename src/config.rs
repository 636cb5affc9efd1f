//! What the operator wrote: plain data, with its relations checked before anything is begun.

mod health;
mod hook;
mod pod;
pub mod security;

pub use self::health::{Check, Health, Written as WrittenHealth};
pub use self::hook::{
    Deed, Hook, HookKeys, Post, Signal, Unknown, can_use_files, replaceable, secret,
};
pub use self::pod::{PodLabel, Written as WrittenPod, is_namespace};
use crate::files::{self, Size};
use recipes::election::{Activation, Disconnect, Policy, Profile, Unhealthy};
use recipes::{LeaseDuration, Margins, MemberId};
use security::{Security, TlsKeys};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The configuration file. Every key may be left out; an unknown one is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub zookeeper: ZookeeperKeys,
    pub election: ElectionKeys,
    pub member: MemberKeys,
    pub lease: LeaseKeys,
    pub http: HttpKeys,
    pub exec: ExecKeys,
    pub log: LogKeys,
    pub health: HealthKeys,
    pub hook: Vec<HookKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZookeeperKeys {
    pub servers: Option<String>,
    pub session_timeout: Option<String>,
    pub tick_time: Option<String>,
    pub tls: TlsKeys,
    pub auth: Option<String>,
    pub credentials_file: Option<String>,
    pub acl: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElectionKeys {
    pub path: Option<String>,
    pub prefix: Option<String>,
    pub activate: Option<String>,
    pub ack_timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemberKeys {
    pub id: Option<String>,
    pub address: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseKeys {
    pub heartbeat: Option<String>,
    pub disconnect: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpKeys {
    pub listen: Option<String>,
    pub probe_listen: Option<String>,
    pub token_file: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecKeys {
    pub kill_after: Option<String>,
    pub on_exit: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthKeys {
    pub check: Option<String>,
    pub interval: Option<String>,
    pub timeout: Option<String>,
    pub failures: Option<u32>,
    pub policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogKeys {
    pub format: Option<String>,
    pub level: Option<String>,
}

/// Everything the daemon needs to know, parsed and checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub settings: Settings,
    /// The election's path as it was configured, without the connect string's chroot.
    pub election: String,
    pub profile: Profile,
    pub policy: Policy,
    pub listen: Listen,
    pub probe_listen: Option<SocketAddr>,
    /// Where the token is that an order has to show.
    pub token_file: Option<PathBuf>,
    pub exec: Exec,
    /// How to tell whether the application is healthy, if it is to be.
    pub health: Option<Health>,
    /// In the order in which they run.
    pub hooks: Vec<Hook>,
    /// What has to be left of a lease besides a heartbeat.
    pub reserve: Duration,
    /// Of the session timeout, as nothing else was written.
    heartbeat_is_a_tenth: bool,
}

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub struct Exec {
    /// From telling it to end to killing it.
    pub kill_after: Duration,
    pub on_exit: OnExit,
}

/// What becomes of a member whose command has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExit {
    /// It hands over and leaves with the command's exit code.
    Leave,
    /// It leads on without the command.
    Stay,
    /// The command is started again.
    Restart,
}

/// Which change a hook's command runs for, in its environment, and in that of all that it starts.
pub const HOOKS_VARIABLE: &str = "BELLWETHER_CHANGE";

/// Whoever was killed is surely dead after this: for the killer to be woken and the killed to be
/// scheduled on a busy machine. An estimate: how long that takes was not measured.
pub const TO_DIE: Duration = Duration::from_millis(250);

/// Where the application's API is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What the election needs of ZooKeeper.
#[derive(Clone, Debug)]
pub struct Settings {
    pub zookeeper: Zookeeper,
    /// The election's full path, the connect string's chroot included.
    pub root: String,
    pub prefix: String,
}

#[derive(Clone, Debug)]
pub struct Zookeeper {
    /// `host:port,host:port`, without a chroot.
    pub hosts: String,
    pub session_timeout: Duration,
    pub security: Security,
}

/// The values as they were written, before anything is made of them.
#[derive(Clone, Debug)]
pub struct Written {
    pub servers: String,
    pub session_timeout: String,
    pub tick_time: String,
    pub path: String,
    pub prefix: String,
    pub activate: String,
    pub ack_timeout: String,
    pub id: String,
    pub address: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// A tenth of the session timeout if nothing is written.
    pub heartbeat: Option<String>,
    pub disconnect: String,
    pub listen: String,
    /// Nothing written: no second listener.
    pub probe_listen: String,
    /// Nothing written: an order needs no token.
    pub token_file: String,
    pub kill_after: String,
    pub on_exit: String,
    pub security: security::Written,
    pub health: health::Written,
    pub health_policy: String,
    pub hooks: Vec<HookKeys>,
    /// For hooks that label the pod.
    pub pod: WrittenPod,
}

/// The largest data a member may have to write, its own and a leader's of the same size.
const LARGEST_DATA: usize = 1024;

const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(20);

impl Listen {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Config {
    /// Parses every value and checks their relations.
    ///
    /// # Errors
    /// One sentence that names the key, what is wrong with it, and how to mend it.
    pub fn new(written: &Written) -> Result<Self, String> {
        let (hosts, root) = place(&written.servers, &written.path, &written.prefix)?;
        let session_timeout = span("zookeeper.session_timeout", &written.session_timeout)?;
        let tick_time = span("zookeeper.tick_time", &written.tick_time)?;
        let heartbeat = match &written.heartbeat {
            Some(heartbeat) => span("lease.heartbeat", heartbeat)?,
            None => session_timeout / 10,
        };
        if heartbeat < SHORTEST_HEARTBEAT {
            return Err(format!(
                "lease.heartbeat = {heartbeat:?} is shorter than {SHORTEST_HEARTBEAT:?}, sooner than \
                 which no answer can be counted on: raise it, or zookeeper.session_timeout"
            ));
        }
        let margins = Margins { heartbeat, half_tick: tick_time / 2 };
        if margins.lease_duration(session_timeout).is_none() {
            return Err(format!(
                "zookeeper.session_timeout = {session_timeout:?} leaves no useful lease with \
                 zookeeper.tick_time = {tick_time:?} and lease.heartbeat = {heartbeat:?}: it must \
                 be at least {:?} (or lower the others, if the servers allow it)",
                least(written.heartbeat.is_none(), margins, Duration::ZERO)
            ));
        }
        let disconnect = match &*written.disconnect {
            "hold" => Disconnect::Hold,
            "step-down" => Disconnect::StepDown,
            other => {
                return Err(format!(
                    "lease.disconnect {other:?} must be \"hold\" or \"step-down\""
                ));
            }
        };
        let within = span("election.ack_timeout", &written.ack_timeout)?;
        let activation = match &*written.activate {
            "at-once" => Activation::AtOnce,
            "ack" => Activation::OnAcknowledgement { within },
            other => {
                return Err(format!("election.activate {other:?} must be \"at-once\" or \"ack\""));
            }
        };
        let unhealthy = match &*written.health_policy {
            "strict" => Unhealthy::StandAside,
            "lenient" => Unhealthy::LeadAlone,
            other => {
                return Err(format!("health.policy {other:?} must be \"strict\" or \"lenient\""));
            }
        };
        let health = Health::new(&written.health)?;
        let policy = Policy { margins, disconnect, activation, unhealthy };
        let id = MemberId::new(&written.id).ok_or_else(|| {
            format!(
                "member.id {:?} must be 1 to 253 visible ASCII characters without spaces: it is \
                 read in logs and compared with host names",
                written.id
            )
        })?;
        let address = written.address.clone().filter(|address| !address.is_empty());
        let profile = Profile { id, address, labels: written.labels.clone(), revision: 0 };
        fits(&profile, &written.prefix)?;
        let listen = listen(&written.listen)?;
        let probe_listen = match &*written.probe_listen {
            "" => None,
            written => Some(address_of("http.probe_listen", written, "0.0.0.0:4041")?),
        };
        if let Some(probe) = probe_listen
            && Listen::Tcp(probe) == listen
            && probe.port() != 0
        {
            return Err(format!(
                "http.probe_listen is http.listen, {probe}: give it a port of its own"
            ));
        }
        let token_file = Some(PathBuf::from(&written.token_file));
        let token_file = token_file.filter(|path| !path.as_os_str().is_empty());
        let security = Security::new(&written.security)?;
        let zookeeper = Zookeeper { hosts, session_timeout, security };
        let settings = Settings { zookeeper, root, prefix: written.prefix.clone() };
        let election = written.path.clone();
        let exec = Exec::new(written)?;
        let hooks = Hook::all(&written.hooks, &written.pod)?;
        if let Some(n) = hooks.iter().position(|hook| hook.acknowledges)
            && policy.activation == Activation::AtOnce
        {
            return Err(format!(
                "hook[{n}].acknowledges takes election.activate = \"ack\": nobody waits for it else"
            ));
        }
        let reserve = Duration::ZERO;
        Ok(Self {
            settings,
            election,
            profile,
            policy,
            listen,
            probe_listen,
            token_file,
            exec,
            health,
            hooks,
            reserve,
            heartbeat_is_a_tenth: written.heartbeat.is_none(),
        })
    }

    /// Whether there is anything in our memory that nobody else may see.
    pub fn has_secrets(&self) -> bool {
        let shows = |hook: &Hook| {
            matches!(&hook.deed, Deed::Post(Post { secret_file: Some(_), .. }) | Deed::Label(_))
        };
        self.settings.zookeeper.security.has_secrets()
            || self.token_file.is_some()
            || self.hooks.iter().any(shows)
    }

    /// The same, for running a command: there has to be time to end it.
    ///
    /// # Errors
    /// One sentence that names the keys, what is wrong with them, and how to mend it.
    pub fn with_command(mut self) -> Result<Self, String> {
        if self.policy.disconnect == Disconnect::StepDown {
            return Err(
                "lease.disconnect = \"step-down\" gives leadership up at once and leaves a \
                        command no time to end: use \"hold\" with exec"
                    .into(),
            );
        }
        if self.policy.activation != Activation::AtOnce {
            return Err(
                "election.activate = \"ack\" is for an application that runs all the time: \
                        with exec, leave it at \"at-once\", since the command runs while it leads"
                    .into(),
            );
        }
        if self.health.is_some() {
            return Err("health.check is for an application that runs all the time: leave it out \
                        with exec, whose command tells by its end how it is"
                .into());
        }
        self.reserve = self.exec.kill_after + TO_DIE;
        let margins = self.policy.margins;
        let session_timeout = self.settings.zookeeper.session_timeout;
        let room = margins
            .lease_duration(session_timeout)
            .map_or(Duration::ZERO, |term| term.0.saturating_sub(margins.heartbeat + TO_DIE));
        let least = least(self.heartbeat_is_a_tenth, margins, self.reserve);
        if self.exec.kill_after < room {
            return Ok(self);
        }
        Err(format!(
            "exec.kill_after = {:?} leaves no room to end a command before its lease with \
             zookeeper.session_timeout = {session_timeout:?}, zookeeper.tick_time = {:?} and \
             lease.heartbeat = {:?}: it must be less than {room:?}, or zookeeper.session_timeout \
             at least {least:?}",
            self.exec.kill_after,
            2 * margins.half_tick,
            margins.heartbeat,
        ))
    }

    /// If the servers grant the session timeout that is asked for.
    pub fn longest_lease(&self) -> Option<LeaseDuration> {
        self.policy.margins.lease_duration(self.settings.zookeeper.session_timeout)
    }
}

impl Exec {
    fn new(written: &Written) -> Result<Self, String> {
        let kill_after = span("exec.kill_after", &written.kill_after)?;
        let on_exit = match &*written.on_exit {
            "leave" => OnExit::Leave,
            "stay" => OnExit::Stay,
            "restart" => OnExit::Restart,
            other => {
                return Err(format!(
                    "exec.on_exit {other:?} must be \"leave\", \"stay\" or \"restart\""
                ));
            }
        };
        Ok(Self { kill_after, on_exit })
    }
}

impl Settings {
    /// For who only looks at an election.
    ///
    /// # Errors
    /// One sentence that names the key, what is wrong with it, and how to mend it.
    pub fn new(
        servers: &str,
        path: &str,
        prefix: &str,
        session_timeout: Duration,
        security: &security::Written,
    ) -> Result<Self, String> {
        let (hosts, root) = place(servers, path, prefix)?;
        let security = Security::new(security)?;
        let zookeeper = Zookeeper { hosts, session_timeout, security };
        Ok(Self { zookeeper, root, prefix: prefix.to_owned() })
    }
}

/// The smallest session timeout, in milliseconds, whose lease leaves so much besides a heartbeat.
fn least(heartbeat_is_a_tenth: bool, margins: Margins, reserve: Duration) -> Duration {
    let would_do = |ms: u64| {
        let timeout = Duration::from_millis(ms);
        let heartbeat = if heartbeat_is_a_tenth { timeout / 10 } else { margins.heartbeat };
        let term = Margins { heartbeat, ..margins }.lease_duration(timeout);
        heartbeat >= SHORTEST_HEARTBEAT && term.is_some_and(|term| term.0 > heartbeat + reserve)
    };
    let (mut too_little, mut enough) = (0, 1);
    while !would_do(enough) {
        (too_little, enough) = (enough, 2 * enough);
    }
    while enough - too_little > 1 {
        let between = too_little.midpoint(enough);
        if would_do(between) { enough = between } else { too_little = between }
    }
    Duration::from_millis(enough)
}

/// The servers, and the full path of the election there.
pub(crate) fn place(written: &str, path: &str, prefix: &str) -> Result<(String, String), String> {
    let (hosts, chroot) = servers(written)?;
    znode_path("election.path", path)?;
    if path == "/" {
        return Err("election.path is \"/\", which holds all of ZooKeeper: give the election a \
                    path of its own, such as \"/election\""
            .into());
    }
    if !is_prefix(prefix) {
        return Err(format!(
            "election.prefix {prefix:?} cannot begin a znode's name: use visible characters \
             without \"/\", such as \"leader_\""
        ));
    }
    Ok((hosts, format!("{chroot}{path}")))
}

/// Splits a connect string into its servers and its chroot.
fn servers(written: &str) -> Result<(String, &str), String> {
    let wrong = |why: &str| {
        // What stands before an @ is a password.
        let shown = if written.contains('@') { String::new() } else { format!(" {written:?}") };
        Err(format!(
            "zookeeper.servers{shown} {why}: write host:port,host:port/chroot, such as \
             zk-0:2181,zk-1:2181,zk-2:2181"
        ))
    };
    let (hosts, chroot) = match written.find('/') {
        Some(at) => written.split_at(at),
        None => (written, ""),
    };
    if hosts.contains('@') {
        return wrong(
            "has an @ before a server's name, and no server is asked with a password in its name: \
             user and password belong into zookeeper.credentials_file",
        );
    }
    if chroot.contains(',') {
        return wrong("has a chroot before the last server");
    }
    let chroot = if chroot == "/" { "" } else { chroot };
    if !chroot.is_empty() {
        znode_path("zookeeper.servers", chroot)?;
    }
    let mut with_ports = vec![];
    for host in hosts.split(',') {
        let (name, port) = match host.rsplit_once(':') {
            _ if host.ends_with(']') => (host, "2181"),
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
            Some(_) => return wrong("has an IPv6 address without brackets"),
            None => (host, "2181"),
        };
        let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_err()) {
            return wrong("has something in brackets that is no IPv6 address");
        }
        if name.is_empty() {
            return wrong("has an empty host");
        }
        if !name.chars().all(|c| c.is_ascii_graphic()) {
            return wrong("has a host with unprintable characters or spaces");
        }
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || !port.parse().is_ok_and(|port: u16| port > 0) {
            return wrong("has a port that is no number from 1 to 65535");
        }
        with_ports.push(format!("{name}:{port}"));
    }
    Ok((with_ports.join(","), chroot))
}

/// Parses where an API is served.
///
/// # Errors
/// One sentence that says what is wrong with it.
pub fn listen(written: &str) -> Result<Listen, String> {
    let Some(path) = written.strip_prefix("unix:") else {
        let example = "127.0.0.1:4040, or unix:/run/bellwether.sock";
        return address_of("http.listen", written, example).map(Listen::Tcp);
    };
    // A longer one is no address of a socket, by the kernel's `sockaddr_un`.
    if !path.starts_with('/') || path.ends_with('/') || path.len() > 107 || path.contains('\0') {
        return Err(format!(
            "http.listen {written:?} is no socket: write unix: and an absolute path of at most 107 \
             bytes, such as unix:/run/bellwether.sock"
        ));
    }
    Ok(Listen::Unix(path.into()))
}

fn address_of(key: &str, written: &str, example: &str) -> Result<SocketAddr, String> {
    let wrong = |_| format!("{key} {written:?} is no address: write IP:PORT, such as {example}");
    written.parse().map_err(wrong)
}

/// The rules of ZooKeeper's own `PathUtils.validatePath`.
fn znode_path(key: &str, path: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{key}: the path {path:?} {why}"));
    if !path.starts_with('/') {
        return wrong("must start with \"/\"");
    }
    if path.len() > 1 && path.ends_with('/') {
        return wrong("must not end with \"/\"");
    }
    if path.contains("//") {
        return wrong("has an empty part");
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return wrong("has a part \".\" or \"..\", which ZooKeeper refuses");
    }
    if path.chars().any(is_refused) {
        return wrong("has a character that ZooKeeper refuses");
    }
    if path == "/zookeeper" || path.starts_with("/zookeeper/") {
        return wrong("is reserved for ZooKeeper itself");
    }
    Ok(())
}

fn is_refused(c: char) -> bool {
    // ZooKeeper counts in UTF-16 and refuses surrogates, hence all beyond the basic plane.
    c > '\u{ffff}'
        || matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{f000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

fn is_prefix(prefix: &str) -> bool {
    !prefix.is_empty()
        && prefix.len() <= 200
        && !prefix.contains('/')
        && !prefix.chars().any(|c| is_refused(c) || c.is_whitespace())
}

/// Parses a length of time.
///
/// # Errors
/// One sentence that names the key, what is wrong with it, and how to mend it.
pub fn span(key: &str, written: &str) -> Result<Duration, String> {
    match humantime::parse_duration(written) {
        Ok(span) if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&span) => {
            Ok(span)
        }
        Ok(_) => Err(format!("{key} = {written:?} must lie between 1ms and 1 day")),
        Err(error) => {
            Err(format!("{key} = {written:?} is no duration ({error}): write 500ms, 10s or 2m"))
        }
    }
}

/// The token that an order has to show, from its file.
///
/// # Errors
/// One sentence that names the file, what is wrong with it, and how to mend it. It tells nothing of
/// what is in the file.
pub fn token(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: &str| format!("http.token_file: {} {why}", named(file));
    let text = files::read(file, Size::Line).map_err(|why| wrong(&why))?;
    let no_token = || wrong("holds no token: write one line of visible ASCII characters");
    token_in(&text).map(<[u8]>::to_vec).ok_or_else(no_token)
}

/// What a file is called where it is told what is wrong with it: whoever wrote the secret itself for
/// its file's name does not read it in a log.
pub fn named(file: &Path) -> String {
    let starts = ["/", "./", "../"];
    let is_path = starts
        .iter()
        .any(|start| file.as_os_str().as_encoded_bytes().starts_with(start.as_bytes()));
    if is_path || file.exists() {
        return file.display().to_string();
    }
    "what is written there, and not shown as it may be the secret itself rather than a file's path,"
        .into()
}

/// `None` if it is not one line of visible ASCII characters.
pub fn token_in(text: &[u8]) -> Option<&[u8]> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    visible.then_some(token)
}

/// Whether this can be told, and a znode holds all that a member may have to say: its own profile,
/// and a leader's, which may be as large as its own.
///
/// # Errors
/// One sentence that says what is wrong and how to mend it.
pub fn fits(profile: &Profile, prefix: &str) -> Result<(), String> {
    let unreadable = |c: char| c.is_control() || c.is_whitespace();
    if let Some(address) = profile.address.as_ref().filter(|address| address.contains(unreadable)) {
        return Err(format!(
            "member.address {address:?} must not have spaces or control characters: write \
             host:port, such as 10.0.0.7:8080"
        ));
    }
    if profile.labels.contains_key("") {
        return Err("member.labels has a label without a key: write zone = \"eu-1\"".into());
    }
    let text = |text: &str| serde_json::to_string(text).map_or(0, |json| json.len());
    let labels: usize = profile.labels.iter().map(|(k, v)| text(k) + text(v) + 2).sum();
    let address = profile.address.as_deref().map_or(4, text);
    let fixed =
        r#"{"id":,"address":,"labels":{},"revision":18446744073709551615,"leader":,"version":""}"#
            .len()
            + env!("CARGO_PKG_VERSION").len();
    let own = fixed + text(profile.id.as_str()) + address + labels;
    let znode =
        text(prefix) + 10 + r#","znode":,"token":18446744073709551615,"active":false"#.len();
    let all = 2 * own + znode;
    if all <= LARGEST_DATA {
        return Ok(());
    }
    Err(format!(
        "member.id, member.address and member.labels together are {all} bytes in a znode (told \
         once for the member and once for the leader), and at most {LARGEST_DATA} are allowed: \
         shorten them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        Written {
            servers: "127.0.0.1:2181".into(),
            session_timeout: "10s".into(),
            tick_time: "2s".into(),
            path: "/election".into(),
            prefix: "leader_".into(),
            activate: "at-once".into(),
            ack_timeout: "30s".into(),
            id: "a".into(),
            address: None,
            labels: BTreeMap::new(),
            heartbeat: None,
            disconnect: "hold".into(),
            listen: "127.0.0.1:4040".into(),
            probe_listen: String::new(),
            token_file: String::new(),
            kill_after: "2s".into(),
            on_exit: "leave".into(),
            security: security::Written::default(),
            health: health::Written {
                check: String::new(),
                interval: "5s".into(),
                timeout: "2s".into(),
                failures: "3".into(),
            },
            health_policy: "strict".into(),
            hooks: vec![],
            pod: WrittenPod::default(),
        }
    }

    fn error(change: impl FnOnce(&mut Written)) -> String {
        let mut written = written();
        change(&mut written);
        Config::new(&written).expect_err("this is no configuration")
    }

    #[test]
    fn the_defaults_make_sense() {
        let config = Config::new(&written()).unwrap();
        assert_eq!(config.settings.root, "/election");
        assert_eq!(config.policy.margins.heartbeat, Duration::from_secs(1));
    }

    #[test]
    fn a_chroot_leads_the_path() {
        let servers = "a:1,[::1]:2,c/deep/root".to_owned();
        let config = Config::new(&Written { servers, ..written() }).unwrap();
        assert_eq!(config.settings.zookeeper.hosts, "a:1,[::1]:2,c:2181");
        assert_eq!(config.settings.root, "/deep/root/election");
        assert_eq!(config.election, "/election");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for servers in [
            "",
            "a:0",
            "a:x",
            ":1",
            "a:1,,b:2",
            "a:1/../b",
            "::1:2181",
            "a b:1",
            "a:+1",
            "[zz]:1",
            "a:1/b,c:1",
        ] {
            let error = error(|w| w.servers = servers.into());
            assert!(error.contains("zookeeper.servers"), "{servers}: {error}");
        }
        for path in
            ["", "x", "/", "/a/", "/a//b", "/a/./b", "/..", "/a\u{1}", "/zookeeper/x", "/🐑"]
        {
            let error = error(|w| w.path = path.into());
            assert!(error.contains("election.path"), "{path}: {error}");
        }
        for prefix in ["", "a/b", "a b", "\u{0}"] {
            assert!(error(|w| w.prefix = prefix.into()).contains("election.prefix"));
        }
        for id in ["", "a b", "ä"] {
            assert!(error(|w| w.id = id.into()).contains("member.id"));
        }
        assert!(error(|w| w.tick_time = "soon".into()).contains("zookeeper.tick_time"));
        assert!(error(|w| w.session_timeout = "0s".into()).contains("zookeeper.session_timeout"));
        assert!(error(|w| w.disconnect = "maybe".into()).contains("lease.disconnect"));
        for check in ["x", "https://h/", "http://", "http://u:p@h/", "./check"] {
            assert!(error(|w| w.health.check = check.into()).contains("health.check"), "{check}");
        }
        assert!(error(|w| w.health.interval = "0s".into()).contains("health.interval"));
        assert!(error(|w| w.health.timeout = "x".into()).contains("health.timeout"));
        assert!(error(|w| w.health.failures = "0".into()).contains("health.failures"));
        assert!(error(|w| w.health_policy = "maybe".into()).contains("health.policy"));
        assert!(error(|w| w.activate = "maybe".into()).contains("election.activate"));
        assert!(error(|w| w.ack_timeout = "soon".into()).contains("election.ack_timeout"));
        assert!(error(|w| w.on_exit = "maybe".into()).contains("exec.on_exit"));
        assert!(error(|w| w.kill_after = "soon".into()).contains("exec.kill_after"));
        for listen in [
            "4040",
            "unix:",
            "unix:run/x.sock",
            "unix:/run/",
            &format!("unix:/{}", "x".repeat(107)),
        ] {
            let error = error(|w| w.listen = listen.into());
            assert!(error.contains("http.listen"), "{listen}: {error}");
        }
        assert!(error(|w| w.probe_listen = "4041".into()).contains("http.probe_listen"));
        assert!(error(|w| w.probe_listen = w.listen.clone()).contains("http.probe_listen"));
        assert!(error(|w| w.address = Some("x".repeat(600))).contains("1024"));
        assert!(error(|w| w.address = Some("a b:1".into())).contains("member.address"));
        assert!(
            error(|w| drop(w.labels.insert(String::new(), "x".into()))).contains("without a key")
        );
    }

    #[test]
    fn a_command_is_run_only_where_there_is_time_to_end_it() {
        let with_command = |kill_after: &str, session_timeout: &str| {
            let (kill_after, session_timeout) = (kill_after.into(), session_timeout.into());
            Config::new(&Written { kill_after, session_timeout, ..written() })?.with_command()
        };
        assert_eq!(with_command("2s", "10s").unwrap().reserve, Duration::from_millis(2250));
        assert!(with_command("5639ms", "10s").is_ok());
        let error = with_command("5640ms", "10s").expect_err("6.89 s - 1 s - 0.25 s");
        let keys =
            ["exec.kill_after", "session_timeout", "tick_time", "lease.heartbeat", "than 5.64s"];
        assert!(keys.iter().all(|key| error.contains(key)), "{error}");
        let least = error.split("at least ").nth(1).unwrap();
        let heartbeat = Some("1s".to_owned());
        let (kill_after, session_timeout) = ("5640ms".into(), least.to_owned());
        let enough = Written { kill_after, session_timeout, heartbeat, ..written() };
        assert!(Config::new(&enough).unwrap().with_command().is_ok(), "{least}");
        let stepping_down = Written { disconnect: "step-down".into(), ..written() };
        let error = Config::new(&stepping_down).unwrap().with_command().unwrap_err();
        assert!(error.contains("lease.disconnect"), "{error}");
        let waiting = Written { activate: "ack".into(), ..written() };
        let error = Config::new(&waiting).unwrap().with_command().unwrap_err();
        assert!(error.contains("election.activate"), "{error}");
        let mut checked = written();
        checked.health.check = "/app/check".into();
        let error = Config::new(&checked).unwrap().with_command().unwrap_err();
        assert!(error.contains("health.check"), "{error}");
    }

    #[test]
    fn a_session_too_short_for_a_lease_is_refused_with_the_least_that_would_do() {
        let error = error(|w| w.session_timeout = "1s".into());
        assert!(error.contains("zookeeper.session_timeout = 1s"), "{error}");
        // What it says will do does, and a millisecond less does not.
        let least = error.split("at least ").nth(1).unwrap().split(' ').next().unwrap();
        let least = humantime::parse_duration(least).unwrap();
        let tried = |timeout: Duration| {
            let session_timeout = format!("{}ms", timeout.as_millis());
            Config::new(&Written { session_timeout, ..written() })
        };
        assert!(tried(least).is_ok(), "{error}");
        assert!(tried(least - Duration::from_millis(1)).is_err(), "{error}");
    }
}
