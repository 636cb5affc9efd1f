//! Hooks, as seen by an application that never asks over HTTP.

use crate::{
    group::{agreed, has_role, leader_of, started_in_order},
    hook_notes::{Application, Home, hooks_know_how_theirs_ended},
    member::Setup,
    program::Program,
    servers::Servers,
    wait::{eventually, throughout},
};
use bellwether::clock::Clock;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const ALL: &str = r#"["became-leader", "lost-leadership", "leader-changed", "leader-lost"]"#;

/// The file must be true at every moment, so it does not wait for slow hooks.
#[test]
fn a_file_is_true_before_slow_hooks_have_run() {
    let servers = Servers::standalone();
    let home = Home::new();
    let file = home.path("leader.json");
    let kept = format!("[[hook]]\nfile = {file:?}\n");
    let slow = home.noting("slow", r#"["became-leader", "lost-leadership"]"#, "sleep 20");
    let setup = home.with(Setup::of(&servers), &[slow, kept]);
    let [member] = started_in_order(&setup, ["a"]);
    let is_self = |wanted: bool| {
        eventually("the file says so", || {
            let text = home.text("leader.json");
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            if told["is_self"] == wanted { Ok(()) } else { Err(text) }
        });
    };
    home.noted(0, "slow", "begins", "became-leader");
    is_self(true);
    member.send("POST", "/pause", &[("x-bellwether", "1")], "");
    home.noted(0, "slow", "begins", "lost-leadership");
    is_self(false);
    let ended = home.notes().into_iter().find(|note| note.what == "ends");
    assert_eq!(ended, None, "the slow ones were not waited for");
}

#[test]
fn hooks_run_in_order_never_two_at_once_and_are_told_what_it_is_about() {
    let servers = Servers::standalone();
    let home = Home::new();
    let told = home.path("told");
    let tell = format!(
        "cat > {0}.json; echo $BELLWETHER_ID $BELLWETHER_ELECTION $BELLWETHER_LEADER_ID > {0}; \
         ulimit -Sn >> {0}; nice >> {0}; echo noise; grep SigBlk /proc/self/status >> {0}",
        told.display()
    );
    let hooks = [
        home.noting("first", ALL, "sleep 0.3"),
        home.noting("second", r#"["became-leader"]"#, &tell),
        home.noting("third", r#"["lost-leadership"]"#, "true"),
        home.noting("fourth", ALL, "exit 7"),
    ];
    let setup = home.with(Setup::of(&servers), &hooks).option("--address", "h:1");
    let setup = setup.run_by(&["prlimit", "--nofile=512:1024", "--"]);
    let [member] = started_in_order(&setup, ["a"]);
    let leader = agreed([&member]);
    let (_, seen) = home.noted(0, "fourth", "begins", "became-leader");

    let notes = home.notes();
    let order: Vec<_> = notes.iter().map(|it| (&*it.hook, &*it.what)).collect();
    let expected = [
        ("first", "begins"),
        ("first", "ends"),
        ("second", "begins"),
        ("second", "ends"),
        ("fourth", "begins"),
    ];
    assert_eq!(order, expected);
    let token = leader.token.to_string();
    assert!(notes.iter().all(|it| it.token == token && it.address == "h:1"), "{notes:?}");
    let nice = Command::new("nice").output().expect("coreutils are installed").stdout;
    let nice = String::from_utf8(nice).unwrap();
    let blocked = "SigBlk:\t0000000000000000";
    assert_eq!(home.text("told"), format!("a /election a\n512\n{nice}{blocked}\n"));
    let body: Value = serde_json::from_str(&home.text("told.json")).unwrap();
    let now = leader_of(&member);
    let expected = json!({
        "change": "became-leader", "election": "/election", "id": "a", "leader": now["leader"],
        "is_self": true, "token": leader.token, "index": now["index"], "at": body["at"],
        "valid_until_boottime_ns": body["valid_until_boottime_ns"],
        "valid_until_monotonic_ns": body["valid_until_monotonic_ns"],
    });
    assert!(body["valid_until_boottime_ns"].is_u64(), "{body}");
    assert!(body["valid_until_monotonic_ns"].is_u64(), "{body}");
    assert_eq!(body, expected);
    member.wait_for_log("noise"); // What it prints is in the stream of the log.

    assert_eq!(member.post("/pause").status, 200);
    let (lost, _) = home.noted(seen, "third", "ends", "lost-leadership");
    assert_eq!(lost.token, token, "of the term that was lost");
    eventually("the status tells how they did", || {
        let hooks = member.status()["hooks"].clone();
        let runs: Vec<_> = (0..4).map(|n| hooks[n]["runs"].as_u64().unwrap()).collect();
        let last = &hooks[3]["last"];
        let failed = last["failure"] == "exit code 7" && hooks[3]["failures"] == 2;
        let so = runs == [2, 1, 1, 2] && failed && last["change"] == "lost-leadership";
        if so { Ok(()) } else { Err(hooks.to_string()) }
    });
    member.wait_for_log("hook[3] command sh: became-leader: exit code 7");
    assert!(!member.log().contains("sleep 0.3"), "arguments may be secret");
}

/// The lease's end is as the member itself tells it. Another could lead two heartbeats later at the earliest.
#[test]
fn what_runs_for_a_term_is_cut_short_so_that_its_loss_is_told_when_the_lease_ends() {
    let mut servers = Servers::standalone();
    let home = Home::new();
    let stubborn =
        format!("trap '' TERM; sleep 600 & echo $! > {}; wait", home.path("child").display());
    let stubborn = stubborn.replace('\'', "\"");
    let hooks = [
        home.noting("slow", r#"["became-leader"]"#, &stubborn),
        home.noting("never", r#"["became-leader"]"#, "true"),
        home.noting("lost", r#"["lost-leadership"]"#, "true"),
    ];
    let heartbeat = Duration::from_millis(600);
    let setup = home.with(Setup::of(&servers), &hooks).sessions(10 * heartbeat);
    let [member] = started_in_order(&setup, ["a"]);
    home.noted(0, "slow", "begins", "became-leader");
    let child = eventually("it started another", || {
        home.text("child").trim().parse::<i32>().map_err(|e| e.to_string())
    });

    servers.first().pause();
    let mut lease_end = 0.0;
    eventually("it leads no more", || {
        let asked = since_boot();
        let answer = leader_of(&member);
        match answer["valid_for_ms"].as_u64().filter(|_| answer["is_self"] == true) {
            Some(left) => {
                // Never later than it is, since the answer was written later than asked for.
                lease_end = asked + Duration::from_millis(left).as_secs_f64();
                Err(answer.to_string())
            }
            None => Ok(()),
        }
    });
    let (lost, _) = home.noted(0, "lost", "begins", "lost-leadership");
    eprintln!("told {:.3} s after the lease ended", lost.at - lease_end);
    assert!(lost.at < lease_end + (2 * heartbeat).as_secs_f64(), "{lost:?}, {lease_end}");
    assert!(lost.at > lease_end - 0.02, "not before it is so: {lost:?}, {lease_end}");
    eventually("nothing of what was cut short is left", || {
        if lives(child) { Err("it lives".to_owned()) } else { Ok(()) }
    });
    let hooks = member.status()["hooks"].clone();
    assert_eq!((&hooks[0]["cut_short"], &hooks[0]["failures"]), (&json!(1), &json!(0)), "{hooks}");
    assert_eq!(hooks[1]["runs"], 0, "what came after it is not told any more: {hooks}");
    assert!(hooks[0]["last"]["failure"].as_str().unwrap().contains("no longer leads"), "{hooks}");
}

#[test]
fn of_what_comes_while_a_hook_runs_only_the_newest_is_told() {
    let servers = Servers::standalone();
    let home = Home::new();
    let until_told = format!("until [ -e {} ]; do sleep 0.02; done", home.path("go").display());
    let hooks = [home.noting("slow", ALL, &until_told)];
    let [a] = started_in_order(&Setup::of(&servers), ["a"]);
    let [b] = started_in_order(&home.with(Setup::of(&servers), &hooks), ["b"]);
    let (heard, seen) = home.noted(0, "slow", "begins", "leader-changed");
    let first = agreed([&a, &b]);
    assert_eq!(heard.token, first.token.to_string());

    // A whole term of its own comes and goes.
    assert_eq!(a.post("/resign").status, 202);
    eventually("b leads", || has_role(&b, "leader"));
    agreed([&a, &b]);
    assert_eq!(b.post("/resign").status, 202);
    let second = eventually("a leads again", || {
        let leader = agreed([&a, &b]);
        if leader.id == "a" { Ok(leader) } else { Err(format!("{leader:?}")) }
    });
    for address in ["h:1", "h:2", "h:3"] {
        let json = ("content-type", "application/json");
        let body = format!("{{\"address\": \"{address}\"}}");
        assert_eq!(a.send("PATCH", "/member", &[("x-bellwether", "1"), json], &body).status, 200);
        eventually("b hears of it", || {
            let told = leader_of(&b);
            if told["leader"]["address"] == address { Ok(()) } else { Err(told.to_string()) }
        });
    }
    assert_eq!(home.notes().len(), seen, "it still runs");
    fs::write(home.path("go"), "").unwrap();
    let (newest, _) = home.noted(seen, "slow", "ends", "leader-changed");
    assert_eq!(newest.token, first.token.to_string());
    let (newest, _) = home.noted(seen + 1, "slow", "ends", "leader-changed");
    assert_eq!((newest.token, &*newest.address), (second.token.to_string(), "h:3"));
    throughout("nothing else is told", Duration::from_millis(500), || {
        let notes = home.notes();
        if notes.len() == 4 { Ok(()) } else { Err(format!("{notes:?}")) }
    });
}

#[test]
fn an_application_that_does_not_answer_is_given_up() {
    let servers = Servers::standalone();
    let home = Home::new();
    let application = Application::answering(&[]);
    let hook = format!(
        "[[hook]]\non = [\"became-leader\"]\nurl = \"http://127.0.0.1:{}\"\ntimeout = \"100ms\"\nretries = 2\n",
        application.port
    );
    let after = home.noting("after", r#"["became-leader"]"#, "true");
    let [member] = started_in_order(&home.with(Setup::of(&servers), &[hook, after]), ["a"]);
    home.noted(0, "after", "ends", "became-leader");
    let hooks = member.status()["hooks"].clone();
    let failure = hooks[0]["last"]["failure"].as_str().expect("it failed");
    assert_eq!(failure, "no answer within 100ms (tried 3 times)");
    assert_eq!(application.heard(3).len(), 3);
}

#[test]
fn a_signal_reaches_the_process_in_the_pid_file() {
    let servers = Servers::standalone();
    let home = Home::new();
    let pid_file = home.path("app.pid");
    let script = "trap 'echo heard' USR1; echo ready; while :; do sleep 0.05; done";
    let mut program = Program::start("app", ["sh", "-c", script], &[]);
    program.says(0, |line| line == "ready");
    let hook = |on: &str| {
        format!("[[hook]]\non = [{on:?}]\nsignal = \"SIGUSR1\"\npid_file = {pid_file:?}\n")
    };
    let hooks = [hook("became-leader"), hook("lost-leadership")];
    fs::write(&pid_file, format!("{}\n/more\n", program.process_id())).unwrap();
    let [member] = started_in_order(&home.with(Setup::of(&servers), &hooks), ["a"]);
    program.says(0, |line| line == "heard");

    fs::write(&pid_file, format!("{}\n", member.process_id())).unwrap();
    assert_eq!(member.post("/drain").status, 200);
    let hooks = member.status()["hooks"].clone();
    assert!(hooks[0]["last"]["failure"].is_null(), "{hooks}");
    let failure = hooks[1]["last"]["failure"].as_str().expect("it failed");
    assert!(failure.contains("names this very process"), "{failure}");
    assert!(program.runs());
}

/// A reader finds the file whole at any time.
#[test]
fn a_file_is_kept_true_and_is_never_missing_nor_torn() {
    let servers = Servers::standalone();
    let home = Home::new();
    let (kept, removed) = (home.path("leader.json"), home.path("removed.json"));
    let hooks = [
        format!("[[hook]]\nfile = {kept:?}\nmode = \"0640\"\n"),
        format!("[[hook]]\nfile = {removed:?}\nunknown = \"remove\"\n"),
    ];
    fs::write(&kept, "of another life").unwrap();
    let [mut member] = started_in_order(&home.with(Setup::of(&servers), &hooks), ["a"]);
    let told = |is_self: bool| {
        eventually("the file tells it", || {
            let text = fs::read_to_string(&kept).map_err(|error| error.to_string())?;
            let said: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let so = said["is_self"] == is_self && said["leader"].is_null() != is_self;
            if so { Ok(said) } else { Err(text) }
        })
    };
    let said = told(true);
    let now = leader_of(&member);
    assert_eq!(said["leader"], now["leader"]);
    assert_eq!(said["index"], now["index"]);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
    eventually("the other file is there", || {
        if removed.exists() { Ok(()) } else { Err(member.log()) }
    });

    let enough = Arc::new(AtomicBool::new(false));
    let (reader, stop) = (kept.clone(), Arc::clone(&enough));
    let reads = thread::spawn(move || {
        let mut texts = std::collections::BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let text = fs::read_to_string(&reader).expect("it is there");
            let said: Value = serde_json::from_str(&text).expect("it is whole");
            assert!(said["index"].is_u64(), "{said}");
            texts.insert(text);
        }
        texts.len()
    });
    for _ in 0..5 {
        assert_eq!(member.post("/drain").status, 200);
        told(false);
        assert!(!removed.exists());
        assert_eq!(member.post("/resume").status, 202);
        told(true);
    }
    enough.store(true, Ordering::Relaxed);
    let versions = reads.join().expect("always there, always whole");
    assert!(versions > 5, "the reader saw {versions} versions");
    member.signal("TERM");
    member.wait();
    told(false);
    assert_eq!(fs::read_dir(home.path("")).unwrap().count(), 2, "the configuration and the file");
}

#[test]
fn a_file_that_could_not_be_written_is_written_when_it_can_be() {
    let servers = Servers::standalone();
    let home = Home::new();
    let file = home.path("later").join("leader.json");
    let hook = format!("[[hook]]\nfile = {file:?}\n");
    let [member] = started_in_order(&home.with(Setup::of(&servers), &[hook]), ["a"]);
    eventually("it has failed", || {
        let hook = member.status()["hooks"][0].clone();
        if hook["failures"].as_u64() > Some(1) { Ok(()) } else { Err(hook.to_string()) }
    });
    fs::create_dir(home.path("later")).unwrap();
    eventually("it is there", || if file.exists() { Ok(()) } else { Err(member.log()) });
}

#[test]
fn drain_answers_when_the_hooks_are_done() {
    let servers = Servers::standalone();
    let home = Home::new();
    let hooks = [home.noting("lost", r#"["lost-leadership"]"#, "sleep 1")];
    let [member] = started_in_order(&home.with(Setup::of(&servers), &hooks), ["a"]);
    eventually("it leads", || has_role(&member, "leader"));
    assert_eq!(member.post("/drain").status, 200);
    assert_eq!(home.notes().last().map(|note| &*note.what), Some("ends"));
    // There is nothing to tell any more.
    assert_eq!(member.post("/drain").status, 200);
    assert_eq!(home.notes().len(), 2);
}

/// Promised are 2 s. The rest is for a busy machine.
const LEAVING: Duration = Duration::from_secs(3);

#[test]
fn a_terminated_member_tells_that_it_lost_leadership_and_is_gone_in_time() {
    let mut servers = Servers::standalone();
    let home = Home::new();
    let child = home.path("child");
    let hooks = [
        home.noting("quick", r#"["lost-leadership"]"#, "sleep 0.2"),
        home.noting(
            "slow",
            r#"["lost-leadership"]"#,
            &format!("sleep 600 & echo $! > {}; wait", child.display()),
        ),
    ];
    let setup = home.with(Setup::of(&servers), &hooks);
    for hangs in [false, true] {
        let [mut member] = started_in_order(&setup, ["a"]);
        eventually("it leads", || has_role(&member, "leader"));
        let seen = home.notes().len();
        if hangs {
            servers.first().pause();
        }
        member.signal("TERM");
        let (status, took) = member.wait();
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < LEAVING, "leaving took {took:?}");
        let notes: Vec<_> =
            home.notes().into_iter().skip(seen).map(|it| (it.hook, it.what)).collect();
        let note = |hook: &str, what: &str| (hook.to_owned(), what.to_owned());
        let told = [note("quick", "begins"), note("quick", "ends"), note("slow", "begins")];
        assert_eq!(notes, told, "{}", member.log());
        let child = home.text("child").trim().parse().unwrap();
        eventually(
            "nothing is left of it",
            || if lives(child) { Err(String::new()) } else { Ok(()) },
        );
    }
}

#[test]
fn a_sidecar_that_is_killed_takes_a_hooks_command_along() {
    let servers = Servers::standalone();
    let home = Home::new();
    let itself =
        format!("echo $$ > {}; while :; do sleep 0.05; done", home.path("itself").display());
    let hooks = [home.noting("slow", r#"["became-leader"]"#, &itself)];
    let [mut member] = started_in_order(&home.with(Setup::of(&servers), &hooks), ["a"]);
    let itself = eventually("it runs", || {
        home.text("itself").trim().parse::<i32>().map_err(|e| e.to_string())
    });
    member.kill();
    eventually("it is dead", || if lives(itself) { Err("it lives".to_owned()) } else { Ok(()) });
}

#[test]
fn hooks_beside_a_command_know_how_theirs_ended() {
    hooks_know_how_theirs_ended(|setup| setup);
}

#[test]
fn sighup_changes_the_hooks_and_a_bad_list_changes_nothing() {
    let servers = Servers::standalone();
    let home = Home::new();
    let old = home.noting("old", ALL, "true");
    let [member] =
        started_in_order(&home.with(Setup::of(&servers), std::slice::from_ref(&old)), ["a"]);
    let (_, mut seen) = home.noted(0, "old", "ends", "became-leader");
    let says = |words: &str| {
        eventually("it says so", || {
            let log = member.log();
            if log.contains(words) { Ok(()) } else { Err(log) }
        });
    };
    home.write("[[hook]]\ncommand = [\"true\"]\n");
    member.signal("HUP");
    says("hook[0].on is missing");
    assert_eq!(member.post("/drain").status, 200);
    (_, seen) = home.noted(seen, "old", "ends", "lost-leadership");
    assert_eq!(member.status()["hooks"][0]["runs"], 2);

    home.write(&[home.noting("new", ALL, "true"), old].concat());
    member.signal("HUP");
    says("the hooks are those of the file now, 2 of them");
    assert_eq!(member.post("/resume").status, 202);
    (_, seen) = home.noted(seen, "old", "ends", "became-leader");
    let notes: Vec<_> = home.notes()[seen - 4..].iter().map(|note| note.hook.clone()).collect();
    assert_eq!(notes, ["new", "new", "old", "old"]);
    let hooks = member.status()["hooks"].clone();
    assert_eq!(
        (&hooks[0]["runs"], &hooks[1]["runs"]),
        (&json!(1), &json!(3)),
        "it goes on: {hooks}"
    );
}

/// Runs the documentation's hooks with the paths and the port of this machine.
#[test]
fn the_hooks_of_the_documentation_do_what_it_says() {
    let servers = Servers::standalone();
    let home = Home::new();
    let application = Application::answering(&["200 Yes"; 3]);
    let script = "trap 'echo heard' HUP; echo ready; while :; do sleep 0.05; done";
    let program = Program::start("app", ["sh", "-c", script], &[]);
    program.says(0, |line| line == "ready");
    fs::write(home.path("app.pid"), program.process_id().to_string()).unwrap();
    let role =
        format!("#!/bin/sh\necho $* $BELLWETHER_CHANGE >> {}\n", home.path("said").display());
    fs::write(home.path("role"), role).unwrap();
    fs::set_permissions(home.path("role"), fs::Permissions::from_mode(0o755)).unwrap();

    let guide = include_str!("../../docs/hooks.md");
    let (_, section) = guide.split_once("\n## Configure them\n").expect("it has an example");
    let (_, hooks) = section.split_once("```toml\n").expect("as a file");
    let mut hooks = hooks.split_once("```\n").expect("it ends").0.to_owned();
    for (there, here) in [
        ("/run/bellwether/leader.json", home.path("leader.json").display().to_string()),
        ("/app/role", home.path("role").display().to_string()),
        ("127.0.0.1:8080", format!("127.0.0.1:{}", application.port)),
        ("/run/app/app.pid", home.path("app.pid").display().to_string()),
    ] {
        assert!(hooks.contains(there), "{there}");
        hooks = hooks.replace(there, &here);
    }
    let [member] = started_in_order(&home.with(Setup::of(&servers), &[hooks]), ["a"]);
    assert!(application.heard(1)[0].1.starts_with(r#"{"change":"became-leader","#));
    assert_eq!(home.text("said"), "--fast became-leader\n");
    let kept: Value = serde_json::from_str(&home.text("leader.json")).unwrap();
    assert_eq!(kept["is_self"], true);

    let json = ("content-type", "application/json");
    let headers = [("x-bellwether", "1"), json];
    assert_eq!(member.send("PATCH", "/member", &headers, r#"{"address": "h:1"}"#).status, 200);
    program.says(0, |line| line == "heard");
    assert_eq!(member.post("/drain").status, 200);
    assert!(application.heard(3)[2].1.starts_with(r#"{"change":"lost-leadership","#));
    assert_eq!(home.text("said"), "--fast became-leader\n--fast lost-leadership\n");
    let hooks = member.status()["hooks"].clone();
    let hooks = hooks.as_array().expect("four of them");
    assert!(hooks.iter().all(|hook| hook["failures"] == 0), "{hooks:?}");
}

fn since_boot() -> f64 {
    Clock::system().now().0.as_secs_f64()
}

fn lives(process: i32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}
