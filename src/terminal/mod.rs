//! For people at a terminal and for their scripts: asks a sidecar, and prints what it answers.
//!
//! - `sidecar`: where it is, and how to ask it.
//! - `views`: how its answers, the bodies of [`api`], look to people.
//! - `inspect`: the one errand that asks ZooKeeper and no sidecar.

mod inspect;
mod probe;
mod sidecar;
mod table;
mod text;
mod views;
mod wait;
mod watch;

use crate::api::{self, Done, Get, Post};
use crate::clock::Clock;
use crate::config::Settings;
use hyper::Method;
pub use probe::Probe;
use serde::de::DeserializeOwned;
pub use sidecar::{Sidecar, Token};
use std::io::{self, Write};
use std::time::Duration;
pub use wait::Whom;

/// What somebody wants done.
pub enum Errand {
    Ask { sidecar: Sidecar, question: Question, form: Form },
    Inspect { settings: Settings, patience: Duration, form: Form },
}

impl Errand {
    /// Whether there is anything in our memory that nobody else may see.
    pub fn has_secrets(&self) -> bool {
        match self {
            Self::Ask { sidecar, .. } => sidecar.is_shown_a_token(),
            Self::Inspect { settings, .. } => settings.zookeeper.security.has_secrets(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Leader,
    Status,
    Members,
    History,
    Watch,
    Acknowledge,
    Resign,
    Pause,
    Resume,
    Drain,
    Wait { whom: Whom, at_most: Option<Duration> },
    Probe { probe: Probe, verbose: bool },
}

/// For whom to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    People,
    /// JSON, as it came.
    Scripts,
}

/// Why the errand did not end with a yes.
#[derive(Debug)]
pub enum Trouble {
    /// The answer is no.
    No(String),
    /// Nobody answers, or nothing that makes sense.
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
            // Whoever closes the pipe has read enough.
            Self::Unprintable(error) if error.kind() == io::ErrorKind::BrokenPipe => (0, None),
            Self::Unprintable(error) => (3, Some(format!("cannot print: {error}"))),
        }
    }
}

/// Runs the errand to its end.
///
/// # Errors
/// Whatever is not a yes.
pub async fn run(errand: Errand, clock: Clock) -> Result<(), Trouble> {
    let (sidecar, question, form) = match errand {
        Errand::Ask { sidecar, question, form } => (sidecar, question, form),
        Errand::Inspect { settings, patience, form } => {
            return inspect::inspect(&settings, patience, clock, form).await;
        }
    };
    match question {
        Question::Leader => ask(&sidecar, api::LEADER, form, views::leader).await,
        Question::Status => ask(&sidecar, api::STATUS, form, views::status).await,
        Question::Members => ask(&sidecar, api::MEMBERS, form, views::members).await,
        Question::History => ask(&sidecar, api::HISTORY, form, views::history).await,
        Question::Watch => watch::watch(&sidecar, clock, form).await,
        Question::Acknowledge => command(&sidecar, api::ACK, form).await,
        Question::Resign => command(&sidecar, api::RESIGN, form).await,
        Question::Pause => command(&sidecar, api::PAUSE, form).await,
        Question::Resume => command(&sidecar, api::RESUME, form).await,
        Question::Drain => command(&sidecar, api::DRAIN, form).await,
        Question::Wait { whom, at_most } => wait::wait(&sidecar, whom, at_most, form).await,
        Question::Probe { probe, verbose } => probe::probe(&sidecar, probe, verbose).await,
    }
}

async fn ask<T: DeserializeOwned>(
    sidecar: &Sidecar,
    question: Get<T>,
    form: Form,
    shown: fn(&T) -> String,
) -> Result<(), Trouble> {
    let answer = sidecar.ask(Method::GET, question.path, sidecar::TO_ANSWER).await?;
    tell(&answer, form, shown)
}

async fn command(sidecar: &Sidecar, command: Post<Done>, form: Form) -> Result<(), Trouble> {
    let answer = sidecar.ask(Method::POST, command.path, sidecar::TO_OBEY).await?;
    tell(&answer, form, views::done)
}

/// Prints the answer, also one that is no yes if it is for scripts.
fn tell<T: DeserializeOwned>(
    answer: &sidecar::Answer,
    form: Form,
    shown: fn(&T) -> String,
) -> Result<(), Trouble> {
    let body: Result<T, Trouble> = answer.body();
    match form {
        Form::People => print(&shown(&body?)),
        Form::Scripts => {
            if !matches!(body, Err(Trouble::Unanswered(_))) {
                print_json(answer.text())?;
            }
            body.map(drop)
        }
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

/// Beside the answer, for whoever looks on.
fn remark(text: &str) {
    // Nobody need look on.
    let _unseen = writeln!(io::stderr().lock(), "bellwether: {}", text::visible(text));
}
