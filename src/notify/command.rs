//! Runs a command as a hook.

use super::{HookError, StopReason};
use crate::process::{self, started_by_us};
use std::io::{self, Write};
use std::process::Stdio;
use tokio::signal::unix::Signal;

/// Runs a command with these additional environment variables, and with `input` on its standard input, until it ends or
/// until `stopped` resolves and the command is killed. Reaps dead children at each event of `deaths`.
pub(super) async fn run(
    command: &[String],
    file_limit: Option<u64>,
    environment: &[(&str, Option<String>)],
    input: &str,
    deaths: &mut Signal,
    stopped: impl Future<Output = StopReason>,
) -> Result<(), HookError> {
    let mut start = started_by_us(command, file_limit);
    for (name, value) in environment {
        match value {
            Some(value) => start.env(name, value),
            None => start.env_remove(name),
        };
    }
    let stdin = holding(input).map_err(cannot_start)?;
    start.stdin(stdin).stdout(io::stderr()).stderr(io::stderr());
    let mut child = process::spawn(&mut start).map_err(cannot_start)?;
    let why = tokio::select! {
        ended = child.wait(deaths) => return ended.map_err(HookError::Failed),
        why = stopped => why,
    };
    child.kill(deaths).await;
    Err(why.into())
}

fn cannot_start(error: io::Error) -> HookError {
    HookError::Failed(format!("cannot be started: {error}"))
}

/// Returns a pipe that contains `text`, which is much shorter than a pipe's buffer.
fn holding(text: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(text.as_bytes())?;
    Ok(reader.into())
}
