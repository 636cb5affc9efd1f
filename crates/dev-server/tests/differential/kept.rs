//! Scripts that are kept: those in which the two servers once differed, at their shortest, and those for which chance would
//! take too long.

use crate::act::{Acl, Act, Place, Request, Step, Write};
use crate::client::{
    ADD_WATCH, CHECK_WATCHES, CREATE, CREATE_CONTAINER, EXISTS, GET_CHILDREN, GET_DATA,
    GET_EPHEMERALS, MULTI, MULTI_READ, SET_WATCHES2,
};

/// All of them, by name.
pub(crate) fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "a multi with a null path is answered with an error and no results",
            vec![
                ask(Request::Multi(vec![create(Place::Null, 0), create(Place::In("/a"), 0)])),
                ask(Request::Multi(vec![create(Place::In("/a"), 0), set(Place::Null)])),
            ],
        ),
        (
            "of a multi that the real server stumbles over nothing stays",
            vec![
                ask(Request::Multi(vec![create(Place::In("/a"), 0), without_its_ttl()])),
                ask(Request::Write(Write::Delete { path: Place::In("/a"), version: 2 })),
                ask(Request::Multi(vec![create(Place::In("/a"), 0), set(Place::Null)])),
                ask(Request::Write(Write::Delete { path: Place::In("/a"), version: 2 })),
            ],
        ),
        (
            "a multiread that fails as a whole shows the results so far",
            vec![ask(Request::Reads {
                kind: MULTI_READ,
                reads: vec![
                    (GET_DATA, Place::In("")),
                    (GET_DATA, Place::In("/none")),
                    (GET_CHILDREN, Place::Null),
                    (GET_DATA, Place::In("")),
                ],
            })],
        ),
        (
            "a multi that reads is refused, and of null before it counts as a transaction",
            vec![
                ask(Request::Reads { kind: MULTI, reads: vec![(GET_DATA, Place::In(""))] }),
                ask(Request::Reads { kind: MULTI, reads: vec![(GET_DATA, Place::Null)] }),
            ],
        ),
        (
            "a relative path has no watches to be looked for",
            vec![ask(watch(CHECK_WATCHES, "a", 1)), ask(watch(CHECK_WATCHES, "a/b", 1))],
        ),
        (
            "recursive watches are looked for up to the root",
            vec![
                ask(Request::SetWatches {
                    kind: SET_WATCHES2,
                    seen: false,
                    lists: [vec![], vec![], vec![], vec![], vec![Place::In("")]],
                }),
                ask(watch(CHECK_WATCHES, "a/b", 1)),
                ask(watch(CHECK_WATCHES, "", 1)),
                ask(watch(ADD_WATCH, "a/b", 0)),
                ask(watch(CHECK_WATCHES, "a/b", 3)),
            ],
        ),
        (
            "an empty path has no watches to be looked for, even if there are",
            vec![
                ask(Request::Read { kind: EXISTS, path: Place::Raw(""), watch: true }),
                ask(watch(CHECK_WATCHES, "", 2)),
            ],
        ),
        (
            "a session hears only of what it may read, and its one-shots are used up by the rest",
            vec![
                ask(Request::Read { kind: EXISTS, path: Place::In("/own"), watch: true }),
                ask(Request::Watch { kind: ADD_WATCH, path: Place::In(""), which: 1 }),
                own(create_own(Place::In("/own"))),
                own(Request::Write(set(Place::In("/own")))),
                own(create_own(Place::In("/own/a"))),
                own(Request::Auth { scheme: "digest", credentials: "u:p" }),
                own(create_own(Place::In("/own/a"))),
                ask(Request::Auth { scheme: "digest", credentials: "u:p" }),
                own(Request::Write(set(Place::In("/own/a")))),
                own(Request::Write(Write::Delete { path: Place::In("/own/a"), version: -1 })),
            ],
        ),
        ("many children are listed in the same order", many(0)),
        ("many ephemeral znodes are listed and deleted in the same order", many(1)),
    ]
}

/// Sequential znodes until tables have grown several times, of which some are deleted.
fn many(ephemeral: i32) -> Vec<Step> {
    let sequential = 2;
    let list = || {
        let read = |kind| Request::Read { kind, path: Place::In(""), watch: false };
        let own = Request::OfPath { kind: GET_EPHEMERALS, path: Place::Raw("/") };
        Act::Ask(vec![read(GET_CHILDREN), own])
    };
    let step = |act| Step { session: 0, act };
    let prefixes = ["/a", "/b", "/Aa", "/BB", "/", "/a name that is longer than others-"];
    let mut script = Vec::new();
    for round in 0..20 {
        let creates = prefixes
            .map(|prefix| Request::Write(create(Place::In(prefix), sequential | ephemeral)));
        script.push(step(Act::Ask(creates.to_vec())));
        if round % 3 == 0 {
            script.push(step(list()));
        }
    }
    let gone = ["/a0000000000", "/b0000000001", "/Aa0000000008", "/a0000000060", "/0000000040"];
    let deletes =
        gone.map(|path| Request::Write(Write::Delete { path: Place::In(path), version: -1 }));
    script.push(step(Act::Ask(deletes.to_vec())));
    script.push(step(list()));
    // Another session hears of each deletion, in order.
    let recursive = Request::Watch { kind: ADD_WATCH, path: Place::In(""), which: 1 };
    script.push(Step { session: 1, act: Act::Ask(vec![recursive]) });
    script.push(step(Act::Close));
    script
}

fn ask(request: Request) -> Step {
    Step { session: 0, act: Act::Ask(vec![request]) }
}

/// By another session than that of [`ask`].
fn own(request: Request) -> Step {
    Step { session: 1, act: Act::Ask(vec![request]) }
}

fn create_own(path: Place) -> Request {
    let acl = Acl::Own;
    Request::Write(Write::Create { kind: CREATE, path, data: None, acl, flags: 0, ttl_ms: -1 })
}

fn create(path: Place, flags: i32) -> Write {
    Write::Create { kind: CREATE, path, data: None, acl: Acl::Open, flags, ttl_ms: -1 }
}

/// A createContainer with the flags of a createTTL.
fn without_its_ttl() -> Write {
    let (path, acl) = (Place::In("/b"), Acl::Open);
    Write::Create { kind: CREATE_CONTAINER, path, data: None, acl, flags: 6, ttl_ms: -1 }
}

fn set(path: Place) -> Write {
    Write::SetData { path, data: None, version: -1 }
}

fn watch(kind: i32, path: &'static str, which: i32) -> Request {
    Request::Watch { kind, path: Place::Raw(path), which }
}
