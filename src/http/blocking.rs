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

/// A query that waits for a change, and its permit to wait.
pub(super) struct BlockingQuery {
    /// The index that the client has seen.
    pub(super) seen: u64,
    time_limit: Duration,
    _permit: OwnedSemaphorePermit,
}

/// How long a query without `wait` waits.
const WAIT_DEFAULT: Duration = Duration::from_secs(300);

impl BlockingQuery {
    /// Waits for the result of `change`. Returns `None` if the time limit of the query passes first.
    pub(super) async fn or_timeout<T>(&self, change: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.time_limit, change).await.ok()
    }
}

impl AppState {
    /// Returns the blocking query with these parameters; `None` for a query without an index, which does not wait.
    /// Fails if no client may wait at this listener, or too many wait already.
    pub(super) fn blocking_query(
        &self,
        Wait { index, wait }: Wait,
    ) -> Result<Option<BlockingQuery>, ProblemResponse> {
        let Some(seen) = index else {
            if wait.is_some() {
                let why = "wait is of no use without an index: write ?index=NUMBER&wait=30s, with \
                               the index of the last answer";
                return Err(ProblemResponse::bad_request(why));
            }
            return Ok(None);
        };
        if self.serves_probes {
            let why = "no client can wait at this listener: ask without a query, or at http.listen";
            return Err(ProblemResponse::bad_request(why));
        }
        let time_limit = wait.map_or(WAIT_DEFAULT, |Span(wait)| wait);
        Ok(Some(BlockingQuery { seen, time_limit, _permit: self.waiting_permit()? }))
    }
}
