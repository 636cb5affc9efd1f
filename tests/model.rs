//! Every order of events, within small bounds, against the very same core.

mod sim;

use bellwether::election::{Disconnect, Margins, Policy};
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

/// Two members. The term is the shortest there is: two seconds of four, less what clocks may be
/// wrong by.
const SMALL: Rules = Rules {
    members: 2,
    timeout: Duration::from_secs(4),
    policy: Policy {
        margins: Margins { heartbeat: SECOND, half_tick: Duration::ZERO },
        disconnect: Disconnect::Hold,
    },
    tick: SECOND,
    exact: false,
    prompt: true,
    horizon: Duration::from_secs(6),
    misfortunes_max: 3,
    sessions_max: 3,
    faults: Faults {
        crashes: false,
        cuts: false,
        delays: false,
        lost_reports: false,
        stale_reads: false,
        evictions: false,
        razing: false,
    },
    flaw: None,
    settled: false,
};

fn check(rules: Rules) -> impl Checker<Rules> {
    let start = Instant::now();
    let checker = rules.checker().threads(2).target_state_count(1_000_000).spawn_bfs().join();
    println!(
        "{} states, depth {}, {:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed()
    );
    checker
}

#[test]
fn explore() {
    let rules = Rules {
        misfortunes_max: 4,
        settled: true,
        faults: Faults { lost_reports: true, ..SMALL.faults },
        horizon: 8 * SECOND,
        ..SMALL
    };
    let c = check(rules.clone());
    if let Some(v) = c.discovery("sound") {
        let mut world = World::new(&rules);
        world.trace = Some(vec![]);
        for a in v.into_actions() {
            world.tell(format!("{a:?} at {:?}", world.now.0));
            world.apply(a, &rules);
        }
        println!("{}{:?}\n{:#?}", world.story(), world.broken(&rules), world.server);
    }
}
