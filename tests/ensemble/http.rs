//! What the application is told over HTTP, on every kind of member and at every moment.

use crate::{
    described::{questions, routes},
    group::{agreed, settled, started_in_order},
    member::{LONG_SESSION, SHORT_SESSION, Setup, ok, problem},
    observer::Observer,
    servers::{Servers, Settings},
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant, SystemTime},
};

#[test]
fn every_endpoint_on_the_leader() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [leader, follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let (named, queue) = settled([&leader, &follower], &observer);

    let told = ok(&leader, "/leader");
    assert_eq!(
        keys(&told),
        [
            "index",
            "is_self",
            "leader",
            "valid_for_ms",
            "valid_until_boottime_ns",
            "valid_until_monotonic_ns",
        ]
    );
    assert_eq!(keys(&told["leader"]), ["address", "id", "labels", "token", "znode"]);
    assert_eq!(told["is_self"], true);
    assert_eq!(told["leader"]["id"], "a");
    assert_eq!(told["leader"]["znode"], "leader_0000000000");
    assert_eq!(told["leader"]["token"], queue[0].stat.czxid, "the token is the czxid");
    assert!((1..10_000).contains(&told["valid_for_ms"].as_u64().unwrap()), "{told}");

    assert_eq!(leader.get("/is-leader").status, 200);
    assert_eq!(leader.get("/is-follower").status, 503);
    leader.get("/is-follower").json();
    let status = ok(&leader, "/status");
    assert_eq!(
        keys(&status),
        [
            "clock",
            "election",
            "id",
            "index",
            "leader",
            "path",
            "paused",
            "predecessor",
            "priority",
            "role",
            "sequence",
            "session",
            "standby",
            "token",
            "uptime_ms",
            "valid_for_ms",
            "version",
            "znode",
        ]
    );
    assert_eq!(status["id"], "a");
    assert_eq!(status["role"], "leader");
    assert_eq!(status["priority"], 50);
    assert_eq!(status["election"], "/election");
    assert_eq!(status["znode"], named.znode);
    assert_eq!(status["sequence"], 0);
    assert_eq!(status["token"], named.token);
    assert_eq!(status["predecessor"], Value::Null);
    assert_eq!(status["leader"], told["leader"]);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["index"], told["index"]);
    assert_eq!(keys(&status["session"]), ["connected", "id", "server", "timeout_ms"]);
    assert_eq!(status["session"]["timeout_ms"], 10_000);
    assert_eq!(status["session"]["connected"], true);
    assert_eq!(leader.get("/livez").status, 200);
    assert_eq!(leader.get("/readyz").status, 200);
}

#[test]
fn every_endpoint_on_a_follower() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [leader, follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let (named, queue) = settled([&leader, &follower], &observer);

    let told = ok(&follower, "/leader");
    assert_eq!(told["leader"], ok(&leader, "/leader")["leader"]);
    assert_eq!(told["is_self"], false);
    for lease in ["valid_for_ms", "valid_until_boottime_ns", "valid_until_monotonic_ns"] {
        assert_eq!(told[lease], Value::Null, "a follower does not know the leader's lease");
    }
    assert_eq!(follower.get("/is-leader").status, 503);
    follower.get("/is-leader").json();
    assert_eq!(follower.get("/is-follower").status, 200);
    let status = ok(&follower, "/status");
    assert_eq!(status["role"], "follower");
    assert_eq!(status["znode"], queue[1].name);
    assert_eq!(status["sequence"], number_of(&queue[1].name));
    assert_eq!(status["predecessor"], named.znode);
    assert_eq!(status["valid_for_ms"], Value::Null);
    assert_eq!(follower.get("/livez").status, 200);
    assert_eq!(follower.get("/readyz").status, 200);
}

#[test]
fn every_endpoint_with_zookeeper_stopped() {
    let mut servers = Servers::standalone();
    let [leader, follower] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    agreed([&leader, &follower]);
    let paths = questions(&leader);

    servers.first().kill();
    let start = Instant::now();
    eventually("the former leader's lease ends", || {
        let asked = start.elapsed();
        let answer = leader.get("/is-leader");
        let too_late = answer.status == 200 && asked > SHORT_SESSION;
        assert!(!too_late, "still the leader {asked:?} after the server died");
        if answer.status == 503 { Ok(()) } else { Err(format!("{answer:?}")) }
    });

    throughout("all is answered, and no member leads", Duration::from_secs(2), || {
        for member in [&leader, &follower] {
            for path in &paths {
                let expected: &[u16] = match &**path {
                    "/is-leader" | "/primary" => &[503],
                    "/status" | "/livez" => &[200],
                    _ => &[200, 503],
                };
                let status = member.get(path).status;
                assert!(expected.contains(&status), "{path} of {}: {status}", member.id);
            }
        }
        Ok(())
    });
    assert_eq!(leader.status()["session"]["connected"], false);
    assert_eq!(leader.status()["valid_for_ms"], Value::Null);
    assert_ne!(leader.status()["role"], "leader");
}

#[test]
fn unknown_paths_and_wrong_methods_are_problems() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);

    for path in ["/leaders", "/leader/x", "/favicon.ico"] {
        problem(&member.get(path), 404);
    }
    for route in routes(&member) {
        let path = &*route.path;
        let mut allowed: BTreeSet<&str> = route.methods.iter().map(String::as_str).collect();
        if allowed.contains("GET") {
            allowed.insert("HEAD");
        }
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if allowed.contains(method) {
                continue;
            }
            let answer = member.request(method, path);
            problem(&answer, 405);
            let allow: BTreeSet<&str> = answer.header("allow").split(',').map(str::trim).collect();
            assert_eq!(allow, allowed, "{method} {path}");
        }
        if !route.is_question() {
            continue;
        }
        let (get, head) = (member.get(path), member.request("HEAD", path));
        assert_eq!(head.status, get.status, "HEAD {path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "HEAD {path}");
        assert_eq!(head.body, "", "HEAD {path}");
    }
}

#[test]
fn while_no_leader_is_known_the_answers_are_problems() {
    let servers = Servers::prepared(&Settings::default());
    let member = Setup::of(&servers).start("a");

    problem(&member.get("/leader"), 503);
    for path in ["/is-leader", "/is-follower", "/primary", "/replica", "/health"] {
        let answer = member.get(path);
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        answer.json();
    }
    let unready = member.get("/readyz");
    assert_eq!((unready.status, unready.header("retry-after")), (503, "1"));
    assert!(unready.body.starts_with("[-]queue failed: not in the queue"), "{}", unready.body);
    assert!(unready.body.ends_with("readyz check failed\n"), "{}", unready.body);
    let (live, told) = (member.get("/livez"), member.get("/livez?verbose"));
    assert_eq!((live.status, &*live.body), (200, "ok"));
    assert_eq!(told.body, "[+]loop ok: the election's loop turns\nlivez check passed\n");
    assert_eq!(ok(&member, "/")["name"], "", "never null: clients compare it with their name");
    let status = ok(&member, "/status");
    assert_eq!(status["role"], "absent");
    for unknown in ["znode", "sequence", "token", "predecessor", "leader", "valid_for_ms"] {
        assert_eq!(status[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(status["session"]["connected"], false);
}

#[test]
fn address_and_labels_of_the_leader_reach_every_member() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let plain = Setup::of(&servers);
    let described = plain
        .clone()
        .option("--address", "10.1.2.3:8080")
        .option("--label", "zone=eu-1")
        .option("--label", "version=7");
    let [first] = started_in_order(&described, ["a"]);
    let [second, third] = started_in_order(&plain, ["b", "c"]);
    let (leader, queue) = settled([&first, &second, &third], &observer);

    let card = json!({
        "id": "a",
        "address": "10.1.2.3:8080",
        "labels": {"zone": "eu-1", "version": "7"},
        "znode": leader.znode,
        "token": leader.token,
    });
    for member in [&first, &second, &third] {
        assert_eq!(ok(member, "/leader")["leader"], card);
    }
    for (ahead, znode) in queue.iter().enumerate() {
        let mut written = znode.json();
        // Only a standby says that it is ready.
        written.as_object_mut().unwrap().remove("standby_ready");
        let expected = ["address", "distance", "format", "id", "labels", "leader", "version"];
        assert_eq!(keys(&written), expected);
        assert_eq!(written["distance"], ahead);
        assert_eq!(znode.json()["leader"], card);
        assert!(znode.data.len() <= 1024, "{} bytes in {}", znode.data.len(), znode.name);
    }
}

#[test]
fn the_queue_in_order() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let plain = Setup::of(&servers);
    let described = plain.clone().option("--address", "db-2:5432").option("--label", "zone=eu-2");
    let [first] = started_in_order(&plain, ["a"]);
    let [second] = started_in_order(&described, ["b"]);
    let [third] = started_in_order(&plain, ["c"]);
    agreed([&first, &second, &third]);

    // A claim takes a number of the sequence too.
    let line = observer.queue("/election", "leader_");
    let created = |znode: &str| {
        let created = line.iter().find(|it| it.name == znode).map(|it| it.stat.ctime);
        let since_epoch =
            Duration::from_millis(created.and_then(|it| it.try_into().ok()).expect("it is there"));
        bellwether::api::date(SystemTime::UNIX_EPOCH + since_epoch)
    };
    let names = line.iter().map(|znode| znode.name.clone());
    let [a, b, c]: [String; 3] = names.collect::<Vec<_>>().try_into().expect("three members");
    let expected = |asked: &str| {
        let row = |id: &str, znode: &str, address: Value, labels: Value| {
            let found = line.iter().find(|it| it.name == znode).expect("it is there");
            json!({
                "id": id,
                "znode": znode,
                "sequence": number_of(znode),
                "address": address,
                "labels": labels,
                "is_leader": id == "a",
                "is_self": id == asked,
                "standby": if id == "b" { json!({"ready": true}) } else { Value::Null },
                "names": "a",
                "priority": 50,
                "version": env!("CARGO_PKG_VERSION"),
                "since": created(znode),
                "unhealthy": false,
                "hooks_failing": 0,
                "token": found.token(),
                "session": format!("{:#x}", found.stat.ephemeral_owner),
            })
        };
        json!({"members": [
            row("a", &a, Value::Null, json!({})),
            row("b", &b, json!("db-2:5432"), json!({"zone": "eu-2"})),
            row("c", &c, Value::Null, json!({})),
        ], "problems": []})
    };
    for member in [&first, &second, &third] {
        eventually("the queue is told in order", || {
            let mut told = ok(member, "/members");
            let index = told.as_object_mut().and_then(|told| told.remove("index"));
            assert!(index.is_some_and(|index| index.is_u64()), "each member counts for itself");
            if told == expected(&member.id) { Ok(()) } else { Err(told.to_string()) }
        });
    }
}

/// The number that ZooKeeper gave to the znode of this name.
fn number_of(znode: &str) -> u64 {
    znode.strip_prefix("leader_").expect("the prefix").parse().expect("ten digits")
}

#[test]
fn zookeeper_is_asked_for_the_queue_at_most_once_a_second_however_many_ask() {
    const ASKED: usize = 600;
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let (_, queue) = settled([&first, &second], &observer);
    let session = queue[1].stat.ephemeral_owner;
    let server = servers.first();

    let before = requests_of(&server.ask("cons").unwrap(), session);
    let start = Instant::now();
    for _ in 0..ASKED {
        ok(&second, "/members");
    }
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let after = requests_of(&server.ask("cons").unwrap(), session);

    // Reading a queue of two takes three requests; pings and all else are far below ten a second.
    let allowed = seconds * (3 + 10) + 3;
    assert!(allowed < ASKED, "too slow to tell: {seconds} s");
    assert!(after - before <= allowed, "{} requests in {seconds} s", after - before);
}

/// What clients of Kubernetes' leader-elector, nais/elector and k8s-elector parse.
#[test]
fn the_bodies_of_other_electors() {
    let servers = Servers::standalone();
    let [leader, follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&leader, &follower]);

    for (member, is_leader) in [(&leader, true), (&follower, false)] {
        let told = ok(member, "/");
        let fields = ["is_leader", "last_update", "leader", "name", "node", "timestamp"];
        assert_eq!(keys(&told), fields);
        assert_eq!((&told["name"], &told["leader"]), (&json!("a"), &json!("a")));
        assert_eq!((&told["node"], &told["is_leader"]), (&json!(member.id), &json!(is_leader)));
        for (path, so) in [("/primary", is_leader), ("/replica", !is_leader), ("/health", true)] {
            for method in ["GET", "HEAD", "OPTIONS"] {
                let status = member.request(method, path).status;
                assert_eq!(status, if so { 200 } else { 503 }, "{method} {path} of {}", member.id);
            }
        }
    }
}

#[test]
fn a_blocking_query_answers_at_a_change_and_not_before() {
    let servers = Servers::standalone();
    let [mut leader, follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&leader, &follower]);

    let now = follower.get("/leader");
    let index = now.header("x-bellwether-index").to_owned();
    assert_eq!(now.json()["index"].to_string(), index);
    let start = Instant::now();
    let same = follower.get(&format!("/leader?index={index}&wait=700ms"));
    assert!(start.elapsed() >= Duration::from_millis(700), "it waits");
    assert_eq!(same.json(), now.json());
    let other_life = follower.get("/leader?index=7&wait=1m");
    assert_eq!(other_life.json(), now.json(), "an index of another life is answered at once");

    let changed = thread::scope(|scope| {
        let asking = scope.spawn(|| follower.get(&format!("/leader?index={index}&wait=20s")));
        leader.signal("TERM");
        leader.wait();
        asking.join().expect("it is answered")
    });
    let number = |index: &str| index.parse::<u64>().expect("a number");
    assert!(number(changed.header("x-bellwether-index")) > number(&index), "{changed:?}");
    for wrong in ["?index=x", "?index=-1", "?index=1&wait=soon"] {
        problem(&follower.get(&format!("/leader{wrong}")), 400);
    }
}

#[test]
fn events_tell_the_state_and_then_each_change() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [mut first, second] = started_in_order(&setup, ["a", "b"]);
    agreed([&first, &second]);
    let mut of_leader = first.stream("/events");
    let mut of_follower = second.stream("/events");
    let mut unnamed = second.stream("/sse");
    assert_eq!(of_leader.event().name, "state");
    let state = of_follower.event();
    assert_eq!((&*state.name, &state.data["leader"]["id"]), ("state", &json!("a")));
    assert_eq!(state.id, state.data["index"].to_string());
    assert_eq!(unnamed.event().data["name"], "a");

    first.signal("TERM");
    first.wait();

    assert_eq!(of_leader.event().name, "lost-leadership");
    assert!(of_leader.ended(), "a stream ends in order when its member leaves");
    let mut became = of_follower.event();
    if became.name == "leader-lost" {
        became = of_follower.event();
    }
    assert_eq!((&*became.name, &became.data["is_self"]), ("became-leader", &json!(true)));
    let mut told = unnamed.event();
    if told.data["name"] == "" {
        told = unnamed.event();
    }
    assert_eq!((&*told.name, &told.data["name"]), ("", &json!("b")));

    let terms = ok(&second, "/history")["terms"].clone();
    let ids: Vec<_> = terms.as_array().expect("terms").iter().map(|term| &term["id"]).collect();
    assert_eq!(ids, ["a", "b"]);
    assert!(terms[0]["ended"].is_string() && terms[1]["to"].is_null(), "{terms}");
}

/// The end of a lease is told when it comes, not when ZooKeeper is back to say so. (T13)
#[test]
fn lost_leadership_is_told_at_the_end_of_the_lease() {
    let mut servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    agreed([&member]);
    let mut events = member.stream("/events");
    assert_eq!(events.event().name, "state");

    servers.first().pause();
    let start = Instant::now();
    let lost = events.event();
    let then = member.get("/is-leader").status;

    assert_eq!((&*lost.name, then), ("lost-leadership", 503), "and the answers agree");
    eventually("the history says why", || {
        let ended = ok(&member, "/history")["terms"][0]["ended"].clone();
        let why = ended.as_str().unwrap_or_default().contains("the lease ran out");
        if why { Ok(()) } else { Err(ended.to_string()) }
    });
    assert!(start.elapsed() < SHORT_SESSION, "{:?}", start.elapsed());
}

/// Two leaders' terms do not overlap in any history.
#[test]
fn the_term_of_a_leader_that_was_frozen_ends_with_its_lease() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    agreed([&first, &second]);
    first.signal("STOP");
    let next = eventually("the other leads", || match ok(&second, "/leader")["is_self"] == true {
        true => Ok(ok(&second, "/history")["terms"][1]["from"].to_string()),
        false => Err("not yet".to_owned()),
    });
    first.signal("CONT");
    let ended = eventually("it knows that its term is over", || {
        match ok(&first, "/history")["terms"][0]["to"].to_string() {
            to if to == "null" => Err(to),
            to => Ok(to),
        }
    });
    assert!(ended < next, "{ended}, {next}");
    first.wait_for_log(&format!(", since {}", ended.trim_matches('"')));
}

/// Some clients read nothing, some vanish, and one reads: the election waits for none of them.
#[test]
fn t22_readers_that_stall_or_vanish_do_not_slow_the_election() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&first, &second]);
    let files = || fs::read_dir(format!("/proc/{}/fd", second.process_id())).unwrap().count();
    let before = files();

    let open = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", second.port())).unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let stalled: Vec<TcpStream> = (0..200).map(open).collect();
    let vanishing: Vec<TcpStream> = (0..200).map(open).collect();
    eventually("all streams are open", || {
        let more = files() - before;
        if more >= 400 { Ok(()) } else { Err(more.to_string()) }
    });
    let mut reader = second.stream("/events");
    assert_eq!(reader.event().name, "state");
    drop(vanishing);

    let start = Instant::now();
    first.signal("TERM");
    while reader.event().name != "became-leader" {}
    assert!(start.elapsed() < LONG_SESSION / 2, "{:?}", start.elapsed());

    drop(stalled);
    drop(reader);
    eventually("all that they held is free again", || {
        let more = files().saturating_sub(before);
        if more <= 4 { Ok(()) } else { Err(more.to_string()) }
    });
}

/// Of 64 files a third are for clients, and a quarter of that third for requests that do not wait.
#[test]
fn however_many_wait_for_a_change_other_clients_are_answered() {
    let servers = Servers::standalone();
    let [member] =
        started_in_order(&Setup::of(&servers).run_by(&["prlimit", "--nofile=64"]), ["a"]);
    let open = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", member.port())).unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..40).map(open).collect();

    let mut told = streams.iter().map(|mut stream| {
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("each is answered");
        status
    });

    assert_eq!(told.by_ref().filter(|status| status.ends_with(b"200")).count(), 15);
    for _ in 0..20 {
        assert_eq!(member.get("/is-leader").status, 200);
    }
}

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        object.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// How many requests the server has received over the connection of a session, by its `cons`.
fn requests_of(connections: &str, session: i64) -> usize {
    let id = format!("sid=0x{session:x},");
    let line =
        connections.lines().find(|line| line.contains(&id)).expect("the session's connection");
    let received = line.split("recved=").nth(1).expect("a count");
    received.split_once(',').and_then(|(count, _)| count.parse().ok()).expect("a number")
}
