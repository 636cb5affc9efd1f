//! Waits until there is a leader, even if the sidecar restarts meanwhile.

use super::poll::Poll;
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print, views};
use crate::api::{LEADER, LeaderState};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Waits for any leader, or with `is_self` until the sidecar's own member leads. Then prints the leader, or replaces
/// this process with the command, if there is one.
pub(super) async fn wait(
    sidecar: &Sidecar,
    is_self: bool,
    at_most: Option<Duration>,
    command: &[OsString],
    format: OutputFormat,
) -> Result<(), ClientError> {
    let mut poll = Poll::new(sidecar, LEADER.path, SidecarAnswer::body::<LeaderState>);
    let accepted = poll.until(at_most, |state| match &state.leader {
        Some(_) if state.is_self || !is_self => Ok(()),
        Some(leader) => Err(views::sentence(leader, false)),
        None => Err("no member leads".to_owned()),
    });
    let (answer, state) = accepted.await?;
    if let [program, arguments @ ..] = command {
        return Err(become_program(program, arguments, &state));
    }
    let leader = state.leader.as_ref();
    let sentence = leader.map(|leader| views::sentence(leader, state.is_self) + "\n");
    print(format.render(|_| sentence.unwrap_or_default(), &answer.text()))
}

/// Replaces this process with the program. Returns only if that fails. The program gets the leader in the same
/// environment variables as a hook.
fn become_program(program: &OsStr, arguments: &[OsString], state: &LeaderState) -> ClientError {
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(leader) = &state.leader {
        command.env("BELLWETHER_LEADER_ID", &leader.id);
        command.env("BELLWETHER_LEADER_TOKEN", leader.token.to_string());
        command.envs(leader.address.as_ref().map(|address| ("BELLWETHER_LEADER_ADDRESS", address)));
    }
    ClientError::unrunnable(program, &command.exec())
}
