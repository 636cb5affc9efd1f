//! What each step costs in instructions: counted, not timed, so that a busy machine changes nothing.
//! `cargo bench --bench step` tells the time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod steps;

use recipes::Moment;
use recipes::election::{Action, Event, Member};
use std::process::Command;
use std::{env, fs};
use steps::STEPS;

#[test]
fn every_step_comes_to_what_it_did() {
    for step in STEPS {
        let (mut member, now, event) = (step.set)();
        let actions = counted_step(&mut member, now, event);
        assert_eq!(outcome(&member, now, &actions), step.outcome, "{}", step.name);
    }
}

/// Callgrind counts in here, and nowhere else.
#[inline(never)]
fn counted_step(member: &mut Member, now: Moment, event: Event) -> Vec<Action> {
    member.step(now, event)
}

/// By the call of this it knows that one step is over.
#[inline(never)]
fn outcome(member: &Member, now: Moment, actions: &[Action]) -> String {
    let actions = actions.iter().map(|action| format!("{action}, "));
    actions.collect::<String>() + &member.standing().at(now).to_string()
}

/// With room for another compiler or allocator, but not for the same work done twice. What has become much
/// cheaper is to be written down too, lest it become as dear again unseen.
#[test]
fn no_step_takes_many_more_instructions_than_it_did() {
    let counted = counted();
    println!("\n| one step | instructions |\n|---|--:|");
    for (step, counted) in STEPS.iter().zip(&counted) {
        println!("| {} | {counted} |", step.name);
    }
    for (step, counted) in STEPS.iter().zip(counted) {
        let usual = step.instructions * 3 / 4..=step.instructions * 4 / 3;
        assert!(usual.contains(&counted), "{}: {counted} is not in {usual:?}", step.name);
    }
}

/// The instructions of each step, as callgrind sees them in the test above.
fn counted() -> Vec<u64> {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("callgrind.out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--combine-dumps=yes"])
        .arg("--toggle-collect=instructions::counted_step")
        .arg("--dump-before=instructions::outcome")
        .arg(format!("--callgrind-out-file={}", report.display()))
        .arg(env::current_exe().unwrap())
        .args(["--exact", "every_step_comes_to_what_it_did", "--test-threads=1"])
        .output()
        .expect("there is valgrind: scripts/test installs it");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report = fs::read_to_string(report).unwrap();
    let totals = report.lines().filter_map(|line| line.strip_prefix("totals: "));
    let mut counted: Vec<u64> = totals.map(|total| total.parse().unwrap()).collect();
    assert_eq!(counted.pop(), Some(0), "nothing is counted after the last step");
    assert_eq!(counted.len(), STEPS.len(), "each step is counted once");
    counted
}
