//! Calls of the sidecar's API that take a single request.

use super::sidecar::{COMMAND_TIMEOUT, SidecarRequest};
use super::views::HumanView;
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print, remark, screen};
use crate::api::{self, BarrierState, Endpoint, LockQueue, Transfer, Transferred};
use crate::holdings::HoldingName;
use hyper::header::CONTENT_TYPE;
use std::time::Duration;

/// The time limit for breaking a lock. It is longer than any sidecar waits for the end of a holder's lease, which is twice
/// the session timeout.
const LEASE_END_TIMEOUT: Duration = Duration::from_secs(600);

/// A query or command of the sidecar's API that takes a single request.
pub struct Call {
    path: &'static str,
    is_command: bool,
    view: View,
}

/// Returns the text to print for an answer, or the error if it is not a success.
type View = fn(&Sidecar, &SidecarAnswer, OutputFormat) -> Result<String, ClientError>;

pub static LEADER: Call = Call::of(&api::LEADER);
pub static STATUS: Call = Call::of(&api::STATUS);
pub static MEMBERS: Call = Call::of(&api::MEMBERS);
pub static HISTORY: Call = Call::of(&api::HISTORY);
pub static CONFIG_NAMES: Call = Call::of(&api::CONFIG_NAMES);
pub static LOCK_NAMES: Call = Call::of(&api::LOCKS);
/// The queue of a lock. The name of the lock is appended to the path.
pub static LOCK_QUEUE: Call = Call { view: view::<LockQueue>, ..Call::of(&api::LOCKS) };
pub static BARRIER_NAMES: Call = Call::of(&api::BARRIERS);
/// The state of a barrier. The name of the barrier is appended to the path.
pub static BARRIER: Call = Call { view: view::<BarrierState>, ..Call::of(&api::BARRIERS) };
pub static RESIGN: Call = Call::of(&api::RESIGN);
pub static PAUSE: Call = Call::of(&api::PAUSE);
pub static RESUME: Call = Call::of(&api::RESUME);
pub static DRAIN: Call = Call::of(&api::DRAIN);
pub static SHUTDOWN: Call = Call::of(&api::SHUTDOWN);

impl Call {
    const fn of<T: HumanView>(endpoint: &Endpoint<T>) -> Self {
        Self { path: endpoint.path, is_command: endpoint.is_command, view: view::<T> }
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
            return ask_once(sidecar, request, self.view, form).await;
        }
        screen::repeat(form, async || {
            (self.view)(sidecar, &sidecar.get(&path).answer().await?, form)
        })
        .await
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
    ask_once(sidecar, request, view::<Transferred>, form).await
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

/// Returns the text to print for an answer.
fn view<T: HumanView>(
    sidecar: &Sidecar,
    answer: &SidecarAnswer,
    form: OutputFormat,
) -> Result<String, ClientError> {
    let body = answer.body::<T>()?;
    Ok(form.render(|is_wide| sidecar.with_url(&body.view(is_wide)).into_owned(), &answer.text()))
}

/// Sends the request, and prints the answer. With JSON output, a refusal is printed as well.
async fn ask_once(
    sidecar: &Sidecar,
    request: SidecarRequest<'_>,
    view: View,
    form: OutputFormat,
) -> Result<(), ClientError> {
    let answer = request.answer().await?;
    let shown = view(sidecar, &answer, form);
    if let Err(ClientError::No(_) | ClientError::Unread(_)) = &shown {
        print(form.render(|_| String::new(), &answer.text()))?;
    }
    print(shown?)
}
