//! Single keys of a terminal, without Enter.

use rustix::process::{Signal, getpgrp};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{self, IsTerminal, Read};
use std::thread;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(super) const HELP: &str = "\
keys: k  kill the leader              a  add a member
      f  freeze it, or let it go on   h  this help
      r  have it resign               q  quit, as does Ctrl-C";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Kill,
    Freeze,
    Resign,
    Add,
    Help,
    Quit,
    Other,
}

/// The keys of the terminal that is the standard input, whose mode is restored when this is dropped.
pub(super) struct Keys {
    bytes: UnboundedReceiver<u8>,
    continued: Signals,
    before: Termios,
}

impl Keys {
    /// Returns `None` without a terminal, or in the background of one, where only what is in the foreground may read.
    pub(super) fn new() -> io::Result<Option<Self>> {
        let is_background = || tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp());
        if !io::stdin().is_terminal() || is_background() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let (sender, bytes) = unbounded_channel();
        // It ends with the process: nothing wakes a thread that waits for a key.
        thread::Builder::new().name("keys".into()).spawn(move || {
            let read = io::stdin().lock().bytes().map_while(Result::ok);
            let _receiver_gone = read.map(|byte| sender.send(byte)).find(Result::is_err);
        })?;
        let keys = Self { bytes, continued, before };
        keys.take_each()?;
        Ok(Some(keys))
    }

    /// Returns `None` when the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Key> {
        loop {
            tokio::select! {
                byte = self.bytes.recv() => return byte.map(Key::of),
                // The shell has set the terminal's mode meanwhile.
                _ = self.continued.recv() => self.take_each().ok()?,
            }
        }
    }

    /// Has the terminal hand over each key at once and show none. Ctrl-C stays a signal.
    fn take_each(&self) -> io::Result<()> {
        let mut each = self.before.clone();
        each.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &each)?)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _terminal_gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Key {
    fn of(byte: u8) -> Self {
        match byte.to_ascii_lowercase() {
            b'k' => Self::Kill,
            b'f' => Self::Freeze,
            b'r' => Self::Resign,
            b'a' => Self::Add,
            b'h' | b'?' => Self::Help,
            b'q' => Self::Quit,
            _ => Self::Other,
        }
    }
}
