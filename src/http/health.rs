//! For supervisors and load balancers: yes or no, as the status.

use super::Sight;
use super::Verdict;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::Duration;

/// The driver turns every second; after this long it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Sound as long as the election's loop turns, whether or not ZooKeeper is there.
pub(super) async fn livez(State(sight): State<Sight>, RawQuery(query): RawQuery) -> Response {
    let verdict = sight.judge();
    let idle = verdict.now.since(verdict.report.turned_at);
    let turns = idle <= STUCK_AFTER;
    let reason = if turns {
        "the election's loop turns".into()
    } else {
        format!("the election's loop has not turned for {idle:?}")
    };
    told("livez", &[("loop", turns, reason)], query.as_deref())
}

/// Ready to answer: this member stands in the line and knows a leader, itself or another.
pub(super) async fn readyz(State(sight): State<Sight>, RawQuery(query): RawQuery) -> Response {
    let verdict = sight.judge();
    let stands = verdict.report.standing.ticket().is_some();
    let place = if stands { "in the line".into() } else { verdict.reason() };
    let checks =
        [("line", stands, place), ("leader", verdict.leader().is_some(), verdict.reason())];
    told("readyz", &checks, query.as_deref())
}

/// The way of Kubernetes' own components: `ok`, or what failed; `?verbose` tells every check.
fn told(name: &str, checks: &[(&str, bool, String)], query: Option<&str>) -> Response {
    let well = checks.iter().all(|(_, well, _)| *well);
    let asks = |word: &str| {
        query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some(word)))
    };
    let mut text = String::new();
    if !well || asks("verbose") {
        for (check, well, reason) in checks {
            let sign = if *well { "[+]" } else { "[-]" };
            let ok = if *well { "ok" } else { "failed" };
            text += &format!("{sign}{check} {ok}: {reason}\n");
        }
        text += &format!("{name} check {}\n", if well { "passed" } else { "failed" });
    } else {
        text += "ok";
    }
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let retry = [(header::RETRY_AFTER, "1")];
    match well {
        true => (StatusCode::OK, plain, text).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, plain, retry, text).into_response(),
    }
}

/// As Patroni names them, and HAProxy asks for them.
pub(super) mod patroni {
    use super::*;

    pub(crate) async fn primary(State(sight): State<Sight>) -> Response {
        answer(sight.judge(), Verdict::leads)
    }

    pub(crate) async fn replica(State(sight): State<Sight>) -> Response {
        answer(sight.judge(), Verdict::follows)
    }

    /// Leader or follower: whoever may serve reads.
    pub(crate) async fn read_only(State(sight): State<Sight>) -> Response {
        answer(sight.judge(), |verdict| verdict.leads() || verdict.follows())
    }

    /// In the line, whoever leads.
    pub(crate) async fn health(State(sight): State<Sight>) -> Response {
        answer(sight.judge(), |verdict| verdict.report.standing.ticket().is_some())
    }

    fn answer(verdict: Verdict, is_so: impl Fn(&Verdict) -> bool) -> Response {
        (super::super::yes_or_no(is_so(&verdict)), axum::Json(verdict.is())).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::desk;
    use crate::election::Moment;
    use crate::election::{Disconnect, Margins, Member, MemberId, Policy, Profile};
    use crate::http::{Names, routers};
    use axum::body::Body;
    use axum::http::Request;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tower::util::ServiceExt;

    #[tokio::test]
    async fn a_loop_that_has_not_turned_for_half_a_minute_is_stuck() {
        assert_eq!(livez(Duration::ZERO).await, StatusCode::OK);
        assert_eq!(livez(Duration::from_secs(29)).await, StatusCode::OK);
        assert_eq!(livez(Duration::from_secs(31)).await, StatusCode::SERVICE_UNAVAILABLE);
    }

    /// What is answered when the loop turned so long ago.
    async fn livez(ago: Duration) -> StatusCode {
        let ms = Duration::from_millis;
        let (id, labels) = (MemberId::new("a").unwrap(), BTreeMap::new());
        let profile = Profile { id, address: None, labels, revision: 0 };
        let margins = Margins { heartbeat: ms(1000), half_tick: ms(1000) };
        let policy = Policy { margins, disconnect: Disconnect::Hold };
        let member = Member::new(Arc::new(profile), policy);
        let clock = Clock::system();
        let turned_at = clock.now().0.checked_sub(ago).expect("up for a minute");
        let (_back, front) = desk::set_up(&member, Moment(turned_at));
        let names = Names { election: "/election".into(), prefix: "leader_".into() };
        let request = Request::get("/livez").body(Body::empty()).unwrap();
        routers(front, clock, names).api.oneshot(request).await.unwrap().status()
    }
}
