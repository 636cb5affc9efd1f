//! The threads beside the server's: each runs its part of the daemon on a runtime of its own.

use crate::clock::Clock;
use crate::config::{Health, HookConfig, Settings, SyncedFileConfig};
use crate::exec::{self, Plan, Requests};
use crate::health;
use crate::holdings::HoldingsRequests;
use crate::notify::{self, HookInputs, HookNames};
use crate::own_state;
use crate::preemption;
use crate::runtime;
use crate::shared_config::{ConfigHandle, ConfigRequests};
use crate::status::{ApplicationHealth, StatusHandle, StatusPublisher, SyncedFileRecord};
use crate::zookeeper::{self, HoldingsSettings, ResumeState};
use recipes::Moment;
use recipes::election::Member;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::error;

/// A thread with a session of its own: no client of the API, however slow, can slow the election's, and nothing that is
/// asked of the locks' and barriers' can either.
pub(super) struct SessionThread {
    stop: oneshot::Sender<()>,
    /// Receives, when it has ended, whether none of its znodes is surely left.
    pub(super) left: oneshot::Receiver<bool>,
}

impl SessionThread {
    pub(super) fn election(
        member: Member,
        settings: Settings,
        clock: Clock,
        publisher: StatusPublisher,
        kept: ResumeState,
    ) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        Ok(Self {
            stop,
            left: start("election", move || {
                zookeeper::run(member, settings, clock, publisher, kept, stopping)
            })?,
        })
    }

    pub(super) fn holdings(
        settings: HoldingsSettings,
        clock: Clock,
        requests: (HoldingsRequests, ConfigRequests),
    ) -> io::Result<Self> {
        let (stop, mut stopping) = oneshot::channel();
        let (mut requests, mut config) = requests;
        let mut life = async move || {
            let requests = (&mut requests, &mut config);
            zookeeper::run_holdings(settings.clone(), clock, requests, &mut stopping).await
        };
        let left = spawn("holdings", move || {
            loop {
                if let Some(left) = unless_panics(&mut life) {
                    return left;
                }
                error!(
                    "the thread of the locks and barriers died: all are lost, and it starts over in {PAUSE:?}"
                );
                thread::sleep(PAUSE);
            }
        });
        Ok(Self { stop, left: left? })
    }

    /// Has it end. Returns whether that was confirmed within this time.
    pub(super) async fn end(self, patience: Duration) -> bool {
        let _already_gone = self.stop.send(());
        matches!(timeout(patience, self.left).await, Ok(Ok(true)))
    }
}

/// The thread of the hooks and the health check: no hook, however slow, can slow another part, and none waits
/// for clients of the API.
pub(super) struct ApplicationThread {
    /// The hooks that are to run.
    pub(super) hooks: watch::Sender<Arc<[HookConfig]>>,
    /// Set to the deadline of all hooks when this member leaves, and thus no longer leads.
    pub(super) leave: watch::Sender<Option<Moment>>,
    pub(super) ended: oneshot::Receiver<io::Result<()>>,
}

impl ApplicationThread {
    pub(super) fn start(
        inputs: ApplicationInputs,
        hooks: watch::Sender<Arc<[HookConfig]>>,
        leave: watch::Sender<Option<Moment>>,
    ) -> io::Result<Self> {
        let ended = start("application", move || inputs.run())?;
        Ok(Self { hooks, leave, ended })
    }
}

/// Values to keep as files, where to ask for them, and where to say how they do.
pub(super) type Keeping =
    (Vec<SyncedFileConfig>, ConfigHandle, watch::Sender<Vec<SyncedFileRecord>>);

/// The inputs of the hooks and the health check.
pub(super) struct ApplicationInputs {
    pub(super) stage: HookInputs,
    pub(super) names: HookNames,
    pub(super) health: Option<Health>,
    pub(super) examined: watch::Sender<Option<ApplicationHealth>>,
    /// The values that are written to files, if any.
    pub(super) keeping: Option<Keeping>,
    /// How many files a command may open.
    pub(super) files: Option<u64>,
    pub(super) clock: Clock,
    pub(super) status: StatusHandle,
}

impl ApplicationInputs {
    /// Ends with the hooks: when they have told that this member leaves, or cannot run.
    async fn run(self) -> io::Result<()> {
        let Self { stage, names, health, examined, keeping, files, clock, status } = self;
        let requests = status.requests.clone();
        let own_state = status.clone();
        let of_preemption = status.clone();
        let telling = notify::run(stage, names, files, clock, status);
        let telling_state = async {
            own_state::tell(own_state).await;
            pending::<io::Result<()>>().await
        };
        let preempting = async {
            preemption::run(of_preemption, clock).await;
            pending::<io::Result<()>>().await
        };
        let checking = async {
            if let Some(health) = health {
                health::run(health, files, clock, requests, examined).await?;
            }
            pending::<io::Result<()>>().await
        };
        let keeping = async {
            if let Some((values, handle, records)) = keeping {
                notify::keep_all(values, handle, files, clock, records).await?;
            }
            pending::<io::Result<()>>().await
        };
        tokio::select! {
            ended = telling => ended,
            failed = checking => failed,
            never = telling_state => never,
            never = preempting => never,
            failed = keeping => failed,
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
        requests: Requests,
    ) -> io::Result<Self> {
        let ended = start("command", move || exec::supervise(plan, clock, status, requests))?;
        Ok(Self { ended })
    }
}

/// From the death of the locks' thread to its next life.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs this on a runtime. Returns `None` if it panicked.
fn unless_panics<T>(life: &mut impl AsyncFnMut() -> T) -> Option<T> {
    // The closure borrows only channels, which a panic leaves intact.
    catch_unwind(AssertUnwindSafe(|| runtime::run(life()))).ok()
}

/// Starts a thread that runs this on a runtime.
fn start<T, F>(
    name: &str,
    life: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    spawn(name, move || runtime::run(life()))
}

/// Starts a thread. Returns the receiver of its output, which is closed if the thread panicked.
fn spawn<T: Send + 'static>(
    name: &str,
    life: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name(name.into()).spawn(move || {
        let _receiver_gone = ended.send(life());
    })?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[test]
    fn what_panics_is_run_again_with_the_channels_that_it_had() {
        let (ask, mut asks) = mpsc::channel(2);
        ["panic", "answer"].into_iter().for_each(|asked| ask.try_send(asked).unwrap());
        let mut life = async move || match asks.recv().await {
            Some("panic") => panic!("as it was asked to"),
            asked => asked,
        };
        assert_eq!(unless_panics(&mut life), None);
        assert_eq!(unless_panics(&mut life), Some(Some("answer")));
    }
}
