//! The threads beside the server's: each runs its part of the daemon on a runtime of its own.

use crate::clock::Clock;
use crate::config::{Health, Hook, Settings};
use crate::exec::{self, Orders, Plan};
use crate::health;
use crate::locks::LocksRequests;
use crate::notify::{self, HookInputs, HookNames};
use crate::runtime;
use crate::status::{Application, StatusHandle, StatusPublisher};
use crate::zookeeper::{self, Kept, LocksSettings};
use recipes::Moment;
use recipes::election::Member;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::thread;
use tokio::sync::{oneshot, watch};

/// The election's thread: no client of the API, however slow, can slow it.
pub(super) struct ElectionThread {
    pub(super) stop: oneshot::Sender<()>,
    /// Receives, when it has ended, whether the member has surely left the queue.
    pub(super) left: oneshot::Receiver<bool>,
}

impl ElectionThread {
    pub(super) fn start(
        member: Member,
        settings: Settings,
        clock: Clock,
        publisher: StatusPublisher,
        kept: Kept,
    ) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        let life = move || zookeeper::run(member, settings, clock, publisher, kept, stopping);
        Ok(Self { stop, left: start("election", life)? })
    }
}

/// The locks' thread: nothing that is asked of them, however much, can slow the election.
pub(super) struct LocksThread {
    pub(super) stop: oneshot::Sender<()>,
    /// Receives, when it has ended, whether none of their znodes is surely left.
    pub(super) left: oneshot::Receiver<bool>,
}

impl LocksThread {
    pub(super) fn start(
        settings: LocksSettings,
        clock: Clock,
        requests: LocksRequests,
    ) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        let life = move || zookeeper::run_locks(settings, clock, requests, stopping);
        Ok(Self { stop, left: start("locks", life)? })
    }
}

/// The thread of the hooks and the health check: no hook, however slow, can slow another part, and none waits
/// for clients of the API.
pub(super) struct ApplicationThread {
    /// The hooks that are to run.
    pub(super) hooks: watch::Sender<Arc<[Hook]>>,
    /// Set to the deadline of all hooks when this member leaves: from then on it leads no more.
    pub(super) leave: watch::Sender<Option<Moment>>,
    pub(super) ended: oneshot::Receiver<io::Result<()>>,
}

impl ApplicationThread {
    pub(super) fn start(
        inputs: ApplicationInputs,
        hooks: watch::Sender<Arc<[Hook]>>,
        leave: watch::Sender<Option<Moment>>,
    ) -> io::Result<Self> {
        let ended = start("application", move || inputs.run())?;
        Ok(Self { hooks, leave, ended })
    }
}

/// What the hooks and the health check need.
pub(super) struct ApplicationInputs {
    pub(super) stage: HookInputs,
    pub(super) names: HookNames,
    pub(super) health: Option<Health>,
    pub(super) examined: watch::Sender<Option<Application>>,
    /// How many files a command may open.
    pub(super) files: Option<u64>,
    pub(super) clock: Clock,
    pub(super) status: StatusHandle,
}

impl ApplicationInputs {
    /// Ends with the hooks: when they have told that this member leaves, or cannot run.
    async fn run(self) -> io::Result<()> {
        let Self { stage, names, health, examined, files, clock, status } = self;
        let requests = status.requests.clone();
        let telling = notify::run(stage, names, files, clock, status);
        let checking = async {
            if let Some(health) = health {
                health::run(health, files, clock, requests, examined).await?;
            }
            pending::<io::Result<()>>().await
        };
        tokio::select! {
            ended = telling => ended,
            failed = checking => failed,
        }
    }
}

/// The supervisor's thread: when it ends, the guards kill the command.
pub(super) struct CommandThread {
    /// Receives the exit code.
    pub(super) ended: oneshot::Receiver<io::Result<u8>>,
}

impl CommandThread {
    pub(super) fn start(
        plan: Plan,
        clock: Clock,
        status: StatusHandle,
        orders: Orders,
    ) -> io::Result<Self> {
        let ended = start("command", move || exec::supervise(plan, clock, status, orders))?;
        Ok(Self { ended })
    }
}

/// Starts a thread that runs this. Returns the receiver of its output, which is closed if the thread panicked.
fn start<T, F>(
    name: &str,
    life: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name(name.into()).spawn(move || {
        let _receiver_gone = ended.send(runtime::run(life()));
    })?;
    Ok(end)
}
