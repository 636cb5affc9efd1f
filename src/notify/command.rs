//! Runs a command as a hook.

use super::message::Message;
use super::{Enough, Undone};
use crate::children::{self, reap};
use crate::exec::started_by_us;
use rustix::process::WaitStatus;
use std::io::{self, Write};
use std::process::Stdio;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// Whoever was killed is waited for no longer: in the kernel's hands it may be for ever.
const TO_DIE: Duration = Duration::from_secs(1);

/// Returns when it has ended, or was killed because it was enough. Somebody has to hear of `deaths`.
pub(super) async fn run(
    command: &[String],
    files: Option<u64>,
    message: &Message<'_>,
    deaths: &mut Signal,
    enough: impl Future<Output = Enough>,
) -> Result<(), Undone> {
    let mut start = started_by_us(command, files);
    for (name, value) in message.environment() {
        match value {
            Some(value) => start.env(name, value),
            None => start.env_remove(name),
        };
    }
    let cannot = |error: io::Error| Undone::Failed(format!("cannot be started: {error}"));
    let stdin = holding(&message.json()).map_err(cannot)?;
    start.stdin(stdin).stdout(io::stderr()).stderr(io::stderr());
    let mut child = children::spawn(&mut start).map_err(cannot)?;
    let why = tokio::select! {
        status = end(&mut child, deaths) => return verdict(status),
        why = enough => why,
    };
    child.kill();
    let _dead_or_stuck = tokio::time::timeout(TO_DIE, end(&mut child, deaths)).await;
    Err(why.into())
}

/// A pipe with this in it, which is far less than a pipe holds.
fn holding(text: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(text.as_bytes())?;
    writer.write_all(b"\n")?;
    Ok(reader.into())
}

async fn end(child: &mut children::Child, deaths: &mut Signal) -> Option<WaitStatus> {
    loop {
        tokio::select! {
            status = child.end() => return status,
            _ = deaths.recv() => reap(),
        }
    }
}

fn verdict(status: Option<WaitStatus>) -> Result<(), Undone> {
    let failed = |why: String| Err(Undone::Failed(why));
    let Some(status) = status else { return failed("nobody knows how it ended".into()) };
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(127), _) => failed("exit code 127: not found".into()),
        (Some(126), _) => failed("exit code 126: cannot be run".into()),
        (Some(code), _) => failed(format!("exit code {code}")),
        (None, Some(signal)) => failed(format!("ended by signal {signal}")),
        (None, None) => failed("nobody knows how it ended".into()),
    }
}
