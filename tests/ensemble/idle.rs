//! Members far from the head: what an idle election asks of its servers, and how long there is no leader when all that send
//! regular heartbeats leave together.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::{Member, Setup},
    sampler::{Sampler, longest_without_a_leader},
    servers::{Server, Servers},
};
use std::{
    env, thread,
    time::{Duration, Instant},
};

const SESSION: Duration = Duration::from_secs(10);

/// `MEMBERS=100` measures an election of another size.
#[test]
fn an_election_in_which_nothing_happens_sends_few_packets() {
    let members = env::var("MEMBERS").map_or(20, |number| number.parse().expect("a number"));
    let at_most = if members < 100 { 0.8 } else { 0.55 };
    let mut servers = Servers::standalone();
    let setup = Setup::of(&servers).sessions(SESSION);
    let all: Vec<Member> = (0..members).map(|n| setup.start(&format!("member-{n}"))).collect();
    // The heartbeats of number 0 are the closest together: another leads.
    let first = agreed(&all);
    let leader = all.iter().find(|member| member.id == first.id).expect("one of them leads");
    assert_eq!(leader.post("/resign").status, 202);
    agreed_after(&first, &all);
    thread::sleep(SESSION);

    let before = packets_received(servers.first());
    let begun = Instant::now();
    thread::sleep(3 * SESSION);
    let received = packets_received(servers.first()) - before;
    let rate = received / begun.elapsed().as_secs_f64() / f64::from(members);

    println!("{members} members: {rate:.3} packets received for each and second");
    assert!(rate <= at_most, "{rate}");
    assert!(rate > 0.4, "each member sends heartbeats: {rate}");
}

/// As the last step of a rollout may do: the leader, the standby, the third and two more. The next has had no regular
/// heartbeats.
#[test]
fn five_of_twenty_that_leave_together_are_followed_by_the_sixth() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).sessions(SESSION);
    let ids = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t",
    ];
    let members = started_in_order(&setup, ids);
    let before = agreed(&members);
    thread::sleep(SESSION / 2);

    let staying = &members[5..];
    let sampler = Sampler::of(&members[4..8]);
    sampler.ask_all();
    let begun = Instant::now();
    members[..5].iter().for_each(|member| member.signal("TERM"));
    let leader = agreed_after(&before, staying);
    sampler.ask_all();

    let without = longest_without_a_leader(&sampler.stints(), begun, Instant::now());
    println!("without a leader for {without:?}, then {} leads", leader.id);
    assert_eq!(leader.id, "f");
    sampler.saw_one_leader_at_a_time();
    assert!(without < SESSION, "{without:?}");
}

fn packets_received(server: &Server) -> f64 {
    let counters = server.ask("mntr").expect("it runs");
    let line = counters.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    line.and_then(|number| number.trim().parse().ok()).expect("every server counts them")
}
