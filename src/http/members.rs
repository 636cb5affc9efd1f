//! The queue, in order, as it was last read.

use super::blocking::Wait;
use super::problem::ProblemResponse;
use super::query::Query;
use super::{AppState, Verdict, problems};
use crate::api::{self, Members, QueueMember, Standby};
use crate::status::{MemberEntry, QueueReading};
use axum::Json;
use axum::extract::State;
use recipes::election::Announcement;
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
    let mut queue = app.status.members().await.map_err(ProblemResponse::queue_unread)?;
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
    Members {
        members: queue_members(app, &verdict, &queue.members),
        problems: problems::of_queue(app, &verdict, &queue.members),
        index: queue.index,
    }
}

/// Returns the position of the member that leads next: right behind the leader, or, if the queue has no known leader,
/// right behind the head. The leader need not be at position 0, because an unknown znode may be ahead of it.
pub(super) fn standby_position(leader: Option<&Announcement>, entries: &[MemberEntry]) -> usize {
    entries
        .iter()
        .position(|entry| leader.is_some_and(|leader| leader.ticket == entry.ticket))
        .unwrap_or(0)
        + 1
}

/// Converts the entries into the members of a body.
fn queue_members(app: &AppState, verdict: &Verdict, entries: &[MemberEntry]) -> Vec<QueueMember> {
    let leader_token = verdict.leader().map(|leader| leader.ticket.token);
    let own_token = verdict.snapshot.standing.ticket().map(|ticket| ticket.token);
    let next = standby_position(verdict.leader(), entries);
    let has_readiness = app.names.znodes.family().is_none();
    entries
        .iter()
        .enumerate()
        .map(|(position, entry)| QueueMember {
            id: entry.profile.as_ref().map(|profile| profile.id.to_string()),
            znode: app.names.znodes.name(entry.ticket.sequence),
            sequence: entry.ticket.sequence.number(),
            address: entry.profile.as_ref().and_then(|profile| profile.address.clone()),
            labels: entry.profile.as_ref().map(|p| p.labels.clone()).unwrap_or_default(),
            is_leader: leader_token == Some(entry.ticket.token),
            is_self: own_token == Some(entry.ticket.token),
            // In another client's queue, the znodes do not say whether a standby is ready.
            standby: (position == next && has_readiness).then_some(Standby { ready: entry.ready }),
            names: entry.announcement.as_ref().map(|announced| announced.leader.id.to_string()),
            version: entry.version.clone(),
            priority: entry.priority.number(),
            since: Some(api::date(entry.created_at)),
        })
        .collect()
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
