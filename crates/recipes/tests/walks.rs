//! Long random walks through worlds too large to search. A failing walk shrinks to a short one.

mod sim;

use bellwether_recipes::Margins;
use bellwether_recipes::election::Policy;
use proptest::prelude::*;
use sim::{Choice, Faults, Rules, World};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

prop_compose! {
    fn faults()(
        [crashes, restarts, cuts, delays, lost_reports, stale_reads] in any::<[bool; 6]>(),
        [orders, moves, sickness, evictions, lies, razing, forgeries] in any::<[bool; 7]>(),
        [lost_creates, lost_deletes, transfers, priorities] in any::<[bool; 4]>(),
    ) -> Faults {
        Faults { crashes, restarts, cuts, delays, lost_reports, stalls: false, stale_reads, orders, moves, sickness, evictions, lies, razing, forgeries, lost_creates, lost_deletes, transfers, priorities, ..Faults::default() }
    }
}

prop_compose! {
    fn rules()(heartbeat in 200..800u64, half_tick in 0..800u64)(
        members in 1..=7usize,
        heartbeat in Just(heartbeat),
        half_tick in Just(half_tick),
        spare in 50..4_000u64,
        tick in 50..900u64,
        preempts in any::<bool>(),
        wait in 50..4_000u64,
        has_wrong_server in any::<bool>(),
        among in prop::bool::weighted(0.3),
        faults in faults(),
    ) -> Rules {
        // What force by unknown clients and a server that lost a transaction do together is promised nothing about.
        let faults = if has_wrong_server {
            Faults { evictions: false, lies: false, razing: false, forgeries: false, ..faults }
        } else {
            faults
        };
        // Nor about unknown clients' force and lies in a queue where members write nothing.
        let faults = if among {
            Faults { evictions: false, lies: false, razing: false, forgeries: false, moves: false, transfers: false, priorities: false, ..faults }
        } else {
            faults
        };
        let margins = Margins { heartbeat: ms(heartbeat), half_tick: ms(half_tick) };
        Rules {
            members,
            timeout: margins.least_session_timeout() + ms(spare),
            policy: Policy {
                margins,
                preempt_after: preempts.then(|| ms(wait)),
            },
            tick: ms(tick),
            exact: true,
            moments_differ: true,
            prompt: false,
            horizon: Duration::MAX,
            misfortunes_max: u32::MAX,
            sessions_max: i64::MAX,
            faults,
            flaw: None,
            settled: false,
            aged: Duration::ZERO,
            at_wrong: if has_wrong_server && !among { &[1, 2, 5] } else { &[] },
            only_wrong: false,
            priorities: if faults.priorities { &[50, 70, 0, 70, 50, 100, 10] } else { &[] },
            recovers: false,
            among,
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
            // Time and misfortunes are chosen less often than messages, or nothing else would ever happen.
            let rank = |choice: &Choice| match choice {
                Choice::Serve(_) | Choice::Deliver(_) | Choice::Wake(_) => 0,
                Choice::ServeSlowly(_) | Choice::ServeStale(_) | Choice::Tick(_) => 1,
                Choice::Miss(_) | Choice::Doom(_) | Choice::Expire(_) => 1,
                Choice::Restart(_) | Choice::ServeLate(_) => 1,
                Choice::RestartAnew(_) | Choice::Twin(_) => 2,
                Choice::Cut(_) | Choice::Crash(_) | Choice::Stop(_) => 2,
                Choice::Resign(_) | Choice::Pause(_) | Choice::Resume(_) | Choice::Describe(_) => 2,
                Choice::Transfer(..) | Choice::CancelTransfer(_) => 2,
                Choice::OthersJoin | Choice::OtherLeaves(_) => 2,
                Choice::KeepOut(_) | Choice::LetIn(_) => 2,
                Choice::HandOver(_) | Choice::Preempt(_) => 1,
                Choice::Prioritize(..) => 2,
                Choice::Ail(_) | Choice::Recover(_) => 2,
                Choice::Evict(_) | Choice::Lie(..) | Choice::Raze | Choice::Forge(_) => 2,
                Choice::LoseCreate(_) | Choice::LoseDelete(_) => 2,
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

/// The leader is healthy as long as any member is. If none is, no member leads.
#[test]
fn applications_fail_and_recover_in_every_order() {
    let margins = Margins { heartbeat: ms(500), half_tick: ms(500) };
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let rules = Rules {
        members: 3,
        timeout: ms(4_000),
        policy: Policy::new(margins),
        tick: ms(100),
        exact: false,
        moments_differ: true,
        prompt: false,
        horizon: Duration::MAX,
        misfortunes_max: u32::MAX,
        sessions_max: i64::MAX,
        faults: Faults::default(),
        flaw: None,
        settled: true,
        aged: Duration::ZERO,
        at_wrong: &[],
        only_wrong: false,
        priorities: &[],
        recovers: false,
        among: false,
    };
    for (fail, recover) in orders.iter().flat_map(|f| orders.iter().map(move |r| (f, r))) {
        let mut world = World::new(&rules);
        let mut ill = vec![];
        let steps = fail.map(Choice::Ail).into_iter().chain(recover.map(Choice::Recover));
        for step in steps {
            match step {
                Choice::Ail(i) => ill.push(i),
                Choice::Recover(i) => ill.retain(|one| *one != i),
                _ => unreachable!("they only fail and recover"),
            }
            world.apply(step, &rules);
            world.settle(&rules);
            for _ in 0..20 {
                world.live(ms(100), &rules);
            }
            let leaders: Vec<_> = world.leaders().map(|(leader, _)| leader.name).collect();
            let well = |name: &&str| !ill.iter().any(|&i| world.members[i].name == *name);
            let case = format!("{fail:?} {recover:?}: {ill:?} {leaders:?}");
            match ill.len() {
                3 => assert!(leaders.is_empty(), "{case}"),
                _ => assert!(leaders.len() == 1 && leaders.iter().all(well), "{case}"),
            }
            assert_eq!(world.broken(&rules), None, "{case}");
        }
    }
}
