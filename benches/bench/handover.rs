//! From the leader's release to the word of its successor: ours, our peers', and the floor.

use crate::{
    bare,
    contest::{Contestant, Members, Others, has_role},
    member::Setup,
    report::{Bound, Section, Times, ms, ratio},
    scene::{Ensemble, Scene, beside, ourselves},
};
use std::{
    iter, thread,
    time::{Duration, Instant},
};
use zookeeper::EventType;

const SESSION: Duration = Duration::from_secs(20);

/// Before each hand-over.
const REST: Duration = Duration::from_millis(50);

/// Debian's, and what they need.
pub(crate) const CURATOR: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:\
    /usr/share/java/curator-client.jar:/usr/share/java/guava.jar:/usr/share/java/zookeeper.jar:\
    /usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Make {
    Floor,
    Bellwether,
    Curator,
    Kazoo,
}

const MAKES: [Make; 4] = [Make::Floor, Make::Bellwether, Make::Curator, Make::Kazoo];

pub(crate) fn handover(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Hand-over",
        "From the order to the leader to give up until its successor's word is read outside the successor's \
         process. Bellwether: `POST /resign`, and the event on `/events`; every member is a process. Curator's \
         `LeaderLatch` and kazoo's `Election`: a line on standard input, and one on standard output; all \
         contenders share a process. The floor: two bare sessions, of which one deletes its znode and the \
         other is notified and writes into its own. The makes take turns, each hand-over begins from rest, and nobody else uses the servers.",
    );
    for Ensemble { name: ensemble, servers } in scene.ensembles() {
        let servers = &servers.connect_string();
        // The first ones find servers that have yet to warm up.
        warm_up(servers, &scene.path());
        let mut rows = vec![];
        for count in scene.pick(vec![3, 50, 500], vec![3, 20]) {
            let mut times: [Times; 4] = Default::default();
            for _ in 0..scene.repetitions() {
                for (make, times) in iter::zip(MAKES, &mut times) {
                    let mut contestant = start(make, servers, &scene.path(), count);
                    for _ in 0..scene.pick(if count < 500 { 40 } else { 20 }, 20) {
                        // All begin at rest: whoever goes on at once finds the machine awake.
                        thread::sleep(REST);
                        times.add(contestant.hand_over());
                    }
                }
            }
            let [floor, ours, ..] = &times;
            for (make, times) in iter::zip(MAKES, &times) {
                rows.push(vec![
                    format!("{} of {}", name(make), if make == Make::Floor { 2 } else { count }),
                    times.count().to_string(),
                    ms(times.median_ms()),
                    ms(times.p99_ms()),
                    ratio(times.median_ms() / floor.median_ms()),
                    ratio(ours.median_ms() / times.median_ms()),
                ]);
            }
            let [_, _, curator, kazoo] = &times;
            let ours = ours.median_ms();
            if count == 3 {
                let goal = format!("{ensemble}, 3 members: at most 1.25 times the floor");
                section.goal(&goal, ours / floor.median_ms(), Bound::AtMost(1.25));
            }
            for (peer, times) in [("Curator", curator), ("kazoo", kazoo)] {
                let goal =
                    format!("{ensemble}, {count} members: at most half of what {peer} takes");
                section.goal(&goal, ours / times.median_ms(), Bound::AtMost(0.5));
            }
        }
        section.say(&format!("{ensemble}:"));
        section.table(
            &["Who", "Hand-overs", "Median", "99 %", "To the floor", "Bellwether to this"],
            &rows,
        );
    }
    section
}

fn warm_up(servers: &str, path: &str) {
    let mut contestant = start(Make::Floor, servers, path, 2);
    for _ in 0..500 {
        contestant.hand_over();
    }
}

fn name(make: Make) -> &'static str {
    match make {
        Make::Floor => "Floor",
        Make::Bellwether => "Bellwether",
        Make::Curator => "Curator",
        Make::Kazoo => "kazoo",
    }
}

fn start(make: Make, servers: &str, path: &str, count: usize) -> Box<dyn Contestant> {
    let session = SESSION.as_millis().to_string();
    let contest = [servers.to_owned(), path.to_owned(), count.to_string(), session];
    let others = |program: &str, first: &[String]| -> Box<dyn Contestant> {
        let arguments: Vec<String> = first.iter().chain(&contest).cloned().collect();
        Box::new(Others::start(program, &arguments))
    };
    match make {
        Make::Floor => others(&ourselves(), &["floor".to_owned()]),
        Make::Bellwether => Box::new(Members::in_line(&setup(servers, path), count)),
        Make::Curator => {
            others("java", &["-cp".to_owned(), CURATOR.to_owned(), beside("Latch.java")])
        }
        Make::Kazoo => others("python3", &[beside("contenders.py")]),
    }
}

pub(crate) fn setup(servers: &str, path: &str) -> Setup {
    Setup::at(servers.to_owned())
        .sessions(SESSION)
        .option("--election", path)
        .environment("RUST_LOG", "info")
}

pub(crate) fn crash(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Crash",
        "The leader of three is killed with SIGKILL. A bare session watches its znode: when the servers \
         expire the session is their affair, and what comes after is ours, until the next leader's event on \
         `/events`.",
    );
    for Ensemble { name: ensemble, servers } in scene.ensembles() {
        let servers = &servers.connect_string();
        let mut rows = vec![];
        let mut worst = 0.0_f64;
        for seconds in scene.pick(vec![2, 4, 8], vec![2]) {
            let (mut expiry, mut ours) = (Times::default(), Times::default());
            for _ in 0..scene.repetitions() {
                let path = scene.path();
                let session = Duration::from_secs(seconds);
                let setup = setup(servers, &path).sessions(session);
                let (expired, led) = kill_the_leader(&setup, servers, &path);
                expiry.add(expired);
                ours.add(led);
            }
            worst = worst.max(ours.p99_ms());
            rows.push(vec![
                format!("{seconds} s"),
                ours.count().to_string(),
                ms(expiry.median_ms()),
                ms(ours.median_ms()),
                ms(ours.p99_ms()),
            ]);
        }
        section.say(&format!("{ensemble}:"));
        let columns =
            ["Session timeout", "Crashes", "Until it expired", "From then on, median", "At most"];
        section.table(&columns, &rows);
        let goal = format!("{ensemble}: below 20 ms after the servers' own expiry");
        section.goal(&goal, worst, Bound::AtMost(20.0));
    }
    section
}

/// Returns how long the servers took to see it, and how long it took from then on.
fn kill_the_leader(setup: &Setup, servers: &str, path: &str) -> (Duration, Duration) {
    let mut members = Members::in_line(setup, 3);
    let line = members.line();
    let mut events = line[1].stream("/events");
    let znode = line[0].status()["leader"]["znode"].as_str().expect("it leads").to_owned();
    let watcher = bare::watch(servers, format!("{path}/{znode}"));
    let killed = Instant::now();
    line[0].kill();
    while events.event().data["is_self"] != true {}
    let leads = Instant::now();
    let (happened, expired) = watcher.join().expect("the watch fires");
    assert_eq!(happened, EventType::NodeDeleted);
    has_role(&line[1], "leader");
    (expired - killed, leads.saturating_duration_since(expired))
}
