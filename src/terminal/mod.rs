//! The client for terminals and scripts: asks a sidecar, and prints what it answers.
//!
//! - `sidecar`: where it is, and how to ask it.
//! - `calls`: what one request asks or commands; `watch`, `wait` and `probe`: what takes more than that.
//! - `views`: how answers, the bodies of `api`, look to people. `screen` prints again what has changed.
//! - `guarded`: runs a command while a lock is held, or inside a barrier. `shared_config`: reads, writes and follows a value.
//! - `inspect`: the one subcommand that asks ZooKeeper and no sidecar.

mod break_lock;
mod calls;
mod foreign;
mod guarded;
mod inspect;
mod probe;
mod screen;
mod shared_config;
mod sidecar;
mod table;
mod text;
mod views;
mod wait;
mod watch;

use crate::api::Transfer;
use crate::clock::Clock;
use crate::config::Settings;
pub use crate::holdings::HoldingName;
pub use crate::shared_config::{Condition, ConfigName};
pub use break_lock::BreakLock;
pub use calls::{
    BARRIER, BARRIER_NAMES, COMMANDS, CONFIG_NAMES, Call, LOCK_NAMES, LOCK_QUEUE, QUESTIONS,
};
pub use guarded::{GuardedCommand, HoldingProcess, Patience};
pub use probe::Probe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use shared_config::{ConfigAction, ConfigCommand};
pub use sidecar::{Sidecar, SidecarAnswer, Token};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;
pub use wait::{WaitFor, Waiting};

/// A subcommand of the client, with its arguments.
pub enum ClientCommand {
    Ask { sidecar: Sidecar, question: Query, form: OutputFormat },
    Inspect { settings: Settings, patience: Duration, again: bool, form: OutputFormat },
    Guarded(GuardedCommand),
    Config(ConfigCommand),
    BreakLock(BreakLock),
}

impl ClientCommand {
    /// Tells whether this process holds secrets, so that no other may look into its memory.
    pub fn has_secrets(&self) -> bool {
        match self {
            Self::Ask { sidecar, .. }
            | Self::Config(ConfigCommand { sidecar, .. })
            | Self::BreakLock(BreakLock { sidecar, .. })
            | Self::Guarded(GuardedCommand { holder: HoldingProcess::Sidecar(sidecar), .. }) => {
                sidecar.is_shown_a_token()
            }
            Self::Inspect { .. } | Self::Guarded(_) => {
                self.settings().is_some_and(|settings| settings.zookeeper.security.has_secrets())
            }
        }
    }

    /// By what it goes to ZooKeeper, if it does.
    pub fn settings(&self) -> Option<&Settings> {
        match self {
            Self::Inspect { settings, .. } => Some(settings),
            Self::Guarded(GuardedCommand { holder: HoldingProcess::Itself(config), .. }) => {
                Some(&config.settings)
            }
            _ => None,
        }
    }

    /// The program that this one is to become, or to run.
    pub fn program(&self) -> Option<&OsStr> {
        match self {
            Self::Ask { question: Query::Wait { command, .. }, .. }
            | Self::Config(ConfigCommand { action: ConfigAction::Watch { command, .. }, .. })
            | Self::Guarded(GuardedCommand { command, .. }) => {
                command.first().map(OsString::as_os_str)
            }
            _ => None,
        }
    }
}

/// The longest time limit of a transfer.
pub const LONGEST_TRANSFER: Duration = Transfer::LONGEST;

pub enum Query {
    /// One of [`QUESTIONS`] or [`COMMANDS`]; `again` prints the answer whenever it is another.
    Call {
        call: &'static Call,
        /// Of what is below its path.
        of: Option<HoldingName>,
        again: bool,
    },
    Watch,
    /// With a command, the program becomes it at the end.
    Wait {
        waiting: Waiting,
        command: Vec<OsString>,
    },
    Probe {
        probe: Probe,
        verbose: bool,
    },
    /// Without an id, to any member that is ready.
    Transfer {
        to: Option<String>,
        within: Duration,
    },
}

/// For whom to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    People(Width),
    /// JSON, as it came.
    Scripts,
}

/// How much of a table to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The columns that are looked at most.
    Narrow,
    /// All columns.
    Wide,
}

/// Why the subcommand did not succeed.
#[derive(Debug)]
pub enum ClientError {
    /// The answer is no.
    No(String),
    /// The answer is no, and has been printed.
    NoAsPrinted,
    /// The command cannot be run: the exit code and why.
    Unrunnable(u8, String),
    /// The command has ended with this exit code.
    Ended(u8),
    /// No answer came, or none that makes sense.
    Unanswered(String),
    /// The sidecar answers, and cannot tell or do it without ZooKeeper.
    Unread(String),
    /// The output cannot be written.
    Unprintable(io::Error),
}

impl ClientError {
    /// The exit code, and what to say.
    pub fn told(self) -> (u8, Option<String>) {
        match self {
            Self::No(why) => (1, Some(why)),
            Self::NoAsPrinted => (1, None),
            Self::Unrunnable(code, why) => (code, Some(why)),
            Self::Ended(code) => (code, None),
            Self::Unanswered(why) | Self::Unread(why) => (3, Some(why)),
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
pub async fn run(errand: ClientCommand, clock: Clock) -> Result<(), ClientError> {
    let (sidecar, question, form) = match errand {
        ClientCommand::Ask { sidecar, question, form } => (sidecar, question, form),
        ClientCommand::Inspect { settings, patience, again, form } => {
            let inspection = inspect::Inspection::of(&settings, patience, clock, form);
            return if again { inspection.again().await } else { inspection.once().await };
        }
        ClientCommand::Guarded(guarded) => return guarded.run(clock).await,
        ClientCommand::Config(config) => return config.run().await,
        ClientCommand::BreakLock(place) => return place.run().await,
    };
    match question {
        Query::Call { call, of, again } => {
            let path = call.path_of(of.as_ref());
            if again {
                call.ask_again(&sidecar, &path, &form).await
            } else {
                call.ask(&sidecar, &path, &form).await
            }
        }
        Query::Watch => watch::watch(&sidecar, clock, &form).await,
        Query::Wait { waiting, command } => wait::wait(&sidecar, &waiting, &command, &form).await,
        Query::Probe { probe, verbose } => probe::probe(&sidecar, probe, verbose).await,
        Query::Transfer { to, within } => calls::transfer(&sidecar, to, within, &form).await,
    }
}

/// Prints to the standard output, with colours only at a terminal.
///
/// # Errors
/// It cannot be written to, as its file system is full.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), ClientError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(ClientError::Unprintable)
}

/// Checks that what is printed has a reader: of a closed pipe only a program learns that asks, or writes.
///
/// # Errors
/// The reader has closed it.
fn check_reader() -> Result<(), ClientError> {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut polled, Some(&at_once)) {
        Ok(_) if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
            Err(ClientError::Unprintable(io::ErrorKind::BrokenPipe.into()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns an answer as it is to be printed.
fn formed(
    form: &OutputFormat,
    view: impl FnOnce(Width) -> String,
    json: &str,
) -> Result<String, ClientError> {
    match form {
        OutputFormat::People(width) => Ok(view(*width)),
        OutputFormat::Scripts => Ok(text::harmless_json(json.trim()) + "\n"),
    }
}

/// Prints a remark to stderr, beside the answer.
fn remark(text: &str) {
    // A closed stderr is not a failure.
    let _unseen = writeln!(io::stderr().lock(), "bellwether: {}", text::visible(text));
}
