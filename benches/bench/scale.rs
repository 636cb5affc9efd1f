//! Two thousand members on one server: they join, lose their leader, half of them, and the server. Then a thousand elections
//! of three. What that costs is held against the formulas of docs/scale.md.

use crate::{
    bare,
    crowd::{Crowd, ELECTION},
    formulas::{Bounds, Cost, Election, Wire},
    process::{Process, tied_to_this_thread},
    report::Section,
    scene::{Counters, Scene, ourselves, started, transactions},
    servers::{Server, Servers},
};
use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::Stdio,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};
use zookeeper::{Acls, Client, CreateMode};

const SESSION: Duration = Duration::from_secs(20);
/// The default of `lease.heartbeat`.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// In this time each member has sent two heartbeats: by then it has asked the new head.
const AFTERWARDS: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(180);
/// How often the servers are asked how far they are: seldom enough to be no load.
const POLL: Duration = Duration::from_millis(100);
/// A process with many members, which prints a line whenever one of them knows another leader.
struct Host {
    process: Process,
    first: usize,
    count: usize,
}

/// All such processes, and the leader that each member knows, as far as they have told.
struct Hosts {
    hosts: Vec<Host>,
    told: Receiver<View>,
    tell: Sender<View>,
    /// The token of the leader that each member knows, and whether that is the member itself.
    known: Vec<Option<(u64, bool)>>,
    alive: Vec<bool>,
    /// How many members are in one election; 0: all are.
    size: usize,
}

/// The leader that a member knows from this moment on.
struct View {
    at: Instant,
    member: usize,
    leader: Option<(u64, bool)>,
}

/// The program of such a process.
pub(crate) fn host(servers: &str, first: usize, count: usize, size: usize) {
    let crowd = Crowd::at_once(servers, SESSION, first, count, |who| path_of(who, size));
    let mut out = stdout().lock();
    for told in crowd.told() {
        let (token, is_self) = told.leader.unwrap_or_default();
        let line = writeln!(out, "{} {token} {}", told.who, u8::from(is_self));
        if line.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// The path of a member's election, where so many are in one; 0: all are.
fn path_of(who: usize, size: usize) -> String {
    match size {
        0 => ELECTION.to_owned(),
        size => format!("/elections/{:05}", who / size),
    }
}

pub(crate) fn scale(scene: &Scene) -> Section {
    let mut section = Section::new(
        "Scale",
        "Members in 20 processes, on one server, each with a session of 20s and its own connection. Times are until one member \
         leads and every member that is left names it. Packets are all requests, answers and notifications, and bytes \
         what the server reads and answers (`mntr`); quorum writes are its transactions (`Zxid` in `srvr`): from the event until \
         half a session after that time. Beside each is what the formulas of [scale](../scale.md) say of that event and of the \
         heartbeats in that time.",
    );
    floor(scene, &mut section);
    one_election(scene, &mut section);
    many_elections(scene, &mut section);
    section
}

/// What the server answers when it is asked as fast as this machine can, which is what times follow from.
fn floor(scene: &Scene, section: &mut Section) {
    let servers = started(1);
    let names = scene.pick(2000, 100);
    bare::runtime().block_on(async {
        let client = bare::connect(&servers.connect_string()).await;
        let mode = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        bare::make(&client, ELECTION, CreateMode::Persistent).await;
        for _ in 0..names {
            let prefix = format!("{ELECTION}/leader_");
            client.create(&prefix, &[b'x'; 150], &mode).await.expect("the path exists");
        }
    });
    let rate = |load| rate(&servers, load, scene.pick(Duration::from_secs(5), POLL));
    let [polls, renewals, lists] = [Load::Poll, Load::Renewal, Load::List].map(rate);
    section.say(&format!(
        "Asked by 4 bare sessions with 64 requests under way each, on the same machine, the server answers {polls:.0} \
         heartbeats of members that wait in a second (a read each), {renewals:.0} of leaders (a transaction and a \
         stat each), and {lists:.0} listings of {names} names."
    ));
}

#[derive(Clone, Copy)]
enum Load {
    Poll,
    Renewal,
    List,
}

impl Load {
    async fn put_on(self, client: &Client) -> Result<(), zookeeper::Error> {
        let path = format!("{ELECTION}/leader_0000000000");
        match self {
            Self::Poll => client.get_data(&path).await.map(drop),
            Self::Renewal => {
                let mut writer = client.new_multi_writer();
                writer.add_check_version(&path, -1)?;
                writer.add_check_version(ELECTION, -1)?;
                let commit = writer.commit();
                let (committed, read) = tokio::join!(commit, client.check_stat(&path));
                assert!(committed.is_ok(), "both stand: {committed:?}");
                read.map(drop)
            }
            Self::List => client.list_children(ELECTION).await.map(drop),
        }
    }
}

/// Returns how many of these are answered in a second.
fn rate(servers: &Servers, load: Load, length: Duration) -> f64 {
    let (clients, under_way) = (4, 64);
    let asking = (0..clients).map(|_| {
        let servers = servers.connect_string();
        thread::spawn(move || {
            bare::runtime().block_on(async {
                let client = bare::connect(&servers).await;
                let until = Instant::now() + length;
                let asking = (0..under_way).map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let mut answered = 0;
                        while Instant::now() < until {
                            load.put_on(&client).await.expect("the server runs");
                            answered += 1;
                        }
                        answered
                    })
                });
                let asking: Vec<_> = asking.collect();
                let mut answered = 0;
                for one in asking {
                    answered += one.await.expect("it does not panic");
                }
                answered
            })
        })
    });
    let asking: Vec<_> = asking.collect();
    let answered: u32 = asking.into_iter().map(|one| one.join().expect("no panic")).sum();
    f64::from(answered) / length.as_secs_f64()
}

fn one_election(scene: &Scene, section: &mut Section) {
    let hosts = scene.pick(20, 4);
    let each = scene.pick(100, 10);
    let count = hosts * each;
    let mut servers = started(1);
    let connect_string = servers.connect_string();
    let mut all = Hosts::of(count + 1, 0);
    let mut rows = vec![];
    let election = |members: usize| election_of(members, ELECTION.len());

    let begun = Instant::now();
    all.open(&connect_string, count, 1);
    all.agree(begun);
    let before = Count::of(servers.first());
    let begun = Instant::now();
    (0..hosts).for_each(|n| all.open(&connect_string, n * each, each));
    let took = all.agree(begun);
    let all_join = election(all.living());
    let window = |took: Duration| (took / 2 + AFTERWARDS).as_secs_f64();
    let formula = all_join.joining_at_once().and(window(took) * all_join.idle());
    rows.push(row("All join at once", Some(took), before, servers.first(), formula, all_join));

    let idle = scene.pick(Duration::from_secs(20), POLL);
    let before = Count::of(servers.first());
    let formula = Bounds::both((idle + AFTERWARDS).as_secs_f64() * all_join.idle());
    thread::sleep(idle);
    let what = format!("{idle:?} in which nothing happens");
    rows.push(row(&what, None, before, servers.first(), formula, all_join));

    let before = Count::of(servers.first());
    let begun = Instant::now();
    all.kill(hosts_of(&all, |host| host.first == count));
    let took = all.agree(begun);
    let left = election(all.living());
    let window = (took + AFTERWARDS).as_secs_f64();
    let formula = Bounds::both(left.leader_gone() + window * left.idle());
    rows.push(row("The leader is killed", Some(took), before, servers.first(), formula, left));

    let (before, led_before) = (Count::of(servers.first()), all.leader());
    let half_goes = left;
    let mut victims = hosts_of(&all, |_| true);
    fastrand::shuffle(&mut victims);
    victims.truncate(hosts / 2);
    let begun = Instant::now();
    all.kill(victims);
    let took = all.agree_all(begun, &connect_string);
    let left = election(all.living());
    let window = (took + AFTERWARDS).as_secs_f64();
    let announced = all.leader() != led_before;
    // The standby may be among it, or not.
    let heard = match announced {
        true => Bounds { least: left.leader_gone(), most: left.first_two_gone() },
        false => Bounds::both(Cost::default()),
    };
    let Bounds { least, most } = half_goes.half_gone().and(window * left.idle());
    let formula = Bounds { least: least + heard.least, most: most + heard.most };
    let what = match announced {
        true => "A random half, the leader among it, is killed at once",
        false => "A random half, but not the leader, is killed at once",
    };
    rows.push(row(what, Some(took), before, servers.first(), formula, left));

    // What a server has received it counts anew, and transactions it does not.
    let before = Count { packets: 0.0, bytes: 0.0, ..Count::of(servers.first()) };
    let begun = Instant::now();
    servers.first().kill();
    servers.first().start();
    let living = all.living();
    let until = Instant::now() + PATIENCE;
    while Counters::of(servers.first()).of_name("zk_num_alive_connections") < living as f64 {
        assert!(Instant::now() < until, "all come back in time");
        thread::sleep(POLL);
    }
    // The leader may lead on: then no member has had anything to tell.
    let took = all.agree(begun).max(begun.elapsed());
    let up = Duration::from_millis(Counters::of(servers.first()).of_name("zk_uptime") as u64);
    let formula = Bounds::both(left.restart() + (up + AFTERWARDS).as_secs_f64() * left.idle());
    let what = "The server is killed and starts again";
    rows.push(row(what, Some(took), before, servers.first(), formula, left));
    section.say(&format!("{} members of one election:", count + 1));
    section.table(&COLUMNS, &rows);

    drop(all);
    let left = bare::runtime().block_on(async {
        let client = bare::connect(&connect_string).await;
        let until = Instant::now() + 4 * SESSION;
        loop {
            match client.list_children(ELECTION).await {
                Ok(names) if !names.is_empty() && Instant::now() < until => {
                    tokio::time::sleep(2 * POLL).await;
                }
                Ok(names) => return names.len(),
                Err(_) => return 0,
            }
        }
    });
    section.say(&format!(
        "After all {living} that were left were killed as well, {left} znodes were left over once their sessions \
         had ended. The sessions of killed members last up to {SESSION:?} longer, which is part of the times above. \
         Each member holds two watches: on its own znode and on its predecessor's.",
    ));
}

fn many_elections(scene: &Scene, section: &mut Section) {
    const SIZE: usize = 3;
    let hosts = scene.pick(20, 4);
    let each = SIZE * scene.pick(50, 2);
    let count = hosts * each;
    let elections = (count / SIZE) as f64;
    let mut servers = started(1);
    let connect_string = servers.connect_string();
    let mut all = Hosts::of(count, SIZE);
    let one = election_of(SIZE, "/elections/00000".len());
    let mut rows = vec![];
    let watches = |row: &mut Vec<String>| {
        *row.last_mut().expect("it has cells") = format!("{:.0}", elections * one.watches());
    };

    // Once, ever: where an election's path stands, as it does from the second time on, joining is what it is in one election.
    bare::runtime().block_on(async {
        let client = bare::connect(&connect_string).await;
        bare::make(&client, "/elections", CreateMode::Persistent).await;
        for who in (0..count).step_by(SIZE) {
            bare::make(&client, &path_of(who, SIZE), CreateMode::Persistent).await;
        }
    });

    let before = Count::of(servers.first());
    let begun = Instant::now();
    (0..hosts).for_each(|n| all.open(&connect_string, n * each, each));
    let took = all.agree(begun);
    let heartbeats = (took / 2 + AFTERWARDS).as_secs_f64() * elections * one.idle();
    let Bounds { least, most } = one.joining_at_once();
    let joining = Bounds { least: elections * least, most: elections * most };
    let formula = joining.and(heartbeats);
    rows.push(row("All join at once", Some(took), before, servers.first(), formula, one));

    let idle = scene.pick(Duration::from_secs(20), POLL);
    let before = Count::of(servers.first());
    thread::sleep(idle);
    let formula = Bounds::both((idle + AFTERWARDS).as_secs_f64() * elections * one.idle());
    let what = format!("{idle:?} in which nothing happens");
    rows.push(row(&what, None, before, servers.first(), formula, one));

    rows.iter_mut().for_each(watches);
    section.say(&format!("{elections} elections of {SIZE} members each:"));
    section.table(&COLUMNS, &rows);
}

const COLUMNS: [&str; 10] = [
    "What happens",
    "Time",
    "Packets",
    "By formula",
    "Quorum writes",
    "By formula",
    "MB",
    "By formula",
    "Watches",
    "By formula",
];

/// Waits until all that follows from an event has happened, and says what it cost and what it was to cost.
fn row(
    what: &str,
    took: Option<Duration>,
    before: Count,
    server: &Server,
    formula: Bounds,
    left: Election,
) -> Vec<String> {
    thread::sleep(AFTERWARDS);
    let after = Count::of(server);
    let mega = |bytes: f64| format!("{:.1}", bytes / 1e6);
    let number = |number: f64| format!("{number:.0}");
    let range = |of: fn(&Cost) -> f64, text: &dyn Fn(f64) -> String| {
        let (least, most) = (text(of(&formula.least)), text(of(&formula.most)));
        if least == most { least } else { format!("{least} to {most}") }
    };
    vec![
        what.to_owned(),
        took.map_or_else(String::new, |took| format!("{:.1} s", took.as_secs_f64())),
        number(after.packets - before.packets),
        range(|cost| cost.packets(), &number),
        number(after.writes - before.writes),
        range(|cost| cost.writes, &number),
        mega(after.bytes - before.bytes),
        range(|cost| cost.bytes, &mega),
        number(Counters::of(server).of_name("zk_watch_count")),
        number(left.watches()),
    ]
}

fn election_of(members: usize, root: usize) -> Election {
    let wire = Wire { root: root as f64, ..Wire::BENCH };
    Election { members: members as f64, heartbeat: HEARTBEAT.as_secs_f64(), wire }
}

/// What has been counted so far.
struct Count {
    packets: f64,
    writes: f64,
    bytes: f64,
}

impl Count {
    fn of(server: &Server) -> Self {
        let counters = Counters::of(server);
        let bytes = ["zk_bytes_received_count", "zk_response_bytes"].map(|it| counters.of_name(it));
        let writes = transactions(server) as f64;
        Self { packets: counters.packets(), writes, bytes: bytes.iter().sum() }
    }
}

fn hosts_of(all: &Hosts, is_it: impl Fn(&Host) -> bool) -> Vec<usize> {
    all.hosts.iter().filter(|host| is_it(host)).map(|host| host.first).collect()
}

impl Hosts {
    fn of(count: usize, size: usize) -> Self {
        let (tell, told) = channel();
        Self {
            hosts: vec![],
            told,
            tell,
            known: vec![None; count],
            alive: vec![false; count],
            size,
        }
    }

    fn open(&mut self, servers: &str, first: usize, count: usize) {
        let mut command = tied_to_this_thread(&ourselves());
        let [from, members, size] = [first, count, self.size].map(|number| number.to_string());
        command.args(["host", servers, &from, &members, &size]);
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let output = process.child().stdout.take().expect("it is piped");
        let tell = self.tell.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let words: Vec<u64> =
                    line.split(' ').filter_map(|word| word.parse().ok()).collect();
                let [member, token, is_self] = words[..] else { panic!("what is {line:?}?") };
                let leader = (token > 0).then_some((token, is_self == 1));
                let member = usize::try_from(member).expect("a member's number");
                let _receiver_gone = tell.send(View { at: Instant::now(), member, leader });
            }
        });
        self.alive[first..first + count].fill(true);
        self.hosts.push(Host { process, first, count });
    }

    fn kill(&mut self, firsts: Vec<usize>) {
        let (mut dead, living) =
            self.hosts.drain(..).partition(|host| firsts.contains(&host.first));
        self.hosts = living;
        for Host { process, first, count } in &mut dead {
            process.kill();
            self.alive[*first..*first + *count].fill(false);
        }
    }

    fn living(&self) -> usize {
        self.alive.iter().filter(|alive| **alive).count()
    }

    /// Waits until one of the living leads and all of them name it; returns how long that took.
    fn agree(&mut self, begun: Instant) -> Duration {
        let mut at = begun;
        while !self.all_name_one() {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let view = self.told.recv_timeout(left).expect("they agree in time");
            self.known[view.member] = view.leader;
            at = at.max(view.at);
        }
        at - begun
    }

    /// The same, and the killed members have left the queue: before that, nothing may have changed for the living.
    fn agree_all(&mut self, begun: Instant, servers: &str) -> Duration {
        let living = self.living();
        let took = bare::runtime().block_on(async {
            let client = bare::connect(servers).await;
            loop {
                let stat = client.check_stat(ELECTION).await.expect("the server runs");
                // The claim is a child as well.
                if stat.is_some_and(|stat| usize::try_from(stat.num_children) == Ok(living + 1)) {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
            begun.elapsed()
        });
        self.agree(begun).max(took)
    }

    /// The token of the leader of the one election, as a member that leads says.
    fn leader(&self) -> Option<u64> {
        let mut leaders = self.known.iter().zip(&self.alive).filter(|(_, alive)| **alive);
        leaders.find_map(|(known, _)| known.filter(|(_, is_self)| *is_self).map(|(token, _)| token))
    }

    /// Whether the living of each election name one leader, which is one of them.
    fn all_name_one(&self) -> bool {
        let size = if self.size == 0 { self.known.len() } else { self.size };
        self.known.chunks(size).zip(self.alive.chunks(size)).all(|(known, alive)| {
            let mut living = known.iter().zip(alive).filter(|(_, alive)| **alive);
            let Some((Some((token, _)), _)) = living.clone().next() else { return false };
            let leads = living.clone().any(|(known, _)| known.is_some_and(|(_, is_self)| is_self));
            leads && living.all(|(known, _)| known.is_some_and(|(named, _)| named == *token))
        })
    }
}
