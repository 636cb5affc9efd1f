//! Races known from other elections on ZooKeeper, as far as only real servers can show them.
//! `docs/reference/races.md` lists all of them.

use crate::{
    expire::expire,
    group::{agreed, ready, settled, started_in_order},
    member::{LONG_SESSION, Member, Setup},
    observer::{Observer, Znode},
    rejecting_proxy::Refuser,
    servers::{Servers, Settings},
    wait::eventually,
};
use std::time::{Duration, Instant};

#[test]
fn t08_the_path_is_removed_while_a_member_is_away() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    let (before, _) = settled(&members, &observer);

    members[0].signal("STOP");
    eventually("its session has ended", || {
        let queue = observer.queue("/election", "leader_");
        if queue.is_empty() { Ok(()) } else { Err(format!("{queue:?}")) }
    });
    observer.delete("/election");
    members[0].signal("CONT");

    let (after, _) = settled(&members, &observer);
    assert!(after.token > before.token, "{after:?} after {before:?}");
}

/// Every error, once in answer to each kind of request.
#[test]
fn t12_every_error_in_answer_to_every_request_leaves_the_member_in_the_queue() {
    all_join_in_spite_of(&ERRORS);
}

/// No server is known to give these answers where they are given here.
#[test]
fn t12_an_error_that_does_not_fit_the_request_leaves_the_member_in_the_queue() {
    all_join_in_spite_of(&UNFITTING_ERRORS);
}

/// The numbers begin anew with the path. The zxid does not.
#[test]
fn t19_the_last_member_leaves_its_path_is_collected_and_the_first_to_return_has_a_larger_token() {
    let mut servers = Servers::prepared(&Settings {
        container_check: Duration::from_millis(200),
        ..Settings::default()
    });
    servers.start();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let [mut first] = started_in_order(&setup, ["a"]);
    let before = agreed([&first]);
    first.signal("TERM");
    first.wait();
    eventually("the path goes with its last member", || match observer.znode("/election") {
        None => Ok(()),
        Some(znode) => Err(format!("{znode:?}")),
    });

    let [again] = started_in_order(&setup, ["a"]);

    let after = agreed([&again]);
    assert_eq!(after.znode, before.znode, "the numbers begin anew");
    assert!(after.token > before.token, "{after:?} after {before:?}");
}

#[test]
fn t20_a_member_whose_session_ends_while_it_waits_is_back_in_the_queue_at_once() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let (leader, before) = settled(&members, &observer);

    expire(servers.first(), before[1].stat.ephemeral_owner);
    let expired = Instant::now();
    eventually("it is at the tail", || {
        let queue = observer.queue("/election", "leader_");
        if queue.iter().map(id).eq(["a", "c", "b"]) { Ok(()) } else { Err(format!("{queue:?}")) }
    });

    let took = expired.elapsed();
    assert!(took < LONG_SESSION / 2, "it took {took:?}");
    let (still, after) = settled(&members, &observer);
    assert_eq!(still, leader);
    assert_ne!(after[2].stat.ephemeral_owner, before[1].stat.ephemeral_owner, "a new session");
}

const CREATE: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const GET_CHILDREN_AND_STAT: i32 = 12;
const MULTI: i32 = 14;

const ASKED_BY_A_LEADER: [i32; 6] =
    [CREATE, CREATE_CONTAINER, EXISTS, GET_CHILDREN, GET_CHILDREN_AND_STAT, MULTI];

const ASKED_BY_A_FOLLOWER: [i32; 5] =
    [CREATE, GET_DATA, SET_DATA, GET_CHILDREN, GET_CHILDREN_AND_STAT];

/// `KeeperException.Code`, but for those below and for `NONODE` (-101): that one proves something, so
/// a server which says it of a znode that exists is broken beyond help.
const ERRORS: [i32; 21] = [
    -1, -2, -3, -4, -5, -7, -9, -13, -100, -102, -112, -113, -115, -118, -119, -120, -121, -122,
    -123, -125, -127,
];

/// `UNIMPLEMENTED`, `BADARGUMENTS`, `BADVERSION`, `NOCHILDRENFOREPHEMERALS`, `NODEEXISTS`, `NOTEMPTY` and
/// `INVALIDACL`, none of which says that a znode is gone.
const UNFITTING_ERRORS: [i32; 7] = [-6, -8, -103, -108, -110, -111, -114];

/// A member, and what each of its requests was first answered with.
struct Refused {
    error: i32,
    refuser: Refuser,
    member: Member,
}

#[track_caller]
fn all_join_in_spite_of(errors: &[i32]) {
    let mut servers = Servers::standalone();
    let server = servers.first().socket().into();

    // Each alone, so that it leads; then all in one queue behind a standby, so that they poll the head.
    let alone = errors.iter().map(|&error| {
        let refuser = Refuser::before(server, &ASKED_BY_A_LEADER, error);
        let setup = Setup::at(refuser.address());
        let setup = setup.option("--election", &format!("/refused{error}"));
        Refused { error, refuser, member: setup.start("a") }
    });
    all_join(alone.collect());

    let _ahead = started_in_order(&Setup::of(&servers), ["head", "standby"]);
    let started_in_order = errors.iter().map(|&error| {
        let refuser = Refuser::before(server, &ASKED_BY_A_FOLLOWER, error);
        let setup = Setup::at(refuser.address());
        Refused { error, refuser, member: setup.start(&format!("refused{error}")) }
    });
    all_join(started_in_order.collect());
}

#[track_caller]
fn all_join(mut members: Vec<Refused>) {
    eventually("all were refused everything once, and are in the queue", || {
        let look = |refused: &mut Refused| refused.look().err();
        let not_yet: Vec<String> = members.iter_mut().filter_map(look).collect();
        if not_yet.is_empty() { Ok(()) } else { Err(not_yet.join("\n")) }
    });
}

impl Refused {
    fn look(&mut self) -> Result<(), String> {
        let so_far = |what: &str| format!("{}: {what}", self.error);
        if !self.member.runs() {
            return Err(so_far("it ended"));
        }
        ready(&self.member).map_err(|answer| so_far(&answer))?;
        let left = self.refuser.left();
        if left.is_empty() { Ok(()) } else { Err(so_far(&format!("not asked yet: {left:?}"))) }
    }
}

pub(crate) fn id(znode: &Znode) -> String {
    znode.json()["id"].as_str().unwrap_or_default().to_owned()
}
