//! Errors in the format of RFC 9457.

use super::INDEX;
use crate::api::{self, PROBLEM_TYPE_PREFIX};
use crate::byte_budget::ByteBudget;
use crate::config::table;
use crate::status::CommandError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// An error response.
pub(super) struct ProblemResponse {
    pub(super) status: StatusCode,
    /// The end of the field `type`, by which programs distinguish problems. With spaces, it is also the `title`.
    pub(super) kind: &'static str,
    pub(super) detail: String,
    /// The index by which to wait for the next change, if the problem is about the leader or about an absent value.
    pub(super) index: Option<u64>,
    /// The version of the current value, for the header `ETag`.
    pub(super) version: Option<i32>,
    /// The header `Retry-After` in seconds, sent with status 503.
    pub(super) retry_after: u64,
}

/// The default of `Retry-After`, in seconds.
pub(super) const RETRY_AFTER: u64 = 1;

impl ProblemResponse {
    pub(super) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, kind, detail, index: None, version: None, retry_after: RETRY_AFTER }
    }

    pub(super) fn unavailable(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, detail)
    }

    /// Returns the error for a command that is not known to have been carried out.
    pub(super) fn command_failed(error: CommandError) -> Self {
        match error {
            CommandError::NotTaken => {
                let why = "too many requests are waiting: try again";
                Self::unavailable("too-many-requests", why)
            }
            CommandError::Pending => {
                let why = "the command is not carried out yet, but may still be: see /status";
                Self::unavailable("command-pending", why)
            }
            CommandError::NoTickets => {
                let why = "the command would end the session, and no other could be opened, because this member's Kerberos tickets \
                           have ended: renew them first, see /status";
                Self::unavailable("no-kerberos-tickets", why)
            }
        }
    }

    /// Returns the error for data in ZooKeeper that cannot be read.
    pub(super) fn unread(kind: &'static str, why: impl Display) -> Self {
        let detail = format!("{why}; /status shows this member's connection to ZooKeeper");
        Self::unavailable(kind, detail)
    }

    pub(super) fn conflict(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, detail)
    }

    /// Returns the error for a request when the memory budget for clients is used up.
    pub(super) fn buffers_full(budget: &ByteBudget) -> Self {
        let why = format!(
            "requests, answers and watched values take the {} MiB that {} allows: try again, or raise it",
            budget.mib(),
            table::BUFFERS.key()
        );
        Self::unavailable("buffers-full", why)
    }

    pub(super) fn recipes_off() -> Self {
        let detail = format!(
            "locks, barriers and the shared configuration are switched off: set {} to the path below which to store them",
            table::RECIPES_ROOT.key()
        );
        Self::new(StatusCode::NOT_FOUND, "recipes-off", detail)
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// Returns the error for a body that cannot be read or parsed.
    pub(super) fn bad_body(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "bad-body", detail)
    }

    /// Returns the error for a body that is JSON, but not of the expected form.
    pub(super) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::bad_body(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

/// Returns the header `ETag` of a value in this version.
pub(super) fn version_tag(version: i32) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("a tag is visible ASCII")
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let Self { status, kind, detail, index, version, retry_after } = self;
        let r#type = format!("{PROBLEM_TYPE_PREFIX}{kind}");
        let title = kind.replace('-', " ");
        let body = api::Problem { r#type, title, status: status.as_u16(), detail, index };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(index) = index {
            headers.insert(INDEX, HeaderValue::from(index));
        }
        if let Some(version) = version {
            headers.insert(header::ETAG, version_tag(version));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        // Close the connection. Otherwise clients that are refused could take all slots.
        if kind == "too-many-waiting" {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
