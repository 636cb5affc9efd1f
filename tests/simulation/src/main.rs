//! Whole daemons in a deterministic simulation: see `docs/reference/simulation.md`.

mod campaign;
mod clients;
mod daemon;
mod ensemble;
mod faults;
mod followers;
mod history;
mod journal;
mod judge;
mod kernel;
mod locks;
mod lost;
mod memory;
mod network;
mod panics;
mod run;
mod store;
mod time;
mod values;
mod world;

use crate::campaign::Campaign;
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory;

/// Runs whole daemons and servers in one thread over a simulated network, with faults, and judges what they answer.
///
/// All that happens follows from a seed. The log of a run is on standard output, times and speed are on standard error.
#[derive(Parser)]
#[command(name = "scripts/simulate")]
struct Options {
    /// Run so many seeds.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seeds: u64,
    /// Begin with this seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    first: u64,
    /// Run this seed alone, and print its log.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "first", "minutes", "twice"])]
    seed: Option<u64>,
    /// Run seed after seed for so long, and not a number of them.
    #[arg(long, value_name = "M", conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Run each seed twice, and compare the logs.
    #[arg(long)]
    twice: bool,
    /// Go on after a seed has failed.
    #[arg(long)]
    keep_going: bool,
    /// Without faults.
    #[arg(long)]
    calm: bool,
    /// How much of what the daemons log is printed.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    level: tracing::Level,
    /// Print the last line of the log alone.
    #[arg(long, requires = "seed")]
    quiet: bool,
}

fn main() -> ExitCode {
    kernel::fix_addresses();
    let options = Options::parse();
    let is_well = match options.seed {
        Some(seed) => {
            journal::begin(!options.quiet, options.level);
            let outcome = run::run(seed, !options.calm);
            println!("{outcome}");
            outcome.violation.is_none()
        }
        None => Campaign {
            first: options.first,
            seeds: options.seeds,
            limit: options.minutes.map(|minutes| Duration::from_secs(60 * minutes)),
            is_twice: options.twice,
            goes_on: options.keep_going,
            is_calm: options.calm,
        }
        .run(),
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
