//! How long each step takes in a build like the shipped one. What else it costs is counted by
//! `tests/instructions.rs` and `tests/allocations.rs`.

#![allow(clippy::print_stdout, reason = "its last words are a table in Markdown")]

#[path = "../tests/steps/mod.rs"]
mod steps;

use criterion::{BatchSize, Criterion};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use steps::STEPS;

fn main() {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("criterion");
    let mut criterion = Criterion::default().output_directory(&results).configure_from_args();
    for step in STEPS {
        let set = || {
            let (member, now, event) = (step.set)();
            (member, now, Some(event))
        };
        criterion.bench_function(step.name, |bencher| {
            bencher.iter_batched_ref(
                set,
                |(member, now, event)| member.step(*now, event.take().expect("each is heard once")),
                BatchSize::SmallInput,
            );
        });
    }
    println!("| one step | median |\n|---|--:|");
    for step in STEPS {
        if let Some(median) = median_ns(results.join(step.name)) {
            println!("| {} | {median:.0} ns |", step.name);
        }
    }
}

/// As it was last measured, if ever.
fn median_ns(results: PathBuf) -> Option<f64> {
    let estimates = fs::read_to_string(results.join("new/estimates.json")).ok()?;
    let estimates: Value = serde_json::from_str(&estimates).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}
