//! Locks: one that is free is taken, one passes on, and a hundred wait for one; ours, Curator's and kazoo's.

use crate::{
    contest::has_role,
    handover::{CURATOR, measured_setup},
    member::Member,
    process::{Process, tied_to_this_thread},
    report::{Bound, Section, Times, ms, ratio},
    scene::{Ensemble, Scene, beside},
    wait::eventually,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    iter,
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Before each measurement: nothing is under way.
const REST: Duration = Duration::from_millis(50);
/// Until a hundred are surely in the queue.
const LONG_REST: Duration = Duration::from_secs(1);
/// Nothing that works takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
const SESSION: Duration = Duration::from_secs(20);

/// How many wait at once.
const CROWD: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    Bellwether,
    Curator,
    Kazoo,
}

const CONTENDERS: [(Contender, &str); 3] = [
    (Contender::Bellwether, "Bellwether"),
    (Contender::Curator, "Curator's InterProcessMutex"),
    (Contender::Kazoo, "kazoo's Lock"),
];

/// What one contender took.
#[derive(Clone, Default)]
struct Measured {
    taken: Times,
    passed_on: Times,
    in_a_crowd: Times,
}

pub(crate) fn locks(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Locks",
        "Applications that take a lock in turn, by way of two sessions: of two sidecars, or of two clients in one process of \
         another library, as a comparison in its favour. *Taken*: from asking for a lock that is free until an observer outside reads \
         that it is held. *Passed on*: from the order to give it back until that observer reads that the next one holds, which was in \
         the queue before. *In a crowd*: the same, while up to a hundred wait. Orders and answers go over TCP connections of the \
         loopback device; those of the other libraries were opened before, and each lock of ours has one of its own, which is opened and \
         closed within the time. They take turns.",
    );
    for Ensemble { name: ensemble, servers } in scene.ensembles() {
        let servers = &servers.connect_string();
        let mut measured = vec![Measured::default(); CONTENDERS.len()];
        for _ in 0..scene.repetitions() {
            for ((contender, _), measured) in iter::zip(CONTENDERS, &mut measured) {
                let mut applications = started(scene, contender, servers);
                measure(&mut *applications, scene.pick(60, 10), measured);
            }
        }
        let rows = iter::zip(CONTENDERS, &measured).map(|((_, name), measured)| {
            let Measured { taken, passed_on, in_a_crowd } = measured;
            let times = [taken, passed_on, in_a_crowd];
            let cells = times.iter().flat_map(|it| [ms(it.median_ms()), ms(it.p99_ms())]);
            iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();
        section.say(&format!("{ensemble}:"));
        let columns = ["Who", "Taken", "99 %", "Passed on", "99 %", "In a crowd", "99 %"];
        section.table(&columns, &rows);
        let ours = &measured[0];
        for ((contender, name), theirs) in iter::zip(CONTENDERS, &measured).skip(1) {
            let of = |times: fn(&Measured) -> &Times| {
                times(ours).median_ms() / times(theirs).median_ms()
            };
            let most = match contender {
                Contender::Curator if ensemble == "One server" => 0.5,
                Contender::Kazoo if ensemble == "One server" => 0.55,
                _ => 0.6,
            };
            let goal = format!("{ensemble}: passed on in at most {most} × {name}");
            section.goal(&goal, of(|it| &it.passed_on), Bound::AtMost(most));
            let goal = format!("{ensemble}: taken in at most 1.25 × {name}");
            section.goal(&goal, of(|it| &it.taken), Bound::AtMost(1.25));
            let crowd = ratio(of(|it| &it.in_a_crowd));
            section.say(&format!("In a crowd, to {name}: {crowd}."));
        }
    }
    section
}

fn measure(applications: &mut dyn Applications, times: usize, measured: &mut Measured) {
    for _ in 0..times {
        thread::sleep(REST);
        let asked = Instant::now();
        applications.ask(0);
        let (_, held) = applications.held();
        measured.taken.add(held - asked);
        applications.give(0);
    }

    thread::sleep(REST);
    applications.ask(0);
    let (mut holder, _) = applications.held();
    for _ in 0..times {
        applications.ask(1 - holder);
        thread::sleep(REST);
        let told = Instant::now();
        applications.give(holder);
        let (next, held) = applications.held();
        measured.passed_on.add(held - told);
        holder = next;
    }
    applications.give(holder);

    thread::sleep(REST);
    (0..CROWD).for_each(|nth| applications.ask(nth));
    let (mut holder, _) = applications.held();
    thread::sleep(LONG_REST);
    for _ in 1..CROWD {
        let told = Instant::now();
        applications.give(holder);
        let (next, held) = applications.held();
        measured.in_a_crowd.add(held - told);
        holder = next;
    }
    applications.give(holder);
    thread::sleep(REST);
}

/// Who ask for one lock, by number.
trait Applications {
    fn ask(&mut self, nth: usize);

    /// Waits until one holds it. Returns which, and when it had said so outside its process.
    fn held(&mut self) -> (usize, Instant);

    fn give(&mut self, nth: usize);
}

fn started(scene: &Scene, contender: Contender, servers: &str) -> Box<dyn Applications> {
    let path = scene.path();
    match contender {
        Contender::Bellwether => Box::new(Ours::started(scene, servers, &path)),
        Contender::Curator => {
            let arguments = ["-cp".to_owned(), CURATOR.to_owned(), beside("Mutex.java")];
            Box::new(Others::started("java", &arguments, servers, &path))
        }
        Contender::Kazoo => {
            Box::new(Others::started("python3", &[beside("mutexes.py")], servers, &path))
        }
    }
}

/// Each lock is a stream of one of two sidecars.
struct Ours {
    members: Vec<Member>,
    held: BTreeMap<usize, TcpStream>,
    said: Receiver<(usize, Instant)>,
    say: Sender<(usize, Instant)>,
}

impl Ours {
    fn started(scene: &Scene, servers: &str, path: &str) -> Self {
        let setup = measured_setup(scene, servers, path)
            .option("--recipes-root", &format!("{path}-recipes"));
        // The second starts once the first leads: who joins first is else a matter of luck.
        let started = |id, role| {
            let member = setup.start(id);
            has_role(&member, role);
            member
        };
        let members = vec![started("m0", "leader"), started("m1", "follower")];
        let (say, said) = channel();
        Self { members, held: BTreeMap::new(), said, say }
    }
}

impl Applications for Ours {
    fn ask(&mut self, nth: usize) {
        let port = self.members[nth % self.members.len()].port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_nodelay(true).expect("it is open");
        stream
            .write_all(b"POST /locks/bench HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\n\r\n")
            .expect("it reads");
        let (say, reading) = (self.say.clone(), stream.try_clone().expect("it is open"));
        self.held.insert(nth, stream);
        thread::spawn(move || {
            for line in BufReader::new(reading).lines().map_while(Result::ok) {
                if line == "event: held" {
                    let _receiver_gone = say.send((nth, Instant::now()));
                }
            }
        });
    }

    fn held(&mut self) -> (usize, Instant) {
        self.said.recv_timeout(PATIENCE).expect("one of them holds")
    }

    fn give(&mut self, nth: usize) {
        let stream = self.held.remove(&nth).expect("it asked");
        stream.shutdown(Shutdown::Both).expect("it is open");
    }
}

/// All in one process, which is told `ask N` and `give N`, and says `held N`; at first, `ready`.
struct Others {
    _process: Process,
    wire: TcpStream,
    said: Receiver<(Instant, String)>,
}

impl Others {
    fn started(program: &str, arguments: &[String], servers: &str, path: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port().to_string();
        let session = SESSION.as_millis().to_string();
        let crowd = CROWD.to_string();
        let mut command = tied_to_this_thread(program);
        command.args(arguments).args([&port, servers, path, &crowd, &session]);
        let mut process = Process::start(&mut command);
        listener.set_nonblocking(true).expect("it is open");
        let (wire, _) = eventually("it connects", || {
            if let Some(status) = process.ended() {
                panic!("it ended: {status}");
            }
            listener.accept().map_err(|error| error.to_string())
        });
        wire.set_nonblocking(false).expect("it is open");
        wire.set_nodelay(true).expect("it is open");
        let (say, said) = channel();
        let reading = wire.try_clone().expect("it is open");
        thread::spawn(move || {
            for word in BufReader::new(reading).lines().map_while(Result::ok) {
                let _receiver_gone = say.send((Instant::now(), word));
            }
        });
        let others = Self { _process: process, wire, said };
        assert_eq!(others.hear().1, "ready");
        others
    }

    fn tell(&mut self, order: &str) {
        self.wire.write_all(order.as_bytes()).expect("it reads");
    }

    fn hear(&self) -> (Instant, String) {
        self.said.recv_timeout(PATIENCE).expect("it goes on and is not stuck")
    }
}

impl Applications for Others {
    fn ask(&mut self, nth: usize) {
        self.tell(&format!("ask {nth}\n"));
    }

    fn held(&mut self) -> (usize, Instant) {
        let (at, word) = self.hear();
        let nth = word.strip_prefix("held ").and_then(|nth| nth.parse().ok());
        (nth.expect("it says who holds"), at)
    }

    fn give(&mut self, nth: usize) {
        self.tell(&format!("give {nth}\n"));
    }
}
