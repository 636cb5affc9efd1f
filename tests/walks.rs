//! Long random walks through worlds too large to search. A failing walk shrinks to a short one.

mod sim;

use bellwether::election::{Disconnect, Margins, Policy};
use proptest::prelude::*;
use sim::{Choice, Faults, Rules, World};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

prop_compose! {
    fn faults()(
        [crashes, cuts, delays, lost_reports, stale_reads, orders, moves, evictions, razing] in any::<[bool; 9]>(),
    ) -> Faults {
        Faults { crashes, cuts, delays, lost_reports, stalls: false, stale_reads, orders, moves, evictions, razing }
    }
}

prop_compose! {
    fn rules()(heartbeat in 200..800u64, half_tick in 0..800u64)(
        members in 1..=7usize,
        heartbeat in Just(heartbeat),
        half_tick in Just(half_tick),
        spare in 50..2_000u64,
        tick in 50..900u64,
        step_down in any::<bool>(),
        faults in faults(),
    ) -> Rules {
        let margins = Margins { heartbeat: ms(heartbeat), half_tick: ms(half_tick) };
        Rules {
            members,
            timeout: margins.least_session_timeout() + ms(spare),
            policy: Policy {
                margins,
                disconnect: if step_down { Disconnect::StepDown } else { Disconnect::Hold },
            },
            tick: ms(tick),
            exact: true,
            prompt: false,
            horizon: Duration::MAX,
            misfortunes_max: u32::MAX,
            sessions_max: i64::MAX,
            faults,
            flaw: None,
            settled: false,
        }
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    ProptestConfig::default().cases.max(3_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_walk_breaks_the_world(rules in rules(), walk in prop::collection::vec(any::<u32>(), 0..800)) {
        let mut world = World::new(&rules);
        let mut path = vec![];
        for die in walk {
            let mut choices = vec![];
            world.choices(&rules, &mut choices);
            // Time and misfortune are rarer than messages, or nothing else would ever happen.
            let rank = |choice: &Choice| match choice {
                Choice::Serve(_) | Choice::Deliver(_) | Choice::Wake(_) => 0,
                Choice::ServeSlowly(_) | Choice::ServeStale(_) | Choice::Tick(_) => 1,
                Choice::Miss(_) | Choice::Doom(_) | Choice::Expire(_) => 1,
                Choice::Cut(_) | Choice::Crash(_) | Choice::Stop(_) => 2,
                Choice::Resign(_) | Choice::Pause(_) | Choice::Unpause(_) | Choice::Describe(_) => 2,
                Choice::Evict(_) | Choice::Raze => 2,
            };
            let wanted = match die % 64 { 0..40 => 0, 40..63 => 1, _ => 2 };
            if choices.iter().any(|choice| rank(choice) <= wanted) {
                choices.retain(|choice| rank(choice) <= wanted);
            }
            let choice = choices[(die / 64) as usize % choices.len()];
            path.push(choice);
            world.apply(choice, &rules);
            prop_assert_eq!(world.broken(&rules), None, "{}", World::scenario(&rules, &path));
        }
        prop_assert_eq!(world.heal(&rules), None, "{}", World::scenario(&rules, &path));
    }
}
