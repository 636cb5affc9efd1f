//! How often a follower wakes: no more often than what it asks of ZooKeeper explains.

use crate::{
    group::started_in_order,
    member::{Member, Setup},
    servers::{Server, Servers},
    wait::eventually,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// For each heartbeat a timer, and for each of its two requests an answer; and twice that, for a machine that
/// is busy. With a thread of its own for timers and sockets, as in the crates that `patches/` stands for, it is four.
const WAKE_UPS_A_REQUEST: u64 = 3;

const REQUESTS: u64 = 60;

#[test]
fn a_follower_wakes_for_its_heartbeats_and_for_nothing_else() {
    let mut servers = Servers::standalone();
    let [_leader, _standby, follower] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c"]);
    let (asked, woken) = counted(servers.first(), &follower, wake_ups);
    eprintln!("{woken} wake-ups for {asked} requests");
    assert!(woken <= WAKE_UPS_A_REQUEST * asked, "{woken} wake-ups for {asked} requests");
}

/// Others look again when the lease that they saw ends, which is renewed several times meanwhile.
#[test]
fn a_leader_wakes_no_other_thread_for_each_heartbeat() {
    let mut servers = Servers::standalone();
    let [leader, _standby] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let (asked, woken) = counted(servers.first(), &leader, others_wake_ups);
    eprintln!("{woken} wake-ups of other threads for {asked} requests");
    assert!(3 * woken <= asked, "{woken} wake-ups of other threads for {asked} requests");
}

/// Returns how many requests a member sends meanwhile, and how often it wakes.
fn counted(server: &Server, member: &Member, wake_ups: fn(&Member) -> u64) -> (u64, u64) {
    let session = member.status()["session"]["id"].as_str().expect("it has one").to_owned();
    // What it does because it has just joined, or was asked, is over after some heartbeats.
    let joined = requests(server, &session);
    eventually("some heartbeats", || at_least(joined + 10, requests(server, &session)));

    let (asked, woken) = (requests(server, &session), wake_ups(member));
    eventually("many heartbeats", || at_least(asked + REQUESTS, requests(server, &session)));
    let woken = wake_ups(member) - woken;
    (requests(server, &session) - asked, woken)
}

fn at_least(wanted: u64, counted: u64) -> Result<(), String> {
    if counted >= wanted { Ok(()) } else { Err(format!("{counted} of {wanted}")) }
}

/// Returns how many requests the server has had from this session's connection.
fn requests(server: &Server, session: &str) -> u64 {
    let all = server.ask("cons").expect("it runs");
    let own = all.lines().find(|line| line.contains(&format!("sid={session},")));
    let own = own.unwrap_or_else(|| panic!("{session} is not in {all}"));
    let count = own.split_once("recved=").and_then(|(_, rest)| rest.split(',').next());
    count.and_then(|count| count.parse().ok()).expect("a number")
}

/// Returns the voluntary context switches of all threads.
fn wake_ups(member: &Member) -> u64 {
    wake_ups_of(member, |_| true)
}

/// Returns the voluntary context switches of all threads but the election's.
fn others_wake_ups(member: &Member) -> u64 {
    wake_ups_of(member, |name| name != "election")
}

fn wake_ups_of(member: &Member, is_counted: impl Fn(&str) -> bool) -> u64 {
    let tasks = format!("/proc/{}/task", member.process_id());
    let threads = fs::read_dir(tasks).expect("it runs").flatten();
    let of_thread = |path: PathBuf| -> u64 {
        let status = fs::read_to_string(path.join("status")).expect("its threads stay");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts them")
    };
    let name = |path: &Path| fs::read_to_string(path.join("comm")).expect("its threads stay");
    let paths = threads.map(|thread| thread.path());
    paths.filter(|path| is_counted(name(path).trim_end())).map(of_thread).sum()
}
