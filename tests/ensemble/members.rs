//! The group watched: who is told, and when, that a member has joined or left.

use crate::{
    group::ready,
    locks::{boottime_ns, number, received, started},
    member::{Setup, ok, problem},
    servers::Servers,
    wait::eventually,
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
fn a_stream_tells_who_joins_and_leaves_if_it_is_asked_to() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    let [first] = started(&setup, ["a"]);
    let mut events = first.stream("/events?members=1");
    let mut without = first.stream("/events");
    assert_eq!(events.event().name, "state");
    let group = events.event();
    assert_eq!(group.name, "members");
    assert_eq!(ids(&group.data), ["a"]);

    let mut second = setup.start("b");
    let joined = events.event();
    assert_eq!((&*joined.name, &joined.data["id"]), ("member-joined", &"b".into()));
    eventually("it knows the leader", || ready(&second));
    second.kill();
    let left = events.event();
    assert_eq!((&*left.name, &left.data["id"]), ("member-left", &"b".into()));
    assert_eq!(left.data["znode"], joined.data["znode"]);
    assert!(number(&left.data, "index") > number(&joined.data, "index"));
    assert_eq!(number(&ok(&first, "/members"), "index"), number(&left.data, "index"));

    assert_eq!(without.event().name, "state");
    first.post("/pause");
    assert_eq!(without.event().name, "lost-leadership", "it is told of no member");
    problem(&first.get("/events?members=2"), 400);
}

#[test]
fn the_queue_is_read_once_a_second_however_many_watch_and_not_at_all_for_none() {
    let mut servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut streams: Vec<_> = (0..50).map(|_| member.stream("/events?members=1")).collect();
    for events in &mut streams {
        assert_eq!([events.event().name, events.event().name], ["state", "members"]);
    }
    let index = number(&ok(&member, "/members"), "index");
    let (before, begun) = (received(&mut servers), boottime_ns());
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| ok(&member, &waiting(index, "3s")));
        }
    });
    let (after, seconds) = (received(&mut servers), (boottime_ns() - begun) / 1_000_000_000 + 1);
    // What keeps the session alive takes fewer than ten requests a second, and a reading of one member fewer than four.
    assert!(after - before <= seconds * 14, "{} in {seconds} s", after - before);
    drop(streams);
}

fn waiting(index: u64, wait: &str) -> String {
    format!("/members?index={index}&wait={wait}")
}

fn ids(group: &Value) -> Vec<&str> {
    let members = group["members"].as_array().expect("a list");
    members.iter().map(|member| member["id"].as_str().expect("text")).collect()
}
