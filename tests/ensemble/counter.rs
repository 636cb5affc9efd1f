//! The end of ZooKeeper's sequence counter, which sticks at 2147483647: beyond it names repeat, or turn
//! negative and sort before all others.

use crate::{
    group::{agreed, has_role, settled, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    proxy::{Mode, Proxy},
    sampler::Sampler,
    servers::{Servers, Settings},
    transaction_log::adler32,
    wait::{eventually, throughout},
};
use serde_json::Value;
use std::time::Duration;

const END: i32 = i32::MAX;

#[test]
fn t15_a_member_that_meets_the_end_of_the_counter_does_not_lead_and_says_so() {
    let mut servers = Servers::prepared(&Settings::default());
    servers.first().give_a_past(&past("/election", END));
    servers.start();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let setup = Setup::at(proxy.address());

    // One member gets the last number; creates of others that overlap with its own get negative numbers.
    proxy.set(Mode::Gathers(3));
    let mut members = Vec::from(["a", "b", "c", "d"].map(|id| setup.start(id)));
    let sampler = Sampler::of(&members);
    let leads = |member: &Member| has_role(member, "leader").is_ok();
    let place =
        eventually("one of them leads", || members.iter().position(leads).ok_or_else(String::new));
    let mut first = members.remove(place);
    eventually("the others say what is wrong", || members.iter().try_for_each(refused));
    let (old, _) = settled([&first], &observer);
    assert_eq!(old.znode, "leader_2147483647");
    first.wait_for_log("the sequence counter nears its end");
    throughout("it leads on, and no other member", Duration::from_secs(1), || {
        members.iter().try_for_each(refused)?;
        let named = agreed([&first]);
        if named == old { Ok(()) } else { Err(format!("{named:?}")) }
    });
    eventually("no other znode but its claim is left", || match observer.znode("/election") {
        Some(parent) if parent.stat.num_children == 2 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    sampler.saw_one_leader_at_a_time();

    first.signal("TERM");
    first.wait();
    observer.delete("/election");

    let (new, queue) = settled(&members, &observer);
    assert!(new.token > old.token, "{new:?} after {old:?}");
    assert!(queue.iter().all(|znode| znode.name.starts_with("leader_000000000")), "{queue:?}");
    for member in &members {
        assert_eq!(member.status()["session"]["problem"], Value::Null, "all is well again");
    }
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn a_million_joins_before_the_end_there_is_no_warning_yet() {
    let mut servers = Servers::prepared(&Settings::default());
    servers.first().give_a_past(&past("/election", END - 1_000_000));
    servers.start();
    let observer = Observer::of(&servers);

    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);

    let (_, queue) = settled([&first, &second], &observer);
    let names = queue.iter().map(|znode| &*znode.name);
    // The claim of the first has used one up.
    assert!(names.eq(["leader_2146483647", "leader_2146483649"]), "{queue:?}");
    let warned = [&first, &second].map(|member| member.log().contains("nears its end"));
    assert_eq!(warned, [false, true]);
}

fn refused(member: &Member) -> Result<(), String> {
    has_role(member, "absent")?;
    let status = member.status();
    let problem = status["session"]["problem"].as_str().unwrap_or_default();
    let told = "the sequence counter of /election is at its end";
    let said = problem.contains(told) && member.log().contains(told);
    if said { Ok(()) } else { Err(format!("{}: {status}", member.id)) }
}

/// A server's transaction log in which the next sequential znode below this path gets this number.
///
/// No client can set the counter, but a create in the log tells it: the parent takes on its number if that is
/// larger than its own.
fn past(parent: &str, counter: i32) -> Vec<u8> {
    const CREATE: i32 = 1;
    const DELETE: i32 = 2;
    let text = |text: &str| {
        let length = i32::try_from(text.len()).expect("a short text");
        [&length.to_be_bytes(), text.as_bytes()].concat()
    };
    let anyone = [&[0, 0, 0, 1, 0, 0, 0, 31][..], &text("world"), &text("anyone")].concat();
    let create = |path: &str, counter: i32| {
        [&*text(path), &[0; 4], &anyone, &[0], &counter.to_be_bytes()].concat()
    };
    let seed = format!("{parent}/seed");
    let entries =
        [(CREATE, create(parent, 1)), (CREATE, create(&seed, counter)), (DELETE, text(&seed))];

    // The format's name, its version and the database's number.
    let mut log = [&b"ZKLG"[..], &2_i32.to_be_bytes(), &0_i64.to_be_bytes()].concat();
    for (zxid, (kind, change)) in (1_i64..).zip(&entries) {
        // By session 0 with its request 0, at the beginning of time.
        let head = [&[0; 12][..], &zxid.to_be_bytes(), &[0; 8], &kind.to_be_bytes()].concat();
        let entry = [&*head, change].concat();
        log.extend(i64::from(adler32(&entry)).to_be_bytes());
        log.extend(i32::try_from(entry.len()).expect("a short entry").to_be_bytes());
        log.extend(entry);
        log.push(b'B');
    }
    log.extend([0; 64]);
    log
}
