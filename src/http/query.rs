//! Parses the query of a request, in which only known keys are allowed, and the names in its path.

use super::AppState;
use super::problem::ProblemResponse;
use crate::holdings::HoldingName;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::num::NonZeroU32;
use std::time::Duration;

/// The query of a request. Each `T` denies unknown fields: a key that was ignored would seem to have an effect.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemResponse> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(error) => {
                let why = error.body_text();
                let why = why.replace("there are no fields", "this path takes no parameters");
                Err(ProblemResponse::bad_request(why))
            }
        }
    }
}

/// The query of a route that takes no parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// The longest waiting time, and the longest TTL of a lock.
const SPAN_MAX: Duration = Duration::from_secs(600);

/// A duration of at least `MIN_SECONDS`, and of at most ten minutes, such as `30s`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Span<const MIN_SECONDS: u64>(pub(super) Duration);

impl<const MIN_SECONDS: u64> TryFrom<String> for Span<MIN_SECONDS> {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        match humantime::parse_duration(&written) {
            Ok(length) if length >= Duration::from_secs(MIN_SECONDS) && length <= SPAN_MAX => {
                Ok(Self(length))
            }
            Ok(_) => Err(format!("{written:?} is out of bounds: write {MIN_SECONDS}s to 10m")),
            Err(error) => Err(format!("{written:?} is not a valid duration ({error}): write 30s")),
        }
    }
}

/// The number of slots of a semaphore, or the size of a barrier: 1 to 1000.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Count(pub(super) NonZeroU32);

impl TryFrom<u32> for Count {
    type Error = &'static str;

    fn try_from(written: u32) -> Result<Self, &'static str> {
        let count = NonZeroU32::new(written).filter(|count| count.get() <= 1000);
        count.map(Self).ok_or("write a number from 1 to 1000")
    }
}

/// Parses a flag, `1` or `0`.
pub(super) fn flag<'de, D: Deserializer<'de>>(written: D) -> Result<bool, D::Error> {
    match u8::deserialize(written) {
        Ok(0) => Ok(false),
        Ok(1) => Ok(true),
        Ok(_) | Err(_) => Err(D::Error::custom("write 1 or 0")),
    }
}

/// Returns true if the header `Accept` names this media type, whatever its weight (`q=`).
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split([',', ';']))
        .any(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// The parameters in the path of a request for a lock, a barrier or a value. The request is refused if locks, barriers and
/// values are switched off.
pub(super) struct RecipePath {
    pub(super) name: HoldingName,
    /// The second parameter, such as the id of a lock; empty if the path has none.
    pub(super) id: String,
}

impl FromRequestParts<AppState> for RecipePath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &AppState,
    ) -> Result<Self, ProblemResponse> {
        // The first segment of the path. The router has removed the version.
        let (what, example) = match parts.uri.path().split('/').nth(1) {
            Some("locks") => app.holdings().map(|_| ("lock's name", "migrate"))?,
            Some("barriers") => app.holdings().map(|_| ("barrier's name", "deploy"))?,
            _ => app.shared_config().map(|_| ("name of a value", "limits.json"))?,
        };
        let parameters = RawPathParams::from_request_parts(parts, app).await.map_err(|_| {
            ProblemResponse::bad_request("the path is not UTF-8: write it in percent-encoded UTF-8")
        })?;
        let mut values = parameters.iter().map(|(_, value)| value);
        let name = values.next().unwrap_or_default();
        let name = HoldingName::parse(name, what, example).map_err(ProblemResponse::bad_request)?;
        Ok(Self { name, id: values.next().unwrap_or_default().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{api, ask, send};
    use axum::body::Body;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::time::Duration;

    #[tokio::test]
    async fn a_query_is_refused_where_none_is_known() {
        let (service, _back) = api(Duration::ZERO);
        for (method, path) in [
            ("POST", "/resign"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/drain"),
            ("POST", "/shutdown"),
            ("POST", "/barriers/b/leave/1"),
            ("GET", "/config"),
            ("DELETE", "/config/x"),
            ("GET", "/locks"),
            ("GET", "/locks/l"),
            ("DELETE", "/locks/l/1"),
            ("GET", "/barriers"),
            ("GET", "/barriers/b"),
        ] {
            let request = Request::builder().method(method).uri(format!("{path}?now=1"));
            let request = request.header("x-bellwether", "1").body(Body::empty()).unwrap();
            let answer = send(&service, request).await;
            assert_eq!(answer.status(), 400, "{method} {path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let detail = body["detail"].as_str().unwrap();
            assert!(detail.contains("unknown field `now`"), "{method} {path}: {detail}");
        }
    }

    #[tokio::test]
    async fn a_key_that_is_not_known_here_is_named_with_those_that_are() {
        let (service, _back) = api(Duration::ZERO);
        for (path, expected) in [
            ("/leader?indx=7", "unknown field `indx`, expected `index` or `wait`"),
            ("/leader?index=7&index=8", "duplicate field `index`"),
            ("/leader?index=-1", "index: invalid digit found in string"),
        ] {
            let answer = ask(&service, path).await;
            assert_eq!(answer.status(), 400, "{path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let detail = body["detail"].as_str().unwrap();
            assert!(detail.contains(expected), "{path}: {detail}");
        }
    }
}
