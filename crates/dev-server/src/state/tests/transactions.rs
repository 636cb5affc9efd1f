//! What is done and what is refused.

use super::{DELETED, delete, events, multi_errors, nothing, part, set_data, unwatched, watched};
use crate::stat::Owner;
use crate::state::testing::{Answer, Bench, Received, acl, create};
use crate::tree::NewNode;
use crate::wire::Writer;
use crate::wire::opcode::*;

#[test]
fn a_multi_does_all_or_nothing() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    bench.create(a, "/x", 0);
    let failing = |body: &mut Writer| {
        part(body, CREATE);
        create(body, "/new", 0);
        part(body, CHECK);
        body.string("/x");
        body.int(5);
        part(body, DELETE);
        body.string("/x");
        body.int(-1);
        part(body, -1);
    };
    let answer = bench.ask(a, MULTI, failing);
    assert_eq!((answer.error, answer.zxid), (0, 3));
    assert_eq!(multi_errors(&answer), [(-1, 0), (-1, -103), (-1, -2)]);
    assert_eq!(bench.ask(a, EXISTS, unwatched("/new")).error, -101);
    let working = |body: &mut Writer| {
        part(body, CREATE2);
        create(body, "/new", 0);
        part(body, CHECK);
        body.string("/x");
        body.int(0);
        part(body, SET_DATA);
        set_data("/new", b"1")(body);
        part(body, DELETE);
        delete("/x")(body);
        part(body, -1);
    };
    let answer = bench.ask(a, MULTI, working);
    // A create2 within a multi is answered as a create.
    assert_eq!(multi_errors(&answer), [(CREATE, 0), (CHECK, 0), (SET_DATA, 0), (DELETE, 0)]);
    assert_eq!(bench.ask(a, EXISTS, unwatched("/x")).error, -101);
    let empty = bench.ask(a, MULTI, |body| part(body, -1));
    assert_eq!((multi_errors(&empty), empty.zxid), (vec![], 5));
}

#[test]
fn a_multi_that_fails_as_a_whole_has_the_results_so_far() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let null = |body: &mut Writer| {
        part(body, CHECK);
        body.buffer(None);
        body.int(-1);
        part(body, -1);
    };
    let answer = bench.ask(a, MULTI, null);
    assert_eq!((answer.error, multi_errors(&answer)), (-5, vec![]));
    let null = |body: &mut Writer| {
        part(body, GET_DATA);
        unwatched("/none")(body);
        part(body, GET_DATA);
        body.buffer(None);
        body.bool(false);
        part(body, -1);
    };
    let answer = bench.ask(a, MULTI_READ, null);
    assert_eq!((answer.error, multi_errors(&answer)), (-5, vec![(-1, -101)]));
}

#[test]
fn reads_in_a_multi_and_writes_in_a_multi_read_are_refused() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let read = |body: &mut Writer| {
        part(body, GET_DATA);
        unwatched("/")(body);
        part(body, -1);
    };
    assert_eq!(bench.ask(a, MULTI, read).error, -5);
    let answer = bench.ask(a, MULTI_READ, read);
    assert_eq!(answer.error, 0);
    assert_eq!(answer.body[..4], GET_DATA.to_be_bytes());
    let missing = |body: &mut Writer| {
        part(body, GET_CHILDREN);
        unwatched("/none")(body);
        part(body, -1);
    };
    assert_eq!(multi_errors(&bench.ask(a, MULTI_READ, missing)), [(-1, -101)]);
    let write = |body: &mut Writer| {
        part(body, DELETE);
        delete("/none")(body);
        part(body, -1);
    };
    assert_eq!(bench.ask(a, MULTI_READ, write).error, -5);
}

#[test]
fn a_bare_check_is_refused_and_an_unknown_operation_closes() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let received = bench.send(a, CHECK, delete("/"));
    assert!(matches!(&received[..], [(_, Received::Answer(Answer { error: -6, .. }))]));
    let received = bench.send(a, 99, nothing);
    let unimplemented = Received::Answer(Answer { xid: 7, zxid: -1, error: -6, body: Vec::new() });
    assert_eq!(received, [(a, unimplemented), (a, Received::Close)]);
}

#[test]
fn a_body_that_cannot_be_decoded_is_answered_and_closes() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let (result, received) = bench.try_send(a, CREATE, |body| body.int(1000));
    assert!(result.is_err());
    assert!(matches!(
        &received[..],
        [(_, Received::Answer(Answer { error: -5, zxid: 2, .. })), (_, Received::Close)]
    ));
    let (b, _) = bench.client();
    assert!(bench.state.request(bench.now, b, &[0, 0, 0]).is_err());
    assert!(bench.received().is_empty());
}

#[test]
fn at_its_end_the_counter_stands_still() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let queue = NewNode {
        path: "/q".to_owned(),
        data: None,
        acl: crate::acl::open(),
        owner: Owner::Tree,
        parent_creations: 1,
    };
    let last = NewNode {
        path: "/q/x".to_owned(),
        data: None,
        acl: crate::acl::open(),
        owner: Owner::Tree,
        parent_creations: i32::MAX,
    };
    bench.state.tree.create(queue, 1, 0);
    bench.state.tree.create(last, 1, 0);
    assert_eq!(bench.create(a, "/q/n_", 2).string(), "/q/n_2147483647");
    assert_eq!(bench.create(a, "/q/n_", 2).error, -110);
    bench.send(a, DELETE, delete("/q/n_2147483647"));
    assert_eq!(bench.create(a, "/q/n_", 2).string(), "/q/n_2147483647");
}

#[test]
fn what_is_not_allowed_is_refused() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let (b, _) = bench.client();
    let auth = |body: &mut Writer| {
        body.int(0);
        body.string("digest");
        body.buffer(Some(b"u:p"));
    };
    let answer = bench.ask(a, AUTH, auth);
    assert_eq!((answer.zxid, answer.error, answer.body), (0, 0, vec![]));
    let own = |body: &mut Writer| {
        body.string("/own");
        body.buffer(None);
        acl(body, &[(31, "auth", ""), (2, "world", "anyone")]);
        body.int(0);
    };
    assert_eq!(bench.ask(b, CREATE, own).error, -114);
    assert_eq!(bench.ask(a, CREATE, own).error, 0);
    assert_eq!(bench.ask(b, GET_DATA, watched("/own")).error, -102);
    assert_eq!(bench.ask(b, SET_DATA, set_data("/own", b"")).error, 0);
    assert_eq!(bench.ask(b, CREATE, |body| create(body, "/own/x", 0)).error, -102);
    assert_eq!(bench.ask(b, GET_ACL, |body| body.string("/own")).error, -102);
    assert_eq!(bench.ask(a, GET_ACL, |body| body.string("/own")).error, 0);
    // The refused read has left no watch.
    assert!(events(&bench.send(a, DELETE, delete("/own"))).is_empty());
}

#[test]
fn containers_go_once_they_are_empty_again() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    bench.send(a, CREATE_CONTAINER, |body| create(body, "/c", 4));
    assert!(bench.state.delete_outlived(bench.now).is_empty());
    bench.create(a, "/c/x", 0);
    bench.send(a, DELETE, delete("/c/x"));
    bench.send(a, GET_DATA, watched("/c"));
    assert_eq!(bench.state.delete_outlived(bench.now), ["/c"]);
    assert_eq!(events(&bench.received()), [(a, DELETED, "/c")]);
    // With the operation create, the flag does not make a container, as in the real server.
    bench.create(a, "/p", 4);
    bench.create(a, "/p/x", 0);
    bench.send(a, DELETE, delete("/p/x"));
    assert!(bench.state.delete_outlived(bench.now).is_empty());
}
