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
