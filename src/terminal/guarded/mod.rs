//! Runs a command while a lock is held, or inside a barrier: by a sidecar for this process, or by this process itself.
//!
//! The command is watched over as that of `bellwether exec` is: see [`crate::exec`].

mod by_itself;
mod by_sidecar;

use self::by_sidecar::SidecarStream;
use super::{ClientError, Sidecar, remark, text};
use crate::api;
use crate::clock::Clock;
use crate::config::{HoldingConfig, KILL_MARGIN, OnExit};
use crate::exec::{self, CommandLease, Plan};
use crate::holdings::{HoldingName, ProcessName};
use recipes::holding::HoldingSpec;
use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// The exit code where the lock is not got, or the barrier not entered, in time, as `timeout` has it where something takes too long.
const NOT_IN_TIME: u8 = 124;

/// For the answer of a sidecar why nothing was got: it says within two seconds that ZooKeeper does not answer it.
const REASON_TIMEOUT: Duration = Duration::from_secs(3);
/// A sidecar that hangs is waited for at least this long, however soon the lock is wanted.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// A lease that was passed on may be too short for this long: more frequent heartbeats make it longer.
const SHORT_LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A command to run while a lock is held, or inside a barrier.
pub struct GuardedCommand {
    pub name: HoldingName,
    pub wanted: HoldingSpec,
    pub patience: Patience,
    /// How long the command may take to end by itself, where the lease leaves as much.
    pub kill_after: Duration,
    /// How long the command may be stopped, until it is killed.
    pub stopped_for: Duration,
    pub command: Vec<OsString>,
    pub holder: HoldingProcess,
}

/// How long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For as long as it takes.
    Endless,
    AtMost(Duration),
    /// Not while another has it, or asked before.
    Try,
}

/// The process that holds the lock, or enters the barrier.
pub enum HoldingProcess {
    Sidecar(Sidecar),
    /// This process, in a session of its own.
    Itself(Box<HoldingConfig>),
}

/// How the lock or barrier stands, as far as its holder has told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HoldingProgress {
    Asked,
    /// For these, in words.
    Waits(String),
    /// The lock is held, or it is inside the barrier.
    Held(CommandLease),
    /// This process has left the barrier; others may not have.
    Leaving,
    /// All have left the barrier.
    AllLeft,
    NotInTime,
    /// The lock was not acquired, or is lost, for this reason.
    Over(String),
}

/// How to leave the barrier.
enum Leave<'a> {
    /// The id is there once it was told.
    BySidecar(&'a Sidecar, &'a HoldingName, Arc<OnceLock<String>>),
    /// The barrier is left when this is dropped.
    ByItself(Rc<Cell<Option<oneshot::Sender<Infallible>>>>),
}

impl Leave<'_> {
    async fn now(self) -> Result<(), ClientError> {
        match self {
            Self::BySidecar(sidecar, name, id) => {
                let id = id.get().map_or("", String::as_str);
                by_sidecar::leave(sidecar, name, id).await
            }
            Self::ByItself(release) => {
                release.take();
                Ok(())
            }
        }
    }
}

impl HoldingProgress {
    fn lease(&self) -> Option<CommandLease> {
        match self {
            Self::Held(lease) => Some(*lease),
            _ => None,
        }
    }

    /// Whether nothing follows.
    fn is_last(&self) -> bool {
        matches!(self, Self::NotInTime | Self::AllLeft | Self::Over(_))
    }
}

impl GuardedCommand {
    /// Runs the command, and returns when nothing is left of it, and the lock is let go, or all have left the barrier.
    pub(super) async fn run(&self, clock: Clock) -> Result<(), ClientError> {
        match &self.holder {
            HoldingProcess::Sidecar(sidecar) => {
                let opening = SidecarStream::open(sidecar, &self.name, self.wanted, self.patience);
                let opened = match self.patience {
                    Patience::AtMost(limit) => timeout(limit.max(FIRST_ANSWER), opening).await,
                    Patience::Endless | Patience::Try => Ok(opening.await),
                };
                let Ok(opened) = opened else { return Err(self.not_in_time(false, false).await) };
                let stream = opened.map_err(failed)?;
                let hold = stream.hold().clone();
                let (publisher, standing) = watch::channel(HoldingProgress::Asked);
                let leave = Leave::BySidecar(sidecar, &self.name, stream.id.clone());
                tokio::select! {
                    biased;
                    ended = self.run_while_held(clock, standing, Some(hold), leave) => ended,
                    never = stream.follow(&publisher) => match never {},
                }
            }
            HoldingProcess::Itself(config) => {
                by_itself::hold(config, self, clock, |standing, leave| {
                    self.run_while_held(clock, standing, None, leave)
                })
                .await
            }
        }
    }

    /// Waits until the lock is held, or the barrier entered, runs the command, and leaves. `hold` is what the guards of the
    /// command are to keep open.
    async fn run_while_held(
        &self,
        clock: Clock,
        mut standing: watch::Receiver<HoldingProgress>,
        hold: Option<Arc<OwnedFd>>,
        leave: Leave<'_>,
    ) -> Result<(), ClientError> {
        let time_to_end = self.until_held(clock, &mut standing).await?;
        let (under, variable) = match self.wanted {
            HoldingSpec::Lock(_) => ("the lock", "BELLWETHER_LOCK"),
            HoldingSpec::Barrier(_) => ("the barrier", "BELLWETHER_BARRIER"),
        };
        let url = match &self.holder {
            HoldingProcess::Sidecar(sidecar) => Some(("BELLWETHER_URL", sidecar.name())),
            HoldingProcess::Itself(_) => None,
        };
        let plan = Plan {
            command: self.command.clone(),
            under,
            kill_after: time_to_end.saturating_sub(KILL_MARGIN),
            stopped_for: self.stopped_for,
            on_exit: OnExit::Leave,
            once: false,
            files: getrlimit(Resource::Nofile).current,
            environment: [(variable, self.name.to_string())].into_iter().chain(url).collect(),
            kept: hold,
            // After leaving a barrier, the process still has to learn when all have left.
            ends_kept: matches!(self.wanted, HoldingSpec::Lock(_)),
            after_restart: false,
        };
        let code =
            match exec::run_under(plan, clock, standing.clone(), HoldingProgress::lease).await {
                Ok(Some(code)) => code,
                Ok(None) => {
                    let why = match &*standing.borrow() {
                        HoldingProgress::Over(why) => why.clone(),
                        _ => "its lease was not renewed in time".to_owned(),
                    };
                    return Err(self.lost(&why));
                }
                Err(error) => {
                    return Err(failure(format!("cannot run the program: {error}")));
                }
            };
        if let HoldingSpec::Barrier(_) = self.wanted {
            let left = async {
                leave.now().await.map_err(failed)?;
                self.until_all_have_left(&mut standing).await
            };
            tokio::select! {
                biased;
                left = left => left?,
                code = ended_by_signal() => return Err(ClientError::Exit(code?, None)),
            }
        }
        if code == 0 { Ok(()) } else { Err(ClientError::Exit(code, None)) }
    }

    async fn until_all_have_left(
        &self,
        standing: &mut watch::Receiver<HoldingProgress>,
    ) -> Result<(), ClientError> {
        let why = loop {
            let known = standing.borrow_and_update().clone();
            match known {
                HoldingProgress::AllLeft => return Ok(()),
                HoldingProgress::Over(why) => break why,
                _ => {}
            }
            if standing.changed().await.is_err() {
                break "its state can no longer be read".into();
            }
        };
        let why = format!(
            "the program has ended, and it is not known whether all have left barrier {}: {}",
            self.name,
            text::visible(&why)
        );
        Err(failure(why))
    }

    /// Waits until the lock is held, and returns how much of a lease to end the command in.
    async fn until_held(
        &self,
        clock: Clock,
        standing: &mut watch::Receiver<HoldingProgress>,
    ) -> Result<Duration, ClientError> {
        let mut signals = WaitSignals::new()?;
        let until = match self.patience {
            Patience::AtMost(limit) => Some(clock.now().after(limit)),
            Patience::Endless | Patience::Try => None,
        };
        let mut is_told = false;
        let mut held_since = None;
        loop {
            let known = standing.borrow_and_update().clone();
            let is_known = known != HoldingProgress::Asked;
            match known {
                HoldingProgress::Asked => {}
                HoldingProgress::Waits(behind) => {
                    if !is_told {
                        remark(&format!("waiting for {} {}, {behind}", self.kind(), self.name));
                        is_told = true;
                    }
                }
                HoldingProgress::Leaving | HoldingProgress::AllLeft => {
                    return Err(self.not_got("it was left"));
                }
                HoldingProgress::Held(lease) => {
                    let now = clock.now();
                    let left = lease.until.since(now);
                    let held_for = held_since.map(|since| now.since(since));
                    match time_to_end(self.kill_after, left) {
                        Some(enough)
                            if held_for.is_some() || enough == self.kill_after + KILL_MARGIN =>
                        {
                            return Ok(enough);
                        }
                        None if held_for >= Some(SHORT_LEASE_TIMEOUT) => {
                            return Err(too_short(left));
                        }
                        // This lease may be as old as a heartbeat. The next one is new.
                        Some(_) | None => held_since = held_since.or(Some(now)),
                    }
                }
                HoldingProgress::NotInTime => {
                    return Err(self.not_in_time(is_known, is_told).await);
                }
                HoldingProgress::Over(why) => return Err(self.not_got(&why)),
            }
            tokio::select! {
                changed = standing.changed() => {
                    changed.map_err(|_| self.not_got("its state can no longer be read"))?;
                }
                () = clock.sleep_until(until) => return Err(self.not_in_time(is_known, is_told).await),
                code = signals.next() => return Err(ClientError::Exit(code, None)),
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self.wanted {
            HoldingSpec::Lock(_) => "lock",
            HoldingSpec::Barrier(_) => "barrier",
        }
    }

    /// Says that others have it, where that can be read. `is_known`: whether ZooKeeper has answered this process, for a command
    /// without a sidecar. `is_in_queue`: whether the sidecar has said that there is a place in the queue.
    async fn not_in_time(&self, is_known: bool, is_in_queue: bool) -> ClientError {
        match &self.holder {
            HoldingProcess::Sidecar(sidecar) => {
                let root = match self.wanted {
                    HoldingSpec::Lock(_) => api::LOCKS.path,
                    HoldingSpec::Barrier(_) => api::BARRIERS.path,
                };
                let path = format!("{root}/{}", self.name);
                let asked = sidecar.get(path).within(REASON_TIMEOUT).answer().await;
                match asked.and_then(|answer| answer.body::<serde_json::Value>()) {
                    Err(ClientError::Unread(why) | ClientError::Unanswered(why)) => {
                        return self.not_got(&why);
                    }
                    Ok(queue) if !is_in_queue && is_empty(&queue) => {
                        let why =
                            "ZooKeeper gave it no place in the queue: the sidecar's log says why";
                        return self.not_got(why);
                    }
                    _ => {}
                }
            }
            HoldingProcess::Itself(_) if !is_known => {
                return self.not_got("ZooKeeper has not answered in time");
            }
            HoldingProcess::Itself(_) => {}
        }
        let why = match self.wanted {
            HoldingSpec::Lock(_) => format!(
                "lock {} was not got in time: `bellwether locks {0}` has who is ahead",
                self.name
            ),
            HoldingSpec::Barrier(_) => format!(
                "barrier {} was not entered in time: `bellwether barriers {0}` has who is there",
                self.name
            ),
        };
        ClientError::Exit(NOT_IN_TIME, Some(why))
    }

    fn not_got(&self, why: &str) -> ClientError {
        let got = match self.wanted {
            HoldingSpec::Lock(_) => "got",
            HoldingSpec::Barrier(_) => "entered",
        };
        let why = format!("{} {} was not {got}: {}", self.kind(), self.name, text::visible(why));
        failure(why)
    }

    fn lost(&self, why: &str) -> ClientError {
        let why = format!(
            "{} {} was lost, and the program was ended: {}",
            self.kind(),
            self.name,
            text::visible(why)
        );
        failure(why)
    }
}

/// Whether no one is in this queue, or at this barrier.
fn is_empty(queue: &serde_json::Value) -> bool {
    ["holders", "waiting", "members"]
        .iter()
        .all(|part| queue[part].as_array().is_none_or(Vec::is_empty))
}

/// Names this process to people: its host, and its id there.
fn this_process() -> ProcessName {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // Put into a query as it is.
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(100)
        .collect();
    let name = ProcessName::new(&format!("{host}:{}", std::process::id()));
    name.expect("these are few visible characters")
}

/// Says in front of which barrier one waits. `present` counts this one, and those inside since an earlier round.
fn in_front_of(size: u32, present: u64) -> String {
    if present < size.into() {
        format!("a barrier of {size}, {present} of them there")
    } else {
        format!(
            "a barrier of {size}, until it opens, or those inside since an earlier round have left"
        )
    }
}

fn too_short(left: Duration) -> ClientError {
    let why = format!(
        "a lease of {left:?} leaves no time to end a command before it ends: have the session timeout raised \
         (zookeeper.session_timeout)"
    );
    failure(why)
}

/// Returns how much of each lease to end the command in: at most half of it, since it is renewed in the other. `None` if
/// that is too little to kill.
fn time_to_end(kill_after: Duration, lease: Duration) -> Option<Duration> {
    let half = lease / 2;
    (half > KILL_MARGIN).then(|| half.min(kill_after + KILL_MARGIN))
}

/// Returns the same error, with the exit code of one who could not run a command.
fn failed(error: ClientError) -> ClientError {
    ClientError::Exit(exec::FAILED, error.message())
}

fn failure(why: String) -> ClientError {
    ClientError::Exit(exec::FAILED, Some(why))
}

/// The signals that end a wait. By default they would end the process, which leaves a session behind.
struct WaitSignals([(i32, Signal); 2]);

impl WaitSignals {
    fn new() -> Result<Self, ClientError> {
        fn listen(kind: SignalKind) -> Result<(i32, Signal), io::Error> {
            Ok((kind.as_raw_value(), signal(kind)?))
        }
        fn both() -> Result<[(i32, Signal); 2], io::Error> {
            Ok([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?])
        }
        both()
            .map(Self)
            .map_err(|error: io::Error| failure(format!("cannot wait for signals: {error}")))
    }

    /// Returns the exit code of one that the next of them ends.
    async fn next(&mut self) -> u8 {
        let number = poll_fn(|context| {
            let received = self.0.iter_mut().find_map(|(number, stream)| {
                stream.poll_recv(context).is_ready().then_some(*number)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        });
        u8::try_from(128 + number.await).unwrap_or(exec::FAILED)
    }
}

async fn ended_by_signal() -> Result<u8, ClientError> {
    Ok(WaitSignals::new()?.next().await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_front_of_a_barrier_is_told_how_many_are_missing_or_that_it_waits_for_others_to_leave()
    {
        assert_eq!(in_front_of(3, 1), "a barrier of 3, 1 of them there");
        for (size, present) in [(3, 4), (1, 1)] {
            let told = in_front_of(size, present);
            assert!(told.contains("have left") && !told.contains("there"), "{told}");
        }
    }

    #[test]
    fn at_most_half_of_a_lease_is_there_to_end_a_command_in() {
        let ms = Duration::from_millis;
        let wanted = ms(2000);
        assert_eq!(time_to_end(wanted, ms(6890)), Some(ms(2500)), "as long as is wanted");
        assert_eq!(time_to_end(wanted, ms(2846)), Some(ms(1423)), "the other half is for renewals");
        assert_eq!(time_to_end(wanted, ms(1000)), None, "it takes as long to kill");
    }
}
