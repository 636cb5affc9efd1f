//! Errors, as RFC 9457 wants them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub(super) struct Problem {
    status: StatusCode,
    /// The last part of its `type`: what programs may tell problems apart by.
    kind: &'static str,
    title: &'static str,
    detail: String,
}

#[derive(Serialize)]
struct Body {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
}

impl Problem {
    pub(super) fn unavailable(
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, kind, title, detail: detail.into() }
    }

    pub(super) fn bad_request(detail: String) -> Self {
        let (status, kind) = (StatusCode::BAD_REQUEST, "bad-request");
        Self { status, kind, title: "this makes no sense", detail }
    }

    pub(super) fn conflict(
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status: StatusCode::CONFLICT, kind, title, detail: detail.into() }
    }

    pub(super) fn forbidden() -> Self {
        let detail = "an order needs the header X-Bellwether, so that no web page can give one: \
                      curl -X POST -H 'X-Bellwether: 1' ...";
        let (status, kind) = (StatusCode::FORBIDDEN, "header-missing");
        Self { status, kind, title: "an order without the header", detail: detail.into() }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let detail = format!(
            "there is nothing at {path}: ask /leader, /is-leader, /is-follower, /status, \
             /members, /history, /events, /livez or /readyz"
        );
        let (status, kind) = (StatusCode::NOT_FOUND, "no-such-path");
        Self { status, kind, title: "no such path", detail }
    }

    pub(super) fn wrong_method(path: &str) -> Self {
        let detail = format!("{path} answers the methods named in the Allow header");
        let (status, kind) = (StatusCode::METHOD_NOT_ALLOWED, "wrong-method");
        Self { status, kind, title: "wrong method", detail }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, kind, title, detail } = self;
        let r#type = format!("urn:bellwether:problem:{kind}");
        let body = Body { r#type, title, status: status.as_u16(), detail };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
