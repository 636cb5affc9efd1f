//! The client for terminals and scripts: asks a sidecar, and prints what it answers.
//!
//! - `sidecar`, `answer`: where it is, how to ask it, and what it answers; `poll` waits for changes of that.
//! - `calls`: what one request asks or commands; `watch`, `wait` and `probe`: what takes more than that.
//! - `views`: how answers, the bodies of `api`, look to people. `screen` prints again what has changed.
//! - `guarded`: runs a command while a lock is held, or inside a barrier. `shared_config`: reads, writes and follows a value.
//! - `inspect`: the one subcommand that asks ZooKeeper and no sidecar.

mod answer;
mod calls;
mod foreign;
mod guarded;
mod inspect;
mod poll;
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
pub use answer::SidecarAnswer;
pub use calls::{
    BARRIER, BARRIER_NAMES, CONFIG_NAMES, Call, DRAIN, HISTORY, LEADER, LOCK_NAMES, LOCK_QUEUE,
    MEMBERS, PAUSE, RESIGN, RESUME, SHUTDOWN, STATUS,
};
pub use guarded::{GuardedCommand, HoldingProcess, Patience};
pub use probe::Probe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use shared_config::{ConfigAction, ConfigCommand};
pub use sidecar::{Sidecar, SidecarRequest, Token};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;

/// A subcommand of the client, with its arguments.
pub enum ClientCommand {
    Ask { sidecar: Sidecar, question: Query, form: OutputFormat },
    Inspect { settings: Settings, patience: Duration, again: bool, form: OutputFormat },
    Guarded(GuardedCommand),
}

impl ClientCommand {
    /// Tells whether this process holds secrets, so that no other may look into its memory.
    pub fn has_secrets(&self) -> bool {
        self.sidecar().is_some_and(Sidecar::is_shown_a_token)
            || self.settings().is_some_and(|settings| settings.zookeeper.security.has_secrets())
    }

    fn sidecar(&self) -> Option<&Sidecar> {
        match self {
            Self::Ask { sidecar, .. }
            | Self::Guarded(GuardedCommand { holder: HoldingProcess::Sidecar(sidecar), .. }) => {
                Some(sidecar)
            }
            Self::Inspect { .. } | Self::Guarded(_) => None,
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
        let command = match self {
            Self::Ask { question: Query::Wait { command, .. }, .. }
            | Self::Guarded(GuardedCommand { command, .. }) => command,
            Self::Ask { question: Query::Config(config), .. } => match &config.action {
                ConfigAction::Watch { command } => command,
                _ => return None,
            },
            _ => return None,
        };
        command.first().map(OsString::as_os_str)
    }
}

/// The longest time limit of a transfer.
pub const LONGEST_TRANSFER: Duration = Transfer::LONGEST;

pub enum Query {
    /// `again` prints the answer whenever it is another.
    Call {
        call: &'static Call,
        /// Of what is below its path.
        of: Option<HoldingName>,
        again: bool,
    },
    Watch,
    /// With a command, the program becomes it at the end.
    Wait {
        /// For the member that is asked to lead, and not any.
        itself: bool,
        at_most: Option<Duration>,
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
    BreakLock {
        name: HoldingName,
        /// The token of the place.
        token: u64,
        /// Whether not to wait until the lease of its holder is over.
        is_at_once: bool,
    },
    Config(ConfigCommand),
}

/// How to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// For people.
    Table(Width),
    /// For scripts, as it came.
    Json,
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
    /// The exit code of what was run, or could not be; and why, unless it has been printed.
    Exit(u8, Option<String>),
    /// No answer came, or none that makes sense.
    Unanswered(String),
    /// The sidecar answers, and cannot tell or do it without ZooKeeper.
    Unread(String),
    /// The output cannot be written.
    Unprintable(io::Error),
}

impl ClientError {
    /// A program could not be run, with the exit code that a shell has for it.
    fn unrunnable(program: &OsStr, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self::Exit(code, Some(format!("cannot run {}: {error}", program.display())))
    }

    /// A reader that closes the pipe has read enough.
    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Unprintable(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::No(_) => 1,
            Self::Exit(code, _) => *code,
            Self::Unprintable(_) if self.is_closed_pipe() => 0,
            Self::Unanswered(_) | Self::Unread(_) | Self::Unprintable(_) => 3,
        }
    }

    /// Says why; `None` if that has been printed.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::No(why) | Self::Unanswered(why) | Self::Unread(why) => Some(why.clone()),
            Self::Exit(_, why) => why.clone(),
            Self::Unprintable(_) if self.is_closed_pipe() => None,
            Self::Unprintable(error) => Some(format!("cannot print: {error}")),
        }
    }
}

/// Runs the subcommand to its end.
///
/// # Errors
/// Everything but a yes: the exit code, and why.
pub async fn run(command: ClientCommand, clock: Clock) -> Result<(), (u8, Option<String>)> {
    let done = match &command {
        ClientCommand::Ask { sidecar, question, form } => ask(sidecar, question, form, clock).await,
        ClientCommand::Inspect { settings, patience, again, form } => {
            let inspection = inspect::Inspection::of(settings, *patience, clock, form.clone());
            if *again { inspection.again().await } else { inspection.once().await }
        }
        ClientCommand::Guarded(guarded) => guarded.run(clock).await,
    };
    done.map_err(|error| {
        let hint = |why: String| match command.sidecar() {
            Some(sidecar) => sidecar.with_url(&why).into_owned(),
            None => why,
        };
        (error.exit_code(), error.message().map(hint))
    })
}

async fn ask(
    sidecar: &Sidecar,
    question: &Query,
    form: &OutputFormat,
    clock: Clock,
) -> Result<(), ClientError> {
    match question {
        Query::Call { call, of, again } => call.ask(sidecar, of.as_ref(), *again, form).await,
        Query::Watch => watch::watch(sidecar, clock, form).await,
        Query::Wait { itself, at_most, command } => {
            wait::wait(sidecar, *itself, *at_most, command, form).await
        }
        Query::Probe { probe, verbose } => probe::probe(sidecar, *probe, *verbose).await,
        Query::Transfer { to, within } => calls::transfer(sidecar, to.clone(), *within, form).await,
        Query::BreakLock { name, token, is_at_once } => {
            calls::break_lock(sidecar, name, *token, *is_at_once).await
        }
        Query::Config(config) => config.run(sidecar, form).await,
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

impl OutputFormat {
    /// Returns an answer as it is to be printed.
    fn render(&self, view: impl FnOnce(Width) -> String, json: &str) -> String {
        match self {
            Self::Table(width) => view(*width),
            Self::Json => text::harmless_json(json.trim()) + "\n",
        }
    }
}

/// Prints a remark to stderr, beside the answer.
fn remark(text: &str) {
    // A closed stderr is not a failure.
    let _unseen = writeln!(io::stderr().lock(), "bellwether: {}", text::visible(text));
}
