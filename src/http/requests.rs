//! Counts the requests that were answered and the streams that are open, for `/metrics`.

use super::VERSION;
use axum::extract::MatchedPath;
use axum::http::StatusCode;
use prometheus::core::Collector;
use prometheus::{IntCounterVec, IntGauge, Opts};

/// Counts the requests that were answered, and the streams that are open.
pub(super) struct RequestCounters {
    answered: IntCounterVec,
    streams: IntGauge,
}

/// A guard for an open stream. Dropping it ends the count of the stream.
pub(super) struct OpenStream(IntGauge);

/// The label of all requests without a route. With a label for each path, clients could create any number of series.
const UNMATCHED: &str = "unmatched";

impl RequestCounters {
    /// Creates the counters, all zero.
    pub(super) fn zero() -> Self {
        let answered = Opts::new(
            "bellwether_http_requests_total",
            "Requests answered, by the route that matched and the status code.",
        );
        let answered = IntCounterVec::new(answered, &["route", "code"]);
        let streams =
            IntGauge::new("bellwether_http_streams_open", "Streams of events that are open.");
        Self {
            answered: answered.expect("the names are valid"),
            streams: streams.expect("the name is valid"),
        }
    }

    /// Counts a response by the route that made it; `/v1/leader` counts as `/leader`.
    pub(super) fn count(&self, route: Option<&MatchedPath>, status: StatusCode) {
        let route = route.map_or(UNMATCHED, MatchedPath::as_str);
        let route = match route.strip_prefix(VERSION) {
            Some("") => "/",
            Some(rest) => rest,
            None => route,
        };
        self.answered.with_label_values(&[route, status.as_str()]).inc();
    }

    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.answered.clone()), Box::new(self.streams.clone())]
    }

    /// Counts a stream as open until the returned guard is dropped.
    pub(super) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{api, ask};
    use http_body_util::BodyExt;
    use std::time::Duration;

    #[tokio::test]
    async fn a_request_is_counted_by_the_route_that_matched_whatever_its_parameters_and_version() {
        let (service, _back) = api(Duration::ZERO);
        let asked = [
            ("/locks", "/locks"),
            ("/locks/migrate", "/locks/{name}"),
            ("/locks/migrate/1f", "/locks/{name}/{lock}"),
            ("/v1/locks/migrate", "/locks/{name}"),
            ("/v1", "/"),
            ("/locks/", "unmatched"),
            ("/locks//1f", "/locks/{name}/{lock}"),
            ("/locks/migrate/1f/x", "unmatched"),
            ("/lock/migrate", "unmatched"),
            ("/v1/lock", "unmatched"),
            ("/v2/locks", "unmatched"),
            ("/barriers/deploy/leave/1f", "/barriers/{name}/leave/{id}"),
            ("/barriers/deploy/leave", "unmatched"),
        ];
        for (path, route) in asked {
            let before = counted(&service, route).await;
            let _answer = ask(&service, path).await;
            assert_eq!(counted(&service, route).await, before + 1, "{path}");
        }
    }

    /// Returns how many requests of a route were answered, with whichever status.
    async fn counted(service: &super::super::Service, route: &str) -> u64 {
        let body = ask(service, "/metrics").await.into_body().collect().await.unwrap().to_bytes();
        let label = format!("route=\"{route}\"");
        let text = String::from_utf8(body.to_vec()).unwrap();
        let lines = text.lines().filter(|line| line.contains(&label));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
