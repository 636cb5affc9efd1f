//! Members that leave when told to: they hand over at once, and they go whatever ZooKeeper does.

use crate::{
    group::{agreed, agreed_after, ready, started_in_order},
    member::{LONG_SESSION, Member, Setup},
    observer::Observer,
    sampler::{Handover, Sampler, handovers, longest_without_a_leader},
    servers::{Servers, Settings},
    wait::eventually,
};
use std::time::{Duration, Instant};

/// Promised are 2 s. The rest is for a busy machine; what hangs on a dead server takes far longer.
const LEAVING: Duration = Duration::from_secs(3);

#[test]
fn sigterm_hands_over_without_waiting_for_a_timeout() {
    hands_over_on("TERM");
}

#[test]
fn sigint_hands_over_without_waiting_for_a_timeout() {
    hands_over_on("INT");
}

#[test]
fn a_client_may_have_a_member_leave_as_on_sigterm() {
    let servers = Servers::standalone();
    let [mut first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);

    assert_eq!(first.request("POST", "/shutdown").status, 403, "without the header");
    let told = first.post("/shutdown");
    assert_eq!((told.status, &*told.json()["done"].to_string()), (202, "\"begun to leave\""));

    leaves_well(&mut first);
    assert_eq!(agreed_after(&before, [&second]).id, "b");
}

#[test]
fn a_follower_that_leaves_takes_its_znode_along() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let [first, mut second] = started_in_order(&setup, ["a", "b"]);
    let leader = agreed([&first, &second]);

    second.signal("TERM");
    leaves_well(&mut second);

    let queue = observer.queue("/election", "leader_");
    assert_eq!(queue.iter().map(|znode| &znode.name).collect::<Vec<_>>(), [&leader.znode]);
    assert_eq!(agreed([&first]), leader);
}

#[test]
fn sigterm_while_zookeeper_hangs() {
    let mut servers = Servers::standalone();
    let [mut leader, mut follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);

    servers.first().pause();
    leader.signal("TERM");
    // A yes that was judged before is not written any more: its connection is closed. No connection at all would be in vain.
    let status =
        eventually("it says that it does not lead before it stops serving", || {
            match leader.try_request("GET", "/is-leader") {
                Ok(answer) if answer.status != 200 => Ok(answer.status),
                other => Err(format!("{other:?}")),
            }
        });
    assert_eq!(status, 503);
    leaves_well(&mut leader);
    follower.signal("TERM");
    leaves_well(&mut follower);
}

#[test]
fn sigterm_after_zookeeper_died() {
    let mut servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [mut leader, mut follower] = started_in_order(&setup, ["a", "b"]);

    servers.first().kill();
    eventually("the follower notices", || {
        let status = follower.status();
        if status["session"]["connected"] == false { Ok(()) } else { Err(status.to_string()) }
    });

    for member in [&mut leader, &mut follower] {
        member.signal("TERM");
        leaves_well(member);
    }
}

#[test]
fn sigterm_before_zookeeper_was_ever_there() {
    let servers = Servers::prepared(&Settings::default());
    let mut member = Setup::of(&servers).start("a");
    assert_eq!(member.get("/livez").status, 200);

    member.signal("TERM");
    leaves_well(&mut member);
}

#[test]
fn a_second_signal_exits_at_once() {
    let mut servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [mut member] = started_in_order(&setup, ["a"]);
    servers.first().pause();

    let said = member.log().len();
    member.signal("TERM");
    eventually("the first signal is handled, and logged", || {
        let log = member.log();
        if log[said..].to_lowercase().contains("leav") { Ok(()) } else { Err(log) }
    });
    member.signal("TERM");

    let (_, took) = member.wait();
    assert!(took < Duration::from_secs(1), "took {took:?}");
}

/// Each leaves from the head of the queue, so that each costs a hand-over, and none costs a session.
#[test]
fn a_rolling_restart_of_five_members() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let mut members = started_in_order(&setup, ["a", "b", "c", "d", "e"]);
    let before = agreed(&members);
    let sampler = Sampler::of(&members);

    let began = Instant::now();
    for member in &mut members {
        member.signal("TERM");
        leaves_well(member);
        *member = setup.start(&member.id);
        sampler.also(member);
        eventually("the member is back", || ready(member));
    }
    let took = began.elapsed();

    let after = agreed(&members);
    assert_eq!(after.id, "a", "each left from the head of the queue and came back at its tail");
    assert!(after.token > before.token);
    sampler.saw_one_leader_at_a_time();
    let stints = sampler.stints();
    let handovers = handovers(&stints);
    assert_eq!(handovers.len(), 5, "{handovers:?}");
    let gap = |it: &Handover| format!("{:.0} ms", it.most * 1000.0);
    let gaps: Vec<_> = handovers.iter().map(gap).collect();
    println!("five restarts in {took:.1?}, without a leader for at most {}", gaps.join(", "));
    let longest = longest_without_a_leader(&stints, began, began + took);
    assert!(longest < LONG_SESSION / 2, "no member led for {longest:?}");
}

fn hands_over_on(signal: &str) {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [mut first, second, third] = started_in_order(&setup, ["a", "b", "c"]);
    let old = agreed([&first, &second, &third]);
    let sampler = Sampler::of([&first, &second, &third]);

    let start = Instant::now();
    first.signal(signal);
    // Programs that pass signals on often send one twice.
    first.signal("INT");
    let new = agreed_after(&old, [&second, &third]);
    let took = start.elapsed();
    leaves_well(&mut first);

    assert_eq!(new.id, "b");
    assert!(new.token > old.token);
    assert!(took < LONG_SESSION / 2, "the hand-over took {took:?}");
    sampler.saw_one_leader_at_a_time();
}

#[track_caller]
fn leaves_well(member: &mut Member) {
    let (status, took) = member.wait();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < LEAVING, "leaving took {took:?}");
}
