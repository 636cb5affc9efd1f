//! Reads single keys from a terminal, without Enter.

use rustix::process::{Signal, getpgrp};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{self, ErrorKind, IsTerminal, Read, StdinLock};
use std::iter;
use std::thread;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(super) const HELP: &str = "\
keys: k  kill the leader              a  add a member
      f  freeze or resume the leader  h  this help
      r  have the leader resign       q  quit, as does Ctrl-C";

/// A key that the user presses.
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

/// Reads the keys of the terminal on standard input. Restores the terminal's mode when it is dropped.
pub(super) struct Keys {
    pressed: UnboundedReceiver<Key>,
    /// SIGCONT: this process was stopped and now runs again.
    continued: unix::Signal,
    /// The mode that the terminal had before, to be restored.
    original_mode: Termios,
}

impl Keys {
    /// Returns `None` without a terminal, or in the background, where a process must not read from the terminal.
    pub(super) fn new() -> io::Result<Option<Self>> {
        fn is_background() -> bool {
            tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp())
        }
        if !io::stdin().is_terminal() || is_background() {
            return Ok(None);
        }
        let original_mode = tcgetattr(io::stdin())?;
        let continued = unix::signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let (sender, pressed) = unbounded_channel();
        // This thread ends with the process, because nothing can wake a thread that waits for a key.
        thread::Builder::new().name("keys".into()).spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut pressed = iter::from_fn(|| read_keys(&mut stdin)).flatten();
            // An error means that the receiver, `Keys`, was dropped.
            let _ = pressed.try_for_each(|key| sender.send(key));
        })?;
        let keys = Self { pressed, continued, original_mode };
        keys.deliver_each_key()?;
        Ok(Some(keys))
    }

    /// Waits for the next key. Returns `None` when the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Key> {
        loop {
            tokio::select! {
                key = self.pressed.recv() => return key,
                // While this process was stopped, the shell has changed the terminal's mode.
                _ = self.continued.recv() => self.deliver_each_key().ok()?,
            }
        }
    }

    /// Sets the terminal to deliver each key at once, without echo. Ctrl-C still sends a signal.
    fn deliver_each_key(&self) -> io::Result<()> {
        let mut mode = self.original_mode.clone();
        mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &mode)?)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.original_mode);
    }
}

/// Waits for keys. Returns `None` when the terminal is gone.
fn read_keys(stdin: &mut StdinLock<'_>) -> Option<Vec<Key>> {
    let mut bytes = [0; 64];
    loop {
        match stdin.read(&mut bytes) {
            Ok(length) if length > 0 => return Some(Key::all_of(&bytes[..length])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

impl Key {
    /// Returns the keys for the bytes of a single read.
    fn all_of(bytes: &[u8]) -> Vec<Self> {
        // An arrow key is an escape sequence that ends with a letter, so treat the whole sequence as a single key.
        let bytes = if bytes.starts_with(b"\x1b") { &bytes[..1] } else { bytes };
        bytes.iter().map(|byte| Self::of(*byte)).collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_is_no_letter() {
        assert_eq!(Key::all_of(b"\x1b[A"), [Key::Other]);
        assert_eq!(Key::all_of(b"kA?"), [Key::Kill, Key::Add, Key::Help]);
    }
}
