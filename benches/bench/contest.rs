//! Who hands leadership over, side by side: our members as processes, their peers, and the floor.

use crate::{
    member::{Member, Setup},
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// No hand-over that works takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) trait Contestant {
    /// Has the leader give up. Returns how long it took until its successor had said so outside its
    /// process, and only when all of them stand in line again.
    fn hand_over(&mut self) -> Duration;
}

/// As many processes of ours, each told and asked over HTTP.
pub(crate) struct Members {
    /// In the order of the line.
    line: VecDeque<Member>,
}

impl Members {
    pub(crate) fn in_line(setup: &Setup, count: usize) -> Self {
        let line: VecDeque<Member> = (0..count)
            .map(|n| {
                let member = setup.start(&format!("m{n}"));
                has_role(&member, if n == 0 { "leader" } else { "follower" });
                member
            })
            .collect();
        Self { line }
    }

    /// The leader, with the next ones behind it.
    pub(crate) fn line(&mut self) -> &mut VecDeque<Member> {
        &mut self.line
    }
}

impl Contestant for Members {
    fn hand_over(&mut self) -> Duration {
        let (leader, next) = (&self.line[0], &self.line[1]);
        let mut events = connect(next);
        events.write_all(EVENTS).expect("it reads");
        read_until(&mut events, "event: state");
        let mut orders = connect(leader);
        let asked = Instant::now();
        orders.write_all(RESIGN).expect("it reads");
        read_until(&mut events, "event: became-leader");
        let took = asked.elapsed();
        let answer = read_until(&mut orders, "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        has_role(leader, "follower");
        // The word comes to the last of the others last: until then the next hand-over would begin in the
        // midst of this one.
        let last = self.line.back().expect("there are some");
        eventually("the word has come down the line", || {
            let known = last.status()["leader"]["id"].clone();
            if last.id == next.id || known == next.id { Ok(()) } else { Err(known.to_string()) }
        });
        self.line.rotate_left(1);
        took
    }
}

const EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
const RESIGN: &[u8] = b"POST /resign HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\n\r\n";

fn connect(member: &Member) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", member.port())).expect("it listens");
    stream.set_nodelay(true).expect("it is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
    stream
}

/// Returns what came, when it has these words.
fn read_until(stream: &mut TcpStream, words: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(words) {
        let length = stream.read(&mut buffer).expect("it goes on and is not stuck");
        assert!(length > 0, "it ended after {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    text
}

pub(crate) fn has_role(member: &Member, role: &str) {
    eventually("it stands where it should", || {
        let status = member.status();
        let known = !status["leader"].is_null();
        if status["role"] == role && known { Ok(()) } else { Err(status.to_string()) }
    });
}

/// A process with contenders of another make. It says `ready` when all of them stand in line, `leads`
/// each time one comes to lead, and `back` when the one that was asked to `release` is in line again.
pub(crate) struct Others {
    process: Process,
    input: ChildStdin,
    said: Receiver<(Instant, String)>,
}

impl Others {
    /// The first of them leads.
    pub(crate) fn start(program: &str, arguments: &[String]) -> Self {
        Self::begin(program, arguments, &["leads", "ready"])
    }

    /// Returns when it has said these words.
    pub(crate) fn begin(program: &str, arguments: &[String], words: &[&str]) -> Self {
        let mut command = tied_to_this_thread(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let input = process.child().stdin.take().expect("it is piped");
        let output = process.child().stdout.take().expect("it is piped");
        let (say, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _nobody_listens = say.send((Instant::now(), line));
            }
        });
        let others = Self { process, input, said };
        others.says(words);
        others
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has said all of these words, in any order, and returns when it said the first.
    fn says(&self, words: &[&str]) -> Instant {
        let mut missing = words.to_vec();
        let mut at = None;
        while !missing.is_empty() {
            let (said_at, line) =
                self.said.recv_timeout(PATIENCE).expect("the contender goes on and is not stuck");
            if line == words[0] {
                at = Some(said_at);
            }
            missing.retain(|word| *word != line);
        }
        at.expect("all were said")
    }
}

impl Contestant for Others {
    fn hand_over(&mut self) -> Duration {
        let asked = Instant::now();
        self.input.write_all(b"release\n").expect("the contender reads");
        self.says(&["leads", "back"]) - asked
    }
}
