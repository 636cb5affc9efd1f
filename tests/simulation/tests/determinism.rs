//! The same seed gives the same log.

use std::process::{Command, Output, Stdio};

/// With most of what there is: faults, hand-overs, locks, barriers, values.
const SEEDS: [&str; 3] = ["2", "14", "26"];

fn run(seed: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether-simulation"));
    command.args(["--level", "trace", "--seed", seed]).stderr(Stdio::inherit());
    command.output().expect("the simulation can be run")
}

#[test]
fn the_same_seed_gives_the_same_log_whatever_else_the_machine_does() {
    let alone: Vec<_> = SEEDS.iter().map(|seed| run(seed)).collect();
    let mut busy: Vec<_> = (0..4)
        .map(|_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.spawn().expect("a busy loop can be started")
        })
        .collect();
    let beside: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = SEEDS.iter().map(|seed| scope.spawn(|| run(seed))).collect();
        runs.into_iter().map(|run| run.join().expect("it does not panic")).collect()
    });
    for process in &mut busy {
        process.kill().expect("it runs");
        process.wait().expect("it ends");
    }
    for ((seed, alone), beside) in SEEDS.iter().zip(alone).zip(beside) {
        assert!(alone.status.success(), "seed {seed}: {}", alone.status);
        assert!(alone.stdout.len() > 100_000, "seed {seed} says little");
        assert!(alone.stdout == beside.stdout, "seed {seed} has two logs");
    }
}

#[test]
fn another_seed_gives_another_log() {
    assert_ne!(run("2").stdout, run("3").stdout);
}
