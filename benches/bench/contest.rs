//! Hand-overs side by side: our members as processes, their peers, and the floor.

use crate::{
    member::{Handovers, Member, Setup},
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// No hand-over that works takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) trait Contestant {
    /// Waits until nothing of an earlier hand-over is still under way.
    fn prepare(&mut self);

    /// Has the leader give up. Returns how long it took until its successor had said so outside its
    /// process, and only when all of them are in the queue again.
    fn hand_over(&mut self) -> Duration;

    /// By which way members of ours came to lead so far.
    fn handovers(&self) -> Handovers {
        Handovers::default()
    }
}

/// Processes of ours, each commanded and asked over HTTP.
pub(crate) struct Members {
    /// In the order of the queue.
    members: VecDeque<Member>,
    /// The leader's connection for the command, and the next leader's stream of events.
    prepared: Option<[TcpStream; 2]>,
}

impl Members {
    pub(crate) fn in_queue(setup: &Setup, count: usize) -> Self {
        Self::in_queue_with(count, |_| setup.clone())
    }

    /// Each has the setup that is made for its name.
    pub(crate) fn in_queue_with(count: usize, setup: impl Fn(&str) -> Setup) -> Self {
        let members: VecDeque<Member> = (0..count)
            .map(|n| {
                let id = format!("m{n}");
                let member = setup(&id).start(&id);
                has_role(&member, if n == 0 { "leader" } else { "follower" });
                member
            })
            .collect();
        Self { members, prepared: None }
    }

    /// The leader, with the next ones behind it.
    pub(crate) fn members(&mut self) -> &mut VecDeque<Member> {
        &mut self.members
    }

    /// Returns when all of them have left: no session of theirs is there to expire.
    pub(crate) fn leave(mut self) {
        self.members.iter().for_each(|member| member.signal("TERM"));
        for member in &mut self.members {
            member.wait();
        }
    }

    pub(crate) fn wait_for_standby(&self) {
        eventually("the standby is ready", || self.members[1].is_ready_standby());
    }
}

impl Contestant for Members {
    fn prepare(&mut self) {
        self.wait_for_standby();
        let (mut orders, mut events) = (connect(&self.members[0]), connect(&self.members[1]));
        events.write_all(EVENTS).expect("it reads");
        read_until(&mut events, "event: state");
        // An answer on it says that the connection is accepted and waits for more.
        orders.write_all(LOOK).expect("it reads");
        read_until(&mut orders, "}");
        self.prepared = Some([orders, events]);
    }

    fn hand_over(&mut self) -> Duration {
        let [mut orders, mut events] = self.prepared.take().expect("it was prepared");
        let asked = Instant::now();
        orders.write_all(RESIGN).expect("it reads");
        read_until(&mut events, "event: became-leader");
        let took = asked.elapsed();
        let answer = read_until(&mut orders, "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        let (leader, next) = (&self.members[0], &self.members[1]);
        has_role(leader, "follower");
        // The announcement reaches the last member last: before that, the next hand-over would begin while this
        // one goes on.
        let last = self.members.back().expect("there are some");
        eventually("the announcement has come down the queue", || {
            let known = last.status()["leader"]["id"].clone();
            if last.id == next.id || known == next.id { Ok(()) } else { Err(known.to_string()) }
        });
        self.members.rotate_left(1);
        took
    }

    fn handovers(&self) -> Handovers {
        let mut sum = Handovers::default();
        for member in &self.members {
            sum += member.handovers().expect("a member counts how it came to lead");
        }
        sum
    }
}

const EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LOOK: &[u8] = b"GET /is-leader HTTP/1.1\r\nhost: localhost\r\n\r\n";
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

/// Where contenders meet.
pub(crate) struct Contest {
    pub(crate) servers: String,
    pub(crate) path: String,
    pub(crate) session: Duration,
}

/// Processes with contenders of another client. Each connects to us and says `ready` when its contenders are in the
/// queue, `leads` each time that one comes to lead, and, asked to `settle` after it was told to `release`, `back` when all
/// are in the queue again.
pub(crate) struct Others {
    /// How each process is started.
    commands: Vec<Command>,
    processes: Vec<Process>,
    wires: Vec<TcpStream>,
    leader: usize,
    said: Receiver<Said>,
    say: Sender<Said>,
}

/// A program and its arguments, before and after the port where we listen.
struct Command {
    program: String,
    before: Vec<String>,
    after: Vec<String>,
}

struct Said {
    at: Instant,
    /// The process's number.
    by: usize,
    word: String,
}

impl Others {
    /// A process for each of these numbers of contenders, one after another. The first of the first leads.
    pub(crate) fn start(
        program: &str,
        arguments: &[String],
        contest: &Contest,
        counts: &[usize],
    ) -> Self {
        let (say, said) = channel();
        let (commands, processes, wires) = (vec![], vec![], vec![]);
        let mut others = Self { commands, processes, wires, leader: 0, said, say };
        let all: usize = counts.iter().sum();
        let mut before = 0;
        for &count in counts {
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            let mut after = vec![contest.servers.clone(), contest.path.clone()];
            after.extend([count, before, all].map(|number| number.to_string()));
            after.push(contest.session.as_millis().to_string());
            let (program, before_port) = (program.to_owned(), arguments.to_vec());
            let command = Command { program, before: before_port, after };
            others.join(command.start(&listener), &listener);
            others.commands.push(command);
            before += count;
        }
        others
    }

    fn join(&mut self, process: Process, listener: &TcpListener) {
        let by = self.processes.len();
        self.processes.push(process);
        listener.set_nonblocking(true).expect("it is open");
        let wire = eventually("the contender connects", || {
            if let Some(status) = self.processes[by].ended() {
                panic!("the contender ended: {status}");
            }
            listener.accept().map_err(|error| error.to_string())
        });
        let (wire, _) = wire;
        wire.set_nonblocking(false).expect("it is open");
        wire.set_nodelay(true).expect("it is open");
        let (say, reading) = (self.say.clone(), wire.try_clone().expect("it is open"));
        thread::spawn(move || {
            for word in BufReader::new(reading).lines().map_while(Result::ok) {
                let _receiver_gone = say.send(Said { at: Instant::now(), by, word });
            }
        });
        self.wires.push(wire);
        // A contender may come to lead before the last one has joined, or after.
        let mut missing = if by == 0 { vec!["leads", "ready"] } else { vec!["ready"] };
        while !missing.is_empty() {
            let said = self.hear();
            let nth = missing.iter().position(|word| *word == said.word);
            missing.remove(nth.expect("it says what it is to say"));
        }
    }

    /// Kills the leader's process, which its parent starts again after this delay. Returns how long it took until the next
    /// leader had said so outside its process.
    pub(crate) fn crash(mut self, restart_delay: Duration) -> Duration {
        let killed = Instant::now();
        self.processes[self.leader].kill();
        thread::sleep(restart_delay);
        // It joins at the tail, behind what it was before. What it says is not heard.
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let _again = self.commands[self.leader].start(&listener);
        let next = self.hear();
        assert_eq!(next.word, "leads");
        next.at - killed
    }

    pub(crate) fn process_id(&self, nth: usize) -> u32 {
        self.processes[nth].id()
    }

    fn tell(&mut self, nth: usize, order: &[u8]) {
        self.wires[nth].write_all(order).expect("the contender reads");
    }

    fn hear(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("the contender goes on and is not stuck")
    }
}

impl Command {
    fn start(&self, listener: &TcpListener) -> Process {
        let port = listener.local_addr().expect("it is bound").port().to_string();
        let mut command = tied_to_this_thread(&self.program);
        Process::start(command.args(&self.before).arg(port).args(&self.after))
    }
}

impl Contestant for Others {
    fn prepare(&mut self) {}

    fn hand_over(&mut self) -> Duration {
        let leader = self.leader;
        let asked = Instant::now();
        self.tell(leader, b"release\n");
        let next = self.hear();
        assert_eq!(next.word, "leads");
        self.leader = next.by;
        self.tell(leader, b"settle\n");
        assert_eq!(self.hear().word, "back");
        next.at - asked
    }
}
