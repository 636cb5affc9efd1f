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

/// The command of `bellwether exec`, which runs only while this member leads.
pub struct Task {
    pub command: Vec<OsString>,
    /// Whether this member leaves the election as soon as the command has ended with exit code 0.
    pub once: bool,
}

/// Runs the daemon until a signal or the end of its command, and then shuts it down. Returns the exit code.
///
/// # Errors
/// The daemon cannot start, or one of its threads died. Returns the exit code, and a sentence about the problem.
pub fn run(effective: Effective, task: Option<Task>) -> Result<u8, (u8, String)> {
    let config = &effective.config;
    let invalid = |why: String| (MISCONFIGURED, why);
    let mut warnings = secrets::check(&config.settings, config.has_secrets()).map_err(invalid)?;
    let (resume, flaw) = open_session_file(config).map_err(invalid)?;
    warnings.extend(flaw.map(|flaw| {
        format!("{flaw}: what is there is not taken up, this member opens a session of its own")
    }));
    let level = logging::start(effective.config.log_format, &effective.config.log_level)
        .map_err(invalid)?;
    info!("{}", first_log_line(config));
    cli::warnings(config).iter().chain(&warnings).for_each(|warning| warn!("{warning}"));
    // The commands of hooks and of `exec` get the previous limit back.
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
fn first_log_line(config: &Config) -> String {
    let Config { settings, election, profile, .. } = config;
    let version = env!("CARGO_PKG_VERSION");
    let kind = settings.znodes.kind();
    let Zookeeper { hosts, session_timeout, .. } = &settings.zookeeper;
    let chroot = settings.root.strip_suffix(election.as_str()).unwrap_or_default();
    // `None` cannot occur: the configuration is invalid if its settings leave no time for a lease.
    let lease = config.longest_lease().map(|lease| lease.0).unwrap_or_default();
    format!(
        "bellwether {version}: member {} of {election} ({kind}) at {hosts}{chroot}, session {session_timeout:?}, lease \
         {lease:?}",
        profile.id
    )
}

/// Starts the log of a command other than the daemon: in the text format, to stderr.
///
/// # Errors
/// `level` is invalid. Returns a sentence about the problem.
pub fn log_for_command(level: &str) -> Result<(), String> {
    logging::start(LogFormat::Text, level).map(drop)
}

/// Opens the session file, if one is configured. With the session saved there, this member can resume its place in the
/// queue. Also returns the reason why the file's content cannot be used, if it cannot.
fn open_session_file(config: &Config) -> Result<(ResumeState, Option<String>), String> {
    let Some(path) = &config.session_file else { return Ok((ResumeState::default(), None)) };
    let member = config.profile.id.as_str();
    let OpenedSessionFile { file, former, flaw } =
        SessionFile::open(path, &config.settings, member, Clock::system())?;
    Ok((ResumeState { file: Some(Arc::new(file)), former }, flaw))
}

/// The running daemon: its server, its threads, and the signals that control it.
struct Daemon {
    clock: Clock,
    status: StatusHandle,
    /// The log's level, which a reload may change.
    level: Level,
    config: ActiveConfig,
    /// SIGINT and SIGTERM, which end the daemon. While a command is supervised, the supervisor handles them instead.
    signals: SignalListener,
    /// SIGHUP, at which the daemon reloads its configuration. With a command, the supervisor forwards it to the
    /// command, and nothing is reloaded.
    hangup: Signal,
    server: Server,
    election: SessionThread,
    /// The thread of the locks, barriers and shared values, unless they are switched off.
    holdings: Option<SessionThread>,
    application: ApplicationThread,
    /// The thread of the command's supervisor, if there is a command.
    command: Option<CommandThread>,
}

impl Daemon {
    /// Binds the listeners, then starts the threads. `file_limit` is the limit of open files for commands; `None` if
    /// they have no limit of their own.
    async fn build(
        effective: Effective,
        level: Level,
        task: Option<Task>,
        file_limit: Option<u64>,
        resume: ResumeState,
    ) -> anyhow::Result<Self> {
        let active_config = ActiveConfig::of(&effective);
        let config = effective.config;
        let plan = task.map(|task| task.plan(&config, file_limit, &resume)).transpose()?;
        // The settings of locks, barriers and shared values, unless they are switched off.
        let holdings_settings = config.recipes.map(|paths| HoldingsSettings {
            zookeeper: config.settings.zookeeper.clone(),
            paths,
            margins: config.policy.margins,
            member: config.profile.id.clone(),
        });
        let clock = Clock::system();
        let member = Member::new(Arc::new(config.profile), config.policy);
        let member = member.with_time_to_end(config.reserve).of_priority(config.priority);
        let member = match config.settings.znodes.family() {
            // The queue is shared with contenders of another client library, for example Curator.
            Some(_) => member.among_others(),
            None => member,
        };
        // With a health check, the member joins the queue only when the application is reported healthy.
        let member = if config.health.is_some() { member.unhealthy_at_first() } else { member };
        let (publisher, status) = status::set_up(&member, clock.now());
        // If there is a command, its supervisor receives the requests to the member first. It ends the command before it
        // forwards a request that would end leadership. The supervisor keeps the original `status` for that.
        let (status, mut supervised) = match plan {
            Some(plan) => {
                let (intercepted, requests) = status.with_interceptor(config.reserve);
                (intercepted, Some((plan, status, requests)))
            }
            None => (status, None),
        };
        let authorization = match config.token_file {
            Some(file) => Authorization::TokenIn(file.into()),
            None => Authorization::Header,
        };
        let (signals, hangup) = (SignalListener::for_termination()?, signals::hangup()?);
        let listeners =
            Listeners::open(&config.listen, &config.socket, config.probe_listen).await?;
        // The command reaches the API at the address that was bound, whose port may have been chosen by the kernel.
        if let Some((plan, ..)) = &mut supervised {
            plan.environment.push(("BELLWETHER_URL", listeners.url()?));
        }
        if !config.listen.is_local() && matches!(authorization, Authorization::Header) {
            warn!(
                "http.listen {} is not a loopback address: any client that reaches it can send commands; set \
                 http.token_file, or let others in by http.probe_listen",
                config.listen
            );
        }
        // The channels to the hooks, and those to the thread of the locks and barriers.
        let (hook_inputs, HooksHandle { hooks, leave, records }) = notify::set_up(config.hooks);
        let (health_out, application) = watch::channel(None);
        let budget = ByteBudget::of_mib(config.buffers_mib);
        let (recipes, holdings, shared_config) = match holdings_settings {
            Some(settings) => {
                let (holding_requests, holdings) = holdings::set_up();
                let (config_requests, shared_config) =
                    shared_config::set_up(&settings.paths.config, &budget);
                let requests = (holding_requests, config_requests);
                (Some((settings, requests)), Some(holdings), Some(shared_config))
            }
            None => (None, None, None),
        };
        let (file_records, synced_files) = watch::channel(notify::records(&config.synced_files));
        // `config.synced_files` lists the values of the shared configuration that are written to files ([[config]]).
        let file_sync = shared_config.clone().filter(|_| !config.synced_files.is_empty());
        let file_sync = file_sync.map(|handle| (config.synced_files, handle, file_records));
        // The handle with which the HTTP services and the other threads read the daemon's state and send requests to it.
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
        let services = http::services(status.clone(), clock, names.clone(), authorization, &limits);
        let server = listeners.serve(services, limits)?;
        tokio::spawn(signals::terminate_when_asked(status.shutdown.clone()));
        if cli::is_service() {
            tokio::spawn(systemd::report(status.clone(), clock));
        }
        // Start the threads. The sessions of the election and of the locks and barriers share the credentials.
        let credentials = Credentials::of(&settings.zookeeper);
        let holdings_credentials = credentials.clone();
        let election =
            SessionThread::election(member, settings, credentials, clock, publisher, resume)?;
        let holdings = recipes
            .map(|(settings, requests)| {
                SessionThread::holdings(settings, holdings_credentials, clock, requests)
            })
            .transpose()?;
        let inputs = ApplicationInputs {
            hooks: hook_inputs,
            names,
            health: config.health,
            health_out,
            file_sync,
            file_limit,
            clock,
            status: status.clone(),
        };
        let application = ApplicationThread::start(inputs, hooks, leave)?;
        let command = supervised
            .map(|(plan, status, requests)| CommandThread::start(plan, clock, status, requests))
            .transpose()?;
        // This thread only serves clients from now on, and the other threads are more urgent.
        resources::lower_thread_priority();
        Ok(Self {
            clock,
            status,
            level,
            config: active_config,
            signals,
            hangup,
            server,
            election,
            holdings,
            application,
            command,
        })
    }

    /// Runs until the command ends or, without a command, until SIGINT or SIGTERM. Returns the exit code.
    async fn run(&mut self) -> anyhow::Result<u8> {
        match self.command.take() {
            Some(command) => self.run_until_command_ends(command).await,
            None => self.run_until_signal().await,
        }
    }

    /// Runs until the supervisor has ended. Returns the daemon's exit code. Fails if a thread dies.
    async fn run_until_command_ends(&mut self, command: CommandThread) -> anyhow::Result<u8> {
        tokio::select! {
            code = command.ended => match code {
                Ok(Ok(code)) => {
                    // The supervisor has already handled all signals until now. A new listener does not receive them
                    // again, so the shutdown does not take one of them for its second signal.
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
                    self.config.reload(&self.status, &self.application.hooks, &self.level).await;
                }
                _ = &mut self.election.left => return Err(self.election_died().await),
                end = &mut self.application.ended => return Err(hooks_died(end)),
            }
        }
    }

    /// Handles the death of the election's thread: runs the hooks for the end of this member's leadership, and returns the
    /// error with which the daemon ends.
    async fn election_died(&mut self) -> anyhow::Error {
        let until = self.clock.now().after(shutdown::HOOKS_TIMEOUT);
        shutdown::finish_hooks(&mut self.application, self.clock, until).await;
        anyhow!("the thread of the election died, see the log; this member no longer leads")
    }
}

/// Returns the error with which the daemon ends because the thread of the hooks has ended.
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
        // The guards of the command hold the session file's lock too, until the command is dead: no other process can
        // take over the previous session.
        let lock = resume.file.as_ref().map(|file| file.share_lock()).transpose()?;
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
        let said = first_log_line(&Config::new(&Values::given(&given)).unwrap());
        let version = env!("CARGO_PKG_VERSION");
        let what = "member a of /election (leader_) at h:1,i:2/app, session 10s, lease 6.89s";
        assert_eq!(said, format!("bellwether {version}: {what}"));
    }
}
