//! What an election costs its server while nothing happens: requests and processor time for each member.

use crate::{
    contest::{Contest, Members},
    handover::{curator, kazoo, measured_setup},
    report::{Bound, Section, ratio},
    scene::{Counters, Scene, cpu_ms, started},
    servers::Server,
};
use std::{
    thread,
    time::{Duration, Instant},
};

const SESSION: Duration = Duration::from_secs(10);

/// The number of members, and how many packets the server may receive of each in a second.
const SIZES: [(usize, f64); 2] = [(20, 0.8), (100, 0.55)];

/// How much of the server's processor time a member may take, compared with one of kazoo's.
const CPU_TO_KAZOO: f64 = 1.8;

/// What a server has received and spent in one second, for each member.
struct Load {
    packets: f64,
    cpu_ms: f64,
}

pub(crate) fn idle(scene: &Scene) -> Section {
    let time = Duration::from_secs(scene.pick(60, 5));
    let mut section = Section::new(
        "An idle election",
        &format!(
            "{time:?} in which nothing happens, with sessions of {SESSION:?} on one server, after {time:?} in which all have \
             come to rest. Members are processes; kazoo's and Curator's contenders share one, with a session each. Packets \
             are what the server receives (`zk_packets_received` in `mntr`), pings included; CPU is the time of all its \
             threads, less what it takes without clients. Both are for each member and second."
        ),
    );
    let mut servers = started(1);
    let connect_string = servers.connect_string();
    let server = servers.first();
    let alone = load(server, 1, time);
    let mut rows = vec![];
    let mut goals = vec![];
    for (count, packets_max) in SIZES.map(|(count, most)| (scene.pick(count, count / 5), most)) {
        let contest =
            || Contest { servers: connect_string.clone(), path: scene.path(), session: SESSION };
        let mut measure = |name: &str| {
            thread::sleep(time);
            let mut taken = load(server, count, time);
            taken.cpu_ms -= alone.cpu_ms / count as f64;
            let cells = [name, &count.to_string(), &ratio(taken.packets)].map(str::to_owned);
            rows.push([&cells[..], &[format!("{:.3} ms", taken.cpu_ms)]].concat());
            taken
        };
        let setup = measured_setup(scene, &connect_string, &scene.path()).sessions(SESSION);
        let members = Members::in_queue(&setup, count);
        let ours = measure("Bellwether");
        members.leave();
        let contenders = kazoo(&contest(), &[count]);
        let kazoo = measure("kazoo");
        drop(contenders);
        let contenders = curator(&contest(), &[count]);
        measure("Curator");
        drop(contenders);
        goals.push((
            format!("{count} members: at most {packets_max} packets"),
            ours.packets,
            packets_max,
        ));
        let cpu = ours.cpu_ms / kazoo.cpu_ms;
        goals.push((
            format!("{count} members: at most {CPU_TO_KAZOO} × the server's CPU for kazoo"),
            cpu,
            CPU_TO_KAZOO,
        ));
    }
    section.table(&["Who", "Members", "Packets/s", "CPU/s"], &rows);
    for (goal, measured, most) in goals {
        section.goal(&goal, measured, Bound::AtMost(most));
    }
    section
}

/// Waits for `time`, and returns what the server received and spent for each of `count` members.
fn load(server: &Server, count: usize, time: Duration) -> Load {
    let taken =
        || (Counters::of(server).of_name("zk_packets_received"), cpu_ms(server.process_id()));
    let (begun, before) = (Instant::now(), taken());
    thread::sleep(time);
    let after = taken();
    let member_seconds = begun.elapsed().as_secs_f64() * count as f64;
    Load {
        packets: (after.0 - before.0) / member_seconds,
        cpu_ms: (after.1 - before.1) / member_seconds,
    }
}
