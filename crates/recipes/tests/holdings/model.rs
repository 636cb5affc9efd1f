//! Every order of events, within small bounds, against the very same core.

use super::faults::Faults;
use super::world::{Choice, Flaw, Rules, World};
use super::{BARRIER, READ, TWO_SLOTS, WRITE};
use bellwether_recipes::Margins;
use bellwether_recipes::holding::HoldingSpec;
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
            Property::sometimes("one holds", |rules, world: &World| {
                !world.held_by(rules).is_empty()
            }),
        ]
    }
}

const SECOND: Duration = Duration::from_secs(1);

const ALL_BUT_UNKNOWN_CLIENTS: Faults = Faults {
    crashes: true,
    cuts: true,
    delays: true,
    lost_reports: true,
    stale_reads: true,
    resignations: true,
    ..Faults::NONE
};

/// Heartbeats come half a second apart, in sessions of four seconds: the lease is a second older than any answer.
const SMALL: Rules = Rules {
    processes: 2,
    asked: &[(0, WRITE), (1, WRITE)],
    settled: true,
    menu: &[],
    asks_max: 0,
    timeout: Duration::from_secs(4),
    margins: Margins { heartbeat: Duration::from_millis(500), half_tick: Duration::ZERO },
    idle_after: Duration::from_secs(60),
    reads: false,
    tick: SECOND,
    exact: false,
    prompt: true,
    horizon: Duration::from_secs(5),
    misfortunes_max: 2,
    sessions_max: 4,
    faults: ALL_BUT_UNKNOWN_CLIENTS,
    flaw: None,
    at_wrong: &[],
};

#[test]
fn two_writers_from_the_start() {
    check(Rules { settled: false, misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
fn two_writers_in_the_queue() {
    check(Rules { misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_writers_and_two_misfortunes() {
    check(SMALL).assert_properties();
}

/// So late that its session may end before it hears an answer.
#[test]
fn two_writers_that_are_late() {
    let faults = Faults { lost_reports: true, delays: true, ..Faults::NONE };
    check(Rules { faults, horizon: 4 * SECOND, ..SMALL }).assert_properties();
}

#[test]
fn three_writers() {
    let faults = Faults { resignations: true, crashes: true, stale_reads: true, ..Faults::NONE };
    let asked = &[(0, WRITE), (1, WRITE), (2, WRITE)];
    check(Rules { processes: 3, asked, faults, horizon: SECOND, ..SMALL }).assert_properties();
}

#[test]
fn a_writer_between_readers() {
    let faults = Faults { resignations: true, cuts: true, ..Faults::NONE };
    let asked: &[(usize, HoldingSpec)] = &[(0, READ), (1, WRITE), (0, READ), (1, READ)];
    check(Rules { asked, faults, horizon: SECOND, ..SMALL }).assert_properties();
}

#[test]
fn readers_behind_a_writer_that_dies() {
    let asked: &[(usize, HoldingSpec)] = &[(0, WRITE), (1, READ), (1, READ)];
    check(Rules { asked, misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
fn three_ask_for_two_slots() {
    let faults = Faults { resignations: true, cuts: true, stale_reads: true, ..Faults::NONE };
    let asked: &[(usize, HoldingSpec)] =
        &[(0, TWO_SLOTS), (1, TWO_SLOTS), (0, TWO_SLOTS), (1, TWO_SLOTS)];
    check(Rules { asked, faults, horizon: SECOND, ..SMALL }).assert_properties();
}

/// One that gives up while it joins leaves no znode.
#[test]
fn two_writers_that_give_up_while_they_join() {
    let faults = Faults { resignations: true, cuts: true, ..Faults::NONE };
    check(Rules { settled: false, faults, horizon: SECOND, ..SMALL }).assert_properties();
}

#[test]
fn two_writers_among_unknown_clients() {
    let faults = Faults { evictions: true, cuts: true, resignations: true, ..Faults::NONE };
    check(Rules { faults, horizon: 2 * SECOND, ..SMALL }).assert_properties();
}

#[test]
fn a_writer_at_a_server_that_shows_the_dead() {
    let faults = Faults { lost_deletes: true, resignations: true, cuts: true, ..Faults::NONE };
    let horizon = 3 * SECOND;
    check(Rules { faults, at_wrong: &[1], horizon, ..SMALL }).assert_properties();
}

#[test]
fn two_at_a_barrier() {
    let asked: &[(usize, HoldingSpec)] = &[(0, BARRIER), (1, BARRIER)];
    check(Rules { asked, misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_at_a_barrier_and_two_misfortunes() {
    let asked: &[(usize, HoldingSpec)] = &[(0, BARRIER), (1, BARRIER)];
    check(Rules { asked, ..SMALL }).assert_properties();
}

#[test]
fn two_come_to_a_barrier() {
    let faults = Faults { resignations: true, cuts: true, ..Faults::NONE };
    let asked: &[(usize, HoldingSpec)] = &[(0, BARRIER), (1, BARRIER)];
    let rules = Rules { settled: false, asked, faults, horizon: Duration::ZERO, ..SMALL };
    check(rules).assert_properties();
}

/// One more comes while two are inside, and again.
#[test]
fn three_at_a_barrier_of_two() {
    let faults = Faults { resignations: true, crashes: true, cuts: true, ..Faults::NONE };
    let asked: &[(usize, HoldingSpec)] = &[(0, BARRIER), (1, BARRIER), (2, BARRIER)];
    let rules = Rules { processes: 3, asked, faults, ..SMALL };
    check(Rules { horizon: Duration::ZERO, ..rules }).assert_properties();
}

/// Without rounds one that is late ends a round of others, and those who did not hear of it yet open it again.
#[test]
fn a_round_that_is_ended_whichever_it_is() {
    let faults = Faults { resignations: true, ..Faults::NONE };
    let asked: &[(usize, HoldingSpec)] = &[(0, BARRIER), (1, BARRIER), (0, BARRIER), (1, BARRIER)];
    let rules = Rules { asked, faults, horizon: Duration::ZERO, ..SMALL };
    let rules = Rules { flaw: Some(Flaw::AnyRound), ..rules };
    finds(&rules, "a barrier opens before there are enough");
}

/// Without the look for a znode of the same holding one joins twice.
#[test]
fn a_second_create_while_the_first_may_have_succeeded() {
    let faults = Faults { cuts: true, delays: true, ..Faults::NONE };
    let flaw = Some(Flaw::BlindCreate);
    let rules = Rules { settled: false, faults, flaw, misfortunes_max: 1, ..SMALL };
    finds(&rules, "one holding owns two znodes");
}

/// By one thread, which finds the same trace of a flaw each time. Several worlds at once keep all processors busy.
fn check(rules: Rules) -> impl Checker<Rules> {
    let start = Instant::now();
    let checker = rules.clone().checker().spawn_bfs().join();
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {} states in {:?}", checker.unique_state_count(), start.elapsed());
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
