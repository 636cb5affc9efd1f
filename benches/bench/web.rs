//! What telling over HTTP costs: answers per second against a bare server, and how late an event is.

use crate::{
    bare,
    contest::{Contestant, Members, has_role},
    member::Setup,
    process::{Process, tied_to_this_thread},
    report::{Bound, Section, Times, ms, ratio},
    scene::{Scene, ourselves, started},
};
use axum::{
    Router,
    http::{HeaderMap, HeaderName},
    routing::get,
};
use rustix::process::setpriority_process;
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// That of the thread on which a member answers: more CPU would go to a server of another one where others want some.
const READERS_NICE: i32 = 5;

/// The program of the bare server: one route, one answer, on one thread as in ours. The head has these lines.
pub(crate) fn constant(body: &str, head: &[&str]) {
    setpriority_process(None, READERS_NICE).expect("a process may be nicer");
    let body: &'static str = body.to_owned().leak();
    let lines = head.iter().filter_map(|line| line.split_once(": "));
    let head: HeaderMap = lines
        .map(|(name, value)| {
            let name: HeaderName = name.parse().expect("the name of a header");
            (name, value.parse().expect("the value of a header"))
        })
        .collect();
    let answer = move || std::future::ready((head.clone(), body));
    bare::runtime()
        .block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            println!("{}", listener.local_addr().expect("it is bound"));
            axum::serve(listener, Router::new().route("/leader", get(answer))).await
        })
        .expect("it serves until it is killed");
}

pub(crate) fn web(scene: &Scene) -> Section {
    let mut section = Section::new(
        "HTTP",
        "`GET /leader` of a follower, asked by `wrk` with one thread over 64 connections, against a bare axum \
         handler that returns the same bytes, and against one that returns the same body with a shorter head, both \
         served by `axum::serve`. Each serves on one thread of the same priority. They are asked in turn. \
         Then: streams of `/events` at one member which comes to lead; from the notification that a bare \
         session gets of the claim in that member's znode until the event has been read on all of the streams, and \
         from the first of these reads to the last.",
    );
    let servers = started(1);
    let connect_string = servers.connect_string();
    let setup = Setup::at(connect_string.clone())
        .sessions(Duration::from_secs(20))
        .environment("RUST_LOG", "info");
    let mut members = Members::in_queue(&setup, 2);

    let follower = &members.members()[1];
    let answer = follower.get("/leader");
    // The server itself adds its length and the date.
    let lines = answer
        .headers
        .iter()
        .filter(|(name, _)| !["content-length", "date"].contains(&name.as_str()));
    let head: Vec<String> = lines
        .map(|(name, value)| format!("{name}: {}", value.to_str().expect("it is text")))
        .collect();
    let (_same, same) = bare_server(&answer.body, &head);
    let (_shorter, shorter) =
        bare_server(&answer.body, &["content-type: application/json".to_owned()]);
    let ours = format!("127.0.0.1:{}", follower.port());
    let mut runs = [vec![], vec![], vec![]];
    for _ in 0..scene.repetitions() {
        for (runs, address) in runs.iter_mut().zip([&ours, &same, &shorter]) {
            runs.push(wrk(address, scene));
        }
    }
    let [our_run, bare_run, shorter_run] = runs.map(middle);
    let row = |name: &str, run: Run| {
        vec![
            name.to_owned(),
            format!("{:.0}", run.per_second),
            ms(run.median_ms),
            ms(run.p99_ms),
            ratio(run.per_second / bare_run.per_second),
        ]
    };
    section.table(
        &["Who", "Answers per second", "Median", "99 %", "To the bare server"],
        &[
            row("Bellwether", our_run),
            row("A bare axum handler", bare_run),
            row("One with a shorter head", shorter_run),
        ],
    );

    let mut rows = vec![];
    let counts = scene.pick(vec![1, 100, 1000], vec![1, 20]);
    let most = *counts.last().expect("there are some");
    let mut spread_of_most = 0.0;
    for streams in counts {
        let (mut first, mut last, mut spread) =
            (Times::default(), Times::default(), Times::default());
        for _ in 0..scene.pick(15, 2) {
            let told = event(&mut members, &connect_string, streams);
            first.add(told.first);
            last.add(told.last);
            spread.add(told.spread);
        }
        rows.push(vec![
            streams.to_string(),
            ms(first.median_ms()),
            ms(last.median_ms()),
            ms(last.p99_ms()),
            ms(spread.median_ms()),
            ms(spread.p99_ms()),
        ]);
        spread_of_most = spread.median_ms();
    }
    let columns = [
        "Streams",
        "The first has read it",
        "The last has, median",
        "99 %",
        "After the first, median",
        "99 %",
    ];
    section.table(&columns, &rows);
    let goal = format!("{most} streams are told within 20 ms of the first");
    section.goal(&goal, spread_of_most, Bound::AtMost(20.0));
    section
}

/// Returns a bare server that answers so, and where it serves.
fn bare_server(body: &str, head: &[String]) -> (Process, String) {
    let mut command = tied_to_this_thread(&ourselves());
    command.args(["constant", body]).args(head).stdout(Stdio::piped());
    let mut server = Process::start(&mut command);
    let output = server.child().stdout.take().expect("it is piped");
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address).expect("it says where it serves");
    (server, address.trim().to_owned())
}

#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    median_ms: f64,
    p99_ms: f64,
}

fn wrk(address: &str, scene: &Scene) -> Run {
    let seconds = scene.pick("10s", "2s");
    let url = format!("http://{address}/leader");
    let output =
        Command::new("wrk").args(["-t1", "-c64", "-d", seconds, "--latency", &url]).output();
    let output = output.expect("wrk is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    let value = |word: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(word));
        line.unwrap_or_else(|| panic!("no {word} in {said}")).trim().to_owned()
    };
    assert!(!said.contains("Non-2xx"), "{said}");
    Run {
        per_second: value("Requests/sec:").parse().expect("a number"),
        median_ms: milliseconds(&value("50%")),
        p99_ms: milliseconds(&value("99%")),
    }
}

fn milliseconds(written: &str) -> f64 {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let parsed = units.iter().find_map(|(unit, times)| {
        let number: f64 = written.strip_suffix(unit)?.parse().ok()?;
        Some(number * times)
    });
    parsed.expect("a time as wrk writes it")
}

fn middle(mut runs: Vec<Run>) -> Run {
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    runs[runs.len() / 2]
}

/// When the first and the last of some streams have read of a new leader, from when its claim is known.
struct Read {
    first: Duration,
    last: Duration,
    /// From the first to the last, also if the first was before that.
    spread: Duration,
}

/// The leader resigns, and so many streams at its successor tell of that.
fn event(members: &mut Members, servers: &str, streams: usize) -> Read {
    let next = &members.members()[1];
    let address = SocketAddr::from(([127, 0, 0, 1], next.port()));
    let znode = next.status()["znode"].as_str().expect("it is in the queue").to_owned();
    let watcher = bare::watch(servers, format!("/election/{znode}"));
    let (say, said) = channel();
    let readers = thread::spawn(move || {
        bare::runtime().block_on(async {
            let mut all = JoinSet::new();
            for _ in 0..streams {
                all.spawn(read(address, say.clone()));
            }
            drop(say);
            all.join_all().await
        })
    });
    for _ in 0..streams {
        said.recv().expect("it is open");
    }
    members.prepare();
    members.hand_over();
    let read = readers.join().expect("all streams go on");
    let (_, committed) = watcher.join().expect("the watch fires");
    let first = *read.iter().min().expect("there are streams");
    let last = *read.iter().max().expect("there are streams");
    let late = |at: Instant| at.saturating_duration_since(committed);
    has_role(&members.members()[0], "leader");
    Read { first: late(first), last: late(last), spread: last - first }
}

async fn read(member: SocketAddr, opened: Sender<Instant>) -> Instant {
    let mut stream = TcpStream::connect(member).await.expect("the member listens");
    let request = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.expect("it reads");
    let mut text = String::new();
    let mut opened = Some(opened);
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).await.expect("the stream goes on");
        assert!(length > 0, "the stream goes on");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if text.contains("event: state")
            && let Some(opened) = opened.take()
        {
            let _ = opened.send(Instant::now());
        }
        // An event ends with an empty line.
        if let Some((_, event)) = text.split_once("event: became-leader")
            && event.contains("\n\n")
        {
            return Instant::now();
        }
    }
}
