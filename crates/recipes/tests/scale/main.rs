//! What elections cost their servers: the formulas against members in memory, and what they say of large elections.

mod crowd;
mod formulas;

use bellwether_recipes::Moment;
use crowd::{BEGINNING, Crowd, Rules};
use formulas::{Bounds, Cost, Election, Wire};
use std::time::Duration;

/// A server that takes no time, but for the network: only what it receives and sends counts.
const PROMPT: Rules = Rules {
    timeout: Duration::from_secs(10),
    network: Duration::from_micros(100),
    commit: Duration::ZERO,
    service: Duration::ZERO,
    service_of_name: Duration::ZERO,
};

/// A server as it was measured on a machine of two cores, at its slowest, by `scripts/bench scale`.
const MEASURED: Rules = Rules {
    timeout: Duration::from_secs(40),
    network: Duration::from_micros(50),
    commit: Duration::from_micros(300),
    service: Duration::from_micros(31),
    service_of_name: Duration::from_nanos(225),
};

#[test]
fn joining_one_after_the_other_costs_what_the_formula_says() {
    for members in [2, 3, 10, 100] {
        let crowd = in_turn(members, PROMPT);
        assert_eq!(crowd.cost, election(members).joining_in_turn(), "{members} members");
        assert_eq!(crowd.watches() as f64, election(members).watches());
        assert!(crowd.all_name_the_leader());
    }
}

#[test]
fn joining_at_once_costs_no_less_and_no_more_than_the_formula_says() {
    for members in [3, 10, 100] {
        for network in [0, 100] {
            let crowd =
                at_once(members, Rules { network: Duration::from_micros(network), ..PROMPT });
            assert!(crowd.all_name_the_leader());
            assert_between(crowd.cost, election(members).joining_at_once());
        }
    }
}

#[test]
fn an_election_in_which_nothing_happens_costs_what_the_formula_says() {
    let members = 100;
    let mut crowd = in_turn(members, PROMPT);
    crowd.begin_heartbeats();
    assert_near(idle(&mut crowd), election(members).idle());
}

type Change = fn(&mut Crowd);

#[test]
fn a_change_of_leader_costs_what_the_formula_says() {
    let members = 100;
    // So long that each member has sent two heartbeats.
    let window = Duration::from_secs(5);
    let settled = || {
        let mut crowd = in_turn(members, PROMPT);
        crowd.begin_heartbeats();
        idle(&mut crowd);
        crowd.cost = Cost::default();
        crowd
    };
    // The same without a change.
    let mut before = settled();
    before.run_until(before.now.after(window));
    let changes: [(Change, Cost); 3] = [
        (|crowd| crowd.resign(0), election(members).hand_over()),
        (|crowd| crowd.kill(0, Duration::ZERO), election(members - 1).leader_gone()),
        (
            |crowd| [0, 1].into_iter().for_each(|it| crowd.kill(it, Duration::ZERO)),
            election(members - 2).first_two_gone(),
        ),
    ];
    for (change, expected) in changes {
        let mut crowd = settled();
        assert_eq!(crowd.leader(), Some(0));
        change(&mut crowd);
        crowd.run_until(crowd.now.after(window));
        assert!(crowd.all_name_the_leader());
        assert_near(crowd.cost, before.cost + expected);
    }
}

#[test]
fn the_end_of_half_of_the_members_costs_no_less_and_no_more_than_the_formula_says() {
    let members = 400;
    for apart in [Duration::ZERO, Duration::from_millis(1)] {
        let mut crowd = in_turn(members, PROMPT);
        crowd.cost = Cost::default();
        kill_half(&mut crowd, members, apart);
        crowd.settle();
        assert_eq!(crowd.in_queue(), members / 2);
        assert!(crowd.all_name_the_leader());
        // Which of them are neighbours is left to chance.
        let Bounds { least, most } = election(members).half_gone();
        assert_between(crowd.cost, Bounds { least: 0.9 * least, most: 1.1 * most });
    }
}

/// `scripts/bench scale` holds the formulas against a server; this holds the page against the formulas.
#[test]
fn the_page_shows_what_the_formulas_say() {
    let (page, table) = (include_str!("../../../../docs/scale.md"), predictions());
    assert!(page.contains(&table), "docs/scale.md has another table than this:\n\n{table}");
}

/// Prints when all members of a large election name their leader, by members in memory and a server as fast as the one that was
/// measured: `cargo test -p bellwether-recipes --test scale -- --ignored --nocapture`.
#[test]
#[ignore = "takes some seconds, and prints figures for docs/scale.md"]
fn large_elections_take_so_long() {
    for members in [500, 2_000, 5_000, 10_000] {
        let seconds = |from: Moment, crowd: &Crowd| (crowd.now.0 - from.0).as_secs_f64();
        let crowd = at_once(members, MEASURED);
        let joined = seconds(BEGINNING, &crowd);
        assert!(crowd.all_name_the_leader());
        let Bounds { least, most } = election(members).joining_at_once();
        assert_between(crowd.cost, Bounds { least: 0.99 * least, most });

        let mut crowd = in_turn(members, PROMPT.of_timeout(MEASURED.timeout));
        crowd.rules = MEASURED;
        crowd.begin_heartbeats();
        crowd.run_until(crowd.now.after(4 * crowd.heartbeat()));
        let leader = crowd.leader().expect("one leads");
        let died = crowd.now;
        crowd.kill(leader, Duration::ZERO);
        crowd.run_while(Duration::from_micros(10), |it| it.in_queue() == members);
        crowd.run_while(Duration::from_millis(10), |it| !it.half_name_the_leader());
        let half = seconds(died, &crowd);
        crowd.run_while(Duration::from_millis(10), |it| !it.all_name_the_leader());
        println!(
            "{members} members: joined at once after {joined:.2} s; of a new leader half know after {half:.2} s, all after \
             {:.2} s",
            seconds(died, &crowd)
        );

        let mut crowd = in_turn(members, PROMPT);
        assert_eq!(crowd.cost, election(members).joining_in_turn());
        crowd.cost = Cost::default();
        kill_half(&mut crowd, members, Duration::ZERO);
        crowd.settle();
        let Bounds { least, most } = election(members).half_gone();
        assert_between(crowd.cost, Bounds { least: 0.97 * least, most });
    }
}

/// The table of docs/scale.md: an election of 10,000, and 1,000 elections of three together.
fn predictions() -> String {
    let [many, long] = [10.0, 40.0].map(|timeout| Election {
        members: 10_000.0,
        heartbeat: timeout / 10.0,
        wire: Wire::BENCH,
    });
    let [few, few_long] = [many, long].map(|it| Election { members: 3.0, ..it });
    let left_of_few = Election { members: 2.0, ..few };
    let exactly = Bounds::both;
    let rows = [
        ("A second in which nothing happens, T = 10 s", exactly(many.idle()), Some(few.idle())),
        ("The same, T = 40 s", exactly(long.idle()), Some(few_long.idle())),
        (
            "All join, one after the other",
            exactly(many.joining_in_turn()),
            Some(few.joining_in_turn()),
        ),
        ("All join at once", many.joining_at_once(), Some(few.joining_at_once().most)),
        ("The leader resigns", exactly(many.hand_over()), Some(few.hand_over())),
        ("The leader dies", exactly(many.leader_gone()), Some(left_of_few.leader_gone())),
        ("The leader and the standby die at once", exactly(many.first_two_gone()), None),
        ("A random half dies", many.half_gone(), None),
        ("All servers start again", exactly(many.restart()), Some(few.restart())),
    ];
    let mut table = "\
        | | Requests | Quorum writes | MB | Requests | Quorum writes | MB |\n\
        |---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for (what, Bounds { least, most }, each) in rows {
        let cells = |of: fn(&Cost) -> f64| range(of(&least), of(&most));
        let all =
            |of: fn(&Cost) -> f64| each.map_or_else(String::new, |it| short(1000.0 * of(&it)));
        let [requests, writes, mb]: [fn(&Cost) -> f64; 3] =
            [|it| it.requests, |it| it.writes, |it| it.bytes / 1e6];
        let cells =
            [cells(requests), cells(writes), cells(mb), all(requests), all(writes), all(mb)];
        table += &format!("| {what} | {} |\n", cells.join(" | "));
    }
    table
}

fn range(least: f64, most: f64) -> String {
    let (least, most) = (short(least), short(most));
    if least == most { least } else { format!("{least} to {most}") }
}

/// Three digits that count, with commas.
fn short(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let unit = 10_f64.powf(number.log10().floor() - 2.0);
    let digits = format!("{:.0}", (number / unit).round() * unit);
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Ends a half that is chosen as by chance, without the leader, in an order that is as well.
fn kill_half(crowd: &mut Crowd, members: usize, apart: Duration) {
    let scramble = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5bd1_e995;
    let by_chance = |i: &usize| scramble(scramble(*i) as usize >> 7) >> 11;
    let mut order: Vec<usize> = (1..members).collect();
    order.sort_by_key(by_chance);
    for (nth, member) in order.into_iter().take(members / 2).enumerate() {
        crowd.kill(member, u32::try_from(nth).expect("a few thousand") * apart);
    }
}

fn election(members: usize) -> Election {
    let heartbeat = PROMPT.timeout.as_secs_f64() / 10.0;
    Election { members: members as f64, heartbeat, wire: Wire::BENCH }
}

fn in_turn(members: usize, rules: Rules) -> Crowd {
    let mut crowd = Crowd::new(Wire::BENCH, rules);
    for _ in 0..members {
        crowd.join();
        crowd.settle();
    }
    crowd
}

fn at_once(members: usize, rules: Rules) -> Crowd {
    let mut crowd = Crowd::new(Wire::BENCH, rules);
    crowd.join();
    crowd.settle();
    (1..members).for_each(|_| crowd.join());
    crowd.settle();
    crowd
}

/// Returns what a second costs, in the mean of so many that each member has proved the head twice.
fn idle(crowd: &mut Crowd) -> Cost {
    let seconds = 128;
    crowd.cost = Cost::default();
    crowd.run_until(crowd.now.after(Duration::from_secs(seconds)));
    1.0 / seconds as f64 * crowd.cost
}

fn assert_near(cost: Cost, expected: Cost) {
    let few = Cost { requests: 4.0, notifications: 1.0, writes: 2.0, bytes: 500.0 };
    assert_between(
        cost,
        Bounds { least: 0.98 * expected + -1.0 * few, most: 1.02 * expected + few },
    );
}

#[track_caller]
fn assert_between(cost: Cost, Bounds { least, most }: Bounds) {
    let all = [
        ("requests", least.requests, cost.requests, most.requests),
        ("notifications", least.notifications, cost.notifications, most.notifications),
        ("writes", least.writes, cost.writes, most.writes),
        ("bytes", least.bytes, cost.bytes, most.bytes),
    ];
    for (what, least, counted, most) in all {
        assert!((least..=most).contains(&counted), "{what}: {counted}, not {least} to {most}");
    }
}
