//! The threads besides the main thread. Each runs its part of the daemon on its own runtime.

use crate::api::{Application, SyncedFile};
use crate::clock::Clock;
use crate::config::{Health, HookConfig, Settings, SyncedFileConfig};
use crate::exec::{self, Plan, Requests};
use crate::health;
use crate::holdings::HoldingsRequests;
use crate::notify::{self, HookInputs};
use crate::own_state;
use crate::preemption;
use crate::runtime;
use crate::shared_config::{ConfigHandle, ConfigRequests};
use crate::status::{StatusHandle, StatusPublisher};
use crate::znode_names::ElectionNames;
use crate::zookeeper::{self, Credentials, HoldingsSettings, ResumeState};
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

/// A thread with its own ZooKeeper session. The election's thread is slowed down neither by a client of the API nor by
/// requests for locks and barriers.
pub(super) struct SessionThread {
    stop: oneshot::Sender<()>,
    /// Receives, when the thread has ended, whether all of its znodes are known to be deleted.
    pub(super) left: oneshot::Receiver<bool>,
}

impl SessionThread {
    pub(super) fn election(
        member: Member,
        settings: Settings,
        credentials: Arc<Credentials>,
        clock: Clock,
        publisher: StatusPublisher,
        resume: ResumeState,
    ) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        Ok(Self {
            stop,
            left: start("election", move || {
                zookeeper::run(member, settings, credentials, clock, publisher, resume, stopping)
            })?,
        })
    }

    /// Starts the thread of the locks and barriers. It starts again after a panic.
    pub(super) fn holdings(
        settings: HoldingsSettings,
        credentials: Arc<Credentials>,
        clock: Clock,
        requests: (HoldingsRequests, ConfigRequests),
    ) -> io::Result<Self> {
        let (stop, mut stopping) = oneshot::channel();
        let (mut requests, mut config) = requests;
        let mut life = async move || {
            let requests = (&mut requests, &mut config);
            zookeeper::run_holdings(
                settings.clone(),
                credentials.clone(),
                clock,
                requests,
                &mut stopping,
            )
            .await
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

    /// Ends the thread. Returns whether its znodes were confirmed as deleted within `patience`.
    pub(super) async fn end(self, patience: Duration) -> bool {
        let _already_gone = self.stop.send(());
        matches!(timeout(patience, self.left).await, Ok(Ok(true)))
    }
}

/// The thread of the hooks and the health check. A slow hook does not slow down other parts, and hooks do not wait for
/// clients of the API.
pub(super) struct ApplicationThread {
    /// The hooks to run.
    pub(super) hooks: watch::Sender<Arc<[HookConfig]>>,
    /// Set to the deadline of all hooks when this member leaves, and thus no longer leads.
    pub(super) leave: watch::Sender<Option<Moment>>,
    /// Receives the result when the thread has ended.
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

/// The values to write to files, the handle to read them through, and the channel for the state of the files.
pub(super) type Keeping = (Vec<SyncedFileConfig>, ConfigHandle, watch::Sender<Vec<SyncedFile>>);

/// The inputs of the thread of the hooks and the health check.
pub(super) struct ApplicationInputs {
    pub(super) stage: HookInputs,
    pub(super) names: ElectionNames,
    pub(super) health: Option<Health>,
    /// Publishes the results of the health check.
    pub(super) examined: watch::Sender<Option<Application>>,
    /// The values that are written to files, if any.
    pub(super) keeping: Option<Keeping>,
    /// The limit of open files for a command, if there is one.
    pub(super) file_limit: Option<u64>,
    pub(super) clock: Clock,
    pub(super) status: StatusHandle,
}

impl ApplicationInputs {
    /// Runs until the hooks have reported that this member leaves, or until one of the tasks cannot run.
    async fn run(self) -> io::Result<()> {
        let Self { stage, names, health, examined, keeping, file_limit, clock, status } = self;
        let requests = status.requests.clone();
        let own_state = status.clone();
        let of_preemption = status.clone();
        let telling = notify::run(stage, names, file_limit, clock, status);
        let telling_state = async {
            own_state::publish(own_state).await;
            pending::<io::Result<()>>().await
        };
        let preempting = async {
            preemption::run(of_preemption, clock).await;
            pending::<io::Result<()>>().await
        };
        let checking = async {
            if let Some(health) = health {
                health::run(health, file_limit, requests, examined).await?;
            }
            pending::<io::Result<()>>().await
        };
        let keeping = async {
            if let Some((values, handle, records)) = keeping {
                notify::sync_all(values, handle, file_limit, clock, records).await?;
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

/// The thread of the supervisor. When it ends, the guards kill the command.
pub(super) struct CommandThread {
    /// Receives the command's exit code.
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

/// How long to wait before the thread of the locks and barriers starts again after a panic.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `life` on a runtime. Returns `None` if it panicked.
fn unless_panics<T>(life: &mut impl AsyncFnMut() -> T) -> Option<T> {
    // The closure borrows only channels, which a panic leaves intact.
    catch_unwind(AssertUnwindSafe(|| runtime::run(life()))).ok()
}

/// Starts a thread that runs `life` on a runtime.
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

/// Starts a thread. Returns the receiver of its result, which is closed if the thread panicked.
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
