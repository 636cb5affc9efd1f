//! Waits until there is a leader, over as many lives of the sidecar as it takes.

use super::sidecar::{Sidecar, SidecarAnswer, blocking};
use super::{ClientError, OutputFormat, formed, print, remark, views};
use crate::api::{LEADER, LeaderState};
use hyper::Method;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_millis(250);

/// Which member has to lead for the wait to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    AnyLeader,
    /// The member that is asked.
    Itself,
}

/// The state to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub whom: WaitFor,
    pub at_most: Option<Duration>,
}

/// Ends with the wait, or becomes the command, if there is one.
pub(super) async fn wait(
    sidecar: &Sidecar,
    waiting: &Waiting,
    command: &[OsString],
    form: &OutputFormat,
) -> Result<(), ClientError> {
    let mut last = LastAttempt { why: "it has not answered".to_owned(), is_answer: false };
    let until = until_leads(sidecar, waiting, &mut last);
    let answered = match waiting.at_most {
        Some(limit) => timeout(limit, until).await.ok().ok_or(limit),
        None => Ok(until.await),
    };
    let (answer, state) = answered.map_err(|limit| {
        let why = format!("not within {limit:?}: {}", last.why);
        if last.is_answer { ClientError::No(why) } else { ClientError::Unanswered(why) }
    })?;
    if let [program, arguments @ ..] = command {
        return Err(become_program(program, arguments, &state));
    }
    let leader = state.leader.as_ref();
    print(&formed(
        form,
        |_| leader.map(|leader| views::sentence(leader, state.is_self) + "\n").unwrap_or_default(),
        answer.text(),
    )?)
}

/// Why the wait has not ended.
struct LastAttempt {
    why: String,
    /// The sidecar said so. Otherwise it could not be asked.
    is_answer: bool,
}

/// Returns only if that fails. The program knows the leader as hooks do.
fn become_program(program: &OsStr, arguments: &[OsString], state: &LeaderState) -> ClientError {
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(leader) = &state.leader {
        command.env("BELLWETHER_LEADER_ID", &leader.id);
        command.env("BELLWETHER_LEADER_TOKEN", leader.token.to_string());
        command.envs(leader.address.as_ref().map(|address| ("BELLWETHER_LEADER_ADDRESS", address)));
    }
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    ClientError::Unrunnable(code, format!("cannot run {}: {error}", program.display()))
}

impl Waiting {
    fn is_over(&self, is_self: bool) -> bool {
        self.whom == WaitFor::AnyLeader || is_self
    }
}

/// The caller drops this future when it has waited long enough.
async fn until_leads(
    sidecar: &Sidecar,
    waiting: &Waiting,
    last: &mut LastAttempt,
) -> (SidecarAnswer, LeaderState) {
    let mut seen = None;
    let mut troubled = false;
    loop {
        let (path, patience) = blocking(LEADER.path, seen);
        let answer = sidecar.ask(Method::GET, &path, patience).await;
        let read = answer.and_then(|answer| match answer.body::<LeaderState>() {
            Err(ClientError::No(why)) => Ok(Err((why, answer.index()))),
            state => state.map(|state| Ok((answer, state))),
        });
        let is_answer = read.is_ok();
        let why;
        (why, seen) = match read {
            Ok(Ok((answer, state))) => match &state.leader {
                Some(_) if waiting.is_over(state.is_self) => return (answer, state),
                Some(leader) => (views::sentence(leader, false), state.index),
                None => ("no member leads".to_owned(), state.index),
            },
            // A new index is a change; the same one means that the sidecar accepts no further waiting clients.
            Ok(Err((why, index))) => (why, index.filter(|index| seen != Some(*index))),
            Err(trouble) => {
                let why = trouble.told().1.unwrap_or_default();
                if !troubled {
                    remark(&format!("{why}; waiting"));
                    troubled = true;
                }
                (why, None)
            }
        };
        *last = LastAttempt { why, is_answer };
        if seen.is_none() {
            sleep(PAUSE).await;
        }
    }
}
