//! Commands to this member, from operators and from `preStop` hooks.

use super::authorize::Authorized;
use super::problem::ProblemResponse;
use super::query::{NoQuery, Query};
use super::{AppState, body};
use crate::api::{Done, Transfer, Transferred, millis};
use crate::transfer::{self, Refusal};
use axum::Json;
use axum::body::HttpBody;
use axum::extract::{self, State};
use axum::http::StatusCode;
use recipes::election::Command;
use std::time::Duration;

/// How long `drain` waits for the hooks to run for the end of this member's leadership.
const HOOKS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long `resign` waits until this member has joined again and knows its place in the queue.
const REJOIN_TIMEOUT: Duration = Duration::from_secs(5);

type CommandResult = Result<(StatusCode, Json<Done>), ProblemResponse>;

/// Gives up leadership, and joins the queue again at the tail.
pub(super) async fn resign(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
) -> CommandResult {
    let before = app.evaluate();
    if !before.leads() {
        return Err(ProblemResponse::conflict("not-leader", before.reason()));
    }
    let old_ticket = before.snapshot.standing.ticket();
    app.command(Command::Resign).await?;
    let placed = app.status.until(REJOIN_TIMEOUT, |snapshot| {
        let standing = &snapshot.standing;
        standing.ticket().is_some_and(|ticket| Some(ticket) != old_ticket)
            && (standing.predecessor().is_some() || standing.is_first())
    });
    // If joining takes longer, the answer says that this member is not in the queue yet.
    let _ignored = placed.await;
    Ok((StatusCode::ACCEPTED, Json(app.done("resigned"))))
}

/// Moves leadership to another member. This member keeps leading until the target is ready to lead at once.
///
/// Without `to`, any member may become the leader, and members that are not ready are skipped.
pub(super) async fn transfer(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
    request: extract::Request,
) -> Result<Json<Transferred>, ProblemResponse> {
    const EXAMPLE: &str = r#"{"to": "app-1", "within_ms": 30000}, or {} for any member"#;
    let wanted: Transfer = match request.body().is_end_stream() {
        true => Transfer::default(),
        false => body::object(request, EXAMPLE).await?,
    };
    let within = wanted.within_ms.map_or(Transfer::WITHIN, Duration::from_millis);
    if within.is_zero() || within > Transfer::LONGEST {
        let found = within.as_millis();
        let most = Transfer::LONGEST.as_millis();
        let why = format!("within_ms is {found}, and must be 1 to {most}");
        return Err(ProblemResponse::unprocessable(why));
    }
    if let Some(family) = app.names.znodes.family() {
        let why = format!(
            "contenders of {family} (election.compatible_with) cannot be asked to make way: after POST /resign, the \
             next contender in the queue leads, whichever client it belongs to"
        );
        return Err(ProblemResponse::conflict("foreign-contenders", why));
    }
    // Yield, so that the server drops this command if its client has closed the connection: see `AppState::command`.
    tokio::task::yield_now().await;
    match transfer::transfer(&app.status, app.clock, wanted.to.as_deref(), within).await {
        Ok(transfer::TransferDone { leader, leaderless }) => {
            let leader = app.leader(&leader);
            Ok(Json(Transferred { leader, leaderless_ms: millis(leaderless) }))
        }
        Err(refusal @ Refusal::QueueUnavailable(_)) => {
            Err(ProblemResponse::unread(refusal.kind(), refusal))
        }
        Err(Refusal::CommandPending(error)) => Err(ProblemResponse::command_failed(error)),
        Err(refusal @ Refusal::NotLeader) => {
            Err(ProblemResponse::conflict(refusal.kind(), app.evaluate().reason()))
        }
        Err(refusal @ Refusal::LeaderUnknown) => {
            Err(ProblemResponse::unavailable(refusal.kind(), refusal.to_string()))
        }
        Err(refusal) => Err(ProblemResponse::conflict(refusal.kind(), refusal.to_string())),
    }
}

/// Leaves the queue, and stays out until `/resume`.
pub(super) async fn pause(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
) -> CommandResult {
    app.command(Command::Pause).await?;
    Ok((StatusCode::OK, Json(app.done("paused"))))
}

/// Joins the queue again.
pub(super) async fn resume(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
) -> CommandResult {
    app.command(Command::Resume).await?;
    Ok((StatusCode::ACCEPTED, Json(app.done("resumed"))))
}

/// Leaves the queue, for a `preStop` hook of Kubernetes. The answer comes when this member has left, and its own hooks have
/// run for the end of its leadership.
pub(super) async fn drain(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
) -> CommandResult {
    app.command(Command::Pause).await?;
    if app.status.until_hooks_have_run(HOOKS_TIMEOUT).await.is_err() {
        let why = "this member is out of the queue, but its hooks are not done yet: see /status";
        return Err(ProblemResponse::unavailable("hooks-pending", why));
    }
    Ok((StatusCode::OK, Json(app.done("drained"))))
}

/// Makes the process leave the queue and exit, like SIGTERM. For Jobs, whose pod ends with its last container.
pub(super) async fn shutdown(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
) -> (StatusCode, Json<Done>) {
    let done = app.done("begun to leave");
    app.status.shutdown.notify_one();
    (StatusCode::ACCEPTED, Json(done))
}

impl AppState {
    /// Sends a command to the election, and returns when it has been carried out. `Pause` also fails if ZooKeeper does
    /// not confirm the end of the session: this member's znode may then still be in the queue.
    pub(super) async fn command(&self, command: Command) -> Result<(), ProblemResponse> {
        let must_end_session = command == Command::Pause;
        // Do not carry out a command if its client has closed the connection: after it was stopped for a while, this
        // process reads old requests. While this future yields, the server sees the closed connection, and drops this
        // future.
        tokio::task::yield_now().await;
        match self.status.command(command, self.clock.now()).await {
            Ok(confirmed) if confirmed || !must_end_session => Ok(()),
            Ok(_) => {
                let why = "this member has left the queue, but ZooKeeper did not confirm it: its \
                           znode may exist until the session times out";
                Err(ProblemResponse::unavailable("unconfirmed", why))
            }
            Err(error) => Err(ProblemResponse::command_failed(error)),
        }
    }

    /// Returns the body of the answer to a command that was carried out.
    fn done(&self, outcome: &str) -> Done {
        let verdict = self.evaluate_and_claim();
        let standing = &verdict.snapshot.standing;
        let znodes = &self.names.znodes;
        Done {
            done: outcome.to_owned(),
            role: verdict.role_name(),
            znode: standing.ticket().map(|ticket| znodes.name(ticket.sequence)),
            predecessor: standing.predecessor().map(|sequence| znodes.name(sequence)),
        }
    }
}
