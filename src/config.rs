//! The configuration: plain data. All values are parsed, and checked against each other, when the process starts.
//!
//! - `setting`, `table`: each key, with its flag, its variable, its default, its help and its parser.
//! - `file`, `keys`, `sources`: the configuration file, and the source of each value.
//! - `parse`, `servers`: parsers of single values.
//! - `relations`, `profile`: constraints between values.
//! - `security`, `health`, `hook`, `pod`, `synced_file`: structures that combine several values.
//! - `error`: problems of a value. `files`: reads the small files that values name.

mod error;
mod file;
mod files;
mod health;
mod hook;
mod keys;
mod parse;
mod pod;
mod profile;
mod relations;
pub mod security;
mod servers;
mod setting;
mod sources;
mod synced_file;
pub mod table;

pub use self::error::ConfigError;
pub use self::files::{file_text, parse_token, shown_path, token, weak_secrets};
pub use self::health::{Check, Health};
pub use self::hook::{
    HookAction, HookConfig, Webhook, WhenUnknown, check_files, check_replaceable, signing_secret,
};
pub use self::parse::{duration, host_and_port, on_this_machine};
pub use self::pod::{KubernetesHook, KubernetesTarget, PodEnvironment, is_namespace};
pub use self::profile::check_profile;
pub use self::servers::Servers;
pub use self::setting::{DefaultValue, Row, Scope, Setting};
pub use self::sources::{Origin, SettingValue, Values};
pub use self::synced_file::SyncedFileConfig;
use crate::znode_names::ZnodeNames;
use clap::ValueEnum;
use recipes::election::{Policy, Priority, Profile};
use recipes::{Margins, MemberId};
use security::{CredentialsSource, Kerberos, Login, Security};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Table;

/// The complete configuration of the daemon, parsed and checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub settings: Settings,
    /// The election's path as configured, without the chroot of the connect string.
    pub election: String,
    /// The paths of locks, barriers and shared values; `None` if recipes are switched off.
    pub recipes: Option<RecipePaths>,
    pub profile: Profile,
    pub policy: Policy,
    pub listen: Listen,
    pub socket: SocketAccess,
    /// The limit, in MiB, of the memory for requests, answers and watched values.
    pub buffers_mib: u32,
    pub probe_listen: Option<SocketAddr>,
    /// The file with the token that a client must send with a command.
    pub token_file: Option<PathBuf>,
    pub exec: Exec,
    /// The file in which the session is saved for the next process.
    pub session_file: Option<PathBuf>,
    /// The member's priority in the election.
    pub priority: Priority,
    pub log_format: LogFormat,
    pub log_level: String,
    /// How to check the application's health; `None` if it is not checked.
    pub health: Option<Health>,
    /// The hooks, in the order in which they run.
    pub hooks: Vec<HookConfig>,
    /// The values of the shared configuration that are written to files.
    pub synced_files: Vec<SyncedFileConfig>,
    /// The part of the lease that is reserved for ending the command of `exec`, set by [`Config::with_command`]; zero
    /// without a command.
    pub reserve: Duration,
}

/// The settings of the command that `exec` runs while this member leads.
#[derive(Clone, Copy, Debug)]
pub struct Exec {
    /// How long the command may keep running after SIGTERM until it is killed.
    pub kill_after: Duration,
    /// How long the command may be suspended, for example with Ctrl-Z, until it is killed.
    pub stopped_for: Duration,
    pub on_exit: OnExit,
}

/// The behaviour of a member after the command of `exec` has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnExit {
    /// The member hands over, and this process exits with the command's exit code.
    Leave,
    /// The member continues to lead without the command.
    Stay,
    /// The command is started again.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The environment variable that tells a hook's command for which change it runs. All processes of the hook inherit the
/// variable. So `exec` can tell them from the processes of its own command, and does not kill them.
pub const CHANGE_VARIABLE: &str = "BELLWETHER_CHANGE";

/// How long a process may still run after it was killed: on a busy machine, both the killer and the killed process have to
/// be scheduled. docs/exec.md has the measurements, and how to repeat them.
pub const KILL_MARGIN: Duration = Duration::from_millis(500);

/// The listener of the application's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The permissions of the Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    pub mode: u32,
    /// The id of the group that the socket is given; `None` to leave its group as it is.
    pub group: Option<u32>,
}

/// The settings of an election in ZooKeeper.
#[derive(Clone, Debug)]
pub struct Settings {
    pub zookeeper: Zookeeper,
    /// The election's full path, including the chroot of the connect string.
    pub root: String,
    /// How the members' znodes are named.
    pub znodes: ZnodeNames,
}

/// The paths of locks, barriers and the shared configuration, including the chroot of the connect string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipePaths {
    pub locks: String,
    pub barriers: String,
    pub config: String,
}

/// The settings of a command that holds a lock, or enters a barrier, in its own session.
#[derive(Clone, Debug)]
pub struct HoldingConfig {
    pub settings: Settings,
    pub paths: RecipePaths,
    pub margins: Margins,
    pub member: MemberId,
}

/// The settings of a connection to ZooKeeper.
#[derive(Clone, Debug)]
pub struct Zookeeper {
    /// `host:port,host:port`, without a chroot.
    pub hosts: String,
    pub session_timeout: Duration,
    pub security: Security,
}

impl Config {
    /// Parses every value, and checks the values against each other.
    ///
    /// # Errors
    /// A line for each invalid value. If every value is valid: the first conflict between values.
    pub fn new(values: &Values) -> Result<Self, String> {
        let mut errors = values.errors();
        let pod = &values.pod;
        let hooks = parse_tables("hook", &values.hooks, pod, HookConfig::new, &mut errors);
        let synced_files =
            parse_tables("config", &values.synced_files, pod, SyncedFileConfig::new, &mut errors);
        if !errors.is_empty() {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            return Err(lines.join("\n"));
        }
        let session_timeout = values.get(&table::SESSION_TIMEOUT)?;
        let settings = Settings::new(values, session_timeout)?;
        let margins = relations::lease_margins(values, session_timeout)?;
        let address = values.get_optional(&table::ADDRESS)?;
        let profile = Profile {
            id: values.get(&table::ID)?,
            address: address.filter(|address| !address.is_empty()),
            labels: values.get(&table::LABELS)?,
            revision: 0,
        };
        check_profile(&profile, &settings.znodes)?;
        let recipes = RecipePaths::new(values)?;
        if recipes.is_none() && !synced_files.is_empty() {
            return Err(RecipePaths::missing("[[config]]").into());
        }
        Ok(Self {
            settings,
            election: values.get(&table::PATH)?,
            recipes,
            profile,
            policy: Policy { margins, preempt_after: values.get_optional(&table::PREEMPT_AFTER)? },
            listen: values.get(&table::LISTEN)?,
            socket: SocketAccess {
                mode: values.get(&table::SOCKET_MODE)?,
                group: values.get_optional(&table::SOCKET_GROUP)?,
            },
            buffers_mib: values.get(&table::BUFFERS)?,
            probe_listen: values.get_optional(&table::PROBE_LISTEN)?,
            token_file: values.get_optional(&table::TOKEN_FILE)?,
            exec: Exec {
                kill_after: values.get(&table::KILL_AFTER)?,
                stopped_for: values.get(&table::STOPPED_FOR)?,
                on_exit: values.get(&table::ON_EXIT)?,
            },
            session_file: values.get_optional(&table::SESSION_FILE)?,
            priority: values.get(&table::PRIORITY)?,
            log_format: values.get(&table::LOG_FORMAT)?,
            log_level: values.get(&table::LOG_LEVEL)?,
            health: Health::new(values)?,
            hooks,
            synced_files,
            reserve: Duration::ZERO,
        })
    }

    /// Returns the actions of all tables in the file, each with its key.
    pub fn actions(&self) -> impl Iterator<Item = (String, &HookAction)> {
        let hooks = self.hooks.iter().enumerate();
        let hooks = hooks.map(|(n, hook)| (format!("hook[{n}]"), &hook.action));
        let then = self.synced_files.iter().enumerate();
        let then =
            then.filter_map(|(n, file)| Some((format!("config[{n}].then"), file.then.as_ref()?)));
        hooks.chain(then)
    }

    /// Returns the files that hold secrets and that operators write.
    fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let Security { tls, login, .. } = &self.settings.zookeeper.security;
        let tls = tls.as_ref().and_then(|tls| Some(&tls.own.as_ref()?.key));
        let login = match login {
            Some(
                Login::Digest(CredentialsSource::In(file))
                | Login::Sasl(CredentialsSource::In(file)),
            ) => Some(file),
            Some(Login::Kerberos(Kerberos { keytab, .. })) => keytab.as_ref(),
            _ => None,
        };
        let signing = self.actions().filter_map(|(_, action)| match action {
            HookAction::Post(Webhook { secret_file, .. }) => secret_file.as_ref(),
            _ => None,
        });
        let files = [self.token_file.as_ref(), tls, login].into_iter().flatten().chain(signing);
        files.map(PathBuf::as_path)
    }

    /// Returns whether this process holds secrets, so that other processes must not read its memory.
    pub fn has_secrets(&self) -> bool {
        // The session file holds the session's password. A Kubernetes hook reads the token of the service account.
        self.settings.zookeeper.security.has_secrets()
            || self.session_file.is_some()
            || self.secret_files().next().is_some()
            || self.actions().any(|(_, action)| matches!(action, HookAction::Kubernetes(_)))
    }
}

/// Parses each table of a list, such as `[[hook]]`. Returns the valid ones. The errors of the others are added to
/// `errors`. Each error names its table by the list and the table's number, counted from 0, such as `hook[2]`.
fn parse_tables<T>(
    list: &str,
    tables: &[Table],
    pod: &PodEnvironment,
    parse: fn(Table, &PodEnvironment) -> Result<T, ConfigError>,
    errors: &mut Vec<ConfigError>,
) -> Vec<T> {
    let valid = tables.iter().enumerate().filter_map(|(n, table)| {
        let parsed = parse(table.clone(), pod);
        parsed.map_err(|error| errors.push(error.in_table(&format!("{list}[{n}]")))).ok()
    });
    valid.collect()
}

impl Settings {
    /// Parses only the settings of the connection and the election. The caller passes the session timeout, because
    /// `inspect`, which is not a member, does not take it from the settings.
    ///
    /// # Errors
    /// A sentence that names the key, the problem and the remedy.
    pub fn new(values: &Values, session_timeout: Duration) -> Result<Self, ConfigError> {
        let Servers { hosts, chroot } = values.get(&table::SERVERS)?;
        let path = values.get(&table::PATH)?;
        let znodes = relations::znodes(values)?;
        let security = Security::new(values)?;
        let zookeeper = Zookeeper { hosts, session_timeout, security };
        Ok(Self { zookeeper, root: format!("{chroot}{path}"), znodes })
    }
}

impl HoldingConfig {
    /// Parses only the settings of locks and barriers.
    ///
    /// # Errors
    /// A sentence that names the key, the problem and the remedy.
    pub fn new(values: &Values) -> Result<Self, ConfigError> {
        let session_timeout = values.get(&table::SESSION_TIMEOUT)?;
        let settings = Settings::new(values, session_timeout)?;
        let margins = relations::lease_margins(values, session_timeout)?;
        let paths = RecipePaths::new(values)?;
        let paths = paths.ok_or_else(|| RecipePaths::missing("a lock or barrier"))?;
        Ok(Self { settings, paths, margins, member: values.get(&table::ID)? })
    }
}

impl RecipePaths {
    /// The names of the recipes' znodes below their root.
    const NAMES: [&str; 3] = ["locks", "barriers", "config"];

    /// Returns `None` if recipes are switched off.
    fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let Servers { chroot, .. } = values.get(&table::SERVERS)?;
        let Some(root) = values.get(&table::RECIPES_ROOT)? else { return Ok(None) };
        let election = values.get(&table::PATH)?;
        for name in Self::NAMES {
            let path = format!("{root}/{name}");
            // The recipes would mistake an election in this path for a lock, barrier or value.
            let rest = election.strip_prefix(&path);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                let key = table::RECIPES_ROOT.key();
                let problem = format!("is in {path}, which is for {name}");
                let remedy = format!(
                    "choose another path or another {key}, or switch recipes off with {key} = \"\""
                );
                let error = ConfigError::new(table::PATH.key(), problem);
                return Err(error.found(election).remedy(remedy));
            }
        }
        let root = format!("{chroot}{root}");
        let [locks, barriers, config] = Self::NAMES.map(|name| format!("{root}/{name}"));
        Ok(Some(Self { locks, barriers, config }))
    }

    /// Returns the error that recipes are switched off and `user` needs them.
    fn missing(user: &str) -> ConfigError {
        ConfigError::new(table::RECIPES_ROOT.key(), format!("is empty, and {user} needs it"))
            .remedy("name a path, such as \"/\"")
    }
}

impl Listen {
    /// Returns whether only this machine can reach the listener.
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

#[cfg(test)]
mod tests;
