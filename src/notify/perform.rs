//! Performs the action of a hook once, for one change.

use super::{HookError, StopReason, command, post, process};
use crate::clock::Clock;
use crate::config::HookAction;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// The message about a change, in the forms that the actions need.
pub(super) struct Notice {
    /// Environment variables for a command; `None` removes a variable.
    pub(super) environment: Vec<(&'static str, Option<String>)>,
    /// The standard input of a command.
    pub(super) input: String,
    /// The body of an HTTP POST.
    pub(super) body: String,
}

/// Runs a command, sends a signal or posts a message. `file_limit` is the limit of open files for a command, if there is
/// one. While a command runs, reaps dead children at each SIGCHLD, which `deaths` receives.
///
/// `stopped(limit)` waits until the action must stop, for `limit` at most, and returns the reason.
pub(super) async fn perform(
    action: &HookAction,
    notice: &Notice,
    file_limit: Option<u64>,
    clock: Clock,
    deaths: &mut Signal,
    mut stopped: impl AsyncFnMut(Duration) -> StopReason,
) -> Result<(), HookError> {
    match action {
        HookAction::Run { command, timeout } => {
            let Notice { environment, input, .. } = notice;
            command::run(command, file_limit, environment, input, deaths, stopped(*timeout)).await
        }
        HookAction::Signal { signal, pid_file } => {
            process::send(*signal, pid_file).map_err(HookError::Failed)
        }
        HookAction::Post(webhook) => post::send(webhook, &notice.body, clock, stopped).await,
        HookAction::Keep { .. } | HookAction::Kubernetes(_) => {
            unreachable!("files and objects are written by the runner")
        }
    }
}
