//! The paths that each listener serves. `openapi.json` describes them, and a test compares the two. Paths that this
//! program's own clients request are constants in `api`, and so are the paths of one lock, barrier or value.
//!
//! A handler for any method other than GET, HEAD and OPTIONS is a command: it takes an
//! [`Authorized`](super::authorize::Authorized). The paths for load balancers (`/primary`, `/replica` and `/health`)
//! also answer OPTIONS, which HAProxy's `option httpchk` sends by default.

use super::holdings::{barriers, locks};
use super::{
    AppState, commands, events, health, history, leader, members, metrics, openapi, page, profile,
    redirect, role_checks, shared_config, status,
};
use crate::api;
use axum::Router;
use axum::routing::{delete, get, post};

/// Returns the routes of the application's listener: all that there are.
pub(super) fn api_routes() -> Router<AppState> {
    probe_routes()
        .route("/", get(page::page_or_leader_elector_body))
        .route("/openapi.json", get(openapi::document))
        .route("/leader/redirect", get(redirect::redirect))
        .route(api::EVENTS.path, get(events::events))
        .route("/sse", get(events::sse))
        .route(api::HISTORY.path, get(history::history))
        .route(api::STATUS.path, get(status::status))
        .route(api::MEMBERS.path, get(members::members))
        .route("/member", get(profile::own).patch(profile::amend))
        .route("/health", get(role_checks::is_in_queue).options(role_checks::is_in_queue))
        .route(api::RESIGN.path, post(commands::resign))
        .route(api::TRANSFER.path, post(commands::transfer))
        .route(api::PAUSE.path, post(commands::pause))
        .route(api::RESUME.path, post(commands::resume))
        .route(api::DRAIN.path, post(commands::drain))
        .route(api::SHUTDOWN.path, post(commands::shutdown))
        .route(api::LOCKS.path, get(locks::names))
        .route(api::LOCK_PATH, get(locks::queue).post(locks::hold).put(locks::hold_for_ttl))
        .route(api::TTL_LOCK_PATH, delete(locks::release).put(locks::renew))
        .route(api::BREAK_LOCK_PATH, post(locks::break_lock))
        .route(api::BARRIERS.path, get(barriers::names))
        .route(api::BARRIER_PATH, get(barriers::state).post(barriers::enter))
        .route(api::LEAVE_BARRIER_PATH, post(barriers::leave))
        .route(api::CONFIG_NAMES.path, get(shared_config::config_names))
        .route(
            api::CONFIG_PATH,
            get(shared_config::config)
                .put(shared_config::put_config)
                .delete(shared_config::delete_config),
        )
}

/// Returns the routes of the probe listener, which other machines may reach: no commands, and no streams.
pub(super) fn probe_routes() -> Router<AppState> {
    Router::new()
        .route(api::LEADER.path, get(leader::leader))
        .route(api::IS_LEADER.path, get(role_checks::is_leader))
        .route("/is-follower", get(role_checks::is_follower))
        .route("/primary", get(role_checks::is_leader).options(role_checks::is_leader))
        .route("/replica", get(role_checks::is_follower).options(role_checks::is_follower))
        .route(api::LIVEZ.path, get(health::livez))
        .route(api::READYZ.path, get(health::readyz))
        .route("/metrics", get(metrics::metrics))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{api, ask, probes, send};
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::time::Duration;

    #[tokio::test]
    async fn every_command_needs_authorization_and_no_question_does() {
        let (service, _back) = api(Duration::ZERO);
        for (method, path, operation) in described().await {
            let is_command = !["GET", "HEAD", "OPTIONS"].contains(&&*method);
            assert_eq!(operation["security"].is_array(), is_command, "{method} {path}");
            for refusal in ["401", "403"] {
                let is_described = operation["responses"].get(refusal).is_some();
                assert_eq!(is_described, is_command, "{method} {path}: {refusal}");
            }
            if is_command {
                let request = Request::builder().method(&*method).uri(&*path);
                let answer = send(&service, request.body(Body::empty()).unwrap()).await;
                assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{method} {path}");
            }
        }
    }

    #[tokio::test]
    async fn the_documentation_has_each_route_and_no_other() {
        let documented = documented();
        let mut described: BTreeSet<_> =
            described().await.into_iter().map(|(method, path, _)| (method, path)).collect();
        // In the table, a path with GET includes HEAD, and a sentence names the paths that answer OPTIONS.
        described.retain(|(method, _)| !["HEAD", "OPTIONS"].contains(&&**method));
        // The description does not describe itself.
        described.insert(("GET".to_owned(), "/openapi.json".to_owned()));
        let missing: Vec<_> = described.difference(&documented).collect();
        assert!(missing.is_empty(), "put it into the table: {missing:?}");
        let stale: Vec<_> = documented.difference(&described).collect();
        assert!(stale.is_empty(), "it is in the table, and is no route: {stale:?}");
    }

    #[tokio::test]
    async fn the_description_has_each_route_and_each_method_and_no_other() {
        let (service, _back) = api(Duration::ZERO);
        let mut described: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (method, path, _) in self::described().await {
            let methods = described.entry(path).or_default();
            methods.extend((method == "GET").then(|| "HEAD".to_owned()));
            methods.insert(method);
        }
        for (path, methods) in &described {
            let request = Request::builder().method("BREW").uri(path).body(Body::empty());
            let answer = send(&service, request.unwrap()).await;
            let allowed = answer.headers()["allow"].to_str().unwrap().split(',');
            assert_eq!(allowed.map(str::to_owned).collect::<BTreeSet<_>>(), *methods, "{path}");
        }
        let (code, _) = include_str!("routes.rs").split_once("#[cfg(test)]").unwrap();
        assert_eq!(code.matches(".route(").count(), described.len() + 1, "with /openapi.json");
    }

    #[tokio::test]
    async fn the_probe_listener_serves_what_is_documented_and_nothing_else() {
        let document = document();
        let (_, section) = document.split_once("\n## The probe listener\n").expect("its section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let documented = section.split('`').skip(1).step_by(2).filter(|word| word.starts_with('/'));
        let documented: BTreeSet<_> = documented.collect();
        let (probes, _back) = probes();
        for (_, path, _) in described().await {
            let is_served = ask(&probes, &path).await.status() != StatusCode::NOT_FOUND;
            assert_eq!(is_served, documented.contains(&*path), "{path}");
        }
    }

    #[tokio::test]
    async fn each_path_is_answered_with_the_version_as_without() {
        let (service, _back) = api(Duration::ZERO);
        for path in ["/is-leader", "/leader", "/status", "/readyz", "/locks/l"] {
            let plain = ask(&service, path).await;
            let versioned = ask(&service, &format!("/v1{path}")).await;
            assert_eq!(plain.status(), versioned.status(), "{path}");
            assert_eq!(plain.headers(), versioned.headers(), "{path}");
        }
        assert_eq!(ask(&service, "/v1").await.status(), StatusCode::OK, "as /");
        assert_eq!(ask(&service, "/v2/is-leader").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(&service, "/v1/resign").await.headers()["allow"], "POST");
    }

    #[tokio::test]
    async fn a_method_that_is_refused_is_answered_with_those_that_are_not() {
        let (service, _back) = api(Duration::ZERO);
        let request = Request::builder().method("DELETE").uri("/locks/l");
        let answer = send(&service, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()["allow"], "GET,HEAD,POST,PUT");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }

    /// Returns the method, the path and the description of each operation in `openapi.json`.
    async fn described() -> Vec<(String, String, Value)> {
        let (service, _back) = api(Duration::ZERO);
        let document = ask(&service, "/openapi.json").await.into_body().collect().await.unwrap();
        let document: Value = serde_json::from_slice(&document.to_bytes()).unwrap();
        let mut described = vec![];
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                described.push((method.to_uppercase(), path.clone(), operation.clone()));
            }
        }
        assert!(!described.is_empty());
        described
    }

    fn document() -> String {
        fs::read_to_string("docs/reference/http-api.md")
            .expect("tests run in the root of the crate")
    }

    /// Returns the method and the path of each request in the first columns of the document's tables. A path that is
    /// written without a method has the method of the path before it.
    fn documented() -> BTreeSet<(String, String)> {
        let mut documented = BTreeSet::new();
        for row in document().lines().filter_map(|line| line.strip_prefix("| `")) {
            let cell = row.split(" |").next().unwrap_or_default();
            let mut method = "GET";
            for written in cell.split('`').step_by(2) {
                let (of, request) = written.split_once(' ').unwrap_or((method, written));
                if request.starts_with('/') {
                    method = of;
                    let path = request.split('?').next().unwrap_or_default();
                    documented.insert((method.to_owned(), path.to_owned()));
                }
            }
        }
        documented
    }
}
