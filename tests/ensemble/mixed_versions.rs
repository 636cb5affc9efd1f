//! Members of an older version and of this one in one election: `scripts/mixed-versions` builds the older one, runs this,
//! and says what it shows.

use crate::{
    catalogue::{Fault, PATIENCE, suffer},
    group::{Named, agreed_after, has_role, ready, settled},
    member::{Member, SessionFiles, Setup},
    observer::{Observer, Znode},
    sampler::{Handover, Sampler, handovers, longest_without_a_leader},
    servers::Servers,
    testbed::Testbed,
    wait::eventually,
};
use std::{
    collections::BTreeMap,
    env,
    path::Path,
    time::{Duration, Instant},
};

/// How often each way of ending a term is tried, from each version to the other.
fn rounds() -> usize {
    env::var("BELLWETHER_MIXED_ROUNDS").map_or(3, |it| it.parse().expect("a number"))
}

fn old_program() -> String {
    let program = env::var("BELLWETHER_OLD_PROGRAM").expect("scripts/mixed-versions sets it");
    assert!(Path::new(&program).exists(), "{program} is not there");
    program
}

#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn each_version_hands_over_to_the_other() {
    hand_over_in_turn(Servers::standalone(), "one server");
}

#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn each_version_hands_over_to_the_other_on_three_servers() {
    hand_over_in_turn(Servers::three(), "three servers");
}

#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn five_replicas_are_upgraded_and_rolled_back_one_at_a_time() {
    for order in [Order::LeaderLast, Order::LeaderFirst] {
        roll(Servers::standalone(), "one server", order, Ids::ByVersion);
    }
}

/// As in a StatefulSet, or with `POD_NAME`.
#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn five_replicas_that_keep_their_ids_are_upgraded_and_rolled_back_one_at_a_time() {
    for order in [Order::LeaderLast, Order::LeaderFirst] {
        roll(Servers::standalone(), "one server, ids kept", order, Ids::Kept);
    }
}

#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn five_replicas_are_upgraded_and_rolled_back_one_at_a_time_on_three_servers() {
    for order in [Order::LeaderLast, Order::LeaderFirst] {
        roll(Servers::three(), "three servers", order, Ids::ByVersion);
    }
}

/// Faults of the network and of servers, while members of either version lead.
#[test]
#[ignore = "it needs an older version's binary: scripts/mixed-versions builds that and runs this"]
fn never_two_at_once_of_two_versions_whatever_is_cut_off_or_stops() {
    let (old, files) = (old_program(), SessionFiles::new());
    let mut testbed = Testbed::set(4, |number, setup| match Version::of_number(number) {
        Version::Old => files.kept_by(&setup, &number.to_string()).program(old.clone()),
        Version::New => files.kept_by(&setup, &number.to_string()),
    });
    testbed.with_standby = false;
    testbed.counts_handovers = false;
    let faults = [
        Fault::CUTS,
        Fault::LOSSES,
        Fault::OF_SERVERS,
        &[
            Fault::LeaderKilled,
            Fault::LeaderStoppedForASession,
            Fault::LeaderStoppedForThreeSessions,
            Fault::LeaderTerminated,
            Fault::LeaderResigned,
            Fault::LeaderPaused,
            Fault::LeaderDrainedAndTerminated,
            Fault::AllMembersRestartedOneByOne,
        ],
        Fault::OF_RESTARTS,
    ]
    .concat();
    for fault in faults {
        for wanted in [Version::Old, Version::New] {
            have_lead(&mut testbed, wanted);
            let outcome = suffer(&mut testbed, &[fault], Duration::ZERO);
            let stints = testbed.sampler.stints();
            let before = stints.iter().rfind(|it| it.from < outcome.struck).expect("one led");
            let after = stints.iter().find(|it| it.token > before.token).unwrap_or(before);
            eprintln!(
                "{fault}: from {:?} to {:?}, {:.2?} without a leader",
                Version::of_letter(&before.who),
                Version::of_letter(&after.who),
                outcome.leaderless
            );
            if let Err(why) = &outcome.result {
                panic!("{fault}: {why}");
            }
            assert!(outcome.overlaps.is_empty(), "{fault}: {:?}", outcome.overlaps);
            assert!(outcome.too_soon.is_empty(), "{fault}: {:?}", outcome.too_soon);
            assert!(outcome.leaderless < PATIENCE * outcome.bound, "{fault}");
        }
    }
    testbed.sampler.saw_one_leader_at_a_time();
    eprintln!("{} answers, never two leaders", testbed.sampler.samples());
}

/// Which version's program a member runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Old,
    New,
}

/// How a leader's term is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Resigned,
    Terminated,
    Killed,
    Frozen,
}

/// In which order replicas are replaced.
#[derive(Clone, Copy, Debug)]
enum Order {
    LeaderLast,
    LeaderFirst,
}

/// What a replica is called once it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    ByVersion,
    Kept,
}

struct Mixed {
    _servers: Servers,
    observer: Observer,
    setups: Setups,
    members: BTreeMap<String, Member>,
    versions: BTreeMap<String, Version>,
    sampler: Sampler,
}

struct Setups {
    old: Setup,
    new: Setup,
}

/// Four members of alternating versions: each term ends in another way, and the next leader is of the other version.
fn hand_over_in_turn(servers: Servers, on: &str) {
    let mut mixed = Mixed::on(servers);
    let mut times: BTreeMap<(End, Version), Vec<f64>> = BTreeMap::new();
    ["old-1", "new-2", "old-3", "new-4"].iter().for_each(|id| mixed.start(id));
    for end in [End::Resigned, End::Terminated, End::Killed, End::Frozen] {
        for _ in 0..2 * rounds() {
            let before = mixed.settled();
            mixed.wait_for_standby();
            mixed.end_term(&before.id, end);
            let others = mixed.members.iter().filter(|(id, _)| **id != before.id);
            let after = agreed_after(&before, others.map(|(_, member)| member));
            let (from, to) = (Version::of(&before.id), Version::of(&after.id));
            assert_ne!(from, to, "{end:?}: {} after {}", after.id, before.id);
            mixed.bring_back(&before.id);
            mixed.settled();
            let handover = mixed.handovers_to(&after);
            times.entry((end, from)).or_default().push(handover.most);
        }
    }
    mixed.judge();
    for ((end, from), mut times) in times {
        times.sort_by(f64::total_cmp);
        eprintln!(
            "{on}: {end:?}, from {from:?} to {:?}: {} times, none led for {:.1} ms (median), {:.1} ms at most",
            from.other(),
            times.len(),
            1e3 * times[times.len() / 2],
            1e3 * times[times.len() - 1],
        );
    }
}

/// Each replica is terminated and started again with the other version, once all name one leader: all to the new version,
/// and all back.
fn roll(servers: Servers, on: &str, order: Order, ids: Ids) {
    const REPLICAS: usize = 5;
    let mut mixed = Mixed::on(servers);
    for number in 1..=REPLICAS {
        mixed.start_as(Version::Old, &ids.of(Version::Old, &number.to_string()));
    }
    for to in [Version::New, Version::Old] {
        mixed.settled();
        let begun = Instant::now();
        let first = mixed.sampler.stints().len();
        while let Some(old) = mixed.next_to_replace(to, order) {
            mixed.wait_for_standby();
            mixed.end_term(&old, End::Terminated);
            let number = old.rsplit('-').next().expect("an id has a number").to_owned();
            mixed.start_as(to, &ids.of(to, &number));
            mixed.settled();
        }
        let ended = Instant::now();
        mixed.sampler.ask_all();
        let stints = mixed.sampler.stints();
        let mut gaps: Vec<f64> = handovers(&stints[first.saturating_sub(1)..])
            .iter()
            .map(|handover| handover.most)
            .collect();
        gaps.sort_by(f64::total_cmp);
        let longest = longest_without_a_leader(&stints, begun, ended);
        let (count, sum) = (gaps.len(), gaps.iter().sum::<f64>());
        eprintln!(
            "{on}, {order:?}: all {REPLICAS} replaced by {to:?}, {count} hand-overs; none led for {:.1} ms in all, \
             {:.1} ms at most",
            1e3 * sum,
            1e3 * longest.as_secs_f64(),
        );
        let expected = match order {
            Order::LeaderLast => 1..=1,
            Order::LeaderFirst => REPLICAS..=REPLICAS,
        };
        assert!(expected.contains(&count), "{gaps:?}");
        // No session has to end, as each replica leaves in order; a busy machine is given much.
        assert!(longest < Duration::from_secs(1), "{longest:?}: {gaps:?}");
    }
    mixed.judge();
}

/// Lets one member after another lead until one of this version does, and one of the other is next.
fn have_lead(testbed: &mut Testbed, wanted: Version) {
    for _ in 0..8 {
        let (leader, queue) = testbed.settle().expect("all is well");
        let version = |place: usize| {
            let told = queue[place].json();
            Version::of_letter(told["id"].as_str().expect("it is a member's"))
        };
        if (version(0), version(1)) == (wanted, wanted.other()) {
            return;
        }
        let number = testbed.members.iter().position(|it| it.id == leader.id).expect("a member");
        testbed.terminate(number);
        testbed.heal();
    }
    panic!("no member of version {wanted:?} leads before one of the other");
}

impl Version {
    fn of(id: &str) -> Self {
        if id.starts_with(Self::Old.word()) { Self::Old } else { Self::New }
    }

    /// Of the members of a testbed, every other.
    fn of_number(number: usize) -> Self {
        if number.is_multiple_of(2) { Self::Old } else { Self::New }
    }

    fn of_letter(id: &str) -> Self {
        Self::of_number(usize::from(id.as_bytes()[0] - b'a'))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

impl Ids {
    fn of(self, version: Version, number: &str) -> String {
        match self {
            Self::ByVersion => format!("{}-{number}", version.word()),
            Self::Kept => format!("replica-{number}"),
        }
    }
}

impl Mixed {
    fn on(servers: Servers) -> Self {
        let new = Setup::of(&servers).short_sessions();
        let old = new.clone().program(old_program());
        let observer = Observer::of(&servers);
        let setups = Setups { old, new };
        let (members, versions) = (BTreeMap::new(), BTreeMap::new());
        Self { sampler: Sampler::of([]), _servers: servers, observer, setups, members, versions }
    }

    /// Starts a member of the version that its id names.
    fn start(&mut self, id: &str) {
        self.start_as(Version::of(id), id);
    }

    /// Starts a member, and waits until it knows a leader.
    fn start_as(&mut self, version: Version, id: &str) {
        let setup = match version {
            Version::Old => &self.setups.old,
            Version::New => &self.setups.new,
        };
        let member = setup.start(id);
        eventually("a member that just started knows a leader", || ready(&member));
        self.sampler.also(&member);
        self.members.insert(id.to_owned(), member);
        self.versions.insert(id.to_owned(), version);
    }

    fn settled(&self) -> Named {
        settled(self.members.values(), &self.observer).0
    }

    fn queue(&self) -> Vec<Znode> {
        self.observer.queue("/election", "leader_")
    }

    /// Waits until the member behind the leader would lead at the notification.
    fn wait_for_standby(&self) {
        let queue = self.queue();
        let Some(next) = queue.get(1).map(Znode::json) else { return };
        let next = next["id"].as_str().expect("it is a member's");
        eventually("the standby is ready", || self.members[next].is_ready_standby());
    }

    fn end_term(&mut self, id: &str, end: End) {
        let member = self.members.get_mut(id).expect("it runs");
        match end {
            End::Resigned => assert_eq!(member.post("/resign").status, 202),
            End::Terminated => {
                member.signal("TERM");
                member.wait();
                self.members.remove(id);
            }
            End::Killed => {
                member.kill();
                self.members.remove(id);
            }
            End::Frozen => member.signal("STOP"),
        }
    }

    fn bring_back(&mut self, id: &str) {
        match self.members.get(id) {
            Some(member) => {
                member.signal("CONT");
                eventually("it leads no more", || has_role(member, "follower"));
            }
            None => self.start(id),
        }
    }

    /// Returns the hand-over by which this leader came to lead.
    fn handovers_to(&self, leader: &Named) -> Handover {
        self.sampler.ask_all();
        let found = handovers(&self.sampler.stints());
        let found = found.into_iter().find(|it| it.new.token == leader.token);
        found.expect("it was seen to lead, after another")
    }

    /// Returns the next replica that is not of this version.
    fn next_to_replace(&self, to: Version, order: Order) -> Option<String> {
        let queue = self.queue();
        let ids = queue.iter().map(|znode| znode.json()["id"].as_str().expect("an id").to_owned());
        let mut others = ids.filter(|id| self.versions[id] != to);
        match order {
            Order::LeaderFirst => others.next(),
            Order::LeaderLast => others.next_back(),
        }
    }

    /// Checks all that was seen.
    fn judge(&self) {
        self.settled();
        self.sampler.saw_one_leader_at_a_time();
        let stints = self.sampler.stints();
        eprintln!(
            "{} answers, {} terms, never two leaders, tokens grew",
            self.sampler.samples(),
            stints.len()
        );
    }
}
