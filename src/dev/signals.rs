//! The signals that end `dev`: SIGINT, SIGTERM and SIGHUP.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct DevSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl DevSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
