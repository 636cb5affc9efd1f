//! The shutdown, in order. Each step has a deadline, and the next step begins when that has passed.
//!
//! | step | deadline |
//! |---|---|
//! | notify systemd | 100 ms |
//! | end leadership and leave the queue, and release all locks | 1.5 s; then the znodes are left to expire |
//! | run the hooks for the end of leadership | 1.65 s from the same moment; 100 ms later, the rest is abandoned |
//! | finish the requests in progress | 200 ms |
//!
//! A second signal ends the whole shutdown at once, but not within the first 250 ms.

use super::Daemon;
use super::listeners::Server;
use super::systemd;
use super::threads::{ApplicationThread, SessionThread};
use crate::cli;
use crate::clock::Clock;
use crate::exec::signal_name;
use recipes::Moment;
use std::fs;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// The time limit for leaving the queue. The rest of the two seconds is for the HTTP server.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time in which a second signal does not cut the shutdown short. If the server answers, leaving takes less.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(250);
/// The time limit for finishing the requests in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The time limit for the hooks, from the moment at which leaving begins.
pub(super) const HOOKS_TIMEOUT: Duration = Duration::from_millis(1650);
/// The time limit for ending hooks that still run after that.
const ABORT_TIMEOUT: Duration = Duration::from_millis(100);

impl Daemon {
    /// Ends leadership and leaves the queue, runs the hooks for that, then stops serving.
    pub(super) async fn shutdown(self) {
        let Self { clock, mut signals, server, election, holdings, mut application, .. } = self;
        let Server { close, done, socket } = server;
        if cli::is_service() {
            systemd::leaving().await;
        }
        let in_order = async {
            let hooks_until = clock.now().after(HOOKS_TIMEOUT);
            tokio::join!(leave_queue(election), release_locks(holdings));
            finish_hooks(&mut application, clock, hooks_until).await;
            if let Some(socket) = socket {
                let _already_gone = fs::remove_file(socket);
            }
            let _already_gone = close.send(());
            drop(timeout(DRAIN_TIMEOUT, done).await);
        };
        // The process that started this one may forward a signal that this process also received itself. So a second signal
        // counts only after enough time to hand over.
        let second = async {
            sleep(HANDOVER_TIMEOUT).await;
            signals.next().await
        };
        tokio::select! {
            () = in_order => {}
            signal = second => {
                let name = signal_name(signal);
                warn!("{name} again: gone at once, what is left in ZooKeeper expires by itself");
            }
        }
    }
}

async fn leave_queue(election: SessionThread) {
    if election.end(LEAVE_TIMEOUT).await {
        info!("left the queue");
    } else {
        warn!("ZooKeeper did not confirm it: our znode, if there is one, is left to expire");
    }
}

async fn release_locks(holdings: Option<SessionThread>) {
    let Some(holdings) = holdings else { return };
    if !holdings.end(LEAVE_TIMEOUT).await {
        warn!(
            "locks that were held, if any, stand until they expire: not all were let go in time, or ZooKeeper did not \
             confirm it"
        );
    }
}

/// Lets the hooks run until this moment at the latest. If the election published the end of leadership, the hooks for it
/// already run. Otherwise they start now.
pub(super) async fn finish_hooks(hooks: &mut ApplicationThread, clock: Clock, until: Moment) {
    hooks.leave.send_replace(Some(until));
    let patience = until.since(clock.now()) + ABORT_TIMEOUT;
    drop(timeout(patience, &mut hooks.ended).await);
}
