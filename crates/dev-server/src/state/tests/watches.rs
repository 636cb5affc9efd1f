//! Which connections are notified of what, and in which order.

use super::{
    CHANGED, CHILDREN, CREATED, DELETED, add_watch, delete, events, set_data, set_watches, watched,
};
use crate::state::testing::{Answer, Bench, Received, acl, create};
use crate::wire::Writer;
use crate::wire::opcode::*;

#[test]
fn a_notification_comes_before_the_answer_to_what_caused_it() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let (b, _) = bench.client();
    assert_eq!(bench.ask(a, EXISTS, watched("/x")).error, -101);
    bench.send(b, GET_CHILDREN, watched("/"));
    let received = bench.send(a, CREATE, |body| create(body, "/x", 0));
    let answer = Answer { xid: 7, zxid: 3, error: 0, body: b"\0\0\0\x02/x".to_vec() };
    let expected = [
        (a, Received::Event(CREATED, "/x".to_owned())),
        (b, Received::Event(CHILDREN, "/".to_owned())),
        (a, Received::Answer(answer)),
    ];
    assert_eq!(received, expected);
    // These watches were one-shot watches.
    assert!(events(&bench.send(a, SET_DATA, set_data("/x", b""))).is_empty());
}

#[test]
fn a_watcher_of_data_and_children_is_notified_once_of_a_deletion() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    bench.create(a, "/x", 0);
    bench.send(a, GET_DATA, watched("/x"));
    bench.send(a, GET_CHILDREN, watched("/x"));
    bench.send(a, GET_CHILDREN, watched("/"));
    let received = bench.send(a, DELETE, delete("/x"));
    assert_eq!(events(&received), [(a, DELETED, "/x"), (a, CHILDREN, "/")]);
}

#[test]
fn a_session_is_notified_only_of_what_it_may_read() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let (b, _) = bench.client();
    bench.send(b, EXISTS, watched("/own"));
    bench.send(b, GET_CHILDREN, watched("/"));
    bench.send(a, AUTH, |body| {
        body.int(0);
        body.string("digest");
        body.buffer(Some(b"u:p"));
    });
    let own = |body: &mut Writer| {
        body.string("/own");
        body.buffer(None);
        acl(body, &[(31, "auth", "")]);
        body.int(0);
    };
    // For a new znode, its own ACL counts; for changed children, the ACL of the parent.
    assert_eq!(events(&bench.send(a, CREATE, own)), [(b, CHILDREN, "/")]);
    // The one-shot watch is gone, although its client was not notified.
    bench.send(b, AUTH, |body| {
        body.int(0);
        body.string("digest");
        body.buffer(Some(b"u:p"));
    });
    assert!(events(&bench.send(a, SET_DATA, set_data("/own", b""))).is_empty());
    bench.send(b, EXISTS, watched("/own"));
    let received = bench.send(a, SET_DATA, set_data("/own", b""));
    assert_eq!(events(&received), [(b, CHANGED, "/own")]);
}

#[test]
fn persistent_watches_stay_and_recursive_ones_notify_of_no_children() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let (b, _) = bench.client();
    bench.create(a, "/x", 0);
    assert_eq!(bench.ask(a, ADD_WATCH, add_watch("/x", 0)).body, [0; 4]);
    bench.send(b, ADD_WATCH, add_watch("/x", 1));
    let received = bench.send(a, CREATE, |body| create(body, "/x/y", 0));
    assert_eq!(events(&received), [(b, CREATED, "/x/y"), (a, CHILDREN, "/x")]);
    let received = bench.send(a, DELETE, delete("/x/y"));
    assert_eq!(events(&received), [(b, DELETED, "/x/y"), (a, CHILDREN, "/x")]);
    assert_eq!(bench.ask(a, ADD_WATCH, add_watch("/x", 2)).error, -5);
    assert_eq!(bench.ask(a, REMOVE_WATCHES, add_watch("/x", 3)).error, 0);
    assert_eq!(bench.ask(a, REMOVE_WATCHES, add_watch("/x", 3)).error, -121);
    assert_eq!(bench.ask(a, REMOVE_WATCHES, add_watch("/x", 4)).error, -5);
    // The other session's watch is still there, and counts: the real server answers the same.
    assert_eq!(bench.ask(a, CHECK_WATCHES, add_watch("/x", 2)).error, 0);
    assert_eq!(bench.ask(a, CHECK_WATCHES, add_watch("/", 2)).error, -121);
}

#[test]
fn watches_that_are_taken_over_notify_of_what_they_have_missed() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    bench.create(a, "/old", 0);
    let zxid = bench.create(a, "/changed", 0).zxid;
    bench.send(a, SET_DATA, set_data("/changed", b"new"));
    bench.send(a, CREATE, |body| create(body, "/old/child", 0));
    let data: &[&str] = &["/old", "/changed", "/gone"];
    let exists: &[&str] = &["/changed", "/absent"];
    let children: &[&str] = &["/old", "/changed", "/gone"];
    let received = bench.send(a, SET_WATCHES, set_watches(zxid, [data, exists, children]));
    let expected = [
        (a, CHANGED, "/changed"),
        (a, DELETED, "/gone"),
        (a, CREATED, "/changed"),
        (a, CHILDREN, "/old"),
        (a, DELETED, "/gone"),
    ];
    assert_eq!(events(&received), expected);
    // The watches that have missed nothing are set.
    let received = bench.send(a, SET_DATA, set_data("/old", b""));
    assert_eq!(events(&received), [(a, CHANGED, "/old")]);
    let received = bench.send(a, CREATE, |body| create(body, "/absent", 0));
    assert_eq!(events(&received), [(a, CREATED, "/absent")]);
    let received = bench.send(a, CREATE, |body| create(body, "/changed/child", 0));
    assert_eq!(events(&received), [(a, CHILDREN, "/changed")]);
}
