//! Commands that run only while their member leads, through every fault of servers and networks.

use crate::{
    catalogue::{Fault, suffer},
    member::SessionFiles,
    task::{Diary, STUBBORN},
    testbed::Testbed,
    wait::eventually,
};
use std::time::Duration;

#[test]
fn never_two_at_once_while_the_leader_is_cut_off() {
    one_at_a_time_in_spite_of(Fault::CUTS);
}

#[test]
fn never_two_at_once_while_packets_are_lost() {
    one_at_a_time_in_spite_of(Fault::LOSSES);
}

#[test]
fn never_two_at_once_while_servers_stop_die_and_restart() {
    one_at_a_time_in_spite_of(Fault::OF_SERVERS);
}

#[test]
fn never_two_at_once_while_the_leader_is_killed_frozen_and_terminated() {
    one_at_a_time_in_spite_of(Fault::OF_THE_LEADER);
}

#[test]
fn never_two_at_once_while_guards_and_sidecar_are_killed_and_stopped() {
    one_at_a_time_in_spite_of(Fault::OF_WATCHERS);
}

#[test]
fn never_two_at_once_while_sidecars_are_restarted_with_their_session() {
    one_at_a_time_in_spite_of(Fault::OF_RESTARTS);
}

/// No lease covers force: two commands may run for as long as the first may take to end. Then all goes on.
#[test]
fn an_unknown_clients_force_costs_no_more_than_the_time_to_end() {
    let diary = Diary::new();
    let mut testbed = Testbed::set(3, |_, setup| diary.kept_by(setup, STUBBORN));
    for fault in Fault::BY_UNKNOWN_CLIENTS {
        let before = diary.runs().len();
        suffer(&mut testbed, &[*fault], Duration::ZERO).result.expect("all is well afterwards");
        diary.next_run(before);
        let runs = diary.runs();
        for pair in runs.windows(2) {
            let beside = pair[0].last - pair[1].first;
            // A machine that is busy is given twice the 750 ms.
            assert!(beside < 1.5, "{fault}: {pair:?}");
        }
    }
}

/// Checks that one command runs at a time through each of these faults, with commands that have to be killed.
#[track_caller]
fn one_at_a_time_in_spite_of(faults: &[Fault]) {
    let (diary, files) = (Diary::new(), SessionFiles::new());
    let keeps_session = faults.iter().any(|fault| fault.needs_a_session_file());
    let mut testbed = Testbed::set(3, |number, setup| {
        let setup = diary.kept_by(setup, STUBBORN);
        if keeps_session { files.kept_by(&setup, &number.to_string()) } else { setup }
    });
    diary.next_run(0);
    for fault in faults {
        let before = diary.runs().len();
        let outcome = suffer(&mut testbed, &[*fault], Duration::ZERO);
        outcome.result.unwrap_or_else(|complaint| panic!("{fault}: {complaint}"));
        eventually("a command runs again", || {
            if diary.is_held() { Ok(()) } else { Err(format!("{:?}", diary.runs().last())) }
        });
        diary.shows_one_at_a_time();
        for (who, gap) in &diary.gaps()[before - 1..] {
            eprintln!("{fault}: {who}, {gap:.2?} without a command");
        }
    }
}
