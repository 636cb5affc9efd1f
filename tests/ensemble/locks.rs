//! Locks for any application, over HTTP: whom they pass on to, when, and what is left of them.

use crate::{
    group::ready,
    member::{Answer, LONG_SESSION, Member, SHORT_SESSION, Setup, ok, problem},
    observer::Observer,
    proxy::{Mode, Proxy},
    servers::Servers,
    wait::{LIMIT, eventually, throughout},
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
use zookeeper::{Acl, Acls, AuthId, CreateMode, Permission};

#[test]
fn a_lock_passes_on_when_its_connection_closes_and_nothing_is_left_in_the_end() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);

    assert_eq!(ok(&first, "/locks/migrate")["holders"], json!([]));
    let mut holder = Lock::of(&first, "migrate");
    let held = holder.event("held");
    let shown = ok(&first, "/locks/migrate");
    assert_eq!(shown["holders"][0]["token"], held["token"], "at once: {shown}");
    let mut waiter = Lock::of(&second, "migrate");
    let waiting = waiter.event("waiting");
    assert_eq!(waiting["position"], 1);
    assert_eq!(waiting["holders"][0]["member"], "a");
    assert_eq!(waiting["holders"][0]["token"], held["token"]);
    assert!(held["valid_for_ms"].as_u64() < Some(millis(LONG_SESSION)), "{held}");
    let renewed = holder.event("renewed");
    assert_eq!(renewed["token"], held["token"]);
    assert!(number(&renewed, "valid_until_boottime_ns") > number(&held, "valid_until_boottime_ns"));

    drop(holder);
    let passed_on = waiter.event("held");
    assert!(number(&passed_on, "token") > number(&held, "token"));
    let names = names(&observer, "/locks/migrate");
    assert_eq!(names, ["write-0000000001"], "as the paper's recipe has it");
    let znode = observer.znode("/locks/migrate/write-0000000001").unwrap();
    assert_eq!(number(&passed_on, "token"), znode.stat.czxid.cast_unsigned());
    assert_eq!(znode.json()["id"], "b");

    drop(waiter);
    is_empty(&observer, "/locks/migrate");
}

/// Its holder hears of it at once, and keeps its place until nobody can act by its lease any more.
#[test]
fn a_lock_that_is_broken_is_lost_at_once_and_passes_on_when_its_lease_is_over() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    let held = holder.event("held");
    let mut waiter = Lock::of(&second, "migrate");
    waiter.event("waiting");
    problem(&second.post("/locks/migrate/break/1"), 404);
    problem(&second.post("/locks/other/break/1"), 404);

    let path = format!("/locks/migrate/break/{}", held["token"]);
    let begun = Instant::now();
    let broken = thread::scope(|scope| {
        let breaks = scope.spawn(|| second.post(&path));
        if let Some(lost) = holder.end() {
            let why = lost["why"].to_string();
            assert!(why.contains("an operator broke it"), "{why}");
        }
        breaks.join().expect("it is answered")
    });
    assert_eq!(broken.status, 204, "{broken:?}");
    assert!(begun.elapsed() >= 2 * SHORT_SESSION, "{:?}", begun.elapsed());
    let passed_on = waiter.event("held");
    assert!(number(&passed_on, "token") > number(&held, "token"));

    let path = format!("/locks/migrate/break/{}?now=1", passed_on["token"]);
    let begun = Instant::now();
    assert_eq!(first.post(&path).status, 204);
    assert!(begun.elapsed() < 2 * SHORT_SESSION, "{:?}", begun.elapsed());
    waiter.end();
}

/// A holder that is frozen hears of nothing: its session ends meanwhile, or its place is deleted afterwards.
#[test]
fn a_lock_whose_sidecar_is_frozen_is_broken_no_sooner_than_it_was_promised() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    let held = holder.event("held");
    first.signal("STOP");
    let path = format!("/locks/migrate/break/{}", held["token"]);
    assert_eq!(second.post(&path).status, 204);
    assert!(boottime_ns() > number(&held, "valid_until_boottime_ns"));
    let mut next = Lock::of(&second, "migrate");
    next.event("held");
    first.signal("CONT");
}

#[test]
fn a_lock_passes_on_when_its_sidecar_is_killed() {
    let servers = Servers::standalone();
    let [mut first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    assert_eq!(ok(&first, "/locks/migrate")["holders"], json!([]));
    let mut holder = Lock::of(&first, "migrate");
    let held = holder.event("held");
    let shown = ok(&first, "/locks/migrate");
    assert_eq!(shown["holders"][0]["token"], held["token"], "at once: {shown}");
    let mut waiter = Lock::of(&second, "migrate");
    waiter.event("waiting");

    first.kill();
    let passed_on = waiter.event("held");
    assert!(boottime_ns() > number(&held, "valid_until_boottime_ns"), "no sooner than promised");
    assert!(number(&passed_on, "token") > number(&held, "token"));
}

/// What it was told last is over before another holds, and it is told nothing else when the sidecar goes on.
#[test]
fn a_lock_passes_on_when_its_sidecar_is_frozen() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    holder.event("held");
    let mut waiter = Lock::of(&second, "migrate");
    waiter.event("waiting");

    first.signal("STOP");
    waiter.event("held");
    let passed_on_at = boottime_ns();
    first.signal("CONT");
    while let Some((event, data)) = holder.next() {
        match &*event {
            "renewed" => {
                assert!(number(&data, "valid_until_boottime_ns") < passed_on_at, "{data}");
            }
            "lost" => return,
            _ => panic!("{event}: {data}"),
        }
    }
    // It was closed rather than say what is no longer so.
}

#[test]
fn readers_hold_together_and_a_writer_gets_its_turn() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut readers =
        [&first, &second].map(|member| Lock::asked(member, "/locks/data?mode=shared"));
    readers.iter_mut().for_each(|reader| drop(reader.event("held")));
    let mut writer = Lock::of(&first, "data");
    assert_eq!(writer.event("waiting")["position"], 2);
    let mut late = Lock::asked(&second, "/locks/data?mode=shared");
    assert_eq!(late.event("waiting")["position"], 1, "it waits for the writer alone");
    let queue = ["read-0000000000", "read-0000000001", "write-0000000002", "read-0000000003"];
    assert_eq!(names(&observer, "/locks/data"), queue);
    let told = ok(&second, "/locks/data");
    let modes = |who: &str| {
        let places = told[who].as_array().unwrap().iter();
        places.map(|place| place["mode"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(modes("holders"), ["shared", "shared"], "{told}");
    assert_eq!(modes("waiting"), ["exclusive", "shared"], "{told}");

    drop(readers);
    writer.event("held");
    assert_eq!(names(&observer, "/locks/data"), queue[2..], "the other waits on");
    drop(writer);
    late.event("held");
}

#[test]
fn so_many_hold_as_there_are_slots_and_all_have_to_agree_on_them() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let path = "/locks/jobs?slots=2";
    let [mut one, mut two] = [&first, &second].map(|member| Lock::asked(member, path));
    one.event("held");
    two.event("held");
    let mut three = Lock::asked(&first, path);
    assert_eq!(three.event("waiting")["position"], 1);

    let refused = second.post("/locks/jobs?slots=3");
    problem(&refused, 409);
    let why = refused.json()["detail"].to_string();
    assert!(why.contains("one of 2 slots"), "{why}");
    problem(&second.post("/locks/jobs"), 409);
    drop(two);
    three.event("held");
    one.event("renewed");
}

#[test]
fn who_gives_up_leaves_no_znode() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut holder = Lock::of(&member, "migrate");
    holder.event("held");

    let mut late = Lock::asked(&member, "/locks/migrate?wait=300ms");
    late.event("waiting");
    late.event("timeout");
    assert_eq!(late.next(), None, "the stream ends");
    Lock::asked(&member, "/locks/migrate?wait=0s").event("timeout");
    problem(&put(&member, "/locks/migrate?wait=0s"), 409);
    problem(&put(&member, "/locks/migrate?wait=300ms"), 409);
    let mut gone = Lock::of(&member, "migrate");
    gone.event("waiting");
    drop(gone);
    eventually("the holder alone is left", || {
        let names = names(&observer, "/locks/migrate");
        if names == ["write-0000000000"] { Ok(()) } else { Err(format!("{names:?}")) }
    });
    holder.event("renewed");
}

#[test]
fn a_kept_lock_is_renewed_given_back_and_given_back_in_time() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    let answer = put(&member, "/locks/job?ttl=2s");
    assert_eq!(answer.status, 201, "{answer:?}");
    let kept = answer.json();
    assert!((1..=2000).contains(&number(&kept, "valid_for_ms")), "{kept}");
    problem(&put(&member, "/locks/job?wait=0s"), 409);

    let path = format!("/locks/job/{}", kept["lock"].as_str().unwrap());
    let renewed = put(&member, &format!("{path}?ttl=1m"));
    assert_eq!((renewed.status, &renewed.json()["token"]), (200, &kept["token"]));
    assert!(number(&renewed.json(), "valid_for_ms") > 2000, "{renewed:?}");
    problem(&put(&member, &path.replace("job", "other")), 410);
    problem(&put(&member, "/locks/job/0"), 410);
    let given_back = delete(&member, &path);
    assert_eq!((given_back.status, &*given_back.body), (204, ""));
    assert!(names(&observer, "/locks/job").is_empty(), "gone when the answer comes");
    problem(&delete(&member, &path), 410);

    let kept = put(&member, "/locks/job?ttl=1s").json();
    let mut next = Lock::of(&member, "job");
    next.event("waiting");
    next.event("held");
    assert!(boottime_ns() > number(&kept, "valid_until_boottime_ns"), "no sooner than promised");
    let path = format!("/locks/job/{}", kept["lock"].as_str().unwrap());
    problem(&put(&member, &path), 410);
}

#[test]
fn tokens_grow_in_the_order_of_arrival() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut waiting = vec![];
    for n in 0..6 {
        let mut lock = Lock::of(if n % 2 == 0 { &first } else { &second }, "turns");
        if n > 0 {
            assert_eq!(lock.event("waiting")["position"], n);
        }
        waiting.push(lock);
    }
    let mut last = 0;
    for mut lock in waiting {
        let token = number(&lock.event("held"), "token");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

/// The paper's recipe by hand, in the same queue.
#[test]
fn a_plain_client_holds_and_waits_in_the_same_queue() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    observer.make_path("/locks/migrate");
    observer.create("/locks/migrate/lock-", b"by hand", CreateMode::EphemeralSequential);
    let mut ours = Lock::of(&member, "migrate");
    let waiting = ours.event("waiting");
    assert_eq!((&waiting["position"], &waiting["holders"][0]["member"]), (&json!(1), &Value::Null));
    observer.create("/locks/migrate/read-", b"by hand", CreateMode::EphemeralSequential);

    observer.delete("/locks/migrate/lock-0000000000");
    ours.event("held");
    eventually("the next reading shows it", || match ok(&member, "/locks/migrate") {
        told if told["waiting"][0]["znode"] == "read-0000000002" => Ok(()),
        told => Err(told.to_string()),
    });
    assert_eq!(ok(&member, "/locks"), json!({"locks": ["migrate"]}));
}

#[test]
fn a_lock_that_any_client_may_end_is_warned_of_once_where_members_have_no_identity() {
    let servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    Lock::of(&member, "migrate").event("held");
    member.wait_for_log("at /locks/migrate, anyone who reaches ZooKeeper may delete");
    let mut other = Lock::of(&member, "other");
    other.event("held");
    other.event("renewed");
    assert!(!member.log().contains("at /locks/other,"), "{}", member.log());
}

/// Those who ask for it are more than may ask ZooKeeper at once, and are refused until an operator changes that.
#[test]
fn a_lock_that_the_servers_refuse_keeps_no_other_from_being_held_and_given_back() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut held = Lock::of(&member, "migrate");
    held.event("held");
    observer.make_path("/locks/refused");
    let all_but_to_create =
        [Permission::READ, Permission::WRITE, Permission::DELETE, Permission::ADMIN]
            .map(|permission| Acl::new(permission, AuthId::anyone()));
    let refuse = async |it: zookeeper::Client| {
        it.set_acl("/locks/refused", &Acls::new(&all_but_to_create), None).await.map(drop)
    };
    observer.ask(refuse).expect("it is set");
    let asked_for = |count: usize| {
        let status = ok(&member, "/status");
        let locks = status["locks"].as_array().map_or(0, Vec::len);
        if locks == count { Ok(()) } else { Err(status["locks"].to_string()) }
    };
    let mut asked = vec![];
    for others in 1..=70 {
        let mut stream = TcpStream::connect(("127.0.0.1", member.port())).expect("it listens");
        let head = "POST /locks/refused HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it is read");
        asked.push(stream);
        eventually("it is asked for", || asked_for(1 + others));
    }

    let mut other = Lock::of(&member, "other");
    other.event("held");
    drop(other);
    is_empty(&observer, "/locks/other");
    drop(held);
    is_empty(&observer, "/locks/migrate");
    drop(asked);
    eventually("none asks any more", || asked_for(0));
}

#[test]
fn a_lock_whose_znode_is_deleted_is_lost() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut lock = Lock::of(&member, "migrate");
    lock.event("held");
    observer.delete("/locks/migrate/write-0000000000");
    let why = lock.event("lost")["why"].to_string();
    assert!(why.contains("deleted"), "{why}");
    assert_eq!(lock.next(), None, "the stream ends");
}

/// Neither the lock nor the election needs the other's session.
#[test]
fn a_lock_is_lost_in_time_when_no_server_answers_and_got_again_when_one_does() {
    let mut servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers).short_sessions(), ["a"]);
    let mut lock = Lock::of(&member, "migrate");
    let mut until = number(&lock.event("held"), "valid_until_boottime_ns");

    servers.first().pause();
    let why = loop {
        match lock.next().expect("it says that it is lost") {
            (event, data) if event == "renewed" => {
                until = number(&data, "valid_until_boottime_ns");
            }
            (event, data) if event == "lost" => break data["why"].to_string(),
            (event, data) => panic!("{event}: {data}"),
        }
    };
    assert!(boottime_ns() >= until, "not before its lease ended");
    assert!(why.contains("lease"), "{why}");
    servers.first().resume();
    Lock::of(&member, "migrate").event("held");
}

/// Two locks of one session are in the queue: each has the znode that says so.
#[test]
fn a_create_that_was_not_answered_makes_one_znode_and_not_two() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let [member] = started(&Setup::at(proxy.address()), ["a"]);
    let mut first = Lock::asked(&member, "/locks/data?mode=shared");
    let held = first.event("held");
    proxy.set(Mode::LosesTheReplyToTheCreate);
    let mut second = Lock::asked(&member, "/locks/data?mode=shared");
    let both = ["read-0000000000", "read-0000000001"];
    assert_eq!(names(&observer, "/locks/data"), both);

    proxy.set(Mode::Open);
    let znode = observer.znode("/locks/data/read-0000000001").expect("it is there");
    let token = number(&second.event("held"), "token");
    assert_eq!(token, znode.stat.czxid.cast_unsigned());
    assert_eq!(first.event("renewed")["token"], held["token"]);
    assert_eq!(names(&observer, "/locks/data"), both);
    drop(first);
    eventually("the other holds on", || match names(&observer, "/locks/data") {
        names if names == both[1..] => Ok(()),
        names => Err(format!("{names:?}")),
    });
}

/// As where two servers do not agree which znode has a number.
#[test]
fn a_znode_that_takes_the_place_of_one_ahead_is_waited_for() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let [member] = started(&Setup::at(proxy.address()), ["a"]);
    let ahead = "/locks/data/write-0000000000";
    observer.make_path("/locks/data");
    observer.create("/locks/data/write-", b"", CreateMode::EphemeralSequential);
    let mut lock = Lock::of(&member, "data");
    assert_eq!(lock.event("waiting")["position"], 1);
    // The ends of its own two znodes, and of the one ahead.
    let has_watches = |servers: &mut Servers, wanted: usize| {
        let line = format!("zk_watch_count\t{wanted}");
        eventually(&line, || {
            let told = servers.first().ask("mntr").map_err(|error| error.to_string())?;
            if told.lines().any(|other| other == line) { Ok(()) } else { Err(told) }
        });
    };
    has_watches(&mut servers, 3);

    proxy.set(Mode::Closed);
    has_watches(&mut servers, 0);
    observer.delete(ahead);
    observer.create(ahead, b"", CreateMode::Ephemeral);
    proxy.set(Mode::Open);
    has_watches(&mut servers, 3);
    let other = observer.znode(ahead).expect("it is there").token();
    observer.delete(ahead);
    let held = lock.event("held");
    assert!(number(&held, "token") < other, "{held}");
}

#[test]
fn a_lock_passes_on_although_connections_were_lost_while_it_was_waited_for() {
    let mut servers = Servers::standalone();
    let proxy = Proxy::before(servers.first());
    let [first, second] = started(&Setup::at(proxy.address()), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    let token = number(&holder.event("held"), "token");
    let mut waiter = Lock::of(&second, "migrate");
    waiter.event("waiting");

    proxy.cut();
    assert_eq!(number(&holder.event("renewed"), "token"), token);
    drop(holder);
    assert!(number(&waiter.event("held"), "token") > token);
}

#[test]
fn zookeeper_is_asked_who_is_in_a_queue_once_a_second_however_many_look() {
    let mut servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut lock = Lock::of(&member, "migrate");
    lock.event("held");
    ok(&member, "/locks/migrate");
    let (before, begun) = (received(&mut servers), boottime_ns());
    for _ in 0..200 {
        assert_eq!(ok(&member, "/locks/migrate")["holders"][0]["member"], "a");
    }
    let (after, seconds) = (received(&mut servers), (boottime_ns() - begun) / 1_000_000_000 + 1);
    // A reading takes four requests: to sync, to count, to list and to read. What keeps two sessions alive takes fewer than ten.
    assert!(after - before <= seconds * 14 + 4, "{} in {seconds} s", after - before);
    assert_eq!(sessions(&mut servers), 2, "of the election, and of locks and reads");
}

/// A renewal waits behind few of the reads that are under way.
#[test]
fn reads_of_long_queues_do_not_delay_the_renewals_of_a_lock() {
    const LENGTH: usize = 500;
    let names = ["a", "b", "c", "d"];
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    for name in names {
        let path = format!("/locks/{name}");
        observer.make_path(&path);
        for _ in 0..LENGTH {
            let entry = format!("{path}/write-");
            observer.create(&entry, b"{}", CreateMode::EphemeralSequential);
        }
    }
    let mut lock = Lock::of(&member, "held");
    let held = lock.event("held");
    let end = Instant::now() + Duration::from_secs(5);

    thread::scope(|scope| {
        for name in names {
            let member = &member;
            scope.spawn(move || {
                while Instant::now() < end {
                    let queue = ok(member, &format!("/locks/{name}"));
                    assert_eq!(queue["waiting"].as_array().map(Vec::len), Some(LENGTH - 1));
                }
            });
        }
        while Instant::now() < end {
            let renewed = lock.event("renewed");
            let left = number(&renewed, "valid_for_ms");
            let lost = number(&held, "valid_for_ms").abs_diff(left);
            assert!(lost < 500, "a renewal took long: {held} {renewed}");
        }
    });
}

/// A read opens a session, without heartbeats, in which a lock would have to wait for its lease.
#[test]
fn a_lock_is_held_at_once_after_reads() {
    let mut servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    assert_eq!(ok(&member, "/locks/migrate")["holders"], json!([]));
    assert_eq!(sessions(&mut servers), 2);
    // No heartbeat has been sent meanwhile.
    thread::sleep(Duration::from_secs(2));
    let asked = boottime_ns();
    Lock::of(&member, "migrate").event("held");
    assert!(boottime_ns() - asked < 1_000_000_000, "heartbeats have to be regular first");
    assert_eq!(sessions(&mut servers), 2);
}

#[test]
fn a_sidecar_that_leaves_gives_all_locks_back() {
    let servers = Servers::standalone();
    let [mut first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    holder.event("held");
    let mut waiter = Lock::of(&second, "migrate");
    waiter.event("waiting");

    let mut gone = Lock::of(&first, "migrate");
    gone.event("waiting");

    first.signal("TERM");
    for lock in [&mut holder, &mut gone] {
        let why = lock.event("lost")["why"].to_string();
        assert!(why.contains("leaves"), "{why}");
    }
    drop(holder);
    waiter.event("held");
    let (status, took) = first.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}");
}

#[test]
fn who_does_not_let_go_when_its_sidecar_leaves_is_not_overtaken_in_its_lease() {
    let servers = Servers::standalone();
    let [mut first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut holder = Lock::of(&first, "migrate");
    let mut until = number(&holder.event("held"), "valid_until_boottime_ns");
    let kept = put(&first, "/locks/job?ttl=1m").json();
    let mut waiters = ["migrate", "job"].map(|name| Lock::of(&second, name));
    waiters.iter_mut().for_each(|waiter| drop(waiter.event("waiting")));

    first.signal("TERM");
    while let Some((event, data)) = holder.next() {
        match &*event {
            "renewed" => until = number(&data, "valid_until_boottime_ns"),
            "lost" => break,
            _ => panic!("{event}: {data}"),
        }
    }
    let (status, took) = first.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}");
    for (waiter, until) in waiters.iter_mut().zip([until, number(&kept, "valid_until_boottime_ns")])
    {
        waiter.event("held");
        assert!(boottime_ns() > until, "no sooner than promised");
    }
}

/// Locks have a session and a thread of their own: none of this costs the election its lease.
#[test]
fn a_leader_leads_on_while_hundreds_wait_for_a_lock_and_give_up() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers).short_sessions(), ["a"]);
    let before = ok(&member, "/leader");
    let mut locks: Vec<_> = (0..300).map(|_| Lock::of(&member, "busy")).collect();
    locks[0].event("held");
    eventually("all are in the queue", || match names(&observer, "/locks/busy").len() {
        300 => Ok(()),
        waiting => Err(waiting.to_string()),
    });
    let leads = || match member.get("/is-leader") {
        answer if answer.status == 200 => Ok(()),
        answer => Err(format!("{answer:?}")),
    };
    throughout("it leads", 2 * SHORT_SESSION, leads);
    drop(locks);
    is_empty(&observer, "/locks/busy");
    leads().expect("it leads");
    assert_eq!(ok(&member, "/leader")["leader"]["token"], before["leader"]["token"]);
}

/// One lock, as an application asks for it: closed when dropped.
pub(crate) struct Lock {
    lines: BufReader<TcpStream>,
}

impl Lock {
    pub(crate) fn of(member: &Member, name: &str) -> Self {
        Self::asked(member, &format!("/locks/{name}"))
    }

    #[track_caller]
    pub(crate) fn asked(member: &Member, path: &str) -> Self {
        Self::asked_with("x-bellwether: 1", member, path)
    }

    #[track_caller]
    pub(crate) fn asked_with(header: &str, member: &Member, path: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", member.port())).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("no zero");
        write!(stream, "POST {path} HTTP/1.1\r\nhost: localhost\r\n{header}\r\n\r\n")
            .expect("it is read");
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).expect("an answer") > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self { lines }
    }

    /// The next event and its data; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes"),
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            // The lines between the events say how long each chunk is; the last has nothing in it.
            if line.trim_end() == "0" {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => event = name.to_owned(),
                Some(("data", data)) => {
                    return Some((event, serde_json::from_str(data).expect("JSON")));
                }
                Some(_) | None => {}
            }
        }
    }

    /// Waits until it is lost, and returns the data of that event. There is none where a renewal was just being written: a
    /// yes that is no longer true is not, and its connection is closed.
    #[track_caller]
    fn end(&mut self) -> Option<Value> {
        loop {
            match self.next() {
                Some((event, data)) if event == "lost" => return Some(data),
                Some((event, _)) if event == "renewed" => {}
                None => return None,
                other => panic!("lost is to come, and not {other:?}"),
            }
        }
    }

    /// The data of the next event of this name; renewals and changes of the place may come before it.
    #[track_caller]
    pub(crate) fn event(&mut self, wanted: &str) -> Value {
        loop {
            match self.next() {
                Some((event, data)) if event == wanted => return data,
                Some((event, _)) if event == "renewed" || event == "waiting" => {}
                other => panic!("{wanted} is to come, and not {other:?}"),
            }
        }
    }
}

pub(crate) fn started<const N: usize>(setup: &Setup, ids: [&str; N]) -> [Member; N] {
    let members = ids.map(|id| setup.start(id));
    members.iter().for_each(|member| eventually("it knows a leader", || ready(member)));
    members
}

fn put(member: &Member, path: &str) -> Answer {
    member.send("PUT", path, &[("x-bellwether", "1")], "")
}

fn delete(member: &Member, path: &str) -> Answer {
    member.send("DELETE", path, &[("x-bellwether", "1")], "")
}

fn names(observer: &Observer, path: &str) -> Vec<String> {
    let read = observer.ask(async |client| client.list_children(path).await);
    let mut names = read.unwrap_or_default();
    // In the order of their numbers.
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}

pub(crate) fn is_empty(observer: &Observer, path: &str) {
    eventually("nothing is left", || {
        let names = names(observer, path);
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    });
}

#[track_caller]
pub(crate) fn number(data: &Value, field: &str) -> u64 {
    data[field].as_u64().unwrap_or_else(|| panic!("{field} is a number: {data}"))
}

/// How many clients have a session over a connection to the server.
fn sessions(servers: &mut Servers) -> usize {
    servers.first().ask("cons").expect("it answers").matches("sid=").count()
}

/// How many requests the server has received.
pub(crate) fn received(servers: &mut Servers) -> u64 {
    let said = servers.first().ask("srvr").expect("it answers");
    let number = said.split("Received: ").nth(1).and_then(|it| it.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("it counts")
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().expect("it is short")
}

pub(crate) fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).expect("after boot");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("less than a second")
}
