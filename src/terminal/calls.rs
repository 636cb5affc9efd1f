//! The questions and commands that take one request. The program has a subcommand for each, named like its path.

use super::screen::{PAUSE, Screen};
use super::sidecar::{ANSWER_TIMEOUT, COMMAND_TIMEOUT, Sidecar, SidecarAnswer};
use super::text::harmless_json;
use super::views::HumanView;
use super::{ClientError, OutputFormat, formed, print};
use crate::api::{self, BarrierState, Get, LockQueue, Post, Transfer, Transferred};
use crate::holdings::HoldingName;
use hyper::Method;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::sleep;

/// A question or command of the sidecar's API, as a subcommand.
pub struct Call {
    path: &'static str,
    is_command: bool,
    /// Other names of the subcommand, by which other programs call the same.
    pub aliases: &'static [&'static str],
    /// The help text, in one line.
    pub help: &'static str,
    /// The rest of the help text.
    pub more: Option<&'static str>,
    show: fn(&SidecarAnswer, &OutputFormat) -> CallOutput,
}

pub const QUESTIONS: &[Call] = &[
    Call::get(&api::LEADER, "Print who leads")
        .with("Only the leader's own sidecar knows how long its lease holds."),
    Call::get(&api::STATUS, "Print where this member stands: role, place, lease, session"),
    Call::get(&api::MEMBERS, "Print the queue in order, how each member is, and what is wrong"),
    Call::get(&api::HISTORY, "Print who led when, as far as this member has heard"),
];

/// The calls of `locks`, without the name of a lock and with it.
pub static LOCK_NAMES: Call = Call::get(&api::LOCKS, "Print the names of the locks");
pub static LOCK_QUEUE: Call = Call {
    path: api::LOCKS.path,
    is_command: false,
    aliases: &[],
    help: "Print who holds a lock and who waits for it",
    more: None,
    show: show::<LockQueue>,
};

/// The call of `config ls`.
pub static CONFIG_NAMES: Call = Call::get(&api::CONFIG_NAMES, "Print the names of the values");
/// The calls of `barriers`, without the name of a barrier and with it.
pub static BARRIER_NAMES: Call = Call::get(&api::BARRIERS, "Print the names of the barriers");
pub static BARRIER: Call = Call {
    path: api::BARRIERS.path,
    is_command: false,
    aliases: &[],
    help: "Print who is in front of a barrier and who is inside",
    more: None,
    show: show::<BarrierState>,
};

pub const COMMANDS: &[Call] = &[
    Call::post(&api::RESIGN, "Have the leader go to the tail of the queue")
        .also_called(&["step-down", "demote"]),
    Call::post(&api::PAUSE, "Have this member leave the queue until told to resume"),
    Call::post(
        &api::RESUME,
        "Have this member join the queue again, at its tail, after a pause or drain",
    ),
    Call::post(
        &api::DRAIN,
        "Have this member hand over and leave the queue, as pause does, and wait for its hooks: for a preStop hook",
    ),
    Call::post(&api::SHUTDOWN, "Have this member leave the queue and its process end, for Jobs"),
];

impl Call {
    const fn get<T: HumanView>(question: &Get<T>, help: &'static str) -> Self {
        let path = question.path;
        Self { path, is_command: false, aliases: &[], help, more: None, show: show::<T> }
    }

    const fn post<T: HumanView>(command: &Post<T>, help: &'static str) -> Self {
        let path = command.path;
        Self { path, is_command: true, aliases: &[], help, more: None, show: show::<T> }
    }

    const fn with(self, more: &'static str) -> Self {
        Self { more: Some(more), ..self }
    }

    const fn also_called(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub fn name(&self) -> &'static str {
        self.path.trim_start_matches('/')
    }

    /// Returns the path to ask: its own, or that of a lock or barrier below it.
    pub(super) fn path_of(&self, of: Option<&HoldingName>) -> Cow<'static, str> {
        match of {
            Some(name) => format!("{}/{name}", self.path).into(),
            None => self.path.into(),
        }
    }

    pub(super) async fn ask(
        &self,
        sidecar: &Sidecar,
        path: &str,
        form: &OutputFormat,
    ) -> Result<(), ClientError> {
        let CallOutput { text, trouble } = self.asked(sidecar, path, form).await?;
        print(&text)?;
        trouble.map_or(Ok(()), Err)
    }

    /// Asks again and again, and prints the answer whenever it has changed.
    pub(super) async fn ask_again(
        &self,
        sidecar: &Sidecar,
        path: &str,
        form: &OutputFormat,
    ) -> Result<(), ClientError> {
        let mut screen = Screen::of(form);
        loop {
            match self.asked(sidecar, path, form).await {
                Ok(CallOutput { text, trouble: None }) => screen.show(text)?,
                Ok(CallOutput { trouble: Some(trouble), .. }) | Err(trouble) => {
                    screen.fail(trouble)?
                }
            }
            sleep(PAUSE).await;
        }
    }

    async fn asked(
        &self,
        sidecar: &Sidecar,
        path: &str,
        form: &OutputFormat,
    ) -> Result<CallOutput, ClientError> {
        let (method, patience) = if self.is_command {
            (Method::POST, COMMAND_TIMEOUT)
        } else {
            (Method::GET, ANSWER_TIMEOUT)
        };
        let answer = sidecar.ask(method, path, patience).await?;
        Ok((self.show)(&answer, form))
    }
}

/// Has the leader hand over, and prints what it answers.
pub(super) async fn transfer(
    sidecar: &Sidecar,
    to: Option<String>,
    within: Duration,
    form: &OutputFormat,
) -> Result<(), ClientError> {
    let wanted = Transfer { to, within_ms: within.as_millis().try_into().ok() };
    // Afterwards it waits for as long again to hear of the next leader.
    let patience = 2 * within + COMMAND_TIMEOUT;
    let answer = sidecar.post(api::TRANSFER.path, api::json(&wanted), patience).await?;
    let CallOutput { text, trouble } = show::<Transferred>(&answer, form);
    print(&text)?;
    trouble.map_or(Ok(()), Err)
}

/// The text to print, and the error with which the program ends.
struct CallOutput {
    text: String,
    trouble: Option<ClientError>,
}

/// Returns the answer as it is to be printed. Scripts get the JSON of a refusal as well.
fn show<T: HumanView>(answer: &SidecarAnswer, form: &OutputFormat) -> CallOutput {
    let body = match answer.body::<T>() {
        Ok(body) => body,
        Err(trouble) => {
            let is_shown =
                *form == OutputFormat::Scripts && !matches!(trouble, ClientError::Unanswered(_));
            let json = is_shown.then(|| harmless_json(answer.text().trim()) + "\n");
            return CallOutput { text: json.unwrap_or_default(), trouble: Some(trouble) };
        }
    };
    match formed(form, |width| body.view(width), answer.text()) {
        Ok(text) => CallOutput { text, trouble: None },
        Err(trouble) => CallOutput { text: String::new(), trouble: Some(trouble) },
    }
}
