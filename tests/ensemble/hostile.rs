//! A hostile client with write access to the election's znodes.

use crate::{
    group::{agreed, agreed_after, leader_of, settled, started_in_order},
    member::{LONG_SESSION, Member, Setup},
    observer::Observer,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};
use zookeeper::CreateMode;

/// By default a member sends heartbeats, and reads the head's znode, more often than this.
const HEARTBEAT: Duration = Duration::from_secs(LONG_SESSION.as_secs() / 10);

/// Members behind a false announcement may believe it until they have read the head's znode themselves; from then on
/// they believe the head only.
#[test]
fn lies_in_a_loop_from_the_middle_of_the_queue_are_believed_for_less_than_a_heartbeat() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, second, tail] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let (leader, queue) = settled([&first, &second, &tail], &observer);
    let middle = format!("/election/{}", queue[1].name);
    let named_by = |member: &Member| leader_of(member)["leader"]["id"].clone();

    // The first of these lies is plausible, so it is believed. Each lie claims to be newer than the one before.
    let lies = |n: u64| {
        let of_second = json!({ "id": "b", "labels": {}, "znode": queue[1].name, "token": queue[1].stat.czxid });
        let of_mallory = json!({ "id": "mallory", "labels": {}, "revision": n, "znode": leader.znode, "token": leader.token });
        let lie = if n.is_multiple_of(2) { of_mallory } else { of_second };
        json!({ "format": 1, "id": "b", "labels": {}, "leader": lie }).to_string()
    };
    let (mut seen, mut last) = (None, Instant::now());
    let begun = Instant::now();
    let mut n = 1;
    while begun.elapsed() < 5 * HEARTBEAT {
        observer.set(&middle, lies(n).as_bytes());
        n += 1;
        assert_eq!(named_by(&first), "a", "the leader is none of those behind");
        assert_eq!(named_by(&second), "a", "nor does it believe what its own znode says");
        // Counted from the answer to the first such question to the asking of the last: for so long at least.
        let asking = Instant::now();
        if named_by(&tail) != "a" {
            seen.get_or_insert_with(Instant::now);
            last = asking;
        }
    }
    let seen = seen.expect("a lie that was never believed shows nothing");
    let believed = last.saturating_duration_since(seen);
    assert!(believed < HEARTBEAT, "{believed:?}, of {n} lies");

    // Nor do the lies keep the next leader's announcement from the members behind.
    assert_eq!(agreed([&first, &second, &tail]), leader);
    first.signal("TERM");
    first.wait();
    assert_eq!(agreed_after(&leader, [&second, &tail]).id, "b");
}

/// A client that may create znodes in the path can make one with a smaller number than the leader's.
#[test]
fn a_client_that_makes_a_smaller_number_by_hand_is_never_named() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    // So that no member has the number 0.
    observer.create("/election/other", b"", CreateMode::Persistent);
    let setup = Setup::of(&servers).sessions(Duration::from_secs(4));
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    let (leader, _) = settled([&first, &second], &observer);

    let jumper = "/election/leader_0000000000";
    observer.create(jumper, b"", CreateMode::Ephemeral);
    let token = observer.znode(jumper).expect("it was made").stat.czxid;
    let says =
        json!({ "id": "mallory", "labels": {}, "znode": "leader_0000000000", "token": token });
    observer.set(
        jumper,
        json!({ "format": 1, "id": "mallory", "labels": {}, "leader": says })
            .to_string()
            .as_bytes(),
    );
    let third = setup.start("c");
    let named = || leader_of(&third)["leader"]["id"].clone();
    eventually("a new member says what is wrong", || {
        assert_ne!(named(), "mallory");
        let problem = third.status()["session"]["problem"].to_string();
        if problem.contains("made by hand") { Ok(()) } else { Err(problem) }
    });
    // Before it has read the head, it may have the leader's announcement from its predecessor.
    eventually("the new member names no leader", || match named() {
        serde_json::Value::Null => Ok(()),
        other => Err(other.to_string()),
    });
    throughout("no member believes it", Duration::from_secs(2), || {
        let named = [leader_of(&first), leader_of(&second), leader_of(&third)]
            .map(|told| told["leader"]["id"].to_string());
        let [a, b, c] = &named;
        if [a, b].iter().all(|named| **named == "\"a\"") && c == "null" {
            Ok(())
        } else {
            Err(format!("{named:?}"))
        }
    });
    observer.delete(jumper);
    assert_eq!(agreed([&first, &second, &third]), leader);
}

/// The leader reads its own znode with each heartbeat.
#[test]
fn what_was_written_into_the_leaders_znode_is_corrected_within_a_heartbeat() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, tail] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let (leader, queue) = settled([&first, &tail], &observer);
    let path = format!("/election/{}", queue[0].name);
    let lie = json!({ "id": "mallory", "labels": {}, "revision": 7, "znode": leader.znode, "token": leader.token });
    let lie = json!({ "format": 1, "id": "mallory", "labels": {}, "leader": lie }).to_string();
    for _ in 0..5 {
        let written = Instant::now();
        observer.set(&path, lie.as_bytes());
        let mut asked = Instant::now();
        eventually("the leader's znode says again what it said", || {
            asked = Instant::now();
            let znode = observer.znode(&path).ok_or("it is gone")?;
            let text = String::from_utf8_lossy(&znode.data).into_owned();
            if znode.data == queue[0].data { Ok(()) } else { Err(text) }
        });
        assert!(asked - written < HEARTBEAT, "{:?}", asked - written);
    }
    eventually("it is believed no more", || match leader_of(&tail)["leader"]["id"].as_str() {
        Some("a") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(agreed([&first, &tail]), leader, "the same one leads");
}

/// Writes the fuzzer's corpus, and random bytes that differ at each run.
#[test]
fn no_bytes_in_any_znode_unseat_the_leader_or_seat_a_second() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let [mut first, second, third] = started_in_order(&setup, ["a", "b", "c"]);
    // An unknown znode in the queue, and one that only looks like a member's.
    observer.create("/election/leader_", b"", CreateMode::EphemeralSequential);
    observer.create("/election/leader_0000000000x", b"", CreateMode::Persistent);
    let [behind] = started_in_order(&setup, ["d"]);
    let leader = agreed([&first, &second, &third, &behind]);
    let queue = observer.queue("/election", "leader_");
    assert_eq!(queue.len(), 5);
    let mut paths: Vec<String> =
        queue.iter().map(|znode| format!("/election/{}", znode.name)).collect();
    paths.extend(["/election".to_owned(), "/election/leader_0000000000x".to_owned()]);
    let mut scrawls: Vec<Vec<u8>> = fs::read_dir("fuzz/corpus/znode")
        .expect("it is kept")
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    let (noise, long) = (fastrand::u64(..), fastrand::usize(1..900_000));
    let mut random = fastrand::Rng::with_seed(noise);
    scrawls.extend((0..64).map(|n| (0..n * n).map(|_| random.u8(..)).collect()));
    scrawls.push((0..long).map(|_| random.u8(..)).collect());

    for (n, scrawl) in scrawls.iter().enumerate() {
        let (here, there) = (&paths[n % paths.len()], &paths[random.usize(..paths.len())]);
        observer.set(here, scrawl);
        observer.set(there, scrawl);
        for member in [&first, &second, &third, &behind] {
            assert_eq!(member.get("/livez").status, 200, "{}, noise {noise}", member.id);
            let leads = member.get("/is-leader").status == 200;
            assert_eq!(leads, member.id == "a", "{}, noise {noise}, {scrawl:?}", member.id);
        }
    }
    assert_eq!(agreed([&first, &second, &third, &behind]), leader);

    first.signal("TERM");
    first.wait();
    assert_eq!(agreed_after(&leader, [&second, &third, &behind]).id, "b");
    for member in [&first, &second, &third, &behind] {
        assert!(!member.log().contains("panicked"), "{}", member.log());
    }
}
