//! From the leader's release to the report of its successor: ours, our peers', and the floor.

use crate::{
    bare::{self, Floor},
    contest::{Contest, Contestant, Members, Others, has_role},
    member::{Handovers, Setup},
    report::{Bound, Section, Times, ms, ratio},
    restart,
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
enum Contender {
    Floor(Floor),
    Bellwether,
    Curator(Processes),
    Kazoo(Processes),
}

/// How contenders of another client share processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Processes {
    OneEach,
    OneForAll,
}

const FLOORS: [Contender; 2] =
    [Contender::Floor(Floor::Notification), Contender::Floor(Floor::Write)];

/// Up to so many, contenders of another client are measured in processes of their own as well: a JVM takes 100 MiB.
const FEW: usize = 3;

pub(crate) fn handover(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Hand-over",
        "From the order to the leader to give up until an observer outside its process reads that the next one leads. For \
         all of them the order and the answer go over TCP connections of the loopback device that were opened before, and an order \
         is given at rest: all are in the queue, nothing has happened for 50 ms, and where there is a standby it is ready. \
         Bellwether: `POST /resign`, and the event on `/events`; every member is a process. Curator's `LeaderLatch` and \
         kazoo's `Election`: all contenders share a process, as a comparison in favour of them, and of three each has also been \
         given a process of its own. The floors: two processes with a bare session each, of which one deletes its znode, and \
         the other says that it leads when it is notified (`floor 1`), or when it is notified and a quorum has then written \
         into its own (`floor 2`). They take turns, and nothing else uses the servers.",
    );
    for Ensemble { name: ensemble, servers } in scene.ensembles() {
        let servers = &servers.connect_string();
        // The first ones find servers that have yet to warm up.
        warm_up(servers, &scene.path(), scene.pick(500, 50));
        let mut rows = vec![];
        let mut ways = vec![];
        let counts = scene.members.clone();
        for count in counts.unwrap_or_else(|| scene.pick(vec![3, 50, 500], vec![3, 20])) {
            let contenders = contenders(count);
            let mut times = vec![Times::default(); contenders.len()];
            let mut handovers = Handovers::default();
            for _ in 0..scene.repetitions() {
                for (&contender, times) in iter::zip(&contenders, &mut times) {
                    let mut contestant = start(scene, contender, servers, count);
                    let before = contestant.handovers();
                    for _ in 0..scene.pick(if count < 500 { 60 } else { 30 }, 20) {
                        contestant.prepare();
                        // Each begins at rest: one that went on at once would find the machine awake.
                        thread::sleep(REST);
                        times.add(contestant.hand_over());
                    }
                    handovers += contestant.handovers().since(before);
                }
            }
            let of = |wanted: Contender| {
                iter::zip(&contenders, &times).find(|(contender, _)| **contender == wanted)
            };
            let median =
                |contender: Contender| of(contender).expect("it was measured").1.median_ms();
            let [floor, floor_with_write] = FLOORS.map(median);
            let ours = median(Contender::Bellwether);
            for (&contender, times) in iter::zip(&contenders, &times) {
                rows.push(vec![
                    name(contender, count),
                    times.count().to_string(),
                    ms(times.median_ms()),
                    ms(times.p99_ms()),
                    ratio(times.median_ms() / floor),
                    ratio(times.median_ms() / floor_with_write),
                    ratio(ours / times.median_ms()),
                ]);
                let is_one_server = ensemble == "One server";
                let most = match contender {
                    Contender::Floor(Floor::Notification) => {
                        if is_one_server {
                            1.3
                        } else {
                            1.4
                        }
                    }
                    Contender::Curator(_) => 0.5,
                    Contender::Kazoo(_) => {
                        if is_one_server {
                            0.55
                        } else {
                            0.65
                        }
                    }
                    Contender::Bellwether | Contender::Floor(Floor::Write) => continue,
                };
                let goal = format!(
                    "{ensemble}, {count} members: at most {most} × {}",
                    name(contender, count)
                );
                section.goal(&goal, ours / times.median_ms(), Bound::AtMost(most));
            }
            ways.push(format!(
                "{} of {} with {count} members",
                handovers.by_notification,
                handovers.total()
            ));
            let measured = of(Contender::Bellwether).expect("it was measured").1.count();
            let share = handovers.by_notification as f64 / measured as f64;
            let goal =
                format!("{ensemble}, {count} members: at least 0.95 lead at the notification");
            section.goal(&goal, share, Bound::AtLeast(0.95));
        }
        section.say(&format!("{ensemble}:"));
        section.table(
            &[
                "Who",
                "Hand-overs",
                "Median",
                "99 %",
                "To floor 1",
                "To floor 2",
                "Bellwether to this",
            ],
            &rows,
        );
        section.say(&format!(
            "By their own counters members led at the notification: {}.",
            ways.join(", ")
        ));
    }
    section
}

fn warm_up(servers: &str, path: &str, times: usize) {
    let contest = contest(servers, path.to_owned());
    let mut contestant = floor(Floor::Write, &contest);
    for _ in 0..times {
        contestant.hand_over();
    }
}

fn contenders(count: usize) -> Vec<Contender> {
    use Processes::{OneEach, OneForAll};
    let mut contenders = FLOORS.to_vec();
    contenders.extend([
        Contender::Bellwether,
        Contender::Curator(OneForAll),
        Contender::Kazoo(OneForAll),
    ]);
    if count <= FEW {
        contenders.extend([Contender::Curator(OneEach), Contender::Kazoo(OneEach)]);
    }
    contenders
}

fn name(contender: Contender, count: usize) -> String {
    let peer = |name: &str, processes| match processes {
        Processes::OneForAll => format!("{name} of {count}"),
        Processes::OneEach => format!("{name} of {count}, a process each"),
    };
    match contender {
        Contender::Floor(Floor::Notification) => "floor 1, deletion and notification".to_owned(),
        Contender::Floor(Floor::Write) => "floor 2, with a quorum write".to_owned(),
        Contender::Bellwether => format!("Bellwether of {count}"),
        Contender::Curator(processes) => peer("Curator", processes),
        Contender::Kazoo(processes) => peer("kazoo", processes),
    }
}

fn start(scene: &Scene, contender: Contender, servers: &str, count: usize) -> Box<dyn Contestant> {
    let contest = contest(servers, scene.path());
    let shared = |processes| match processes {
        Processes::OneForAll => vec![count],
        Processes::OneEach => vec![1; count],
    };
    match contender {
        Contender::Floor(way) => Box::new(floor(way, &contest)),
        Contender::Bellwether => {
            let setup = measured_setup(scene, servers, &contest.path);
            Box::new(Members::in_queue(&setup, count))
        }
        Contender::Curator(processes) => Box::new(curator(&contest, &shared(processes))),
        Contender::Kazoo(processes) => Box::new(kazoo(&contest, &shared(processes))),
    }
}

fn contest(servers: &str, path: String) -> Contest {
    Contest { servers: servers.to_owned(), path, session: SESSION }
}

fn floor(floor: Floor, contest: &Contest) -> Others {
    let word = match floor {
        Floor::Notification => "notification",
        Floor::Write => "write",
    };
    Others::start(&ourselves(), &[word.to_owned()], contest, &[1, 1])
}

/// Processes with so many contenders each.
pub(crate) fn curator(contest: &Contest, counts: &[usize]) -> Others {
    let arguments = ["-cp".to_owned(), CURATOR.to_owned(), beside("Latch.java")];
    Others::start("java", &arguments, contest, counts)
}

pub(crate) fn kazoo(contest: &Contest, counts: &[usize]) -> Others {
    Others::start("python3", &[beside("contenders.py")], contest, counts)
}

pub(crate) fn setup(servers: &str, path: &str) -> Setup {
    Setup::at(servers.to_owned())
        .sessions(SESSION)
        .option("--election", path)
        .environment("RUST_LOG", "info")
}

/// Of the build that is measured: `--program`, or the one that cargo made for this.
pub(crate) fn measured_setup(scene: &Scene, servers: &str, path: &str) -> Setup {
    let setup = setup(servers, path);
    match &scene.program {
        Some(program) => setup.program(program.clone()),
        None => setup,
    }
}

pub(crate) fn crash(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Crash",
        "The leader of three is killed with SIGKILL. A bare session watches its znode: when the servers \
         expire the session is their affair, and what comes after is ours, until the next leader's event on \
         `/events`. Then the same under a parent that starts it again 100 ms after its end, as systemd does by default, with \
         sessions of 10 s: members of ours with a session file, and Curator's `LeaderLatch` and kazoo's `Election` in a \
         process each.",
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
        restart::restarts(scene, &mut section, &ensemble, servers);
    }
    section
}

/// Returns how long the servers took to see it, and how long it took from then on.
fn kill_the_leader(setup: &Setup, servers: &str, path: &str) -> (Duration, Duration) {
    let mut members = Members::in_queue(setup, 3);
    members.wait_for_standby();
    let line = members.members();
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
