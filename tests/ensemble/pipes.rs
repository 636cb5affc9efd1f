//! What happens between a member and its server, connection by connection: a server that only greets, answers that are
//! lost at the worst moment.

use crate::{
    first_join::{changes_of_the_line, joins, only_znode, stands_alone},
    group::{agreed, agreed_after, settled, started_in_order},
    member::{LONG_SESSION, SHORT_SESSION, Setup},
    observer::Observer,
    proxy::{Mode, Proxy},
    sampler::{Sampler, claimed_for_no_longer_than_its_lease},
    servers::Servers,
    wait::{eventually, throughout},
};
use std::time::Instant;

#[test]
fn a_leader_whose_new_connections_are_greeted_and_then_ignored_does_not_go_on() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let [first] = started_in_order(&Setup::at(proxy.address()).short_sessions(), ["a"]);
    let [second] = started_in_order(&Setup::of(&servers).short_sessions(), ["b"]);
    let (old, _) = settled([&first, &second], &observer);
    let sampler = Sampler::of([&first, &second]);

    proxy.set(Mode::GreetsOnly);
    proxy.cut();
    let lost = Instant::now();
    let new = agreed_after(&old, [&second]);
    assert_eq!(new.id, "b");
    claimed_for_no_longer_than_its_lease(&sampler, &first, lost);
    let mut not_connected = Instant::now();
    throughout("it does not take a greeting for a connection", 2 * SHORT_SESSION, || {
        let status = first.status();
        if status["session"]["connected"] == false {
            not_connected = Instant::now();
        }
        // A new session is proved by its first request, and one that is not answered is soon dropped.
        let long = not_connected.elapsed();
        if long < SHORT_SESSION { Ok(()) } else { Err(format!("for {long:?}: {status}")) }
    });

    proxy.set(Mode::Open);
    assert_eq!(settled([&first, &second], &observer).0, new);
    sampler.saw_one_leader_at_a_time();
}

/// Each handshake tells the servers that the session lives. With a session this long, a member that reconnects to its
/// old session now and then would keep it, and its znode at the head of the queue, for ever.
#[test]
fn a_session_that_is_only_greeted_comes_to_its_end() {
    let mut servers = Servers::standalone();
    let proxy = Proxy::before(servers.first());
    let [first] = started_in_order(&Setup::at(proxy.address()), ["a"]);
    let [second] = started_in_order(&Setup::of(&servers), ["b"]);
    let old = agreed([&first, &second]);

    proxy.set(Mode::GreetsOnly);
    proxy.cut();

    assert_eq!(agreed_after(&old, [&second]).id, "b");
}

#[test]
fn t04_a_znode_whose_session_expired_before_its_owner_heard_of_it_is_not_adopted() {
    let (_servers, observer, proxy, member) = joins(Mode::LosesTheReplyToTheCreate, SHORT_SESSION);
    let lost = eventually("the znode is there, its owner cut off", || only_znode(&observer));
    eventually("the znode is gone", || match observer.znode("/election") {
        Some(parent) if parent.stat.cversion == 2 => Ok(()),
        other => Err(format!("{other:?}")),
    });

    proxy.set(Mode::Open);
    let own = stands_alone(&member, &observer);

    assert_ne!(own.stat.ephemeral_owner, lost.stat.ephemeral_owner);
    assert_eq!(changes_of_the_line(&observer), 4, "created, expired, created, claimed");
}

#[test]
fn t05_a_znode_whose_owner_did_not_hear_of_it_is_found_by_the_same_session() {
    let (_servers, observer, proxy, member) = joins(Mode::LosesTheReplyToTheCreate, LONG_SESSION);
    let lost = eventually("the znode is there, its owner cut off", || match proxy.mode() {
        Mode::Closed => only_znode(&observer),
        other => Err(format!("{other:?}")),
    });

    proxy.set(Mode::Open);
    let own = stands_alone(&member, &observer);

    assert_eq!((&own.name, own.stat.czxid), (&lost.name, lost.stat.czxid));
    assert_eq!(changes_of_the_line(&observer), 2, "created once, and claimed");
}

#[test]
fn a_create_that_was_lost_with_its_connection_comes_in_no_later_session() {
    let (_servers, observer, proxy, member) = joins(Mode::LosesTheCreate, SHORT_SESSION);
    eventually("the create is lost, and the session dropped", || {
        let status = member.status();
        let over = proxy.mode() == Mode::Closed && status["session"]["id"].is_null();
        if over { Ok(()) } else { Err(status.to_string()) }
    });

    proxy.set(Mode::Open);
    let own = stands_alone(&member, &observer);

    assert_eq!((&*own.name, changes_of_the_line(&observer)), ("leader_0000000000", 2));
}
