//! What happens between a member and its servers, connection by connection: no route, a server that only
//! greets, answers that are lost at the worst moment, a name whose first address is dead, visitors that stay.

use crate::{
    flock::{agreed, agreed_after, has_role, in_line, ready, settled},
    member::{LONG_SESSION, Member, SHORT_SESSION, Setup},
    network::Network,
    observer::{Observer, Znode},
    proxy::{Mode, Proxy},
    sampler::Sampler,
    servers::{Servers, Settings},
    wait::{eventually, throughout},
};
use std::{
    fs,
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;

/// The lease of a short session: two heartbeats, half a tick, 100 ms and a thousandth less than it lasts.
const LEASE: Duration = Duration::from_millis(2000 - 2 * 200 - 100 - 100 - 2);

/// As in `leaving`: promised are 2 s.
const LEAVING: Duration = Duration::from_secs(3);

/// `connect` fails at once where there is no route: a loop that tries again at once is never idle.
#[test]
fn without_a_route_a_member_rests_answers_and_leaves_when_told_to() {
    let network = Network::new(1, 2);
    let mut servers = Servers::prepared_on(&network.servers, &Settings::default());
    servers.start();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers).short_sessions();
    let [mut first, mut second, third] = [("a", 0), ("b", 0), ("c", 1)].map(|(id, host)| {
        let member = setup.start_on(&network.members[host], id);
        eventually("a member that just started knows a leader", || ready(&member));
        member
    });
    let (old, _) = settled([&first, &second, &third], &observer);
    let sampler = Sampler::of([&first, &third]);

    network.unplug(&network.members[0]);
    let lost = Instant::now();
    let alive = || {
        [&first, &second].into_iter().try_for_each(|member| match member.get("/livez").status {
            200 => Ok(()),
            status => Err(format!("{}: {status}", member.id)),
        })
    };
    throughout("both live and say so", 2 * SHORT_SESSION, alive);
    // By now the library's patience is over, even with a session that was once established.
    let (begun, ran_before) = (Instant::now(), processor_time(&second));
    throughout("both live and say so", SHORT_SESSION, alive);
    let (ran, passed) = (processor_time(&second) - ran_before, begun.elapsed());
    assert!(5 * ran < passed, "it ran for {ran:?} of {passed:?}");
    has_role(&first, "absent").expect("it knows that its session is over");
    second.signal("TERM");
    let (status, took) = second.wait();
    assert!(status.code() == Some(0) && took < LEAVING, "{status} after {took:?}");
    let new = agreed_after(&old, [&third]);

    network.plug_in(&network.members[0]);
    let (still, line) = settled([&first, &third], &observer);
    assert_eq!((&*still.id, still.token, line.len()), ("c", new.token, 2));
    claimed_for_no_longer_than_its_lease(&sampler, &first, lost);
    sampler.saw_one_leader_at_a_time();
    first.signal("TERM");
    first.wait();
}

#[test]
fn a_leader_whose_new_connections_are_greeted_and_then_ignored_does_not_go_on() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let proxy = Proxy::before(servers.first());
    let [first] = in_line(&Setup::at(proxy.address()).short_sessions(), ["a"]);
    let [second] = in_line(&Setup::of(&servers).short_sessions(), ["b"]);
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
        // A new session is proved by its first request, and one that is not answered is soon given up.
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
    let [first] = in_line(&Setup::at(proxy.address()), ["a"]);
    let [second] = in_line(&Setup::of(&servers), ["b"]);
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
    eventually("the create is lost, and the session given up", || {
        let status = member.status();
        let over = proxy.mode() == Mode::Closed && status["session"]["id"].is_null();
        if over { Ok(()) } else { Err(status.to_string()) }
    });

    proxy.set(Mode::Open);
    let own = stands_alone(&member, &observer);

    assert_eq!((&*own.name, changes_of_the_line(&observer)), ("leader_0000000000", 2));
}

#[test]
fn every_address_behind_a_name_is_tried() {
    let network = Network::new(2, 1);
    let mut servers = Servers::prepared_on(&network.servers[1..], &Settings::default());
    servers.start();
    network.cut(&network.members, &network.servers[..1]);
    let hosts = network.servers.iter().map(|host| format!("{} zk.test\n", host.address));
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(hosts.collect::<String>().as_bytes()).expect("it takes two lines");
    let instead = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
    let path = file.path().to_str().expect("a path of text");

    let start = Instant::now();
    let member = Setup::at(format!("zk.test:{}", servers.first().socket().port()))
        .run_by(&["unshare", "--mount", "sh", "-c", instead, path])
        .start_on(&network.members[0], "a");
    eventually("the member is connected", || match member.status() {
        status if status["session"]["connected"] == true => Ok(()),
        status => Err(status.to_string()),
    });

    // Each address has a quarter of a session to answer.
    let took = start.elapsed();
    assert!(took < LONG_SESSION / 2, "it took {took:?}");
    // No sooner than its heartbeats have been regular: the attempt at the first address is no heartbeat.
    eventually("the member leads", || has_role(&member, "leader"));
    let took = start.elapsed() - took;
    assert!(took < LONG_SESSION / 2, "it took {took:?} more");
}

#[test]
fn visitors_that_stay_keep_a_leader_from_nothing() {
    const FILES: usize = 64;
    let mut servers = Servers::standalone();
    let few_files = ["prlimit", &format!("--nofile={FILES}")];
    let [first] = in_line(&Setup::of(&servers).run_by(&few_files), ["a"]);
    let [second] = in_line(&Setup::of(&servers), ["b"]);
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

/// Checks that its claim ended within a lease of the moment when a server last heard of it.
#[track_caller]
fn claimed_for_no_longer_than_its_lease(sampler: &Sampler, member: &Member, lost: Instant) {
    let stints = sampler.stints();
    let last = stints.iter().rfind(|stint| stint.who == member.id).expect("it led");
    let claimed = last.until.saturating_duration_since(lost);
    assert!(claimed <= LEASE, "it claimed to lead for {claimed:?}");
}

/// Starts a member that joins for the first time behind a proxy of this mode.
fn joins(mode: Mode, session: Duration) -> (Servers, Observer, Proxy, Member) {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    let proxy = Proxy::before(servers.first());
    proxy.set(mode);
    let member = Setup::at(proxy.address()).sessions(session).start("a");
    (servers, observer, proxy, member)
}

/// Waits until the member leads by the only znode there is, which belongs to its session.
#[track_caller]
fn stands_alone(member: &Member, observer: &Observer) -> Znode {
    let (leader, line) = settled([member], observer);
    let session = member.status()["session"]["id"].clone();
    let [own] = &line[..] else { unreachable!("settled with one znode for each member") };
    assert_eq!((own.token(), &own.name), (leader.token, &leader.znode));
    assert_eq!(session, format!("{:#x}", own.stat.ephemeral_owner));
    own.clone()
}

fn only_znode(observer: &Observer) -> Result<Znode, String> {
    let line = observer.line("/election", "leader_");
    if let [only] = &line[..] { Ok(only.clone()) } else { Err(format!("{line:?}")) }
}

/// How many znodes were created or deleted in the queue, ever.
fn changes_of_the_line(observer: &Observer) -> i32 {
    observer.znode("/election").expect("the parent exists").stat.cversion
}

/// Returns the CPU time of the process, as the kernel counts it: in hundredths of a second.
fn processor_time(member: &Member) -> Duration {
    let path = format!("/proc/{}/stat", member.process_id());
    let stat = fs::read_to_string(path).expect("a process that runs");
    // The program's name is in brackets; the times in user and kernel mode are the 12th and 13th behind it.
    let fields = stat.rsplit(") ").next().expect("there is a last part").split(' ');
    let times = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * times.sum::<u64>())
}

fn open_files(member: &Member) -> usize {
    let path = format!("/proc/{}/fd", member.process_id());
    fs::read_dir(path).expect("a process that runs").count()
}
