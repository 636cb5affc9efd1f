//! The queue, in order, as it was last read.

use super::api_router::{ApiRouter, routes};
use super::problem::{Problem, Unavailable};
use super::{AppState, Verdict, claim};
use crate::api::{self, Member, Members, Standby};
use crate::status::Entry;
use axum::Json;
use axum::extract::State;
use std::time::{Duration, SystemTime};

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(members))
}

/// The queue, in order; read from ZooKeeper at most once a second, and anew after a change of who leads.
#[utoipa::path(get, path = api::MEMBERS.path, responses(
    (status = 200, description = "The queue", body = Members),
    Unavailable,
))]
async fn members(State(sight): State<AppState>) -> Result<Json<Members>, Problem> {
    let entries = sight.status.members().await.map_err(Problem::line_unread)?;
    let verdict = sight.judge();
    claim::follow(&verdict);
    Ok(Json(Members { members: bodies(&sight, &verdict, &entries) }))
}

/// Returns the members as bodies have them.
pub(super) fn bodies(sight: &AppState, verdict: &Verdict, entries: &[Entry]) -> Vec<Member> {
    let leader = verdict.leader().map(|leader| leader.ticket.token);
    let own = verdict.snapshot.standing.ticket().map(|ticket| ticket.token);
    let member = |(at, entry): (usize, &Entry)| Member {
        id: entry.profile.as_ref().map(|profile| profile.id.to_string()),
        znode: entry.ticket.sequence.name(&sight.names.prefix),
        sequence: entry.ticket.sequence.number(),
        address: entry.profile.as_ref().and_then(|profile| profile.address.clone()),
        labels: entry.profile.as_ref().map(|p| p.labels.clone()).unwrap_or_default(),
        is_leader: leader == Some(entry.ticket.token),
        is_self: own == Some(entry.ticket.token),
        standby: (at == 1).then_some(Standby { ready: entry.ready }),
        names: entry.names.as_ref().map(|names| names.leader.id.to_string()),
        version: entry.version.clone(),
        since: entry.state.and_then(|state| since(state.since_ms)),
        healthy: entry.state.and_then(|state| state.healthy),
        hooks_failing: entry.state.map(|state| state.hooks_failing),
    };
    entries.iter().enumerate().map(member).collect()
}

/// Returns the date; `None` for one that no clock has shown: another wrote it.
fn since(since_ms: u64) -> Option<String> {
    // The year 9999, behind which there is no date of four digits.
    let is_date = since_ms < 253_402_300_800_000;
    is_date.then(|| api::date(SystemTime::UNIX_EPOCH + Duration::from_millis(since_ms)))
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
        back.snapshot.send_modify(|snapshot| snapshot.link.problem = Some(why.into()));
        let answer = ask(&service, "/members").await;
        assert_eq!(answer.status(), 503);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(why), "{body:?}");
    }
}
