//! The signals that end the daemon, and the signal that makes it reload its configuration.

use rustix::process::{Signal as Number, getpid, kill_process};
use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info};

/// Sends SIGTERM to this process when a client sends `POST /shutdown`. So the daemon shuts down as on any SIGTERM, and the
/// supervisor of a command, which receives the signal too, ends the command first.
pub(super) async fn terminate_when_asked(shutdown_requested: Arc<Notify>) {
    shutdown_requested.notified().await;
    info!("POST /shutdown: leaving, as on SIGTERM");
    if let Err(problem) = kill_process(getpid(), Number::TERM) {
        error!("POST /shutdown: this process may not signal itself: {problem}");
    }
}

/// Begins to receive SIGHUP, at which the daemon reloads its configuration.
pub(super) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
