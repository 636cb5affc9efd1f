//! Requests and answers, in the bytes of the protocol.

mod invariants;
mod sessions;
mod transactions;
mod watches;

use super::testing::{Answer, Received};
use crate::watches::ConnectionId;
use crate::wire::opcode::*;
use crate::wire::{Reader, Writer};

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const CHANGED: i32 = 3;
const CHILDREN: i32 = 4;

fn watched(path: &str) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.string(path);
        body.bool(true);
    }
}

fn unwatched(path: &str) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.string(path);
        body.bool(false);
    }
}

fn delete(path: &str) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.string(path);
        body.int(-1);
    }
}

fn set_data(path: &str, data: &[u8]) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.string(path);
        body.buffer(Some(data));
        body.int(-1);
    }
}

fn set_watches(zxid: i64, lists: [&[&str]; 3]) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.long(zxid);
        for list in lists {
            body.vector(list, |body, path| body.string(path));
        }
    }
}

fn add_watch(path: &str, mode: i32) -> impl FnOnce(&mut Writer) {
    move |body| {
        body.string(path);
        body.int(mode);
    }
}

/// Writes the header of an operation in a multi, or with the kind -1 the header at the end.
fn part(body: &mut Writer, kind: i32) {
    body.int(kind);
    body.bool(kind == -1);
    body.int(-1);
}

fn nothing(_body: &mut Writer) {}

/// Returns only the notifications.
fn events(received: &[(ConnectionId, Received)]) -> Vec<(ConnectionId, i32, &str)> {
    let mut events = Vec::new();
    for (to, each) in received {
        if let Received::Event(kind, path) = each {
            events.push((*to, *kind, path.as_str()));
        }
    }
    events
}

/// Returns the type and the error code of each result in the answer to a multi.
fn multi_errors(answer: &Answer) -> Vec<(i32, i32)> {
    let mut reader = Reader::new(&answer.body);
    let mut results = Vec::new();
    loop {
        let kind = reader.int().unwrap();
        let done = reader.bool().unwrap();
        let error = reader.int().unwrap();
        if done {
            assert!(reader.is_empty());
            return results;
        }
        results.push((kind, error));
        match kind {
            -1 => assert_eq!(reader.int(), Ok(error)),
            CREATE => {
                reader.string().unwrap();
            }
            DELETE | CHECK => {}
            SET_DATA => {
                for _ in 0..68 {
                    reader.bool().unwrap();
                }
            }
            other => panic!("{other}"),
        }
    }
}
