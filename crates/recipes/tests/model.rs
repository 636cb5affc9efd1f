//! Every order of events, within small bounds, against the very same core.

#![allow(clippy::print_stdout, clippy::redundant_clone, reason = "a model tells how large it was")]

mod sim;

use bellwether_recipes::Margins;
use bellwether_recipes::election::{Disconnect, Policy};
use sim::{Choice, Faults, Flaw, Rules, World};
use stateright::{Checker, Model, Property};
use std::time::{Duration, Instant};

impl Model for Rules {
    type State = World;
    type Action = Choice;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, choices: &mut Vec<Choice>) {
        world.choices(self, choices);
    }

    fn next_state(&self, world: &World, choice: Choice) -> Option<World> {
        let mut next = world.clone();
        next.apply(choice, self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("sound", |rules: &Self, world: &World| world.broken(rules).is_none()),
            Property::sometimes("somebody leads", |_, world: &World| world.led.is_some()),
            Property::sometimes("leadership passes on", |_, world: &World| {
                world.led.is_some_and(|token| token.0 > 1)
            }),
        ]
    }
}

const SECOND: Duration = Duration::from_secs(1);

const NO_FAULTS: Faults = Faults {
    crashes: false,
    cuts: false,
    delays: false,
    lost_reports: false,
    stalls: false,
    orders: false,
    moves: false,
    sickness: false,
    stale_reads: false,
    evictions: false,
    lies: false,
    razing: false,
    forgeries: false,
};

const ALL_BUT_STRANGERS: Faults = Faults {
    crashes: true,
    cuts: true,
    delays: true,
    lost_reports: true,
    stalls: false,
    orders: false,
    moves: false,
    sickness: false,
    stale_reads: true,
    evictions: false,
    lies: false,
    razing: false,
    forgeries: false,
};

/// The term is the shortest there is: two seconds of a session of four, less what clocks may be
/// wrong by. Eight seconds see two sessions end. Sessions end when they may, which is no misfortune.
const SMALL: Rules = Rules {
    members: 2,
    timeout: Duration::from_secs(4),
    policy: Policy::new(Margins { heartbeat: SECOND, half_tick: Duration::ZERO }),
    tick: SECOND,
    exact: false,
    prompt: true,
    horizon: Duration::from_secs(8),
    misfortunes_max: 2,
    sessions_max: 5,
    faults: NO_FAULTS,
    flaw: None,
    settled: false,
};

/// Heartbeats come so close together that a lease lasts for three of a session's four seconds, and what is
/// a second late tells.
const ALONE: Rules = Rules {
    members: 1,
    policy: Policy::new(Margins {
        heartbeat: Duration::from_millis(250),
        half_tick: Duration::ZERO,
    }),
    ..SMALL
};

#[test]
fn two_members_from_the_start() {
    check(Rules { faults: ALL_BUT_STRANGERS, ..SMALL }).assert_properties();
}

/// Alone, and so late that its session may end before it hears an answer.
#[test]
fn one_member_that_is_very_late() {
    let faults = Faults { cuts: true, delays: true, lost_reports: true, ..NO_FAULTS };
    check(Rules { misfortunes_max: 5, faults, ..ALONE }).assert_properties();
}

/// The servers may take a session up again, and commit what is sent in it, when they have begun to end it.
/// A leader is not deceived. (Whoever claims only then is: the rules keep to a leader, and to one session's time.)
#[test]
fn a_leader_that_comes_back_as_its_session_ends() {
    let faults = Faults { cuts: true, delays: true, stalls: true, ..NO_FAULTS };
    check(Rules { misfortunes_max: 5, faults, settled: true, ..ALONE }).assert_properties();
}

#[test]
fn two_members_in_line() {
    let rules = Rules { misfortunes_max: 3, settled: true, faults: ALL_BUT_STRANGERS, ..SMALL };
    check(rules).assert_properties();
}

/// Time alone: late timers, late answers, lost reports.
#[test]
fn two_members_in_line_and_four_times_late() {
    let faults = Faults { lost_reports: true, ..NO_FAULTS };
    check(Rules { misfortunes_max: 4, settled: true, faults, ..SMALL }).assert_properties();
}

/// A second is two heartbeats here: all signs of life are as far apart as may be, and the term is the shorter one.
#[test]
fn two_members_that_give_signs_of_life_far_apart() {
    let margins = Margins { heartbeat: Duration::from_millis(500), half_tick: Duration::ZERO };
    let faults = Faults { lost_reports: true, ..NO_FAULTS };
    let rules = Rules { policy: Policy::new(margins), faults, ..SMALL };
    check(Rules { misfortunes_max: 4, settled: true, ..rules }).assert_properties();
}

#[test]
fn three_members_in_line() {
    let rules = Rules { members: 3, settled: true, faults: ALL_BUT_STRANGERS, ..SMALL };
    check(Rules { misfortunes_max: 1, ..rules.clone() }).assert_properties();
    let faults = Faults { crashes: true, lost_reports: true, stale_reads: true, ..NO_FAULTS };
    check(Rules { faults, ..rules }).assert_properties();
}

#[test]
fn two_members_that_step_down() {
    let policy = Policy { disconnect: Disconnect::StepDown, ..SMALL.policy };
    let faults = Faults { cuts: true, delays: true, lost_reports: true, ..NO_FAULTS };
    check(Rules { policy, faults, settled: true, ..SMALL }).assert_properties();
}

/// No lease covers what strangers delete, but only for the length of a term, and nobody is stuck.
#[test]
fn two_members_among_strangers() {
    let faults = Faults { evictions: true, razing: true, ..ALL_BUT_STRANGERS };
    check(Rules { faults, settled: true, ..SMALL }).assert_properties();
}

/// What the core cannot see to, the room `zk` must: here it does not, and the checker finds it.
#[test]
fn a_second_create_while_the_first_may_have_succeeded() {
    let faults = Faults { cuts: true, delays: true, ..NO_FAULTS };
    let rules = Rules { faults, flaw: Some(Flaw::BlindCreate), misfortunes_max: 1, ..SMALL };
    finds(&rules, "one session owns two znodes");
}

#[test]
fn a_renewal_that_does_not_ask_whose_znode_it_is() {
    let faults = Faults { razing: true, ..NO_FAULTS };
    let flaw = Some(Flaw::CarelessRenewal);
    let rules = Rules { faults, flaw, settled: true, misfortunes_max: 1, ..SMALL };
    finds(&rules, "two members lead at once");
}

fn check(rules: Rules) -> impl Checker<Rules> {
    let start = Instant::now();
    let checker = rules.clone().checker().threads(2).spawn_bfs().join();
    println!("{} states in {:?}", checker.unique_state_count(), start.elapsed());
    if let Some(path) = checker.discovery("sound") {
        println!("BROKEN: {:?}", path.last_state().broken(&rules));
        println!("{}", World::scenario(&rules, &path.into_actions()));
    }
    checker
}

fn finds(rules: &Rules, what: &str) {
    let path = check(rules.clone()).assert_any_discovery("sound");
    assert_eq!(path.last_state().broken(rules), Some(what));
}
