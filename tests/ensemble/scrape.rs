//! One reading of a member's metrics.

use crate::member::Member;
use std::collections::{BTreeMap, BTreeSet};

/// The samples of one scrape.
pub(crate) struct Scrape {
    pub(crate) text: String,
    /// By name and labels, as they are written.
    pub(crate) samples: BTreeMap<String, f64>,
}

impl Scrape {
    pub(crate) fn of(member: &Member) -> Self {
        let answer = member.get("/metrics");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4");
        Self::read(answer.body)
    }

    pub(crate) fn read(text: String) -> Self {
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(sample);
        let samples = samples.collect::<Option<_>>().unwrap_or_else(|| panic!("{text}"));
        Self { text, samples }
    }

    pub(crate) fn value(&self, series: &str) -> f64 {
        let value = self.samples.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {}", self.text))
    }

    /// Returns the value of `bellwether_...`, with these labels besides the election.
    pub(crate) fn of_us(&self, name: &str, labels: &str) -> f64 {
        let comma = if labels.is_empty() { "" } else { "," };
        self.value(&format!(r#"bellwether_{name}{{election="/election"{comma}{labels}}}"#))
    }

    /// Returns each metric with its type and labels.
    pub(crate) fn described(&self) -> BTreeSet<(String, String, BTreeSet<String>)> {
        let kinds =
            self.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let labels = |name: &str| {
            let ours = self.samples.keys().filter_map(|series| {
                let labels = series.strip_prefix(name)?.split_once('{')?;
                ["", "_bucket", "_sum", "_count"].contains(&labels.0).then_some(labels.1)
            });
            let labels =
                ours.flat_map(|labels| labels.split(',').filter_map(|l| l.split_once('=')));
            labels.map(|(label, _)| label.to_owned()).filter(|label| label != "le").collect()
        };
        kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned(), labels(name))).collect()
    }
}
