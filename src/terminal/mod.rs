//! The client for terminals and scripts: calls a sidecar, and prints its answers.
//!
//! - `sidecar`, `answer`: the sidecar's address, requests and answers; `poll` waits for changes.
//! - `calls`: commands that take a single request; `watch`, `wait`, `probe`: the commands of these names.
//! - `views`: shows answers, the bodies of `api`, to people.
//! - `guarded`: runs a command while a lock is held, or inside a barrier. `shared_config`: reads, writes and follows a
//!   value.
//! - `inspect`: the only subcommand that reads ZooKeeper instead of calling a sidecar.

mod answer;
mod calls;
mod guarded;
mod inspect;
mod poll;
mod probe;
mod shared_config;
mod sidecar;
mod table;
mod text;
mod views;
mod wait;
mod watch;

use crate::clock::Clock;
use crate::config::Settings;
pub use crate::holdings::HoldingName;
pub use crate::shared_config::{Condition, ConfigName};
pub use answer::SidecarAnswer;
pub use calls::Call;
use clap::ValueEnum;
pub use guarded::{GuardedCommand, HoldingProcess, Patience};
pub use probe::Probe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use shared_config::{ConfigAction, ConfigCommand};
pub use sidecar::{Sidecar, SidecarRequest, Token};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;
pub use views::HumanView;

/// A subcommand of the client, with its arguments.
pub enum ClientCommand {
    /// Call a sidecar.
    Ask { sidecar: Sidecar, query: Query },
    /// Inspect an election in ZooKeeper.
    Inspect { settings: Settings, limit: Duration, format: OutputFormat },
    /// Run a command under a lock, or inside a barrier.
    Guarded(GuardedCommand),
}

impl ClientCommand {
    /// Returns whether this process knows a command token or credentials. If so, other processes must not read its
    /// memory.
    pub fn has_secrets(&self) -> bool {
        self.sidecar().is_some_and(|sidecar| sidecar.token.is_some())
            || self.settings().is_some_and(|settings| settings.zookeeper.security.has_secrets())
    }

    /// Returns the sidecar, if the subcommand calls one.
    fn sidecar(&self) -> Option<&Sidecar> {
        match self {
            Self::Ask { sidecar, .. }
            | Self::Guarded(GuardedCommand { holder: HoldingProcess::Sidecar(sidecar), .. }) => {
                Some(sidecar)
            }
            _ => None,
        }
    }

    /// Returns the ZooKeeper settings, if the subcommand connects to ZooKeeper.
    pub fn settings(&self) -> Option<&Settings> {
        match self {
            Self::Inspect { settings, .. } => Some(settings),
            Self::Guarded(GuardedCommand {
                holder: HoldingProcess::ThisProcess(config, _),
                ..
            }) => Some(&config.settings),
            _ => None,
        }
    }

    /// Returns the program that this process runs, or by which it is replaced, if any.
    pub fn program(&self) -> Option<&OsStr> {
        let command = match self {
            Self::Ask { query: Query::Wait { command, .. }, .. }
            | Self::Guarded(GuardedCommand { command, .. }) => command,
            Self::Ask { query: Query::Config(config), .. } => match &config.action {
                ConfigAction::Watch { command, .. } => command,
                _ => return None,
            },
            _ => return None,
        };
        command.first().map(OsString::as_os_str)
    }
}

/// A call of a sidecar.
pub enum Query {
    /// Sends a single request.
    Call { call: Call, format: OutputFormat },
    /// Prints events.
    Watch { format: OutputFormat },
    /// Waits for a leader. With a command, this process then becomes the command.
    Wait {
        /// Whether to wait until the sidecar's own member leads, and not just any member.
        is_self: bool,
        /// The time limit, if there is one.
        at_most: Option<Duration>,
        command: Vec<OsString>,
        format: OutputFormat,
    },
    /// Answers yes or no with the exit code.
    Probe {
        probe: Probe,
        /// Whether to print the reason for a yes as well.
        verbose: bool,
    },
    /// Reads, writes or follows a value of the shared configuration.
    Config(ConfigCommand),
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Table,
    /// For people, with every column
    Wide,
    /// JSON, as it is answered
    Json,
}

/// The reason why a subcommand did not succeed.
#[derive(Debug)]
pub struct ClientError {
    /// 1 for a no, 3 without an answer, or another exit code, such as that of a program.
    pub exit_code: u8,
    /// `None` if the reason was printed already or nothing is to be printed.
    pub message: Option<String>,
}

/// The exit code if the answer is no.
const NO: u8 = 1;

/// The exit code if there was no answer, or the answer was not that of a sidecar, or the sidecar cannot carry out the
/// request because ZooKeeper does not answer.
const UNANSWERED: u8 = 3;

impl ClientError {
    fn new(exit_code: u8, why: impl Into<String>) -> Self {
        Self { exit_code, message: Some(why.into()) }
    }

    /// Returns an error without a message.
    fn silent(exit_code: u8) -> Self {
        Self { exit_code, message: None }
    }

    /// Returns the error for a program that could not be run, with the exit code that a shell would use.
    fn unrunnable(program: &OsStr, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self::new(code, format!("cannot run {}: {error}", program.display()))
    }

    /// Returns the error for output that cannot be written. If its reader has closed the pipe, as `head` does, the exit
    /// code is 0: the reader has read all that it wanted.
    fn unprintable(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(0),
            _ => Self::new(3, format!("cannot print: {error}")),
        }
    }
}

/// Runs the subcommand until it ends.
///
/// # Errors
/// The answer is no, or there is none, or the subcommand has another exit code than 0.
pub async fn run(command: &ClientCommand, clock: Clock) -> Result<(), ClientError> {
    let result = match command {
        ClientCommand::Ask { sidecar, query } => ask(sidecar, query, clock).await,
        ClientCommand::Inspect { settings, limit, format } => {
            inspect::inspect(settings, *limit, *format).await
        }
        ClientCommand::Guarded(guarded) => guarded.run(clock).await,
    };
    result.map_err(|mut error| {
        if let (Some(sidecar), Some(message)) = (command.sidecar(), &mut error.message) {
            *message = sidecar.with_url(message);
        }
        error
    })
}

/// Runs a call of a sidecar.
async fn ask(sidecar: &Sidecar, query: &Query, clock: Clock) -> Result<(), ClientError> {
    match query {
        Query::Call { call, format } => call.ask(sidecar, *format).await,
        Query::Watch { format } => watch::watch(sidecar, clock, *format).await,
        Query::Wait { is_self, at_most, command, format } => {
            wait::wait(sidecar, *is_self, *at_most, command, *format).await
        }
        Query::Probe { probe, verbose } => probe::probe(sidecar, *probe, *verbose).await,
        Query::Config(config) => config.run(sidecar).await,
    }
}

/// Prints to standard output. Colours are printed only at a terminal.
///
/// # Errors
/// Standard output cannot be written to, for example because the file system is full.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), ClientError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(ClientError::unprintable)
}

/// Checks that standard output has a reader. Otherwise a process that has nothing to write would not notice a closed
/// pipe, and run on.
///
/// # Errors
/// The reader has closed the pipe.
fn check_reader() -> Result<(), ClientError> {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut polled, Some(&no_wait)) {
        Ok(_) if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
            Err(ClientError::unprintable(io::ErrorKind::BrokenPipe.into()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

impl OutputFormat {
    /// Returns the text to print for an answer. The parameter of `view` is whether to show all columns; `json` is the
    /// answer as JSON.
    fn render(self, view: impl FnOnce(bool) -> String, json: &str) -> String {
        match self {
            Self::Table | Self::Wide => view(self == Self::Wide),
            Self::Json => text::harmless_json(json.trim()) + "\n",
        }
    }
}

/// Prints a remark to stderr, so that stdout contains only answers.
fn remark(text: &str) {
    // Writing fails, for example, if stderr is closed. The command may succeed nevertheless.
    let _ = writeln!(io::stderr().lock(), "bellwether: {}", text::visible(text));
}
