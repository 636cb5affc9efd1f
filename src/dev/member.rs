//! A member: a process of this same program. A member never outlives this process: the kernel kills the member when
//! this process ends (`process::command_for`).

use super::TICK;
use super::follow::{ANSWER_TIMEOUT, sidecar_at};
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
use tokio::signal::unix::Signal as SignalStream;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The number of ports to try for each member.
const PORT_ATTEMPTS: u16 = 100;
/// The time limit for a new member to join the queue, on a busy machine.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two requests that ask whether a new member is in the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The description, by [`MemberProcess::wait_for_end`], of the end of a member that cannot listen at its port.
const CANNOT_LISTEN: &str = "exit code 1";
/// How many lines of the log to print if a member could not start.
const LAST_LINES: usize = 8;

/// A member's process.
pub(super) struct MemberProcess {
    pub(super) id: String,
    /// The port at which the member serves its API.
    pub(super) port: u16,
    /// Whether the user has stopped the process, with SIGSTOP.
    pub(super) frozen: bool,
    /// The task that follows the member's answers about the leader.
    pub(super) following: Option<AbortHandle>,
    child: Child,
}

/// Settings common to new members.
pub(super) struct MemberSettings<'a> {
    pub(super) session_timeout: Duration,
    /// The address of the in-memory server.
    pub(super) server: SocketAddr,
    /// The controls of the in-memory server, which know its session ids.
    pub(super) knobs: Knobs,
    /// The directory for log files.
    pub(super) logs: &'a Path,
    pub(super) clock: Clock,
}

impl MemberProcess {
    /// Starts a member at the next free port, and waits until it is in the queue. Tries the next port if another
    /// program takes the port before the member binds it.
    pub(super) async fn start(
        id: &str,
        ports: &mut Ports,
        settings: &MemberSettings<'_>,
        deaths: &mut SignalStream,
    ) -> anyhow::Result<Self> {
        let log = settings.logs.join(format!("{id}.log"));
        for _ in 0..PORT_ATTEMPTS {
            let port = ports.next()?;
            let mut member = Self::spawn(id, port, settings, &log)
                .with_context(|| format!("cannot start {id}"))?;
            match member.wait_until_queued(settings, deaths).await {
                Ok(()) => return Ok(member),
                // Another program has probably taken the port, so try the next one.
                Err(how) if how == CANNOT_LISTEN => {}
                Err(how) => {
                    // A member that is only slow would join later, but would not be in the list of members, so kill it.
                    member.signal(Signal::KILL);
                    bail!("{id} cannot start: {how}; its log ends with:\n{}", last_lines(&log));
                }
            }
        }
        bail!("{id} cannot listen at any port; its log ends with:\n{}", last_lines(&log))
    }

    /// Starts the member's process.
    fn spawn(id: &str, port: u16, settings: &MemberSettings<'_>, log: &Path) -> io::Result<Self> {
        let mut words: Vec<OsString> = vec![this_program().into(), "run".into()];
        fn in_ms(duration: Duration) -> String {
            format!("{}ms", duration.as_millis())
        }
        for (flag, value) in [
            ("--zookeeper", settings.server.to_string()),
            ("--session-timeout", in_ms(settings.session_timeout)),
            ("--tick-time", in_ms(TICK)),
            ("--id", id.to_owned()),
            ("--listen", local(port).to_string()),
            // There is no application, so let GET /leader/redirect lead to the sidecar itself.
            ("--address", local(port).to_string()),
        ] {
            words.extend([flag.into(), value.into()]);
        }
        let log = File::create(log)?;
        let mut command = process::command_for(&words, getrlimit(Resource::Nofile).current);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // The new member must not use variables that are meant for another member, or for the service that runs this
        // process.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("BELLWETHER_") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        let child = process::spawn(&mut command)?;
        let id = id.to_owned();
        Ok(Self { id, port, frozen: false, following: None, child })
    }

    /// Waits until the member is in the queue. If the member ends first, or takes too long, returns a description of
    /// that as the error.
    async fn wait_until_queued(
        &mut self,
        settings: &MemberSettings<'_>,
        deaths: &mut SignalStream,
    ) -> Result<(), String> {
        let sidecar = sidecar_at(self.port);
        let limit = settings.clock.now().after(JOIN_TIMEOUT);
        while self.is_alive() {
            let answer = sidecar.get(STATUS.path).within(ANSWER_TIMEOUT).answer().await;
            let status = answer.and_then(|answer| answer.body::<Status>());
            // A member of another ZooKeeper may have taken the port and answer there, so check the session id.
            if status.is_ok_and(|status| {
                status.znode.is_some() && has_session_of(&settings.knobs, &status)
            }) {
                return Ok(());
            }
            if settings.clock.now() >= limit {
                return Err(format!("it is not in the queue after {JOIN_TIMEOUT:?}"));
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(self.wait_for_end(deaths).await)
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.pid().as_raw_pid()
    }

    pub(super) fn is_alive(&self) -> bool {
        process::is_alive(self.child.pid())
    }

    /// Returns whether the process is alive and no signal has stopped it.
    pub(super) fn is_running(&self) -> bool {
        self.is_alive() && !process::is_stopped(self.child.pid())
    }

    /// Waits until the member has ended, and describes how, for example `exit code 1`.
    pub(super) async fn wait_for_end(&mut self, deaths: &mut SignalStream) -> String {
        match self.child.wait(deaths).await {
            Ok(()) => "exit code 0".to_owned(),
            Err(how) => how,
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        // After a member has ended and was waited for, its process id may belong to another process.
        if self.is_alive() {
            // An error means that the member has ended meanwhile.
            let _ = kill_process(self.child.pid(), signal);
        }
    }
}

/// Returns whether the session in a member's `status` exists at the server.
fn has_session_of(server: &Knobs, status: &Status) -> bool {
    let number = status.session.id.as_deref().and_then(|id| id.strip_prefix("0x"));
    let number = number.and_then(|id| u64::from_str_radix(id, 16).ok());
    number.is_some_and(|id| server.sessions().contains(&id.cast_signed()))
}

/// Finds free ports, in ascending order. Each port is tried once.
pub(super) struct Ports {
    next: u16,
}

impl Ports {
    pub(super) fn from(first: u16) -> Self {
        Self { next: first }
    }

    pub(super) fn next(&mut self) -> anyhow::Result<u16> {
        let first = self.next;
        let last = self.next.saturating_add(PORT_ATTEMPTS - 1);
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

/// Returns the address with this port on the loopback interface.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns the path of this program, so that users find members in a list of processes. If the file was deleted or
/// replaced, returns a path by which the kernel still finds the running program.
fn this_program() -> PathBuf {
    let file = env::current_exe().ok().filter(|file| file.is_file());
    file.unwrap_or_else(|| "/proc/self/exe".into())
}

/// Returns the last lines of a log.
fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
