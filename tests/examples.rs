//! The examples: how soon they begin to work, against a sidecar that is played; and that they stop at the deadline though
//! their sidecar is frozen and says nothing, beside `bellwether dev`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long after its member an application may begin to work.
const REACTION: Duration = Duration::from_millis(50);
/// For how long no leader is known between two of them.
const GAP: Duration = Duration::from_millis(5);
/// For what takes no time but that of a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest lease of a member of `bellwether dev`: T = 4 s, a tick of 500 ms.
const LEASE: Duration = Duration::from_millis(2846);
/// How long a client may take to print what it knows: a piece of its work, and a busy machine.
const PRINT_TIMEOUT: Duration = Duration::from_millis(250 + 500);

#[test]
fn the_shell_example_misses_no_time_between_two_leaders() {
    // What it starts for each answer, and there are two: on a busy machine that takes longer than all the rest.
    begins_with_its_member(&["bash", "examples/worker.sh"], &["curl", "jq", "curl", "jq"]);
}

#[test]
fn the_clients_miss_no_time_between_two_leaders() {
    let clients = Clients::prepared();
    for (_, command) in clients.commands() {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        begins_with_its_member(&command, &[]);
    }
}

#[test]
fn the_clients_go_on_after_answers_that_name_no_leader_and_no_index() {
    let clients = Clients::prepared();
    for (language, command) in clients.commands() {
        let sidecar = Sidecar::default();
        *sidecar.unusable.lock().unwrap() = vec![
            ("404 Not Found", "<html>"),
            (
                "503 Service Unavailable",
                r#"{"type":"no-leader","status":503,"detail":"ZooKeeper"}"#,
            ),
        ];
        let url = play(Arc::new(sidecar));
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .env("BELLWETHER_URL", format!("{}/", url.trim_start_matches("http://")))
            .env_remove("http_proxy")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Lines::of(process.stdout.take().unwrap());
        let errors = Lines::of(process.stderr.take().unwrap());
        let client = Client { name: language.to_owned(), process, input: None, output, errors };
        client.says("working with token 7", Instant::now() - PATIENCE);
        for reason in ["404", "ZooKeeper"] {
            assert!(
                client.errors.all().iter().any(|(_, line)| line.contains(reason)),
                "{language}"
            );
        }
    }
}

#[test]
fn the_clients_stop_at_the_deadline_though_their_sidecar_is_frozen() {
    let clients = Clients::prepared();
    let dev = Dev::start();
    let leader = dev.leader();
    let [leading, following] = [leader, 1 - leader].map(|member| {
        clients.commands().map(|(language, command)| dev.beside(member, language, &command, &[]))
    });
    for client in &leading {
        client.says("working with token", Instant::now());
    }

    let frozen_at = dev.signal(leader, Signal::STOP);

    let counted_at = frozen_at + Duration::from_millis(400);
    let deadline = frozen_at + LEASE;
    for client in &leading {
        client.says("working with token", counted_at);
        let over_at = client.says("no longer leading", frozen_at);
        let name = &client.name;
        assert!(over_at <= deadline + PRINT_TIMEOUT, "{name}: {:?}", over_at - frozen_at);
    }
    let began_at: Vec<_> =
        following.iter().map(|client| client.says("working with token", frozen_at)).collect();
    let next_at = *began_at.iter().min().unwrap();
    for client in &leading {
        let worked_at = client.last("working with token");
        assert!(worked_at < next_at, "{} works beside the next leader", client.name);
    }

    let woken_at = dev.signal(leader, Signal::CONT);
    for client in &following {
        client.says("working with token", woken_at + Duration::from_millis(500));
    }
    for client in &leading {
        assert!(client.last("working with token") < woken_at, "{} works again", client.name);
    }
    let old_token = leading[0].token();
    assert!(leading.iter().all(|client| client.token() == old_token));
    assert!(following.iter().all(|client| client.token() > old_token), "the next token is larger");
}

#[test]
fn the_clients_hold_a_lock_until_it_is_released_or_its_lease_ends() {
    let clients = Clients::prepared();
    let dev = Dev::start();
    let mut holders = clients
        .commands()
        .map(|(language, command)| dev.beside(0, language, &command, &["lock", language]));
    for holder in &holders {
        holder.says("working with token", Instant::now());
    }
    let waiters = clients
        .commands()
        .map(|(language, command)| dev.beside(1, language, &command, &["lock", language]));
    thread::sleep(Duration::from_secs(1));
    for (holder, waiter) in holders.iter_mut().zip(&waiters) {
        assert!(waiter.lines().is_empty(), "{} has a lock that is held", waiter.name);
        holder.input = None;
    }
    for (holder, waiter) in holders.iter().zip(&waiters) {
        holder.says("no longer held", Instant::now() - PATIENCE);
        waiter.says("working with token", Instant::now());
        assert!(waiter.token() > holder.token(), "{}: the next token is larger", waiter.name);
    }

    let frozen_at = dev.signal(1, Signal::STOP);

    for waiter in &waiters {
        waiter.says("working with token", frozen_at + Duration::from_millis(400));
        let over_at = waiter.says("no longer held", frozen_at);
        let name = &waiter.name;
        assert!(over_at <= frozen_at + LEASE + PRINT_TIMEOUT, "{name}: {:?}", over_at - frozen_at);
    }
    dev.signal(1, Signal::CONT);
}

/// The clients in four languages, compiled where that is needed.
struct Clients {
    home: TempDir,
}

impl Clients {
    fn prepared() -> Self {
        let home = TempDir::with_prefix("bellwether-examples-").unwrap();
        let program = home.path().join("client").display().to_string();
        let classes = home.path().display().to_string();
        compile(&["gccgo", "-Wall", "-o", &program, "examples/bellwether.go"]);
        let lints = ["-Xlint:all", "-Werror", "--release", "17"];
        let javac = ["javac", "-d", &classes, "examples/Bellwether.java"];
        compile(&[&javac[..], &lints].concat());
        Self { home }
    }

    fn commands(&self) -> [(&'static str, Vec<String>); 4] {
        let home = self.home.path().display();
        [
            ("java", format!("java -XX:TieredStopAtLevel=1 -cp {home} Bellwether")),
            ("python", "python3 examples/bellwether.py".to_owned()),
            ("node", "node examples/bellwether.mjs".to_owned()),
            ("go", format!("{home}/client")),
        ]
        .map(|(language, command)| (language, command.split(' ').map(str::to_owned).collect()))
    }
}

fn compile(command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).status();
    assert!(status.is_ok_and(|status| status.success()), "it compiles: {command:?}");
}

/// A `bellwether dev` with two members.
struct Dev {
    process: Child,
    members: Vec<Member>,
    output: Lines,
}

struct Member {
    id: String,
    url: String,
    process: Pid,
}

impl Dev {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_bellwether"))
            .args(["dev", "--listen", "127.0.0.1:0", "--members", "2"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Lines::of(process.stdout.take().unwrap());
        output.line(" leads, fencing token ", Instant::now() - PATIENCE);
        let members = output
            .all()
            .iter()
            .filter(|(_, line)| line.contains("  process "))
            .map(|(_, line)| {
                let words: Vec<_> = line.split_whitespace().collect();
                let process = Pid::from_raw(words[3].parse().unwrap()).unwrap();
                Member { id: words[0].to_owned(), url: words[1].to_owned(), process }
            })
            .collect();
        Self { process, members, output }
    }

    /// Returns which of its members leads, when it has said so for the first time.
    fn leader(&self) -> usize {
        let lines = self.output.all();
        let (_, line) = lines.iter().find(|(_, line)| line.contains(" leads, ")).unwrap();
        let is_it = |member: &Member| line.contains(&format!("  {} leads", member.id));
        self.members.iter().position(is_it).unwrap()
    }

    /// Signals a member, and returns when.
    fn signal(&self, member: usize, signal: Signal) -> Instant {
        kill_process(self.members[member].process, signal).unwrap();
        Instant::now()
    }

    fn beside(&self, member: usize, name: &str, command: &[String], arguments: &[&str]) -> Client {
        let member = &self.members[member];
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .args(arguments)
            .env("BELLWETHER_URL", &member.url)
            .env_remove("http_proxy")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = Lines::of(process.stdout.take().unwrap());
        let errors = Lines::of(process.stderr.take().unwrap());
        Client { name: format!("{name} beside {}", member.id), process, input, output, errors }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It ends its members, also one that is frozen.
        let _already_ended = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _status = self.process.wait();
    }
}

/// An example that runs beside a member.
struct Client {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    output: Lines,
    errors: Lines,
}

impl Client {
    /// Waits for a line that it prints after this moment, and returns when it came.
    #[track_caller]
    fn says(&self, part: &str, after: Instant) -> Instant {
        let lines = if part == "no longer leading" { &self.errors } else { &self.output };
        let found = lines.line_or_none(part, after);
        found.unwrap_or_else(|| {
            panic!("{}: no {part:?} in {:?}, {:?}", self.name, self.lines(), self.errors.all())
        })
    }

    fn lines(&self) -> Vec<(Instant, String)> {
        self.output.all()
    }

    /// Returns when the last such line came.
    fn last(&self, part: &str) -> Instant {
        self.lines().iter().rfind(|(_, line)| line.contains(part)).unwrap().0
    }

    /// Returns the token with which it worked last.
    fn token(&self) -> u64 {
        let lines = self.lines();
        lines
            .iter()
            .rev()
            .find_map(|(_, line)| line.strip_prefix("working with token ")?.parse().ok())
            .unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The lines of an output, and when each came.
struct Lines(Arc<Mutex<Vec<(Instant, String)>>>);

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(vec![]));
        let read = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                read.lock().unwrap().push((Instant::now(), line));
            }
        });
        Self(lines)
    }

    fn all(&self) -> Vec<(Instant, String)> {
        self.0.lock().unwrap().clone()
    }

    #[track_caller]
    fn line(&self, part: &str, after: Instant) -> Instant {
        self.line_or_none(part, after).unwrap_or_else(|| panic!("no {part:?}: {:?}", self.all()))
    }

    fn line_or_none(&self, part: &str, after: Instant) -> Option<Instant> {
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            let lines = self.all();
            let found = lines.iter().find(|(at, line)| *at > after && line.contains(part));
            if let Some((at, _)) = found {
                return Some(*at);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

/// Takes the median of some, as a busy machine is late now and then, without the time that it takes to start these
/// programs.
fn begins_with_its_member(command: &[&str], starts: &[&str]) {
    let late =
        |_| lateness(command).saturating_sub(starts.iter().map(|it| time_to_start(it)).sum());
    let mut late: Vec<Duration> = (0..5).map(late).collect();
    late.sort();
    assert!(late[late.len() / 2] <= REACTION, "{late:?}");
}

/// Returns how much later than its member the example begins to work.
fn lateness(command: &[&str]) -> Duration {
    let sidecar = Arc::<Sidecar>::default();
    let url = play(Arc::clone(&sidecar));
    let mut example = Command::new(command[0]);
    example.args(&command[1..]).env("BELLWETHER_URL", url).env_remove("http_proxy");
    let mut child = example.stdout(Stdio::piped()).spawn().unwrap();
    let says = BufReader::new(child.stdout.take().unwrap());
    let mut example = Example { child, says };
    let mut line = String::new();
    example.says.read_line(&mut line).unwrap();
    let worked = Instant::now();
    assert_eq!(line, "working with token 7\n");
    worked - sidecar.leads_since().expect("it leads")
}

/// Plays a sidecar until the test's process ends, and returns its URL.
fn play(sidecar: Arc<Sidecar>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let sidecar = Arc::clone(&sidecar);
            thread::spawn(move || sidecar.answer(&client));
        }
    });
    url
}

fn time_to_start(program: &str) -> Duration {
    let begun = Instant::now();
    let output = Command::new(program).arg("--version").output().unwrap();
    assert!(output.status.success());
    begun.elapsed()
}

struct Example {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A program that it has started lives on for a moment, and holds its output.
        let _ = io::copy(&mut self.says, &mut io::sink());
    }
}

/// Follows until a client waits for a change, knows no leader for a moment, and leads from then on.
#[derive(Default)]
struct Sidecar {
    leads_since: Mutex<Option<Instant>>,
    /// The answers before all others, the last one first: status and body.
    unusable: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Sidecar {
    /// Returns since when it leads; the moment may be yet to come.
    fn leads_since(&self) -> Option<Instant> {
        *self.leads_since.lock().unwrap()
    }

    fn answer(&self, client: &TcpStream) {
        let mut lines = BufReader::new(client).lines().map_while(Result::ok);
        let asked = lines.next().unwrap_or_default();
        lines.find(|line| line.is_empty());
        if let Some((status, body)) = self.unusable.lock().unwrap().pop() {
            reply(client, status, body);
            return;
        }
        let leads = || self.leads_since().is_some_and(|since| since <= Instant::now());
        let waits = asked.contains("index=");
        if asked.contains("index=3&") {
            // Nothing changes any more, and its lease is long.
            thread::sleep(PATIENCE);
        }
        if waits && !leads() {
            let begins = Instant::now() + GAP;
            let mut since = self.leads_since.lock().unwrap();
            let is_first = since.is_none();
            let since = *since.get_or_insert(begins);
            if !is_first {
                thread::sleep(since.saturating_duration_since(Instant::now()));
            }
        }
        let (status, body) = if leads() {
            let boottime = in_an_hour(ClockId::Boottime);
            let monotonic = in_an_hour(ClockId::Monotonic);
            let lease = format!(
                r#""valid_for_ms":3600000,"valid_until_boottime_ns":{boottime},"valid_until_monotonic_ns":{monotonic}"#
            );
            let body = format!(
                r#"{{"leader":{{"id":"a","token":7}},"is_self":true,"token":7,{lease},"index":3}}"#
            );
            ("200 OK", body)
        } else {
            let index = if self.leads_since().is_some() { 2 } else { 1 };
            let body = format!(r#"{{"type":"no-leader","status":503,"index":{index}}}"#);
            ("503 Service Unavailable", body)
        };
        reply(client, status, &body);
    }
}

fn reply(mut client: &TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}", body.len());
    // A client that was killed reads nothing.
    let _ = write!(client, "{head}\r\nconnection: close\r\n\r\n{body}");
}

fn in_an_hour(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    (now.tv_sec + 3600) * 1_000_000_000 + now.tv_nsec
}
