//! Parses the query of a request, which may have known keys only, and the names in its path.

use super::AppState;
use super::problem::ProblemResponse;
use crate::holdings::HoldingName;
use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Returns the values of these keys, in this order.
///
/// # Errors
/// Fails if the query has an unknown key, or a key twice. `write` is an example of a valid query, for the error.
pub(super) fn values<const N: usize>(
    uri: &Uri,
    keys: [&str; N],
    write: &str,
) -> Result<[Option<String>; N], ProblemResponse> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|error| {
        ProblemResponse::bad_request(format!("the query makes no sense ({error}): write {write}"))
    })?;
    let mut values = [const { None }; N];
    for (key, value) in pairs {
        let wrong = |what: &str| {
            ProblemResponse::bad_request(format!("the query has {key:?}{what}: write {write}"))
        };
        let at = keys.iter().position(|known| *known == key);
        let slot = &mut values[at.ok_or_else(|| wrong(", which is not known here"))?];
        if slot.replace(value).is_some() {
            return Err(wrong(" twice"));
        }
    }
    Ok(values)
}

/// Refuses a query if all parameters of the request are in the body: the query would otherwise be silently ignored.
///
/// # Errors
/// Fails if there is a query. `write` is an example of a valid body, for the error.
pub(super) fn in_body(uri: &Uri, write: &str) -> Result<(), ProblemResponse> {
    values(uri, [], &format!("no query, but a body such as {write}")).map(|[]| ())
}

/// Proof that a request has no query. A query that is silently ignored would seem to have an effect.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemResponse> {
        values(&parts.uri, [], "no query").map(|[]| Self)
    }
}

/// Parses a number, the value of a key.
pub(super) fn number(key: &str, value: &str, write: &str) -> Result<u64, ProblemResponse> {
    value.parse().map_err(|_| {
        let most = u64::MAX;
        ProblemResponse::bad_request(format!(
            "{key}={value:?} must be an integer from 0 to {most}, such as {write}"
        ))
    })
}

/// The maximum number of slots of a semaphore, and of participants of a barrier.
const COUNT_MAX: u32 = 1000;

/// Parses a number of slots or participants, the value of a key.
pub(super) fn count(key: &str, value: &str) -> Result<NonZeroU32, ProblemResponse> {
    let number = value.parse().ok().filter(|number: &NonZeroU32| number.get() <= COUNT_MAX);
    number.ok_or_else(|| {
        ProblemResponse::bad_request(format!(
            "{key}={value:?} must be an integer from 1 to {COUNT_MAX}, such as ?{key}=3"
        ))
    })
}

/// Parses a flag, `1` or `0`. A missing flag is off.
pub(super) fn flag(key: &str, value: Option<&str>, write: &str) -> Result<bool, ProblemResponse> {
    match value {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => {
            let why = format!("{key}={other:?} must be 1 or 0: write {write}");
            Err(ProblemResponse::bad_request(why))
        }
    }
}

/// The allowed waiting times.
pub(super) const WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);

/// Parses a duration, the value of a key, which must be within `allowed`. Returns `None` if the key is missing.
pub(super) fn span(
    key: &str,
    written: Option<String>,
    allowed: &RangeInclusive<Duration>,
) -> Result<Option<Duration>, ProblemResponse> {
    let Some(written) = written else { return Ok(None) };
    let why = match humantime::parse_duration(&written) {
        Ok(length) if allowed.contains(&length) => return Ok(Some(length)),
        Ok(_) => {
            let [least, most] =
                [allowed.start(), allowed.end()].map(|end| humantime::format_duration(*end));
            format!("out of bounds: write {least} to {most}")
        }
        Err(error) => format!("not a valid duration ({error}): write 30s"),
    };
    Err(ProblemResponse::bad_request(format!("{key}={written:?} is {why}")))
}

/// Returns true if `If-None-Match` says that the client has the answer with this entity tag already.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    fn weak(tag: &str) -> &str {
        tag.trim().trim_start_matches("W/")
    }
    headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
        let known = known.to_str().unwrap_or_default();
        known.split(',').any(|one| one.trim() == "*" || weak(one) == weak(tag))
    })
}

/// Returns the weight of a media type in the header `Accept`; zero if it is not named there.
pub(super) fn accepted_weight(headers: &HeaderMap, wanted: &str) -> f32 {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values
        .flat_map(|value| value.split(','))
        .map(|range| range.split(';').map(str::trim))
        .filter_map(|mut range| range.next()?.eq_ignore_ascii_case(wanted).then_some(range));
    let Some(mut parameters) = ranges.next() else { return 0.0 };
    let weight = parameters.find_map(|word| word.strip_prefix(['q', 'Q'])?.strip_prefix('='));
    weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0))
}

/// The parameters in the path of a request for a lock, a barrier or a value. The request is refused if these are switched
/// off.
pub(super) struct RecipePath {
    pub(super) name: HoldingName,
    /// The second parameter; empty if the path has none.
    pub(super) id: String,
}

impl FromRequestParts<AppState> for RecipePath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &AppState,
    ) -> Result<Self, ProblemResponse> {
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
    use super::super::Handler;
    use super::super::tests::{api, ask};
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
            let answer = service.answer(request).await;
            assert_eq!(answer.status(), 400, "{method} {path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let said = "the query has \"now\", which is not known here: write no query";
            assert_eq!(body["detail"], said, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_key_that_is_not_known_here_is_named_with_those_that_are() {
        let (service, _back) = api(Duration::ZERO);
        let leader = "?index=NUMBER&wait=30s";
        for (path, said) in [
            (
                "/leader?indx=7",
                format!("the query has \"indx\", which is not known here: write {leader}"),
            ),
            ("/leader?index=7&index=8", format!("the query has \"index\" twice: write {leader}")),
            ("/leader?=7", format!("the query has \"\", which is not known here: write {leader}")),
            (
                "/leader?index=-1",
                format!(
                    "index=\"-1\" must be an integer from 0 to 18446744073709551615, such as {leader}"
                ),
            ),
        ] {
            let answer = ask(&service, path).await;
            assert_eq!(answer.status(), 400, "{path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["detail"], said, "{path}");
        }
    }
}
