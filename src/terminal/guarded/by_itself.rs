//! Holds a lock, or enters a barrier, in a ZooKeeper session of this process.

use super::{GuardedCommand, HoldingProgress, Patience, describe_gathering, this_process};
use crate::byte_budget::ByteBudget;
use crate::clock::Clock;
use crate::config::HoldingConfig;
use crate::config::security::AclPolicy;
use crate::exec::CommandLease;
use crate::holdings::{self, HoldRequest, Published};
use crate::shared_config;
use crate::zookeeper::{Credentials, HoldingsSettings, run_holdings};
use recipes::holding::{End, HoldingSpec, HoldingState};
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};

/// With `Patience::Try`, how long to wait until it is known whether others are ahead.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for deleting the znode. After that, the znode is left to expire with the session.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for then closing the session. After that, the session is left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A lock or barrier in a session of this process.
pub(super) struct OwnHolding {
    pub(super) progress: watch::Receiver<HoldingProgress>,
    /// The state of the request. The runner drops the sender when the znode of the request is deleted.
    published: watch::Receiver<Published>,
    /// Dropped to release the lock, or to leave the barrier.
    held: Option<oneshot::Sender<Infallible>>,
    /// Lets the runner close the session.
    stop: oneshot::Sender<()>,
    runner: JoinHandle<()>,
}

impl OwnHolding {
    /// Requests the lock, or enters the barrier, in a new session. Must be called in a [`LocalSet`](tokio::task::LocalSet).
    pub(super) fn request(
        config: &HoldingConfig,
        credentials: &Arc<Credentials>,
        command: &GuardedCommand,
        clock: Clock,
    ) -> Self {
        // The runner also serves the shared configuration, which nothing requests here.
        let (mut no_config, _) =
            shared_config::set_up(&config.paths.config, &ByteBudget::of_mib(1));
        let mut zookeeper = config.settings.zookeeper.clone();
        // Members warn of open ACLs when they start. A command that runs repeatedly does not need to repeat the warning.
        zookeeper.security.is_open_by_choice |= zookeeper.security.acl == AclPolicy::Open;
        let settings = HoldingsSettings {
            zookeeper,
            paths: config.paths.clone(),
            margins: config.margins,
            member: config.member.clone(),
        };
        let (publisher, published) = watch::channel(Published::default());
        let (held, released) = oneshot::channel();
        let (mut requests, handle) = holdings::set_up();
        let GuardedCommand { wanted, patience, .. } = *command;
        let name = command.name.clone();
        let process = Some(this_process());
        let request = HoldRequest { name, wanted, process, publisher, released };
        handle.hold_requests.try_send(request).expect("this is the only request");
        let (progress_publisher, progress) = watch::channel(HoldingProgress::Requested);
        let (stop, mut stopping) = oneshot::channel();
        let credentials = credentials.clone();
        let states = published.clone();
        let runner = spawn_local(async move {
            let requests = (&mut requests, &mut no_config);
            tokio::select! {
                _ = run_holdings(settings, credentials.clone(), clock, requests, &mut stopping) => {}
                never = publish_progress(states, &credentials, wanted, patience, clock, &progress_publisher) => match never {},
            }
        });
        Self { progress, published, held: Some(held), stop, runner }
    }

    /// Releases the lock, or leaves the barrier.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Releases the lock or leaves the barrier, and closes the session.
    pub(super) async fn close(mut self) {
        self.release();
        let gone = async { while self.published.changed().await.is_ok() {} };
        // If the znode is not deleted in time, it is left to expire with the session.
        let _ignored = timeout(RELEASE_TIMEOUT, gone).await;
        // If this fails, the runner has ended already.
        let _ignored = self.stop.send(());
        // If the session is not closed in time, it is left to expire.
        let _ignored = timeout(CLOSE_TIMEOUT, self.runner).await;
    }
}

/// Returns the reason why the state of the lock or barrier is not known in time: ZooKeeper has not answered, or a
/// Kerberos login could not begin, so that ZooKeeper was not asked.
pub(super) fn unanswered(credentials: &Credentials) -> String {
    match credentials.login_failure() {
        Some(why) => format!("ZooKeeper was not asked in time: {why}"),
        None => "ZooKeeper has not answered in time".into(),
    }
}

/// Publishes the progress of the lock or barrier, whenever it changes.
async fn publish_progress(
    mut published: watch::Receiver<Published>,
    credentials: &Credentials,
    wanted: HoldingSpec,
    patience: Patience,
    clock: Clock,
    publisher: &watch::Sender<HoldingProgress>,
) -> Infallible {
    let mut timer = pin!(sleep(ATTEMPT_TIMEOUT));
    loop {
        let state = published.borrow_and_update().at(clock.now());
        let progress = match state {
            HoldingState::Waiting { ahead: Some(ahead @ 1..) } if patience != Patience::Try => {
                HoldingProgress::Waiting(format!("behind {ahead} at most"))
            }
            // With `Patience::Try`, a contender ahead means that the lock is not free.
            HoldingState::Waiting { ahead: Some(1..) } => HoldingProgress::NotInTime,
            // Whether the lock is free is still not known.
            HoldingState::Waiting { .. } if patience == Patience::Try && timer.is_elapsed() => {
                HoldingProgress::Failed(unanswered(credentials))
            }
            HoldingState::Gathering { present: Some(present) } => {
                let size = match wanted {
                    HoldingSpec::Barrier(size) => size.get(),
                    // Only a barrier gathers participants.
                    HoldingSpec::Lock(_) => 0,
                };
                let present = present.try_into().unwrap_or(u64::MAX);
                HoldingProgress::Waiting(describe_gathering(size, present))
            }
            // Nothing is known yet, or nobody is ahead and the lock is about to be held.
            HoldingState::Waiting { .. } | HoldingState::Gathering { present: None } => {
                HoldingProgress::Requested
            }
            HoldingState::Leaving => HoldingProgress::Leaving,
            HoldingState::Held { token, until } => {
                HoldingProgress::Held(CommandLease { token, until })
            }
            HoldingState::Ended(End::AllLeft) => HoldingProgress::AllLeft,
            HoldingState::Ended(end) => HoldingProgress::Failed(end.to_string()),
        };
        let lease_end = progress.lease().map(|lease| lease.until);
        publisher.send_if_modified(|current| {
            let is_new = *current != progress;
            *current = progress;
            is_new
        });
        tokio::select! {
            changed = published.changed() => {
                // The znode is deleted, and the final state has been published. Nothing can change any longer.
                if changed.is_err() {
                    return pending().await;
                }
            }
            // The lease has ended, so `at` no longer returns `Held` in the next iteration.
            () = clock.sleep_until(lease_end) => {}
            () = &mut timer, if !timer.is_elapsed() => {}
        }
    }
}
