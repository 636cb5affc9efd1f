//! The commands for people and scripts, as they are typed.

use crate::{
    group::{agreed, agreed_after, settled, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    program::Program,
    servers::{Servers, free_ports},
    wait::eventually,
};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    thread,
};
use zookeeper::CreateMode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bellwether");
/// Red, a bell, a C1 control that clears the screen, and writing that runs backwards.
const HOSTILE: &str = "\u{1b}[31mred\u{7}\u{9b}2J\u{202e}";
// What a command exits with: WRONG where it was typed wrongly, SILENT where no sidecar answered.
const YES: i32 = 0;
const NO: i32 = 1;
const WRONG: i32 = 2;
const SILENT: i32 = 3;

/// How a command ended, and what it said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

#[test]
fn each_question_is_answered_for_people_and_for_scripts() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--address", "10.0.0.7:1");
    let [first] =
        started_in_order(&setup.clone().option("--label", &format!("zone={HOSTILE}")), ["a"]);
    let [second] = started_in_order(&setup, ["b"]);
    let leader = agreed([&first, &second]);
    let token = leader.token.to_string();

    let told = yes(&ask(&first, &["leader"]));
    for row in [["leader", "a"], ["address", "10.0.0.7:1"], ["token", &token]] {
        assert!(told.lines().any(|line| line.split_whitespace().eq(row)), "{row:?} in {told}");
    }
    assert!(told.contains("valid for") && told.contains(r"zone=\u{1b}[31mred\u{7}"), "{told}");
    assert!(!yes(&ask(&second, &["leader"])).contains("valid for"), "only the leader knows");

    let told = yes(&ask(&second, &["status"]));
    for row in [["id", "b"], ["role", "follower"]] {
        assert!(told.lines().any(|line| line.split_whitespace().eq(row)), "{row:?} in {told}");
    }
    assert!(told.contains("id=a") && told.contains("connected=true"), "{told}");
    // A claim takes a number of the sequence too.
    let own = second.get("/status").json()["znode"].as_str().expect("it joined").to_owned();
    let told = eventually("the announcement has reached all", || {
        let told = yes(&ask(&second, &["members"]));
        let row = |n: usize| told.lines().nth(n).map(|line| columns(line, 4)).unwrap_or_default();
        let expected = ["a leader leader_0000000000 a", &format!("b standby,self {own} a")];
        if [&*row(1), &*row(2)] == expected { Ok(told) } else { Err(told) }
    });
    assert_eq!(columns(&told, 4), "ID IS ZNODE NAMES");
    let told = yes(&ask(&second, &["history"]));
    let term: Vec<&str> = told.lines().nth(1).expect("a term").split_whitespace().collect();
    assert_eq!(&term[1..], ["-", "a", "false", &token, "-"], "{told}");

    for question in ["leader", "status", "members", "history"] {
        let told = yes(&ask(&first, &[question, "--json"]));
        let body: Value = serde_json::from_str(&told).expect("it is JSON");
        assert_eq!(keys(&body), keys(&first.get(&format!("/{question}")).json()));
        assert_eq!(told.lines().count(), 1);
    }
    let told = yes(&ask(&second, &["leader", "--json"]));
    let body: Value = serde_json::from_str(&told).expect("it is JSON");
    assert_eq!(body["leader"]["labels"]["zone"], HOSTILE, "the same, otherwise spelled");
}

#[test]
fn a_no_is_not_the_same_as_no_answer() {
    // No ZooKeeper is there, so no member leads.
    let member = Setup::at("127.0.0.1:1".to_owned()).start("a");
    let said = no(&ask(&member, &["leader"]));
    assert!(said.contains("no leader: "), "{said}");
    let said = ask(&member, &["leader", "--json"]);
    let body: Value = serde_json::from_str(&said.out).expect("it is JSON");
    assert_eq!((said.code, &body["status"]), (NO, &json!(503)));
    for unread in [
        &["members"][..],
        &["locks"],
        &["barriers"],
        &["config", "ls"],
        &["config", "get", "x"],
        &["config", "get", "x", "--wait", "5s"],
        &["config", "put", "x", "y"],
        &["config", "rm", "x"],
    ] {
        let said = ask(&member, unread);
        assert_eq!((said.code, &*said.out), (SILENT, ""), "{unread:?}: {said:?}");
        assert!(said.err.contains("ZooKeeper"), "{unread:?}: {said:?}");
    }
    no(&ask(&member, &["probe", "ready"]));
    no(&ask(&member, &["probe", "is-leader"]));
    let said = no(&ask(&member, &["wait", "--timeout", "2s"]));
    assert!(said.contains("not within 2s: no leader: "), "{said}");
    yes(&ask(&member, &["probe", "live"]));
    assert!(yes(&ask(&member, &["status"])).contains("problem"));

    let closed = format!("http://127.0.0.1:{}", free_ports::<1>()[0]);
    let unknown_client = unknown_client();
    for question in [
        &["leader"][..],
        &["status"],
        &["members"],
        &["history"],
        &["watch"],
        &["resign"],
        &["probe", "is-leader"],
        &["probe", "ready"],
        &["probe", "live"],
    ] {
        for url in [&*closed, &unknown_client, "unix:/does/not/exist"] {
            let said = run(&[question, &["--url", url]].concat(), &[]);
            assert_eq!((said.code, said.err.lines().count()), (SILENT, 1), "{question:?} {said:?}");
            assert_eq!(said.out, "");
        }
    }
    let said = run(&["wait", "--timeout", "2s", "--url", &closed], &[]);
    assert_eq!(said.code, SILENT, "there is no sidecar that could say no: {said:?}");
    assert!(said.err.contains("waiting") && said.err.contains("not within 2s"), "{said:?}");

    for wrong in [
        &["leader", "--url", "https://127.0.0.1:1"][..],
        &["leader", "--nonsense"],
        &["wait", "--timeout", "soon"],
        &["wait", "--leader", "--self"],
        &["probe", "nonsense"],
        &["pause", "--token-file", "/does/not/exist"],
        &["inspect", "--zookeeper", "a:b"],
        &["inspect", "--election", "x"],
    ] {
        let said = run(wrong, &[]);
        assert_eq!(said.code, WRONG, "{wrong:?}: {said:?}");
    }
}

#[test]
fn a_transfer_is_asked_of_the_leader() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);
    let said = no(&ask(&second, &["transfer", "--to", "b"]));
    assert!(said.contains("a leads"), "{said}");
    let said = no(&ask(&first, &["transfer", "--to", "z", "--within", "5s"]));
    assert!(said.contains(r#""z" is not in the queue"#), "{said}");
    assert_eq!(ask(&first, &["transfer", "--within", "6m"]).code, WRONG);
    assert_eq!(ask(&first, &["transfer", "--to", ""]).code, WRONG);

    let said = yes(&ask(&first, &["transfer", "--to", "b", "--json"]));
    let told: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(told["leader"]["id"], "b");
    let after = agreed_after(&before, [&first, &second]);
    let said = yes(&ask(&second, &["transfer"]));
    assert!(said.starts_with("a leads with token ") && said.ends_with(" at most\n"), "{said}");
    agreed_after(&after, [&first, &second]);
}

#[test]
fn probes_say_nothing_but_why_not() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&first, &second]);
    for probe in ["is-leader", "ready", "live"] {
        assert_eq!(yes(&ask(&first, &["probe", probe])), "");
        assert_eq!(yes(&ask(&first, &["probe", probe, "-v"])).lines().count(), 1, "{probe}");
    }
    let said = ask(&second, &["probe", "is-leader"]);
    assert_eq!((said.code, &*said.out, &*said.err), (NO, "", "bellwether: a leads\n"));
}

/// A probe that runs in the sidecar's container knows its environment.
#[test]
fn a_sidecar_is_found_at_its_socket_and_by_its_own_environment() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", directory.path().join("bellwether.sock").display());
    let _member = Setup::of(&servers).listen(&socket).start("a");
    let waited = run(&["wait", "--self", "--url", &socket], &[]);
    assert_eq!(waited.code, YES, "{waited:?}");
    assert!(yes(&run(&["leader", "--url", &socket], &[])).contains("valid for"));
    yes(&run(&["probe", "is-leader"], &[("BELLWETHER_URL", &socket)]));
    yes(&run(&["probe", "is-leader"], &[("BELLWETHER_LISTEN", &socket)]));
    let elsewhere = ("BELLWETHER_LISTEN", "127.0.0.1:1");
    let said = run(&["probe", "live"], &[elsewhere]);
    assert!(said.code == SILENT && said.err.contains("127.0.0.1:1"), "{said:?}");
    yes(&run(&["probe", "live"], &[elsewhere, ("BELLWETHER_URL", &socket)]));
}

#[test]
fn commands_are_answered_in_a_sentence() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);

    let said = no(&ask(&second, &["resign"]));
    assert!(said.contains("not leader: a leads"), "{said}");
    let said = yes(&ask(&first, &["resign"]));
    let znode = |member: &Member| member.status()["znode"].as_str().unwrap_or_default().to_owned();
    let place = format!("it is in the queue as {}, behind {}", znode(&first), znode(&second));
    assert_eq!(said, format!("this member has resigned: {place}\n"));
    let after = agreed_after(&before, [&first, &second]);
    let said = yes(&ask(&first, &["pause"]));
    assert!(said.contains("it stays out of the queue until `bellwether resume --url"), "{said}");
    // The command that it names asks the same member.
    let hint = format!("`bellwether resume --url {}`", url(&first));
    assert!(yes(&ask(&first, &["status"])).contains(&hint));
    assert!(yes(&ask(&first, &["resume"])).contains("has resumed: it "));
    agreed([&first, &second]);
    let said: Value = serde_json::from_str(&yes(&ask(&second, &["drain", "--json"]))).unwrap();
    assert_eq!((&said["done"], &said["role"]), (&json!("drained"), &json!("absent")));
    assert_eq!(agreed_after(&after, [&first]).id, "a");
}

#[test]
fn a_token_is_shown_to_the_sidecar_and_to_no_other_server() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (file("right", "a-secret\n"), file("wrong", "wrong-secret"));
    let [member] = started_in_order(&Setup::of(&servers).option("--token-file", &right), ["a"]);

    for arguments in [&["pause"][..], &["pause", "--token-file", &wrong]] {
        let said = ask(&member, arguments);
        assert!(said.err.contains("token"), "{said:?}");
        assert!(no(&said).find("secret").is_none(), "{said:?}");
    }
    assert_eq!(member.status()["paused"], false);
    yes(&ask(&member, &["pause", "--token-file", &right]));
    assert_eq!(member.status()["paused"], true);
    let url = url(&member);
    yes(&run(&["resume"], &[("BELLWETHER_TOKEN_FILE", &right), ("BELLWETHER_URL", &url)]));
}

#[test]
fn wait_hears_of_a_hand_over_and_outlives_the_sidecar() {
    let servers = Servers::standalone();
    let [port] = free_ports::<1>();
    let (listen, url) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}"));
    let waits = |name, whom| Program::start(name, [PROGRAM, "wait", whom, "--url", &url], &[]);
    let [first] = started_in_order(&Setup::of(&servers), ["a"]);

    // The sidecar has not started yet.
    let mut any_leader = waits("wait for any leader", "--leader");
    let itself = waits("wait for this member", "--self");
    for waiting in [&any_leader, &itself] {
        waiting.complains(|line| line.ends_with("waiting"));
    }
    let setup = Setup::of(&servers).short_sessions().listen(&listen);
    let mut second = setup.start("b");
    assert!(any_leader.wait().success());
    any_leader.says(0, |line| line.starts_with("a leads with token "));
    agreed([&first, &second]);

    // It goes and comes back.
    second.kill();
    let second = setup.start("b");
    agreed([&first, &second]);
    let mut itself = itself;
    assert!(itself.runs());
    let said = no(&ask(&second, &["wait", "--self", "--timeout", "2s"]));
    assert!(said.contains("not within 2s: a leads"), "{said}");

    // Two znodes of b may be in the queue: that of its former process as well.
    eventually("b leads", || {
        first.post("/resign");
        let is = second.get("/is-leader");
        if is.status == 200 { Ok(()) } else { Err(is.body) }
    });
    assert!(itself.wait().success());
    itself.says(0, |line| line.starts_with("b, this member, leads with token "));
}

#[test]
fn wait_becomes_the_command_with_the_leader_in_its_environment() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let leader = agreed([&member]);
    let told = "echo $BELLWETHER_LEADER_ID $BELLWETHER_LEADER_TOKEN; exit 7";
    let said = ask_to_become(&member, &["wait", "--self"], &["sh", "-c", told]);
    assert_eq!((said.code, said.out), (7, format!("a {}\n", leader.token)));
    assert_eq!(ask_to_become(&member, &["wait"], &["/no/such/program"]).code, 127);
}

/// As `head -1` does.
#[test]
fn watch_ends_quietly_when_its_reader_has_gone() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&first, &second]);
    let mut command = Command::new(PROGRAM);
    command.args(["watch", "--json", "--url", &url(&second)]);
    let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = pipes.spawn().expect("it starts");
    let mut read = String::new();
    let mut lines = BufReader::new(watching.stdout.take().expect("it is piped"));
    lines.read_line(&mut read).expect("a line");
    assert!(read.contains(r#""id":"a""#), "{read}");
    drop(lines);
    let ended = eventually("it ends", || match watching.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    let mut said = String::new();
    watching.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert_eq!((ended.code(), &*said), (Some(YES), ""));
}

#[test]
fn watch_sees_each_change_and_outlives_the_sidecar() {
    let servers = Servers::standalone();
    let [port] = free_ports::<1>();
    let setup = Setup::of(&servers).short_sessions().listen(&format!("127.0.0.1:{port}"));
    let [first] = started_in_order(&Setup::of(&servers), ["a"]);
    let [mut second] = started_in_order(&setup, ["b"]);
    agreed([&first, &second]);
    let url = url(&second);
    let people = Program::start("watch", [PROGRAM, "watch", "--url", &url], &[]);
    let scripts = [PROGRAM, "watch", "--json", "--url", &url];
    let scripts = Program::start("what watches", scripts, &[]);

    let event = |name: &'static str, leader: &'static str| {
        move |line: &str| {
            let mut words = line.split_whitespace();
            let at = words.next().is_some_and(|at| at.ends_with('Z') && at.contains('T'));
            at && words.next() == Some(name) && words.next() == Some(leader)
        }
    };
    let data = |name: &'static str, leader: &'static str| {
        move |line: &str| {
            let data: Value = serde_json::from_str(line).expect("each line is JSON");
            data["event"] == name && data["leader"]["id"] == leader
        }
    };
    let seen = people.says(0, event("state", "a"));
    let read = scripts.says(0, data("state", "a"));
    assert_eq!(first.post("/resign").status, 202);
    let seen = people.says(seen, event("became-leader", "b,"));
    let read = scripts.says(read, data("became-leader", "b"));

    second.kill();
    for watching in [&people, &scripts] {
        watching.complains(|line| {
            line.contains("the event stream of http") && line.contains("is lost")
        });
    }
    let second = setup.start("b");
    // The first state it knows may be that no member leads.
    people.says(seen, |line| event("state", "a")(line) || event("leader-changed", "a")(line));
    scripts.says(read, |line| data("state", "a")(line) || data("leader-changed", "a")(line));
    drop(second);
}

#[test]
fn an_election_is_inspected_without_joining_it() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let zookeeper = servers.connect_string();
    let inspect =
        |more: &[&str]| run(&[&["inspect", "--zookeeper", &zookeeper][..], more].concat(), &[]);
    let report = |more: &[&str]| -> (i32, Value) {
        let said = inspect(&[&["--json"][..], more].concat());
        let report = serde_json::from_str(&said.out);
        (said.code, report.unwrap_or_else(|error| panic!("{error}: {said:?}")))
    };
    let said = inspect(&[]);
    assert_eq!((said.code, &*said.err), (NO, ""), "it is said once");
    assert!(said.out.contains("the queue is empty, or not in this path"), "{said:?}");
    assert!(observer.znode("/election").is_none(), "nothing was created");

    let setup = Setup::of(&servers).option("--label", &format!("zone={HOSTILE}"));
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    let (leader, queue) = settled([&first, &second], &observer);
    let children = || observer.znode("/election").expect("it exists").stat.cversion;
    let before = children();
    let told = eventually("the standby is ready", || match report(&[]) {
        (YES, told) => Ok(told),
        (_, told) => Err(told.to_string()),
    });
    assert_eq!((&told["healthy"], &told["problems"]), (&json!(true), &json!([])));
    for (place, znode) in told["members"].as_array().expect("a line").iter().zip(&queue) {
        assert_eq!(place["znode"], znode.name);
        assert_eq!(place["token"], znode.token());
        assert_eq!(place["session"], format!("{:#x}", znode.stat.ephemeral_owner));
        assert_eq!(
            (&place["names"], &place["is_leader"]),
            (&json!("a"), &json!(place["id"] == "a"))
        );
        assert_eq!(place["labels"]["zone"], HOSTILE);
        assert_eq!(place["version"], env!("CARGO_PKG_VERSION"));
    }
    assert_eq!(told["members"].as_array().map(Vec::len), Some(2));
    // Any member shows the same.
    let of_member = first.get("/members").json();
    for key in ["index", "problems"] {
        assert_eq!(told[key], of_member[key]);
    }
    let claim = &told["claim"];
    assert_eq!(
        (&claim["id"], &claim["token"], &claim["session"]),
        (&json!("a"), &json!(leader.token), &told["members"][0]["session"])
    );
    let shown = yes(&inspect(&["-o", "wide"]));
    assert!(shown.contains(r"zone=\u{1b}[31mred") && shown.contains("a   leader"), "{shown}");

    // Znodes that belong to no member are shown, and do not make the election unhealthy.
    observer.create("/election/foo\u{202e}", b"{}", CreateMode::Persistent);
    observer.create("/election/leader_0000000009", b"", CreateMode::Persistent);
    let (code, told) = report(&[]);
    let others = json!([
        {"znode": "leader_0000000009", "is": "non-ephemeral"},
        {"znode": "foo\u{202e}", "is": "unknown"},
    ]);
    assert_eq!((code, &told["others"]), (YES, &others));
    let shown = yes(&inspect(&[]));
    assert!(shown.contains(r"foo\u{202e}") && shown.contains("non-ephemeral"), "{shown}");

    // These are in the queue, with no announcement or an old one.
    let stale = json!({"format": 1, "id": "old", "labels": {},
        "leader": {"id": "x", "labels": {}, "znode": "leader_0000000000", "token": 1}});
    let sequential = CreateMode::EphemeralSequential;
    observer.create("/election/leader_", stale.to_string().as_bytes(), sequential);
    let own = &queue[1];
    let behind = json!({"format": 1, "id": "c", "labels": {},
        "leader": {"id": "b", "labels": {}, "znode": own.name, "token": own.token()}});
    observer.create("/election/leader_", behind.to_string().as_bytes(), sequential);
    observer.create("/election/leader_", b"silence", sequential);
    let (code, told) = report(&[]);
    let unknown = told["members"][4]["znode"].as_str().expect("a name");
    let problems = json!([
        "old does not name the leader yet",
        "c does not name the leader yet",
        format!("{unknown} does not say whose it is: another client made it"),
    ]);
    assert_eq!((code, &told["problems"]), (NO, &problems));
    let names = [2, 3, 4].map(|n: usize| told["members"][n]["names"].clone());
    assert_eq!(names, [json!("x"), json!("b"), Value::Null]);
    assert_eq!(told["members"][4]["id"], Value::Null);
    let shown = inspect(&[]).out;
    assert!(shown.contains("problem  c does not name the leader yet"), "{shown}");
    assert_eq!(children(), before + 5, "but for those that were put there, nothing has changed");

    // The flags have the same names as for `run`.
    let said = run(
        &["inspect", "--zookeeper", &format!("{zookeeper}/election"), "--json"],
        &[("BELLWETHER_ELECTION", "/nowhere")],
    );
    let told: Value = serde_json::from_str(&said.out).expect("a report");
    assert_eq!((said.code, &told["path"]), (NO, &json!("/election/nowhere")));
    let file = directory_with("[election]\nprefix = \"foo\"\n");
    let (code, told) = report(&["--config", file.path().join("file").to_str().unwrap()]);
    let problem = "the queue is empty, or not in this path (--election, the chroot)";
    assert_eq!((code, &told["problems"]), (NO, &json!([problem])));
}

#[test]
fn without_zookeeper_nothing_can_be_inspected() {
    let mut servers = Servers::standalone();
    let zookeeper = servers.connect_string();
    let inspect = || run(&["inspect", "--zookeeper", &zookeeper, "--timeout", "2s"], &[]);
    servers.first().pause();
    let frozen = inspect();
    servers.first().resume();
    servers.first().kill();
    for said in [frozen, inspect()] {
        assert_eq!((said.code, &*said.out), (SILENT, ""), "{said:?}");
        assert!(said.err.contains(&zookeeper), "{said:?}");
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    }
}

/// Not every machine has the shells and `man`, so only the files that they read are checked, for completeness.
#[test]
fn completions_and_manual_pages_know_every_command() {
    let commands = [
        "run",
        "check-config",
        "leader",
        "status",
        "members",
        "history",
        "watch",
        "wait",
        "probe",
        "lock",
        "locks",
        "barrier",
        "barriers",
        "resign",
        "pause",
        "resume",
        "drain",
        "shutdown",
        "transfer",
        "inspect",
        "version",
        "completions",
        "man",
    ];
    let help = yes(&run(&["--help"], &[]));
    for shell in ["bash", "zsh", "fish"] {
        let script = yes(&run(&["completions", shell], &[]));
        for command in commands {
            assert!(script.contains(command), "{command} for {shell}");
        }
    }
    let page = yes(&run(&["man"], &[]));
    assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(yes(&run(&["man", "--to", directory.path().to_str().unwrap()], &[])), "");
    assert_eq!(read(&directory.path().join("bellwether.1")), page);
    for command in commands {
        let page = read(&directory.path().join(format!("bellwether-{command}.1")));
        assert!(page.contains(".SH NAME"), "{page}");
        let rows = help.lines().filter(|line| line.split_whitespace().next() == Some(command));
        assert_eq!(rows.count(), 1, "{command} in {help}");
    }
    let script = yes(&run(&["completions", "bash"], &[]));
    let syntax = Command::new("bash").args(["-n", "-c", &script]).status().expect("a shell");
    assert!(syntax.success());
}

#[test]
fn colours_are_for_terminals() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let url = url(&member);
    assert!(!yes(&ask(&member, &["members"])).contains('\u{1b}'), "this is a pipe");
    // `script` runs it on a terminal of its own.
    let on_a_terminal = |environment: &[(&str, &str)]| {
        let mut command = Command::new("script");
        let line = format!("{PROGRAM} members --url {url}");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        let output = command.envs(environment.iter().copied()).output();
        String::from_utf8(output.expect("bsdutils (script) is installed").stdout).unwrap()
    };
    assert!(on_a_terminal(&[]).contains("\u{1b}[32ma\u{1b}[0m"), "{:?}", on_a_terminal(&[]));
    assert!(!on_a_terminal(&[("NO_COLOR", "1")]).contains('\u{1b}'));
}

/// Asks this member.
fn ask(member: &Member, arguments: &[&str]) -> Said {
    run(&[arguments, &["--url", &url(member)]].concat(), &[])
}

/// Asks this member, and becomes the command.
fn ask_to_become(member: &Member, arguments: &[&str], command: &[&str]) -> Said {
    run(&[arguments, &["--url", &url(member), "--"], command].concat(), &[])
}

fn url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.port())
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Said {
    let mut command = Command::new(PROGRAM);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"BELLWETHER_") {
            command.env_remove(name);
        }
    }
    let output = command.args(arguments).envs(environment.iter().copied()).output();
    let output = output.expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    for said in [&out, &err] {
        let odd = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.contains(odd) && !said.contains("panicked"), "{arguments:?}: {said:?}");
    }
    Said { code: output.status.code().expect("it exits by itself"), out, err }
}

/// Checks that the answer is yes, and returns it.
#[track_caller]
fn yes(said: &Said) -> String {
    assert_eq!((said.code, &*said.err), (YES, ""), "{said:?}");
    said.out.clone()
}

/// Checks that the answer is no, and returns the reason.
#[track_caller]
fn no(said: &Said) -> String {
    assert_eq!(said.code, NO, "{said:?}");
    assert!(said.err.starts_with("bellwether: "), "{said:?}");
    said.err.clone()
}

/// Returns the first `count` columns of a table's first line.
fn columns(table: &str, count: usize) -> String {
    let line = table.lines().next().unwrap_or_default();
    line.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}

fn keys(value: &Value) -> Vec<&String> {
    value.as_object().expect("an object").keys().collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn directory_with(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("file"), text).expect("the file is written");
    directory
}

/// Starts an HTTP server that is no sidecar and answers everything with a page; returns its URL.
fn unknown_client() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("a bound address"));
    thread::spawn(move || {
        for mut visitor in listener.incoming().map_while(Result::ok) {
            let page = "<html>\u{1b}]0;mine\u{7}</html>";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
            // A client that does not read its answer goes without.
            let _ = visitor.read(&mut [0; 4096]).and_then(|_| visitor.write_all(answer.as_bytes()));
        }
    });
    url
}
