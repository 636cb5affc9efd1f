//! The examples: how soon they begin to work, against a sidecar that is played; and that they stop at the deadline though
//! their sidecar is frozen and says nothing, beside `bellwether dev`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
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
        let url = play(move |client| sidecar.answer(client));
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

/// While ZooKeeper is away, nothing renews the lease: the last requests have as little time as is left of it.
#[test]
fn the_clients_do_not_blame_a_sidecar_that_answers_until_the_lease_ends() {
    let clients = Clients::prepared();
    let running = clients.commands().map(|(language, command)| {
        let begun = Mutex::new(None);
        let url = play(move |client| {
            let asked = request_line(client);
            let now = Instant::now();
            let end = *begun.lock().unwrap().get_or_insert(now + Duration::from_secs(3));
            let wait = asked.split("wait=").nth(1).and_then(|rest| rest.split("ms").next());
            let wait = Duration::from_millis(wait.unwrap().parse().unwrap());
            let left = end.saturating_duration_since(now);
            // What the answer takes on its way.
            let transit = Duration::from_millis(20);
            if left.is_zero() {
                thread::sleep(wait.min(PATIENCE));
                let away = r#"{"type":"no-leader","status":503,"index":4}"#;
                return reply(client, "503 Service Unavailable", away);
            }
            if asked.contains("index=3&") {
                thread::sleep(wait + transit);
            }
            reply(client, "200 OK", &leading(end.saturating_duration_since(Instant::now())));
        });
        Client::start(language, &url, &command, &[])
    });
    for client in &running {
        client.says("working with token 7", Instant::now() - PATIENCE);
    }
    for client in &running {
        client.says("no longer leading", Instant::now() - PATIENCE);
        let errors = client.errors.all();
        let blames = errors.iter().any(|(_, line)| line.contains("no good answer"));
        assert!(!blames, "{}: {errors:?}", client.name);
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

#[test]
fn the_clients_report_the_loss_at_the_deadline_though_an_answer_stalls() {
    let clients = Clients::prepared();
    let lease = Duration::from_secs(4);
    let running = clients.commands().map(|(language, command)| {
        let (url, leads_since) = play_stalling_leader(lease, Duration::from_secs(3));
        (Client::start(language, &url, &command, &[]), leads_since)
    });
    for (client, leads_since) in &running {
        client.says("working with token 7", Instant::now() - PATIENCE);
        let deadline = leads_since.recv_timeout(PATIENCE).unwrap() + lease;
        let over_at = client.says("no longer leading", Instant::now() - PATIENCE);
        let name = &client.name;
        assert!(over_at <= deadline + PRINT_TIMEOUT, "{name}: {:?} late", over_at - deadline);
    }
}

#[test]
fn the_clients_hold_a_lock_for_longer_than_they_would_have_waited() {
    let clients = Clients::prepared();
    let mut running = clients.commands().map(|(language, command)| {
        let (url, events) = play_lock(Some(Duration::from_secs(3600)));
        (Client::start(language, &url, &command, &["lock", "a", "1"]), events)
    });
    for (client, events) in &running {
        client.says("working with token 7", Instant::now() - PATIENCE);
        assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Requested));
    }
    // One that waits for a second gives up after six.
    let late = Instant::now() + Duration::from_secs(7);
    for (client, events) in &mut running {
        client.says("working with token 7", late);
        assert!(events.try_recv().is_err(), "{} holds it", client.name);
        client.input = None;
        client.says("no longer held", late);
        assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Closed), "{}", client.name);
    }
}

/// Otherwise the sidecar would give the lock to a program that no longer wants it.
#[test]
fn an_interrupted_wait_for_a_lock_ends_its_request() {
    let (url, events) = play_lock(None);
    let python = ["python3", "-c", PYTHON_WAIT].map(str::to_owned);
    let client = Client::start("python", &url, &python, &[]);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Requested));
    // Until it waits for the answer.
    thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&client.process), Signal::INT).unwrap();
    client.says("interrupted", Instant::now() - PATIENCE);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Closed));

    let clients = Clients::prepared();
    let (url, events) = play_lock(None);
    let mut client = Client::start("java", &url, &clients.java_check(), &["wait"]);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Requested));
    client.input = None;
    client.says("interrupted", Instant::now() - PATIENCE);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(LockEvent::Closed));
}

/// As Kotlin and Lombok let it, without a declaration.
#[test]
fn a_callback_that_throws_a_checked_exception_does_not_end_the_following() {
    let clients = Clients::prepared();
    let (url, _) = play_stalling_leader(Duration::from_secs(1), Duration::ZERO);
    let client = Client::start("java", &url, &clients.java_check(), &["throw"]);
    client.says("elected", Instant::now() - PATIENCE);
    client.says("lost", Instant::now() - PATIENCE);
}

/// Waits for a lock in the main thread, and lives on when that is interrupted.
const PYTHON_WAIT: &str = r#"
import signal, sys, time
sys.path.insert(0, "examples")
from bellwether import Bellwether
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    Bellwether().lock("a", 60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(60)
"#;

/// Interrupts the wait for a lock at the end of its standard input, or throws a checked exception from a callback.
const JAVA_CHECK: &str = r#"
final class Check {
    @SuppressWarnings("unchecked")
    private static <E extends Exception> void fail() throws E {
        throw (E) new Exception("checked");
    }

    private static void waitForLock() {
        try {
            new Bellwether().lock("a", java.time.Duration.ofSeconds(60));
        } catch (InterruptedException e) {
            System.out.println("interrupted");
        } catch (Exception e) {
            System.out.println(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("wait")) {
            var thread = new Thread(Check::waitForLock);
            thread.start();
            System.in.readAllBytes();
            thread.interrupt();
        } else {
            new Bellwether().follow(token -> {
                System.out.println("elected");
                Check.<RuntimeException>fail();
            }, () -> System.out.println("lost"));
        }
        Thread.sleep(60_000);
    }
}
"#;

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

impl Clients {
    /// Compiles [`JAVA_CHECK`], and returns the command that runs it.
    fn java_check(&self) -> Vec<String> {
        let home = self.home.path().display().to_string();
        let source = self.home.path().join("Check.java");
        fs::write(&source, JAVA_CHECK).unwrap();
        compile(&["javac", "-d", &home, "-cp", &home, &source.display().to_string()]);
        ["java", "-XX:TieredStopAtLevel=1", "-cp", &home, "Check"].map(str::to_owned).into()
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
        let mut client = Client::start(name, &member.url, command, arguments);
        client.name = format!("{name} beside {}", member.id);
        client
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
    fn start(name: &str, url: &str, command: &[String], arguments: &[&str]) -> Self {
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .args(arguments)
            .env("BELLWETHER_URL", url)
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
        Self { name: name.to_owned(), process, input, output, errors }
    }

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
    let played = Arc::clone(&sidecar);
    let url = play(move |client| played.answer(client));
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

/// Plays a sidecar that answers each connection so, until the test's process ends, and returns its URL.
fn play(answer: impl Fn(&TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || answer(&client));
        }
    });
    url
}

/// Plays a sidecar that leads, and whose next answer stalls in its body, so long after the request. Sends when each lease began.
fn play_stalling_leader(lease: Duration, headers_after: Duration) -> (String, Receiver<Instant>) {
    let (begins, leads_since) = mpsc::channel();
    let url = play(move |client| {
        let asked = request_line(client);
        if asked.contains("index=0&") {
            // Not every test wants to know.
            let _ = begins.send(Instant::now());
            reply(client, "200 OK", &leading(lease));
        } else if asked.contains("index=3&") {
            thread::sleep(headers_after);
            let mut client = client;
            // One that was killed reads nothing.
            let _ = write!(client, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{{");
            thread::sleep(PATIENCE);
        }
    });
    (url, leads_since)
}

#[derive(Debug, PartialEq)]
enum LockEvent {
    Requested,
    Closed,
}

/// Plays a sidecar that gives a lock with this lease, if any, says nothing more, and reports how its connection does.
fn play_lock(lease: Option<Duration>) -> (String, Receiver<LockEvent>) {
    let (events_in, events) = mpsc::channel();
    let url = play(move |mut client| {
        request_line(client);
        // The test that listened may be over.
        let _ = events_in.send(LockEvent::Requested);
        let event = match lease {
            Some(lease) => format!("event: held\ndata: {{\"token\":7,{}}}\n\n", valid_for(lease)),
            None => "event: waiting\ndata: {}\n\n".to_owned(),
        };
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
        // The client may have been interrupted already.
        let _ = write!(client, "{head}\r\n\r\n{:x}\r\n{event}\r\n", event.len());
        let _ = client.read(&mut [0]);
        let _ = events_in.send(LockEvent::Closed);
    });
    (url, events)
}

/// Reads a request, and returns its first line.
fn request_line(client: &TcpStream) -> String {
    let mut lines = BufReader::new(client).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.find(|line| line.is_empty());
    first
}

fn leading(lease: Duration) -> String {
    let lease = valid_for(lease);
    format!(r#"{{"leader":{{"id":"a","token":7}},"is_self":true,"token":7,{lease},"index":3}}"#)
}

/// Returns the fields of an answer that say until when it counts.
fn valid_for(lease: Duration) -> String {
    let lease_ms = lease.as_millis();
    let boottime = later(ClockId::Boottime, lease);
    let monotonic = later(ClockId::Monotonic, lease);
    format!(
        r#""valid_for_ms":{lease_ms},"valid_until_boottime_ns":{boottime},"valid_until_monotonic_ns":{monotonic}"#
    )
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
        let asked = request_line(client);
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
            ("200 OK", leading(Duration::from_secs(3600)))
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

fn later(clock: ClockId, by: Duration) -> u128 {
    let now = Duration::try_from(clock_gettime(clock)).unwrap();
    (now + by).as_nanos()
}
