//! `bellwether dev` on the real binary: what it prints, what its keys do, and that nothing outlives it. And
//! `scripts/quickstart`, which starts its server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, tcgetattr};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const BELLWETHER: &str = env!("CARGO_BIN_EXE_bellwether");
/// For what takes no time but that of a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// The session's timeout and a tick, when it ends at the latest, and what is done then.
const TAKEOVER_TIMEOUT: Duration = Duration::from_millis(4000 + 500 + 1500);

/// Neither what is set for another member nor for another program has a say in it.
#[test]
fn another_leads_after_a_crash_and_ctrl_c_ends_all_of_it() {
    let mut command = dev(&["--listen", "127.0.0.1:0"]);
    command.env("BELLWETHER_ID", "stranger").env("BELLWETHER_TLS_CA", "/nowhere");
    let mut dev = Dev::started(command);
    let members = [dev.member("a"), dev.member("b"), dev.member("c")];
    assert!(members[1].answers("/leader", "\"leader\":{\"id\":\"a\""));
    dev.line("a leads, fencing token ");

    let crashed = Instant::now();
    signal(members[0].process, Signal::KILL);
    dev.line("a, which leads, is gone: ended by signal 9");
    let next = dev.line(" leads, fencing token ");
    assert!(crashed.elapsed() < TAKEOVER_TIMEOUT, "{next}");
    assert!(next.contains(" b leads") && next.contains("s after a ended"), "{next}");
    assert!(members[1].answers("/leader", "\"is_self\":true"));

    let logs = dev.logs();
    assert!(Path::new(&logs).join("b.log").exists());
    dev.signal(Signal::INT);
    assert_eq!(dev.exit_code(), Some(0), "{:#?}", dev.seen);
    eventually("no member is left", || !members.iter().any(Member::runs));
    assert!(!Path::new(&logs).exists(), "{logs}");
}

/// Not even a member that is stopped, and so handles no signal.
#[test]
fn nothing_outlives_a_dev_that_is_killed() {
    let mut dev = Dev::started(dev(&["--listen", "127.0.0.1:0", "--members", "2"]));
    let members = [dev.member("a"), dev.member("b")];
    assert!(members.iter().all(Member::runs));
    signal(members[0].process, Signal::STOP);
    dev.signal(Signal::KILL);
    eventually("no member is left", || !members.iter().any(Member::runs));
    fs::remove_dir_all(dev.logs()).unwrap();
}

#[test]
fn keys_act_at_once_and_the_terminal_is_left_as_it_was() {
    let (mut dev, terminal) = Dev::at_terminal(&["--listen", "127.0.0.1:0", "--members", "2"]);
    let before = terminal.mode();
    let members = [dev.member("a"), dev.member("b")];
    dev.line("keys: k  kill the leader");
    dev.line("a leads, fencing token ");

    terminal.press("r");
    let next = dev.line(" b leads, fencing token ");
    assert!(next.contains("after a was told to resign"), "{next}");

    terminal.press("f");
    dev.line("b, which leads, is frozen");
    let next = dev.line(" a leads, fencing token ");
    assert!(next.contains("s after b was frozen"), "{next}");
    terminal.press("f");
    dev.line("b goes on");

    terminal.press("a");
    let added = dev.member("c");
    terminal.press("k");
    dev.line("a, which leads, is gone: ended by signal 9");
    // Which of the two has joined first is up to them.
    let next = dev.line(" leads, fencing token ");
    assert!(next.contains("s after a ended"), "{next}");

    assert_ne!(terminal.mode().local_modes, before.local_modes);
    terminal.press("q");
    assert_eq!(dev.exit_code(), Some(0), "{:#?}", dev.seen);
    assert_eq!(terminal.mode().local_modes, before.local_modes);
    eventually("no member is left", || !members.iter().chain([&added]).any(Member::runs));
}

#[test]
fn the_first_port_answers_for_as_long_as_a_member_runs() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut dev = Dev::started(dev(&[
        "--listen",
        "127.0.0.1:0",
        "--members",
        "2",
        "--port",
        &port,
        "--session-timeout",
        "3s",
    ]));
    let line = dev.line("election   http://127.0.0.1:");
    let first = line.split_whitespace().nth(1).unwrap().to_owned();
    let members = [dev.member("a"), dev.member("b")];
    assert!(answer(&first, "/leader").contains("\"leader\":{\"id\":\"a\""));
    assert!(
        answer(&first, "/status").contains("\"timeout_ms\":3000"),
        "{}",
        answer(&first, "/status")
    );
    signal(members[0].process, Signal::STOP);
    eventually("b answers", || answer(&first, "/status").contains("\"id\":\"b\",\"role\""));
    signal(members[0].process, Signal::CONT);
    eventually("a answers", || answer(&first, "/status").contains("\"id\":\"a\",\"role\""));
    signal(members[0].process, Signal::KILL);
    // On a busy machine its lease may have run out while it was stopped.
    dev.line(" is gone: ended by signal 9");
    eventually("b leads", || answer(&first, "/leader").contains("\"leader\":{\"id\":\"b\""));
    dev.signal(Signal::TERM);
    assert_eq!(dev.exit_code(), Some(0), "{:#?}", dev.seen);
}

#[test]
fn a_taken_port_is_skipped() {
    // Another test may have the port, and give it up at any moment. A program that keeps it serves this test as well.
    let given_up_at = Instant::now() + Duration::from_secs(20);
    let mut taken = TcpListener::bind("127.0.0.1:4040");
    while taken.is_err() && Instant::now() < given_up_at {
        thread::sleep(Duration::from_millis(50));
        taken = TcpListener::bind("127.0.0.1:4040");
    }
    let mut dev = Dev::started(dev(&["--listen", "127.0.0.1:0", "--members", "1"]));
    let line = dev.line("election   http://127.0.0.1:");
    assert!(!line.contains("http://127.0.0.1:4040 "), "{line}");
    dev.signal(Signal::TERM);
    assert_eq!(dev.exit_code(), Some(0), "{:#?}", dev.seen);
}

#[test]
fn the_server_alone_prints_its_connect_string_and_serves_until_it_is_ended() {
    let mut dev = Dev::started(dev(&["--only-server", "--listen", "127.0.0.1:0"]));
    let address = dev.line("127.0.0.1:");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
    dev.signal(Signal::TERM);
    assert_eq!(dev.exit_code(), Some(0), "{:#?}", dev.seen);
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let taken_at = format!("cannot listen at {taken} (--listen)");
    for (arguments, code, told) in [
        (&["--listen", &taken][..], 1, [&taken_at, "--listen 127.0.0.1:0 for a free port"]),
        (&["--only-server", "--listen", &taken], 1, [&taken_at, "Address already in use"]),
        (&["--listen", "2181"], 2, ["'2181' for '--listen <IP:PORT>'", "invalid socket address"]),
        (&["--members", "0"], 2, ["'0' for '--members <NUMBER>'", "1..=26"]),
        (&["--members", "27"], 2, ["'27' for '--members <NUMBER>'", "1..=26"]),
        (&["--port", "0"], 2, ["'0' for '--port <PORT>'", "1..=65535"]),
        (
            &["--session-timeout", "1s"],
            2,
            ["'1s' for '--session-timeout <DURATION>'", "from 2s to 40s"],
        ),
        (&["--members", "3", "--only-server"], 2, ["--members <NUMBER>", "--only-server"]),
    ] {
        let Output { status, stderr, .. } = dev(arguments).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(told.iter().all(|told| stderr.contains(told)), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_quickstart_shows_a_leader_a_crash_the_next_leader_and_a_lock_that_passes_on() {
    let Output { status, stdout, stderr } = quickstart(&[]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{stdout}{stderr}");
    for told in [
        "== the leader: every member knows it\n",
        "/leader    # c\n{\"leader\":{\"id\":\"a\"",
        "== the queue: the head leads",
        "== the leader crashes\n",
        "== b leads: both survivors say so, ",
        "/leader    # b\n{\"leader\":{\"id\":\"b\",\"address\":\"127.0.0.1:8002\"",
        "== a lock: two programs are to run under it, and one does\n",
        "== second runs, ",
    ] {
        assert!(stdout.contains(told), "{told}: {stdout}{stderr}");
    }
    for is in ["  waits  exclusive", "  holds  exclusive"] {
        let is_listed = |line: &str| line.starts_with("b ") && line.contains(is);
        assert!(stdout.lines().any(is_listed), "{is}: {stdout}");
    }
    assert_eq!(stderr, "");
}

#[test]
fn the_quickstart_leaves_all_running_if_it_is_told_to_and_says_how_to_stop_it() {
    // Not by pipes, which would stay open for as long as what is left running.
    let told = tempfile::NamedTempFile::new().unwrap();
    let status = quickstart(&["--keep"]).stdout(told.reopen().unwrap()).status().unwrap();
    let told = fs::read_to_string(told.path()).unwrap();
    assert!(status.success(), "{told}");
    let members: Vec<_> = ["a", "b", "c"].map(|id| url_in(&told, id)).into();
    let stop = told.lines().find_map(|line| line.strip_prefix("    kill ")).unwrap();
    let (processes, home) = stop.split_once("; rm -rf ").unwrap();
    let processes: Vec<i32> = processes.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(processes.len(), 4, "the server and three members: {told}");
    let answers = |url: &String| answer(url, "/leader").contains("\"id\":\"b\"");
    let all_answer = members.iter().all(answers);
    for process in &processes {
        signal(*process, Signal::TERM);
    }
    eventually("all has ended", || !processes.iter().any(|process| runs(*process)));
    fs::remove_dir_all(home).unwrap();
    assert!(all_answer, "{told}");
}

fn quickstart(arguments: &[&str]) -> Command {
    let mut command = Command::new("scripts/quickstart");
    command.args(["--binary", BELLWETHER]).args(arguments).env_remove("ZOOKEEPER");
    command
}

/// The URL that is told last of this member.
fn url_in(told: &str, id: &str) -> String {
    let line = told.lines().rfind(|line| line.starts_with(&format!("{id}    "))).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

fn dev(arguments: &[&str]) -> Command {
    let mut command = Command::new(BELLWETHER);
    command.arg("dev").args(arguments).stdin(Stdio::null());
    command
}

/// A `bellwether dev` that runs. What it prints is read as it comes.
struct Dev {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

struct Member {
    url: String,
    process: i32,
}

impl Dev {
    fn started(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Self { child, lines, seen: vec![] }
    }

    fn at_terminal(arguments: &[&str]) -> (Self, Terminal) {
        let terminal = Terminal::new();
        let child = dev(arguments)
            .stdin(terminal.inside.try_clone().unwrap())
            .stdout(terminal.inside.try_clone().unwrap())
            .spawn()
            .unwrap();
        let lines = lines_of(terminal.outside.try_clone().unwrap());
        (Self { child, lines, seen: vec![] }, terminal)
    }

    /// Waits for the next line that has this in it.
    fn line(&mut self, part: &str) -> String {
        let limit = Instant::now() + PATIENCE;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line has {part:?} in it: {:#?}", self.seen);
            };
            self.seen.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits for the line that says where this member is.
    fn member(&mut self, id: &str) -> Member {
        let line = self.line(&format!("{id}          http://127.0.0.1:"));
        let words: Vec<_> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == id).unwrap();
        Member { url: words[at + 1].into(), process: words[at + 3].parse().unwrap() }
    }

    fn logs(&self) -> String {
        let line = self.seen.iter().find_map(|line| line.strip_prefix("logs       "));
        line.expect("it is told first").to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        eventually("it ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Member {
    fn runs(&self) -> bool {
        runs(self.process)
    }

    fn answers(&self, path: &str, part: &str) -> bool {
        answer(&self.url, path).contains(part)
    }
}

fn answer(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    // A member that is stopped does not answer.
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = String::new();
    let _read = stream.read_to_string(&mut answer);
    answer
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let read = BufReader::new(output).lines().map_while(Result::ok);
        let _receiver_gone =
            read.map(|line| sender.send(line.trim_end().to_owned())).find(Result::is_err);
    });
    lines
}

/// A terminal: what is written outside are keys, and what is read there is what is shown.
struct Terminal {
    outside: File,
    inside: File,
}

impl Terminal {
    fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outside = openpt(flags).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, vec![]).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inside = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        Self { outside: outside.into(), inside: inside.into() }
    }

    fn press(&self, keys: &str) {
        (&self.outside).write_all(keys.as_bytes()).unwrap();
    }

    fn mode(&self) -> Termios {
        tcgetattr(&self.inside).unwrap()
    }
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
}

/// Whether this process is one of ours: one that is dead, and was waited for by none, has no command line.
fn runs(process: i32) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("bellwether")
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
