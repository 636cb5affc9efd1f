//! The shared configuration over HTTP: what is written where, who hears of it, and when a value goes.

use crate::{
    command::{ran, url},
    group::{ready, started_in_order},
    hook_notes::{Application, Home},
    member::{Answer, Member, Setup, ok, problem},
    observer::Observer,
    program::Program,
    proxy::{Mode, Proxy},
    servers::Servers,
    wait::eventually,
};
use bellwether::shared_config::NAMES_MAX;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, thread};
use zookeeper::CreateMode;

#[test]
fn a_value_is_read_as_it_was_stored_and_written_only_over_the_version_that_was_read() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let path = "/config/limits.json";
    problem(&first.get(path), 404);
    assert!(first.get(path).body.contains("/config/limits.json in ZooKeeper"));
    assert_eq!(ok(&first, "/config"), json!({"names": []}));

    let created = put(&first, path, &[("if-none-match", "*")], r#"{"rate": 1}"#);
    assert_eq!((created.status, created.header("etag")), (201, "\"0\""), "{created:?}");
    assert_eq!(ok(&first, "/config"), json!({"names": ["limits.json"]}), "at once");
    let stored = observer.znode(path).unwrap();
    assert_eq!(stored.stat.mzxid.cast_unsigned(), index(&created));
    let read = second.get(path);
    assert_eq!((read.status, &*read.body), (200, r#"{"rate": 1}"#));
    assert_eq!((read.header("etag"), read.header("content-type")), ("\"0\"", "application/json"));
    assert_eq!(index(&read), index(&created), "whichever member is asked");

    let refused = put(&second, path, &[("if-none-match", "*")], "other");
    problem(&refused, 412);
    assert_eq!(refused.header("etag"), "\"0\"", "the version that is there");
    let changed = put(&second, path, &[("if-match", "\"0\"")], "");
    assert_eq!((changed.status, changed.header("etag")), (200, "\"1\""), "{changed:?}");
    let late = put(&first, path, &[("if-match", "\"0\"")], "lost");
    problem(&late, 412);
    assert_eq!(late.header("etag"), "\"1\"");
    assert_eq!(first.get(path).body, "", "an empty value is one");
    assert_eq!(put(&first, path, &[], "whatever it was").status, 200);
    problem(&put(&first, "/config/none", &[("if-match", "*")], "x"), 412);
    let proved = second.get(&format!("{path}?proved=1"));
    assert_eq!((proved.status, proved.header("etag")), (200, "\"2\""), "{proved:?}");
    problem(&first.get("/config/none?proved=1"), 404);
    problem(&first.get(&format!("{path}?proved=2")), 400);
    let said = ran(&["config", "get", "limits.json", "--proved", "--url", &url(&first)]);
    assert_eq!((said.code, &*said.out), (0, "whatever it was"));

    problem(&delete(&first, path, &[("if-match", "\"1\"")]), 412);
    assert_eq!(delete(&first, path, &[("if-match", "\"2\"")]).status, 204);
    problem(&delete(&first, path, &[]), 404);
    assert!(observer.znode(path).is_none());
    let gone = second.get(path);
    assert!(gone.status == 404 && index(&gone) > index(&changed), "{gone:?}");
    let again = put(&second, path, &[], "again");
    assert!(again.status == 201 && index(&again) > index(&gone), "{again:?} after {gone:?}");
}

#[test]
fn the_version_that_a_write_needs_is_printed_beside_the_value() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let url = url(&member);
    let config = |words: &[&str]| ran(&[&["config"], words, &["--url", &url]].concat());
    assert_eq!(config(&["put", "x", "one"]).code, 0);
    assert_eq!(config(&["put", "x", "two"]).code, 0);
    assert_eq!(config(&["get", "x"]).out, "two", "as it is stored");
    let told: Value = serde_json::from_str(&config(&["get", "x", "-o", "json"]).out).unwrap();
    let index = index(&member.get("/config/x"));
    assert_eq!(told, json!({"version": 1, "index": index, "text": "two", "base64": null}));
    let wrong = config(&["put", "x", "three", "--if-version", "0"]);
    assert!(wrong.code == 1 && wrong.err.contains("config get -o json"), "{wrong:?}");
    assert_eq!(config(&["put", "x", "three", "--if-version", "1"]).code, 0);
    for wrong in ["abc", "-1"] {
        let said = config(&["put", "x", "four", "--if-version", wrong]);
        assert!(said.code == 2 && said.err.contains("--if-version"), "{said:?}");
    }
}

#[test]
fn a_value_that_is_too_long_is_refused_and_the_longest_is_not() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let longest = "x".repeat(1024 * 1024 - 4096);
    assert_eq!(put(&member, "/config/long", &[], &longest).status, 201);
    assert_eq!(member.get("/config/long").body.len(), longest.len());
    problem(&put(&member, "/config/long", &[], &(longest + "x")), 413);
}

/// The paper's rendezvous: a name that workers wait for is absent, empty, filled, and goes with who made it.
#[test]
fn those_who_wait_for_a_name_hear_that_it_comes_is_filled_and_goes_with_its_owner() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    let [mut owner, worker] = started_in_order(&setup, ["a", "b"]);
    let mut stream = worker.stream("/config/master");
    let absent = stream.event();
    assert_eq!(absent.name, "absent");
    let waiting = thread::scope(|scope| {
        let asked =
            scope.spawn(|| waited(&worker, "/config/master", absent.data["index"].as_u64()));
        assert_eq!(put(&owner, "/config/master?ephemeral=1", &[], "").status, 201);
        asked.join().unwrap()
    });
    assert_eq!((waiting.status, &*waiting.body), (200, ""));
    let empty = stream.event();
    assert_eq!((&*empty.name, &empty.data["text"]), ("value", &json!("")));
    assert_eq!(empty.data["ephemeral"], true);

    problem(&put(&worker, "/config/master?ephemeral=1", &[], "mine"), 409);
    assert_eq!(put(&worker, "/config/master", &[], "10.0.0.7:9000").status, 200);
    let filled = stream.event();
    assert_eq!(filled.data["text"], "10.0.0.7:9000");
    assert_eq!(filled.data["ephemeral"], true, "it is its owner's still");

    owner.kill();
    let gone = stream.event();
    assert_eq!(gone.name, "absent");
    assert!(gone.data["index"].as_u64() > filled.data["index"].as_u64(), "{}", gone.data);
    let late = waited(&worker, "/config/master", filled.data["index"].as_u64());
    assert_eq!(late.status, 404, "its going is a change like another");
}

#[test]
fn a_value_that_goes_with_a_member_goes_when_that_is_told_to_end() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut owner] = started_in_order(&Setup::of(&servers), ["a"]);
    assert_eq!(put(&owner, "/config/mine?ephemeral=1", &[], "x").status, 201);
    assert_eq!(put(&owner, "/config/mine?ephemeral=1", &[], "y").status, 200, "it is its own");
    assert!(observer.znode("/config/mine").is_some());
    owner.signal("TERM");
    owner.wait();
    assert!(observer.znode("/config/mine").is_none());
}

/// Of what happens meanwhile the last is told, and it is told although no watch was there to fire.
#[test]
fn what_changed_while_the_connection_was_lost_is_told_when_it_is_back() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let [member] = started_in_order(&Setup::at(proxy.address()), ["a"]);
    assert_eq!(put(&member, "/config/x", &[], "one").status, 201);
    let mut stream = member.stream("/config/x");
    assert_eq!(stream.event().data["text"], "one");

    proxy.set(Mode::Closed);
    proxy.cut();
    observer.set("/config/x", b"two");
    observer.set("/config/x", b"three");
    problem(&member.get("/config/x"), 503);
    proxy.set(Mode::Open);
    assert_eq!(stream.event().data["text"], "three");

    proxy.set(Mode::Closed);
    proxy.cut();
    observer.delete("/config/x");
    observer.create("/config/x", b"\xff", CreateMode::Persistent);
    proxy.set(Mode::Open);
    let made_again = stream.event();
    assert_eq!(made_again.data["version"], 0);
    assert_eq!(
        (&made_again.data["text"], &made_again.data["base64"]),
        (&json!(null), &json!("/w=="))
    );
}

#[test]
fn one_watch_is_set_for_a_name_however_many_ask() {
    let mut servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    put(&member, "/config/x", &[], "one");
    let mut streams: Vec<_> = (0..8).map(|_| member.stream("/config/x")).collect();
    streams.iter_mut().for_each(|stream| drop(stream.event()));
    for _ in 0..8 {
        assert_eq!(member.get("/config/x").status, 200);
    }
    let watches = servers.first().ask("wchc").unwrap();
    let of_name = watches.lines().filter(|line| line.trim() == "/config/x").count();
    assert_eq!(of_name, 1, "{watches}");
    let watched = |page: &str| {
        page.lines().find(|line| line.starts_with("bellwether_config_watched{")).map(str::to_owned)
    };
    let page = member.get("/metrics").body;
    assert!(watched(&page).is_some_and(|line| line.ends_with(" 1")), "{page}");

    put(&member, "/config/x", &[], "two");
    streams.iter_mut().for_each(|stream| assert_eq!(stream.event().data["text"], "two"));
}

#[test]
fn recipes_stand_below_their_root_and_are_switched_off_together() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let without = setup.clone().option("--recipes-root", "").start("a");
    let shared = setup.option("--recipes-root", "/shared").start("b");
    eventually("a leader is known", || ready(&without).and_then(|()| ready(&shared)));
    for path in ["/config/x", "/locks", "/barriers"] {
        let off = without.get(path);
        problem(&off, 404);
        assert!(off.body.contains("recipes.root"), "{off:?}");
    }
    assert_eq!(shared.send("PUT", "/locks/x", &[("x-bellwether", "1")], "").status, 201);
    assert_eq!(put(&shared, "/config/x", &[], "one").status, 201);
    let observer = Observer::of(&servers);
    for path in ["/shared/config/x", "/shared/locks/x"] {
        assert!(observer.znode(path).is_some(), "{path}");
    }
}

/// The last value stays on disk while ZooKeeper is away, and the member says that it may be outdated.
#[test]
fn a_value_is_kept_as_a_file_and_a_command_runs_whenever_it_was_written() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let home = Home::new();
    let (file, ran) = (home.path("limits.json"), home.path("ran"));
    let kept = format!(
        "[[config]]\nname = \"limits.json\"\nfile = {file:?}\nmode = \"0640\"\nthen = {{ command = \
         [\"/bin/sh\", \"-c\", \"echo $BELLWETHER_VALUE_NAME $BELLWETHER_VALUE_VERSION >> {}\"] }}\n",
        ran.display()
    );
    let member = home.with(Setup::at(proxy.address()), &[kept]).start("a");
    let stands = |state: &str, text: Option<&str>, runs: &str| {
        eventually(state, || {
            let status = member.status();
            let read = |path| fs::read_to_string(path).ok();
            let seen = (status["config"][0]["state"].as_str(), read(&file), read(&ran));
            let wanted = (Some(state), text, runs);
            let (is, has, did) = &seen;
            if (*is, has.as_deref(), did.as_deref().unwrap_or_default()) == wanted {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        });
    };
    stands("absent", None, "");
    assert_eq!(put(&member, "/config/limits.json", &[], "one").status, 201);
    stands("current", Some("one"), "limits.json 0\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let page = member.get("/metrics").body;
    let is_current =
        |line: &str| line.starts_with("bellwether_config_file_current{") && line.ends_with(" 1");
    assert!(page.lines().any(is_current), "{page}");

    proxy.set(Mode::Closed);
    proxy.cut();
    stands("away", Some("one"), "limits.json 0\n");
    member.wait_for_log("limits.json stays at version 0");
    observer.set("/config/limits.json", b"two");
    proxy.set(Mode::Open);
    stands("current", Some("two"), "limits.json 0\nlimits.json 1\n");
    observer.delete("/config/limits.json");
    stands("absent", Some("two"), "limits.json 0\nlimits.json 1\n");
}

#[test]
fn a_process_is_signalled_and_a_url_is_told_whenever_a_value_was_written() {
    let servers = Servers::standalone();
    let home = Home::new();
    let pid_file = home.path("app.pid");
    let script = "trap 'echo heard' HUP; echo ready; while :; do sleep 0.05; done";
    let program = Program::start("app", ["sh", "-c", script], &[]);
    program.says(0, |line| line == "ready");
    fs::write(&pid_file, program.process_id().to_string()).unwrap();
    let application = Application::answering(&["500 No", "204 Yes", "204 Yes"]);
    let kept = |name: &str, then: &str| {
        let file = home.path(name);
        format!("[[config]]\nname = {name:?}\nfile = {file:?}\nthen = {{ {then} }}\n")
    };
    let signal = kept("signalled", &format!("signal = \"SIGHUP\", pid_file = {pid_file:?}"));
    let url = kept("posted", &format!("url = \"http://127.0.0.1:{}/changed\"", application.port));
    let [member] = started_in_order(&home.with(Setup::of(&servers), &[signal, url]), ["a"]);
    let mut said = 0;
    for value in ["one", "two"] {
        for name in ["signalled", "posted"] {
            assert!(put(&member, &format!("/config/{name}"), &[], value).status < 300);
        }
        said = program.says(said, |line| line == "heard");
        let posts = application.heard(if value == "one" { 2 } else { 3 });
        let told: Value = serde_json::from_str(&posts.last().unwrap().1).unwrap();
        let version = if value == "one" { 0 } else { 1 };
        assert_eq!(
            (&told["change"], &told["name"], &told["version"]),
            (&json!("config-changed"), &json!("posted"), &json!(version))
        );
        assert_eq!(told["file"], home.path("posted").to_str().unwrap());
        assert_eq!(fs::read_to_string(home.path("posted")).unwrap(), value, "it is there before");
    }
    let posts = application.heard(3);
    assert_eq!(posts[0].1, posts[1].1, "what was not taken is told again");
}

#[test]
fn so_many_names_are_watched_and_no_more_until_one_is_given_up() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    // One after another, each is given up for the next.
    for n in 0..NAMES_MAX + 9 {
        assert_eq!(member.get(&format!("/config/once{n}")).status, 404);
    }
    let mut streams: Vec<_> =
        (0..NAMES_MAX).map(|n| member.stream(&format!("/config/n{n}"))).collect();
    streams.iter_mut().for_each(|stream| assert_eq!(stream.event().name, "absent"));
    let refused = member.get("/config/one-more");
    problem(&refused, 503);
    assert!(refused.body.contains("256 names are watched"), "{refused:?}");
    assert_eq!(put(&member, "/config/n7", &[], "x").status, 201, "what is watched is written");
    assert_eq!(streams[7].event().data["text"], "x");
    streams.truncate(NAMES_MAX - 1);
    eventually("there is room again", || match member.get("/config/one-more").status {
        404 => Ok(()),
        other => Err(other.to_string()),
    });
}

pub(crate) fn put(member: &Member, path: &str, headers: &[(&str, &str)], value: &str) -> Answer {
    member.send("PUT", path, &[headers, &[("x-bellwether", "1")]].concat(), value)
}

fn delete(member: &Member, path: &str, headers: &[(&str, &str)]) -> Answer {
    member.send("DELETE", path, &[headers, &[("x-bellwether", "1")]].concat(), "")
}

/// Asks for news since this index.
fn waited(member: &Member, path: &str, index: Option<u64>) -> Answer {
    member.get(&format!("{path}?index={}&wait=8s", index.expect("an index")))
}

fn index(answer: &Answer) -> u64 {
    answer.header("x-bellwether-index").parse().expect("an index")
}
