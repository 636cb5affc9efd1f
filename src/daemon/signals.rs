//! The signals that end the daemon, and the signal that makes it reload its configuration.

use rustix::process::{Signal as Number, getpid, kill_process};
use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info};

/// Sends SIGTERM to this process when a client requests its end. So it ends in the usual way, and so does the program of
/// `exec`.
pub(super) async fn terminate_when_asked(asked: Arc<Notify>) {
    asked.notified().await;
    info!("POST /shutdown: to leave, as on SIGTERM");
    if let Err(problem) = kill_process(getpid(), Number::TERM) {
        error!("POST /shutdown: this process may not signal itself: {problem}");
    }
}

pub(super) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
