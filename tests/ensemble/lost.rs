//! A ZooKeeper server that lost a transaction, and shows what the others do not agree with.

use crate::{
    group::{agreed, has_role, leader_of, ready, role_of, started_in_order},
    member::{Member, Setup},
    observer::{Observer, Znode},
    proxy::{Mode, Proxy},
    sampler::Sampler,
    servers::Servers,
    transaction_log::{CLOSE_SESSION, CREATE, Transaction, lose},
    wait::{eventually, throughout},
};
use std::time::Duration;
use zookeeper::CreateMode;

/// Three servers, one of which follows and has lost a transaction.
struct Ensemble {
    servers: Servers,
    observer: Observer,
    wrong: usize,
}

impl Ensemble {
    fn new() -> Self {
        let mut servers = Servers::three();
        let observer = Observer::of(&servers);
        let follows = |server: &crate::servers::Server| {
            server.ask("srvr").is_ok_and(|answer| answer.contains("Mode: follower"))
        };
        let wrong = servers.all().iter().position(follows).expect("two of three follow");
        Self { servers, observer, wrong }
    }

    /// Has the server lose the transaction, and start again without it.
    fn lose(&mut self, wanted: impl Fn(&Transaction<'_>) -> bool) {
        // The other servers send the last transactions again.
        (0..3).for_each(|n| self.observer.make_path(&format!("/behind/{n}")));
        let server = &mut self.servers.all()[self.wrong];
        server.kill();
        lose(server, wanted).expect("the server can lose it");
        server.start();
    }

    fn shown_by_the_wrong_one(&mut self, path: &str) -> Option<Znode> {
        Observer::at(&self.setup_at_the_wrong_one().1).znode(path)
    }

    /// Returns the setup of a member that knows no other server.
    fn setup_at_the_wrong_one(&mut self) -> (Setup, String) {
        let address = self.servers.all()[self.wrong].address();
        (Setup::at(address.clone()).short_sessions(), address)
    }

    /// A member that is connected to that server first, and finds the others once they are opened.
    fn setup_at_the_wrong_one_first(&mut self) -> (Setup, Vec<Proxy>) {
        let wrong = self.wrong;
        let servers = self.servers.all();
        let others = (0..3).filter(|n| *n != wrong).map(|n| Proxy::before(&servers[n]));
        let others: Vec<_> = others.collect();
        others.iter().for_each(|proxy| proxy.set(Mode::Closed));
        let mut addresses: Vec<_> = others.iter().map(Proxy::address).collect();
        addresses.push(servers[wrong].address());
        (Setup::at(addresses.join(",")).short_sessions(), others)
    }

    fn setup(&self) -> Setup {
        Setup::of(&self.servers).short_sessions()
    }

    fn members(&self) -> Vec<Znode> {
        self.observer.queue("/election", "leader_")
    }

    /// A leader is killed, its session ends, and one server loses the end.
    fn with_a_dead_leader_shown(&mut self) -> Znode {
        let [mut leader] = started_in_order(&self.setup(), ["dead"]);
        let dead = self.members().remove(0);
        leader.kill();
        eventually("its session ends", || match &self.members()[..] {
            [] => Ok(()),
            queue => Err(format!("{queue:?}")),
        });
        let session = dead.stat.ephemeral_owner;
        self.lose(|one| one.kind == CLOSE_SESSION && one.session == session);
        let path = format!("/election/{}", dead.name);
        assert_eq!(self.observer.znode(&path), None);
        assert!(self.shown_by_the_wrong_one(&path).is_some(), "the server has lost its end");
        dead
    }

    /// A leader is elected, and one server loses the creation of its znode.
    fn with_a_leader_not_shown(&mut self) -> (Member, Znode) {
        let wrong = self.wrong;
        let right = self.servers.all().iter().enumerate().filter(|(n, _)| *n != wrong);
        let right: Vec<_> = right.map(|(_, server)| server.address()).collect();
        let [leader] = started_in_order(&Setup::at(right.join(",")), ["leader"]);
        let znode = self.members().remove(0);
        let path = format!("/election/{}", znode.name);
        self.lose(|one| one.kind == CREATE && one.names(&path));
        assert_eq!(self.shown_by_the_wrong_one(&path), None, "the server has lost it");
        assert!(self.observer.znode(&path).is_some());
        (leader, znode)
    }
}

fn says(member: &Member, words: &str) -> Result<(), String> {
    let log = member.log();
    if log.contains(words) { Ok(()) } else { Err(log) }
}

#[test]
fn where_the_only_server_shows_a_dead_leader_the_next_leads_all_the_same() {
    let mut ensemble = Ensemble::new();
    let dead = ensemble.with_a_dead_leader_shown();

    let next = ensemble.setup_at_the_wrong_one().0.start("next");

    eventually("it leads", || has_role(&next, "leader"));
    let words = format!("still shows /election/{}", dead.name);
    eventually("it says what is wrong", || says(&next, &words));
}

#[test]
fn where_one_server_shows_a_dead_leader_another_is_asked_and_the_next_leads() {
    let mut ensemble = Ensemble::new();
    ensemble.with_a_dead_leader_shown();
    let (setup, others) = ensemble.setup_at_the_wrong_one_first();
    let next = setup.start("next");
    let wrong = ensemble.servers.all()[ensemble.wrong].address();
    eventually("it is connected to the server", || says(&next, "connected to ZooKeeper"));
    others.iter().for_each(|proxy| proxy.set(Mode::Open));

    eventually("it leads", || has_role(&next, "leader"));
    let [behind] = started_in_order(&ensemble.setup(), ["behind"]);
    assert_eq!(agreed([&next, &behind]).id, "next");
    says(&next, &wrong).expect("it names the server");
    says(&next, "starting over with another session").expect_err("its session is the same");
}

#[test]
fn members_far_behind_do_not_go_on_naming_a_dead_leader() {
    let mut ensemble = Ensemble::new();
    let dead = ensemble.with_a_dead_leader_shown();
    let [first, second] = started_in_order(&ensemble.setup(), ["first", "second"]);

    let third = ensemble.setup_at_the_wrong_one().0.start("third");

    eventually("it knows the leader", || {
        ready(&third)?;
        match leader_of(&third)["leader"]["znode"].as_str() {
            Some(named) if named != dead.name => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(agreed([&first, &second, &third]).id, "first");
}

#[test]
fn where_the_only_server_lacks_the_leader_there_are_never_two() {
    let mut ensemble = Ensemble::new();
    let (mut leader, _) = ensemble.with_a_leader_not_shown();

    let second = ensemble.setup_at_the_wrong_one().0.start("second");

    let sampler = Sampler::of([&leader, &second]);
    eventually("its claim is refused", || says(&second, "claim refused"));
    throughout("one leads", Duration::from_secs(5), || {
        has_role(&leader, "leader")?;
        match role_of(&second).as_str() {
            "leader" => Err("two lead".to_owned()),
            _ => Ok(()),
        }
    });
    leader.signal("TERM");
    leader.wait();
    eventually("it leads when the other is gone", || has_role(&second, "leader"));
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn where_one_server_lacks_the_leader_another_is_asked_and_the_member_follows() {
    let mut ensemble = Ensemble::new();
    let (leader, _) = ensemble.with_a_leader_not_shown();
    let (setup, others) = ensemble.setup_at_the_wrong_one_first();
    let second = setup.start("second");
    let sampler = Sampler::of([&leader, &second]);
    eventually("it is in the queue", || match ensemble.members().len() {
        2 => Ok(()),
        other => Err(other.to_string()),
    });
    others.iter().for_each(|proxy| proxy.set(Mode::Open));

    eventually("it knows the leader", || ready(&second));
    assert_eq!(agreed([&leader, &second]).id, "leader");
    sampler.saw_one_leader_at_a_time();
}

#[test]
fn a_member_whose_own_server_lacks_it_keeps_its_place() {
    let mut ensemble = Ensemble::new();
    let [leader] = started_in_order(&ensemble.setup(), ["leader"]);
    let (setup, others) = ensemble.setup_at_the_wrong_one_first();
    let setup = setup.sessions(Duration::from_secs(20));
    let [second] = started_in_order(&setup, ["second"]);
    let [third] = started_in_order(&ensemble.setup(), ["third"]);
    let before: Vec<_> = ensemble.members().into_iter().map(|znode| znode.name).collect();
    let path = format!("/election/{}", before[1]);

    ensemble.lose(|one| one.kind == CREATE && one.names(&path));
    eventually("it sees that", || says(&second, &format!("does not show {path}")));
    others.iter().for_each(|proxy| proxy.set(Mode::Open));

    eventually("all are in the queue", || match ensemble.members().len() {
        3 => [&leader, &second, &third].into_iter().try_for_each(ready),
        other => Err(other.to_string()),
    });
    let after: Vec<_> = ensemble.members().into_iter().map(|znode| znode.name).collect();
    assert_eq!(after, before);
}

#[test]
fn a_value_that_the_server_at_hand_has_lost_is_read_from_another_where_a_proof_is_asked_for() {
    let mut ensemble = Ensemble::new();
    let path = "/config/x";
    ensemble.observer.make_path("/config");
    ensemble.observer.create(path, b"1", CreateMode::Persistent);
    ensemble.lose(|one| one.kind == CREATE && one.names(path));
    let (setup, others) = ensemble.setup_at_the_wrong_one_first();
    let [member] = started_in_order(&setup, ["a"]);
    assert_eq!(member.get(path).status, 404, "as the server at hand shows it");
    let proved = format!("{path}?proved=1");
    let unproved = member.get(&proved);
    assert_eq!(unproved.status, 503, "{unproved:?}");
    others.iter().for_each(|proxy| proxy.set(Mode::Open));
    eventually("it is proved at another server", || match member.get(&proved) {
        answer if (answer.status, &*answer.body) == (200, "1") => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}
