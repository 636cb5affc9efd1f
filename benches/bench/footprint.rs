//! What a process takes of a machine while it is in the queue and nothing happens.

use crate::{
    contest::{Contest, Members},
    handover::{curator, kazoo, setup},
    member::SessionFiles,
    report::{Bound, Section},
    scene::{Scene, cpu_ms, started},
};
use std::{fs, path::Path, process::Command, thread, time::Duration};

/// The default, so that heartbeats are as frequent as in use.
const SESSION: Duration = Duration::from_secs(10);

/// What a process may take, in milliseconds of CPU and wake-ups per second.
struct Goal {
    of: &'static str,
    /// Among the processes that are looked at.
    process: usize,
    cpu_ms: f64,
    wake_ups: f64,
}

const GOALS: [Goal; 4] = [
    Goal { of: "a follower", process: 2, cpu_ms: 0.3, wake_ups: 4.0 },
    Goal { of: "a leader", process: 0, cpu_ms: 0.8, wake_ups: 8.0 },
    Goal { of: "a follower with a session file", process: 5, cpu_ms: 0.3, wake_ups: 4.0 },
    Goal { of: "a leader with a session file", process: 3, cpu_ms: 0.8, wake_ups: 8.0 },
];

const RESIDENT_MIB: f64 = 6.0;

const BINARY_MB: f64 = 6.8;

struct Taken {
    resident_kib: f64,
    private_kib: f64,
    threads: f64,
    files: f64,
    /// In user and kernel mode.
    cpu_ms: f64,
    /// Voluntary ones: each is a thread that was woken.
    switches: f64,
    packets: f64,
    /// Into files, and what threads wake each other by: not into sockets.
    written: f64,
}

pub(crate) fn footprint(scene: &Scene) -> Section {
    let idle = scene.pick(Duration::from_secs(60), Duration::from_secs(5));
    let mut section = Section::new(
        "Footprint",
        &format!(
            "{idle:?} in which nothing happens, with sessions of {SESSION:?} on one server: all three \
             members (the image's static binary), three more that keep their session in a file in memory, \
             a JVM with one `LeaderLatch`, and a Python process with one `Election`, each behind another that \
             leads. Private memory is what no other process shares; a wake-up is a voluntary context switch of any \
             thread; packets are segments in and out of its connection to the server; written is what goes into \
             files and not into sockets (`wchar`).",
        ),
    );
    let servers = started(1);
    let connect_string = servers.connect_string();
    let binary = scene.program.clone().unwrap_or_else(static_binary);
    let size = fs::metadata(&binary).expect("it was built").len();
    let ours = setup(&connect_string, &scene.path()).sessions(SESSION).program(binary.clone());
    let mut members = Members::in_queue(&ours, 3);
    members.wait_for_standby();
    let files = SessionFiles::new();
    let ours = setup(&connect_string, &scene.path()).sessions(SESSION).program(binary);
    let mut keeping = Members::in_queue_with(3, |id| files.kept_by(&ours, id));
    keeping.wait_for_standby();
    let contest =
        || Contest { servers: connect_string.clone(), path: scene.path(), session: SESSION };
    let curator = curator(&contest(), &[1, 1]);
    let kazoo = kazoo(&contest(), &[1, 1]);
    let processes = [
        ("Bellwether, leader", members.members()[0].process_id()),
        ("Bellwether, standby", members.members()[1].process_id()),
        ("Bellwether, follower", members.members()[2].process_id()),
        ("Bellwether with a session file, leader", keeping.members()[0].process_id()),
        ("Bellwether with a session file, standby", keeping.members()[1].process_id()),
        ("Bellwether with a session file, follower", keeping.members()[2].process_id()),
        ("JVM with Curator, follower", curator.process_id(1)),
        ("Python with kazoo, follower", kazoo.process_id(1)),
    ];
    let port = connect_string.rsplit(':').next().expect("it has a port").to_owned();
    let before = processes.map(|(_, process)| Taken::by(process, &port));
    thread::sleep(idle);
    let after = processes.map(|(_, process)| Taken::by(process, &port));
    let seconds = idle.as_secs_f64();
    let mut rows = vec![];
    for (n, (name, _)) in processes.iter().enumerate() {
        let (before, after) = (&before[n], &after[n]);
        rows.push(vec![
            (*name).to_owned(),
            format!("{:.1} MiB", after.resident_kib / 1024.0),
            format!("{:.1} MiB", after.private_kib / 1024.0),
            format!("{}", after.threads),
            format!("{}", after.files),
            format!("{:.2} ms/s", (after.cpu_ms - before.cpu_ms) / seconds),
            format!("{:.1}", (after.switches - before.switches) / seconds),
            format!("{:.1}", (after.packets - before.packets) / seconds),
            format!("{:.0} B/s", (after.written - before.written) / seconds),
        ]);
    }
    section.table(
        &[
            "Who",
            "Resident",
            "Private",
            "Threads",
            "Files",
            "CPU",
            "Wake-ups/s",
            "Packets/s",
            "Written",
        ],
        &rows,
    );
    section.say(&format!("The binary is {size} bytes large."));
    for Goal { of, process, cpu_ms, wake_ups } in GOALS {
        let (start, end) = (&before[process], &after[process]);
        let mut goal = |what: &str, taken: f64, most: f64| {
            section.goal(&format!("{of}: at most {most} {what}"), taken, Bound::AtMost(most));
        };
        goal("MiB resident", end.resident_kib / 1024.0, RESIDENT_MIB);
        goal("ms of CPU per second", (end.cpu_ms - start.cpu_ms) / seconds, cpu_ms);
        goal("wake-ups per second", (end.switches - start.switches) / seconds, wake_ups);
    }
    let goal = format!("the binary: at most {BINARY_MB} MB");
    section.goal(&goal, size as f64 / 1e6, Bound::AtMost(BINARY_MB));
    section
}

/// Builds the binary as for the image, and returns its path.
fn static_binary() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/static");
    let built = Command::new(script).output().expect("it is a script");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    String::from_utf8(built.stdout).expect("a path").trim().to_owned()
}

impl Taken {
    fn by(process: u32, server_port: &str) -> Self {
        let home = format!("/proc/{process}");
        let status = read(&format!("{home}/status"));
        let rollup = read(&format!("{home}/smaps_rollup"));
        let private = number(&rollup, "Private_Clean:") + number(&rollup, "Private_Dirty:");
        let mut switches = 0.0;
        for thread in fs::read_dir(format!("{home}/task")).expect("it runs").flatten() {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            if !status.is_empty() {
                switches += number(&status, "\nvoluntary_ctxt_switches:");
            }
        }
        Self {
            resident_kib: number(&status, "VmRSS:"),
            private_kib: private,
            threads: number(&status, "Threads:"),
            files: fs::read_dir(Path::new(&home).join("fd")).expect("it is ours").count() as f64,
            cpu_ms: cpu_ms(process),
            switches,
            packets: packets(process, server_port),
            written: number(&read(&format!("{home}/io")), "wchar:"),
        }
    }
}

/// As the kernel counts them for the connections to the server.
fn packets(process: u32, server_port: &str) -> f64 {
    let told =
        Command::new("ss").args(["-tinpOH", "dport", "=", &format!(":{server_port}")]).output();
    let told = told.expect("iproute2 is installed").stdout;
    let told = String::from_utf8_lossy(&told);
    let ours = told.lines().filter(|line| line.contains(&format!("pid={process},")));
    let counts =
        |line: &str| ["segs_in:", "segs_out:"].iter().map(|word| number(line, word)).sum::<f64>();
    ours.map(counts).sum()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).expect("a process that runs")
}

fn number(text: &str, word: &str) -> f64 {
    let after = text.split_once(word).and_then(|(_, after)| after.split_whitespace().next());
    after.and_then(|number| number.parse().ok()).expect("a number")
}
