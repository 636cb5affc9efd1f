//! Contenders of other clients in the election's path are named, and stop nothing.

use crate::{
    group::{settled, started_in_order},
    member::{Member, Setup},
    metrics::Scrape,
    observer::Observer,
    servers::Servers,
    wait::{eventually, within},
};
use serde_json::{Value, json};
use std::{process::Command, time::Duration};
use zookeeper::CreateMode;

const LATCH: &str = "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-";
const KAZOO: &str = "6f1d2c3e8a7b4c5d9e0f112233445566__lock__";

/// Longer than from one look of a leader to the next, on a busy machine.
const LOOKS_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn other_clients_contenders_are_named_where_they_are_seen_and_not_once_they_are_gone() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    observer.create(&format!("/election/{KAZOO}0000000007"), b"old", CreateMode::Persistent);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    settled([&first, &second], &observer);
    for member in [&first, &second] {
        assert_eq!(
            foreign(member),
            Vec::<String>::new(),
            "what is not ephemeral contends for nothing"
        );
    }

    let theirs = CreateMode::EphemeralSequential;
    observer.create(&format!("/election/{LATCH}"), b"10.0.0.7", theirs);
    observer.create(&format!("/election/{LATCH}"), b"", theirs);
    let [third] = started_in_order(&Setup::of(&servers), ["c"]);
    let problem = "2 contenders stand in /election by Curator's LeaderLatch, the first \
                   _c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-0000000004 of \"10.0.0.7\": two elections in one path, each \
                   with a leader of its own. Give each a path of its own (election.path)";
    names(&third, &[problem]);
    third.wait_for_log(problem);
    let seen = |member: &Member, family: &str| {
        Scrape::of(member).of_us("foreign_contenders", &format!("family={family:?}"))
    };
    assert_eq!((seen(&third, "curator-latch"), seen(&third, "kazoo")), (2.0, 0.0));
    assert_eq!(foreign(&second), Vec::<String>::new(), "it has not read the queue since");
    assert_eq!(second.get("/members").status, 200);
    names(&second, &[problem]);

    let inspected = inspect(&servers);
    assert_eq!(inspected["healthy"], false);
    let verdict = "2 elections in one path: a leads, named by all 3; by Curator's LeaderLatch, 10.0.0.7 leads";
    assert_eq!(inspected["verdict"], verdict);
    let theirs = &inspected["foreign"][0];
    assert_eq!(
        (&theirs["family"], &theirs["leader_id"]),
        (&json!("curator-latch"), &json!("10.0.0.7"))
    );
    assert_eq!(theirs["contenders"].as_array().map(Vec::len), Some(2));

    for number in [4, 5] {
        observer.delete(&format!("/election/{LATCH}{number:010}"));
    }
    eventually("it has read that they are gone", || {
        second.get("/members");
        let named = foreign(&second);
        if named.is_empty() { Ok(()) } else { Err(format!("{named:?}")) }
    });
    second.wait_for_log("no contender of Curator's LeaderLatch stands in /election any more");
    assert_eq!(inspect(&servers)["healthy"], true);
}

#[test]
fn a_leader_that_nobody_asks_sees_other_clients_contenders_all_the_same() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [leader, follower] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    settled([&leader, &follower], &observer);
    // Behind its look as it began to lead.
    observer.create("/election/n_", b"host", CreateMode::EphemeralSequential);
    let seen = within(LOOKS_WITHIN, || match &*foreign(&leader) {
        [problem] => Ok(problem.clone()),
        problems => Err(format!("{problems:?}")),
    });
    let problem = seen.expect("it looks again and again");
    assert!(
        problem.contains("ZooKeeper's LeaderElectionSupport") && problem.contains("\"host\""),
        "{problem}"
    );
    assert_eq!(foreign(&follower), Vec::<String>::new(), "one looks, and not all");
    assert_eq!(leader.status()["role"], "leader");
}

#[track_caller]
fn names(member: &Member, problems: &[&str]) {
    eventually("it names them", || {
        let named = foreign(member);
        if named == problems { Ok(()) } else { Err(format!("{named:?}")) }
    });
}

/// Returns what the member's status says of other clients.
fn foreign(member: &Member) -> Vec<String> {
    let status = member.status();
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    let foreign = problems.iter().filter(|problem| problem["kind"] == "foreign");
    foreign.filter_map(|problem| problem["problem"].as_str().map(str::to_owned)).collect()
}

fn inspect(servers: &Servers) -> Value {
    let zookeeper = servers.connect_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    let output = command.args(["inspect", "--json", "--zookeeper", &zookeeper]).output();
    let output = output.expect("the program runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
