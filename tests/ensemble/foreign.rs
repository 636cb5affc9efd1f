//! Contenders of other clients in the election's path are named, and stop nothing.

use crate::{
    group::{has_role, settled, started_in_order},
    member::{Member, SessionFiles, Setup},
    observer::Observer,
    scrape::Scrape,
    servers::Servers,
    wait::{eventually, within},
};
use serde_json::{Value, json};
use std::{process::Command, time::Duration};
use zookeeper::{Acl, Acls, AuthId, Client, CreateMode, Permission};

const LATCH: &str = "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-latch-";
const SELECTOR: &str = "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-lock-";
const GO: &str = "_c_6f1d2c3e8a7b4c5d9e0f112233445566-lock-";
/// Of members without this setting.
const OWN: &str = "leader_";
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
    let problem = "contenders of other clients stand in the same path";
    assert_eq!(inspected["problems"][0], problem);
    let others = inspected["others"].as_array().expect("a list");
    let are: Vec<_> = others.iter().map(|other| &other["is"]).collect();
    assert_eq!(are, ["unknown", "curator-latch", "curator-latch"]);

    for number in [4, 5] {
        observer.delete(&format!("/election/{LATCH}{number:010}"));
    }
    eventually("it has read that they are gone", || {
        second.get("/members");
        let named = foreign(&second);
        if named.is_empty() { Ok(()) } else { Err(format!("{named:?}")) }
    });
    second.wait_for_log("no contender of Curator's LeaderLatch is left in /election");
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
    let set =
        async |it: Client| it.set_acl("/election", &Acls::anyone_read(), None).await.map(drop);
    observer.ask(set).expect("it may");
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
    leader.post("/resign");
    follower.wait_for_log("the lease ran out: ZooKeeper does not let us in at /election: ");
}

/// A mode, and the start of names that its client ranks in another way.
const UNSAFE: [(&str, &str); 12] = [
    ("curator-latch", SELECTOR),
    ("curator-latch", KAZOO),
    ("curator-latch", GO),
    ("curator-latch", "n_"),
    ("curator-selector", LATCH),
    ("curator-selector", KAZOO),
    ("kazoo", LATCH),
    ("kazoo", GO),
    ("zookeeper-recipe", LATCH),
    ("zookeeper-recipe", KAZOO),
    ("curator-latch", OWN),
    ("kazoo", OWN),
];

#[test]
fn a_member_in_another_clients_queue_keeps_out_while_contenders_of_another_order_stand_there() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    for (nth, (family, other)) in UNSAFE.into_iter().enumerate() {
        let path = format!("/app-{nth}");
        observer.make_path(&path);
        let setup = Setup::of(&servers).option("--election", &path);
        let member = setup.option("--compatible-with", family).start("a");
        eventually("it leads", || has_role(&member, "leader"));
        assert_eq!(foreign(&member), Vec::<String>::new());
        let before = children(&observer, &path);

        observer.create(&format!("{path}/{other}"), b"x", CreateMode::EphemeralSequential);
        eventually("it keeps out", || match &*foreign(&member) {
            [problem] if problem.contains("keeps out") => Ok(()),
            problems => Err(format!("{family}, {other}: {problems:?}")),
        });
        eventually("its znode is gone", || match &*children(&observer, &path) {
            [alone] if alone.starts_with(other) => Ok(()),
            children => Err(format!("{children:?}")),
        });
        assert_ne!(member.status()["role"], "leader", "{family}, {other}");
        member.wait_for_log("keeps out of the queue");
        let counted = format!(
            "bellwether_foreign_contenders{{election={path:?},family={:?}}}",
            client(other)
        );
        let counted = Scrape::of(&member).value(&counted);
        assert!((counted - 1.0).abs() < 0.1, "{family}, {other}: {counted}");

        for theirs in children(&observer, &path) {
            observer.delete(&format!("{path}/{theirs}"));
        }
        eventually("it is back", || has_role(&member, "leader"));
        assert_eq!(foreign(&member), Vec::<String>::new());
        assert_ne!(children(&observer, &path), before, "in another place");
    }
}

#[test]
fn a_member_that_finds_contenders_of_another_order_makes_no_znode() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/app");
    // Already a znode of ours would have this client fail.
    observer.create("/app/n_", b"x", CreateMode::EphemeralSequential);
    let setup = Setup::of(&servers).option("--election", "/app");
    let refusing = setup.option("--compatible-with", "curator-latch").start("a");
    eventually("it says why", || match &*foreign(&refusing) {
        [problem] if problem.contains("LeaderElectionSupport") => Ok(()),
        problems => Err(format!("{problems:?}")),
    });
    let names = children(&observer, "/app");
    let made = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    assert_eq!((names.len(), made("n_")), (1, 1), "{names:?}");
}

#[test]
fn a_leader_in_another_clients_queue_that_may_not_list_it_leads_no_more_and_says_why() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/app");
    let setup = Setup::of(&servers).option("--election", "/app");
    let member = setup.option("--compatible-with", "kazoo").start("a");
    eventually("it leads", || has_role(&member, "leader"));
    let own = children(&observer, "/app");
    let all_but_to_list = [Permission::CREATE, Permission::DELETE, Permission::ADMIN]
        .map(|permission| Acl::new(permission, AuthId::anyone()));
    let set = |acls: Acls<'_>| {
        observer.ask(async |it| it.set_acl("/app", &acls, None).await.map(drop)).unwrap();
    };
    set(Acls::new(&all_but_to_list));
    // Nobody sees this one.
    observer.create(&format!("/app/{LATCH}"), b"x", CreateMode::EphemeralSequential);
    eventually("its znode is gone", || match observer.znode(&format!("/app/{}", own[0])) {
        None => Ok(()),
        Some(_) => Err(member.status().to_string()),
    });
    eventually("it says why", || {
        let status = member.status().to_string();
        if status.contains("does not let us in at /app") { Ok(()) } else { Err(status) }
    });
    set(Acls::anyone_all());
    eventually("it names what keeps it out", || match &*foreign(&member) {
        [problem] if problem.contains("keeps out") => Ok(()),
        problems => Err(format!("{problems:?}")),
    });
    for theirs in children(&observer, "/app") {
        observer.delete(&format!("/app/{theirs}"));
    }
    eventually("it is back", || has_role(&member, "leader"));
}

/// More of these than are read in one go.
#[test]
fn a_contender_behind_many_znodes_that_contend_for_nothing_keeps_members_out() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/app");
    for number in 0..=100 {
        observer.create(&format!("/app/{LATCH}{number:010}"), b"", CreateMode::Persistent);
    }
    let setup = Setup::of(&servers).option("--election", "/app");
    let member = setup.option("--compatible-with", "kazoo").start("a");
    eventually("it leads: none of these contends", || has_role(&member, "leader"));
    observer.create(&format!("/app/{LATCH}"), b"x", CreateMode::EphemeralSequential);
    eventually("it keeps out", || match &*foreign(&member) {
        [problem] if problem.contains("1 contender") => Ok(()),
        problems => Err(format!("{problems:?}")),
    });
    assert_ne!(member.status()["role"], "leader");
}

/// By both clients, the number behind `lock-` counts.
#[test]
fn contenders_of_go_zookeeper_and_curators_leader_selector_are_one_queue() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/app");
    observer.create(&format!("/app/{GO}"), b"x", CreateMode::EphemeralSequential);
    let setup = Setup::of(&servers).option("--election", "/app");
    let member = setup.option("--compatible-with", "curator-selector").start("a");
    eventually("it names the first", || {
        let leader = member.get("/leader").json();
        let named = leader["leader"]["id"] == "x";
        if named { Ok(()) } else { Err(leader.to_string()) }
    });
    let refused = member.post("/transfer");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.json()["type"].as_str().unwrap_or_default().ends_with("foreign-contenders"));
    observer.delete(&format!("/app/{GO}0000000000"));
    eventually("it leads", || has_role(&member, "leader"));
    // A ready standby leads before its claim is written.
    let claim = eventually("it leads by a claim", || {
        observer.znode("/app-bellwether-claim").ok_or_else(|| "there is none".to_owned())
    });
    assert_eq!(claim.json()["id"], "a");
    assert_eq!(children(&observer, "/app").len(), 1, "its claim is not below the path");
}

/// Its znode tells its id alone: that it has led, it reads in its claim.
#[test]
fn a_leader_in_another_clients_queue_leads_on_after_a_restart() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let setup = Setup::of(&servers).option("--election", "/app");
    let setup = files.kept_by(&setup.option("--compatible-with", "kazoo"), "a");
    let mut member = setup.start("a");
    let mut next = None;
    for restarts in 0..2 {
        eventually("it leads", || has_role(&member, "leader"));
        let before = member.status();
        // The first is alone, and the second has another behind it that would lead else.
        if restarts == 1 {
            next = Some(setup_of_next(&servers).start("b"));
            eventually("another is next", || {
                next.as_ref().map_or(Ok(()), Member::is_ready_standby)
            });
        }
        member.kill();
        member = setup.start("a");
        eventually("it leads on", || has_role(&member, "leader"));
        let after = member.status();
        assert_eq!((&before["token"], &before["znode"]), (&after["token"], &after["znode"]));
        assert_eq!(before["session"]["id"], after["session"]["id"]);
    }
    drop(next);
}

fn setup_of_next(servers: &Servers) -> Setup {
    Setup::of(servers).option("--election", "/app").option("--compatible-with", "kazoo")
}

#[test]
fn inspect_shows_another_clients_queue_by_its_rule() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/app");
    observer.create(&format!("/app/{LATCH}"), b"host 1", CreateMode::EphemeralSequential);
    let setup = Setup::of(&servers).option("--election", "/app");
    let _member = setup.option("--compatible-with", "curator-latch").start("a");
    eventually("it is in the queue", || {
        let names = children(&observer, "/app");
        if names.len() == 2 { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let arguments = ["--election", "/app", "--compatible-with", "curator-latch"];
    let inspected = inspect_with(&servers, &arguments);
    assert_eq!((&inspected["healthy"], &inspected["problems"]), (&json!(true), &json!([])));
    let made: Vec<_> = inspected["members"].as_array().expect("a list").iter().collect();
    let made: Vec<_> =
        made.iter().map(|it| [&it["id"], &it["is_leader"], &it["version"]]).collect();
    let expected = [
        [json!("host%201"), json!(true), json!("curator-latch")],
        [json!("a"), json!(false), json!("bellwether")],
    ];
    assert_eq!(made, expected.each_ref().map(|member| member.each_ref()));
}

/// Returns the name of the client whose znodes begin so.
fn client(start: &str) -> &'static str {
    match start {
        LATCH => "curator-latch",
        SELECTOR => "curator-selector",
        KAZOO => "kazoo",
        GO => "go-zookeeper",
        OWN => "bellwether",
        _ => "zookeeper-recipe",
    }
}

fn children(observer: &Observer, path: &str) -> Vec<String> {
    let names = observer.ask(async |client| client.list_children(path).await);
    let mut names = names.unwrap_or_default();
    names.sort();
    names
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
    inspect_with(servers, &[])
}

fn inspect_with(servers: &Servers, more: &[&str]) -> Value {
    let zookeeper = servers.connect_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    let output = command.args(["inspect", "--json", "--zookeeper", &zookeeper]).args(more).output();
    let output = output.expect("the program runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
