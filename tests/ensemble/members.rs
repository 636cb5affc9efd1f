//! The group watched: who is told, and when, that a member has joined or left.

use crate::{
    locks::{boottime_ns, number, received, started},
    member::{Setup, ok, problem},
    servers::Servers,
};
use serde_json::Value;
use std::thread;

#[test]
fn a_blocking_query_answers_when_a_member_has_joined_or_left() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    let [first] = started(&setup, ["a"]);
    let alone = ok(&first, "/members");
    let index = number(&alone, "index");
    assert_eq!(number(&ok(&first, &waiting(index, "10ms")), "index"), index, "nothing has changed");

    let (both, mut second) = thread::scope(|scope| {
        let asked = scope.spawn(|| ok(&first, &waiting(index, "30s")));
        let second = setup.start("b");
        (asked.join().unwrap(), second)
    });
    assert_eq!(ids(&both), ["a", "b"]);
    assert_eq!(both["members"][0]["is_leader"], true);
    let joined = number(&both, "index");
    assert!(joined > index);
    assert_eq!(ids(&ok(&first, &waiting(index, "30s"))), ["a", "b"], "at once: it is another");

    second.kill();
    let left = ok(&first, &waiting(joined, "30s"));
    assert_eq!(ids(&left), ["a"]);
    let last = number(&left, "index");
    assert!(last > joined);
    let ahead = ok(&first, &waiting(last + 1, "30s"));
    assert_eq!((ids(&ahead), number(&ahead, "index")), (vec!["a"], last), "by the next reading");
    problem(&first.get("/members?wait=1s"), 400);
}

#[test]
fn the_queue_is_read_once_a_second_however_many_watch_and_not_at_all_for_none() {
    let mut servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    let index = number(&ok(&member, "/members"), "index");
    let (before, begun) = (received(&mut servers), boottime_ns());
    thread::scope(|scope| {
        for _ in 0..70 {
            scope.spawn(|| ok(&member, &waiting(index, "3s")));
        }
    });
    let (after, seconds) = (received(&mut servers), (boottime_ns() - begun) / 1_000_000_000 + 1);
    // What keeps the session alive takes fewer than ten requests a second, and a reading of one member fewer than four.
    assert!(after - before <= seconds * 14, "{} in {seconds} s", after - before);
}

fn waiting(index: u64, wait: &str) -> String {
    format!("/members?index={index}&wait={wait}")
}

fn ids(group: &Value) -> Vec<&str> {
    let members = group["members"].as_array().expect("a list");
    members.iter().map(|member| member["id"].as_str().expect("text")).collect()
}
