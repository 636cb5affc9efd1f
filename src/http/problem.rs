//! Errors, as RFC 9457 wants them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub(super) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
}

#[derive(Serialize)]
struct Body {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
}

impl Problem {
    pub(super) fn unavailable(title: &'static str, detail: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, title, detail: detail.into() }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let detail = format!(
            "there is nothing at {path}: ask /leader, /is-leader, /is-follower, /status, \
             /members, /livez or /readyz"
        );
        Self { status: StatusCode::NOT_FOUND, title: "no such path", detail }
    }

    pub(super) fn wrong_method(path: &str) -> Self {
        let detail = format!("{path} answers the methods named in the Allow header");
        Self { status: StatusCode::METHOD_NOT_ALLOWED, title: "wrong method", detail }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, title, detail } = self;
        let body = Body { r#type: "about:blank", title, status: status.as_u16(), detail };
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
