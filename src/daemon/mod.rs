//! The daemon: built from a configuration, run until a signal or the end of its command, then shut down.
//!
//! The main thread handles signals and serves HTTP (`listeners`). The election, the locks and barriers, the hooks with the
//! health check, and the supervisor of a command run on threads of their own (`threads`), so that none waits for another.

mod listeners;
mod log_line;
mod logging;
mod reload;
mod resources;
pub mod secrets;
mod shutdown;
mod signals;
mod systemd;
mod threads;

use self::listeners::{Listeners, Server};
use self::logging::Level;
use self::reload::ActiveConfig;
use self::threads::{ApplicationInputs, ApplicationThread, CommandThread, SessionThread};
use crate::byte_budget::ByteBudget;
use crate::cli::{self, Effective};
use crate::clock::Clock;
use crate::config::{Config, Exec, LogFormat, Zookeeper};
use crate::exec::{self, Plan, SignalListener, signal_name};
use crate::holdings;
use crate::http::{self, Authorization, ConnectionLimits};
use crate::notify::{self, HooksHandle};
use crate::runtime;
use crate::shared_config;
use crate::status::{self, StatusHandle};
use crate::znode_names::ElectionNames;
use crate::zookeeper::{
    Credentials, HoldingsSettings, OpenedSessionFile, ResumeState, SessionFile,
};
use anyhow::{anyhow, bail};
use recipes::election::Member;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use tokio::signal::unix::Signal;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// The exit code for an invalid command line or configuration.
pub const MISCONFIGURED: u8 = 2;
/// The exit code if the daemon could not start, or if one of its threads died.
const BROKEN: u8 = 1;

/// A command that runs only while this member leads.
pub struct Task {
    pub command: Vec<OsString>,
    /// Leave as soon as the command has ended with exit code 0.
    pub once: bool,
}

/// Runs the daemon until it ends. Returns the exit code.
///
/// # Errors
/// The exit code, and a sentence about the problem.
pub fn run(effective: Effective, task: Option<Task>) -> Result<u8, (u8, String)> {
    let config = &effective.config;
    let wrong = |why: String| (MISCONFIGURED, why);
    let mut warnings = secrets::check(&config.settings, config.has_secrets()).map_err(wrong)?;
    let (resume, flaw) = open_session_file(config).map_err(wrong)?;
    warnings.extend(flaw.map(|flaw| {
        format!("{flaw}: what is there is not taken up, this member opens a session of its own")
    }));
    let level =
        logging::start(effective.config.log_format, &effective.config.log_level).map_err(wrong)?;
    info!("{}", beginning(config));
    cli::warnings(config).iter().chain(&warnings).for_each(|warning| warn!("{warning}"));
    let file_limit = resources::raise_file_limit().map_err(|why| (BROKEN, why))?;
    let ended = runtime::run(async {
        let mut daemon = Daemon::build(effective, level, task, file_limit, resume).await?;
        let code = daemon.run().await?;
        daemon.shutdown().await;
        anyhow::Ok(code)
    });
    ended.map_err(|error| (BROKEN, format!("{error:#}")))
}

/// Returns the first log line: the version, the member, the election and the servers.
fn beginning(config: &Config) -> String {
    let Config { settings, election, profile, .. } = config;
    let version = env!("CARGO_PKG_VERSION");
    let kind = settings.znodes.kind();
    let Zookeeper { hosts, session_timeout, .. } = &settings.zookeeper;
    let chroot = settings.root.strip_suffix(election.as_str()).unwrap_or_default();
    // A configuration without a lease was rejected earlier.
    let lease = config.longest_lease().map(|lease| lease.0).unwrap_or_default();
    format!(
        "bellwether {version}: member {} of {election} ({kind}) at {hosts}{chroot}, session {session_timeout:?}, lease \
         {lease:?}",
        profile.id
    )
}

/// Starts the log of a command that is not a daemon: in text, to stderr.
///
/// # Errors
/// A sentence about the problem with the level.
pub fn log_for_command(level: &str) -> Result<(), String> {
    logging::start(LogFormat::Text, level).map(drop)
}

/// Opens the file in which the session is saved, if one is configured. Also returns why this member cannot use its content,
/// if that is the case.
fn open_session_file(config: &Config) -> Result<(ResumeState, Option<String>), String> {
    let Some(path) = &config.session_file else { return Ok((ResumeState::default(), None)) };
    let member = config.profile.id.as_str();
    let OpenedSessionFile { file, former, flaw } =
        SessionFile::open(path, &config.settings, member, Clock::system())?;
    Ok((ResumeState { file: Some(Arc::new(file)), former }, flaw))
}

struct Daemon {
    clock: Clock,
    status: StatusHandle,
    level: Level,
    in_force: ActiveConfig,
    signals: SignalListener,
    hangup: Signal,
    server: Server,
    election: SessionThread,
    holdings: Option<SessionThread>,
    application: ApplicationThread,
    command: Option<CommandThread>,
}

impl Daemon {
    /// Binds the listeners, then starts the threads. `file_limit` is the limit of open files for a command, if there is one.
    async fn build(
        effective: Effective,
        level: Level,
        task: Option<Task>,
        file_limit: Option<u64>,
        resume: ResumeState,
    ) -> anyhow::Result<Self> {
        let in_force = ActiveConfig::of(&effective);
        let config = effective.config;
        let plan = task.map(|task| task.plan(&config, file_limit, &resume)).transpose()?;
        let recipes = config.recipes.map(|paths| HoldingsSettings {
            zookeeper: config.settings.zookeeper.clone(),
            paths,
            margins: config.policy.margins,
            member: config.profile.id.clone(),
        });
        let clock = Clock::system();
        let member = Member::new(Arc::new(config.profile), config.policy);
        let member = member.reserving(config.reserve).of_priority(config.priority);
        let member = match config.settings.znodes.family() {
            Some(_) => member.among_others(),
            None => member,
        };
        let member = if config.health.is_some() { member.unhealthy_at_first() } else { member };
        let (publisher, status) = status::set_up(&member, clock.now());
        // Requests go through the program's supervisor, if there is one. For some requests it ends the program before it
        // forwards them.
        let (status, mut supervised) = match plan {
            Some(plan) => {
                let (first, requests) = status.with_interceptor(config.reserve);
                (first, Some((plan, status, requests)))
            }
            None => (status, None),
        };
        let gate = match config.token_file {
            Some(file) => Authorization::TokenIn(file.into()),
            None => Authorization::Header,
        };
        let (signals, hangup) = (SignalListener::for_termination()?, signals::hangup()?);
        let listeners =
            Listeners::open(&config.listen, &config.socket, config.probe_listen).await?;
        if let Some((plan, ..)) = &mut supervised {
            plan.environment.push(("BELLWETHER_URL", listeners.url()?));
        }
        if !config.listen.is_local() && matches!(gate, Authorization::Header) {
            warn!(
                "http.listen {} is not a loopback address: any client that reaches it can send commands; set \
                 http.token_file, or let others in by http.probe_listen",
                config.listen
            );
        }
        let (stage, HooksHandle { hooks, leave, records }) = notify::set_up(config.hooks);
        let (examined, application) = watch::channel(None);
        let budget = ByteBudget::of_mib(config.buffers_mib);
        let recipes = recipes.map(|settings| {
            let holdings = holdings::set_up();
            let shared_config = shared_config::set_up(&settings.paths.config, &budget);
            (settings, holdings, shared_config)
        });
        let (recipes, holdings, shared_config) = match recipes {
            Some((settings, (holding_requests, holdings), (config_requests, shared_config))) => {
                let requests = (holding_requests, config_requests);
                (Some((settings, requests)), Some(holdings), Some(shared_config))
            }
            None => (None, None, None),
        };
        let (file_records, synced_files) = watch::channel(notify::records(&config.kept));
        let keeping = shared_config.clone().filter(|_| !config.kept.is_empty());
        let keeping = keeping.map(|handle| (config.kept, handle, file_records));
        let status = StatusHandle {
            hooks: records,
            application,
            holdings,
            shared_config,
            synced_files,
            ..status
        };
        let settings = config.settings;
        let names = ElectionNames {
            election: config.election,
            path: settings.root.clone(),
            znodes: settings.znodes.clone(),
        };
        let limits = ConnectionLimits::for_application(budget);
        let services = http::services(status.clone(), clock, names.clone(), gate, &limits);
        let server = listeners.serve(services, limits)?;
        tokio::spawn(signals::terminate_when_asked(status.shutdown.clone()));
        if cli::is_service() {
            tokio::spawn(systemd::report(status.clone(), clock));
        }
        let credentials = Credentials::of(&settings.zookeeper);
        let of_holdings = credentials.clone();
        let election =
            SessionThread::election(member, settings, credentials, clock, publisher, resume)?;
        let holdings = recipes
            .map(|(settings, requests)| {
                SessionThread::holdings(settings, of_holdings, clock, requests)
            })
            .transpose()?;
        let inputs = ApplicationInputs {
            stage,
            names,
            health: config.health,
            examined,
            keeping,
            file_limit,
            clock,
            status: status.clone(),
        };
        let application = ApplicationThread::start(inputs, hooks, leave)?;
        let command = supervised
            .map(|(plan, status, requests)| CommandThread::start(plan, clock, status, requests))
            .transpose()?;
        resources::lower_thread_priority();
        Ok(Self {
            clock,
            status,
            level,
            in_force,
            signals,
            hangup,
            server,
            election,
            holdings,
            application,
            command,
        })
    }

    /// Runs until a signal or the command ends it. Returns the exit code.
    async fn run(&mut self) -> anyhow::Result<u8> {
        match self.command.take() {
            Some(command) => self.run_until_command_ends(command).await,
            None => self.run_until_signal().await,
        }
    }

    /// Runs until the command ends. Fails if a thread dies.
    async fn run_until_command_ends(&mut self, command: CommandThread) -> anyhow::Result<u8> {
        tokio::select! {
            code = command.ended => match code {
                Ok(Ok(code)) => {
                    // The supervisor has already handled earlier signals, so start with new listeners.
                    self.signals = SignalListener::for_termination()?;
                    Ok(code)
                }
                Ok(Err(error)) => {
                    error!("cannot run the program: {error}");
                    Ok(exec::FAILED)
                }
                Err(_) => bail!("the program's supervisor died, and the program with it"),
            },
            _ = &mut self.election.left => Err(self.election_died().await),
            end = &mut self.application.ended => Err(hooks_died(end)),
        }
    }

    /// Runs until SIGINT or SIGTERM, and reloads the configuration at SIGHUP. Fails if a thread dies.
    async fn run_until_signal(&mut self) -> anyhow::Result<u8> {
        loop {
            tokio::select! {
                signal = self.signals.next() => {
                    info!("{}: leaving", signal_name(signal));
                    return Ok(0);
                }
                _ = self.hangup.recv() => {
                    self.in_force.reload(&self.status, &self.application.hooks, &self.level).await;
                }
                _ = &mut self.election.left => return Err(self.election_died().await),
                end = &mut self.application.ended => return Err(hooks_died(end)),
            }
        }
    }

    /// Runs the hooks for the end of this member's leadership, then returns the error that the election died.
    async fn election_died(&mut self) -> anyhow::Error {
        let until = self.clock.now().after(shutdown::HOOKS_TIMEOUT);
        shutdown::finish_hooks(&mut self.application, self.clock, until).await;
        anyhow!("the election died, see the log; no claim survives it")
    }
}

/// Returns the error for a dead thread of hooks.
fn hooks_died(end: Result<io::Result<()>, RecvError>) -> anyhow::Error {
    match end {
        Ok(Err(error)) => anyhow!("cannot run hooks: {error}"),
        Ok(Ok(())) | Err(_) => anyhow!("the thread that runs the hooks died, see the log"),
    }
}

impl Task {
    /// Returns the plan to run the command while this member leads. `limit` is its limit of open files, if there is one.
    fn plan(self, config: &Config, limit: Option<u64>, resume: &ResumeState) -> io::Result<Plan> {
        let environment = vec![
            ("BELLWETHER_ID", config.profile.id.to_string()),
            ("BELLWETHER_ELECTION", config.election.clone()),
        ];
        let Exec { kill_after, stopped_for, on_exit } = config.exec;
        let lock = resume.file.as_ref().map(|file| file.lock()).transpose()?;
        Ok(Plan {
            command: self.command,
            under: "leadership",
            kill_after,
            stopped_for,
            on_exit,
            once: self.once,
            file_limit: limit,
            environment,
            descriptor: lock.map(Arc::new),
            shuts_down_descriptor: false,
            after_restart: resume.former.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Values;

    #[test]
    fn the_first_line_says_what_runs() {
        let given = [("zookeeper.servers", "h:1,i:2/app")];
        let said = beginning(&Config::new(&Values::given(&given)).unwrap());
        let version = env!("CARGO_PKG_VERSION");
        let what = "member a of /election (leader_) at h:1,i:2/app, session 10s, lease 6.89s";
        assert_eq!(said, format!("bellwether {version}: {what}"));
    }
}
