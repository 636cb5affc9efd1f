//! How sessions begin, move to another connection, close and expire.

use super::{DELETED, events, nothing, watched};
use crate::state::testing::{Answer, Bench, Received};
use crate::wire::Writer;
use crate::wire::opcode::*;

#[test]
fn a_timeout_is_negotiated() {
    let mut bench = Bench::new();
    for (asked, given) in [(1, 4000), (10_000, 10_000), (i32::MAX, 40_000), (i32::MIN, 4000)] {
        let id = bench.accept();
        let welcome = bench.connect(id, asked, 0, &[]);
        assert_eq!(welcome.timeout_ms, given);
        assert_ne!(welcome.session, 0);
        assert_eq!(welcome.password.len(), 16);
    }
    assert_eq!(bench.state.zxid, 4);
}

#[test]
fn a_session_moves_to_another_connection_which_closes_the_old_one() {
    let mut bench = Bench::new();
    let (old, welcome) = bench.client();
    let new = bench.accept();
    bench.state.take_outputs();
    let again = bench.connect(new, 10_000, welcome.session, &welcome.password);
    assert_eq!(again, welcome);
    assert!(!bench.state.connections.contains_key(&old));
    // Resuming a session takes no zxid.
    assert_eq!(bench.state.zxid, 1);
    assert_eq!(bench.ask(new, PING, nothing).xid, -2);
}

#[test]
fn a_wrong_password_and_an_unknown_session_are_answered_with_zeros() {
    let mut bench = Bench::new();
    let (_, welcome) = bench.client();
    for session in [welcome.session, welcome.session + 1] {
        let id = bench.accept();
        let refused = bench.connect(id, 10_000, session, &[1; 16]);
        assert_eq!((refused.timeout_ms, refused.session), (0, 0));
        assert_eq!(refused.password, [0; 16]);
    }
}

#[test]
fn a_client_that_has_seen_more_is_refused() {
    let mut bench = Bench::new();
    let id = bench.accept();
    let frame = [&[0; 4][..], &1_i64.to_be_bytes(), &[0; 12], &[0; 4]].concat();
    assert!(bench.state.connect(bench.now, id, &frame).is_err());
    assert!(bench.state.take_outputs().is_empty());
}

#[test]
fn a_closed_session_takes_its_znodes_with_it_in_one_transaction() {
    let mut bench = Bench::new();
    let (a, welcome) = bench.client();
    let (b, _) = bench.client();
    bench.create(a, "/e1", 1);
    bench.create(a, "/e2", 1);
    bench.send(b, GET_DATA, watched("/e1"));
    bench.send(b, GET_DATA, watched("/e2"));
    assert_eq!(bench.ask(a, GET_EPHEMERALS, |body| body.string("/")).strings().len(), 2);
    let zxid = bench.state.zxid;
    let received = bench.send(a, CLOSE_SESSION, nothing);
    assert_eq!(bench.state.zxid, zxid + 1);
    let mut paths: Vec<_> = events(&received).into_iter().map(|(_, _, path)| path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/e1", "/e2"]);
    assert_eq!(received.last(), Some(&(a, Received::Close)));
    // Further requests of this connection are ignored, and the session is gone.
    assert!(bench.send(a, PING, nothing).is_empty());
    assert!(!bench.state.sessions.contains(welcome.session));
}

#[test]
fn a_session_without_requests_expires() {
    let mut bench = Bench::new();
    let (a, welcome) = bench.client();
    let (b, _) = bench.client();
    bench.create(a, "/e", 1);
    bench.send(b, EXISTS, watched("/e"));
    bench.now.elapsed_ms = 9000;
    bench.send(b, PING, nothing);
    bench.now.elapsed_ms = 12_000;
    assert_eq!(bench.state.expire_due(bench.now), [welcome.session]);
    let received = bench.received();
    assert_eq!(events(&received), [(b, DELETED, "/e")]);
    assert_eq!(received.last(), Some(&(a, Received::Drop)));
}

#[test]
fn credentials_that_prove_nothing_close_the_connection() {
    let mut bench = Bench::new();
    let (a, _) = bench.client();
    let auth = |body: &mut Writer| {
        body.int(0);
        body.string("sasl");
        body.buffer(Some(b"u:p"));
    };
    let received = bench.send(a, AUTH, auth);
    let refused = Received::Answer(Answer { xid: 7, zxid: 0, error: -115, body: Vec::new() });
    assert_eq!(received, [(a, refused), (a, Received::Close)]);
}
