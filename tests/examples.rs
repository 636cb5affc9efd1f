//! The examples that ask with an index, against a sidecar that is played: how soon they begin to work.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long after its member an application may begin to work.
const REACTION: Duration = Duration::from_millis(50);
/// For how long no leader is known between two of them.
const GAP: Duration = Duration::from_millis(5);

#[test]
fn the_shell_example_misses_no_time_between_two_leaders() {
    // What it starts for each answer, and there are two: on a busy machine that takes longer than all the rest.
    begins_with_its_member(&["bash", "examples/worker.sh"], &["curl", "jq", "curl", "jq"]);
}

#[test]
fn the_python_example_misses_no_time_between_two_leaders() {
    begins_with_its_member(&["python3", "examples/worker.py"], &[]);
}

#[test]
fn the_go_example_misses_no_time_between_two_leaders() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("worker").display().to_string();
    let compiled = Command::new("gccgo").args(["-o", &program, "examples/worker.go"]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "gccgo compiles the example");
    begins_with_its_member(&[&program], &[]);
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
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sidecar = Arc::<Sidecar>::default();
    let played = Arc::clone(&sidecar);
    // It ends with the test's process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let sidecar = Arc::clone(&played);
            thread::spawn(move || sidecar.answer(&client));
        }
    });
    let mut example = Command::new(command[0]);
    example.args(&command[1..]).env("BELLWETHER", url).env_remove("http_proxy");
    let mut child = example.stdout(Stdio::piped()).spawn().unwrap();
    let says = BufReader::new(child.stdout.take().unwrap());
    let mut example = Example { child, says };
    let mut line = String::new();
    example.says.read_line(&mut line).unwrap();
    let worked = Instant::now();
    assert_eq!(line, "working with token 7\n");
    worked - sidecar.leads_since().expect("it leads")
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
struct Sidecar(Mutex<Option<Instant>>);

impl Sidecar {
    /// Returns since when it leads; the moment may be yet to come.
    fn leads_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap()
    }

    fn answer(&self, mut client: &TcpStream) {
        let mut lines = BufReader::new(client).lines().map_while(Result::ok);
        let asked = lines.next().unwrap_or_default();
        lines.find(|line| line.is_empty());
        let leads = || self.leads_since().is_some_and(|since| since <= Instant::now());
        let waits = asked.contains("index=");
        if waits && !leads() {
            let begins = Instant::now() + GAP;
            let mut since = self.0.lock().unwrap();
            let is_first = since.is_none();
            let since = *since.get_or_insert(begins);
            if !is_first {
                thread::sleep(since.saturating_duration_since(Instant::now()));
            }
        }
        let (status, body) = if leads() {
            let until = until();
            let lease = format!(r#""valid_for_ms":9000,"valid_until_boottime_ns":{until}"#);
            let body = format!(
                r#"{{"leader":{{"id":"a","token":7}},"is_self":true,"token":7,{lease},"index":3}}"#
            );
            ("200 OK", body)
        } else {
            let index = if self.leads_since().is_some() { 2 } else { 1 };
            let body = format!(r#"{{"type":"no-leader","status":503,"index":{index}}}"#);
            ("503 Service Unavailable", body)
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}", body.len());
        // A client that was killed reads nothing.
        let _ = write!(client, "{head}\r\nconnection: close\r\n\r\n{body}");
    }
}

/// Returns a deadline in an hour, by the clock of `/proc/uptime`.
fn until() -> u64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    (seconds + 3600) * 1_000_000_000
}
