//! Opens the doors between the rooms, waits for a signal, and closes them in order.

use anyhow::Context;
use bellwether::cli::{self, Command, Effective, LogFormat};
use bellwether::clock::Clock;
use bellwether::config::security::CREDENTIALS_VARIABLE;
use bellwether::config::{Exec, Listen, Settings};
use bellwether::daemon::log_line::InWords;
use bellwether::daemon::reload::InForce;
use bellwether::daemon::systemd;
use bellwether::desk::Front;
use bellwether::exec::{self, Plan};
use bellwether::terminal::Errand;
use bellwether::{checkup, desk, http, notify, process, runtime, terminal, zookeeper};
use recipes::Moment;
use recipes::election::Member;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setpriority_process,
    setrlimit,
};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::{error, info, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Leaving the line may take this long; the rest of the two seconds is for the HTTP server.
const TO_LEAVE: Duration = Duration::from_millis(1500);
/// Whatever signal comes next. A server that answers needs less.
const TO_HAND_OVER: Duration = Duration::from_millis(250);
const TO_FINISH_ANSWERS: Duration = Duration::from_millis(200);
/// From the same moment on, the hooks may take this long, and then so long to be ended.
const TO_TELL: Duration = Duration::from_millis(1650);
const TO_CUT_SHORT: Duration = Duration::from_millis(100);

/// Of a core that is wanted by others too, the readers' thread gets a third of an equal share.
const READERS_NICE: i32 = 5;

fn main() -> ExitCode {
    let command = match cli::read() {
        Ok(command) => command,
        Err(error) => return fail(2, &error),
    };
    let (effective, task) = match command {
        Command::Run(effective) => (effective, None),
        Command::Exec { effective, once, command } => (effective, Some((once, command))),
        Command::ExecOuterGuard { command } => return guarded(exec::guard_guard(&command)),
        Command::ExecInnerGuard { command } => return guarded(exec::guard_command(&command)),
        Command::ExecCommand { guard, files, command } => {
            let (code, why) = process::become_command(guard, files, &command);
            return fail(code, &why);
        }
        Command::CheckConfig(effective) => {
            match look_at_security(&effective.config.settings, effective.config.has_secrets()) {
                Ok(warnings) => {
                    cli::strays().iter().chain(&warnings).for_each(|warning| complain(warning));
                }
                Err(error) => return fail(2, &error),
            }
            // Whoever closes the pipe has read enough.
            let _nobody_reads = write!(std::io::stdout(), "{effective}");
            return ExitCode::SUCCESS;
        }
        Command::Say(text) => {
            let _nobody_reads = std::io::stdout().write_all(&text);
            return ExitCode::SUCCESS;
        }
        Command::Terminal(errand) => {
            if let Errand::Inspect { settings, .. } = &errand {
                match look_at_security(settings, errand.has_secrets()) {
                    Ok(warnings) => warnings.iter().for_each(|warning| complain(warning)),
                    Err(error) => return fail(2, &error),
                }
            } else if errand.has_secrets() || std::env::var_os(CREDENTIALS_VARIABLE).is_some() {
                hide().iter().for_each(|warning| complain(warning));
            }
            return run_errand(errand);
        }
    };
    let config = &effective.config;
    let warnings = match look_at_security(&config.settings, config.has_secrets()) {
        Ok(warnings) => warnings,
        Err(error) => return fail(2, &error),
    };
    let level = match start_log(&effective) {
        Ok(level) => level,
        Err(error) => return fail(2, &error),
    };
    cli::strays().iter().chain(&warnings).for_each(|warning| warn!("{warning}"));
    let files = open_more_files();
    let plan = task.map(|(once, command)| plan(&effective, once, command, files));
    match runtime::run(run(effective, level, plan, files)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(1, &format!("{error:#}")),
    }
}

fn guarded(ended: std::io::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot guard the command: {error}")),
    }
}

/// Checks what is needed to be let in, before a port is bound. Returns what somebody should look at.
fn look_at_security(settings: &Settings, has_secrets: bool) -> Result<Vec<String>, String> {
    let mut warnings: Vec<_> = has_secrets.then(hide).flatten().into_iter().collect();
    warnings.extend(zookeeper::check(settings)?);
    Ok(warnings)
}

/// With secrets in our memory, and in the client library's, where nobody wipes them, there is no core
/// dump, no debugger and no look at our environment for whoever is not root. Returns why there may be.
fn hide() -> Option<String> {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hidden.err().map(|error| format!("a core dump of this process may hold secrets: {error}"))
}

fn run_errand(errand: Errand) -> ExitCode {
    let done = runtime::run(terminal::run(errand, Clock::system()));
    match done.map_err(terminal::Trouble::told) {
        Err((code, Some(why))) => fail(code, &why),
        Err((code, None)) => ExitCode::from(code),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// As `env` and `timeout` say that they failed themselves, and not the command.
const FAILED: u8 = 125;

fn plan(effective: &Effective, once: bool, command: Vec<OsString>, files: Option<u64>) -> Plan {
    let config = &effective.config;
    let environment = vec![
        ("BELLWETHER_ID", config.profile.id.to_string()),
        ("BELLWETHER_ELECTION", config.election.clone()),
    ];
    let Exec { kill_after, on_exit } = config.exec;
    Plan { command, kill_after, on_exit, once, files, environment }
}

/// As many as the administrator allows: the usual limit of 1024 is there for programs that use
/// select(2), and would keep visitors waiting who could be served. Returns how many it was before.
fn open_more_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        warn!("serves fewer visitors, as it may open no more files: {error}");
    }
    limit.current
}

fn fail(code: u8, error: &str) -> ExitCode {
    complain(error);
    ExitCode::from(code)
}

#[expect(clippy::print_stderr, reason = "the log may not have started yet")]
fn complain(what: &str) {
    eprintln!("bellwether: {what}");
}

/// What sets another level while the log runs.
type Level = reload::Handle<Targets, Registry>;

fn start_log(effective: &Effective) -> Result<Level, String> {
    let (targets, level) = reload::Layer::new(targets(&effective.log_level)?);
    let registry = tracing_subscriber::registry().with(targets);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match effective.log_format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.fmt_fields(InWords).with_ansi(colours)).init();
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
    Ok(level)
}

fn targets(level: &str) -> Result<Targets, String> {
    let wanted: Targets =
        level.parse().map_err(|error| format!("log.level {level:?} makes no sense: {error}"))?;
    // The library says at its own pace what the keeper says once.
    let quiet = wanted.default_level().unwrap_or(LevelFilter::OFF) <= LevelFilter::INFO;
    Ok(if quiet { wanted.with_target("zookeeper_client", LevelFilter::ERROR) } else { wanted })
}

/// Returns the exit code.
async fn run(
    effective: Effective,
    level: Level,
    plan: Option<Plan>,
    files: Option<u64>,
) -> anyhow::Result<u8> {
    let mut in_force = InForce::of(&effective);
    let config = effective.config;
    let clock = Clock::system();
    let member = Member::new(Arc::new(config.profile), config.policy).reserving(config.reserve);
    let health = config.health;
    let member = if health.is_some() { member.unhealthy_at_first() } else { member };
    let (back, front) = desk::set_up(&member, clock.now());
    // Where a command is run, orders come by its supervisor, who lets them through when it is dead.
    let (front, task) = match plan {
        Some(plan) => {
            let (first, orders) = front.by_way_of(config.reserve);
            (first, Some((plan, front, orders)))
        }
        None => (front, None),
    };
    let gate = match config.token_file {
        Some(file) => http::Gate::TokenIn(file.into()),
        None => http::Gate::Header,
    };
    let mut signals = Signals::new()?;
    let mut hangup = signal(SignalKind::hangup())?;

    let door = open(&config.listen).await?;
    let socket = match &config.listen {
        Listen::Unix(path) => file_at(path),
        Listen::Tcp(_) => None,
    };
    let prober = match config.probe_listen {
        Some(address) => Some(bind("http.probe_listen", address).await?),
        None => None,
    };
    if !config.listen.is_local() && matches!(gate, http::Gate::Header) {
        warn!(
            "http.listen {} is no loopback: whoever reaches it can give orders; set \
             http.token_file, or let others in by http.probe_listen",
            config.listen
        );
    }
    let settings = config.settings;
    let (stage, notify::Switch { hooks, leave: leaving, records }) = notify::set_up(config.hooks);
    let (examined, application) = watch::channel(None);
    let front = Front { hooks: records, application, ..front };
    let names = http::Names { election: config.election, prefix: settings.prefix.clone() };
    let (election, prefix) = (names.election.clone(), names.prefix.clone());
    let (close, closed) = oneshot::channel::<()>();
    let limits = http::Limits::for_application();
    let services = http::services(front.clone(), clock, names, gate, &limits);
    let http::Services { api, probes, first_index } = services;
    if let Some(prober) = prober {
        info!("probes answered on {}", prober.local_addr()?);
        // It ends with the process: who probes a member that leaves is told so to the end.
        tokio::spawn(http::serve(
            prober,
            probes,
            http::Limits::for_probes(),
            std::future::pending(),
        ));
    }
    let closing = async { drop(closed.await) };
    let server = match door {
        Door::Tcp(listener) => {
            info!("listening on {}", listener.local_addr()?);
            tokio::spawn(http::serve(listener, api, limits, closing))
        }
        Door::Unix(listener) => {
            info!("listening on {}", config.listen);
            tokio::spawn(http::serve(listener, api, limits, closing))
        }
    };

    if cli::is_service() {
        tokio::spawn(systemd::tell(front.clone(), clock));
    }

    // A thread of its own: no reader, however slow or many, can slow the election.
    let (stop, stopping) = oneshot::channel();
    let (gone, left) = oneshot::channel::<bool>();
    std::thread::Builder::new().name("election".into()).spawn(move || {
        let left = runtime::run(zookeeper::run(member, settings, clock, back, stopping));
        let _nobody_waits = gone.send(left);
    })?;
    // A thread of its own, with the application: no hook, however slow, can slow anybody, and none
    // waits for readers.
    let (told, done) = oneshot::channel();
    let id = front.report.borrow().standing.profile().id.to_string();
    let names = notify::Names { id, election, prefix, first_index };
    let desk = front.clone();
    std::thread::Builder::new().name("application".into()).spawn(move || {
        let requests = desk.requests.clone();
        let telling = notify::run(stage, names, files, clock, desk);
        let checking = async {
            if let Some(health) = health {
                checkup::run(health, files, clock, requests, examined).await?;
            }
            std::future::pending().await
        };
        let ended = runtime::run(async {
            tokio::select! {
                ended = telling => ended,
                failed = checking => failed,
            }
        });
        let _nobody_waits = told.send(ended);
    })?;
    let mut telling = Telling { leaving, done, clock };
    let supervised = match task {
        Some((plan, front, orders)) => {
            // A thread of its own, as the election has, since the command's life hangs on it.
            let (ended, end) = oneshot::channel();
            std::thread::Builder::new().name("command".into()).spawn(move || {
                let code = runtime::run(exec::supervise(plan, clock, front, orders));
                let _nobody_waits = ended.send(code);
            })?;
            Some(end)
        }
        None => None,
    };
    // From here on, this thread only serves. What it is asked for waits until the election, and
    // whatever else is as urgent, has had its turn.
    let _as_urgent_without = setpriority_process(None, READERS_NICE);

    let mut left = left;
    let died = "the election died, see the log; no claim survives it";
    let code = if let Some(end) = supervised {
        tokio::select! {
            code = end => match code {
                Ok(Ok(code)) => {
                    // Those that the supervisor heard are not heard again.
                    signals = Signals::new()?;
                    code
                }
                Ok(Err(error)) => {
                    error!("cannot run the command: {error}");
                    FAILED
                }
                Err(_) => anyhow::bail!("the command's supervisor died, and the command with it"),
            },
            _ = &mut left => {
                telling.finish(clock.now().after(TO_TELL)).await;
                anyhow::bail!(died)
            }
            end = &mut telling.done => anyhow::bail!(Telling::why(end)),
        }
    } else {
        let set_level = |written: &str| {
            let targets = targets(written)?;
            level.reload(targets).map_err(|error| error.to_string())
        };
        loop {
            tokio::select! {
                name = signals.next() => {
                    info!("{name}: leaving");
                    break 0;
                }
                _ = hangup.recv() => {
                    let hide = || hide().iter().for_each(|warning| warn!("{warning}"));
                    in_force.reload(&front, &hooks, set_level, hide).await;
                }
                _ = &mut left => {
                    telling.finish(clock.now().after(TO_TELL)).await;
                    anyhow::bail!(died)
                }
                end = &mut telling.done => anyhow::bail!(Telling::why(end)),
            }
        }
    };
    if cli::is_service() {
        systemd::leaving().await;
    }
    // Whoever starts us may pass on a signal that we got ourselves, so a second one is heeded only
    // when there was a moment to hand over.
    let second = async {
        tokio::time::sleep(TO_HAND_OVER).await;
        signals.next().await
    };
    tokio::select! {
        () = leave(stop, left, telling, close, server) => {}
        name = second => {
            warn!("{name} again: gone at once, what is left in ZooKeeper expires by itself");
        }
    }
    if let (Listen::Unix(path), Some(ours)) = (&config.listen, socket)
        && file_at(path) == Some(ours)
    {
        let _gone_already = fs::remove_file(path);
    }
    Ok(code)
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

async fn open(listen: &Listen) -> anyhow::Result<Door> {
    match listen {
        Listen::Tcp(address) => Ok(Door::Tcp(bind("http.listen", *address).await?)),
        Listen::Unix(path) => {
            let cannot = || format!("cannot serve at {listen} (http.listen)");
            match fs::symlink_metadata(path) {
                Ok(found) if !found.file_type().is_socket() => {
                    anyhow::bail!("{}: there is something else that is no socket", cannot());
                }
                // What a process left behind that was killed is in the way. Only where nobody
                // listens is a connection refused.
                Ok(_) => match UnixStream::connect(path).await {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        fs::remove_file(path).with_context(cannot)?;
                    }
                    Ok(_) | Err(_) => anyhow::bail!("{}: another process serves there", cannot()),
                },
                Err(_) => {}
            }
            let cannot = || format!("{}: is its directory there, and ours to write in?", cannot());
            let listener = UnixListener::bind(path).with_context(cannot)?;
            // Like a port of the loopback, it is for whoever is here. Its directory may say otherwise.
            fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(cannot)?;
            Ok(Door::Unix(listener))
        }
    }
}

/// Which file that is, whatever its name.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener
        .with_context(|| format!("cannot serve at {address} ({key}): is it in use, or not ours?"))
}

/// Whoever runs the hooks.
struct Telling {
    leaving: watch::Sender<Option<Moment>>,
    done: oneshot::Receiver<std::io::Result<()>>,
    clock: Clock,
}

impl Telling {
    /// Lets them run until this moment at the latest. That this member leads no more is told by now
    /// if the election could say so, else it is told from now on.
    async fn finish(&mut self, until: Moment) {
        self.leaving.send_replace(Some(until));
        let patience = until.since(self.clock.now()) + TO_CUT_SHORT;
        drop(tokio::time::timeout(patience, &mut self.done).await);
    }

    fn why(end: Result<std::io::Result<()>, oneshot::error::RecvError>) -> String {
        match end {
            Ok(Err(error)) => format!("cannot run hooks: {error}"),
            Ok(Ok(())) | Err(_) => "whoever runs the hooks died, see the log".into(),
        }
    }
}

/// Gives up the claim, leaves the line, lets the hooks tell so, then stops serving; each step with
/// its limit.
async fn leave(
    stop: oneshot::Sender<()>,
    left: oneshot::Receiver<bool>,
    mut telling: Telling,
    close: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<()>,
) {
    let until = telling.clock.now().after(TO_TELL);
    let _gone_already = stop.send(());
    match tokio::time::timeout(TO_LEAVE, left).await {
        Ok(Ok(true)) => info!("left the line"),
        Ok(_) | Err(_) => {
            warn!("ZooKeeper did not confirm it: our znode, if there is one, is left to expire");
        }
    }
    telling.finish(until).await;
    let _gone_already = close.send(());
    drop(tokio::time::timeout(TO_FINISH_ANSWERS, server).await);
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
