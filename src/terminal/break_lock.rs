//! Breaks a place in a lock's queue.

use super::sidecar::{COMMAND_TIMEOUT, Sidecar};
use super::{ClientError, print, remark};
use crate::api;
use crate::holdings::HoldingName;
use hyper::{Method, StatusCode};
use std::time::Duration;

/// Longer than any sidecar waits until the lease of a holder is over: it is twice the session timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

pub struct BreakLock {
    pub sidecar: Sidecar,
    pub name: HoldingName,
    /// The token of the place.
    pub token: u64,
    /// Whether not to wait until the lease of its holder is over.
    pub is_at_once: bool,
}

impl BreakLock {
    pub(super) async fn run(&self) -> Result<(), ClientError> {
        let Self { sidecar, name, token, is_at_once } = self;
        let path = format!("{}/{name}/break/{token}", api::LOCKS.path);
        let (path, patience) = match is_at_once {
            true => (format!("{path}?now=1"), COMMAND_TIMEOUT),
            false => {
                remark(
                    "waiting for twice the session timeout, until the lease of its holder is surely over; the sidecar goes on with it if this is interrupted",
                );
                (path, LONGEST_WAIT)
            }
        };
        let answer = sidecar.ask(Method::POST, &path, patience).await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return print(format!(
                "the place with token {token} in the queue of lock {name} is gone\n"
            ));
        }
        // A refusal is reported as it is.
        let _body: serde_json::Value = answer.body()?;
        Err(answer.nonsense("it does not say that it is done"))
    }
}
