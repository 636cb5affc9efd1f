//! The client for terminals and scripts: asks a sidecar, and prints what it answers.
//!
//! - `sidecar`: where it is, and how to ask it.
//! - `calls`: what one request asks or commands; `watch`, `wait` and `probe`: what takes more than that.
//! - `views`: how answers, the bodies of `api`, look to people.
//! - `inspect`: the one subcommand that asks ZooKeeper and no sidecar.

mod calls;
mod inspect;
mod probe;
mod sidecar;
mod table;
mod text;
mod views;
mod wait;
mod watch;

use crate::clock::Clock;
use crate::config::Settings;
pub use calls::{COMMANDS, Call, QUESTIONS};
pub use probe::Probe;
pub use sidecar::{Answer, Sidecar, Token};
use std::io::{self, Write};
use std::time::Duration;
pub use wait::Whom;

/// A subcommand of the client, with its arguments.
pub enum Errand {
    Ask { sidecar: Sidecar, question: Question, form: Form },
    Inspect { settings: Settings, patience: Duration, form: Form },
}

impl Errand {
    /// Tells whether this process holds secrets, so that no other may look into its memory.
    pub fn has_secrets(&self) -> bool {
        match self {
            Self::Ask { sidecar, .. } => sidecar.is_shown_a_token(),
            Self::Inspect { settings, .. } => settings.zookeeper.security.has_secrets(),
        }
    }
}

#[derive(Clone, Copy)]
pub enum Question {
    /// One of [`QUESTIONS`] or [`COMMANDS`].
    Call(&'static Call),
    Watch,
    Wait {
        whom: Whom,
        at_most: Option<Duration>,
    },
    Probe {
        probe: Probe,
        verbose: bool,
    },
}

/// For whom to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    People,
    /// JSON, as it came.
    Scripts,
}

/// Why the subcommand did not succeed.
#[derive(Debug)]
pub enum Trouble {
    /// The answer is no.
    No(String),
    /// No answer came, or none that makes sense.
    Unanswered(String),
    /// It cannot be printed.
    Unprintable(io::Error),
}

impl Trouble {
    /// The exit code, and what to say.
    pub fn told(self) -> (u8, Option<String>) {
        match self {
            Self::No(why) => (1, Some(why)),
            Self::Unanswered(why) => (3, Some(why)),
            // A reader that closes the pipe has read enough.
            Self::Unprintable(error) if error.kind() == io::ErrorKind::BrokenPipe => (0, None),
            Self::Unprintable(error) => (3, Some(format!("cannot print: {error}"))),
        }
    }
}

/// Runs the subcommand to its end.
///
/// # Errors
/// Everything but a yes.
pub async fn run(errand: Errand, clock: Clock) -> Result<(), Trouble> {
    let (sidecar, question, form) = match errand {
        Errand::Ask { sidecar, question, form } => (sidecar, question, form),
        Errand::Inspect { settings, patience, form } => {
            return inspect::inspect(&settings, patience, clock, form).await;
        }
    };
    match question {
        Question::Call(call) => call.ask(&sidecar, form).await,
        Question::Watch => watch::watch(&sidecar, clock, form).await,
        Question::Wait { whom, at_most } => wait::wait(&sidecar, whom, at_most, form).await,
        Question::Probe { probe, verbose } => probe::probe(&sidecar, probe, verbose).await,
    }
}

/// For people: colours only where they belong.
fn print(text: &str) -> Result<(), Trouble> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Trouble::Unprintable)
}

fn print_json(json: &str) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    let line = text::harmless_json(json.trim());
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Trouble::Unprintable)
}

/// Prints a remark to stderr, beside the answer.
fn remark(text: &str) {
    // It is no failure if stderr is closed.
    let _unseen = writeln!(io::stderr().lock(), "bellwether: {}", text::visible(text));
}
