//! Calls of the sidecar's API that take a single request.

use super::sidecar::COMMAND_TIMEOUT;
use super::views::HumanView;
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print};
use crate::api::{self, BarrierState, Endpoint, LockQueue, Transfer};
use crate::holdings::HoldingName;
use hyper::header::CONTENT_TYPE;
use std::time::Duration;

/// The time limit for breaking a lock. A sidecar answers after twice the session timeout, when the holder's lease has
/// ended, so this is enough for session timeouts of less than five minutes.
const LEASE_END_TIMEOUT: Duration = Duration::from_secs(600);

/// A query or command of the sidecar's API that takes a single request, and whose answer is shown.
pub struct Call {
    path: String,
    is_command: bool,
    /// The body, as JSON.
    body: Option<String>,
    /// The time limit, if it differs from that of other queries and commands.
    timeout: Option<Duration>,
    view: View,
}

/// Returns the text to print for an answer, or the error if it is not a success.
type View = fn(&SidecarAnswer, OutputFormat) -> Result<String, ClientError>;

impl Call {
    /// Creates the call of an endpoint that needs no body.
    pub fn of<T: HumanView>(endpoint: &Endpoint<T>) -> Self {
        Self {
            path: endpoint.path.to_owned(),
            is_command: endpoint.is_command,
            body: None,
            timeout: None,
            view: view::<T>,
        }
    }

    /// Creates the call that reads the queue of a lock.
    pub fn lock_queue(name: &HoldingName) -> Self {
        let path = format!("{}/{name}", api::LOCKS.path);
        Self { path, view: view::<LockQueue>, ..Self::of(&api::LOCKS) }
    }

    /// Creates the call that reads the state of a barrier.
    pub fn barrier(name: &HoldingName) -> Self {
        let path = format!("{}/{name}", api::BARRIERS.path);
        Self { path, view: view::<BarrierState>, ..Self::of(&api::BARRIERS) }
    }

    /// Creates the call that transfers leadership to the member with this id, or without an id to any member that is
    /// ready.
    pub fn transfer(to: Option<String>, within: Duration) -> Self {
        let body = Transfer { to, within_ms: within.as_millis().try_into().ok() };
        // After the hand-over, the sidecar may wait as long again for the announcement of the next leader.
        let timeout = Some(2 * within + COMMAND_TIMEOUT);
        Self { body: Some(api::json(&body)), timeout, ..Self::of(&api::TRANSFER) }
    }

    /// Creates the call that deletes the place with this token in a lock's queue. Unless `is_at_once`, the sidecar first
    /// waits until the lease of the place's owner is over.
    pub fn break_lock(name: &HoldingName, token: u64, is_at_once: bool) -> Self {
        let query = if is_at_once { "?now=1" } else { "" };
        Self {
            path: format!("{}/{name}/break/{token}{query}", api::LOCKS.path),
            is_command: true,
            body: None,
            timeout: Some(LEASE_END_TIMEOUT),
            view: |answer, _| answer.check_done().map(|()| "the place is gone\n".to_owned()),
        }
    }

    /// Sends the request and prints the answer. With JSON output, a refusal is printed as well.
    pub(super) async fn ask(
        &self,
        sidecar: &Sidecar,
        format: OutputFormat,
    ) -> Result<(), ClientError> {
        let mut request =
            if self.is_command { sidecar.post(&self.path) } else { sidecar.get(&self.path) };
        if let Some(body) = &self.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(timeout) = self.timeout {
            request = request.within(timeout);
        }
        let answer = request.answer().await?;
        let shown = (self.view)(&answer, format);
        if shown.is_err() && answer.is_problem() {
            // This prints the refusal only as JSON. For people, the caller prints the error that is returned below.
            print(format.render(|_| String::new(), &answer.text()))?;
        }
        let shown = shown?;
        print(if format == OutputFormat::Json { shown } else { sidecar.with_url(&shown) })
    }
}

/// Returns the text to print for an answer.
fn view<T: HumanView>(answer: &SidecarAnswer, format: OutputFormat) -> Result<String, ClientError> {
    let body = answer.body::<T>()?;
    Ok(format.render(|is_wide| body.view(is_wide), &answer.text()))
}
