//! `scripts/check-log`: see its help.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

#[path = "mod.rs"]
mod check_log;

use check_log::{CheckedLog, Term, check, overlap};
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Steps the core once more through the logs of daemons, and says at which line the two disagree: an action, a role or an index
/// that is not the core's, or an event that breaks a promise of the runner's.
///
/// The daemons have to run with `--log-format json` and `RUST_LOG=info,bellwether::protocol=trace`. A file is the log of a
/// process, or of several, one after another.
#[derive(Parser)]
#[command(name = "scripts/check-log")]
struct Options {
    /// All are of one machine, whose clock they share: no two of an election may lead at once.
    #[arg(long)]
    one_machine: bool,
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut terms: Vec<Term> = vec![];
    let mut is_well = true;
    for file in &options.files {
        let name = file.display().to_string();
        let log = fs::read(file).map_err(|error| format!("{name}: {error}"));
        let checked = log.and_then(|log| check(&name, &String::from_utf8_lossy(&log)));
        match checked {
            Ok(CheckedLog { processes, steps, terms: led }) => {
                println!("{name}: {processes} processes, {steps} steps, {} terms", led.len());
                terms.extend(led);
            }
            Err(why) => {
                eprintln!("{why}");
                is_well = false;
            }
        }
    }
    if options.one_machine
        && let Some((first, second)) = overlap(&terms)
    {
        eprintln!("two lead at once:\n  {first}\n  {second}");
        is_well = false;
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
