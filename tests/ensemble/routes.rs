//! Members on networks that are slow or lead nowhere, and a name whose first address is dead.

use crate::{
    group::{agreed_after, has_role, ready, settled},
    image::SWITCH,
    member::{LONG_SESSION, Member, SHORT_SESSION, Setup},
    names::serve_names,
    network::Network,
    observer::Observer,
    process::cpu_time,
    sampler::{Sampler, claimed_for_no_longer_than_its_lease},
    servers::{Servers, Settings},
    wait::{eventually, throughout},
};
use std::{
    io::Write,
    net::{Ipv4Addr, UdpSocket},
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;

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
    let (begun, ran_before) = (Instant::now(), cpu_time(second.process_id()));
    throughout("both live and say so", SHORT_SESSION, alive);
    let (ran, passed) = (cpu_time(second.process_id()) - ran_before, begun.elapsed());
    assert!(5 * ran < passed, "it ran for {ran:?} of {passed:?}");
    has_role(&first, "absent").expect("it knows that its session is over");
    second.signal("TERM");
    let (status, took) = second.wait();
    assert!(status.code() == Some(0) && took < LEAVING, "{status} after {took:?}");
    let new = agreed_after(&old, [&third]);

    network.plug_in(&network.members[0]);
    let (still, queue) = settled([&first, &third], &observer);
    assert_eq!((&*still.id, still.token, queue.len()), ("c", new.token, 2));
    claimed_for_no_longer_than_its_lease(&sampler, &first, lost);
    sampler.saw_one_leader_at_a_time();
    first.signal("TERM");
    first.wait();
}

/// On a slow network the create is still under way when the member is told to stop.
#[test]
fn t09_a_member_that_is_told_to_stop_while_its_create_is_under_way_leaves_no_znode() {
    let mut network = Network::new(1, 1);
    let mut servers = Servers::prepared_on(&network.servers, &Settings::default());
    servers.start();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    network.slow_down(Duration::from_millis(150), 0);

    // A busy machine may stop it before it has sent anything.
    for _ in 0..5 {
        let mut member = Setup::of(&servers).start_on(&network.members[0], "a");
        eventually("it joins the queue", || match member.log() {
            log if log.contains("->  join") => Ok(()),
            log => Err(log),
        });
        member.signal("TERM");
        member.wait();
        let parent = observer.znode("/election").expect("the member made it");
        assert_eq!(parent.stat.num_children, 0, "{}", member.log());
        if parent.stat.cversion > 0 {
            assert!(!member.log().contains("joined as"), "{}", member.log());
            return;
        }
    }
    panic!("no create reached the server");
}

/// An operator looks at the servers for long if it is not said that their names are not found.
#[test]
fn a_name_that_is_not_found_and_a_name_server_that_is_silent_are_told_apart_at_once() {
    let network = Network::new(1, 1);
    let mut resolver = NamedTempFile::new().expect("a file");
    writeln!(resolver, "nameserver {SWITCH}").expect("it takes a line");
    let instead = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
    let path = resolver.path().to_str().expect("a path of text");
    let started = || {
        Setup::at("zk-0.example.test:2181".to_owned())
            .run_by(&["unshare", "--mount", "sh", "-c", instead, path])
            .start_on(&network.members[0], "a")
    };
    let warns = |member: &Member, why: &str| {
        let said = format!("zk-0.example.test:2181 cannot be resolved: {why}");
        eventually(&said, || match member.log() {
            log if log.contains(&said) => Ok(()),
            log => Err(log),
        });
        let problem = member.status()["problems"][0]["problem"].to_string();
        assert!(problem.contains(&said), "{problem}");
    };
    let silent = UdpSocket::bind((SWITCH, 53)).expect("port 53 is free, and root may have it");
    let begun = Instant::now();
    let member = started();
    warns(&member, "the name server does not answer within 2.5s");
    // A quarter of a session for the name, and nothing else before it is told.
    assert!(begun.elapsed() < LONG_SESSION / 2, "{:?}", begun.elapsed());
    drop((member, silent));
    let _asked = serve_names(SWITCH, "another.example.test", Ipv4Addr::LOCALHOST);
    warns(&started(), "failed to lookup address information: Name or service not known");
}

/// Renewals that are answered later than the next is due say so before a lease runs out.
#[test]
fn a_slow_way_to_zookeeper_is_a_problem_while_it_lasts() {
    let mut network = Network::new(1, 1);
    let mut servers = Servers::prepared_on(&network.servers, &Settings::default());
    servers.start();
    let member = Setup::of(&servers).start_on(&network.members[0], "a");
    eventually("it leads", || has_role(&member, "leader"));
    let kinds = || {
        let status = member.status();
        let problems = status["problems"].as_array().cloned().unwrap_or_default();
        problems.iter().map(|problem| problem["kind"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(), [] as [String; 0]);
    network.slow_down(Duration::from_millis(700), 0);
    eventually("it is a problem", || match kinds() {
        kinds if kinds.iter().any(|kind| kind.contains("slow-zookeeper")) => Ok(()),
        kinds => Err(format!("{kinds:?}")),
    });
    network.heal();
    eventually("it is none any more", || match kinds() {
        kinds if kinds.is_empty() => Ok(()),
        kinds => Err(format!("{kinds:?}")),
    });
    let log = member.log();
    assert!(log.contains("the servers take longer than a heartbeat (1s)"), "{log}");
    assert!(log.contains("no longer: the servers take longer"), "{log}");
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
