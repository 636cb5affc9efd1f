//! Who hands leadership over, side by side: our members as processes, their peers, and the floor.

use crate::{
    member::{Member, Setup},
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
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
        let took = thread::scope(|scope| {
            let mut events = next.stream("/events");
            let first = events.event();
            assert_ne!(first.data["is_self"], true, "it does not lead yet");
            let leads = scope.spawn(move || {
                while events.event().data["is_self"] != true {}
                Instant::now()
            });
            let asked = Instant::now();
            assert_eq!(leader.post("/resign").status, 202);
            leads.join().expect("the stream goes on until it leads") - asked
        });
        has_role(leader, "follower");
        self.line.rotate_left(1);
        took
    }
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
