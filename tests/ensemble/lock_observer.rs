//! Applications that hold one lock in turn, by way of three members, through faults of servers, networks and members: no two
//! hold that may not, tokens grow, and nothing is left in the end. And an election beside very many locks.

use crate::{
    asker::now,
    catalogue::{Fault, suffer},
    group::{agreed, agreed_after, started_in_order},
    host::Host,
    locks::{Lock, is_empty},
    member::{LONG_SESSION, Member, Setup},
    observer::Observer,
    servers::Servers,
    soak::parameter,
    testbed::Testbed,
    wait::eventually,
};
use fastrand::Rng;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::ClockId,
};
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Without those that lose a transaction and those of force: beside these two may hold a lock, each with a token of its own. So it
/// is without the end of all servers where that makes them lose what they have committed.
const FAULTS: [Fault; 12] = [
    Fault::LeaderCutOff,
    Fault::LeaderCutOffWithItsFollowerServer,
    Fault::LeaderCutOffWithTheHeadServer,
    Fault::NothingFromTheLeaderToTheServers,
    Fault::NothingFromTheServersToTheLeader,
    Fault::LeadersServerStopped,
    Fault::AllServersKilled,
    Fault::LeadersServerRestarted,
    Fault::SlowAndLossy,
    Fault::LeaderKilled,
    Fault::LeaderStoppedForThreeSessions,
    Fault::LeaderTerminated,
];

/// How many applications ask at each member.
const APPLICATIONS: usize = 3;

#[test]
fn no_two_hold_a_lock_that_may_not_whatever_fails() {
    let mut testbed = Testbed::set(3, |_, setup| setup);
    let keeps_all = testbed.servers.keep_what_they_commit();
    let suffered =
        FAULTS.into_iter().filter(|fault| keeps_all || *fault != Fault::AllServersKilled);
    let suffered: Vec<_> = suffered.collect();
    let faults = parameter("BELLWETHER_LOCK_FAULTS").unwrap_or(suffered.len());
    let seed = parameter("BELLWETHER_LOCK_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("seed {seed}, {faults} faults");
    let mut rng = Rng::with_seed(seed);
    let applications = Applications::of(&testbed.members);
    let mut deck = vec![];
    for number in 1..=faults {
        if deck.is_empty() {
            deck.clone_from(&suffered);
            rng.shuffle(&mut deck);
        }
        let fault = deck.pop().expect("it has just been filled");
        let before = applications.holdings().len();
        let outcome = suffer(&mut testbed, &[fault], Duration::ZERO);
        outcome.result.unwrap_or_else(|complaint| panic!("{fault}: {complaint}"));
        applications.are_at(&testbed.members);
        eventually("the lock is held again", || match applications.holdings().len() {
            more if more > before => Ok(()),
            same => Err(same.to_string()),
        });
        let holdings = applications.holdings();
        let wrong = wrong(&holdings);
        assert!(wrong.is_empty(), "{fault}, seed {seed}: {wrong:#?}");
        eprintln!("{number:>4} {fault}: {} holdings so far", holdings.len());
    }
    let holdings = applications.end();
    assert!(wrong(&holdings).is_empty(), "seed {seed}: {:#?}", wrong(&holdings));
    is_empty(&testbed.observer, "/locks/contested");
}

/// Locks have a session and a thread of their own. The requests that are under way come from a thousand connections.
#[test]
fn an_election_hands_over_at_once_beside_a_thousand_waiters_and_a_hundred_locks_a_second() {
    open_more_files();
    let servers = Servers::three();
    let observer = Observer::of(&servers);
    let members = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed(&members);
    let mut waiting: Vec<_> = (0..1000).map(|n| Lock::of(&members[n % 2], "busy")).collect();
    waiting[0].event("held");
    eventually("all are in the queue", || {
        let queued = observer.ask(async |client| client.list_children("/locks/busy").await);
        match queued.map(|names| names.len()) {
            Ok(1000) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });

    let (is_over, taken) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let takers: Vec<JoinHandle<()>> = (0..4)
        .map(|n| {
            let (is_over, taken) = (Arc::clone(&is_over), Arc::clone(&taken));
            let (host, port) = (Arc::clone(members[n % 2].host()), members[n % 2].port());
            thread::spawn(move || {
                host.enter();
                let begun = Instant::now();
                for number in 1.. {
                    if is_over.load(SeqCst) {
                        return;
                    }
                    let name = format!("quick-{n}");
                    if hold(port, &name, "exclusive", Duration::ZERO).is_ok_and(|it| it.is_some()) {
                        taken.fetch_add(1, SeqCst);
                    }
                    // So many a second, and no more.
                    let due = begun + number * Duration::from_millis(40);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            })
        })
        .collect();
    let from = taken.load(SeqCst);
    let begun = Instant::now();
    eventually("locks are taken", || match taken.load(SeqCst) - from {
        enough if enough >= 100 => Ok(()),
        few => Err(few.to_string()),
    });
    let rate = 100.0 / begun.elapsed().as_secs_f64();

    let resigned = Instant::now();
    assert_eq!(members[0].post("/resign").status, 202);
    let after = agreed_after(&before, &members);
    let took = resigned.elapsed();
    eprintln!("{rate:.0} locks a second beside 1000 that wait; the hand-over took {took:?}");
    assert_eq!(after.id, "b");
    assert!(took < LONG_SESSION / 2, "{took:?}: as if a session had to end");
    waiting[0].event("renewed");
    is_over.store(true, SeqCst);
    takers.into_iter().for_each(|taker| taker.join().expect("it does not panic"));
    drop(waiting);
    is_empty(&observer, "/locks/busy");
    let leader = agreed(&members);
    assert_eq!(leader, after, "no lease was lost");
}

/// For how long an application acted under a lock: from when it was told that it holds to when it let go or the last lease
/// that it was told ended, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    token: u64,
    is_shared: bool,
    from: u64,
    until: u64,
}

/// Says which of them should not have been beside, or before, another.
fn wrong(holdings: &[Holding]) -> Vec<String> {
    let mut ordered = holdings.to_vec();
    ordered.sort_by_key(|holding| holding.from);
    let mut wrong = vec![];
    // The one that acted for longest so far, of all and of those that exclude readers.
    let (mut any, mut exclusive) = (None::<Holding>, None::<Holding>);
    let (mut any_token, mut exclusive_token) = (0, 0);
    for holding in ordered {
        let (before, token) =
            if holding.is_shared { (exclusive, exclusive_token) } else { (any, any_token) };
        if let Some(before) = before.filter(|before| before.until > holding.from) {
            wrong.push(format!("{holding:?} beside {before:?}"));
        }
        if token >= holding.token {
            wrong.push(format!("{holding:?} after token {token}"));
        }
        let longer = |known: Option<Holding>| match known {
            Some(known) if known.until > holding.until => Some(known),
            Some(_) | None => Some(holding),
        };
        (any, any_token) = (longer(any), any_token.max(holding.token));
        if !holding.is_shared {
            exclusive = longer(exclusive);
            exclusive_token = exclusive_token.max(holding.token);
        }
    }
    wrong
}

/// Applications that ask for one lock, hold it for a moment, and ask again.
struct Applications {
    is_over: Arc<AtomicBool>,
    ports: Arc<Mutex<Vec<u16>>>,
    holdings: Arc<Mutex<Vec<Holding>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Applications {
    fn of(members: &[Member]) -> Self {
        let mut applications = Self {
            is_over: Arc::default(),
            ports: Arc::new(Mutex::new(members.iter().map(Member::port).collect())),
            holdings: Arc::default(),
            threads: vec![],
        };
        for (number, member) in members.iter().enumerate() {
            for _ in 0..APPLICATIONS {
                let host = Arc::clone(member.host());
                applications.threads.push(applications.ask(number, host));
            }
        }
        applications
    }

    fn ask(&self, member: usize, host: Arc<Host>) -> JoinHandle<()> {
        let (is_over, ports) = (Arc::clone(&self.is_over), Arc::clone(&self.ports));
        let holdings = Arc::clone(&self.holdings);
        thread::spawn(move || {
            host.enter();
            while !is_over.load(SeqCst) {
                let port = ports.lock().expect("no thread panics while holding it")[member];
                let mode = if fastrand::u8(..3) == 0 { "shared" } else { "exclusive" };
                let span = Duration::from_millis(fastrand::u64(..60));
                match hold(port, "contested", mode, span) {
                    Ok(Some(holding)) => {
                        holdings.lock().expect("no thread panics while holding it").push(holding);
                    }
                    // The member is away, or did not get it in time.
                    Ok(None) | Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        })
    }

    /// Members that were started anew have other ports.
    fn are_at(&self, members: &[Member]) {
        let ports = members.iter().map(Member::port).collect();
        *self.ports.lock().expect("no thread panics while holding it") = ports;
    }

    fn holdings(&self) -> Vec<Holding> {
        self.holdings.lock().expect("no thread panics while holding it").clone()
    }

    fn end(mut self) -> Vec<Holding> {
        self.is_over.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("it does not panic");
        }
        self.holdings()
    }
}

/// The threads end also when the test fails.
impl Drop for Applications {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
    }
}

/// Asks for a lock and holds it for so long, unless it is lost before. Returns nothing if it was not got.
fn hold(port: u16, name: &str, mode: &str, span: Duration) -> io::Result<Option<Holding>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_millis(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "POST /locks/{name}?mode={mode}&wait=2s HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\n\r\n"
    )?;
    let mut lines = BufReader::new(stream);
    let (mut line, mut event) = (String::new(), String::new());
    let mut holding = None::<Holding>;
    let (begun, mut held_at) = (Instant::now(), Instant::now());
    loop {
        match lines.read_line(&mut line) {
            Ok(0) => break,
            Ok(_) => {
                match line.trim_end().split_once(": ") {
                    Some(("event", name)) => event = name.to_owned(),
                    Some(("data", data)) => match &*event {
                        "held" | "renewed" => {
                            let told: Value = serde_json::from_str(data)?;
                            let number =
                                |key: &str| told[key].as_u64().ok_or(ErrorKind::InvalidData);
                            let until = number("valid_until_boottime_ns")?;
                            let known = holding.get_or_insert(Holding {
                                token: number("token")?,
                                is_shared: mode == "shared",
                                from: now(ClockId::Boottime),
                                until,
                            });
                            known.until = until;
                            if event == "held" {
                                held_at = Instant::now();
                            }
                        }
                        "waiting" => {}
                        _ => break,
                    },
                    Some(_) | None => {}
                }
                line.clear();
            }
            // What was read of a line stays.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
        let is_done = match &holding {
            Some(holding) => held_at.elapsed() >= span || now(ClockId::Boottime) >= holding.until,
            // One that is frozen says nothing.
            None => begun.elapsed() > Duration::from_secs(5),
        };
        if is_done {
            break;
        }
    }
    // Before the connection is closed, and no later than was told.
    let ended = now(ClockId::Boottime);
    Ok(holding.map(|holding| Holding { until: holding.until.min(ended), ..holding }))
}

/// A thousand connections need as many files.
fn open_more_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("up to the hard limit");
}

#[test]
fn what_should_not_be_beside_another_is_found() {
    let holding = |token, is_shared, from, until| Holding { token, is_shared, from, until };
    let (writes, reads) = (false, true);
    let well = [
        holding(1, writes, 0, 10),
        holding(2, reads, 10, 30),
        holding(4, reads, 12, 20),
        holding(3, reads, 13, 20),
        holding(5, writes, 30, 40),
    ];
    assert_eq!(wrong(&well), Vec::<String>::new());
    for (one, other) in [
        (holding(1, writes, 0, 10), holding(2, writes, 9, 20)),
        (holding(1, writes, 0, 10), holding(2, reads, 9, 20)),
        (holding(1, reads, 0, 10), holding(2, writes, 9, 20)),
        (holding(2, writes, 0, 10), holding(1, writes, 10, 20)),
        (holding(2, writes, 0, 10), holding(2, reads, 10, 20)),
    ] {
        assert_eq!(wrong(&[other, one]).len(), 1, "{one:?}, {other:?}");
    }
}
