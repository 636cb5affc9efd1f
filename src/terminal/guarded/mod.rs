//! Runs a command while a lock is held, or inside a barrier. Either a sidecar holds the lock for this process, or this
//! process holds it itself.
//!
//! The command is supervised in the same way as that of `bellwether exec`: see [`crate::exec`].

mod by_itself;
mod by_sidecar;

use self::by_itself::OwnHolding;
use self::by_sidecar::SidecarStream;
use super::{ClientError, Sidecar, remark, text};
use crate::clock::Clock;
use crate::config::{HoldingConfig, KILL_MARGIN, OnExit};
use crate::exec::{self, CommandLease, Plan, SignalListener};
use crate::holdings::{HoldingName, ProcessName};
use crate::zookeeper::Credentials;
use recipes::holding::HoldingSpec;
use rustix::process::{Resource, getrlimit};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::timeout;

/// The exit code if the lock was not acquired, or the barrier not entered, in time. `timeout` uses the same code.
const NOT_IN_TIME: u8 = 124;

/// The minimum time to wait for a sidecar's first answer, even if the user wants to wait less for the lock. In less
/// time, a sidecar may not find out whether the lock is free.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The time after which a lease that is still too short is an error. A lease may be too short at first, because it gets
/// longer only when the heartbeats have become more frequent.
const SHORT_LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A command to run while a lock is held, or inside a barrier.
pub struct GuardedCommand {
    /// The name of the lock or barrier.
    pub name: HoldingName,
    /// The mode of the lock, or the size of the barrier.
    pub wanted: HoldingSpec,
    pub patience: Patience,
    /// How long the command may take to end after SIGTERM. A short lease may shorten it.
    pub kill_after: Duration,
    /// How long the command may be stopped, as by Ctrl-Z, until it is killed.
    pub stopped_for: Duration,
    pub command: Vec<OsString>,
    pub holder: HoldingProcess,
}

/// How long to wait for the lock or barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Without a limit.
    Endless,
    AtMost(Duration),
    /// Not at all: fail if somebody else holds the lock, or is ahead in its queue.
    Try,
}

/// The process that holds the lock, or enters the barrier.
pub enum HoldingProcess {
    /// A sidecar, on behalf of this process.
    Sidecar(Sidecar),
    /// This process, in a session of its own.
    ThisProcess(Box<HoldingConfig>, Arc<Credentials>),
}

impl HoldingProcess {
    pub fn this_process(config: HoldingConfig) -> Self {
        let credentials = Credentials::of(&config.settings.zookeeper);
        Self::ThisProcess(Box::new(config), credentials)
    }
}

/// The progress of the lock or barrier, as last reported by its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HoldingProgress {
    /// The lock or barrier is requested. The holder has not reported anything yet.
    Requested,
    /// The request waits. The text says for what, such as `behind 2 at most`.
    Waiting(String),
    /// The lock is held, or this process is inside the barrier.
    Held(CommandLease),
    /// This process has left the barrier, but others may still be inside.
    Leaving,
    /// All have left the barrier.
    AllLeft,
    /// The time limit for waiting has passed; with [`Patience::Try`], the lock is not free.
    NotInTime,
    /// The lock was not acquired or the barrier not entered, or it is lost, for this reason.
    Failed(String),
}

impl HoldingProgress {
    fn lease(&self) -> Option<CommandLease> {
        match self {
            Self::Held(lease) => Some(*lease),
            _ => None,
        }
    }

    /// Returns whether no other progress can follow.
    fn is_last(&self) -> bool {
        matches!(self, Self::NotInTime | Self::AllLeft | Self::Failed(_))
    }
}

impl GuardedCommand {
    /// Runs the command. Returns when all of its processes are gone, and either the lock is released or all have left the
    /// barrier.
    pub(super) async fn run(&self, clock: Clock) -> Result<(), ClientError> {
        match &self.holder {
            HoldingProcess::Sidecar(sidecar) => {
                let opening = SidecarStream::open(sidecar, &self.name, self.wanted, self.patience);
                let opened = match self.patience {
                    Patience::AtMost(limit) => timeout(limit.max(MIN_TIMEOUT), opening).await,
                    Patience::Endless | Patience::Try => Ok(opening.await),
                };
                let Ok(opened) = opened else { return Err(self.not_in_time()) };
                let stream = opened.map_err(as_failure)?;
                let descriptor = stream.descriptor().clone();
                let (publisher, progress) = watch::channel(HoldingProgress::Requested);
                let leave = by_sidecar::leave(sidecar, &self.name, stream.id.clone());
                tokio::select! {
                    biased;
                    ended = self.run_while_held(clock, progress, Some(descriptor), leave) => ended,
                    never = stream.follow(&publisher) => match never {},
                }
            }
            HoldingProcess::ThisProcess(config, credentials) => {
                let run = async {
                    let mut holding = OwnHolding::request(config, credentials, self, clock);
                    let progress = holding.progress.clone();
                    let leave = async {
                        holding.release();
                        Ok(())
                    };
                    let ended = self.run_while_held(clock, progress, None, leave).await;
                    holding.close().await;
                    ended
                };
                LocalSet::new().run_until(run).await
            }
        }
    }

    /// Waits until the lock is held or the barrier is entered, and runs the command. After the command, leaves a
    /// barrier with `leave`, and waits until all others have left. The guards of the command keep `descriptor` open, so
    /// that the sidecar holds the lock until the guards have ended.
    async fn run_while_held(
        &self,
        clock: Clock,
        mut progress: watch::Receiver<HoldingProgress>,
        descriptor: Option<Arc<OwnedFd>>,
        leave: impl Future<Output = Result<(), ClientError>>,
    ) -> Result<(), ClientError> {
        let time_to_end = self.until_held(clock, &mut progress).await?;
        let (under, variable) = match self.wanted {
            HoldingSpec::Lock(_) => ("the lock", "BELLWETHER_LOCK"),
            HoldingSpec::Barrier(_) => ("the barrier", "BELLWETHER_BARRIER"),
        };
        let url = match &self.holder {
            HoldingProcess::Sidecar(sidecar) => Some(("BELLWETHER_URL", sidecar.base_url())),
            HoldingProcess::ThisProcess(..) => None,
        };
        let plan = Plan {
            command: self.command.clone(),
            under,
            // `KILL_MARGIN`, the rest of the reserved time, is for killing the command.
            kill_after: time_to_end.saturating_sub(KILL_MARGIN),
            stopped_for: self.stopped_for,
            on_exit: OnExit::Leave,
            once: false,
            file_limit: getrlimit(Resource::Nofile).current,
            environment: [(variable, self.name.to_string())].into_iter().chain(url).collect(),
            descriptor,
            // After leaving a barrier, this process has to learn over the same connection when all have left, so the
            // guards must not shut it down.
            shuts_down_descriptor: matches!(self.wanted, HoldingSpec::Lock(_)),
            after_restart: false,
        };
        // The reason to print if the lock is lost. Suppose ZooKeeper is silent for so long that the guards end the
        // program. They also shut down the connection to the sidecar, so the sidecar then seems to be gone. That is a
        // consequence of the end and not its reason. So ignore every report that arrives when the end of the program is
        // already due.
        let mut why = "its lease was not renewed in time".to_owned();
        let mut end_due_at = None;
        let run = exec::run_under(plan, clock, progress.clone(), |latest| {
            let is_due = end_due_at.is_some_and(|due_at| due_at <= clock.now().0);
            match latest {
                HoldingProgress::Held(lease) if !is_due => {
                    end_due_at = Some(lease.until.0.saturating_sub(time_to_end));
                }
                HoldingProgress::Failed(reason) if !is_due => why.clone_from(reason),
                _ => {}
            }
            latest.lease()
        });
        let code = match run.await {
            Ok(Some(code)) => code,
            // The lock was lost, so the program was ended, or not even started.
            Ok(None) => {
                let why = text::visible(&why);
                let lost = format!("{} {} was lost", self.kind(), self.name);
                return Err(failure(format!("{lost}, and the program was ended: {why}")));
            }
            Err(error) => return Err(failure(format!("cannot run the program: {error}"))),
        };
        if let HoldingSpec::Barrier(_) = self.wanted {
            let left = async {
                leave.await.map_err(as_failure)?;
                self.until_all_have_left(&mut progress).await
            };
            tokio::select! {
                biased;
                left = left => left?,
                error = interrupted() => return Err(error),
            }
        }
        if code == 0 { Ok(()) } else { Err(ClientError::silent(code)) }
    }

    /// Waits until all participants have left the barrier.
    async fn until_all_have_left(
        &self,
        progress: &mut watch::Receiver<HoldingProgress>,
    ) -> Result<(), ClientError> {
        let why = loop {
            let latest = progress.borrow_and_update().clone();
            match latest {
                HoldingProgress::AllLeft => return Ok(()),
                HoldingProgress::Failed(why) => break text::visible(&why),
                _ => {}
            }
            if progress.changed().await.is_err() {
                break "its state can no longer be read".into();
            }
        };
        Err(failure(format!(
            "the program has ended, and it is not known whether all have left barrier {}: {why}",
            self.name
        )))
    }

    /// Waits until the lock is held, or the barrier entered, with a lease that is long enough. Returns the part of each
    /// lease that is reserved for ending the command.
    async fn until_held(
        &self,
        clock: Clock,
        progress: &mut watch::Receiver<HoldingProgress>,
    ) -> Result<Duration, ClientError> {
        let mut interrupted = pin!(interrupted());
        let until = match self.patience {
            Patience::AtMost(limit) => Some(clock.now().after(limit)),
            Patience::Endless | Patience::Try => None,
        };
        let mut is_wait_printed = false;
        let mut held_since = None;
        loop {
            let latest = progress.borrow_and_update().clone();
            match latest {
                HoldingProgress::Requested => {}
                HoldingProgress::Waiting(behind) => {
                    if !is_wait_printed {
                        remark(&format!("waiting for {} {}, {behind}", self.kind(), self.name));
                        is_wait_printed = true;
                    }
                }
                // This process leaves only after its command has ended. So another client has used the id of this
                // process to leave.
                HoldingProgress::Leaving | HoldingProgress::AllLeft => {
                    return Err(self.not_acquired("another client made this process leave"));
                }
                HoldingProgress::Held(lease) => {
                    let now = clock.now();
                    let left = lease.until.since(now);
                    let held_for = held_since.map(|since| now.since(since));
                    match reserved_time(self.kill_after, left) {
                        // The time reserved for ending the command is as long as the user wants, or as long as a renewed
                        // lease allows.
                        Some(reserved)
                            if held_for.is_some() || reserved == self.kill_after + KILL_MARGIN =>
                        {
                            return Ok(reserved);
                        }
                        // Even renewed leases are too short. (`held_for` is `None` for the first lease, and `None` is
                        // less than any `Some`.)
                        None if held_for >= Some(SHORT_LEASE_TIMEOUT) => {
                            return Err(failure(format!(
                                "a lease of {left:?} leaves no time to end a command before it ends: have the session \
                                 timeout raised (zookeeper.session_timeout)"
                            )));
                        }
                        // Wait for a renewed lease. The first lease may already be as old as a heartbeat interval, so a
                        // renewed one has more time left.
                        Some(_) | None => held_since = held_since.or(Some(now)),
                    }
                }
                HoldingProgress::NotInTime => return Err(self.not_in_time()),
                HoldingProgress::Failed(why) => return Err(self.not_acquired(&why)),
            }
            tokio::select! {
                changed = progress.changed() => {
                    changed.map_err(|_| self.not_acquired("its state can no longer be read"))?;
                }
                () = clock.sleep_until(until) => {
                    // Without an answer of ZooKeeper, it is not known whether the lock is free.
                    let is_answered = *progress.borrow() != HoldingProgress::Requested;
                    return Err(match &self.holder {
                        HoldingProcess::ThisProcess(_, credentials) if !is_answered => {
                            self.not_acquired(&by_itself::unanswered(credentials))
                        }
                        _ => self.not_in_time(),
                    });
                }
                error = &mut interrupted => return Err(error),
            }
        }
    }

    /// Returns the word for what is held, for messages.
    fn kind(&self) -> &'static str {
        match self.wanted {
            HoldingSpec::Lock(_) => "lock",
            HoldingSpec::Barrier(_) => "barrier",
        }
    }

    /// Returns the error for a wait that was too long.
    fn not_in_time(&self) -> ClientError {
        let why = match self.wanted {
            HoldingSpec::Lock(_) => format!(
                "{} lock {}: `bellwether locks {1}` shows who is ahead",
                if self.patience == Patience::Try {
                    "others have"
                } else {
                    "timed out waiting for"
                },
                self.name
            ),
            HoldingSpec::Barrier(_) => format!(
                "timed out waiting at barrier {}: `bellwether barriers {0}` shows who is there",
                self.name
            ),
        };
        ClientError::new(NOT_IN_TIME, why)
    }

    /// Returns the error for a lock that was not acquired, or a barrier that was not entered.
    fn not_acquired(&self, why: &str) -> ClientError {
        let got = match self.wanted {
            HoldingSpec::Lock(_) => "got",
            HoldingSpec::Barrier(_) => "entered",
        };
        let why = format!("{} {} was not {got}: {}", self.kind(), self.name, text::visible(why));
        failure(why)
    }
}

/// Returns a name for this process, for people: its host name and process id.
fn this_process() -> ProcessName {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // The name becomes a part of a query, so keep only safe characters.
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(100)
        .collect();
    let name = ProcessName::new(&format!("{host}:{}", std::process::id()));
    name.expect("these are few visible characters")
}

/// Describes the wait for the other participants of a barrier. `present` counts this process, and participants of an
/// earlier round that are still inside.
fn describe_gathering(size: u32, present: u64) -> String {
    format!("a barrier of {size}, {present} there")
}

/// Returns how much of each lease is reserved for ending the command: `kill_after` and the time to kill, but at most
/// half of `lease`, because the lease must be renewed in the other half. Returns `None` if half of it is too short to
/// kill the command.
fn reserved_time(kill_after: Duration, lease: Duration) -> Option<Duration> {
    let half = lease / 2;
    (half > KILL_MARGIN).then(|| half.min(kill_after + KILL_MARGIN))
}

/// Replaces the exit code of the error with [`exec::FAILED`].
fn as_failure(error: ClientError) -> ClientError {
    ClientError { exit_code: exec::FAILED, ..error }
}

/// Returns an error with the exit code [`exec::FAILED`].
fn failure(why: String) -> ClientError {
    ClientError::new(exec::FAILED, why)
}

/// Waits for SIGINT or SIGTERM, whose default action would end the process at once and leave its session open. Returns the
/// error with the exit code of a process that the signal ends: 128 and its number.
async fn interrupted() -> ClientError {
    match SignalListener::for_termination() {
        Ok(mut signals) => ClientError::silent(128 + signals.next().await.as_raw() as u8),
        Err(error) => failure(format!("cannot wait for signals: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_half_of_a_lease_is_there_to_end_a_command_in() {
        let ms = Duration::from_millis;
        let kill = ms(2000);
        assert_eq!(reserved_time(kill, ms(6890)), Some(ms(2500)), "as long as is wanted");
        assert_eq!(reserved_time(kill, ms(2846)), Some(ms(1423)), "the other half is for renewals");
        assert_eq!(reserved_time(kill, ms(1000)), None, "half is too short to kill");
    }
}
