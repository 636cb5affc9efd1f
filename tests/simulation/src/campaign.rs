//! Many seeds, each in a process of its own: what a library keeps for the whole process differs from run to run otherwise.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub struct Campaign {
    pub first: u64,
    pub seeds: u64,
    /// Seeds are run for so long, whatever their number.
    pub limit: Option<Duration>,
    pub is_twice: bool,
    pub goes_on: bool,
    pub is_calm: bool,
}

/// What has come of a seed.
struct Report {
    line: String,
    is_well: bool,
}

/// The reports that are there, which are printed in the order of the seeds.
struct Reports {
    next: u64,
    waiting: BTreeMap<u64, Report>,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    failed: Vec<u64>,
    simulated_s: f64,
    faults: f64,
    requests: f64,
}

impl Campaign {
    /// Runs the seeds on all processors. Returns whether all went well.
    pub fn run(&self) -> bool {
        let begun = Instant::now();
        let next = AtomicU64::new(self.first);
        let is_over = AtomicBool::new(false);
        let reports = Mutex::new(Reports {
            next: self.first,
            waiting: BTreeMap::new(),
            totals: Totals::default(),
        });
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        let has_time = match self.limit {
                            Some(limit) => begun.elapsed() < limit,
                            None => seed < self.first.saturating_add(self.seeds),
                        };
                        if !has_time {
                            break;
                        }
                        let report = self.run_seed(seed);
                        if !report.is_well && !self.goes_on {
                            is_over.store(true, Ordering::SeqCst);
                        }
                        reports.lock().expect("no panic while it is held").take(seed, report);
                    }
                });
            }
        });
        let reports = reports.into_inner().expect("no panic while it was held");
        reports.totals.print(begun.elapsed());
        reports.totals.failed.is_empty()
    }

    fn run_seed(&self, seed: u64) -> Report {
        let report = self.run_once(seed);
        if !self.is_twice || !report.is_well {
            return report;
        }
        let again = self.run_once(seed);
        if again.line == report.line {
            return report;
        }
        let line =
            format!("{}{}seed={seed} has another log the second time\n", report.line, again.line);
        Report { line, is_well: false }
    }

    fn run_once(&self, seed: u64) -> Report {
        let mut command = Command::new(env::current_exe().expect("a process knows its program"));
        command.arg("--quiet").arg(format!("--seed={seed}"));
        if self.is_calm {
            command.arg("--calm");
        }
        let output = command.output().expect("the program can be run again");
        let mut line = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            line += &String::from_utf8_lossy(&output.stderr);
            let calm = if self.is_calm { " --calm" } else { "" };
            line += &format!(
                "seed={seed} FAILED ({}); run it again, with its log, by:\n    scripts/simulate --seed {seed}{calm}\n",
                output.status
            );
        }
        Report { line, is_well: output.status.success() }
    }
}

impl Reports {
    fn take(&mut self, seed: u64, report: Report) {
        self.waiting.insert(seed, report);
        while let Some(report) = self.waiting.remove(&self.next) {
            print!("{}", report.line);
            self.totals.add(self.next, &report);
            self.next += 1;
        }
    }
}

impl Totals {
    fn add(&mut self, seed: u64, report: &Report) {
        self.seeds += 1;
        if !report.is_well {
            self.failed.push(seed);
        }
        for word in report.line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else { continue };
            let value = value.parse().unwrap_or(0.0);
            match key {
                "simulated_s" => self.simulated_s += value,
                "faults" => self.faults += value,
                "requests" => self.requests += value,
                _ => {}
            }
        }
    }

    fn print(&self, took: Duration) {
        let Self { seeds, failed, simulated_s, faults, requests } = self;
        let hours = simulated_s / 3600.0;
        let factor = simulated_s / took.as_secs_f64();
        eprintln!(
            "{seeds} seeds in {:.0} s: {hours:.1} simulated hours, {factor:.0} times as fast as real time, {faults} faults, \
             {requests} requests of clients; failed: {failed:?}",
            took.as_secs_f64(),
        );
    }
}
