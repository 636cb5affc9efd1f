//! Members stand in the queue of another client's election, beside that client's own contenders: always exactly the lowest
//! leads, whoever made it, and all name it.

use crate::{
    contender::{Client, Contender, monotonic_ns},
    member::{Member, SHORT_SESSION, Setup},
    observer::{Observer, Znode},
    sampler::{Sampler, Stint, overlaps},
    servers::{Servers, TICK},
    wait::{LIMIT, eventually, within},
};
use std::{
    collections::BTreeMap,
    env, thread,
    time::{Duration, Instant},
};

const PATH: &str = "/app/leader";

/// How many hand-overs each family has; `HANDOVERS` says more, for a run by hand.
const HANDOVERS: usize = 8;

/// Longer than a frozen client needs to see, once it runs again, that its session is over, on a busy machine.
const SEES_WITHIN: Duration = Duration::from_secs(3);

/// How long two may seem to lead where their client gives its znode up before it says that it leads no more.
const SLOPPY: Duration = Duration::from_millis(500);

#[test]
fn members_elect_together_with_curators_leader_latch() {
    elect_together("curator-latch");
}

#[test]
fn members_elect_together_with_curators_leader_selector() {
    elect_together("curator-selector");
}

#[test]
fn members_elect_together_with_kazoos_election() {
    elect_together("kazoo");
}

#[test]
fn members_elect_together_with_zookeepers_leader_election_support() {
    elect_together("zookeeper-recipe");
}

/// A killed or frozen contender's session is ended by the ensemble's leader, and a foreign head is read at any server.
#[test]
fn members_elect_together_with_kazoos_election_on_three_servers() {
    elect_together_on(Servers::three(), "kazoo");
}

#[test]
fn five_replicas_go_over_from_curators_leader_latch_and_back_one_at_a_time() {
    migrate("curator-latch");
}

#[test]
fn five_replicas_go_over_from_kazoos_election_and_back_one_at_a_time() {
    migrate("kazoo");
}

#[test]
fn five_replicas_go_over_from_curators_leader_selector_and_back_one_at_a_time() {
    migrate("curator-selector");
}

#[test]
fn five_replicas_go_over_from_zookeepers_leader_election_support_and_back_one_at_a_time() {
    migrate("zookeeper-recipe");
}

/// What the members refuse, as it is without them.
#[test]
fn two_clients_in_one_path_have_a_leader_each() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let address = servers.first().address();
    let pairs = [
        ("curator-latch", "curator-selector"),
        ("curator-latch", "kazoo"),
        ("curator-selector", "kazoo"),
        ("zookeeper-recipe", "kazoo"),
    ];
    for (nth, (one, other)) in pairs.into_iter().enumerate() {
        let path = format!("/app-{nth}");
        observer.make_path(&path);
        let of = |family| Client::of(family, &path, address.clone(), SHORT_SESSION.as_millis());
        let first = of(one);
        let first = first.start("first");
        eventually("the first leads", || if first.leads() { Ok(()) } else { Err(one.into()) });
        let second = of(other);
        let second = second.start("second");
        eventually("the second leads as well", || match (first.leads(), second.leads()) {
            (true, true) => Ok(()),
            lead => Err(format!("{one}, {other}: {lead:?}")),
        });
    }
}

/// A path with contenders of ours and of another client.
struct Mixed {
    _servers: Servers,
    observer: Observer,
    setup: Setup,
    client: Client,
    ours: BTreeMap<String, Member>,
    theirs: BTreeMap<String, Contender>,
    sampler: Sampler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handover {
    Release,
    Kill,
    Freeze,
}

fn elect_together(family: &'static str) {
    elect_together_on(Servers::standalone(), family);
}

fn elect_together_on(servers: Servers, family: &'static str) {
    let count = env::var("HANDOVERS").map_or(HANDOVERS, |it| it.parse().expect("a number"));
    let mut mixed = Mixed::on(servers, family);
    let mut all = ["our-1", "our-2", "our-3", "their-1", "their-2", "their-3"];
    fastrand::shuffle(&mut all);
    all.iter().for_each(|id| mixed.start(id));
    let mut times: BTreeMap<(Handover, bool, bool), Vec<Duration>> = BTreeMap::new();
    for nth in 0..count {
        let head = mixed.settled();
        let how = match nth % 8 {
            1 | 5 => Handover::Kill,
            3 => Handover::Freeze,
            _ => Handover::Release,
        };
        let begun = Instant::now();
        mixed.end_term(&head, how);
        let next = mixed.leads_after(&head);
        let took = begun.elapsed();
        times.entry((how, is_ours(&head), is_ours(&next))).or_default().push(took);
        mixed.bring_back(&head, how);
    }
    mixed.settled();
    mixed.judge();
    for ((how, from_ours, to_ours), mut times) in times {
        times.sort();
        let make = |ours| if ours { "ours" } else { "theirs" };
        let (from, to) = (make(from_ours), make(to_ours));
        eprintln!(
            "{family}: {how:?} from {from} to {to}: {} times, median {:?}, longest {:?}",
            times.len(),
            times[times.len() / 2],
            times[times.len() - 1]
        );
    }
}

fn migrate(family: &'static str) {
    const IDS: [&str; 5] = ["1", "2", "3", "4", "5"];
    let mut mixed = Mixed::on(Servers::standalone(), family);
    let their = |id: &str| format!("their-{id}");
    let our = |id: &str| format!("our-{id}");
    IDS.iter().for_each(|id| mixed.start(&their(id)));
    let begun = Instant::now();
    for there in [true, false] {
        for id in IDS {
            let (old, new) = match there {
                true => (their(id), our(id)),
                false => (our(id), their(id)),
            };
            mixed.settled();
            mixed.stop(&old);
            mixed.start(&new);
        }
    }
    let head = mixed.settled();
    assert!(!is_ours(&head), "all are back");
    let without = mixed.longest_without_a_leader(begun);
    eprintln!("{family}: at most {without:?} without a leader over 10 replacements");
    assert!(without < bound(), "{without:?} without a leader");
    mixed.judge();
}

/// For how long, at most, no contender leads after one was killed: its session has to end, and the next to be told.
fn bound() -> Duration {
    SHORT_SESSION + 2 * TICK + Duration::from_secs(3)
}

fn is_ours(id: &str) -> bool {
    id.starts_with("our-")
}

impl Mixed {
    fn on(servers: Servers, family: &'static str) -> Self {
        let observer = Observer::of(&servers);
        if family == "zookeeper-recipe" {
            // Its client makes no path.
            observer.make_path(PATH);
        }
        let setup = Setup::of(&servers)
            .short_sessions()
            .option("--compatible-with", family)
            .option("--election", PATH);
        let addresses = servers.connect_string();
        let client = Client::of(family, PATH, addresses, SHORT_SESSION.as_millis());
        let (ours, theirs) = (BTreeMap::new(), BTreeMap::new());
        Self { sampler: Sampler::of([]), _servers: servers, observer, setup, client, ours, theirs }
    }

    /// Starts a contender, and waits until it is in the queue.
    fn start(&mut self, id: &str) {
        if is_ours(id) {
            let member = self.setup.start(id);
            self.sampler.also(&member);
            self.ours.insert(id.to_owned(), member);
        } else {
            self.theirs.insert(id.to_owned(), self.client.start(id));
        }
        eventually(&format!("{id} is in the queue"), || {
            let queue = self.queue();
            let is_there = queue.iter().any(|znode| znode.data == id.as_bytes());
            if is_there { Ok(()) } else { Err(self.words()) }
        });
    }

    fn stop(&mut self, id: &str) {
        if let Some(mut member) = self.ours.remove(id) {
            member.signal("TERM");
            member.wait();
        } else {
            self.theirs.remove(id).expect("it runs").leave();
        }
    }

    /// Returns what contends, in order.
    fn queue(&self) -> Vec<Znode> {
        let names = self.observer.ask(async |client| client.list_children(PATH).await);
        let mut names = names.unwrap_or_default();
        let number = |name: &String| name[name.len().saturating_sub(10)..].to_owned();
        names.sort_by_key(number);
        names.iter().filter_map(|name| self.observer.znode(&format!("{PATH}/{name}"))).collect()
    }

    fn words(&self) -> String {
        let queue = self.queue();
        let words = |it: &Znode| format!("{} {}", it.name, String::from_utf8_lossy(&it.data));
        queue.iter().map(words).collect::<Vec<_>>().join("; ")
    }

    /// Returns who says that it leads.
    fn leaders(&self) -> Vec<String> {
        let ours = self.ours.values().filter(|it| it.get("/is-leader").status == 200);
        let theirs = self.theirs.values().filter(|it| it.leads());
        ours.map(|it| it.id.clone()).chain(theirs.map(|it| it.id.clone())).collect()
    }

    /// Waits until all contend, the first of them leads and no other, and all name it. Returns it.
    fn settled(&mut self) -> String {
        eventually("the first leads, and all name it", || {
            let queue = self.queue();
            if queue.len() != self.ours.len() + self.theirs.len() {
                return Err(self.words());
            }
            let head = String::from_utf8_lossy(&queue[0].data).into_owned();
            let leaders = self.leaders();
            if leaders != [head.clone()] {
                return Err(format!("{leaders:?} lead in {}", self.words()));
            }
            for member in self.ours.values() {
                let leader = member.get("/leader").json();
                if leader["leader"]["id"] != *head || leader["leader"]["znode"] != *queue[0].name {
                    return Err(format!("{} names {leader}", member.id));
                }
            }
            for contender in self.theirs.values_mut() {
                let named = contender.names();
                if named != head {
                    return Err(format!("{} names {named}", contender.id));
                }
            }
            Ok(head)
        })
    }

    fn end_term(&mut self, head: &str, how: Handover) {
        if let Some(member) = self.ours.get_mut(head) {
            match how {
                Handover::Release => assert_eq!(member.post("/resign").status, 202),
                Handover::Kill => member.kill(),
                Handover::Freeze => member.signal("STOP"),
            }
        } else if let Some(contender) = self.theirs.get_mut(head) {
            match how {
                Handover::Release => contender.tell("release"),
                Handover::Kill => contender.kill(),
                Handover::Freeze => contender.freeze(),
            }
        }
    }

    /// Waits until another leads, without asking the one that led.
    fn leads_after(&self, head: &str) -> String {
        let found = within(LIMIT, || {
            let ours = self.ours.values().filter(|it| it.id != head);
            let mut ours = ours.filter(|it| it.get("/is-leader").status == 200);
            let mut theirs = self.theirs.values().filter(|it| it.id != head && it.leads());
            let found = ours.next().map(|it| &it.id).or_else(|| theirs.next().map(|it| &it.id));
            found.cloned().ok_or_else(|| self.words())
        });
        found.unwrap_or_else(|seen| panic!("none leads after {head}: {seen}"))
    }

    fn bring_back(&mut self, head: &str, how: Handover) {
        match how {
            Handover::Release => {}
            Handover::Kill => {
                // Those that join meanwhile come in any order.
                thread::sleep(Duration::from_millis(fastrand::u64(..500)));
                self.start(head);
            }
            Handover::Freeze => match self.ours.get(head) {
                Some(member) => member.signal("CONT"),
                None => self.theirs[head].thaw(true),
            },
        }
    }

    /// Checks all that was seen: never two members at once, and with theirs only within their own rule.
    fn judge(&self) {
        let settled = || {
            let reigns = self.client.reigns();
            let open = reigns.iter().filter(|it| it.until.is_none());
            let open: Vec<_> = open.filter(|it| !self.leads(&it.who)).cloned().collect();
            if open.is_empty() { Ok(()) } else { Err(format!("{open:?}")) }
        };
        eventually("those that were frozen know that they lead no more", settled);
        self.sampler.ask_all();
        let stints = self.sampler.stints();
        assert_eq!(overlaps(&stints).len(), 0, "two members led: {:?}", overlaps(&stints));
        let mut between = vec![];
        for (who, from, until) in all(&stints) {
            for reign in self.client.reigns().iter().filter(|it| it.who != who) {
                let end = reign.until.unwrap_or(u64::MAX).min(until);
                let begin = reign.from.max(from);
                if begin < end {
                    between.push((who.clone(), reign.who.clone(), end - begin));
                }
            }
        }
        let longest = between.iter().map(|(.., length)| *length).max().unwrap_or(0);
        let longest = Duration::from_nanos(longest);
        let family = self.client.family;
        let samples = self.sampler.samples();
        eprintln!(
            "{family}: {samples} answers of members, none while another member led; beside one of theirs {} times, at \
             most {longest:?}: {between:?}",
            between.len()
        );
        assert!(longest < SEES_WITHIN + SLOPPY, "longer than their own rule allows: {between:?}");
    }

    fn leads(&self, who: &str) -> bool {
        let first = self.queue().first().map(|it| it.data.clone());
        first.as_deref() == Some(who.as_bytes())
    }

    /// Returns the longest time for which no contender was seen to lead since this moment.
    fn longest_without_a_leader(&self, since: Instant) -> Duration {
        self.sampler.ask_all();
        let now = monotonic_ns(Instant::now());
        let ours = all(&self.sampler.stints()).into_iter().map(|(_, from, until)| (from, until));
        let theirs = self.client.reigns();
        let theirs = theirs.iter().map(|it| (it.from, it.until.unwrap_or(now)));
        let mut led: Vec<_> = ours.chain(theirs).collect();
        led.sort_unstable();
        let mut covered = monotonic_ns(since);
        let mut longest = 0;
        for (from, until) in led {
            longest = longest.max(from.saturating_sub(covered));
            covered = covered.max(until);
        }
        Duration::from_nanos(longest.max(now.saturating_sub(covered)))
    }
}

/// Returns when members were proven to lead.
fn all(stints: &[Stint]) -> Vec<(String, u64, u64)> {
    let proven =
        |it: &Stint| (it.who.clone(), monotonic_ns(it.from), monotonic_ns(it.until.max(it.from)));
    stints.iter().map(proven).collect()
}
