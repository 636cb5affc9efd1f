//! Long random walks through worlds too large to search. A failing walk shrinks to a short one.

use super::faults::Faults;
use super::world::{Choice, Rules, World};
use super::{BARRIER, READ, TWO_SLOTS, WRITE, of, slots};
use bellwether_recipes::Margins;
use bellwether_recipes::holding::HoldingSpec;
use proptest::prelude::*;
use std::time::Duration;

const MENUS: &[&[HoldingSpec]] = &[
    &[WRITE],
    &[WRITE, READ],
    &[WRITE, READ, READ],
    &[TWO_SLOTS],
    &[HoldingSpec::Lock(slots(3))],
    &[BARRIER],
    &[HoldingSpec::Barrier(of(3))],
];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

prop_compose! {
    fn faults()(
        [crashes, cuts, delays, lost_reports, stale_reads] in any::<[bool; 5]>(),
        [evictions, lost_creates, lost_deletes] in any::<[bool; 3]>(),
    ) -> Faults {
        Faults { crashes, cuts, delays, lost_reports, stale_reads, evictions, lost_creates, lost_deletes, resignations: true, ..Faults::NONE }
    }
}

prop_compose! {
    fn rules()(heartbeat in 200..800u64, half_tick in 0..800u64)(
        processes in 1..=5usize,
        menu in prop::sample::select(MENUS),
        heartbeat in Just(heartbeat),
        half_tick in Just(half_tick),
        spare in 50..4_000u64,
        tick in 50..900u64,
        idle in 0..5_000u64,
        asks_max in 1..40u64,
        [has_wrong_server, reads] in any::<[bool; 2]>(),
        faults in faults(),
    ) -> Rules {
        // What force and a server that lost a transaction do together is promised nothing about; nor is what a barrier
        // does beside either.
        let is_barrier = matches!(menu[0], HoldingSpec::Barrier(_));
        let evictions = faults.evictions && !has_wrong_server && !is_barrier;
        let lost_creates = faults.lost_creates && !is_barrier;
        let margins = Margins { heartbeat: ms(heartbeat), half_tick: ms(half_tick) };
        Rules {
            processes,
            asked: &[],
            settled: false,
            menu,
            asks_max,
            timeout: margins.least_session_timeout() + ms(spare),
            margins,
            idle_after: ms(idle),
            reads,
            tick: ms(tick),
            exact: true,
            prompt: false,
            horizon: Duration::MAX,
            misfortunes_max: u32::MAX,
            sessions_max: i64::MAX,
            faults: Faults { evictions, lost_creates, ..faults },
            flaw: None,
            at_wrong: if has_wrong_server { &[1, 2] } else { &[] },
        }
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    ProptestConfig::default().cases.max(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_walk_breaks_the_world(rules in rules(), walk in prop::collection::vec(any::<u32>(), 0..600)) {
        let mut world = World::new(&rules);
        let mut path = vec![];
        for die in walk {
            let mut choices = vec![];
            world.choices(&rules, &mut choices);
            // Time and misfortunes are chosen less often than messages, or nothing else would ever happen.
            let rank = |choice: &Choice| match choice {
                Choice::Serve(_) | Choice::Deliver(_) | Choice::Wake(_) => 0,
                Choice::ServeSlowly(_) | Choice::ServeStale(_) | Choice::Tick(_) => 1,
                Choice::Ask(..) | Choice::Release(..) | Choice::Need(..) => 1,
                Choice::Read(_) => 1,
                Choice::Miss(_) | Choice::Doom(_) | Choice::Expire(_) => 1,
                Choice::Cut(_) | Choice::Crash(_) | Choice::Stop(_) => 2,
                Choice::Evict(_) | Choice::LoseCreate(_) | Choice::LoseDelete(_) => 2,
            };
            let wanted = match die % 64 { 0..40 => 0, 40..63 => 1, _ => 2 };
            if choices.iter().any(|choice| rank(choice) <= wanted) {
                choices.retain(|choice| rank(choice) <= wanted);
            }
            let Some(choice) = choices.get((die / 64) as usize % choices.len().max(1)) else { break };
            path.push(*choice);
            world.apply(*choice, &rules);
            prop_assert_eq!(world.broken(&rules), None, "{}", World::scenario(&rules, &path));
        }
        let ill = world.heal(&rules);
        prop_assert!(ill.is_none(), "{ill:?} {}", World::scenario(&rules, &path));
    }
}
