//! The questions and commands that take one request. The program has a subcommand for each, named like its path.

use super::screen::{PAUSE, Screen};
use super::sidecar::{Sidecar, SidecarAnswer, TO_ANSWER, TO_OBEY};
use super::text::harmless_json;
use super::views::HumanView;
use super::{ClientError, Form, formed, print};
use crate::api::{self, Get, Post};
use hyper::Method;
use tokio::time::sleep;

/// A question or command of the sidecar's API, as a subcommand.
pub struct Call {
    path: &'static str,
    is_command: bool,
    /// What it does, in one line.
    pub help: &'static str,
    /// What else there is to say of it.
    pub more: Option<&'static str>,
    show: fn(&SidecarAnswer, &Form) -> Shown,
}

pub const QUESTIONS: &[Call] = &[
    Call::get(&api::LEADER, "Print who leads")
        .with("For how long its lease holds is told only by the leader's own sidecar."),
    Call::get(&api::STATUS, "Print where this member stands: role, place, lease, session"),
    Call::get(&api::MEMBERS, "Print the queue in order, and whom each member names as the leader"),
    Call::get(&api::HISTORY, "Print who led when, as far as this member has heard"),
];

pub const COMMANDS: &[Call] = &[
    Call::post(&api::ACK, "Say that the application has taken up its work as leader"),
    Call::post(&api::RESIGN, "Have the leader go to the tail of the queue"),
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
        Self { path: question.path, is_command: false, help, more: None, show: show::<T> }
    }

    const fn post<T: HumanView>(command: &Post<T>, help: &'static str) -> Self {
        Self { path: command.path, is_command: true, help, more: None, show: show::<T> }
    }

    const fn with(self, more: &'static str) -> Self {
        let Self { path, is_command, help, more: _, show } = self;
        Self { path, is_command, help, more: Some(more), show }
    }

    pub fn name(&self) -> &'static str {
        self.path.trim_start_matches('/')
    }

    pub(super) async fn ask(&self, sidecar: &Sidecar, form: &Form) -> Result<(), ClientError> {
        let Shown { text, trouble } = self.asked(sidecar, form).await?;
        print(&text)?;
        trouble.map_or(Ok(()), Err)
    }

    /// Asks again and again, and prints the answer whenever it has changed.
    pub(super) async fn ask_again(
        &self,
        sidecar: &Sidecar,
        form: &Form,
    ) -> Result<(), ClientError> {
        let mut screen = Screen::of(form);
        loop {
            match self.asked(sidecar, form).await {
                Ok(Shown { text, trouble: None }) => screen.show(text)?,
                Ok(Shown { trouble: Some(trouble), .. }) | Err(trouble) => screen.fail(trouble)?,
            }
            sleep(PAUSE).await;
        }
    }

    async fn asked(&self, sidecar: &Sidecar, form: &Form) -> Result<Shown, ClientError> {
        let (method, patience) =
            if self.is_command { (Method::POST, TO_OBEY) } else { (Method::GET, TO_ANSWER) };
        let answer = sidecar.ask(method, self.path, patience).await?;
        Ok((self.show)(&answer, form))
    }
}

/// What to print, and the error with which the program ends.
struct Shown {
    text: String,
    trouble: Option<ClientError>,
}

/// Returns the answer as it is to be printed. Scripts get the JSON of a refusal as well.
fn show<T: HumanView>(answer: &SidecarAnswer, form: &Form) -> Shown {
    let body = match answer.body::<T>() {
        Ok(body) => body,
        Err(trouble) => {
            let is_shown = *form == Form::Scripts && !matches!(trouble, ClientError::Unanswered(_));
            let json = is_shown.then(|| harmless_json(answer.text().trim()) + "\n");
            return Shown { text: json.unwrap_or_default(), trouble: Some(trouble) };
        }
    };
    match formed(form, |width| body.view(width), answer.text()) {
        Ok(text) => Shown { text, trouble: None },
        Err(trouble) => Shown { text: String::new(), trouble: Some(trouble) },
    }
}
