//! Counts the requests that were answered and the streams that are open, for `/metrics`.

use axum::http::StatusCode;
use axum::response::Response;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts};
use std::collections::HashMap;
use std::sync::Mutex;

/// Requests that were answered, and streams that are open.
pub(super) struct RequestCounters {
    answered: IntCounterVec,
    streams: IntGauge,
}

/// Counts as an open stream until it is dropped.
pub(super) struct OpenStream(IntGauge);

/// Counts the requests to one listener.
pub(super) struct RouteCounters {
    /// By path: that of a route without parameters is the request's.
    matched: HashMap<String, RouteCounter>,
    /// Routes with parameters.
    patterns: Vec<RouteCounter>,
    /// One for all paths without a route: a label for each would let clients make any number of series.
    unmatched: RouteCounter,
    answered: IntCounterVec,
}

/// The counters of one route, by status.
pub(super) struct RouteCounter {
    /// The value of the label `route`.
    label: String,
    /// A cache of the counters so far: looking one up by its labels takes longer than making many an answer.
    by_status: Mutex<Vec<(StatusCode, IntCounter)>>,
}

const UNMATCHED: &str = "unmatched";

impl RequestCounters {
    pub(super) fn none(election: &str) -> Self {
        let answered = Opts::new(
            "bellwether_http_requests_total",
            "Requests answered, by the route that matched and the status code.",
        )
        .const_label("election", election);
        let streams = Opts::new("bellwether_http_streams_open", "Streams of events that are open.")
            .const_label("election", election);
        Self {
            answered: IntCounterVec::new(answered, &["route", "code"])
                .expect("the names are valid"),
            streams: IntGauge::with_opts(streams).expect("the name is valid"),
        }
    }

    pub(super) fn of(&self, paths: Vec<String>) -> RouteCounters {
        let (patterns, paths): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| path.contains('{'));
        RouteCounters {
            matched: paths
                .into_iter()
                .map(|path| (path.clone(), RouteCounter::new(path)))
                .collect(),
            patterns: patterns.into_iter().map(RouteCounter::new).collect(),
            unmatched: RouteCounter::new(UNMATCHED.to_owned()),
            answered: self.answered.clone(),
        }
    }

    pub(super) fn families(&self) -> Vec<MetricFamily> {
        let mut families = self.answered.collect();
        families.extend(self.streams.collect());
        families
    }

    pub(super) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }
}

impl RouteCounters {
    pub(super) fn route(&self, path: &str) -> &RouteCounter {
        self.matched
            .get(path)
            .or_else(|| self.patterns.iter().find(|route| matches(&route.label, path)))
            .unwrap_or(&self.unmatched)
    }

    /// Counts this answer, and returns it.
    pub(super) fn counted(&self, route: &RouteCounter, response: Response) -> Response {
        self.count(route, response.status());
        response
    }

    fn count(&self, route: &RouteCounter, status: StatusCode) {
        let mut counters = route.by_status.lock().expect("no code panics while holding it");
        if let Some((_, counter)) = counters.iter().find(|(counted, _)| *counted == status) {
            counter.inc();
        } else {
            let labels = [route.label.as_str(), status.as_str()];
            let counter = self.answered.with_label_values(&labels);
            counter.inc();
            counters.push((status, counter));
        }
    }
}

impl RouteCounter {
    fn new(label: String) -> Self {
        Self { label, by_status: Mutex::default() }
    }
}

/// Whether a path is one of a route's, of which a part in braces stands for any.
fn matches(route: &str, path: &str) -> bool {
    fn is_any(part: &str) -> bool {
        part.starts_with('{')
    }
    let route = route.split('/');
    let path = path.split('/');
    route.clone().count() == path.clone().count()
        && route.zip(path).all(|(known, part)| known == part || is_any(known) && !part.is_empty())
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_the_route_that_matched_whatever_its_parameters() {
        let requests = RequestCounters::none("/election");
        let barriers = ["/barriers/{name}", "/barriers/{name}/leave/{id}"];
        let locks = ["/locks", "/locks/{name}", "/locks/{name}/{lock}"];
        let routes = locks.into_iter().chain(barriers).map(str::to_owned).collect::<Vec<_>>();
        let counters = requests.of(routes);
        for (path, route) in [
            ("/locks", "/locks"),
            ("/locks/migrate", "/locks/{name}"),
            ("/locks/migrate/1f", "/locks/{name}/{lock}"),
            ("/locks/", UNMATCHED),
            ("/locks//1f", UNMATCHED),
            ("/locks/migrate/1f/x", UNMATCHED),
            ("/lock/migrate", UNMATCHED),
            ("/barriers/deploy/leave/1f", "/barriers/{name}/leave/{id}"),
            ("/barriers/deploy/leave", UNMATCHED),
        ] {
            assert_eq!(counters.route(path).label, route, "{path}");
        }
    }
}
