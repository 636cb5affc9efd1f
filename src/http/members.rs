//! The queue, in order, as it was last read.

use super::blocking::Wait;
use super::problem::ProblemResponse;
use super::query::Query;
use super::{AppState, problems};
use crate::api::Members;
use crate::queue_report;
use crate::status::QueueReading;
use axum::Json;
use axum::extract::State;
use std::time::Duration;

/// How often the queue is read while clients wait for a change of it.
const READING_INTERVAL: Duration = Duration::from_secs(1);

/// The queue, in order, and its problems; read from ZooKeeper at most once a second, and after a change of the leader.
///
/// With `index`, the answer comes when a member has joined or left since that index. The queue is then read once a
/// second, however many clients wait.
pub(super) async fn members(
    State(app): State<AppState>,
    Query(wait): Query<Wait>,
) -> Result<Json<Members>, ProblemResponse> {
    let query = app.blocking_query(wait)?;
    let read = app.status.members().await;
    let mut queue = read.map_err(|why| ProblemResponse::unread("queue-unavailable", why))?;
    if let Some(query) = query {
        let changed = query.or_timeout(async {
            while queue.index == query.seen {
                tokio::time::sleep(READING_INTERVAL).await;
                // Clients that wait share a reading, so they send the runner at most one request in a second, however many
                // they are. A reading that fails is repeated.
                if let Ok(next) = app.members_read.get(app.clock, app.status.members()).await {
                    queue = next;
                }
            }
        });
        // If the time limit passes first, the answer has the last reading.
        let _ignored = changed.await;
    }
    Ok(Json(body(&app, &queue)))
}

fn body(app: &AppState, queue: &QueueReading) -> Members {
    let verdict = app.evaluate_and_claim();
    let leader = verdict.leader().map(|leader| leader.ticket);
    let own = verdict.snapshot.standing.ticket();
    let mut body = queue_report::members(queue, leader, own, &app.names.znodes);
    body.problems = problems::of_election(app, &verdict).chain(body.problems).collect();
    body
}

#[cfg(test)]
mod tests {
    use super::super::tests::{api, ask};
    use http_body_util::BodyExt;
    use std::time::Duration;

    #[tokio::test]
    async fn without_a_connection_the_answer_is_why_there_is_none() {
        let (service, back) = api(Duration::ZERO);
        let why = "no session with ZooKeeper at h:1: h:1 cannot be reached: Connection refused";
        back.amend(|snapshot| snapshot.link.problem = Some(why.into()));
        let answer = ask(&service, "/members").await;
        assert_eq!(answer.status(), 503);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(why), "{body:?}");
    }
}
