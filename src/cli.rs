//! The commands and their arguments, and where each value came from.

mod asking;
mod calls;
mod papers;
mod strays;

use crate::config::security::{self, CREDENTIALS_VARIABLE};
use crate::config::{self, Config, File, Written, WrittenHealth, WrittenPod, ZookeeperKeys};
use crate::terminal::{COMMANDS, Call, Errand, QUESTIONS};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::env::VarError;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
pub use strays::strays;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Stands in line for leadership in ZooKeeper and tells your application, over HTTP, who leads.
///
/// Run it beside each replica. Each member creates an ephemeral sequential znode; the lowest
/// number leads. Ask it with `bellwether leader`, or over HTTP with `curl localhost:4040/leader`.
#[derive(Parser)]
#[command(version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Join the election and serve the HTTP API until SIGTERM or SIGINT.
    ///
    /// Exits 0 after a signal, 2 if the configuration is wrong, 1 if the address cannot be bound.
    Run(Options),
    /// Run a command only while this member leads.
    ///
    /// The same as `run`; and when this member leads, it starts the command, with BELLWETHER_TOKEN,
    /// BELLWETHER_ID and BELLWETHER_ELECTION in its environment. When leadership is going to be lost
    /// or given up, the command's process group gets SIGTERM, and SIGKILL before anybody else can
    /// lead. SIGTERM and SIGINT end the command first, then this member leaves; a second one kills it.
    /// Other signals are passed on.
    ///
    /// Exits with the command's exit code, 128+n if signal n ended it, 127 if it is not found, 126 if
    /// it cannot be run, 125 if something else fails; 0 after a signal while it did not run; 2 if the
    /// configuration is wrong, 1 if the address cannot be bound.
    Exec(ExecOptions),
    /// Print the effective configuration and where each value came from, or what is wrong.
    ///
    /// Exits 0 if `run` would accept it, or with --exec if `exec` would, else 2.
    CheckConfig(CheckOptions),
    /// Between `exec` and the inner guard.
    #[command(hide = true)]
    ExecOuterGuard { command: Vec<OsString> },
    /// Between the outer guard and the command.
    #[command(hide = true)]
    ExecInnerGuard { command: Vec<OsString> },
    /// Between the inner guard and the command.
    #[command(hide = true)]
    ExecCommand { guard: i32, files: String, command: Vec<OsString> },
    #[command(flatten)]
    Asking(asking::Asking),
    #[command(flatten)]
    Papers(papers::Papers),
}

#[derive(Args)]
struct CheckOptions {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    exec: Exec,
    /// Check it for `exec`, which needs room in the lease to end its command
    #[arg(long = "exec")]
    for_exec: bool,
}

#[derive(Args)]
struct ExecOptions {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    exec: Exec,
    /// Leave when the command has ended with exit code 0, whatever --on-exit says
    #[arg(long)]
    once: bool,
    /// The command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What is only for a command.
#[derive(Args, Default)]
struct Exec {
    /// From SIGTERM to SIGKILL, when the command has to end [default: 2s] [key: exec.kill_after]
    #[arg(long, env = "BELLWETHER_KILL_AFTER", value_name = "DURATION")]
    kill_after: Option<String>,
    /// What to do when the command has ended: leave (hand over, and exit with its code), stay (lead on
    /// without it) or restart [default: leave] [key: exec.on_exit]
    #[arg(long, env = "BELLWETHER_ON_EXIT", value_name = "WHAT")]
    on_exit: Option<String>,
}

/// How the help orders the commands. One that is named nowhere stands with the first.
const GROUPS: &[(&str, &[Call], &[&str])] = &[
    ("Beside your application", &[], &["run", "exec", "check-config"]),
    ("Ask the sidecar", QUESTIONS, &["watch", "wait", "probe"]),
    ("Tell the sidecar", COMMANDS, &[]),
    ("Look into ZooKeeper", &[], &["inspect"]),
    ("For packagers", &[], &["completions", "man"]),
];

/// Of every command that asks or tells.
const EXIT_CODES: &str = "\
Exit codes of whoever asks or tells:
  0  yes, or done
  1  no: nobody leads, it is not so, it is refused, or not done in time
  2  wrong usage or configuration
  3  nobody answers, or nothing that makes sense";

/// Which election, and where what is not said here is written.
#[derive(Args)]
struct Place {
    /// A TOML file; config/bellwether.toml documents every key [file: none]
    #[arg(long, env = "BELLWETHER_CONFIG", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    config: Option<PathBuf>,
    /// ZooKeeper's servers, host:port,host:port/chroot [default: 127.0.0.1:2181] [key: zookeeper.servers]
    #[arg(long, env = "BELLWETHER_ZOOKEEPER", value_name = "SERVERS")]
    zookeeper: Option<String>,
    /// The group's path in ZooKeeper [default: /election] [key: election.path]
    #[arg(long, env = "BELLWETHER_ELECTION", value_name = "PATH")]
    election: Option<String>,
    /// The start of the members' znodes' names [default: leader_] [key: election.prefix]
    #[arg(long, env = "BELLWETHER_PREFIX", value_name = "PREFIX")]
    prefix: Option<String>,
    #[command(flatten)]
    security: Security,
}

/// How to be let in. No secret is an argument: all processes of a machine see the arguments of all.
#[derive(Args)]
struct Security {
    /// Speak TLS, with servers whose certificates a CA in this PEM file has signed [default: none] [key: zookeeper.tls.ca]
    #[arg(long, env = "BELLWETHER_TLS_CA", value_name = "FILE")]
    tls_ca: Option<String>,
    /// This member's certificate, in PEM, for servers that ask for one [default: none] [key: zookeeper.tls.cert]
    #[arg(long, env = "BELLWETHER_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<String>,
    /// The private key to that certificate, in PEM [default: none] [key: zookeeper.tls.key]
    #[arg(long, env = "BELLWETHER_TLS_KEY", value_name = "FILE")]
    tls_key: Option<String>,
    /// How to log in with user and password: digest or sasl (DIGEST-MD5) [default: none] [key: zookeeper.auth]
    #[arg(long, env = "BELLWETHER_AUTH", value_name = "SCHEME")]
    auth: Option<String>,
    /// A file with the line user:password, instead of BELLWETHER_CREDENTIALS in the environment [default: none] [key: zookeeper.credentials_file]
    #[arg(long, env = "BELLWETHER_CREDENTIALS_FILE", value_name = "FILE")]
    credentials_file: Option<String>,
}

/// A flag beats the environment, which beats the file, which beats the default.
#[derive(Args)]
struct Options {
    #[command(flatten)]
    place: Place,
    /// Who may touch what members create: open, creator or creator-readable [default: creator-readable with
    /// an identity of --auth or --tls-cert, else open] [key: zookeeper.acl]
    #[arg(long, env = "BELLWETHER_ACL", value_name = "ACL")]
    acl: Option<String>,
    /// This member's name [default: $POD_NAME, else the host's name] [key: member.id]
    #[arg(long, env = "BELLWETHER_ID", value_name = "NAME")]
    id: Option<String>,
    /// Where the application can be reached; told to the others [default: none] [key: member.address]
    #[arg(long, env = "BELLWETHER_ADDRESS", value_name = "ADDRESS")]
    address: Option<String>,
    /// Metadata told to the others; may be given again [key: member.labels]
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// The session timeout to ask for: 500ms, 10s, 2m [default: 10s] [key: zookeeper.session_timeout]
    #[arg(long, env = "BELLWETHER_SESSION_TIMEOUT", value_name = "DURATION")]
    session_timeout: Option<String>,
    /// The largest tickTime among the servers, for the lease's margin [default: 2s] [key: zookeeper.tick_time]
    #[arg(long, env = "BELLWETHER_TICK_TIME", value_name = "DURATION")]
    tick_time: Option<String>,
    /// The longest time between two signs of life [default: a tenth of the session timeout] [key: lease.heartbeat]
    #[arg(long, env = "BELLWETHER_HEARTBEAT", value_name = "DURATION")]
    heartbeat: Option<String>,
    /// When a new leader counts as active: at-once, or ack, when its application has said so [default: at-once] [key: election.activate]
    #[arg(long, env = "BELLWETHER_ACTIVATE", value_name = "WHEN")]
    activate: Option<String>,
    /// With --activate ack, how soon the application has to say so [default: 30s] [key: election.ack_timeout]
    #[arg(long, env = "BELLWETHER_ACK_TIMEOUT", value_name = "DURATION")]
    ack_timeout: Option<String>,
    /// What a leader does when its connection is lost: hold or step-down [default: hold] [key: lease.disconnect]
    #[arg(long, env = "BELLWETHER_DISCONNECT", value_name = "POLICY")]
    disconnect: Option<String>,
    /// Where to serve the application's API [default: 127.0.0.1:4040] [key: http.listen]
    #[arg(long, env = "BELLWETHER_LISTEN", value_name = "IP:PORT|unix:PATH")]
    listen: Option<String>,
    /// Where to serve probes, read-only, for a kubelet or a load balancer [default: none] [key: http.probe_listen]
    #[arg(long, env = "BELLWETHER_PROBE_LISTEN", value_name = "IP:PORT")]
    probe_listen: Option<String>,
    /// A file with the token that an order has to show as Authorization: Bearer [default: none] [key: http.token_file]
    #[arg(long, env = "BELLWETHER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<String>,
    /// Stand only while the application is healthy: the URL to GET, or a command that begins with its absolute path [default: none] [key: health.check]
    #[arg(long, env = "BELLWETHER_APP_HEALTH", value_name = "URL|COMMAND")]
    app_health: Option<String>,
    /// How long to wait between two checks [default: 5s] [key: health.interval]
    #[arg(long, env = "BELLWETHER_APP_HEALTH_INTERVAL", value_name = "DURATION")]
    app_health_interval: Option<String>,
    /// How long a check may take [default: 2s] [key: health.timeout]
    #[arg(long, env = "BELLWETHER_APP_HEALTH_TIMEOUT", value_name = "DURATION")]
    app_health_timeout: Option<String>,
    /// How many failures in a row make the application unhealthy [default: 3] [key: health.failures]
    #[arg(long, env = "BELLWETHER_APP_HEALTH_FAILURES", value_name = "NUMBER")]
    app_health_failures: Option<String>,
    /// If nobody's application is healthy: strict, nobody leads, or lenient, somebody does all the same [default: strict] [key: health.policy]
    #[arg(long, env = "BELLWETHER_APP_HEALTH_POLICY", value_name = "POLICY")]
    app_health_policy: Option<String>,
    /// How to write the log, to stderr; its level is RUST_LOG or log.level [default: text] [key: log.format]
    #[arg(long, env = "BELLWETHER_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<String>,
}

/// What to do.
pub enum Command {
    Run(Effective),
    Exec {
        effective: Effective,
        once: bool,
        command: Vec<OsString>,
    },
    CheckConfig(Effective),
    /// Ask somebody, and print the answer.
    Terminal(Errand),
    /// Print this.
    Say(Vec<u8>),
    /// Guard the guard of this command.
    ExecOuterGuard {
        command: Vec<OsString>,
    },
    /// Guard this command.
    ExecInnerGuard {
        command: Vec<OsString>,
    },
    /// Become this command, if this is the guard, with this limit of open files.
    ExecCommand {
        guard: i32,
        files: Option<u64>,
        command: Vec<OsString>,
    },
}

/// The configuration that results from all that was written.
pub struct Effective {
    pub config: Config,
    pub log_format: LogFormat,
    pub log_level: String,
    /// Key, value, and where it came from.
    pub origins: Vec<(&'static str, String, Origin)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    File(PathBuf),
    Default,
}

/// Reads the command line, and the environment and the file it names.
///
/// # Errors
/// One sentence that says what is wrong with the configuration. Wrong usage of the command line
/// itself ends the process with exit code 2, `--help` and `--version` with 0.
pub fn read() -> Result<Command, String> {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let (_, given) = matches.subcommand().expect("clap demands a command");
    match cli.command {
        Subcommands::Run(options) => effective(options, Exec::default(), given).map(Command::Run),
        Subcommands::Exec(ExecOptions { options, exec, once, command }) => {
            let mut effective = effective(options, exec, given)?;
            effective.config = effective.config.with_command()?;
            Ok(Command::Exec { effective, once, command })
        }
        Subcommands::CheckConfig(CheckOptions { options, exec, for_exec }) => {
            let mut effective = effective(options, exec, given)?;
            if for_exec {
                effective.config = effective.config.with_command()?;
            }
            Ok(Command::CheckConfig(effective))
        }
        Subcommands::ExecOuterGuard { command } => Ok(Command::ExecOuterGuard { command }),
        Subcommands::ExecInnerGuard { command } => Ok(Command::ExecInnerGuard { command }),
        Subcommands::ExecCommand { guard, files, command } => {
            Ok(Command::ExecCommand { guard, files: files.parse().ok(), command })
        }
        Subcommands::Asking(asking) => asking::errand(asking, given).map(Command::Terminal),
        Subcommands::Papers(papers) => papers::written(papers, command()).map(Command::Say),
    }
}

/// With its commands in groups, and the exit codes where they hold.
fn command() -> clap::Command {
    let mut command = Cli::command();
    let styles = command.get_styles().clone();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let mut help = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let group_of = |name: &str| {
        let group = GROUPS.iter().position(|(_, calls, names)| {
            names.contains(&name) || calls.iter().any(|call| call.name() == name)
        });
        group.unwrap_or(0)
    };
    for (n, (heading, ..)) in GROUPS.iter().enumerate() {
        help += &format!("\n{header}{heading}:{header:#}\n");
        for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            let name = each.get_name();
            if group_of(name) == n {
                let about = each.get_about().map(ToString::to_string).unwrap_or_default();
                help += &format!("  {literal}{name:<14}{literal:#}{about}\n");
            }
        }
    }
    help += &format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    for (_, calls, names) in &GROUPS[1..4] {
        for name in calls.iter().map(Call::name).chain(names.iter().copied()) {
            command = command.mut_subcommand(name, |asks| asks.after_help(EXIT_CODES));
        }
    }
    command.help_template(help).after_help(EXIT_CODES)
}

/// What the file says, if one is named, and where it is.
fn in_file(config: Option<PathBuf>) -> Result<(PathBuf, File), String> {
    // A variable that is set to nothing is not set.
    let Some(path) = config.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok((PathBuf::new(), File::default()));
    };
    let name = path.display();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("--config: cannot read {name}: {error}"))?;
    let file = parsed(&text, &name.to_string())?;
    Ok((path, file))
}

fn parsed(text: &str, name: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.as_bytes().iter().take(start).filter(|byte| **byte == b'\n').count();
        // Not the value: it may be a secret that does not belong there.
        let key = text.lines().nth(line).and_then(|line| line.split_once('='));
        let key = key.map(|(key, _)| format!(", {}", key.trim())).unwrap_or_default();
        let told = format!("{key}: {}", error.message().replace('\n', " "));
        // A key may hold whatever plays tricks on a terminal.
        let odd = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.into() };
        format!("{name}, line {}{}", line + 1, told.chars().map(odd).collect::<String>())
    })
}

/// What `check-config` prints for a file that says this, if no other file is looked at.
#[cfg(any(test, fuzzing))]
pub(crate) fn of_file(text: &str) -> Result<String, String> {
    static MATCHES: std::sync::LazyLock<ArgMatches> =
        std::sync::LazyLock::new(|| command().get_matches_from(["bellwether", "check-config"]));
    let cli = Cli::from_arg_matches(&MATCHES).unwrap_or_else(|error| error.exit());
    let Subcommands::CheckConfig(CheckOptions { options, exec, .. }) = cli.command else {
        return Err("not asked".into());
    };
    let (_, given) = MATCHES.subcommand().expect("clap demands a command");
    let name = "bellwether.toml";
    let file = parsed(text, name)?;
    Ok(resulting(options, exec, given, (name.into(), file))?.to_string())
}

fn effective(mut options: Options, exec: Exec, given: &ArgMatches) -> Result<Effective, String> {
    let in_file = in_file(options.place.config.take())?;
    let effective = resulting(options, exec, given, in_file)?;
    let config = &effective.config;
    // Nobody could give an order else, and whoever configured a token would notice late.
    config.token_file.as_deref().map_or(Ok(()), |file| config::token(file).map(drop))?;
    config::can_use_files(&config.hooks)?;
    Ok(effective)
}

fn resulting(
    options: Options,
    exec: Exec,
    given: &ArgMatches,
    (place, mut file): (PathBuf, File),
) -> Result<Effective, String> {
    let mut layers = Layers { given, file: place, origins: vec![] };
    let servers = layers.servers(options.place.zookeeper, file.zookeeper.servers.take());
    let acl = options.acl;
    let security = layers.security(options.place.security, acl, &mut file.zookeeper)?;
    let session_timeout = layers.pick(
        ("zookeeper.session_timeout", "session_timeout", "BELLWETHER_SESSION_TIMEOUT"),
        options.session_timeout,
        file.zookeeper.session_timeout,
        "10s",
    );
    let tick_time = layers.pick(
        ("zookeeper.tick_time", "tick_time", "BELLWETHER_TICK_TIME"),
        options.tick_time,
        file.zookeeper.tick_time,
        "2s",
    );
    let heartbeat = layers.pick(
        ("lease.heartbeat", "heartbeat", "BELLWETHER_HEARTBEAT"),
        options.heartbeat,
        file.lease.heartbeat,
        A_TENTH,
    );
    let disconnect = layers.pick(
        ("lease.disconnect", "disconnect", "BELLWETHER_DISCONNECT"),
        options.disconnect,
        file.lease.disconnect,
        "hold",
    );
    let path = layers.path(options.place.election, file.election.path);
    let prefix = layers.prefix(options.place.prefix, file.election.prefix);
    let activate = layers.pick(
        ("election.activate", "activate", "BELLWETHER_ACTIVATE"),
        options.activate,
        file.election.activate,
        "at-once",
    );
    let ack_timeout = layers.pick(
        ("election.ack_timeout", "ack_timeout", "BELLWETHER_ACK_TIMEOUT"),
        options.ack_timeout,
        file.election.ack_timeout,
        "30s",
    );
    let id = layers.pick(
        ("member.id", "id", "BELLWETHER_ID"),
        options.id,
        file.member.id,
        &default_id(),
    );
    let address = layers.pick(
        ("member.address", "address", "BELLWETHER_ADDRESS"),
        options.address,
        file.member.address,
        "",
    );
    let labels = layers.pick_labels(options.labels, file.member.labels);
    let listen = layers.pick(
        ("http.listen", "listen", "BELLWETHER_LISTEN"),
        options.listen,
        file.http.listen,
        "127.0.0.1:4040",
    );
    let probe_listen = layers.pick(
        ("http.probe_listen", "probe_listen", "BELLWETHER_PROBE_LISTEN"),
        options.probe_listen,
        file.http.probe_listen,
        "",
    );
    let token_file = layers.pick(
        ("http.token_file", "token_file", "BELLWETHER_TOKEN_FILE"),
        options.token_file,
        file.http.token_file,
        "",
    );
    layers.names_a_file(&token_file)?;
    let health = WrittenHealth {
        check: layers.pick(
            ("health.check", "app_health", "BELLWETHER_APP_HEALTH"),
            options.app_health,
            file.health.check,
            "",
        ),
        interval: layers.pick(
            ("health.interval", "app_health_interval", "BELLWETHER_APP_HEALTH_INTERVAL"),
            options.app_health_interval,
            file.health.interval,
            "5s",
        ),
        timeout: layers.pick(
            ("health.timeout", "app_health_timeout", "BELLWETHER_APP_HEALTH_TIMEOUT"),
            options.app_health_timeout,
            file.health.timeout,
            "2s",
        ),
        failures: layers.pick(
            ("health.failures", "app_health_failures", "BELLWETHER_APP_HEALTH_FAILURES"),
            options.app_health_failures,
            file.health.failures.map(|failures| failures.to_string()),
            "3",
        ),
    };
    let health_policy = layers.pick(
        ("health.policy", "app_health_policy", "BELLWETHER_APP_HEALTH_POLICY"),
        options.app_health_policy,
        file.health.policy,
        "strict",
    );
    let kill_after = layers.pick(
        ("exec.kill_after", "kill_after", "BELLWETHER_KILL_AFTER"),
        exec.kill_after,
        file.exec.kill_after,
        "2s",
    );
    let on_exit = layers.pick(
        ("exec.on_exit", "on_exit", "BELLWETHER_ON_EXIT"),
        exec.on_exit,
        file.exec.on_exit,
        "leave",
    );
    let log_format = layers.pick(
        ("log.format", "log_format", "BELLWETHER_LOG_FORMAT"),
        options.log_format,
        file.log.format,
        "text",
    );
    let log_level = layers.pick_level(file.log.level)?;
    let log_format = LogFormat::from_str(&log_format, true)
        .map_err(|_| format!("log.format {log_format:?} must be \"text\" or \"json\""))?;
    let written = Written {
        servers,
        session_timeout,
        tick_time,
        path,
        prefix,
        activate,
        ack_timeout,
        id,
        address: Some(address),
        labels,
        heartbeat: Some(heartbeat).filter(|heartbeat| heartbeat != A_TENTH),
        disconnect,
        listen,
        probe_listen,
        token_file,
        kill_after,
        on_exit,
        security,
        health,
        health_policy,
        hooks: file.hook,
        pod: pod(),
    };
    let config = Config::new(&written)?;
    Ok(Effective { config, log_format, log_level, origins: layers.origins })
}

const A_TENTH: &str = "a tenth of zookeeper.session_timeout";
const BY_IDENTITY: &str = "creator-readable with an identity, else open";

struct Layers<'a> {
    given: &'a ArgMatches,
    file: PathBuf,
    origins: Vec<(&'static str, String, Origin)>,
}

impl Layers<'_> {
    fn servers(&mut self, given: Option<String>, in_file: Option<String>) -> String {
        let names = ("zookeeper.servers", "zookeeper", "BELLWETHER_ZOOKEEPER");
        self.pick(names, given, in_file, "127.0.0.1:2181")
    }

    fn path(&mut self, given: Option<String>, in_file: Option<String>) -> String {
        let names = ("election.path", "election", "BELLWETHER_ELECTION");
        self.pick(names, given, in_file, "/election")
    }

    fn prefix(&mut self, given: Option<String>, in_file: Option<String>) -> String {
        let names = ("election.prefix", "prefix", "BELLWETHER_PREFIX");
        self.pick(names, given, in_file, "leader_")
    }

    fn security(
        &mut self,
        given: Security,
        acl: Option<String>,
        file: &mut ZookeeperKeys,
    ) -> Result<security::Written, String> {
        let names = ("zookeeper.tls.ca", "tls_ca", "BELLWETHER_TLS_CA");
        let ca = self.pick(names, given.tls_ca, file.tls.ca.take(), "");
        self.names_a_file(&ca)?;
        let names = ("zookeeper.tls.cert", "tls_cert", "BELLWETHER_TLS_CERT");
        let cert = self.pick(names, given.tls_cert, file.tls.cert.take(), "");
        self.names_a_file(&cert)?;
        let names = ("zookeeper.tls.key", "tls_key", "BELLWETHER_TLS_KEY");
        let key = self.pick(names, given.tls_key, file.tls.key.take(), "");
        self.names_a_file(&key)?;
        let names = ("zookeeper.auth", "auth", "BELLWETHER_AUTH");
        let auth = self.pick(names, given.auth, file.auth.take(), "");
        let names =
            ("zookeeper.credentials_file", "credentials_file", "BELLWETHER_CREDENTIALS_FILE");
        let in_file = file.credentials_file.take();
        let mut credentials_file = self.pick(names, given.credentials_file, in_file, "");
        self.names_a_file(&credentials_file)?;
        let credentials = self.secret(&mut credentials_file)?;
        let names = ("zookeeper.acl", "acl", "BELLWETHER_ACL");
        let acl = self.pick(names, acl, file.acl.take(), BY_IDENTITY);
        let acl = Some(acl).filter(|acl| acl != BY_IDENTITY).unwrap_or_default();
        Ok(security::Written { ca, cert, key, auth, credentials_file, credentials, acl })
    }

    /// The secret that stands in the environment itself, which also beats a file that is named in
    /// the configuration's file. What it is, nobody is told.
    fn secret(&mut self, file: &mut String) -> Result<Option<SecretString>, String> {
        let secret = match std::env::var(CREDENTIALS_VARIABLE) {
            Ok(secret) if !secret.is_empty() => SecretString::from(secret),
            Ok(_) | Err(VarError::NotPresent) => return Ok(None),
            Err(VarError::NotUnicode(_)) => {
                return Err(format!("{CREDENTIALS_VARIABLE} is no UTF-8 text"));
            }
        };
        let (_, value, origin) = self.origins.last_mut().expect("the file was picked just now");
        match origin {
            Origin::Flag(_) => return Ok(None),
            Origin::Environment(variable) => {
                return Err(format!(
                    "both {variable} and {CREDENTIALS_VARIABLE} are set: leave one of them out"
                ));
            }
            Origin::File(_) | Origin::Default => {}
        }
        *origin = Origin::Environment(CREDENTIALS_VARIABLE);
        *value = "(not shown)".into();
        file.clear();
        Ok(Some(secret))
    }

    /// Checks what was picked last: a file that is named, and by nothing, is a mistake.
    fn names_a_file(&self, file: &str) -> Result<(), String> {
        match self.origins.last() {
            Some((key, _, origin)) if file.is_empty() && *origin != Origin::Default => {
                Err(format!("{key} is empty: name a file, or leave it out"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn pick(
        &mut self,
        (key, arg, variable): (&'static str, &'static str, &'static str),
        given: Option<String>,
        in_file: Option<String>,
        default: &str,
    ) -> String {
        // Not every command takes every argument.
        let is_known = self.given.try_contains_id(arg).is_ok();
        let from_variable =
            is_known && self.given.value_source(arg) == Some(ValueSource::EnvVariable);
        let given = given.filter(|value| !(from_variable && value.is_empty()));
        let (value, origin) = match (given, in_file) {
            (Some(value), _) if from_variable => (value, Origin::Environment(variable)),
            (Some(value), _) => (value, Origin::Flag(arg)),
            (None, Some(value)) => (value, Origin::File(self.file.clone())),
            (None, None) => (default.to_owned(), Origin::Default),
        };
        self.origins.push((key, value.clone(), origin));
        value
    }

    fn pick_labels(
        &mut self,
        given: Vec<(String, String)>,
        in_file: Option<BTreeMap<String, String>>,
    ) -> BTreeMap<String, String> {
        let (labels, origin) = match in_file {
            _ if !given.is_empty() => (given.into_iter().collect(), Origin::Flag("label")),
            Some(labels) => (labels, Origin::File(self.file.clone())),
            None => (BTreeMap::new(), Origin::Default),
        };
        let shown: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        self.origins.push(("member.labels", shown.join(","), origin));
        labels
    }

    fn pick_level(&mut self, in_file: Option<String>) -> Result<String, String> {
        let (level, origin) = match (std::env::var("RUST_LOG"), in_file) {
            (Ok(level), _) if !level.is_empty() => (level, Origin::Environment("RUST_LOG")),
            (_, Some(level)) => (level, Origin::File(self.file.clone())),
            (_, None) => ("info".to_owned(), Origin::Default),
        };
        let name = if origin == Origin::Environment("RUST_LOG") { "RUST_LOG" } else { "log.level" };
        for part in level.split(',') {
            let written = part.rsplit_once('=').map_or(part, |(_, level)| level);
            if written.trim().parse::<LevelFilter>().is_err() {
                return Err(format!(
                    "{name} = {level:?}: {written:?} is no level: write error, warn, info, debug \
                     or trace, also for a part: info,bellwether=debug"
                ));
            }
        }
        if let Err(error) = level.parse::<Targets>() {
            return Err(format!("{name} = {level:?} makes no sense: {error}"));
        }
        self.origins.push(("log.level", level.clone(), origin));
        Ok(level)
    }
}

/// Whether a service manager started us that wants to be told how we are.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn label(written: &str) -> Result<(String, String), String> {
    match written.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is KEY=VALUE, such as zone=eu-1".into()),
    }
}

/// What Kubernetes says of the pod that this may be in.
fn pod() -> WrittenPod {
    let said = |name| std::env::var(name).unwrap_or_default();
    let host = said("KUBERNETES_SERVICE_HOST");
    WrittenPod { host, port: said("KUBERNETES_SERVICE_PORT"), name: default_id() }
}

fn default_id() -> String {
    match std::env::var("POD_NAME") {
        Ok(pod) if !pod.is_empty() => pod,
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

/// Of what is written under a key, what may be shown. As with hooks, that is no query and no argument.
pub fn shown(key: &str, value: &str) -> String {
    let mut words = value.split_whitespace();
    match words.next() {
        Some(program) if key == "health.check" && program.starts_with('/') => match words.count() {
            0 => program.into(),
            1 => format!("{program} (1 argument)"),
            more => format!("{program} ({more} arguments)"),
        },
        Some(url) if key == "health.check" => url.split('?').next().unwrap_or_default().into(),
        Some(_) | None => value.into(),
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value, origin) in &self.origins {
            let value = shown(key, value);
            let value =
                if value.is_empty() { "(none)".into() } else { value.escape_debug().to_string() };
            writeln!(f, "{key:<26} {value:<40} {origin}")?;
            if let ("lease.heartbeat", Some(term)) = (*key, self.config.longest_lease()) {
                let (key, value) = ("(the lease)", format!("{:?}", term.0));
                writeln!(f, "{key:<26} {value:<40} at most, of the three above")?;
            }
        }
        for (n, hook) in self.config.hooks.iter().enumerate() {
            writeln!(f, "{:<26} {}", format!("hook[{n}]"), hook.to_string().escape_debug())?;
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag --{}", flag.replace('_', "-")),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}
