//! The protocol told in examples: `tests/scenarios/*.txt`.
//!
//! If one fails, run with `REWRITE=1` and read the diff. Commit it only if you can say why.

mod sim;

use bellwether::election::{Disconnect, Margins, Policy, Sequence, SessionId};
use sim::{Choice, Faults, Rules, World};
use std::time::Duration;

const RULES: Rules = Rules {
    members: 0,
    timeout: Duration::from_secs(6),
    policy: Policy {
        margins: Margins { heartbeat: Duration::from_secs(1), half_tick: Duration::from_secs(1) },
        disconnect: Disconnect::Hold,
    },
    tick: Duration::from_secs(1),
    exact: false,
    prompt: false,
    horizon: Duration::MAX,
    misfortunes_max: u32::MAX,
    sessions_max: i64::MAX,
    faults: Faults {
        crashes: true,
        cuts: true,
        delays: false,
        lost_reports: false,
        stale_reads: false,
        evictions: true,
        razing: true,
    },
    flaw: None,
    settled: false,
};

#[test]
fn scenarios() {
    datadriven::walk("tests/scenarios", |file| {
        let mut world = World::new(&RULES);
        file.run(|case| -> String {
            world.trace = Some(vec![]);
            match case.directive.as_str() {
                "play" => case.input.lines().for_each(|line| play(&mut world, line)),
                other => panic!("no such directive: {other}"),
            }
            let mut story = world.trace.take().unwrap_or_default();
            story.extend(world.broken(&RULES).map(|what| format!("BROKEN: {what}")));
            story.join("\n") + "\n"
        })
    });
}

fn play(world: &mut World, line: &str) {
    let words: Vec<_> = line.split_whitespace().collect();
    let seconds = |word: &str| word.trim_end_matches('s').parse().expect("seconds");
    world.tell(line.to_owned());
    match words[..] {
        [name, "joins"] => world.join(String::leak(name.to_owned()), &RULES),
        [name, "crashes"] => world.apply(Choice::Crash(world.named(name)), &RULES),
        [name, "is", "cut", "off"] => world.apply(Choice::Cut(world.named(name)), &RULES),
        [name, "is", "told", "to", "stop"] => world.apply(Choice::Stop(world.named(name)), &RULES),
        ["session", number, "expires"] => {
            let session = SessionId(number.parse().expect("a number"));
            world.apply(Choice::Expire(session), &RULES);
        }
        [name, "hears"] => world.apply(Choice::Deliver(world.named(name)), &RULES),
        [name, "wakes"] => world.apply(Choice::Wake(world.named(name)), &RULES),
        [znode, "is", "deleted"] => {
            let number = znode.trim_start_matches('#').parse().expect("a number");
            let sequence = Sequence::new(number).expect("no negative number");
            world.apply(Choice::Evict(sequence), &RULES);
        }
        ["settle"] => world.settle(&RULES),
        [span, "pass"] => (0..seconds(span)).for_each(|_| world.live(RULES.tick, &RULES)),
        [span, "of", "silence"] => {
            (0..seconds(span)).for_each(|_| world.apply(Choice::Tick(RULES.tick), &RULES));
        }
        ["standings"] => world.tell_standings(),
        _ => panic!("nobody knows how to play «{line}»"),
    }
}
