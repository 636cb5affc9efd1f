//! Runs a command as a hook.

use super::message::Message;
use super::{HookError, StopReason};
use crate::process::{self, started_by_us};
use std::io::{self, Write};
use std::process::Stdio;
use tokio::signal::unix::Signal;

/// Returns when the command has ended, or was killed as its run was cut short. It is reaped at each of `deaths`.
pub(super) async fn run(
    command: &[String],
    files: Option<u64>,
    message: &Message<'_>,
    deaths: &mut Signal,
    enough: impl Future<Output = StopReason>,
) -> Result<(), HookError> {
    let mut start = started_by_us(command, files);
    for (name, value) in message.environment() {
        match value {
            Some(value) => start.env(name, value),
            None => start.env_remove(name),
        };
    }
    let cannot = |error: io::Error| HookError::Failed(format!("cannot be started: {error}"));
    let stdin = holding(&message.json()).map_err(cannot)?;
    start.stdin(stdin).stdout(io::stderr()).stderr(io::stderr());
    let mut child = process::spawn(&mut start).map_err(cannot)?;
    let why = tokio::select! {
        ended = child.success(deaths) => return ended.map_err(HookError::Failed),
        why = enough => why,
    };
    child.end_by_force(deaths).await;
    Err(why.into())
}

/// A pipe with this in it, which is far less than a pipe holds.
fn holding(text: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(text.as_bytes())?;
    writer.write_all(b"\n")?;
    Ok(reader.into())
}
