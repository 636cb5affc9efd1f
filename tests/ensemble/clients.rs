//! Applications of all kinds follow the leader: those of other electors, and those in `examples/`.

use crate::{
    group::{Named, agreed, agreed_after, started_in_order},
    member::{Member, SHORT_SESSION, Setup, agent},
    program::Program,
    servers::{Servers, free_ports},
    wait::eventually,
};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const IDS: [&str; 3] = ["a", "b", "c"];

/// Kubernetes' retired leader-elector came with an example which asks `GET /` at a fixed pace.
#[test]
fn a_node_program_that_polls_as_leader_electors_example_does() {
    let servers = Servers::standalone();
    let mut members = started_in_order(&Setup::of(&servers).short_sessions(), IDS);
    let old = agreed(&members);
    let mut programs = members.each_ref().map(|member| {
        let url = format!("http://127.0.0.1:{}/", member.port());
        let environment = [("ELECTOR_GET_URL", &*url), ("HOSTNAME", &*member.id)];
        let script = example("leader-elector.js");
        Program::start(&member.id, ["node", &script], &environment)
    });
    programs[0].says(0, |line| line == "I am the master");
    programs[1].says(0, |line| line == "Master is a");
    programs[2].says(0, |line| line == "Master is a");

    members[0].kill();

    programs[1].says(0, |line| line == "I am the master");
    programs[2].says(0, |line| line == "Master is b");
    programs[0].says(0, |line| line.starts_with("problem with request"));
    assert!(programs.iter_mut().all(Program::runs));
    agreed_after(&old, &members[1..]);
}

#[test]
fn haproxy_sends_all_traffic_to_the_leaders_application() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions().option("--probe-listen", "127.0.0.1:0");
    let mut members = started_in_order(&setup, IDS);
    let old = agreed(&members);
    let applications = IDS.map(Application::start);
    let [front] = free_ports().map(|port| format!("127.0.0.1:{port}"));
    let mut environment = vec![("FRONTEND".to_owned(), front.clone())];
    for (member, application) in members.iter().zip(&applications) {
        let name = member.id.to_uppercase();
        let probe = member.probe_port().to_string();
        environment.push((format!("{name}_APPLICATION"), application.address.clone()));
        environment.push((format!("{name}_PROBE"), probe));
    }
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let config = example("haproxy.cfg");
    let mut haproxy = Program::start("haproxy", ["haproxy", "-db", "-f", &config], &environment);

    let all_to = |leader: usize| {
        eventually("traffic goes to the leader's application", || {
            // Until HAProxy has checked each of them once, it may send a request to any.
            let answers: Vec<_> = (0..6).map(|_| visit(&front)).collect();
            let so = answers.iter().all(|answer| answer.as_deref() == Ok(IDS[leader]));
            if so { Ok(()) } else { Err(format!("{answers:?}")) }
        });
        let before = applications.each_ref().map(Application::visits);
        for _ in 0..100 {
            assert_eq!(visit(&front).as_deref(), Ok(IDS[leader]));
        }
        let mut expected = before;
        expected[leader] += 100;
        assert_eq!(applications.each_ref().map(Application::visits), expected);
    };
    all_to(0);

    members[0].kill();

    // The application beside it goes on running, and gets nothing any more.
    all_to(1);
    assert_eq!(agreed_after(&old, &members[1..]).id, "b");
    assert_eq!(members[1].post("/resign").status, 202);
    all_to(2);
    assert!(haproxy.runs());
}

#[test]
fn curl_reads_the_events() {
    let servers = Servers::standalone();
    let mut members = started_in_order(&Setup::of(&servers).short_sessions(), IDS);
    let old = agreed(&members);
    let mut curls = members.each_ref().map(|member| {
        let url = format!("http://127.0.0.1:{}/events", member.port());
        Program::start(&member.id, ["curl", "-sSN", &url], &[])
    });
    let hears = |curl: &Program, from: usize, event: &str, leader: &str| {
        let event = format!("event: {event}");
        let at = curl.says(from, |line| line == event);
        let from = curl.says(at, |line| line.starts_with("data: "));
        let said = curl.said();
        let data: Value = serde_json::from_str(&said[from - 1]["data: ".len()..]).expect("JSON");
        assert_eq!(data["leader"]["id"], leader, "{said:?}");
        from
    };
    let read = curls.each_ref().map(|curl| hears(curl, 0, "state", "a"));

    members[0].kill();

    let read_by_b = hears(&curls[1], read[1], "became-leader", "b");
    let read_by_c = hears(&curls[2], read[2], "leader-changed", "b");
    assert!(!curls[0].wait().success(), "its stream was cut short");

    agreed_after(&old, &members[1..]);
    members[1].signal("TERM");
    curls[1].says(read_by_b, |line| line == "event: lost-leadership");
    assert!(curls[1].wait().success(), "its stream has come to an end");
    hears(&curls[2], read_by_c, "became-leader", "c");
}

#[test]
fn the_shell_example_works_only_while_its_member_leads() {
    follow(|_| vec!["bash".to_owned(), example("worker.sh")]);
}

#[test]
fn the_python_example_works_only_while_its_member_leads() {
    follow(|_| vec!["python3".to_owned(), example("bellwether.py")]);
}

#[test]
fn the_node_example_works_only_while_its_member_leads() {
    follow(|_| vec!["node".to_owned(), example("bellwether.mjs")]);
}

#[test]
fn the_java_example_works_only_while_its_member_leads() {
    follow(|home| {
        let classes = home.display().to_string();
        let compiled =
            Command::new("javac").args(["-d", &classes, &example("Bellwether.java")]).status();
        assert!(compiled.is_ok_and(|status| status.success()), "javac compiles the example");
        vec!["java".to_owned(), "-cp".to_owned(), classes, "Bellwether".to_owned()]
    });
}

#[test]
fn the_go_example_works_only_while_its_member_leads() {
    follow(|home| {
        let program = home.join("worker").display().to_string();
        let source = example("bellwether.go");
        let compiled = Command::new("gccgo").args(["-Wall", "-o", &program, &source]).status();
        assert!(compiled.is_ok_and(|status| status.success()), "gccgo compiles the example");
        vec![program]
    });
}

/// Runs the same example beside each of three members, and lets leadership go around. Prints how soon it reacts.
#[allow(clippy::print_stdout, reason = "it is measured for people too")]
fn follow(prepare: impl FnOnce(&Path) -> Vec<String>) {
    let home = TempDir::with_prefix("bellwether-client-").expect("a temporary directory");
    let command = prepare(home.path());
    let servers = Servers::standalone();
    // Three programs and their sidecars start at once here, which delays every member's heartbeats.
    let setup = Setup::of(&servers).sessions(2 * SHORT_SESSION);
    let mut members = started_in_order(&setup, IDS);
    let mut programs = members.each_ref().map(|member| {
        let url = format!("http://127.0.0.1:{}", member.port());
        Program::start(&member.id, command.iter().map(|word| &**word), &[("BELLWETHER_URL", &url)])
    });

    let first = agreed(&members);
    works(&programs, 0, &first);

    // Its member knows no leader meanwhile, and answers 503.
    assert_eq!(members[0].post("/pause").status, 200);
    let second = agreed_after(&first, &members[1..]);
    works(&programs, 1, &second);
    assert_eq!(members[0].post("/resume").status, 202);
    agreed(&members);

    members[1].kill();
    let rest = [&members[0], &members[2]];
    let third = agreed_after(&second, rest);
    works(&programs, 2, &third);

    // The first member's program has outlasted the time in which its member answered 503.
    assert_eq!(members[2].post("/resign").status, 202);
    let fourth = agreed_after(&third, rest);
    works(&programs, 0, &fourth);
    assert!(programs.iter_mut().all(Program::runs), "none gives up");
    let tokens = [vec![&first, &fourth], vec![&second], vec![&third]];
    for (program, terms) in programs.iter().zip(tokens) {
        let mut said = program.said();
        said.dedup();
        let expected: Vec<String> = terms.into_iter().map(working).collect();
        assert_eq!(said, expected, "worked in its own terms, with their tokens");
    }

    let mut reactions: Vec<Reaction> =
        [0, 2, 0, 2, 0].map(|leader| react(&members, &programs, [leader, 2 - leader])).into();
    reactions.sort_by_key(|reaction| reaction.later);
    println!("later than the member, and as a ratio to the hand-over: {reactions:.1?}");
    let Reaction { later, .. } = reactions[reactions.len() / 2];
    assert!(later <= REACTION, "it begins to work so long after its member leads: {reactions:.1?}");
}

/// How long after its member an application may begin to work.
const REACTION: Duration = Duration::from_millis(50);

/// How long an application took to begin its work.
#[derive(Debug)]
#[expect(dead_code, reason = "the ratio is for people")]
struct Reaction {
    /// Than its member said over the stream of events that it leads.
    later: Duration,
    /// From the command to resign on, to how long that hand-over itself took.
    ratio: f64,
}

/// Has one leader hand over to the other member, and waits until the program beside that one works.
fn react(members: &[Member; 3], programs: &[Program; 3], [old, new]: [usize; 2]) -> Reaction {
    eventually("the next one could lead at once", || members[new].is_ready_standby());
    let mut events = members[new].stream("/events");
    assert_eq!(events.event().name, "state");
    let from = programs[new].said().len();
    let begun = Instant::now();
    let (led, term) = thread::scope(|scope| {
        let resigned = scope.spawn(|| members[old].post("/resign").status);
        let became = loop {
            let event = events.event();
            if event.name == "became-leader" {
                break event;
            }
        };
        let led = Instant::now();
        assert_eq!(resigned.join().expect("it is answered"), 202);
        (led, Named::read(&became.data["leader"]).expect("it is named"))
    });
    let said = programs[new].says(from, |line| line == working(&term)) - 1;
    let worked = programs[new].said_at(said);
    works(programs, new, &term);
    let [whole, handover] = [worked, led].map(|at| at.saturating_duration_since(begun));
    let ratio = whole.as_secs_f64() / handover.as_secs_f64();
    Reaction { later: worked.saturating_duration_since(led), ratio }
}

/// Waits until the leader's program works with the leader's token, and sees that no other works then.
#[track_caller]
fn works(programs: &[Program; 3], leader: usize, term: &Named) {
    let is_it = |line: &str| line == working(term);
    let at = programs[leader].says(0, is_it);
    let before = programs.each_ref().map(|program| program.said().len());
    // Two further pieces of work, and the others had the time for as much.
    let at = programs[leader].says(at, is_it);
    programs[leader].says(at, is_it);
    let after = programs.each_ref().map(|program| program.said().len());
    for other in (0..3).filter(|other| *other != leader) {
        assert_eq!(before[other], after[other], "{} works beside the leader", IDS[other]);
    }
}

fn working(term: &Named) -> String {
    format!("working with token {}", term.token)
}

/// The path of a file in `examples/`.
fn example(name: &str) -> String {
    format!("{}/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// An application that tells every client beside which member it runs.
struct Application {
    address: String,
    visits: Arc<AtomicUsize>,
}

impl Application {
    fn start(id: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let visits = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&visits);
        thread::spawn(move || {
            for visitor in listener.incoming().map_while(Result::ok) {
                // A connection that ends before its request does is no visit.
                if read_request(&visitor) {
                    // Before the answer: the visitor compares the counts as soon as it has that.
                    counted.fetch_add(1, Ordering::SeqCst);
                    drop(answer(&visitor, id));
                }
            }
        });
        Self { address, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

/// Reads a request, and returns whether it came whole.
fn read_request(visitor: &TcpStream) -> bool {
    BufReader::new(visitor).lines().map_while(Result::ok).any(|line| line.is_empty())
}

fn answer(mut visitor: &TcpStream, id: &str) -> std::io::Result<()> {
    let length = id.len();
    write!(visitor, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{id}")
}

fn visit(front: &str) -> Result<String, String> {
    let answer = agent().get(format!("http://{front}/")).call();
    let mut answer = answer.map_err(|error| error.to_string())?;
    answer.body_mut().read_to_string().map_err(|error| error.to_string())
}
