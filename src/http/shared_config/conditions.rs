//! Conditional requests (RFC 9110): the version that the client expects.

use super::super::problem::ProblemResponse;
use crate::shared_config::Condition;
use axum::http::{HeaderMap, header};

/// Returns the condition of a write from the headers `If-Match` and `If-None-Match`.
///
/// # Errors
/// Fails if the headers do not name a possible version, or contradict each other.
pub(super) fn condition(headers: &HeaderMap) -> Result<Condition, ProblemResponse> {
    fn wrong(why: &str) -> Result<Condition, ProblemResponse> {
        Err(ProblemResponse::bad_request(why))
    }
    match (value(headers, header::IF_MATCH), value(headers, header::IF_NONE_MATCH)) {
        (None, None) => Ok(Condition::None),
        (None, Some("*")) => Ok(Condition::Absent),
        (None, Some(_)) => wrong("If-None-Match may only be * with PUT"),
        (Some("*"), None) => Ok(Condition::Exists),
        (Some(tag), None) => match version(tag) {
            Some(version) => Ok(Condition::Version(version)),
            None => wrong("If-Match names no version: write If-Match: \"3\", as ETag has it, or *"),
        },
        (Some(_), Some(_)) => wrong("If-Match and If-None-Match exclude each other: leave one out"),
    }
}

fn value(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    // A header that is there twice names no version.
    Some(if values.next().is_some() { "" } else { value.to_str().unwrap_or_default().trim() })
}

/// Parses a strong tag, such as `"3"`. A weak tag, `W/"3"`, does not identify one version, so it is refused.
fn version(tag: &str) -> Option<i32> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}
