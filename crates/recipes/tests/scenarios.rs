//! The protocol told in examples: `tests/scenarios/*.txt`.
//!
//! If one fails, run with `REWRITE=1` and read the diff. Commit it only if you can say why.
//!
//! `play` continues the world of the case before it, unless its arguments describe another world; `anew` begins a new
//! world by the same rules.

mod sim;

use bellwether_recipes::election::{Policy, Priority};
use bellwether_recipes::{Margins, Sequence, SessionId};
use datadriven::TestCase;
use sim::{Choice, Faults, Lie, Rules, World};
use std::time::Duration;

const RULES: Rules = Rules {
    members: 0,
    timeout: Duration::from_secs(6),
    policy: Policy::new(Margins {
        heartbeat: Duration::from_secs(1),
        half_tick: Duration::from_secs(1),
    }),
    tick: Duration::from_secs(1),
    exact: false,
    moments_differ: false,
    prompt: false,
    horizon: Duration::MAX,
    misfortunes_max: u32::MAX,
    sessions_max: i64::MAX,
    faults: Faults {
        crashes: true,
        restarts: true,
        cuts: true,
        evictions: true,
        razing: true,
        forgeries: true,
        lost_creates: true,
        lost_deletes: true,
        ..Faults::NONE
    },
    flaw: None,
    settled: false,
    aged: Duration::ZERO,
    at_wrong: &[],
    only_wrong: false,
    priorities: &[],
    recovers: false,
    among: false,
};

#[test]
fn scenarios() {
    datadriven::walk("tests/scenarios", |file| {
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

/// `play members=2 timeout=6s heartbeat=1s half_tick=1s prompt wrong=01 only_wrong preempt=9s
/// priorities=50-90 among aged=2s tick=1s`: another world than [`RULES`]'.
fn rules_of(case: &mut TestCase) -> Rules {
    let mut span = |key| {
        let written: String = case.take_arg(key).expect("a span");
        humantime::parse_duration(&written).expect("a span such as 6s or 500ms")
    };
    let timeout = span("timeout");
    let margins = Margins { heartbeat: span("heartbeat"), half_tick: span("half_tick") };
    let preempt_after = case.try_take_arg::<String>("preempt").expect("a span");
    let preempt_after =
        preempt_after.map(|it| humantime::parse_duration(&it).expect("a span such as 6s or 500ms"));
    let priorities = case.try_take_arg::<String>("priorities").expect("numbers");
    let priorities: Vec<u8> = priorities
        .map_or(vec![], |all| all.split('-').map(|it| it.parse().expect("a priority")).collect());
    let wrong = case.try_take_arg::<String>("wrong").expect("numbers of members");
    let aged = case.try_take_arg::<String>("aged").expect("a span");
    let tick = case.try_take_arg::<String>("tick").expect("a span");
    let optional = |written: Option<String>| {
        written.map(|it| humantime::parse_duration(&it).expect("a span such as 6s or 500ms"))
    };
    let number = |digit: char| digit.to_digit(10).expect("digits") as usize;
    let wrong: Vec<usize> = wrong.map_or(vec![], |digits| digits.chars().map(number).collect());
    let rules = Rules {
        at_wrong: wrong.leak(),
        priorities: priorities.leak(),
        only_wrong: case.take_flag("only_wrong").expect("a flag"),
        members: case.take_arg("members").expect("how many members"),
        timeout,
        policy: Policy { margins, preempt_after },
        prompt: case.take_flag("prompt").expect("a flag"),
        settled: case.take_flag("settled").expect("a flag"),
        moments_differ: case.take_flag("moments_differ").expect("a flag"),
        among: case.take_flag("among").expect("a flag"),
        aged: optional(aged).unwrap_or_default(),
        tick: optional(tick).unwrap_or(RULES.tick),
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
    world.tell(line.to_owned());
    let choice = match words[..] {
        [name, "joins"] => return world.join(String::leak(name.to_owned()), rules),
        // How members join is shown in `handover.txt`.
        [ref names @ .., "are" | "is", "in", "the", "queue"] => {
            let trace = world.trace.replace(vec![]);
            for name in names {
                world.join(String::leak((*name).to_owned()), rules);
                world.settle(rules);
            }
            world.trace = trace;
            return;
        }
        [name, "gives", "its", "session", "up"] => return world.give_session_up(world.named(name)),
        [name, "hears", "again:", ..] => {
            let (_, said) = line.split_once("again: ").expect("what it hears");
            return world.repeat(world.named(name), said);
        }
        ["the", "queue"] => return world.tell_queue(),
        ["settle"] => return world.settle(rules),
        ["standings"] => return world.tell_standings(),
        [length, "pass"] => return pass(world, span(length), None, rules),
        [length, "pass", "without", name] => {
            let isolated = Some(world.named(name));
            return pass(world, span(length), isolated, rules);
        }
        [length, "of", "silence"] => Choice::Tick(span(length)),
        [name, "is", "served"] => Choice::Serve(world.named(name)),
        [name, "is", "served", "slowly"] => Choice::ServeSlowly(world.named(name)),
        [name, "is", "served", "stale"] => Choice::ServeStale(world.named(name)),
        [name, "hears"] => Choice::Deliver(world.named(name)),
        [name, "wakes"] => Choice::Wake(world.named(name)),
        [name, "is", "cut", "off"] => Choice::Cut(world.named(name)),
        [name, "crashes"] => Choice::Crash(world.named(name)),
        ["another", "contends"] => Choice::OthersJoin,
        ["the", "contender", znode, "leaves"] => Choice::OtherLeaves(sequence(znode)),
        [name, "is", "to", "keep", "out"] => Choice::KeepOut(world.named(name)),
        [name, "is", "let", "in"] => Choice::LetIn(world.named(name)),
        [name, "is", "restarted"] => Choice::Restart(world.named(name)),
        [name, "is", "restarted", "without", "its", "note"] => {
            Choice::RestartAnew(world.named(name))
        }
        ["what", name, "sent", "before", "is", "received"] => Choice::ServeLate(world.named(name)),
        [name, "is", "started", "a", "second", "time"] => Choice::Twin(world.named(name)),
        [name, "is", "told", "to", "resign"] => Choice::Resign(world.named(name)),
        [name, "is", "told", "to", "hand", "over", "to", "none"] => {
            Choice::CancelTransfer(world.named(name))
        }
        [name, "is", "told", "to", "hand", "over", "to", target] => {
            Choice::Transfer(world.named(name), sequence(target))
        }
        [name, "hands", "over"] => Choice::HandOver(world.named(name)),
        [name, "yields"] => Choice::Preempt(world.named(name)),
        [name, "has", "priority", number] => {
            let number = number.parse().expect("a number");
            Choice::Prioritize(world.named(name), Priority::new(number).expect("up to 100"))
        }
        [name, "is", "told", "to", "pause"] => Choice::Pause(world.named(name)),
        [name, "is", "told", "to", "resume"] => Choice::Resume(world.named(name)),
        [name, "ails"] => Choice::Ail(world.named(name)),
        [name, "recovers"] => Choice::Recover(world.named(name)),
        [name, "moves"] => Choice::Describe(world.named(name)),
        [name, "is", "told", "to", "stop"] => Choice::Stop(world.named(name)),
        ["session", number, "is", "missed"] => Choice::Miss(session(number)),
        ["session", number, "is", "doomed"] => Choice::Doom(session(number)),
        ["session", number, "expires"] => Choice::Expire(session(number)),
        ["an", "unknown", "client", "lets", znode, "say", ..] => {
            let (_, said) = line.split_once(" say ").expect("what it says");
            let lie = Lie::ALL.into_iter().find(|lie| lie.name() == said).expect("a known lie");
            Choice::Lie(sequence(znode), lie)
        }
        ["the", "path", "is", "deleted"] => Choice::Raze,
        ["an", "unknown", "client", "makes", znode] => Choice::Forge(sequence(znode)),
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
