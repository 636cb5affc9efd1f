//! Double barriers for any application, over HTTP: who enters together, and when all have left.

use crate::{
    locks::{Lock as Stream, boottime_ns, number, started},
    member::{LONG_SESSION, Member, Setup, ok, problem},
    observer::Observer,
    proxy::Proxy,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::time::Duration;
use zookeeper::CreateMode;

#[test]
fn three_enter_together_and_none_is_told_that_all_have_left_while_one_is_inside() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started(&Setup::of(&servers), ["a", "b", "c"]);
    for round in 0..2 {
        let mut first = entering(&members[0], 3);
        let waiting = first.event("waiting");
        assert_eq!((&waiting["present"], &waiting["size"]), (&json!(1), &json!(3)));
        let second = entering(&members[1], 3);
        let told = eventually("two are there", || match ok(&members[2], "/barriers/deploy") {
            told if told["members"].as_array().is_some_and(|all| all.len() == 2) => Ok(told),
            told => Err(told.to_string()),
        });
        assert_eq!((&told["size"], &told["open"]), (&json!(3), &json!(false)));
        assert_eq!(
            (&told["members"][0]["member"], &told["members"][0]["inside"]),
            (&json!("a"), &json!(false))
        );
        let mut all = [first, second, entering(&members[2], 3)];
        let inside = all.each_mut().map(|stream| stream.event("entered"));
        assert_eq!(inside[0]["id"], waiting["id"], "{round}");
        let tokens = inside.each_ref().map(|entered| number(entered, "token"));
        assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "in order of arrival: {tokens:?}");
        assert!(number(&inside[0], "valid_for_ms") < LONG_SESSION.as_millis().try_into().unwrap());
        let renewed = all[0].event("renewed");
        assert_eq!((&renewed["token"], &renewed["id"]), (&inside[0]["token"], &inside[0]["id"]));

        leave(&members[0], &inside[0]);
        leave(&members[1], &inside[1]);
        let is_inside = || match state_of(&members[0]) {
            state if state == "leaving" => Ok(()),
            state => Err(state),
        };
        eventually("it has left", is_inside);
        throughout("it is not told that all have", Duration::from_millis(500), is_inside);
        leave(&members[2], &inside[2]);
        for stream in &mut all {
            stream.event("left");
            assert_eq!(stream.next(), None, "the stream ends");
        }
        is_empty(&observer, "/barriers/deploy");
    }
    assert_eq!(ok(&members[0], "/barriers"), json!({"barriers": ["deploy"]}));
}

/// Whoever is inside may die there.
#[test]
fn a_sidecar_that_is_killed_inside_keeps_the_others_no_longer_than_its_session() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, mut second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut streams = [entering(&first, 2), entering(&second, 2)];
    let inside = streams.each_mut().map(|stream| stream.event("entered"));
    second.kill();
    leave(&first, &inside[0]);
    streams[0].event("left");
    assert!(
        boottime_ns() > number(&inside[1], "valid_until_boottime_ns"),
        "no sooner than promised"
    );
    is_empty(&observer, "/barriers/deploy");
}

#[test]
fn a_member_whose_connection_closes_has_left_or_given_up() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut gone = entering(&first, 2);
    gone.event("waiting");
    drop(gone);
    is_empty(&observer, "/barriers/deploy");
    let mut late = Stream::asked(&first, "/barriers/deploy?size=2&wait=300ms");
    late.event("waiting");
    late.event("timeout");
    is_empty(&observer, "/barriers/deploy");

    let mut streams = [entering(&first, 2), entering(&second, 2)];
    let inside = streams.each_mut().map(|stream| stream.event("entered"));
    let [stays, leaves] = streams;
    drop(leaves);
    leave(&first, &inside[0]);
    let mut stays = stays;
    stays.event("left");
    is_empty(&observer, "/barriers/deploy");
}

/// The sidecar whose process is gone is another's matter; here only connections are lost.
#[test]
fn those_inside_hear_that_all_have_left_although_connections_were_lost() {
    let mut servers = Servers::standalone();
    let proxy = Proxy::before(servers.first());
    let [first, second] = started(&Setup::at(proxy.address()), ["a", "b"]);
    let mut streams = [entering(&first, 2), Stream::asked(&second, "/barriers/deploy?size=2")];
    let inside = streams.each_mut().map(|stream| stream.event("entered"));
    leave(&first, &inside[0]);
    eventually("it has left", || match state_of(&first) {
        state if state == "leaving" => Ok(()),
        state => Err(state),
    });
    proxy.cut();
    streams[1].event("renewed");
    leave(&second, &inside[1]);
    streams.iter_mut().for_each(|stream| drop(stream.event("left")));
}

#[test]
fn one_who_waits_enters_although_connections_were_lost_meanwhile() {
    let mut servers = Servers::standalone();
    let proxy = Proxy::before(servers.first());
    let [first, second] = started(&Setup::at(proxy.address()), ["a", "b"]);
    let mut waits = entering(&first, 2);
    waits.event("waiting");
    proxy.cut();
    let mut other = entering(&second, 2);
    for stream in [&mut waits, &mut other] {
        stream.event("entered");
    }
}

#[test]
fn all_have_to_name_the_same_size() {
    let servers = Servers::standalone();
    let [first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut one = entering(&first, 2);
    one.event("waiting");
    let refused = second.post("/barriers/deploy?size=3");
    problem(&refused, 409);
    let why = refused.json()["detail"].to_string();
    assert!(why.contains("a barrier of 2") && why.contains("a barrier of 3"), "{why}");
    let mut two = entering(&second, 2);
    for stream in [&mut one, &mut two] {
        stream.event("entered");
    }
    problem(&second.post("/barriers/deploy?size=3"), 409);
}

#[test]
fn only_one_that_is_inside_can_be_told_to_leave_and_only_by_its_id() {
    let servers = Servers::standalone();
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut one = entering(&member, 2);
    let waiting = one.event("waiting");
    let path = |name: &str, id: &str| format!("/barriers/{name}/leave/{id}");
    let id = waiting["id"].as_str().unwrap();
    problem(&member.post(&path("deploy", id)), 409);
    let mut other = entering(&member, 2);
    let entered = other.event("entered");
    one.event("entered");
    problem(&member.post(&path("other", id)), 410);
    problem(&member.post(&path("deploy", "0")), 410);
    leave(&member, &waiting);
    leave(&member, &waiting);
    leave(&member, &entered);
    for stream in [&mut one, &mut other] {
        stream.event("left");
    }
    problem(&member.post(&path("deploy", id)), 410);
}

/// By the paper's pseudo-code, with names that ZooKeeper numbers.
#[test]
fn a_plain_client_enters_and_leaves_with_the_others() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    observer.make_path("/barriers/deploy");
    observer.create("/barriers/deploy/p-", b"by hand", CreateMode::EphemeralSequential);
    let mut ours = entering(&member, 2);
    let entered = ours.event("entered");
    let ready = observer.znode("/barriers/deploy/ready").expect("its sign that it may enter");
    assert_eq!(ready.json(), json!({"last": 1, "size": 2}));
    leave(&member, &entered);
    eventually("ours has left", || match state_of(&member) {
        state if state == "leaving" => Ok(()),
        state => Err(state),
    });
    observer.delete("/barriers/deploy/p-0000000000");
    ours.event("left");
    assert!(observer.znode("/barriers/deploy/ready").is_none(), "it can be used again");

    // Now the other completes the number, and says so.
    let mut ours = entering(&member, 2);
    ours.event("waiting");
    observer.create("/barriers/deploy/p-", b"by hand", CreateMode::EphemeralSequential);
    observer.create("/barriers/deploy/ready", b"", CreateMode::Persistent);
    let entered = ours.event("entered");
    let told = eventually("the next reading shows it", || match ok(&member, "/barriers/deploy") {
        told if told["open"] == true => Ok(told),
        told => Err(told.to_string()),
    });
    assert_eq!(
        (&told["members"][1]["member"], &told["members"][1]["inside"]),
        (&Value::Null, &json!(true))
    );
    let by_hand = told["members"][1]["znode"].as_str().unwrap();
    observer.delete(&format!("/barriers/deploy/{by_hand}"));
    leave(&member, &entered);
    ours.event("left");
}

#[test]
fn a_znode_that_outlives_every_session_is_none_of_those_that_meet() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started(&Setup::of(&servers), ["a", "b", "c"]);
    observer.make_path("/barriers/deploy");
    observer.create("/barriers/deploy/size-3-", b"", CreateMode::PersistentSequential);
    let first = entering(&members[0], 3);
    let second = entering(&members[1], 3);
    let is_told = |member: &Member| member.log().contains("size-3-0000000000 is not ephemeral");
    eventually("it is passed over", || match members[..2].iter().any(is_told) {
        true => Ok(()),
        false => Err("none says so".to_owned()),
    });
    let is_closed = || match ok(&members[0], "/barriers/deploy") {
        told if told["open"] == false => Ok(()),
        told => Err(told.to_string()),
    };
    throughout("none enters", Duration::from_millis(500), is_closed);
    let third = entering(&members[2], 3);
    for mut stream in [first, second, third] {
        stream.event("entered");
    }
}

#[test]
fn a_member_whose_znode_is_deleted_is_inside_no_more() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started(&Setup::of(&servers), ["a"]);
    let mut one = entering(&member, 1);
    let entered = one.event("entered");
    observer.delete("/barriers/deploy/size-1-0000000000");
    let why = one.event("lost")["why"].to_string();
    assert!(why.contains("deleted"), "{why}");
    assert_eq!(one.next(), None, "the stream ends");
    let id = entered["id"].as_str().unwrap();
    problem(&member.post(&format!("/barriers/deploy/leave/{id}")), 410);
}

/// The next to come sees to the end of their round.
#[test]
fn a_barrier_in_which_all_died_can_be_used_again() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, second] = started(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let mut streams = [entering(&first, 2), entering(&first, 2)];
    streams.iter_mut().for_each(|stream| drop(stream.event("entered")));
    first.kill();
    let mut streams = [entering(&second, 2), entering(&second, 2)];
    let inside = streams.each_mut().map(|stream| stream.event("entered"));
    inside.iter().for_each(|entered| leave(&second, entered));
    streams.iter_mut().for_each(|stream| drop(stream.event("left")));
    is_empty(&observer, "/barriers/deploy");
}

#[test]
fn a_sidecar_that_leaves_tells_those_inside_and_waits_for_none_that_has_left() {
    let servers = Servers::standalone();
    let [mut first, second] = started(&Setup::of(&servers), ["a", "b"]);
    let mut streams = [entering(&first, 3), entering(&first, 3), entering(&second, 3)];
    let inside = streams.each_mut().map(|stream| stream.event("entered"));
    leave(&first, &inside[0]);
    first.signal("TERM");
    let [left, inside_yet, _] = &mut streams;
    for stream in [left, inside_yet] {
        let why = stream.event("lost")["why"].to_string();
        assert!(why.contains("leaves"), "{why}");
    }
    let [_, inside_yet, mut other] = streams;
    drop(inside_yet);
    let (status, took) = first.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}");
    leave(&second, &inside[2]);
    other.event("left");
}

pub(crate) fn entering(member: &Member, size: u32) -> Stream {
    Stream::asked(member, &format!("/barriers/deploy?size={size}"))
}

#[track_caller]
pub(crate) fn leave(member: &Member, told: &Value) {
    let id = told["id"].as_str().expect("each event says by what to leave");
    let answer = member.post(&format!("/barriers/deploy/leave/{id}"));
    assert_eq!((answer.status, &*answer.body), (204, ""), "{answer:?}");
}

/// How the first that is asked for stands.
fn state_of(member: &Member) -> String {
    ok(member, "/status")["barriers"][0]["state"].as_str().unwrap_or_default().to_owned()
}

fn is_empty(observer: &Observer, path: &str) {
    eventually("nothing is left", || {
        let names = observer.ask(async |client| client.list_children(path).await);
        let names = names.unwrap_or_default();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    });
}
