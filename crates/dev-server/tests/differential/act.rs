//! What scripts are made of.

use crate::client::{
    ADD_WATCH, AUTH, CHECK, CHECK_WATCHES, CREATE, CREATE_CONTAINER, CREATE_TTL, CREATE2, DELETE,
    EXISTS, GET_ACL, GET_ALL_CHILDREN_NUMBER, GET_CHILDREN, GET_CHILDREN2, GET_DATA,
    GET_EPHEMERALS, MULTI, MULTI_READ, PING, RECONFIG, REMOVE_WATCHES, SET_ACL, SET_DATA,
    SET_WATCHES, SET_WATCHES2, SYNC, UNKNOWN, WHO_AM_I,
};
use crate::wire::Body;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// How many sessions a script has.
pub(crate) const SESSIONS: usize = 3;

/// One session does one thing.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) session: usize,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends one request after the other, without waiting for answers in between.
    Ask(Vec<Request>),
    /// Takes the session over to a new connection.
    Reconnect,
    /// Tries that with a wrong password first.
    Guess,
    /// Asks what the whole server has.
    Count,
    /// Closes the session, and begins another one.
    Close,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Write(Write),
    SetAcl {
        path: Place,
        acl: Acl,
        version: i32,
    },
    Multi(Vec<Write>),
    Read {
        kind: i32,
        path: Place,
        watch: bool,
    },
    /// Several reads, as a multiRead or, wrongly, as a multi.
    Reads {
        kind: i32,
        reads: Vec<(i32, Place)>,
    },
    OfPath {
        kind: i32,
        path: Place,
    },
    Auth {
        scheme: &'static str,
        credentials: &'static str,
    },
    /// Of five kinds, or of the three that the older operation has.
    SetWatches {
        kind: i32,
        seen: bool,
        lists: [Vec<Place>; 5],
    },
    /// To add, check or remove watches.
    Watch {
        kind: i32,
        path: Place,
        which: i32,
    },
    WhoAmI,
    Ping,
    Reconfig,
    /// An operation that there is not.
    Unknown,
}

/// An operation that a multi may have as well.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create {
        kind: i32,
        path: Place,
        data: Option<Vec<u8>>,
        acl: Acl,
        flags: i32,
        ttl_ms: i64,
    },
    Delete {
        path: Place,
        version: i32,
    },
    SetData {
        path: Place,
        data: Option<Vec<u8>>,
        version: i32,
    },
    /// Only ever within a multi.
    Check {
        path: Place,
        version: i32,
    },
}

/// Where in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Below the root of the script.
    In(&'static str),
    /// As it stands.
    Raw(&'static str),
    Null,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Acl {
    Open,
    ReadOnly,
    /// All to the identities of its creator.
    Creator,
    /// All to a user, for others to look at.
    User,
    /// All to the user `u` with the password `p`, and nothing to others.
    Own,
    Address,
    None,
    Invalid,
}

pub(crate) fn script() -> impl Strategy<Value = Vec<Step>> {
    let steps = vec((0..SESSIONS, act()).prop_map(|(session, act)| Step { session, act }), 1..60);
    // Most begin with a few znodes: otherwise it takes many steps until there is something to work on.
    (vec(seed(), 0..7), steps).prop_map(|(seeds, mut steps)| {
        if !seeds.is_empty() {
            steps.insert(0, Step { session: 0, act: Act::Ask(seeds) });
        }
        steps
    })
}

fn seed() -> impl Strategy<Value = Request> {
    let path =
        select(vec!["/a", "/a", "/a", "/b", "/b", "/a/a", "/a/b", "/b/a"]).prop_map(Place::In);
    let kind = prop_oneof![4 => Just(CREATE), 1 => Just(CREATE_CONTAINER)];
    let acl = prop_oneof![8 => Just(Acl::Open), 1 => Just(Acl::Own), 1 => Just(Acl::ReadOnly)];
    (path, kind, acl).prop_map(|(path, kind, acl)| {
        let flags = if kind == CREATE { 0 } else { 4 };
        Request::Write(Write::Create { kind, path, data: None, acl, flags, ttl_ms: -1 })
    })
}

fn act() -> BoxedStrategy<Act> {
    prop_oneof![
        60 => prop_oneof![9 => request(), 1 => closing()].prop_map(|request| Act::Ask(vec![request])),
        6 => vec(pipelined(), 2..6).prop_map(Act::Ask),
        1 => Just(Act::Reconnect),
        1 => Just(Act::Guess),
        2 => Just(Act::Count),
        1 => Just(Act::Close),
    ]
    .boxed()
}

/// A request for which it does not matter whether the real server has applied the one before it when it decides on the
/// next.
fn pipelined() -> BoxedStrategy<Request> {
    let by_chance = |request: &Request| match request {
        // The old list may still count.
        Request::SetAcl { .. } => true,
        // Until it is applied it is ephemeral, by its flags; then it is a container.
        Request::Write(Write::Create { kind: CREATE_CONTAINER, flags: 1 | 3, .. }) => true,
        // What comes before the operation that it stumbles over counts until the answer is on its way.
        Request::Multi(writes) => writes.iter().any(Write::trips_a_multi),
        _ => false,
    };
    request().prop_filter("depends on time", move |request| !by_chance(request)).boxed()
}

fn request() -> BoxedStrategy<Request> {
    let read =
        (select(vec![EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2]), looked_at(), any::<bool>());
    let part = (select(vec![GET_DATA, GET_CHILDREN]), looked_at());
    let of_path =
        (select(vec![GET_ACL, SYNC, GET_ALL_CHILDREN_NUMBER, GET_EPHEMERALS]), looked_at());
    let lists = [vec(inside(), 0..3), vec(inside(), 0..3), vec(inside(), 0..3)];
    let persistent = [vec(inside(), 0..2), vec(inside(), 0..2)];
    // Not on null: when its connection ends, the real server fails to forget such a watch.
    let not_null = looked_at().prop_filter("null", |place| !matches!(place, Place::Null));
    let watch = prop_oneof![
        (Just(ADD_WATCH), not_null, 0..3_i32),
        (select(vec![CHECK_WATCHES, REMOVE_WATCHES]), looked_at(), 0..5_i32),
    ];
    prop_oneof![
        20 => write().prop_map(Request::Write),
        2 => (place(), acl(), version())
            .prop_map(|(path, acl, version)| Request::SetAcl { path, acl, version }),
        6 => vec(prop_oneof![4 => write(), 1 => check()], 0..5).prop_map(Request::Multi),
        12 => read.prop_map(|(kind, path, watch)| Request::Read { kind, path, watch }),
        2 => (select(vec![MULTI_READ, MULTI_READ, MULTI]), vec(part, 0..4))
            .prop_map(|(kind, reads)| Request::Reads { kind, reads }),
        3 => of_path.prop_map(|(kind, path)| Request::OfPath { kind, path }),
        2 => (select(vec![SET_WATCHES, SET_WATCHES2]), any::<bool>(), lists, persistent).prop_map(
            |(kind, seen, [a, b, c], [d, e])| {
                Request::SetWatches { kind, seen, lists: [a, b, c, d, e] }
            }
        ),
        4 => watch.prop_map(|(kind, path, which)| Request::Watch { kind, path, which }),
        1 => Just(Request::WhoAmI),
        1 => Just(Request::Ping),
    ]
    .boxed()
}

/// A request that is not answered in its turn, or after which the connection is closed.
fn closing() -> BoxedStrategy<Request> {
    let credentials = select(vec!["u:p", "u:p", "u:p", "v:q", "user", "", ":", "u:p:q"]);
    let scheme = prop_oneof![10 => Just("digest"), 1 => select(vec!["ip", "world", "none", ""])];
    prop_oneof![
        6 => (scheme, credentials)
            .prop_map(|(scheme, credentials)| Request::Auth { scheme, credentials }),
        1 => Just(Request::Reconfig),
        1 => Just(Request::Unknown),
    ]
    .boxed()
}

fn write() -> BoxedStrategy<Write> {
    // With flags that do not exist, and some that do not go with the operation.
    let kind = select(vec![CREATE, CREATE, CREATE, CREATE2, CREATE2, CREATE_CONTAINER]);
    let create =
        (kind, target(), data(), acl(), flags()).prop_map(|(kind, path, data, acl, flags)| {
            Write::Create { kind, path, data, acl, flags, ttl_ms: -1 }
        });
    let flags = prop_oneof![4 => 5..7_i32, 1 => 0..8_i32];
    // Never below zero, which the real server does not survive without flags that ask for a TTL.
    let ttl_ms =
        prop_oneof![4 => Just(600_000_i64), 1 => Just(0_i64), 1 => Just(0x100_0000_0000_i64)];
    let with_ttl =
        (target(), data(), acl(), flags, ttl_ms).prop_map(|(path, data, acl, flags, ttl_ms)| {
            Write::Create { kind: CREATE_TTL, path, data, acl, flags, ttl_ms }
        });
    let delete = (target(), version()).prop_map(|(path, version)| Write::Delete { path, version });
    let set_data = (place(), data(), version()).prop_map(|(path, data, version)| Write::SetData {
        path,
        data,
        version,
    });
    prop_oneof![8 => create, 1 => with_ttl, 4 => delete, 4 => set_data].boxed()
}

fn check() -> impl Strategy<Value = Write> {
    (place(), version()).prop_map(|(path, version)| Write::Check { path, version })
}

/// A place that a script has, or may have.
fn inside() -> impl Strategy<Value = Place> {
    select(vec![
        "",
        "/a",
        "/a",
        "/a",
        "/b",
        "/a/a",
        "/a/b",
        "/b/a",
        "/a/a/a",
        "/a/Aa",
        "/a/BB",
        "/a/a0000000000",
        "/a/b0000000001",
        "/a/0000000002",
    ])
    .prop_map(Place::In)
}

/// A place to look at, also one that is there without any script.
fn looked_at() -> BoxedStrategy<Place> {
    prop_oneof![20 => place(), 1 => select(vec!["/", "/zookeeper", ""]).prop_map(Place::Raw)]
        .boxed()
}

/// A place, also one whose path is not valid.
fn place() -> BoxedStrategy<Place> {
    prop_oneof![
        20 => inside(),
        1 => select(vec!["/a/", "//a", "/a/.", "/a/\u{1}"]).prop_map(Place::In),
        1 => prop_oneof![
            3 => select(vec!["a", "a/b", "/none/none"]).prop_map(Place::Raw),
            1 => Just(Place::Null),
        ],
    ]
    .boxed()
}

/// A place to write to, also one that must not be created or deleted.
fn target() -> BoxedStrategy<Place> {
    prop_oneof![
        20 => place(),
        1 => select(vec!["/", "", "//", "/zookeeper", "/zookeeper/quota"]).prop_map(Place::Raw),
    ]
    .boxed()
}

fn version() -> impl Strategy<Value = i32> {
    prop_oneof![3 => Just(-1_i32), 1 => 0..3_i32, 1 => Just(-2_i32)]
}

fn data() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![9 => vec(any::<u8>(), 0..4).prop_map(Some), 1 => Just(None)]
}

fn flags() -> impl Strategy<Value = i32> {
    prop_oneof![2 => Just(0), 2 => Just(1), 1 => Just(2), 3 => 0..8_i32]
}

fn acl() -> BoxedStrategy<Acl> {
    prop_oneof![
        14 => Just(Acl::Open),
        2 => Just(Acl::ReadOnly),
        1 => Just(Acl::Creator),
        1 => Just(Acl::User),
        3 => Just(Acl::Own),
        1 => Just(Acl::Address),
        1 => Just(Acl::None),
        1 => Just(Acl::Invalid),
    ]
    .boxed()
}

impl Step {
    /// How many requests it has, at least one.
    pub(crate) fn requests(&self) -> usize {
        match &self.act {
            Act::Ask(requests) => requests.len(),
            Act::Reconnect | Act::Guess | Act::Count | Act::Close => 1,
        }
    }
}

impl Place {
    fn path(self, root: &str) -> Option<String> {
        match self {
            Self::In(path) => Some(format!("{root}{path}")),
            Self::Raw(path) => Some(path.to_owned()),
            Self::Null => None,
        }
    }
}

impl Acl {
    fn entries(self) -> &'static [(i32, &'static str, &'static str)] {
        match self {
            Self::Open => &[(31, "world", "anyone")],
            Self::ReadOnly => &[(1, "world", "anyone")],
            Self::Creator => &[(31, "auth", ""), (1, "world", "anyone")],
            Self::User => &[(31, "digest", "u:none"), (15, "world", "anyone")],
            Self::Own => &[(31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=")],
            Self::Address => &[(31, "ip", "127.0.0.0/8"), (1, "ip", "10.0.0.1")],
            Self::None => &[],
            Self::Invalid => &[(31, "world", "somebody")],
        }
    }
}

impl Request {
    /// The number of the operation, and its body; `last_seen` is the last zxid that the session has seen.
    pub(crate) fn encode(&self, root: &str, last_seen: i64) -> (i32, Body) {
        let body = Body::default();
        match self {
            Self::Write(write) => (write.kind(), write.encode(root, body)),
            Self::SetAcl { path, acl, version } => {
                (SET_ACL, body.text(path.path(root).as_deref()).acl(acl.entries()).int(*version))
            }
            Self::Multi(writes) => {
                let body = writes
                    .iter()
                    .fold(body, |body, write| write.encode(root, body.part(write.kind())));
                (MULTI, body.part(-1))
            }
            Self::Read { kind, path, watch } => {
                (*kind, body.text(path.path(root).as_deref()).bool(*watch))
            }
            Self::Reads { kind, reads } => {
                let body = reads.iter().fold(body, |body, (kind, path)| {
                    body.part(*kind).text(path.path(root).as_deref()).bool(false)
                });
                (*kind, body.part(-1))
            }
            Self::OfPath { kind, path } => (*kind, body.text(path.path(root).as_deref())),
            Self::Auth { scheme, credentials } => {
                (AUTH, body.int(0).string(scheme).buffer(credentials.as_bytes()))
            }
            Self::SetWatches { kind, seen, lists } => {
                let lists = if *kind == SET_WATCHES { &lists[..3] } else { &lists[..] };
                let body = body.long(if *seen { last_seen } else { 0 });
                let body = lists.iter().fold(body, |body, list| {
                    let body = body.int(list.len().try_into().unwrap());
                    list.iter().fold(body, |body, path| body.text(path.path(root).as_deref()))
                });
                (*kind, body)
            }
            Self::Watch { kind, path, which } => {
                (*kind, body.text(path.path(root).as_deref()).int(*which))
            }
            Self::WhoAmI => (WHO_AM_I, body),
            Self::Ping => (PING, body),
            // It adds and removes no server.
            Self::Reconfig => (RECONFIG, body.string("").string("").string("").long(-1)),
            Self::Unknown => (UNKNOWN, body),
        }
    }
}

impl Write {
    /// Whether the real server takes it for an error of its own, and does not undo what was before it in a multi.
    fn trips_a_multi(&self) -> bool {
        matches!(self, Self::Create { kind, flags: 5 | 6, .. } if *kind != CREATE_TTL)
    }

    fn kind(&self) -> i32 {
        match self {
            Self::Create { kind, .. } => *kind,
            Self::Delete { .. } => DELETE,
            Self::SetData { .. } => SET_DATA,
            Self::Check { .. } => CHECK,
        }
    }

    fn encode(&self, root: &str, body: Body) -> Body {
        match self {
            Self::Create { kind, path, data, acl, flags, ttl_ms } => {
                let path = path.path(root);
                let body = body
                    .text(path.as_deref())
                    .bytes(data.as_deref())
                    .acl(acl.entries())
                    .int(*flags);
                if *kind == CREATE_TTL { body.long(*ttl_ms) } else { body }
            }
            Self::SetData { path, data, version } => {
                body.text(path.path(root).as_deref()).bytes(data.as_deref()).int(*version)
            }
            Self::Delete { path, version } | Self::Check { path, version } => {
                body.text(path.path(root).as_deref()).int(*version)
            }
        }
    }
}
