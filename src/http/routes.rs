//! The paths that each listener serves.
//!
//! A route is declared once, above its handler: methods, path, parameters and answers. A handler for any method other than
//! GET, HEAD and OPTIONS is a command: it takes an [`Authorized`](super::authorize::Authorized), and `openapi` adds the header
//! and the refusals that all commands have in common. Everything else about routes is generated from this declaration, or
//! compared with it.

use super::holdings::{barriers, locks};
use super::{
    AppState, DESCRIPTION, commands, events, health, history, leader, members, metrics, openapi,
    page, profile, redirect, shared_config, status, yes_or_no,
};
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, get, on};
use std::collections::BTreeSet;
use utoipa::Path;
use utoipa_axum::PathItemExt;

/// Handlers at the paths and for the methods that their attribute `#[utoipa::path]` declares.
///
/// Only tests generate the document from the rest of that attribute, and compare it with the document that is served:
/// generating it in each process took a quarter of a sidecar's memory.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) router: Router<AppState>,
    pub(super) paths: BTreeSet<String>,
    #[cfg(test)]
    pub(super) described: utoipa_axum::router::OpenApiRouter<AppState>,
}

impl Routes {
    /// Adds a handler at the path and for the methods of its description, a type that `#[utoipa::path]` generates.
    fn with<P: Path, H: Handler<T, AppState>, T: 'static>(mut self, handler: H, _: P) -> Self {
        let methods = P::methods();
        let filters = methods.iter().map(PathItemExt::to_method_filter);
        let filter = filters.reduce(MethodFilter::or).expect("each route has a method");
        self.router = self.router.route(&P::path(), on(filter, handler));
        self.paths.insert(P::path());
        self
    }
}

/// Adds the handlers of a module to routes.
macro_rules! add {
    ($routes:ident, $($module:ident::{$($handler:ident),+})+) => {{
        let routes = $routes;
        $($(let routes = utoipa_axum::paste! {
            routes.with($module::$handler, $module::[<__path_ $handler>])
        };)+)+
        #[cfg(test)]
        let routes = {
            let mut routes = routes;
            $($(routes.described =
                routes.described.routes(utoipa_axum::routes!($module::$handler));)+)+
            routes
        };
        routes
    }};
}

/// Returns all routes, for the application.
pub(super) fn of_api() -> Routes {
    let mut routes = described();
    routes.router = routes.router.route(DESCRIPTION, get(openapi::document));
    routes.paths.insert(DESCRIPTION.to_owned());
    routes
}

/// Returns all routes that the OpenAPI document describes.
pub(super) fn described() -> Routes {
    let harmless = of_probes();
    add!(harmless,
        redirect::{redirect}
        page::{page_or_elector}
        events::{sse, events}
        history::{history}
        status::{status}
        members::{members}
        profile::{own, amend}
        yes_or_no::{health}
        commands::{resign, transfer, pause, resume, drain, shutdown}
        locks::{names, queue, hold, keep, renew, give_back, break_lock}
        barriers::{names, state, enter, leave}
        shared_config::{config_names, config, put_config, delete_config}
    )
}

/// Returns the harmless routes, for callers from other machines.
pub(super) fn of_probes() -> Routes {
    let none = Routes::default();
    add!(none,
        leader::{leader}
        yes_or_no::{is_leader, is_follower, primary, replica}
        health::{livez, readyz}
        metrics::{metrics}
    )
}

#[cfg(test)]
mod tests {
    use super::super::Handler;
    use super::super::tests::{api, ask};
    use super::*;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use axum::response::Response;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::collections::BTreeSet;
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
                let answer = service.answer(request.body(Body::empty()).unwrap()).await;
                assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{method} {path}");
            }
        }
    }

    #[tokio::test]
    async fn the_documentation_has_each_route_and_no_other() {
        let documented = documented();
        let mut described: BTreeSet<_> =
            described().await.into_iter().map(|(method, path, _)| (method, path)).collect();
        // Patroni's clients ask with these as well, and GET stands for HEAD everywhere.
        described.retain(|(method, _)| !["HEAD", "OPTIONS"].contains(&&**method));
        described.insert(("GET".to_owned(), DESCRIPTION.to_owned()));
        let missing: Vec<_> = described.difference(&documented).collect();
        assert!(missing.is_empty(), "put it into the table: {missing:?}");
        let stale: Vec<_> = documented.difference(&described).collect();
        assert!(stale.is_empty(), "it is in the table, and is no route: {stale:?}");
    }

    #[test]
    fn every_probe_is_documented_and_served_to_the_application_as_well() {
        let api = of_api();
        let probes = of_probes();
        assert!(probes.paths.iter().all(|path| api.paths.contains(path)), "{:?}", probes.paths);
        let document = document();
        let (_, section) = document.split_once("\n## The probe listener\n").expect("its section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let documented = section.split('`').skip(1).step_by(2).filter(|word| word.starts_with('/'));
        let (documented, served): (BTreeSet<_>, BTreeSet<_>) =
            (documented.collect(), probes.paths.iter().map(String::as_str).collect());
        assert_eq!(documented, served);
    }

    #[tokio::test]
    async fn an_unknown_path_is_answered_with_what_to_ask_instead() {
        let (service, _back) = api(Duration::ZERO);
        let answer = ask(&service, "/leaders").await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        for path in of_api().paths {
            assert!(text.contains(&path), "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn each_path_is_answered_with_the_version_as_without() {
        let (service, _back) = api(Duration::ZERO);
        for path in of_api().paths.iter().filter(|path| !path.contains('{')) {
            if path == "/events" || path == "/sse" || path == "/metrics" {
                continue;
            }
            let plain = ask(&service, path).await;
            let versioned = ask(&service, &format!("/v1{}", path.trim_end_matches('/'))).await;
            assert_eq!(plain.status(), versioned.status(), "{path}");
            assert_eq!(plain.headers(), versioned.headers(), "{path}");
        }
        let (plain, versioned) =
            (ask(&service, "/is-leader").await, ask(&service, "/v1/is-leader").await);
        let body = async |answer: Response| answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body(plain).await, body(versioned).await);
        for stream in ["/v1/events", "/v1/sse"] {
            assert_eq!(ask(&service, stream).await.headers()["content-type"], "text/event-stream");
        }
        assert_eq!(ask(&service, "/v1/leaders").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(&service, "/v2/is-leader").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(&service, "/v1/resign").await.headers()["allow"], "POST");
    }

    #[tokio::test]
    async fn a_method_that_is_refused_is_answered_with_those_that_are_not() {
        let (service, _back) = api(Duration::ZERO);
        let request = Request::builder().method("DELETE").uri("/locks/l");
        let answer = service.answer(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()["allow"], "GET,HEAD,POST,PUT");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["detail"], "this path answers GET, HEAD, POST, PUT");
    }

    /// Method, path, and how it is described.
    async fn described() -> Vec<(String, String, Value)> {
        let (service, _back) = api(Duration::ZERO);
        let document = ask(&service, DESCRIPTION).await.into_body().collect().await.unwrap();
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

    /// Method and path of each request in the first column of a table. One that is written without its method
    /// has that of the one before it.
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
