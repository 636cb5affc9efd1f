//! Answers who leads, at once or as soon as that has changed.

use super::blocking::{BlockingQuery, Wait};
use super::problem::{ProblemResponse, RETRY_AFTER};
use super::query::Query;
use super::{AppState, INDEX, Verdict};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

/// The leader, as far as this member knows.
pub(super) async fn leader(
    State(app): State<AppState>,
    Query(wait): Query<Wait>,
) -> Result<Response, ProblemResponse> {
    let query = app.blocking_query(wait)?;
    let verdict = match &query {
        Some(query) => app.leader_change(query).await,
        None => app.evaluate(),
    };
    app.claim(&verdict);
    let index = verdict.index();
    if verdict.leader().is_none() {
        // After a blocking query, the client need not pause: while no leader is known, its next query also waits for at
        // least a heartbeat, whichever index the query has.
        let retry_after = if query.is_some() { 0 } else { RETRY_AFTER };
        return Err(ProblemResponse { index, retry_after, ..verdict.no_leader() });
    }
    Ok((index.map(|index| [(INDEX, index)]), Json(app.state(&verdict))).into_response())
}

impl AppState {
    /// Waits until the index differs from the query's. If no leader is known then, waits for the next leader, but for
    /// at most a heartbeat: between two leaders, none is known for a moment, and a client that was answered "no leader"
    /// would learn of the next leader only by another query. So a client that keeps sending an old index gets one
    /// answer per heartbeat while no leader is known.
    ///
    /// The end of this member's own leadership is returned at once, if the query has the index of that leadership.
    async fn leader_change(&self, query: &BlockingQuery) -> Verdict {
        let at_start = self.evaluate();
        let seen = Some(query.seen);
        let seen_own_leadership = seen == at_start.index() && at_start.leads();
        let changed = query.or_timeout(async {
            let verdict = self.changed_since(seen).await?;
            if seen_own_leadership || verdict.leader().is_some() {
                return Some(verdict);
            }
            let next = self.until(|verdict| verdict.leader().is_some());
            tokio::time::timeout(self.status.heartbeat, next).await.ok()?
        });
        // If the wait ended without a leader, or this process ends, answer with the present state.
        changed.await.flatten().unwrap_or_else(|| self.evaluate())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MemberFixture, ticket};
    use super::super::tests::{ask, probes};
    use super::*;
    use axum::body::Body;
    use axum::http::{StatusCode, header};
    use http_body_util::BodyExt;
    use recipes::election::Event;
    use serde_json::Value;
    use std::time::Duration;
    use tokio::time::Instant;

    /// The time between two heartbeats of the members of tests.
    const HEARTBEAT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_blocking_query_waits_for_the_next_leader_and_not_for_the_end_of_the_last_one() {
        let mut scene = MemberFixture::new();
        scene.follows(4);
        let path = format!("/leader?index={}", index(&scene).await);
        let service = scene.service.clone();
        let answer = ask(&service, &path);
        tokio::pin!(answer);
        assert!(futures_util::poll!(&mut answer).is_pending());
        let token = Some(ticket(4).token);
        scene.step(Event::PredecessorGone { predecessor: ticket(4).sequence, token });
        assert_eq!(body(ask(&scene.service, "/status").await).await["role"], "candidate");
        assert!(futures_util::poll!(&mut answer).is_pending(), "the next one is yet to be known");
        scene.is_acknowledged();
        let answer = body(answer.await).await;
        assert_eq!((&answer["is_self"], &answer["leader"]["token"]), (&true.into(), &5.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn while_no_leader_is_known_each_query_takes_a_heartbeat_and_returns_the_index() {
        let mut scene = MemberFixture::new();
        scene.follows(4);
        let old = index(&scene).await;
        scene.loses(5);
        let path = format!("/leader?index={old}");
        for _ in 0..3 {
            let asked = Instant::now();
            let answer = ask(&scene.service, &path).await;
            assert_eq!(asked.elapsed().as_secs(), HEARTBEAT.as_secs(), "no loop runs hot");
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers()[header::RETRY_AFTER], "0", "it has waited already");
            let header = answer.headers()[INDEX].to_str().unwrap().to_owned();
            let new = body(answer).await["index"].as_u64();
            assert!(new > Some(old), "{new:?}");
            assert_eq!(new.unwrap().to_string(), header);
        }
        let asked = Instant::now();
        let path = format!("/leader?index={}&wait=1m", index(&scene).await);
        assert_eq!(ask(&scene.service, &path).await.headers()[header::RETRY_AFTER], "0");
        assert_eq!(asked.elapsed().as_secs(), 60, "nothing has changed since that index");
        let poll = ask(&scene.service, "/leader").await;
        assert_eq!(poll.headers()[header::RETRY_AFTER], "1", "a poll does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_its_own_leadership_ends_a_query_at_once() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let path = format!("/leader?index={}", index(&scene).await);
        let service = scene.service.clone();
        let answer = ask(&service, &path);
        tokio::pin!(answer);
        assert!(futures_util::poll!(&mut answer).is_pending());
        let lost = Instant::now();
        scene.loses(4);
        assert_eq!(answer.await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(lost.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_query_that_asks_for_an_impossible_wait_is_refused_with_the_remedy() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let index = index(&scene).await;
        for (query, named) in [
            ("index=x".into(), "index: invalid digit"),
            (format!("index={index}&wait=11m"), "10m"),
            (format!("index={index}&wait=soon"), "30s"),
            ("wait=30s".into(), "index"),
        ] {
            let answer = ask(&scene.service, &format!("/leader?{query}")).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{query}");
            let problem = body(answer).await;
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(named), "{query}: {detail}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_has_not_joined_has_no_index_and_any_other_index_is_a_change() {
        let mut scene = MemberFixture::new();
        let path = format!("/leader?index={}&wait=1m", 1_u64 << 52);
        let asked = Instant::now();
        let answer = ask(&scene.service, &path).await;
        assert_eq!(asked.elapsed().as_secs(), HEARTBEAT.as_secs(), "no loop runs hot");
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(!answer.headers().contains_key(INDEX));
        assert_eq!(body(answer).await["index"], Value::Null);
        assert_eq!(body(ask(&scene.service, "/status").await).await["index"], Value::Null);
        scene.leads(4);
        let answer = ask(&scene.service, &path).await;
        assert_eq!(answer.status(), StatusCode::OK, "an index of another member");
        assert_eq!(body(answer).await["index"], index(&scene).await);
    }

    #[tokio::test]
    async fn where_no_client_can_wait_a_query_for_it_is_refused() {
        let (probes, _back) = probes();
        assert_eq!(ask(&probes, "/leader").await.status(), StatusCode::SERVICE_UNAVAILABLE);
        let refused = ask(&probes, "/leader?index=1&wait=30s").await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert!(body(refused).await["detail"].as_str().unwrap().contains("http.listen"));
    }

    async fn index(scene: &MemberFixture) -> u64 {
        body(ask(&scene.service, "/status").await).await["index"].as_u64().unwrap()
    }

    async fn body(answer: Response) -> Value {
        let body: Body = answer.into_body();
        serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap()
    }
}
