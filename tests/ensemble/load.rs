//! A member with more visitors than any application has: `scripts/load` runs this, and tells how.
//!
//! A hand-over takes, for the election, from the deletion of the leader's znode until its successor's
//! claim is in the successor's znode. That is what ZooKeeper tells a session of our own, so no
//! answer over HTTP, which may well be slow, is part of it.

use crate::{
    group::{settled, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    program::Program,
    servers::Servers,
    soak::parameter,
    wait::{LIMIT, eventually},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    net::{self, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpSocket, TcpStream},
    runtime::Builder,
    sync::oneshot,
    task::JoinSet,
};
use zookeeper::{AddWatchMode, Client, EventType};

const STREAMS: usize = 1000;
/// Of the streams: as many are opened and never read.
const NEVER_READ: usize = 100;
const QUERIES: usize = 200;

/// In each round and each kind of surroundings.
const HANDOVERS: usize = 8;

/// The largest ratio allowed of the median with visitors at the successor to the one without any; or to the one with them
/// at the bystander, where that is longer, as on two cores, of which visitors leave servers and members little.
const RATIO_MAX: f64 = 1.3;

/// More than 1200 waiting visitors have been seen to need, and far below what a leak would come to.
const MEMORY_MAX_KIB: usize = 64 * 1024;

/// The queue when a hand-over is measured is the leader, its successor, and one more.
const SUCCESSOR: usize = 1;
const BYSTANDER: usize = 2;

/// Where the visitors are while leadership is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visitors {
    Nowhere,
    /// At the member whose claim is waited for.
    AtTheSuccessor,
    /// The same visitors take the same share of the machine, but not of the member that is to claim.
    AtTheBystander,
}

const SURROUNDINGS: [Visitors; 3] =
    [Visitors::Nowhere, Visitors::AtTheSuccessor, Visitors::AtTheBystander];

#[test]
#[ignore = "it takes minutes, and a machine that does nothing else: scripts/load runs it"]
fn load() {
    let rounds = parameter("BELLWETHER_LOAD_ROUNDS").unwrap_or(12);
    let built = || env!("CARGO_BIN_EXE_bellwether").to_owned();
    let program = parameter("BELLWETHER_LOAD_PROGRAM").unwrap_or_else(built);
    open_more_files();
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    // What services and containers are commonly started with.
    let few_files = ["prlimit", "--nofile=1024:"];
    let setup = Setup::of(&servers).program(program).run_by(&few_files);
    let members = started_in_order(&setup, ["a", "b", "c"]);
    let queue = WatchedQueue::watch(&servers);
    let mut seen = Seen::default();
    let visited = &members[SUCCESSOR];
    handover(&members, &observer, &queue);
    go_around(&members, &observer, &queue);

    let before = Held::by(visited);
    let waiting = Crowd::around(visited, before.files, false);
    let idle = Held::by(visited);
    waiting.leave();
    released(visited, before);
    let mut peaks = vec![];
    for round in 0..rounds {
        for turn in 0..SURROUNDINGS.len() {
            let visitors = SURROUNDINGS[(round + turn) % SURROUNDINGS.len()];
            let host = match visitors {
                Visitors::Nowhere => None,
                Visitors::AtTheSuccessor => Some(&members[SUCCESSOR]),
                Visitors::AtTheBystander => Some(&members[BYSTANDER]),
            };
            let held = host.map(|host| (host, Held::by(host)));
            let crowd = held.map(|(host, held)| Crowd::around(host, held.files, true));
            let took: Vec<Duration> = (0..HANDOVERS)
                .map(|_| {
                    let took = handover(&members, &observer, &queue);
                    go_around(&members, &observer, &queue);
                    took
                })
                .collect();
            if visitors == Visitors::AtTheSuccessor {
                peaks.push(Held::by(visited));
            }
            if let (Some(crowd), Some((host, held))) = (crowd, held) {
                let busy = crowd.leave();
                eprintln!("round {round}, {visitors:?}: {busy}");
                released(host, held);
            }
            let middle = median(&took).as_secs_f64() * 1e3;
            eprintln!("round {round}, {visitors:?}: median {middle:.2} ms");
            seen.of(visitors).extend(took);
        }
    }
    let after = Held::by(visited);

    let mut report = seen.report();
    let waiters = (STREAMS + QUERIES) as f64;
    let each = (idle.memory_kib - before.memory_kib) as f64 / waiters;
    let peak = peaks.iter().map(|held| held.memory_kib).max().expect("there are rounds");
    writeln!(
        report,
        "memory of the visited member: {} KiB before, {} with {STREAMS} idle streams and {QUERIES} \
         queries ({each:.1} for each), {peak} at most, {} after all had gone\n\
         files: {} before, {} with all of them, {} after; threads: {}, {}, {}\n\
         the kernel's for all TCP: {} KiB before, {} with idle streams",
        before.memory_kib,
        idle.memory_kib,
        after.memory_kib,
        before.files,
        peaks[0].files,
        after.files,
        before.threads,
        peaks[0].threads,
        after.threads,
        before.kernel_kib,
        idle.kernel_kib,
    )
    .expect("a String takes all");
    eprintln!("\n{report}");
    assert!(peak - before.memory_kib <= MEMORY_MAX_KIB, "memory is bounded");
    assert_eq!(after.threads, before.threads);
    let ratio = seen.ratio(Visitors::AtTheSuccessor, Visitors::Nowhere);
    let elsewhere = seen.ratio(Visitors::AtTheBystander, Visitors::Nowhere);
    assert!(
        ratio <= RATIO_MAX * elsewhere.max(1.0),
        "hand-overs take {ratio:.2} times as long with visitors, and {elsewhere:.2} times with them elsewhere"
    );
}

/// By the usual soft limit few visitors would be accepted, though the administrator allows more.
#[test]
fn as_many_visitors_are_let_in_as_the_hard_limit_on_open_files_allows() {
    const VISITORS: usize = 400;
    let servers = Servers::standalone();
    let limited = Setup::of(&servers).run_by(&["prlimit", "--nofile=256:2048"]);
    let [member] = started_in_order(&limited, ["a"]);

    let open = |_| {
        let mut stream = net::TcpStream::connect(("127.0.0.1", member.port()))?;
        stream.write_all(EVENTS.as_bytes())?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    };
    let streams: io::Result<Vec<_>> = (0..VISITORS).map(open).collect();
    for mut stream in streams.expect("it listens") {
        let told = stream.read(&mut [0; 4096]);
        assert!(told.is_ok_and(|length| length > 0), "it is told something");
    }
}

/// Lets the leader resign, and tells how long its successor took to claim.
fn handover(members: &[Member; 3], observer: &Observer, queue: &WatchedQueue) -> Duration {
    let (leader, znodes) = settled(members, observer);
    let from = queue.happened().len();
    let resigning =
        members.iter().find(|member| member.id == leader.id).expect("one of them leads");
    assert_eq!(resigning.post("/resign").status, 202);
    let successor = &znodes[1].name;
    eventually("ZooKeeper tells of the hand-over", || {
        let happened = queue.happened();
        let of = |znode: &str, kind: EventType| {
            let path = format!("/election/{znode}");
            move |event: &&Happened| event.path == path && event.kind == kind
        };
        let since = &happened[from..];
        let deleted = since.iter().find(of(&leader.znode, EventType::NodeDeleted));
        let mut changed = since.iter().filter(of(successor, EventType::NodeDataChanged));
        let claimed = changed.find(|event| event.names.as_ref() == Some(successor));
        match (deleted, claimed) {
            (Some(deleted), Some(claimed)) => Ok(claimed.at.duration_since(deleted.at)),
            _ => Err(format!("{since:?}")),
        }
    })
}

/// Lets the other two lead in turn, so that the queue is in its first order again.
fn go_around(members: &[Member; 3], observer: &Observer, queue: &WatchedQueue) {
    handover(members, observer, queue);
    handover(members, observer, queue);
    let (leader, _) = settled(members, observer);
    assert_eq!(leader.id, members[0].id);
}

/// How long hand-overs took, by where the visitors were.
#[derive(Default)]
struct Seen([Vec<Duration>; 3]);

impl Seen {
    fn of(&mut self, visitors: Visitors) -> &mut Vec<Duration> {
        &mut self.0[visitors as usize]
    }

    fn ratio(&self, some: Visitors, others: Visitors) -> f64 {
        let [some, others] = [some, others].map(|visitors| median(&self.0[visitors as usize]));
        some.as_secs_f64() / others.as_secs_f64()
    }

    fn report(&self) -> String {
        let mut text = String::new();
        for visitors in SURROUNDINGS {
            let mut all = self.0[visitors as usize].clone();
            all.sort_unstable();
            let at = |part: usize| all[(all.len() - 1) * part / 100].as_secs_f64() * 1e3;
            writeln!(
                text,
                "{:<16}{} hand-overs, median {:.2} ms (a tenth below {:.2}, a tenth above {:.2}, \
                 at most {:.2})",
                format!("{visitors:?}"),
                all.len(),
                median(&all).as_secs_f64() * 1e3,
                at(10),
                at(90),
                at(100),
            )
            .expect("a String takes all");
        }
        for (some, others) in [
            (Visitors::AtTheSuccessor, Visitors::Nowhere),
            (Visitors::AtTheBystander, Visitors::Nowhere),
            (Visitors::AtTheSuccessor, Visitors::AtTheBystander),
        ] {
            let ratio = self.ratio(some, others);
            writeln!(text, "ratio of medians, {some:?} to {others:?}: {ratio:.2}")
                .expect("a String takes all");
        }
        text
    }
}

fn median(all: &[Duration]) -> Duration {
    let mut all = all.to_vec();
    all.sort_unstable();
    all[all.len() / 2]
}

/// The resources that a member holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory_kib: usize,
    files: usize,
    threads: usize,
    /// The kernel's memory for the connections of all processes on this machine.
    kernel_kib: usize,
}

impl Held {
    fn by(member: &Member) -> Self {
        let process = format!("/proc/{}", member.process_id());
        let status = fs::read_to_string(format!("{process}/status")).expect("a process that runs");
        let sockets = fs::read_to_string("/proc/net/sockstat").expect("the kernel tells");
        let tcp = sockets.lines().find(|line| line.starts_with("TCP:")).expect("it knows of TCP");
        Self {
            memory_kib: number_after(&status, "VmRSS:"),
            files: fs::read_dir(format!("{process}/fd")).expect("a process that runs").count(),
            threads: number_after(&status, "Threads:"),
            kernel_kib: number_after(tcp, " mem") * rustix::param::page_size() / 1024,
        }
    }
}

fn number_after(text: &str, word: &str) -> usize {
    let after = text.split_once(word).map(|(_, after)| after.split_whitespace().next());
    after.flatten().and_then(|number| number.parse().ok()).expect("a number")
}

fn released(member: &Member, before: Held) {
    eventually("all that the visitors held is free again", || {
        let held = Held::by(member);
        // A person may be asking the member while the test runs.
        let more = held.files.saturating_sub(before.files);
        if more <= 4 && held.threads == before.threads { Ok(()) } else { Err(format!("{held:?}")) }
    });
}

/// All visitors that ask one member at the same time.
struct Crowd {
    wrk: Option<Program>,
    received: Arc<Received>,
    dismiss: oneshot::Sender<()>,
    visiting: JoinHandle<()>,
}

/// How much the visitors have received so far.
#[derive(Default)]
struct Received {
    /// Streams on which at least one event came.
    streams: AtomicUsize,
    events: AtomicUsize,
    answers: AtomicUsize,
    /// Connections that the member closed, as the next thing on them was not true any more when it could be written.
    closed: AtomicUsize,
}

impl Crowd {
    /// Returns when each visitor has its connection and waits on it.
    fn around(member: &Member, files_before: usize, in_a_hurry: bool) -> Self {
        let port = member.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let received = Arc::<Received>::default();
        let (dismiss, dismissed) = oneshot::channel();
        let counted = Arc::clone(&received);
        let visiting = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut visits = JoinSet::new();
                (0..NEVER_READ).for_each(|_| drop(visits.spawn(never_read(address))));
                for _ in NEVER_READ..STREAMS {
                    visits.spawn(read(address, Arc::clone(&counted)));
                }
                (0..QUERIES).for_each(|_| drop(visits.spawn(query(address, Arc::clone(&counted)))));
                let _ = dismissed.await;
                // What panics in a task does not end the thread.
                assert!(
                    visits.try_join_next().is_none(),
                    "each visitor stays until it is dismissed"
                );
            });
        });
        eventually("all streams are open and all queries blocked", || {
            let open = received.streams.load(Ordering::SeqCst);
            let queries = received.answers.load(Ordering::SeqCst);
            let files = Held::by(member).files - files_before;
            let all =
                open == STREAMS - NEVER_READ && queries >= QUERIES && files >= STREAMS + QUERIES;
            if all { Ok(()) } else { Err(format!("{open}, {queries}, {files}; {}", member.log())) }
        });
        let url = format!("http://127.0.0.1:{port}/leader");
        // One thread of it asks faster than a member answers; a second only takes from both.
        let hurrying = || Program::start("wrk", ["wrk", "-t1", "-c64", "-d1h", &url], &[]);
        let wrk = in_a_hurry.then(hurrying);
        Self { wrk, received, dismiss, visiting }
    }

    /// Dismisses the visitors, and returns what they received when all have left.
    fn leave(self) -> String {
        let mut gets = String::new();
        if let Some(mut wrk) = self.wrk {
            wrk.signal("INT");
            let rate = "Requests/sec:";
            let at = wrk.says(0, |line| line.starts_with(rate));
            gets = format!("{} GET /leader per second, ", wrk.said()[at - 1][rate.len()..].trim());
            wrk.wait();
        }
        let _ = self.dismiss.send(());
        self.visiting.join().expect("no visitor panics");
        let events = self.received.events.load(Ordering::SeqCst);
        let answers = self.received.answers.load(Ordering::SeqCst);
        let closed = self.received.closed.load(Ordering::SeqCst);
        format!("{gets}{events} events, {answers} answers to blocking queries, {closed} closed")
    }
}

const EVENTS: &str = "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn never_read(member: SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // So that the buffer for unread events is soon full.
    socket.set_recv_buffer_size(1).expect("it is the kernel's smallest then");
    let stream = socket.connect(member).await.expect("the member listens");
    send(&stream, EVENTS).await;
    std::future::pending::<()>().await;
}

/// Reads a stream, and the next one when that is closed.
async fn read(member: SocketAddr, received: Arc<Received>) {
    let mut stream = TcpStream::connect(member).await.expect("the member listens");
    send(&stream, EVENTS).await;
    let mut buffer = [0; 4096];
    let mut is_counted = false;
    loop {
        let Some(length) = receive(&stream, &mut buffer).await else {
            stream = connect_again(member, &received).await;
            send(&stream, EVENTS).await;
            continue;
        };
        let events = buffer[..length].windows(7).filter(|piece| piece == b"event: ").count();
        received.events.fetch_add(events, Ordering::SeqCst);
        if !is_counted && events > 0 {
            is_counted = true;
            received.streams.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Asks again and again, over another connection when the one before is closed.
async fn query(member: SocketAddr, received: Arc<Received>) {
    let mut stream = TcpStream::connect(member).await.expect("the member listens");
    let (mut index, mut buffer) = ("0".to_owned(), [0; 4096]);
    loop {
        send(
            &stream,
            &format!("GET /leader?index={index}&wait=1m HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        )
        .await;
        // The answer is short and sent in one piece.
        let Some(length) = receive(&stream, &mut buffer).await else {
            stream = connect_again(member, &received).await;
            continue;
        };
        let answer = String::from_utf8_lossy(&buffer[..length]);
        let told = answer.split_once("x-bellwether-index: ").expect("every answer has it");
        index = told.1.chars().take_while(char::is_ascii_digit).collect();
        received.answers.fetch_add(1, Ordering::SeqCst);
    }
}

async fn connect_again(member: SocketAddr, received: &Received) -> TcpStream {
    received.closed.fetch_add(1, Ordering::SeqCst);
    TcpStream::connect(member).await.expect("the member listens")
}

async fn send(stream: &TcpStream, request: &str) {
    stream.writable().await.expect("an open connection");
    let sent = stream.try_write(request.as_bytes()).expect("there is room for a request");
    assert_eq!(sent, request.len());
}

/// At least one byte, or nothing more.
async fn receive(stream: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    loop {
        stream.readable().await.expect("an open connection");
        match stream.try_read(buffer) {
            Ok(0) => return None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return Some(read.expect("an open connection")),
        }
    }
}

/// The queue of members, as a session of its own sees it change.
struct WatchedQueue {
    happened: Arc<Mutex<Vec<Happened>>>,
    _until_dropped: oneshot::Sender<()>,
}

#[derive(Clone, Debug)]
struct Happened {
    at: Instant,
    kind: EventType,
    path: String,
    /// The name of the leader's znode, as this znode's data told it soon after.
    names: Option<String>,
}

impl WatchedQueue {
    fn watch(servers: &Servers) -> Self {
        let happened = Arc::<Mutex<Vec<Happened>>>::default();
        let (until_dropped, dropped) = oneshot::channel::<()>();
        let (collected, servers) = (Arc::clone(&happened), servers.connect_string());
        let (ready, watching) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = Client::connect(&servers).await.expect("ZooKeeper is there");
                let mode = AddWatchMode::PersistentRecursive;
                let mut watcher = client.watch("/election", mode).await.expect("it lets us watch");
                ready.send(()).expect("the test waits");
                let watching = async {
                    loop {
                        let event = watcher.changed().await;
                        let at = Instant::now();
                        let data = client.get_data(&event.path).await;
                        let says = data.ok().and_then(|(data, _)| {
                            serde_json::from_slice::<serde_json::Value>(&data).ok()
                        });
                        let names = says
                            .and_then(|says| Some(says["leader"]["znode"].as_str()?.to_owned()));
                        let (kind, path) = (event.event_type, event.path);
                        let mut collected =
                            collected.lock().expect("no thread panics while holding it");
                        collected.push(Happened { at, kind, path, names });
                    }
                };
                tokio::select! {
                    () = watching => {}
                    _ = dropped => {}
                }
            });
        });
        watching.recv().expect("it watches");
        Self { happened, _until_dropped: until_dropped }
    }

    fn happened(&self) -> Vec<Happened> {
        self.happened.lock().expect("no thread panics while holding it").clone()
    }
}

fn open_more_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("a process may raise its limit");
}
