//! The steps of the shutdown, in order. Each step has a time limit: a step that has not finished by then is abandoned,
//! and the next step begins.
//!
//! | step | time limit |
//! |---|---|
//! | notify systemd | 100 ms |
//! | end leadership and leave the queue, and release all locks | 1.5 s; then the znodes expire with the session |
//! | run the hooks for the end of leadership | 1.65 s from the start of the step before; 100 ms more for hooks that must be killed |
//! | finish the requests in progress | 200 ms |
//!
//! A second SIGINT or SIGTERM ends the whole shutdown at once or, if it comes in the first 250 ms, at their end.

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

/// The time limit for leaving the queue and releasing the locks. The whole shutdown takes at most about two seconds.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time from the start of the shutdown in which a second signal does not end it. If ZooKeeper answers, the member
/// has left the queue by then.
const SECOND_SIGNAL_DELAY: Duration = Duration::from_millis(250);
/// The time limit for finishing the HTTP requests in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The time limit for the hooks, counted from the moment at which the member begins to leave the queue. So at least
/// 150 ms are left for them after `LEAVE_TIMEOUT`.
pub(super) const HOOKS_TIMEOUT: Duration = Duration::from_millis(1650);
/// The time limit for killing hooks that still run after `HOOKS_TIMEOUT`.
const ABORT_TIMEOUT: Duration = Duration::from_millis(100);

impl Daemon {
    /// Ends leadership and leaves the queue, runs the hooks for the end of leadership, then stops the HTTP server.
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
            // Tell the server to accept no further connections and to finish its requests.
            let _receiver_gone = close.send(());
            drop(timeout(DRAIN_TIMEOUT, done).await);
        };
        // The parent process may forward a signal that this process also received itself, for example Ctrl-C. So a
        // second signal takes effect only after enough time to hand leadership over.
        let second = async {
            sleep(SECOND_SIGNAL_DELAY).await;
            signals.next().await
        };
        tokio::select! {
            () = in_order => {}
            signal = second => {
                let name = signal_name(signal);
                warn!("{name} again: ending at once; what is left in ZooKeeper expires by itself");
            }
        }
    }
}

/// Ends leadership and leaves the queue, within `LEAVE_TIMEOUT`.
async fn leave_queue(election: SessionThread) {
    if election.end(LEAVE_TIMEOUT).await {
        info!("left the queue");
    } else {
        warn!("ZooKeeper did not confirm it: our znode, if there is one, is left to expire");
    }
}

/// Releases all locks and leaves all barriers, within `LEAVE_TIMEOUT`.
async fn release_locks(holdings: Option<SessionThread>) {
    let Some(holdings) = holdings else { return };
    if !holdings.end(LEAVE_TIMEOUT).await {
        warn!(
            "not all locks were released in time, or ZooKeeper did not confirm it: those that are left, if any, expire \
             by themselves"
        );
    }
}

/// Waits until the hooks for the end of leadership have run, until `until` at the latest. These hooks run already if the
/// election has published the end of leadership. Otherwise they start now.
pub(super) async fn finish_hooks(hooks: &mut ApplicationThread, clock: Clock, until: Moment) {
    hooks.leave.send_replace(Some(until));
    let limit = until.since(clock.now()) + ABORT_TIMEOUT;
    drop(timeout(limit, &mut hooks.ended).await);
}
