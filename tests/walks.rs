//! Long random walks through worlds too large to search. A failing walk shrinks to a short one.

mod sim;

use bellwether::election::Margins;
use proptest::prelude::*;
use sim::{Choice, Rules, World};
use std::time::Duration;

prop_compose! {
    fn rules()(members in 1..=5usize, timeout in 5..=9u64)(
        members in Just(members),
        timeout in Just(timeout),
        heartbeat in 1..=(timeout - 2) / 3,
        half_tick in 0..=1u64,
        crashes in any::<bool>(),
    ) -> Rules {
        Rules {
            members,
            timeout: Duration::from_secs(timeout),
            margins: Margins {
                heartbeat: Duration::from_secs(heartbeat),
                half_tick: Duration::from_secs(half_tick),
            },
            lag: Duration::from_secs(2 * heartbeat + half_tick),
            horizon: Duration::MAX,
            sessions_max: i64::MAX,
            crashes,
            evictions: false,
            settled: false,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_walk_breaks_the_world(rules in rules(), walk in prop::collection::vec(any::<u16>(), 0..600)) {
        let mut world = World::new(&rules);
        let mut path = vec![];
        for die in walk {
            let mut choices = vec![];
            world.choices(&rules, &mut choices);
            // Time and misfortune are rarer than messages, or nothing else would ever happen.
            let seldom = |c: &Choice| matches!(c, Choice::Tick | Choice::Expire(_) | Choice::Crash(_));
            if die % 4 != 0 && choices.iter().any(|c| !seldom(c)) {
                choices.retain(|c| !seldom(c));
            }
            let choice = choices[usize::from(die / 4) % choices.len()];
            path.push(choice);
            world.apply(choice, &rules);
            prop_assert_eq!(world.broken(), None, "after {:?}", path);
        }
        prop_assert_eq!(world.heal(&rules), None, "after {:?}", path);
    }
}
