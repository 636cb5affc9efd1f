//! Calls of the sidecar's API that take a single request.

use super::screen::{self, Screen};
use super::sidecar::COMMAND_TIMEOUT;
use super::views::HumanView;
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print, remark};
use crate::api::{self, BarrierState, Endpoint, LockQueue, Transfer, Transferred};
use crate::holdings::HoldingName;
use hyper::header::CONTENT_TYPE;
use std::time::Duration;
use tokio::time::sleep;

/// The time limit for breaking a lock. It is longer than any sidecar waits for the end of a holder's lease, which is twice
/// the session timeout.
const LEASE_END_TIMEOUT: Duration = Duration::from_secs(600);

/// A query or command of the sidecar's API that takes a single request.
pub struct Call {
    path: &'static str,
    is_command: bool,
    show: fn(&Sidecar, &SidecarAnswer, OutputFormat) -> CallOutput,
}

pub static LEADER: Call = Call::of(&api::LEADER);
pub static STATUS: Call = Call::of(&api::STATUS);
pub static MEMBERS: Call = Call::of(&api::MEMBERS);
pub static HISTORY: Call = Call::of(&api::HISTORY);
pub static CONFIG_NAMES: Call = Call::of(&api::CONFIG_NAMES);
pub static LOCK_NAMES: Call = Call::of(&api::LOCKS);
/// The queue of a lock. The name of the lock is appended to the path.
pub static LOCK_QUEUE: Call = Call { show: show::<LockQueue>, ..Call::of(&api::LOCKS) };
pub static BARRIER_NAMES: Call = Call::of(&api::BARRIERS);
/// The state of a barrier. The name of the barrier is appended to the path.
pub static BARRIER: Call = Call { show: show::<BarrierState>, ..Call::of(&api::BARRIERS) };
pub static RESIGN: Call = Call::of(&api::RESIGN);
pub static PAUSE: Call = Call::of(&api::PAUSE);
pub static RESUME: Call = Call::of(&api::RESUME);
pub static DRAIN: Call = Call::of(&api::DRAIN);
pub static SHUTDOWN: Call = Call::of(&api::SHUTDOWN);

impl Call {
    const fn of<T: HumanView>(endpoint: &Endpoint<T>) -> Self {
        Self { path: endpoint.path, is_command: endpoint.is_command, show: show::<T> }
    }

    /// Sends the request and prints the answer. `of` is a name to append to the path. With `again`, repeats the request and
    /// prints each changed answer.
    pub(super) async fn ask(
        &self,
        sidecar: &Sidecar,
        of: Option<&HoldingName>,
        again: bool,
        form: OutputFormat,
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
            sleep(screen::PAUSE).await;
        }
    }
}

/// Asks the leader to hand over, and prints the answer.
pub(super) async fn transfer(
    sidecar: &Sidecar,
    to: Option<String>,
    within: Duration,
    form: OutputFormat,
) -> Result<(), ClientError> {
    let wanted = Transfer { to, within_ms: within.as_millis().try_into().ok() };
    let request = sidecar.post(api::TRANSFER.path).header(CONTENT_TYPE, "application/json");
    // After the hand-over, the sidecar may wait as long again for the announcement of the next leader.
    let request = request.body(api::json(&wanted)).within(2 * within + COMMAND_TIMEOUT);
    let CallOutput { text, trouble } = show::<Transferred>(sidecar, &request.answer().await?, form);
    print(&text)?;
    trouble.map_or(Ok(()), Err)
}

/// Deletes a place in a lock's queue.
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

/// The text to print, and the error to exit with, if any.
struct CallOutput {
    text: String,
    trouble: Option<ClientError>,
}

/// Returns the output for an answer. With JSON output, a refusal is printed as well.
fn show<T: HumanView>(sidecar: &Sidecar, answer: &SidecarAnswer, form: OutputFormat) -> CallOutput {
    match answer.body::<T>() {
        Ok(body) => {
            let view = |is_wide| sidecar.with_url(&body.view(is_wide)).into_owned();
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
