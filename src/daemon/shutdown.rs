//! The end, in order: each step has a deadline, and the next one begins when it has passed.
//!
//! | step | deadline |
//! |---|---|
//! | tell systemd | 100 ms |
//! | end leadership and leave the queue, and have all locks let go | 1.5 s; then the znodes are left to expire |
//! | have the hooks tell that | 1.65 s from the same moment; 100 ms later what still runs is left to itself |
//! | answer the requests under way | 200 ms |
//!
//! A second signal ends all of it at once, but not before 250 ms have passed.

use super::Daemon;
use super::listeners::Server;
use super::systemd;
use super::threads::{ApplicationThread, SessionThread};
use crate::cli;
use crate::clock::Clock;
use recipes::Moment;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Leaving the queue may take this long; the rest of the two seconds is for the HTTP server.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(1500);
/// No second signal cuts this short. With a server that answers, leaving needs less.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(250);
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the hooks may take, from the moment at which leaving begins.
pub(super) const HOOKS_TIMEOUT: Duration = Duration::from_millis(1650);
/// How long the hooks that still run then may take to be ended.
const ABORT_TIMEOUT: Duration = Duration::from_millis(100);

impl Daemon {
    /// Ends leadership, leaves the queue, lets the hooks tell so, then stops serving.
    pub(super) async fn shutdown(self) {
        let Self { clock, mut signals, server, election, holdings, mut application, .. } = self;
        let Server { close, done, socket } = server;
        if cli::is_service() {
            systemd::leaving().await;
        }
        let in_order = async {
            let hooks_until = clock.now().after(HOOKS_TIMEOUT);
            tokio::join!(leave_queue(election), give_locks_back(holdings));
            finish_hooks(&mut application, clock, hooks_until).await;
            let _already_gone = close.send(());
            drop(timeout(DRAIN_TIMEOUT, done).await);
        };
        // The process that started us may pass on a signal that we got ourselves, so a second one is heeded
        // only when there was a moment to hand over.
        let second = async {
            sleep(HANDOVER_TIMEOUT).await;
            signals.next().await
        };
        tokio::select! {
            () = in_order => {}
            name = second => {
                warn!("{name} again: gone at once, what is left in ZooKeeper expires by itself");
            }
        }
        if let Some(socket) = socket {
            socket.remove();
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

async fn give_locks_back(holdings: Option<SessionThread>) {
    let Some(holdings) = holdings else { return };
    if !holdings.end(LEAVE_TIMEOUT).await {
        warn!(
            "locks that were held, if any, stand until they expire: not all were let go in time, or ZooKeeper did not \
             confirm it"
        );
    }
}

/// Lets the hooks run until this moment at the latest. Those for the end of leadership run by now if the election
/// could publish it, else from now on.
pub(super) async fn finish_hooks(hooks: &mut ApplicationThread, clock: Clock, until: Moment) {
    hooks.leave.send_replace(Some(until));
    let patience = until.since(clock.now()) + ABORT_TIMEOUT;
    drop(timeout(patience, &mut hooks.ended).await);
}
