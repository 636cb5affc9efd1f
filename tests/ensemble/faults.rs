//! Servers that go away and come back with what they knew, and quorums that are lost.

use crate::{
    first_join::{changes_of_the_line, joins, only_znode, stands_alone},
    group::{agreed, has_role, ready, settled, started_in_order},
    member::{Member, SHORT_SESSION, Setup},
    observer::Observer,
    proxy::Mode,
    races::id,
    sampler::Sampler,
    servers::Servers,
    silence::no_claim_beyond_a_session,
    wait::{eventually, throughout},
};
use std::{fs, net::TcpStream};

#[test]
fn a_rolling_restart_of_all_three_servers() {
    let mut servers = Servers::three();
    let members = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let before = agreed(&members);
    let sampler = Sampler::of(&members);

    for server in servers.each() {
        server.kill();
        server.start();
        members.iter().for_each(|member| eventually("a member is ready again", || ready(member)));
    }

    let after = agreed(&members);
    assert!(after.token >= before.token, "{after:?} after {before:?}");
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn the_only_server_restarts() {
    let mut servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c"]);
    let before = agreed(&members);
    let sampler = Sampler::of(&members);

    servers.first().kill();
    eventually("all members notice", || members.iter().try_for_each(cut_off));
    servers.first().start();

    eventually("all members are connected again", || members.iter().try_for_each(connected));
    let after = agreed(&members);
    assert!(after.token >= before.token, "{after:?} after {before:?}");
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn no_quorum_no_leader() {
    let mut servers = Servers::three();
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    agreed(&members);

    // Whichever server leads, one of three is no quorum.
    servers.each().take(2).for_each(|server| server.kill());
    throughout(
        "no member leads beyond its session",
        3 * SHORT_SESSION,
        no_claim_beyond_a_session(&members),
    );

    servers.revive();
    agreed(&members);
}

#[test]
fn a_member_that_starts_without_a_quorum_is_told_so() {
    let mut servers = Servers::three();
    servers.each().take(2).for_each(|server| server.kill());
    let member = Setup::of(&servers).short_sessions().start("a");
    eventually("it says so", || {
        let status = member.status();
        let problem = status["session"]["problem"].as_str().unwrap_or_default();
        if problem.contains("runs and serves no client") { Ok(()) } else { Err(problem.to_owned()) }
    });
}

fn connected(member: &Member) -> Result<(), String> {
    has_session(member, true)
}

fn cut_off(member: &Member) -> Result<(), String> {
    has_session(member, false)
}

fn has_session(member: &Member, connected: bool) -> Result<(), String> {
    let status = member.status();
    let so = status["session"]["connected"] == connected;
    if so { Ok(()) } else { Err(format!("{}: {status}", member.id)) }
}

#[test]
fn a_leader_that_holds_leads_on_while_its_server_restarts() {
    let mut servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed(&members);

    servers.first().kill();
    eventually("the leader notices", || cut_off(&members[0]));
    assert_eq!(members[0].get("/is-leader").status, 200, "its lease has not ended");
    servers.first().start();

    eventually("both are connected again", || members.iter().try_for_each(connected));
    assert_eq!(agreed(&members), before);
}

/// The session outlives the restart of its server. So the old znode goes only because it is deleted before
/// the new one is created, and not with its session.
#[test]
fn t06_a_member_that_gives_up_leadership_while_cut_off_leaves_the_queue_before_it_joins_again() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let members = started_in_order(&setup, ["a", "b"]);
    let (_, before) = settled(&members, &observer);

    servers.first().kill();
    eventually("the leader has given up", || has_role(&members[0], "absent"));
    servers.first().start();

    let queue = eventually("it is in the queue again", || {
        let queue = observer.queue("/election", "leader_");
        let again = queue.iter().any(|znode| id(znode) == "a" && znode.name != before[0].name);
        if again { Ok(queue) } else { Err(format!("{queue:?}")) }
    });
    assert_eq!(queue.iter().map(id).collect::<Vec<_>>(), ["b", "a"], "its old znode is gone");
    let (leader, _) = settled(&members, &observer);
    assert_eq!((&*leader.id, leader.token), ("b", before[1].token()));
}

/// A server that comes back lets all sessions live for their whole timeout, however long it was away.
#[test]
fn t04_a_session_given_up_but_still_alive_is_ended_before_the_next_one_joins() {
    let (mut servers, observer, proxy, member) =
        joins(Mode::LosesTheReplyToTheCreate, SHORT_SESSION);
    eventually("the znode is there, its owner cut off", || only_znode(&observer));
    servers.first().kill();
    eventually("the member gives its session up", || match member.status() {
        status if status["session"]["id"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });

    proxy.set(Mode::Open);
    servers.first().start();
    let own = stands_alone(&member, &observer);

    let parent = observer.znode("/election").expect("the parent exists");
    assert_eq!(changes_of_the_line(&observer), 4, "created, ended, created, claimed");
    let claim = observer.znode("/election/claim-leader_").expect("it leads");
    assert_eq!(claim.stat.ephemeral_owner, own.stat.ephemeral_owner);
    assert_eq!(parent.stat.pzxid, claim.stat.czxid, "the old one went before the new one claimed");
}

#[test]
fn visitors_that_stay_keep_a_leader_from_nothing() {
    const FILES: usize = 64;
    let mut servers = Servers::standalone();
    let few_files = ["prlimit", &format!("--nofile={FILES}")];
    let [first] = started_in_order(&Setup::of(&servers).run_by(&few_files), ["a"]);
    let [second] = started_in_order(&Setup::of(&servers), ["b"]);
    let before = agreed([&first, &second]);
    let visit = |_| TcpStream::connect(("127.0.0.1", first.port())).expect("it listens");
    let visitors: Vec<TcpStream> = (0..2 * FILES).map(visit).collect();
    eventually("it accepts as many as it can", || match open_files(&first) {
        enough if enough >= FILES / 2 => Ok(()),
        few => Err(format!("{few} open files")),
    });

    servers.first().kill();
    servers.first().start();
    eventually("it is connected again", || {
        let connected = first.log().matches("connected to ZooKeeper").count();
        if connected == 2 { Ok(()) } else { Err(first.log()) }
    });

    drop(visitors);
    assert_eq!(agreed([&first, &second]), before);
}

fn open_files(member: &Member) -> usize {
    let path = format!("/proc/{}/fd", member.process_id());
    fs::read_dir(path).expect("a process that runs").count()
}
