//! Blocking queries: answered as soon as there is a change since an index, or when the time limit passes.

use super::problem::ProblemResponse;
use super::{AppState, query};
use axum::http::Uri;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

/// `?index=N` waits for a change since `N`, for as long as `wait` allows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is the schema")]
pub(super) struct Wait {
    /// Answer when the index differs from this one, which an earlier answer had: see `X-Bellwether-Index`.
    #[param(maximum = 18446744073709551615u64)]
    index: Option<u64>,
    /// The maximum time to wait: `30s`, by default `5m`, at most `10m`; only with `index`.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
}

/// A query that waits, and its place among the clients that wait.
pub(super) struct BlockingQuery {
    pub(super) seen: u64,
    length: Duration,
    _place: OwnedSemaphorePermit,
}

const WAIT_DEFAULT: Duration = Duration::from_secs(300);

const WRITE: &str = "?index=NUMBER&wait=30s";

impl BlockingQuery {
    /// Waits for the result of `news`. Returns `None` if the time limit of the query passes first.
    pub(super) async fn or_timeout<T>(&self, news: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.length, news).await.ok()
    }
}

impl AppState {
    /// Returns the blocking query that a request makes, if it makes one.
    pub(super) fn blocking_query(
        &self,
        uri: &Uri,
    ) -> Result<Option<BlockingQuery>, ProblemResponse> {
        let [index, wait] = query::values(uri, ["index", "wait"], WRITE)?;
        self.blocking_query_of(index, wait)
    }

    /// Returns the blocking query with these parameters; `None` without an index.
    pub(super) fn blocking_query_of(
        &self,
        index: Option<String>,
        wait: Option<String>,
    ) -> Result<Option<BlockingQuery>, ProblemResponse> {
        let seen = index.map(|index| query::number("index", &index, WRITE)).transpose()?;
        let length = query::span("wait", wait, &query::WAIT)?;
        let Some(seen) = seen else {
            if length.is_some() {
                let without = "wait is of no use without an index: write ?index=NUMBER&wait=30s, with \
                               the index of the last answer";
                return Err(ProblemResponse::bad_request(without));
            }
            return Ok(None);
        };
        if self.serves_probes {
            let instead =
                "no client can wait at this listener: ask without a query, or at http.listen";
            return Err(ProblemResponse::bad_request(instead));
        }
        let length = length.unwrap_or(WAIT_DEFAULT);
        Ok(Some(BlockingQuery { seen, length, _place: self.place()? }))
    }
}
