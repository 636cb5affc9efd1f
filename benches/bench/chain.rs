//! How the announcement of a new leader comes down the queue: our members, a chain of bare sessions, and a herd.

use crate::{
    bare::{self, Row, Running},
    crowd::Crowd,
    report::{Bound, Plot, Section, Times, ms, ratio},
    scene::{Counters, Ensemble, Scene},
    servers::Server,
};
use recipes::election::Command;
use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};
use zookeeper::{Acls, CreateMode};

/// Long, so that heartbeats are few.
const SESSION: Duration = Duration::from_secs(30);
/// Two heartbeats of such a session: within them each member has asked the head whether what it heard is so.
const AFTERWARDS: Duration = Duration::from_secs(7);

/// What a change of leader cost the servers beyond what as much time without one costs them.
#[derive(Clone, Copy, Default)]
struct Cost {
    requests: f64,
    bytes: f64,
}

struct Run {
    /// When the k-th had heard, from when the first had.
    heard: Vec<Duration>,
    cost: Cost,
}

pub(crate) fn chain(scene: &Scene) -> (Section, Vec<(&'static str, String)>) {
    let mut section = Section::new(
        "Who leads, passed along the queue",
        "A leader gives up; when does the k-th member know the next one, from when that one knows it itself? \
         Ours: members in one process, each with its own threads as in the program. The floor: as many bare \
         sessions on as many threads, each of which is notified, reads, writes, and knows nothing else. The herd: \
         bare sessions that all list the queue and watch its head. What it costs the servers is counted until \
         two heartbeats later, less what the same time costs without a change: requests and answers by `mntr` \
         (`zk_packets_received`, `zk_packets_sent`), bytes on the loopback device, headers included. The ratio is the \
         median of five, each of one change of ours and one of the floor; beside it stand the least and the greatest.",
    );
    let counts = scene.pick(vec![10, 100, 500], vec![10, 30]);
    let longest = *counts.last().expect("there are some");
    let mut pictures = vec![];
    for Ensemble { name: ensemble, mut servers } in scene.ensembles() {
        let connect_string = servers.connect_string();
        let all = servers.all();
        let mut rows = vec![];
        let (mut per_member, mut load) = (vec![], [vec![], vec![]]);
        let (mut ours_longest, mut herd_longest, mut floor_longest) = (vec![], vec![], vec![]);
        for &count in &counts {
            let repetitions = scene.pick(5, 2);
            let ours = ours(&connect_string, all, count, repetitions);
            let floor = floor(&connect_string, count, repetitions);
            let herd: Vec<Run> = (0..scene.repetitions())
                .map(|_| herd(&connect_string, all, count, scene))
                .collect();
            let hops = |runs: &[Vec<Duration>]| {
                runs.iter().map(|heard| hop(heard)).collect::<Times>().median_ms()
            };
            let heard = |runs: &[Run]| runs.iter().map(|run| run.heard.clone()).collect::<Vec<_>>();
            let (ours_heard, herd_heard) = (heard(&ours), heard(&herd));
            let last = |runs: &[Vec<Duration>]| {
                runs.iter().map(|heard| last(heard)).collect::<Times>().median_ms()
            };
            let [our_cost, herd_cost] = [&ours, &herd].map(|runs| {
                let mean = |of: fn(&Cost) -> f64| {
                    runs.iter().map(|run| of(&run.cost)).sum::<f64>() / runs.len() as f64
                };
                Cost { requests: mean(|cost| cost.requests), bytes: mean(|cost| cost.bytes) }
            });
            let goal = format!("{ensemble}, {count} members: a hop at most 1.25 times its floor");
            let ratios = ratios(&ours_heard, &floor);
            let [least, median, greatest] =
                [0, ratios.len() / 2, ratios.len() - 1].map(|nth| ratios[nth]);
            section.goal(&goal, median, Bound::AtMost(1.25));
            let each = |value: f64| format!("{:.1}", value / count as f64);
            rows.push(vec![
                count.to_string(),
                ms(hops(&ours_heard)),
                ms(hops(&floor)),
                format!("{} ({} to {})", ratio(median), ratio(least), ratio(greatest)),
                ms(last(&ours_heard)),
                ms(last(&herd_heard)),
                each(our_cost.requests),
                each(herd_cost.requests),
                each(our_cost.bytes),
                each(herd_cost.bytes),
            ]);
            per_member.push(our_cost.requests / count as f64);
            let members = count as f64;
            load[0].push((members, our_cost.bytes / 1e3));
            load[1].push((members, herd_cost.bytes / 1e3));
            if count == longest {
                (ours_longest, herd_longest, floor_longest) = (ours_heard, herd_heard, floor);
            }
        }
        section.say(&format!("{ensemble}:"));
        section.table(
            &[
                "Members",
                "A hop",
                "Its floor",
                "Ratio",
                "The last knows",
                "In a herd",
                "Packets per member",
                "In a herd",
                "Bytes per member",
                "In a herd",
            ],
            &rows,
        );
        let middle = |runs: &[Vec<Duration>]| middle_curve(runs);
        let goal = format!(
            "{ensemble}: packets per member as many with {longest} members as with {}, a tenth more at most",
            counts[0]
        );
        let growth = per_member[per_member.len() - 1] / per_member[0];
        section.goal(&goal, growth, Bound::AtMost(1.1));
        if ensemble == "One server" {
            let latency = Plot {
                title: "When the k-th member knows the new leader",
                across: "k",
                up: "ms",
                curves: vec![
                    ("Bellwether, along the queue", middle(&ours_longest)),
                    ("bare sessions in a line (the floor)", middle(&floor_longest)),
                    ("a herd", middle(&herd_longest)),
                ],
            };
            let [ours, herd] = load;
            let load = Plot {
                title: "Bytes to and from the server for one change of leader",
                across: "members",
                up: "kB",
                curves: vec![("Bellwether", ours), ("a herd", herd)],
            };
            pictures = vec![("chain-latency.svg", latency.svg()), ("chain-load.svg", load.svg())];
        }
    }
    (section, pictures)
}

/// When the last had heard.
fn last(heard: &[Duration]) -> Duration {
    *heard.last().expect("some member heard")
}

/// How long each took on average. The first is not told by another.
fn hop(heard: &[Duration]) -> Duration {
    let hops = u32::try_from(heard.len() - 1).expect("there are not so many members");
    last(heard) / hops
}

/// How much longer a hop took in each run of ours than in the run of the floor beside it, from the least on.
fn ratios(ours: &[Vec<Duration>], floor: &[Vec<Duration>]) -> Vec<f64> {
    let both = ours.iter().zip(floor);
    let mut ratios: Vec<f64> =
        both.map(|(ours, floor)| hop(ours).div_duration_f64(hop(floor))).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// The median run, by when the last has heard: how many had heard by when, in milliseconds.
fn middle_curve(runs: &[Vec<Duration>]) -> Vec<(f64, f64)> {
    let mut runs: Vec<_> = runs.iter().collect();
    runs.sort_by_key(|heard| heard.last().copied());
    let middle = runs[runs.len() / 2];
    middle.iter().enumerate().map(|(k, at)| ((k + 1) as f64, at.as_secs_f64() * 1e3)).collect()
}

fn ours(servers: &str, all: &[Server], count: usize, repetitions: usize) -> Vec<Run> {
    let crowd = Crowd::in_queue(servers, SESSION, count);
    let runs = (0..repetitions)
        .map(|leader| {
            let idle = cost_of(all, || ());
            let mut heard = vec![];
            let whole = cost_of(all, || {
                let _waited_for = crowd.order(leader, Command::Resign);
                let mut first = None;
                let next = leader + 1;
                let mut told_by = BTreeMap::new();
                // The old leader hears of it as well, at the tail of the queue. The member behind the new leader may
                // report it before the new leader does, whose claim is in its znode before it is acknowledged.
                crowd.wait(SESSION, |told| {
                    let Some((token, is_self)) = told.leader else { return false };
                    told_by.insert(told.who, (token, told.at));
                    if told.who == next && is_self {
                        first = Some((token, told.at));
                    }
                    first.is_some_and(|(leads, _)| {
                        told_by.values().filter(|(token, _)| *token == leads).count() == count
                    })
                });
                let (_, claimed_at) = first.expect("it was waited for");
                told_by.remove(&leader);
                heard.extend(
                    told_by.values().map(|(_, at)| at.saturating_duration_since(claimed_at)),
                );
            });
            heard.sort_unstable();
            Run { heard, cost: whole.less(idle) }
        })
        .collect();
    crowd.leave();
    runs
}

fn floor(servers: &str, count: usize, repetitions: usize) -> Vec<Vec<Duration>> {
    let running = Running::new();
    let runtime = &running.runtime;
    let client = runtime.block_on(async {
        let client = bare::connect(servers).await;
        bare::make(&client, "/chain", CreateMode::Persistent).await;
        client
    });
    let row = Row::chain(servers, count);
    (0..repetitions)
        .map(|n| {
            let data = format!("{n}");
            runtime
                .block_on(client.set_data("/chain", data.as_bytes(), None))
                .expect("it is there");
            let heard = row.heard(count);
            let (_, first) = heard[0];
            heard.into_iter().map(|(_, at)| at - first).collect()
        })
        .collect()
}

fn herd(servers: &str, all: &[Server], count: usize, scene: &Scene) -> Run {
    let path = scene.path();
    let running = Running::new();
    let runtime = &running.runtime;
    // The head, which leads until its znode is deleted.
    let head = runtime.block_on(async {
        let client = bare::connect(servers).await;
        bare::make(&client, &path, CreateMode::Persistent).await;
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let head = client.create(&format!("{path}/n_"), b"leads", &mode).await;
        let (_, sequence) = head.expect("the path exists");
        (client, format!("{path}/n_{sequence}"))
    });
    let row = Row::herd(servers, &path, count);
    let idle = cost_of(all, || ());
    let mut heard = vec![];
    let whole = cost_of(all, || {
        let (client, head) = &head;
        runtime.block_on(client.delete(head, None)).expect("it is ours");
        let told = row.heard(count);
        let (_, first) = told[0];
        heard = told.into_iter().map(|(_, at)| at - first).collect();
    });
    Run { heard, cost: whole.less(idle) }
}

fn cost_of(servers: &[Server], act: impl FnOnce()) -> Cost {
    let counted = || Cost { requests: servers.iter().map(packets).sum(), bytes: bytes() };
    let before = counted();
    let until = Instant::now() + AFTERWARDS;
    act();
    thread::sleep(until.saturating_duration_since(Instant::now()));
    counted().less(before)
}

fn packets(server: &Server) -> f64 {
    Counters::of(server).packets()
}

/// All that has gone over the loopback device.
fn bytes() -> f64 {
    let told = fs::read_to_string("/sys/class/net/lo/statistics/tx_bytes");
    told.ok().and_then(|bytes| bytes.trim().parse().ok()).expect("the kernel counts it")
}

impl Cost {
    fn less(self, other: Self) -> Self {
        Self { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }
}
