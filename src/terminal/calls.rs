//! The questions and commands that take one request. The program has a subcommand for each, named like its path.

use super::screen::{PAUSE, Screen};
use super::sidecar::COMMAND_TIMEOUT;
use super::views::HumanView;
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print, remark};
use crate::api::{self, BarrierState, Get, LockQueue, Post, Transfer, Transferred};
use crate::holdings::HoldingName;
use hyper::header::CONTENT_TYPE;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than any sidecar waits until the lease of a holder is over: it is twice the session timeout.
const LEASE_END_TIMEOUT: Duration = Duration::from_secs(600);

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
    show: fn(&Sidecar, &SidecarAnswer, &OutputFormat) -> CallOutput,
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

    /// Asks, also of what has this name below the path; with `again`, prints the answer whenever it has changed.
    pub(super) async fn ask(
        &self,
        sidecar: &Sidecar,
        of: Option<&HoldingName>,
        again: bool,
        form: &OutputFormat,
    ) -> Result<(), ClientError> {
        let path = match of {
            Some(name) => format!("{}/{name}", self.path),
            None => self.path.to_owned(),
        };
        if !again {
            let request = if self.is_command { sidecar.post(path) } else { sidecar.get(path) };
            let CallOutput { text, trouble } = (self.show)(sidecar, &request.answer().await?, form);
            print(&text)?;
            return trouble.map_or(Ok(()), Err);
        }
        let mut screen = Screen::of(form);
        loop {
            let answered = sidecar.get(&path).answer().await;
            match answered.map(|answer| (self.show)(sidecar, &answer, form)) {
                Ok(CallOutput { text, trouble: None }) => screen.show(text)?,
                Ok(CallOutput { trouble: Some(trouble), .. }) | Err(trouble) => {
                    screen.fail(trouble)?
                }
            }
            sleep(PAUSE).await;
        }
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
    let request = sidecar.post(api::TRANSFER.path).header(CONTENT_TYPE, "application/json");
    // Afterwards it waits for as long again to hear of the next leader.
    let request = request.body(api::json(&wanted)).within(2 * within + COMMAND_TIMEOUT);
    let CallOutput { text, trouble } = show::<Transferred>(sidecar, &request.answer().await?, form);
    print(&text)?;
    trouble.map_or(Ok(()), Err)
}

/// Breaks a place in a lock's queue.
pub(super) async fn break_lock(
    sidecar: &Sidecar,
    name: &HoldingName,
    token: u64,
    is_at_once: bool,
) -> Result<(), ClientError> {
    let path = format!("{}/{name}/break/{token}", api::LOCKS.path);
    let request = if is_at_once {
        sidecar.post(path + "?now=1")
    } else {
        remark(
            "waiting for twice the session timeout, until the lease of its holder is surely over; the sidecar goes on with it if this is interrupted",
        );
        sidecar.post(path).within(LEASE_END_TIMEOUT)
    };
    request.answer().await?.done()?;
    print(format!("the place with token {token} in the queue of lock {name} is gone\n"))
}

/// The text to print, and the error with which the program ends.
struct CallOutput {
    text: String,
    trouble: Option<ClientError>,
}

/// Returns the answer as it is to be printed. Scripts get the JSON of a refusal as well.
fn show<T: HumanView>(
    sidecar: &Sidecar,
    answer: &SidecarAnswer,
    form: &OutputFormat,
) -> CallOutput {
    match answer.body::<T>() {
        Ok(body) => {
            let view = |width| sidecar.with_url(&body.view(width)).into_owned();
            CallOutput { text: form.render(view, &answer.text()), trouble: None }
        }
        Err(trouble @ ClientError::Unanswered(_)) => {
            CallOutput { text: String::new(), trouble: Some(trouble) }
        }
        Err(trouble) => {
            let text = form.render(|_| String::new(), &answer.text());
            CallOutput { text, trouble: Some(trouble) }
        }
    }
}
