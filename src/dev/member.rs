//! A member: a process of this same program, which ends with this process, however that ends.

use super::TICK;
use super::follow::{PATIENCE, sidecar_at};
use crate::api::{STATUS, Status};
use crate::clock::Clock;
use crate::process::{self, Child};
use anyhow::{Context, bail};
use dev_server::Knobs;
use rustix::process::{Resource, Signal, getrlimit, kill_process};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, io};
use tokio::signal::unix::Signal as Deaths;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The number of ports to try for each member.
const PORTS: u16 = 100;
/// The time limit for a new member to join the queue, on a busy machine.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// How a member ends that cannot listen at its port.
const CANNOT_LISTEN: &str = "exit code 1";
/// How many lines of the log to print if a member could not start.
const LAST_LINES: usize = 8;

/// A member's process.
pub(super) struct MemberProcess {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) frozen: bool,
    /// The task that follows the member's answers about the leader.
    pub(super) following: Option<AbortHandle>,
    child: Child,
}

/// Settings common to new members.
pub(super) struct MemberEnvironment<'a> {
    pub(super) session_timeout: Duration,
    pub(super) server: SocketAddr,
    /// The controls of the in-memory server, which know its session ids.
    pub(super) knobs: Knobs,
    pub(super) logs: &'a Path,
    pub(super) clock: Clock,
}

impl MemberProcess {
    /// Starts a member at the next free port, and waits until it is in the queue. Tries the next port if another program
    /// takes this one before the member binds it.
    pub(super) async fn start(
        id: &str,
        ports: &mut Ports,
        surroundings: &MemberEnvironment<'_>,
        deaths: &mut Deaths,
    ) -> anyhow::Result<Self> {
        let log = surroundings.logs.join(format!("{id}.log"));
        for _ in 0..PORTS {
            let port = ports.next()?;
            let mut member = Self::spawn(id, port, surroundings, &log)
                .with_context(|| format!("cannot start {id}"))?;
            match member.joins(surroundings, deaths).await {
                Ok(()) => return Ok(member),
                Err(why) if why == CANNOT_LISTEN => {}
                Err(why) => {
                    // A member that is only slow would join later, without being listed, so kill it.
                    member.signal(Signal::KILL);
                    bail!("{id} cannot start: {why}; its log ends with:\n{}", end_of(&log));
                }
            }
        }
        bail!("{id} cannot listen at any port; its log ends with:\n{}", end_of(&log))
    }

    /// Starts the member's process.
    fn spawn(id: &str, port: u16, place: &MemberEnvironment<'_>, log: &Path) -> io::Result<Self> {
        let mut command: Vec<OsString> = vec![ourselves().into(), "run".into()];
        fn span(span: Duration) -> String {
            format!("{}ms", span.as_millis())
        }
        for (flag, value) in [
            ("--zookeeper", place.server.to_string()),
            ("--session-timeout", span(place.session_timeout)),
            ("--tick-time", span(TICK)),
            ("--id", id.to_owned()),
            ("--listen", local(port).to_string()),
            // There is no application, so let GET /leader/redirect lead to the sidecar itself.
            ("--address", local(port).to_string()),
        ] {
            command.extend([flag.into(), value.into()]);
        }
        let log = File::create(log)?;
        let mut started = process::started_by_us(&command, getrlimit(Resource::Nofile).current);
        started.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // The new member must not use variables that are meant for another member, or for the service that runs this
        // process.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("BELLWETHER_") || name == "NOTIFY_SOCKET" {
                started.env_remove(name);
            }
        }
        let child = process::spawn(&mut started)?;
        let id = id.to_owned();
        Ok(Self { id, port, frozen: false, following: None, child })
    }

    /// Waits until the member is in the queue. Returns how it ended if it ends first.
    async fn joins(
        &mut self,
        surroundings: &MemberEnvironment<'_>,
        deaths: &mut Deaths,
    ) -> Result<(), String> {
        let sidecar = sidecar_at(self.port);
        let limit = surroundings.clock.now().after(JOIN_TIMEOUT);
        while self.is_alive() {
            let answer = sidecar.get(STATUS.path).within(PATIENCE).answer().await;
            let status = answer.and_then(|answer| answer.body::<Status>());
            // A member of another server may have taken that port and answer there, so check the session id.
            if status
                .is_ok_and(|status| status.znode.is_some() && is_of(&surroundings.knobs, &status))
            {
                return Ok(());
            }
            if surroundings.clock.now() >= limit {
                return Err(format!("it is not in the queue after {JOIN_TIMEOUT:?}"));
            }
            sleep(PAUSE).await;
        }
        Err(self.end(deaths).await)
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.pid().as_raw_pid()
    }

    pub(super) fn is_alive(&self) -> bool {
        process::is_alive(self.child.pid())
    }

    /// Waits until the member has ended, and returns how it ended.
    pub(super) async fn end(&mut self, deaths: &mut Deaths) -> String {
        match self.child.wait(deaths).await {
            Ok(()) => "exit code 0".to_owned(),
            Err(how) => how,
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Once the member was reaped, its process id may have been reused.
        if self.is_alive() {
            let _dead_already = kill_process(self.child.pid(), signal);
        }
    }
}

/// Returns whether this member's session belongs to this server.
fn is_of(knobs: &Knobs, status: &Status) -> bool {
    let number = status.session.id.as_deref().and_then(|id| id.strip_prefix("0x"));
    let number = number.and_then(|id| u64::from_str_radix(id, 16).ok());
    number.is_some_and(|id| knobs.sessions().contains(&id.cast_signed()))
}

/// Finds free ports. Each port is tried once.
pub(super) struct Ports {
    next: u16,
}

impl Ports {
    pub(super) fn from(first: u16) -> Self {
        Self { next: first }
    }

    pub(super) fn next(&mut self) -> anyhow::Result<u16> {
        let first = self.next;
        let last = self.next.saturating_add(PORTS - 1);
        for port in first..=last {
            self.next = port.saturating_add(1);
            if TcpListener::bind(local(port)).is_ok() {
                return Ok(port);
            }
        }
        bail!(
            "no port from {first} to {last} of 127.0.0.1 is free for a member; end what listens there, or choose others (--port)"
        )
    }
}

pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns the path of this program, so that users find members in a list of processes. If the file was replaced, returns a
/// path that still leads to it.
fn ourselves() -> PathBuf {
    let file = env::current_exe().ok().filter(|file| file.is_file());
    file.unwrap_or_else(|| "/proc/self/exe".into())
}

/// Returns the last lines of a log.
fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
