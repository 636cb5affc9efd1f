//! Waits until there is a leader, even if the sidecar restarts meanwhile.

use super::poll::{Poll, Polled};
use super::{ClientError, OutputFormat, Sidecar, SidecarAnswer, print, views};
use crate::api::{LEADER, LeaderState};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::time::timeout;

/// Waits for the leader. Then prints the answer, or becomes the command, if there is one.
pub(super) async fn wait(
    sidecar: &Sidecar,
    itself: bool,
    at_most: Option<Duration>,
    command: &[OsString],
    form: OutputFormat,
) -> Result<(), ClientError> {
    let mut last = ClientError::Unanswered("it has not answered".to_owned());
    let until = until_leads(sidecar, itself, &mut last);
    let answered = match at_most {
        Some(limit) => timeout(limit, until).await.ok().ok_or(limit),
        None => Ok(until.await),
    };
    let (answer, state) = answered.map_err(|limit| {
        let why = format!("not within {limit:?}: {}", last.message().unwrap_or_default());
        match last {
            ClientError::No(_) => ClientError::No(why),
            _ => ClientError::Unanswered(why),
        }
    })?;
    if let [program, arguments @ ..] = command {
        return Err(become_program(program, arguments, &state));
    }
    let leader = state.leader.as_ref();
    let sentence = leader.map(|leader| views::sentence(leader, state.is_self) + "\n");
    print(form.render(|_| sentence.unwrap_or_default(), &answer.text()))
}

/// Replaces this process with the program. Returns only if that fails. The leader is in the same environment variables as
/// for hooks.
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

/// Waits for the leader. The caller drops this future at its time limit, when `last` says why the wait has not ended.
async fn until_leads(
    sidecar: &Sidecar,
    itself: bool,
    last: &mut ClientError,
) -> (SidecarAnswer, LeaderState) {
    let mut poll = Poll::new(sidecar, LEADER.path, SidecarAnswer::body::<LeaderState>);
    loop {
        let why = match poll.next().await {
            Ok(Polled { answer, state: Ok(state), .. }) => match &state.leader {
                Some(_) if state.is_self || !itself => return (answer, state),
                Some(leader) => views::sentence(leader, false),
                None => "no member leads".to_owned(),
            },
            Ok(Polled { state: Err(why), .. }) => why,
            Err(trouble) => {
                // The sidecar may have restarted, so that the next answer counts whatever its index is.
                poll.seen = None;
                *last = trouble;
                continue;
            }
        };
        *last = ClientError::No(why);
    }
}
