//! Blocking queries: answered as soon as there is a change since an index, or when the time limit passes.

use super::AppState;
use super::problem::ProblemResponse;
use super::query::Span;
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// `?index=N` waits for a change since `N`, for as long as `wait` allows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    pub(super) index: Option<u64>,
    pub(super) wait: Option<Span<0>>,
}

/// A query that waits, and its place among the clients that wait.
pub(super) struct BlockingQuery {
    pub(super) seen: u64,
    length: Duration,
    _place: OwnedSemaphorePermit,
}

const WAIT_DEFAULT: Duration = Duration::from_secs(300);

impl BlockingQuery {
    /// Waits for the result of `news`. Returns `None` if the time limit of the query passes first.
    pub(super) async fn or_timeout<T>(&self, news: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.length, news).await.ok()
    }
}

impl AppState {
    /// Returns the blocking query with these parameters; `None` without an index.
    pub(super) fn blocking_query(
        &self,
        Wait { index, wait }: Wait,
    ) -> Result<Option<BlockingQuery>, ProblemResponse> {
        let Some(seen) = index else {
            if wait.is_some() {
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
        let length = wait.map_or(WAIT_DEFAULT, |Span(wait)| wait);
        Ok(Some(BlockingQuery { seen, length, _place: self.place()? }))
    }
}
