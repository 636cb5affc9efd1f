//! The threads besides the main thread. Each runs its part of the daemon on a Tokio runtime of its own.

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

/// A thread with a ZooKeeper session of its own: that of the election, or that of the locks and barriers. The election
/// has its own thread, so that clients of the API and requests for locks cannot delay its heartbeats.
pub(super) struct SessionThread {
    stop: oneshot::Sender<()>,
    /// Receives, when the thread has ended, whether ZooKeeper confirmed that all znodes of the thread's session are
    /// deleted.
    pub(super) left: oneshot::Receiver<bool>,
}

impl SessionThread {
    /// Starts the thread of the election.
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

    /// Starts the thread of the locks and barriers. After a panic, the thread loses all of them and starts over with a new
    /// session.
    pub(super) fn holdings(
        settings: HoldingsSettings,
        credentials: Arc<Credentials>,
        clock: Clock,
        requests: (HoldingsRequests, ConfigRequests),
    ) -> io::Result<Self> {
        let (stop, mut stopping) = oneshot::channel();
        let (mut requests, mut config) = requests;
        let mut run = async move || {
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
                if let Some(znodes_deleted) = unless_panics(&mut run) {
                    return znodes_deleted;
                }
                error!(
                    "the thread of the locks and barriers died: all are lost, and it starts over in {RESTART_DELAY:?}"
                );
                thread::sleep(RESTART_DELAY);
            }
        });
        Ok(Self { stop, left: left? })
    }

    /// Ends the thread. Returns whether ZooKeeper confirmed within `limit` that the session's znodes are deleted; false
    /// also if the thread died.
    pub(super) async fn end(self, limit: Duration) -> bool {
        let _receiver_gone = self.stop.send(());
        matches!(timeout(limit, self.left).await, Ok(Ok(true)))
    }
}

/// The thread of the hooks and the health check. They have their own thread, so that a slow hook delays no other part of
/// the daemon, and hooks do not wait for clients of the API.
pub(super) struct ApplicationThread {
    /// The list of hooks to run. A reload of the configuration sends a new list.
    pub(super) hooks: watch::Sender<Arc<[HookConfig]>>,
    /// Sends, when this member leaves the election, the deadline of all hooks. From then on, hooks see a member that does
    /// not lead.
    pub(super) leave: watch::Sender<Option<Moment>>,
    /// Receives the thread's result when it has ended.
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

/// The values of the shared configuration to write to files, the handle through which to read these values, and the
/// channel on which to publish the state of the files.
pub(super) type SyncInputs = (Vec<SyncedFileConfig>, ConfigHandle, watch::Sender<Vec<SyncedFile>>);

/// The inputs of the thread of the hooks and the health check.
pub(super) struct ApplicationInputs {
    pub(super) hooks: HookInputs,
    pub(super) names: ElectionNames,
    pub(super) health: Option<Health>,
    /// Publishes the application's health.
    pub(super) health_out: watch::Sender<Option<Application>>,
    /// `None` if no value of the shared configuration is written to a file.
    pub(super) file_sync: Option<SyncInputs>,
    /// The limit of open files for the commands of hooks and health checks, if there is one.
    pub(super) file_limit: Option<u64>,
    pub(super) clock: Clock,
    pub(super) status: StatusHandle,
}

impl ApplicationInputs {
    /// Runs all tasks of this thread until the hooks have run for the end of this member's leadership at shutdown. Fails
    /// if a task cannot run. A task that is not configured, or that ends without an error, does not end the others.
    async fn run(self) -> io::Result<()> {
        let Self { hooks, names, health, health_out, file_sync, file_limit, clock, status } = self;
        let requests = status.requests.clone();
        let status_of_own_state = status.clone();
        let status_of_preemption = status.clone();
        let running_hooks = notify::run(hooks, names, file_limit, clock, status);
        let publishing_own_state = async {
            own_state::publish(status_of_own_state).await;
            pending::<io::Result<()>>().await
        };
        let preempting = async {
            preemption::run(status_of_preemption, clock).await;
            pending::<io::Result<()>>().await
        };
        let checking_health = async {
            match health {
                Some(health) => health::run(health, file_limit, requests, health_out).await,
                None => Ok(()),
            }
        };
        let syncing_files = async {
            match file_sync {
                Some((values, handle, records)) => {
                    notify::sync_all(values, handle, file_limit, clock, records).await
                }
                None => Ok(()),
            }
        };
        tokio::select! {
            ended = running_hooks => ended,
            Err(error) = checking_health => Err(error),
            Err(error) = syncing_files => Err(error),
            never = publishing_own_state => never,
            never = preempting => never,
        }
    }
}

/// The thread of the supervisor of a command. If the thread dies, the guards kill the command.
pub(super) struct CommandThread {
    /// Receives the exit code of the daemon when the supervisor has ended.
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

/// The time before the thread of the locks and barriers starts again after a panic.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Calls `run` on a new runtime. Returns its result, or `None` if it panicked.
fn unless_panics<T>(run: &mut impl AsyncFnMut() -> T) -> Option<T> {
    // The closure borrows only channels, which a panic leaves intact.
    catch_unwind(AssertUnwindSafe(|| runtime::run(run()))).ok()
}

/// Starts a thread that calls `run` on a new runtime. Returns the receiver of its result.
fn start<T, F>(
    name: &str,
    run: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    spawn(name, move || runtime::run(run()))
}

/// Starts a thread that calls `run`. Returns the receiver of its result. If the thread panics, the channel is closed
/// without a result.
fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name(name.into()).spawn(move || {
        let _receiver_gone = ended.send(run());
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
