//! The commands that a member obeys, and from which callers.

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::{Answer, Member, Setup, ok, problem},
    observer::Observer,
    servers::Servers,
    wait::{LIMIT, eventually, throughout},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

#[test]
fn a_leader_that_resigns_goes_to_the_tail() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);

    problem(&first.request("POST", "/resign"), 403);
    problem(&second.post("/resign"), 409);
    let resigned = first.post("/resign");

    assert_eq!(resigned.status, 202, "{resigned:?}");
    let place = resigned.json();
    assert_eq!(place["predecessor"], second.status()["znode"], "{place}");
    assert_eq!(place["znode"], first.status()["znode"], "{place}");
    // A web page whose host name was rebound to this machine can send the header, but `origin` tells its host.
    let from_a_page = [("x-bellwether", "1"), ("origin", "http://evil.example:4040")];
    problem(&second.send("POST", "/resign", &from_a_page, ""), 403);
    let after = agreed_after(&before, [&first, &second]);
    assert_eq!(after.id, "b");
    assert_eq!(agreed([&first, &second]), after);
}

#[test]
fn a_paused_member_stays_out_of_the_queue_until_it_is_told_to_resume() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);

    let paused = first.post("/pause");
    assert_eq!((paused.status, &paused.json()["role"]), (200, &json!("absent")));
    assert_eq!(observer.queue("/election", "leader_").len(), 1, "gone when the answer comes");
    agreed_after(&before, [&second]);
    let status = first.status();
    assert_eq!((&status["paused"], &status["role"]), (&json!(true), &json!("absent")));
    assert!(first.get("/readyz").body.contains("paused"), "{:?}", first.get("/readyz"));
    assert_eq!(first.get("/livez").status, 200);

    assert_eq!(first.post("/resume").status, 202);
    let after = agreed([&first, &second]);
    assert_eq!((&*after.id, first.status()["paused"].as_bool()), ("b", Some(false)));

    assert_eq!(second.post("/drain").status, 200);
    assert_eq!(agreed_after(&after, [&first]).id, "a");
}

/// The clients of the requests in the member's sockets have long disconnected when it wakes up. A client that still
/// waits is obeyed after them: so they were not merely too late.
#[test]
fn a_client_that_has_gone_is_not_obeyed_by_a_member_that_wakes_up_later() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);
    let port = second.port();
    let ask = |path: &str| {
        let mut visitor = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(visitor, "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\n\r\n")
            .unwrap();
        visitor
    };

    second.signal("STOP");
    for _ in 0..20 {
        drop(ask("/pause"));
    }
    let mut waits = ask("/resume");
    waits.set_read_timeout(Some(LIMIT)).unwrap();
    second.signal("CONT");
    let mut told = [0; 12];
    waits.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 202");
    throughout("it is not paused", Duration::from_secs(1), || {
        let paused = second.status()["paused"] == true || second.log().contains("told to pause");
        if paused { Err(second.log()) } else { Ok(()) }
    });
    assert_eq!(agreed([&first, &second]), before);
}

/// Address and labels of a leader change while it leads, and all members learn it.
#[test]
fn a_leader_that_moves_leads_on() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--address", "old:1").option("--label", "zone=a");
    let [first, second, third] = started_in_order(&setup, ["a", "b", "c"]);
    let before = agreed([&first, &second, &third]);
    let mut events = third.stream("/events");
    assert_eq!(events.event().data["leader"]["address"], "old:1");

    let moved =
        amend(&first, &json!({"address": "new:2", "labels": {"zone": null, "disk": "ssd"}}));

    let told = json!({
        "id": "a", "address": "new:2", "labels": {"disk": "ssd"}, "priority": 50, "revision": 1
    });
    assert_eq!((moved.status, moved.json()), (200, told.clone()));
    assert_eq!(ok(&first, "/member"), told);
    let changed = events.event();
    assert_eq!(
        (&*changed.name, &changed.data["leader"]["address"]),
        ("leader-changed", &json!("new:2"))
    );
    for member in [&first, &second, &third] {
        eventually("all know where the leader is", || {
            let leader = ok(member, "/leader")["leader"].clone();
            let known = leader["address"] == "new:2" && leader["labels"] == json!({"disk": "ssd"});
            if known { Ok(()) } else { Err(leader.to_string()) }
        });
    }
    assert_eq!(agreed([&first, &second, &third]), before, "the same znode, the same token");
}

#[test]
fn a_follower_that_moves_keeps_its_place() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    agreed([&first, &second]);
    let before: Vec<String> = names(&observer);

    assert_eq!(amend(&second, &json!({"labels": {"zone": "b"}})).status, 200);

    let says = |member: usize| observer.queue("/election", "leader_")[member].json();
    eventually("its znode says so", || {
        let said = says(1);
        let well = said["labels"] == json!({"zone": "b"}) && said["leader"]["id"] == "a";
        if well { Ok(()) } else { Err(said.to_string()) }
    });
    assert_eq!(names(&observer), before);
    // The new labels last as long as the process, also in its next znode.
    second.post("/pause");
    second.post("/resume");
    eventually("its next znode says so", || {
        let queue = observer.queue("/election", "leader_");
        let said = queue.last().expect("a queue").json();
        if said["id"] == "b" && said["labels"]["zone"] == "b" {
            Ok(())
        } else {
            Err(said.to_string())
        }
    });
}

#[test]
fn what_is_no_patch_changes_nothing() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let send = |kind: &str, body: &str| {
        member.send("PATCH", "/member", &[("x-bellwether", "1"), ("content-type", kind)], body)
    };
    let json = "application/json";

    problem(&member.send("PATCH", "/member", &[("content-type", json)], "{}"), 403);
    problem(&member.send("PATCH", "/member?priority=3", &[("x-bellwether", "1")], ""), 400);
    problem(&send("text/plain", "{}"), 415);
    problem(&send(json, "{"), 400);
    problem(&send(json, "[null, null]"), 422);
    problem(&send(json, r#"{"id": "b"}"#), 422);
    problem(&send(json, r#"{"labels": {"zone": 1}}"#), 422);
    let long = format!(r#"{{"address": "{}"}}"#, "x".repeat(600));
    let too_much = send(json, &long);
    problem(&too_much, 422);
    assert!(too_much.body.contains("1024"), "{too_much:?}");
    problem(&send(json, &"x".repeat(20_000)), 413);
    assert_eq!(ok(&member, "/member")["revision"], 0);
    assert_eq!(send("application/merge-patch+json", "{}").status, 200);
    assert_eq!(ok(&member, "/member")["revision"], 0, "nothing is said anew that is not new");
}

/// Where a token is configured, the header alone is refused; and the token may be replaced.
#[test]
fn a_command_needs_the_token_of_the_moment() {
    let servers = Servers::standalone();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"first-secret\n").unwrap();
    let path = file.path().to_str().unwrap();
    let [member] = started_in_order(&Setup::of(&servers).option("--token-file", path), ["a"]);
    let pause = |shown: &str| member.send("POST", "/pause", &[("authorization", shown)], "");

    problem(&member.post("/pause"), 401);
    assert_eq!(member.post("/pause").header("www-authenticate"), "Bearer");
    for wrong in
        ["Bearer", "Bearer ", "Bearer first", "Bearer first-secret-and-more", "Basic first-secret"]
    {
        problem(&pause(wrong), 401);
    }
    assert_eq!(member.status()["paused"], false);
    assert_eq!(pause("Bearer first-secret").status, 200);
    fs::write(path, "second").unwrap();
    problem(&pause("Bearer first-secret"), 401);
    assert_eq!(pause("bearer second").status, 200);
    fs::write(path, "").unwrap();
    problem(&pause("Bearer second"), 503);
    fs::remove_file(path).unwrap();
    problem(&pause("Bearer second"), 503);
    member.wait_for_log("http.token_file");
    assert!(!member.log().contains("secret"), "a token is not for the log");
}

fn amend(member: &Member, patch: &Value) -> Answer {
    let headers = [("x-bellwether", "1"), ("content-type", "application/merge-patch+json")];
    member.send("PATCH", "/member", &headers, &patch.to_string())
}

fn names(observer: &Observer) -> Vec<String> {
    observer.queue("/election", "leader_").into_iter().map(|znode| znode.name).collect()
}
