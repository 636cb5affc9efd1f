//! The signals that end the daemon, and the one that has it read its configuration again.

use rustix::process::{Signal as Number, getpid, kill_process};
use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info};

/// SIGINT and SIGTERM, from when this was made on.
pub(super) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns the name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Sends SIGTERM to this process when a client asks for its end: so it ends as it always does, `exec`'s program too.
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
