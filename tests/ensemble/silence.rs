//! Servers that come late or fall silent, sessions that expire, and members that sleep through theirs.

use crate::{
    expire::expire,
    group::{agreed, agreed_after, has_role, leader_of, settled, started_in_order},
    member::{Member, SHORT_SESSION, Setup},
    observer::Observer,
    proxy::{Mode, Proxy},
    sampler::Sampler,
    servers::{Servers, Settings},
    wait::{eventually, throughout},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

#[test]
fn the_only_server_hangs_for_longer_than_a_session_and_goes_on() {
    let mut servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c"]);
    let before = agreed(&members);
    let sampler = Sampler::of(&members);

    servers.first().pause();
    throughout(
        "no member leads beyond its session",
        2 * SHORT_SESSION,
        no_claim_beyond_a_session(&members),
    );
    servers.first().resume();

    let after = agreed(&members);
    assert!(after.token >= before.token, "{after:?} after {before:?}");
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn members_say_that_tokens_have_begun_again_after_zookeeper_has_lost_all_data() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/past");
    for _ in 0..100 {
        observer.set("/past", b"a transaction");
    }
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let before = agreed(&members);
    servers.first().kill();
    servers.first().forget_all();
    servers.start();
    let after = agreed_after(&before, &members);
    assert!(after.token < before.token, "{after:?} after {before:?}");
    for member in &members {
        let text = format!("and a leader had {}. Reset the tokens", before.token);
        eventually("it says so", || {
            let problems = member.status()["problems"].clone();
            let problem = &problems[0];
            match problem["kind"] == "lower-tokens" && problem.to_string().contains(&text) {
                true => Ok(()),
                false => Err(problems.to_string()),
            }
        });
        member.wait_for_log("ZooKeeper has lost all data");
    }
}

/// A heartbeat that waited for a connection says nothing of the servers.
#[test]
fn servers_are_not_called_slow_after_a_time_without_a_connection() {
    let mut servers = Servers::standalone();
    let proxy = Proxy::before(servers.first());
    let member = Setup::at(proxy.address()).start("a");
    let before = agreed([&member]);
    proxy.set(Mode::Closed);
    proxy.cut();
    member.wait_for_log("lost connection to ZooKeeper");
    // Longer than a heartbeat, and shorter than the lease.
    thread::sleep(Duration::from_millis(2500));
    proxy.set(Mode::Open);
    eventually("it has renewed since", || {
        let left = member.get("/leader").json()["valid_for_ms"].as_u64();
        if left > Some(6000) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert_eq!(agreed([&member]), before);
    assert!(!member.log().contains("the servers take longer"), "{}", member.log());
}

#[test]
fn zookeeper_appears_five_seconds_after_the_members() {
    let mut servers = Servers::prepared(&Settings::default());
    let setup = Setup::of(&servers).short_sessions();
    let members = ["a", "b", "c"].map(|id| setup.start(id));

    throughout("the members live and wait", Duration::from_secs(5), || {
        members.iter().try_for_each(|member| {
            let answers =
                ["/livez", "/readyz", "/leader", "/is-leader"].map(|path| member.get(path).status);
            if answers == [200, 503, 503, 503] { Ok(()) } else { Err(format!("{answers:?}")) }
        })
    });
    for member in &members {
        has_role(member, "absent").expect("without ZooKeeper no member is in the queue");
        member.wait_for_log("WARN");
        let complaints = member.log().lines().filter(|line| line.contains("WARN")).count();
        assert!((1..=3).contains(&complaints), "said once, not at each try: {}", member.log());
    }

    servers.start();
    agreed(&members);
}

#[test]
fn a_member_whose_session_is_expired_by_force_joins_again_with_a_larger_token() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second, third] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c"]);
    let (old, before) = settled([&first, &second, &third], &observer);

    // Force is what no lease covers: until it is notified the old leader claims to lead. The token decides.
    expire(servers.first(), before[0].stat.ephemeral_owner);
    eventually("the expired member is at the tail", || {
        let queue = observer.queue("/election", "leader_");
        let ids: Vec<_> = queue.iter().map(|znode| znode.json()["id"].clone()).collect();
        if ids == ["b", "c", "a"] { Ok(()) } else { Err(format!("{ids:?}")) }
    });
    let (new, after) = settled([&first, &second, &third], &observer);

    assert_eq!((&*new.id, new.token), ("b", before[1].token()));
    assert!(new.token > old.token);
    assert_ne!(after[2].stat.ephemeral_owner, before[0].stat.ephemeral_owner, "a new session");
    assert!(after[2].token() > new.token, "a new ticket");

    for mut gone in [second, third] {
        gone.signal("TERM");
        gone.wait();
    }
    let (again, _) = settled([&first], &observer);
    assert_eq!((&*again.id, again.token), ("a", after[2].token()));
}

#[test]
fn a_leader_that_slept_through_its_session_wakes_as_no_leader() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let old = agreed([&first, &second]);

    first.signal("STOP");
    let new = agreed_after(&old, [&second]);
    first.signal("CONT");

    // The very first answer, before it can have received anything from ZooKeeper.
    assert_eq!(first.get("/is-leader").status, 503);
    assert_eq!(new.id, "b");
    assert!(new.token > old.token);
    assert_eq!(agreed([&first, &second]), new);
}

#[test]
fn t23_what_was_asked_of_a_leader_while_it_slept_is_answered_as_of_its_waking() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let old = agreed([&first, &second]);

    // Each request but its last line is sent before, so that it can be answered at once.
    let mut asked: Vec<TcpStream> = ["/is-leader", "/leader", "/status"]
        .into_iter()
        .cycle()
        .take(12)
        .map(|path| {
            let mut stream = TcpStream::connect(("127.0.0.1", first.port())).expect("it listens");
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n").expect("it reads");
            stream
        })
        .collect();
    assert_eq!(first.get("/is-leader").status, 200, "connections are accepted in order");
    first.signal("STOP");
    for stream in &mut asked {
        write!(stream, "Connection: close\r\n\r\n").expect("the kernel takes it");
    }
    let new = agreed_after(&old, [&second]);
    first.signal("CONT");

    for mut stream in asked {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer:?}");
        let claims = ["\"is_leader\":true", "\"is_self\":true", "\"role\":\"leader\""];
        assert!(!claims.iter().any(|claim| answer.contains(claim)), "{answer}");
    }
    assert_eq!(agreed([&first, &second]), new);
}

/// From now on no member can prove anything to ZooKeeper, so each claim must end within a session.
pub(crate) fn no_claim_beyond_a_session(members: &[Member]) -> impl Fn() -> Result<(), String> {
    let lost = Instant::now();
    move || {
        members.iter().try_for_each(|member| {
            let asked = lost.elapsed();
            let answer = leader_of(member);
            let too_late = asked > SHORT_SESSION && answer["is_self"] == true;
            if too_late { Err(format!("{} {asked:?} later: {answer}", member.id)) } else { Ok(()) }
        })
    }
}
