//! Runs a command as a hook.

use super::{HookError, StopReason};
use crate::process::{self, command_for};
use std::io::{self, Write};
use std::process::Stdio;
use tokio::signal::unix::Signal;

/// Runs a command with the additional variables in `environment`, and with `input` as its standard input. Waits until
/// the command ends, or kills it if `stopped` completes first. Its output goes to this process's standard error.
/// Reaps dead children at each SIGCHLD, which `deaths` receives.
pub(super) async fn run(
    command: &[String],
    file_limit: Option<u64>,
    environment: &[(&str, Option<String>)],
    input: &str,
    deaths: &mut Signal,
    stopped: impl Future<Output = StopReason>,
) -> Result<(), HookError> {
    let mut start = command_for(command, file_limit);
    for (name, value) in environment {
        match value {
            Some(value) => start.env(name, value),
            None => start.env_remove(name),
        };
    }
    let stdin = pipe_with(input).map_err(cannot_start)?;
    start.stdin(stdin).stdout(io::stderr()).stderr(io::stderr());
    let mut child = process::spawn(&mut start).map_err(cannot_start)?;
    let reason = tokio::select! {
        ended = child.wait(deaths) => return ended.map_err(HookError::Failed),
        reason = stopped => reason,
    };
    child.kill(deaths).await;
    Err(reason.into())
}

fn cannot_start(error: io::Error) -> HookError {
    HookError::Failed(format!("cannot be started: {error}"))
}

/// Returns the reading end of a pipe that contains `text`. Writing cannot block, because a pipe's buffer is much longer
/// than `text`.
fn pipe_with(text: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(text.as_bytes())?;
    Ok(reader.into())
}
