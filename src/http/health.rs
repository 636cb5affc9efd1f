//! Health checks of this process for supervisors such as Kubernetes, which read the HTTP status.

use super::AppState;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Reports whether the process is sound: `ok`, or the check that failed.
///
/// The process is sound as long as the election's loop runs, whether or not ZooKeeper can be reached.
pub(super) async fn livez(State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    let verdict = app.evaluate();
    let loop_runs = verdict.snapshot.loop_runs(verdict.now);
    let reason = if loop_runs {
        "the election's loop turns".into()
    } else {
        let idle = verdict.now.since(verdict.snapshot.last_looped_at);
        format!("the election's loop has not turned for {idle:?}")
    };
    answer("livez", &[("loop", loop_runs, reason)], query.as_deref())
}

/// Reports whether this member is ready: it is in the queue, and knows a leader, itself or another member.
pub(super) async fn readyz(State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    let verdict = app.evaluate_and_claim();
    let is_in_queue = verdict.snapshot.standing.ticket().is_some();
    let place = if is_in_queue { "in the queue".into() } else { verdict.reason() };
    let checks =
        [("queue", is_in_queue, place), ("leader", verdict.leader().is_some(), verdict.reason())];
    answer("readyz", &checks, query.as_deref())
}

/// Answers as Kubernetes' own components do: with `ok`, or with all checks if one of them failed or the query has `verbose`.
/// A check is its name, true if it passed, and the reason.
fn answer(name: &str, checks: &[(&str, bool, String)], query: Option<&str>) -> Response {
    let passed = checks.iter().all(|(_, passed, _)| *passed);
    let is_verbose = query.is_some_and(|query| {
        query.split('&').any(|pair| pair.split('=').next() == Some("verbose"))
    });
    let mut text = String::new();
    if !passed || is_verbose {
        for (check, passed, reason) in checks {
            let sign = if *passed { "[+]" } else { "[-]" };
            let ok = if *passed { "ok" } else { "failed" };
            text += &format!("{sign}{check} {ok}: {reason}\n");
        }
        text += &format!("{name} check {}\n", if passed { "passed" } else { "failed" });
    } else {
        text += "ok";
    }
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let retry = [(header::RETRY_AFTER, "1")];
    match passed {
        true => (StatusCode::OK, plain, text).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, plain, retry, text).into_response(),
    }
}
