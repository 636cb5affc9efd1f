//! What others put into the parent, or write into a member's znode, breaks nothing.

use crate::{
    command::ran,
    group::{agreed, agreed_after, settled, started_in_order},
    member::Setup,
    observer::Observer,
    servers::Servers,
    wait::{eventually, throughout},
};
use std::time::Duration;
use zookeeper::{Acls, Client, CreateMode};

/// Almost all that a server takes in one request (`jute.maxbuffer` is 1 MiB).
const HUGE: usize = 900_000;

const BINARY: &[u8] = &[0x00, 0xff, 0xfe, b'{', 0x80, b'\n', 0x00];

#[test]
fn t18_unknown_clients_in_the_parent_are_no_members() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    observer.set("/election", BINARY);
    let huge = vec![b'x'; HUGE];
    let unknown_clients: [(&str, &[u8]); 11] = [
        ("leader_0000000000", b"{\"id\":\"impostor\"}"),
        ("leader_foo", b"{}"),
        ("leader_123", b""),
        ("leader_", BINARY),
        ("leader_00000000010", b"null"),
        ("n_0000000000", b"n"),
        ("_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-0000000003", b"10.0.0.7"),
        ("6f1d2c3e8a7b4c5d9e0f112233445566__lock__0000000001", b"host"),
        ("READ-0000000002", b"[]"),
        ("huge", &huge),
        ("Zürich, 選挙", b"\"text\""),
    ];
    for (name, data) in unknown_clients {
        observer.create(&format!("/election/{name}"), data, CreateMode::Persistent);
    }
    observer.create("/election/_c_0-latch-", b"", CreateMode::EphemeralSequential);
    let children = unknown_clients.len() + 1;

    let [mut first, second, third] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let (old, queue) = settled([&first, &second, &third], &observer);
    assert_eq!((&*old.id, &old.znode), ("a", &queue[0].name));

    first.signal("TERM");
    first.wait();
    let new = agreed_after(&old, [&second, &third]);

    assert_eq!(new.id, "b");
    let parent = observer.znode("/election").expect("the parent exists");
    assert_eq!(parent.data, BINARY, "the parent's data is left alone");
    assert_eq!(
        parent.stat.num_children,
        i32::try_from(children + 3).unwrap(),
        "all are still there, beside two members and a claim"
    );
}

#[test]
fn a_member_ahead_whose_data_has_a_newer_format_is_a_problem() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    let newer = br#"{"format":2,"id":"newer","labels":{},"leader":null}"#;
    observer.create("/election/leader_", newer, CreateMode::EphemeralSequential);
    let member = Setup::of(&servers).start("a");
    member.wait_for_log("/election/leader_0000000000 has data of format 2");
    eventually("its status says so", || match member.status()["problems"].to_string() {
        problems if problems.contains("newer-format") => Ok(()),
        problems => Err(problems),
    });
}

#[test]
fn what_an_unknown_client_writes_into_the_leaders_znode_does_not_unseat_it() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, second, third] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let (leader, queue) = settled([&first, &second, &third], &observer);

    for scrawl in [BINARY, b"", b"{\"leader\":7}", &vec![b' '; HUGE]] {
        observer.set(&format!("/election/{}", queue[0].name), scrawl);
        throughout("the same one leads", Duration::from_secs(1), || {
            let named = agreed([&first, &second, &third]);
            if named == leader { Ok(()) } else { Err(format!("{named:?}")) }
        });
    }

    first.signal("TERM");
    first.wait();
    assert_eq!(agreed_after(&leader, [&second, &third]).id, "b");
}

#[test]
fn a_member_kept_from_its_own_znode_leaves_the_queue_and_joins_again() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let (old, queue) = settled([&first, &second], &observer);

    let denied = format!("/election/{}", queue[1].name);
    let set = async |it: Client| it.set_acl(&denied, &Acls::anyone_read(), None).await.map(drop);
    observer.ask(set).unwrap();
    first.signal("TERM");
    first.wait();

    second.wait_for_log("access to our own znode");
    // It leads by its lease until its claim is refused.
    eventually("it leads with another znode", || match agreed_after(&old, [&second]) {
        new if new.znode == queue[1].name => Err(second.log()),
        _ => Ok(()),
    });
}

#[test]
fn a_silent_unknown_client_in_the_queue_keeps_no_announcement_from_members_behind_it() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers).short_sessions();
    let [mut first, second] = started_in_order(&setup, ["a", "b"]);
    observer.create("/election/leader_", b"", CreateMode::EphemeralSequential);
    let [behind] = started_in_order(&setup, ["c"]);
    let old = agreed([&first, &second, &behind]);

    first.signal("TERM");
    first.wait();

    let new = agreed_after(&old, [&second, &behind]);
    assert_eq!(new.id, "b");
}

#[test]
fn a_silent_unknown_client_at_the_head_is_named_until_it_is_gone() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    observer.create("/election/leader_", b"", CreateMode::EphemeralSequential);
    let unknown_client = "/election/leader_0000000000";
    let setup = Setup::of(&servers).short_sessions();
    let members = ["a", "b"].map(|id| setup.start(id));
    for member in &members {
        eventually("it says what is wrong, and with what", || {
            let problems = member.status()["problems"].clone();
            let (kind, why) = (&problems[0]["kind"], problems[0]["problem"].to_string());
            let is_told =
                kind == "unknown-znode" && why.contains(&format!("behind {unknown_client},"));
            if is_told { Ok(()) } else { Err(problems.to_string()) }
        });
        assert!(
            member.get("/readyz").body.contains(unknown_client),
            "{}",
            member.get("/readyz").body
        );
    }
    observer.delete(unknown_client);
    agreed(&members);
    for member in &members {
        // The one that leads has told the other before that one has read that the head is gone.
        eventually("it says so no longer", || match &member.status()["problems"] {
            serde_json::Value::Null => Ok(()),
            problems => Err(problems.to_string()),
        });
        eventually("the log has its beginning and its end, once each", || {
            let log = member.log();
            let said = log.lines().filter(|line| line.contains("which is not a member's"));
            let said: Vec<_> = said.collect();
            match &said[..] {
                [begun, ended] if begun.contains(" WARN ") && ended.contains("no longer: ") => {
                    Ok(())
                }
                _ => Err(log),
            }
        });
    }
}

#[test]
fn an_unknown_clients_claim_is_named_by_the_member_that_it_keeps_from_leading() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    let claim = "/election/claim-leader_";
    observer.create(claim, b"x", CreateMode::Ephemeral);
    let member = Setup::of(&servers).short_sessions().start("a");
    let named = format!("the claim {claim} is not a member's");
    eventually("it says so", || {
        let problem = member.status()["problems"][0].clone();
        match problem["kind"] == "unknown-znode" && problem.to_string().contains(&named) {
            true => Ok(()),
            false => Err(problem.to_string()),
        }
    });
    for path in ["/readyz", "/members"] {
        let body = member.get(path).body;
        assert!(body.contains(&named), "{body}");
    }
    let inspected = ran(&["inspect", "--zookeeper", &servers.connect_string()]);
    assert!(
        inspected.code == 1 && inspected.out.contains("the claim is not that of the head"),
        "{inspected:?}"
    );
    observer.delete(claim);
    agreed([&member]);
    assert_eq!(member.status()["problems"], serde_json::Value::Null);
}

/// ZooKeeper's counter does not move while the name that it comes to is taken.
#[test]
fn numbers_taken_by_hand_keep_no_member_from_joining() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let [mut first] = started_in_order(&setup, ["a"]);
    // More than a member passes in one attempt. Each of these creates moves the counter on as well, so it
    // comes to the first of the taken names.
    let squatted = 152..=301;
    for number in squatted {
        observer.create(&format!("/election/leader_{number:010}"), b"", CreateMode::Persistent);
    }

    let [second, third] = started_in_order(&setup, ["b", "c"]);
    let (leader, queue) = settled([&first, &second, &third], &observer);
    let names = queue.iter().map(|znode| &*znode.name);
    assert!(names.eq(["leader_0000000000", "leader_0000000302", "leader_0000000303"]), "{queue:?}");
    let warnings = [&second, &third].map(|member| {
        let log = member.log();
        let warning = "/election/leader_0000000152 is in the way of the next member";
        log.lines().filter(|line| line.contains("WARN") && line.contains(warning)).count()
    });
    assert_eq!(warnings, [1, 0], "{}", second.log());
    let parent = observer.znode("/election").expect("it exists");
    assert_eq!(parent.stat.num_children, 154, "nothing is left behind");

    // Nor do these znodes fill a log: a member that meets one of them passes all of them. None of them is
    // between the last two members.
    assert_eq!(first.get("/members").json()["members"].as_array().map(Vec::len), Some(3));
    for (member, told, queues_read) in [(&first, 1, 1), (&second, 2, 2), (&third, 0, 1)] {
        // What a member has written takes a moment to be read here.
        let log = eventually("the log says so", || {
            let log = member.log();
            (log.matches("not ephemeral").count() >= told).then(|| log.clone()).ok_or(log)
        });
        assert_eq!(log.matches("not ephemeral").count(), told, "{log}");
        assert_eq!(log.matches("the queue is").count(), queues_read, "{log}");
    }

    first.signal("TERM");
    first.wait();
    assert_eq!(agreed_after(&leader, [&second, &third]).id, "b");
}
