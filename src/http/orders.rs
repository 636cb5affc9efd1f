//! What an operator or a `preStop` hook may tell this member to do.
//!
//! An order needs the header `X-Bellwether`, whatever it says: a page in a browser cannot send it
//! across origins without asking first, and is never allowed to.

use super::Sight;
use super::problem::Problem;
use crate::desk::{Order, Request};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use std::time::Duration;
use tokio::sync::oneshot;

/// For ZooKeeper to answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize)]
pub(super) struct Done {
    done: &'static str,
    role: &'static str,
    /// Where this member stands now, or null if it does not, or not yet.
    znode: Option<String>,
    predecessor: Option<String>,
}

type Answer = Result<(StatusCode, Json<Done>), Problem>;

/// Gives leadership up and goes to the tail of the line.
pub(super) async fn resign(State(sight): State<Sight>, headers: HeaderMap) -> Answer {
    allowed(&headers)?;
    let before = sight.judge();
    if !before.leads() {
        return Err(Problem::conflict("not-leader", "only a leader can resign", before.reason()));
    }
    let old = before.report.standing.ticket();
    order(&sight, &headers, Order::Resign).await?;
    let mut reports = sight.desk.report.clone();
    let placed = reports.wait_for(|report| {
        let standing = &report.standing;
        standing.ticket().is_some_and(|ticket| Some(ticket) != old)
            && (standing.predecessor().is_some() || standing.is_first())
    });
    // If it takes longer, the answer says that it does not stand yet.
    let _placed_or_not = tokio::time::timeout(PATIENCE, placed).await;
    Ok((StatusCode::ACCEPTED, Json(sight.done("resigned"))))
}

/// Leaves the line, and stays out until told to resume.
pub(super) async fn pause(State(sight): State<Sight>, headers: HeaderMap) -> Answer {
    order(&sight, &headers, Order::Pause).await?;
    Ok((StatusCode::OK, Json(sight.done("paused"))))
}

/// Stands in the line again.
pub(super) async fn resume(State(sight): State<Sight>, headers: HeaderMap) -> Answer {
    order(&sight, &headers, Order::Unpause).await?;
    Ok((StatusCode::ACCEPTED, Json(sight.done("resumed"))))
}

/// For a `preStop` hook: out of the line, and handed over if it led, when the answer comes.
pub(super) async fn drain(State(sight): State<Sight>, headers: HeaderMap) -> Answer {
    order(&sight, &headers, Order::Pause).await?;
    Ok((StatusCode::OK, Json(sight.done("drained"))))
}

fn allowed(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key("x-bellwether") { Ok(()) } else { Err(Problem::forbidden()) }
}

async fn order(sight: &Sight, headers: &HeaderMap, order: Order) -> Result<(), Problem> {
    allowed(headers)?;
    let late = || {
        let why = "the order was taken but is not carried out yet: see /status";
        Problem::unavailable("order-pending", "not done yet", why)
    };
    let (done, when_done) = oneshot::channel();
    let asked = sight.desk.requests.try_send(Request::Carry(order, done));
    let full = "too many ask at once: try again";
    asked.map_err(|_| Problem::unavailable("too-many-ask", "not taken", full))?;
    match tokio::time::timeout(PATIENCE, when_done).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) if order == Order::Pause => {
            let why = "this member is out of the line for its part, but ZooKeeper did not confirm \
                       it: its znode may stand until the session times out";
            Err(Problem::unavailable("unconfirmed", "not confirmed", why))
        }
        Ok(Ok(false)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(late()),
    }
}

impl Sight {
    fn done(&self, done: &'static str) -> Done {
        let verdict = self.judge();
        let standing = &verdict.report.standing;
        let name = |sequence: crate::election::Sequence| sequence.name(&self.names.prefix);
        Done {
            done,
            role: verdict.role_name(),
            znode: standing.ticket().map(|ticket| name(ticket.sequence)),
            predecessor: standing.predecessor().map(name),
        }
    }
}
