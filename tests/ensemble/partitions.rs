//! Hosts cut off, packets lost, servers and members stopped and killed: each fault of the catalogue once.
//!
//! Sessions are shorter than the servers' limit for each other (`syncLimit`), so that a server which is cut off goes
//! on answering: a member that took such answers for proof would lead beside the next leader.

use crate::{
    catalogue::{Fault, Outcome, PATIENCE, suffer, went_by_notification},
    sampler::fallen_tokens,
    testbed::Testbed,
};
use std::time::Duration;

#[test]
fn the_leader_is_cut_off_alone_or_with_a_server() {
    all_goes_well_in_spite_of(Fault::CUTS);
}

#[test]
fn packets_are_lost_one_way_or_now_and_then() {
    all_goes_well_in_spite_of(Fault::LOSSES);
}

#[test]
fn servers_are_stopped_killed_and_restarted() {
    all_goes_well_in_spite_of(Fault::OF_SERVERS);
}

#[test]
fn the_leader_is_killed_stopped_and_terminated() {
    all_goes_well_in_spite_of(Fault::OF_THE_LEADER);
}

#[test]
fn leaders_hand_over_in_order_by_notification() {
    let outcomes = all_goes_well_in_spite_of(Fault::ORDERLY);
    went_by_notification(&outcomes).expect("a ready standby leads when it is notified");
}

#[test]
fn unknown_clients_use_force() {
    all_goes_well_in_spite_of(Fault::BY_UNKNOWN_CLIENTS);
}

#[test]
fn while_a_server_has_lost_a_transaction() {
    all_goes_well_in_spite_of(Fault::OF_A_LOG);
}

#[track_caller]
fn all_goes_well_in_spite_of(faults: &[Fault]) -> Vec<Outcome> {
    let mut testbed = Testbed::set(3, |_, setup| setup);
    let mut outcomes = vec![];
    for fault in faults {
        let outcome = suffer(&mut testbed, &[*fault], Duration::ZERO);
        let (leaderless, bound) = (outcome.leaderless, outcome.bound);
        eprintln!("{fault}: {leaderless:.2?} without a leader, expected at most {bound:.2?}");
        if let Err(complaint) = &outcome.result {
            panic!("{fault}: afterwards not all is well. Last seen: {complaint}");
        }
        assert!(leaderless < PATIENCE * bound, "{fault}: no member led for {leaderless:?}");
        assert_eq!(outcome.late_yeses, [""; 0], "{fault}");
        assert!(outcome.too_soon.is_empty(), "{fault}: {:?}", outcome.too_soon);
        if !outcome.is_force() {
            assert!(
                outcome.overlaps.is_empty(),
                "{fault}: two led at once: {:?}",
                outcome.overlaps
            );
        }
        outcomes.push(outcome);
    }
    let fallen = fallen_tokens(&testbed.sampler.stints());
    assert!(fallen.is_empty(), "tokens fell: {fallen:?}");
    outcomes
}
