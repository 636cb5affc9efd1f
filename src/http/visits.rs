//! Counts the requests that were answered and the streams that are open, for `/metrics`.

use axum::http::StatusCode;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts};
use std::collections::HashMap;
use std::sync::Mutex;

/// Requests that were answered, and streams that are open.
pub(super) struct Visits {
    answered: IntCounterVec,
    streams: IntGauge,
}

/// An open stream.
pub(super) struct OpenStream(IntGauge);

/// Where the requests to one listener are counted.
pub(super) struct RouteCounters {
    /// By path: a route has no parameters in it, so its path is the request's.
    matched: HashMap<String, RouteCounter>,
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

impl Visits {
    pub(super) fn none(election: &str) -> Self {
        let opts = |name, help| Opts::new(name, help).const_label("election", election);
        let answered = opts(
            "bellwether_http_requests_total",
            "Requests answered, by the route that matched and the status code.",
        );
        let streams = opts("bellwether_http_streams_open", "Streams of events that are open.");
        Self {
            answered: IntCounterVec::new(answered, &["route", "code"])
                .expect("the names are valid"),
            streams: IntGauge::with_opts(streams).expect("the name is valid"),
        }
    }

    pub(super) fn of(&self, paths: Vec<String>) -> RouteCounters {
        let counted = |path: String| (path.clone(), RouteCounter::new(path));
        RouteCounters {
            matched: paths.into_iter().map(counted).collect(),
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
        self.matched.get(path).unwrap_or(&self.unmatched)
    }

    pub(super) fn count(&self, route: &RouteCounter, status: StatusCode) {
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

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
