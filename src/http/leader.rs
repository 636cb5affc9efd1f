//! Who leads, now or as soon as there is news.

use super::problem::{BadRequest, Problem, Unavailable};
use super::routes::ApiRouter;
use super::{Sight, Verdict, claim};
use crate::api::{self, LeaderState};
use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use recipes::Moment;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::routes;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(leader))
}

/// For the listener at which no client may wait.
pub(super) fn probes() -> ApiRouter {
    ApiRouter::new().routes(routes!(leader_now))
}

/// An answer as it was written. Until any of it changes, the next caller gets the same: to write it
/// again would take longer than all the rest.
#[derive(Clone)]
pub(super) struct Written {
    /// The index, for how long the lease holds, in milliseconds, and until when: all the rest follows
    /// from them.
    of: (u64, Option<u64>, Option<Moment>),
    headers: HeaderMap,
    body: Bytes,
}

/// `?index=N` waits until there is news since `N`, for as long as `wait` says.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wait {
    /// Answer once the index is another than this one.
    #[param(maximum = 18446744073709551615u64)]
    index: Option<u64>,
    /// Answer after this long at the latest: `30s`, by default `5m`, at most `10m`.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
}

const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Who leads, as far as this member may say.
#[utoipa::path(get, path = api::LEADER.path, params(Wait), responses(
    (status = 200, description = "A member leads", body = LeaderState),
    (status = 304, description = "It is what If-None-Match says"),
    BadRequest,
    Unavailable,
))]
async fn leader(State(sight): State<Sight>, request: Request) -> Result<Response, Problem> {
    let verdict = match request.uri().query() {
        Some(_) => sight.waited(request.uri()).await?,
        None => sight.judge(),
    };
    Ok(told(&sight, &verdict, request.headers()))
}

/// The same, without waiting for news.
#[utoipa::path(get, path = api::LEADER.path, responses(
    (status = 200, description = "A member leads", body = LeaderState),
    Unavailable,
))]
async fn leader_now(State(sight): State<Sight>, request: Request) -> Response {
    told(&sight, &sight.judge(), request.headers())
}

fn told(sight: &Sight, verdict: &Verdict, headers: &HeaderMap) -> Response {
    claim::follow(verdict);
    if verdict.leader().is_none() {
        let mut response = verdict.nobody_leads().into_response();
        response.headers_mut().extend(super::common_headers(sight.index(verdict)));
        return response;
    }
    let Written { body, headers: mut told, of: _ } = sight.written(verdict);
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
        let tag = told[header::ETAG].to_str().unwrap_or_default();
        let known = known.to_str().unwrap_or_default();
        known.split(',').any(|one| one.trim() == "*" || weak(one) == weak(tag))
    });
    if is_known {
        told.remove(header::CONTENT_TYPE);
        told.remove(header::CONTENT_LENGTH);
        return (StatusCode::NOT_MODIFIED, told).into_response();
    }
    let mut response = Response::new(body.into());
    *response.headers_mut() = told;
    response
}

impl Wait {
    fn length(&self) -> Result<Duration, Problem> {
        let Some(written) = &self.wait else { return Ok(WAIT_DEFAULT) };
        let length = humantime::parse_duration(written).map_err(|error| {
            Problem::bad_request(format!("wait={written:?} is no duration ({error}): write 30s"))
        })?;
        Ok(length.min(WAIT_MAX))
    }
}

impl Sight {
    /// As `?index=N&wait=30s` asks.
    async fn waited(&self, asked: &Uri) -> Result<Verdict, Problem> {
        let Query(wait) = Query::<Wait>::try_from_uri(asked).map_err(|error| {
            Problem::bad_request(format!("{}: write ?index=NUMBER&wait=30s", error.body_text()))
        })?;
        let length = wait.length()?;
        match wait.index {
            Some(seen) => self.news_since(seen, length).await,
            None => Ok(self.judge()),
        }
    }

    async fn news_since(&self, seen: u64, wait: Duration) -> Result<Verdict, Problem> {
        let _place = self.place()?;
        let news = tokio::time::timeout(wait, self.changed_since(seen)).await;
        Ok(news.ok().flatten().unwrap_or_else(|| self.judge()))
    }

    fn written(&self, verdict: &Verdict) -> Written {
        let index = self.index(verdict);
        let of = (index, verdict.valid_for_ms(), verdict.lease_end());
        let mut last = self.told[usize::from(self.shares_clock)]
            .lock()
            .expect("no code panics while holding it");
        if let Some(written) = last.as_ref().filter(|written| written.of == of) {
            return written.clone();
        }
        let body = api::json(&self.state(verdict));
        let tag = HeaderValue::try_from(self.started.tag(index));
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::ETAG, tag.expect("a tag is visible ASCII")),
            (header::CONTENT_LENGTH, HeaderValue::from(body.len())),
        ];
        let headers = headers.into_iter().chain(super::common_headers(index)).collect();
        let written = Written { of, headers, body: body.into() };
        last.insert(written).clone()
    }
}
