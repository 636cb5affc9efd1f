//! The protocol told in examples.
//!
//! `play` continues the world of the case before it, unless its arguments describe another world; `anew` begins a new
//! world by the same rules.

use super::faults::Faults;
use super::world::{Choice, Rules, World};
use super::{BARRIER, READ, WRITE, of, slots};
use bellwether_recipes::holding::{HoldingId, HoldingSpec};
use bellwether_recipes::{Margins, Sequence, SessionId};
use datadriven::TestCase;
use std::time::Duration;

const RULES: Rules = Rules {
    processes: 3,
    asked: &[],
    settled: false,
    menu: &[WRITE, READ],
    asks_max: u64::MAX,
    timeout: Duration::from_secs(10),
    margins: Margins { heartbeat: Duration::from_secs(1), half_tick: Duration::from_secs(1) },
    idle_after: Duration::from_secs(3),
    reads: false,
    tick: Duration::from_secs(1),
    exact: false,
    prompt: false,
    horizon: Duration::MAX,
    misfortunes_max: u32::MAX,
    sessions_max: i64::MAX,
    faults: Faults::NONE,
    flaw: None,
    at_wrong: &[],
};

#[test]
fn scenarios() {
    datadriven::walk("tests/holdings/scenarios", |file| {
        let mut rules = RULES;
        let mut world = World::new(&rules);
        file.run(|case| -> String {
            match case.directive.as_str() {
                "play" => {}
                "anew" => world = World::new(&rules),
                other => panic!("no such directive: {other}"),
            }
            if !case.args.is_empty() {
                rules = rules_of(&mut case.clone());
                world = World::new(&rules);
            }
            world.trace = Some(vec![]);
            case.input.lines().for_each(|line| play(&mut world, line, &rules));
            let mut trace = world.trace.take().unwrap_or_default();
            trace.extend(world.broken(&rules).map(|what| format!("BROKEN: {what}")));
            trace.join("\n") + "\n"
        })
    });
}

/// `play processes=2 timeout=6s heartbeat=1s half_tick=1s prompt wrong=01 barrier`: another world than [`RULES`]'.
fn rules_of(case: &mut TestCase) -> Rules {
    let mut span = |key| {
        let written: String = case.take_arg(key).expect("a span");
        humantime::parse_duration(&written).expect("a span such as 6s or 500ms")
    };
    let timeout = span("timeout");
    let margins = Margins { heartbeat: span("heartbeat"), half_tick: span("half_tick") };
    let wrong = case.try_take_arg::<String>("wrong").expect("numbers of processes");
    let number = |digit: char| digit.to_digit(10).expect("digits") as usize;
    let wrong: Vec<usize> = wrong.map_or(vec![], |digits| digits.chars().map(number).collect());
    let barrier = case.take_flag("barrier").expect("a flag");
    let rules = Rules {
        processes: case.take_arg("processes").expect("how many processes"),
        prompt: case.take_flag("prompt").expect("a flag"),
        at_wrong: wrong.leak(),
        menu: if barrier { &[BARRIER] } else { RULES.menu },
        timeout,
        margins,
        ..RULES
    };
    case.expect_empty().expect("no other arguments");
    rules
}

fn play(world: &mut World, line: &str, rules: &Rules) {
    let words: Vec<_> = line.split_whitespace().collect();
    let span = |word: &str| humantime::parse_duration(word).expect("a span such as 2s");
    let session = |number: &str| SessionId(number.parse().expect("a number"));
    let sequence = |znode: &str| {
        let number = znode.trim_start_matches('#').parse().expect("a number");
        Sequence::new(number).expect("no negative number")
    };
    let who = |name: &str| "abcdefg".find(name).expect("a process from a to g");
    let number = |word: &str| of(word.parse().expect("a number"));
    world.tell(line.to_owned());
    let choice = match words[..] {
        ["settle"] => return world.settle(rules),
        ["standings"] => return world.tell_standings(),
        ["the", "znodes"] => return world.tell_znodes(),
        [length, "pass"] => return pass(world, span(length), None, rules),
        [length, "pass", "without", name] => {
            return pass(world, span(length), Some(who(name)), rules);
        }
        [length, "of", "silence"] => Choice::Tick(span(length)),
        [name, "asks", "to", "write"] => Choice::Ask(who(name), WRITE),
        [name, "asks", "to", "read"] => Choice::Ask(who(name), READ),
        [name, "asks", "for", "one", "of", many, "slots"] => {
            Choice::Ask(who(name), HoldingSpec::Lock(slots(number(many).get())))
        }
        [name, "asks", "for", "a", "barrier", "of", many] => {
            Choice::Ask(who(name), HoldingSpec::Barrier(number(many)))
        }
        [name, "releases", id] => {
            Choice::Release(who(name), HoldingId(id.parse().expect("a number")))
        }
        [name, "is", "served"] => Choice::Serve(who(name)),
        [name, "is", "served", "slowly"] => Choice::ServeSlowly(who(name)),
        [name, "is", "served", "stale"] => Choice::ServeStale(who(name)),
        [name, "hears"] => Choice::Deliver(who(name)),
        [name, "wakes"] => Choice::Wake(who(name)),
        [name, "needs", "its", "session"] => Choice::Need(who(name), true),
        [name, "needs", "no", "session"] => Choice::Need(who(name), false),
        [name, "reads", "a", "queue"] => Choice::Read(who(name)),
        [name, "is", "cut", "off"] => Choice::Cut(who(name)),
        [name, "crashes"] => Choice::Crash(who(name)),
        [name, "is", "told", "to", "stop"] => Choice::Stop(who(name)),
        ["session", number, "is", "missed"] => Choice::Miss(session(number)),
        ["session", number, "is", "doomed"] => Choice::Doom(session(number)),
        ["session", number, "expires"] => Choice::Expire(session(number)),
        ["a", "server", "loses", "the", "making", "of", znode] => {
            Choice::LoseCreate(sequence(znode))
        }
        ["a", "server", "will", "lose", "the", "deletion", "of", znode] => {
            Choice::LoseDelete(sequence(znode))
        }
        [znode, "is", "deleted"] => Choice::Evict(sequence(znode)),
        _ => panic!("no such step: «{line}»"),
    };
    world.apply(choice, rules);
}

fn pass(world: &mut World, span: Duration, isolated: Option<usize>, rules: &Rules) {
    let end = world.now.after(span);
    while world.now < end {
        world.live_without(isolated, rules.tick, rules);
    }
}
