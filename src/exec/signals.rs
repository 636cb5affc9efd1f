//! Waits for several signals at once.

use rustix::process::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// Receives several signals, each from a stream of its own. Once this value was created, such a signal no longer ends
/// this process by default, not even after the value is dropped.
pub struct SignalListener(Vec<(Signal, Signals)>);

impl SignalListener {
    /// Begins to receive the signals in `wanted`.
    ///
    /// # Errors
    /// The operating system refuses a signal handler.
    pub fn new(wanted: &[Signal]) -> io::Result<Self> {
        let mut streams = vec![];
        for number in wanted {
            streams.push((*number, signal(SignalKind::from_raw(number.as_raw()))?));
        }
        Ok(Self(streams))
    }

    /// Begins to receive SIGINT and SIGTERM, which ask this process to end.
    ///
    /// # Errors
    /// The operating system refuses a signal handler.
    pub fn for_termination() -> io::Result<Self> {
        Self::new(&[Signal::INT, Signal::TERM])
    }

    /// Waits for the next signal. If several have arrived, returns the one that comes first in `wanted`.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let received = self.0.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Returns the signal's name, for the log.
pub fn signal_name(signal: Signal) -> String {
    match signal {
        Signal::TERM => "SIGTERM".into(),
        Signal::INT => "SIGINT".into(),
        other => format!("signal {}", other.as_raw()),
    }
}
