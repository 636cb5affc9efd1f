//! Health checks for supervisors, which read the HTTP status.

use super::AppState;
use crate::api;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::{IntoParams, IntoResponses};

/// Reports whether the process is sound, with or without ZooKeeper: `ok`, or the check that failed.
///
/// The process is sound as long as the election's loop runs, whether or not ZooKeeper can be reached.
#[utoipa::path(get, path = api::LIVEZ.path, params(Verbose), responses(Checks))]
pub(super) async fn livez(State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    let verdict = app.judge();
    let turns = verdict.snapshot.loop_runs(verdict.now);
    let reason = if turns {
        "the election's loop turns".into()
    } else {
        let idle = verdict.now.since(verdict.snapshot.last_looped_at);
        format!("the election's loop has not turned for {idle:?}")
    };
    answer("livez", &[("loop", turns, reason)], query.as_deref())
}

/// Reports whether this member is ready: it is in the queue, and knows a leader, itself or another member.
#[utoipa::path(get, path = api::READYZ.path, params(Verbose), responses(Checks))]
pub(super) async fn readyz(State(app): State<AppState>, RawQuery(query): RawQuery) -> Response {
    let verdict = app.judge_and_claim();
    let stands = verdict.snapshot.standing.ticket().is_some();
    let place = if stands { "in the queue".into() } else { verdict.reason() };
    let checks =
        [("queue", stands, place), ("leader", verdict.leader().is_some(), verdict.reason())];
    answer("readyz", &checks, query.as_deref())
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct Verbose {
    /// With any value, the answer has every check.
    #[expect(dead_code, reason = "read from the raw query: it may have no value")]
    verbose: Option<String>,
}

#[derive(IntoResponses)]
#[expect(dead_code, reason = "they are schemas")]
enum Checks {
    /// `ok`, or every check with its outcome.
    #[response(status = 200, content_type = "text/plain; charset=utf-8")]
    Passed(String),
    /// Every check with its outcome.
    #[response(status = 503, content_type = "text/plain; charset=utf-8")]
    Failed(String),
}

/// Answers as Kubernetes' own components do: `ok`, or all checks if one of them failed or the query has `verbose`.
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
