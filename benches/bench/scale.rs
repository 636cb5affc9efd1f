//! Two thousand members on one server: they join, lose their leader, half of them, and the server.

use crate::{
    bare,
    crowd::Crowd,
    process::{Process, tied_to_this_thread},
    report::Section,
    scene::{Counters, Scene, ourselves, started},
    servers::Server,
};
use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::Stdio,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

const SESSION: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(180);

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
}

/// The leader that a member knows from this moment on.
struct View {
    at: Instant,
    member: usize,
    leader: Option<(u64, bool)>,
}

/// The program of such a process.
pub(crate) fn host(servers: &str, first: usize, count: usize) {
    let crowd = Crowd::at_once(servers, SESSION, first, count);
    let mut out = stdout().lock();
    for told in crowd.told() {
        let (token, is_self) = told.leader.unwrap_or_default();
        let line = writeln!(out, "{} {token} {}", told.who, u8::from(is_self));
        if line.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

pub(crate) fn scale(scene: &Scene) -> Section {
    let hosts = scene.pick(20, 4);
    let each = scene.pick(100, 10);
    let count = hosts * each;
    let mut section = Section::new(
        "Scale",
        &format!(
            "{count} members in {hosts} processes and a leader in a process of its own, on one server, each \
             with a session of {SESSION:?} and its own connection. Times are until one member leads and \
             every member that is left names it; requests are all that the server received and sent within \
             that time (`mntr`). After the restart it is until all are connected again.",
        ),
    );
    let mut servers = started(1);
    let connect_string = servers.connect_string();
    let (tell, told) = channel();
    let mut all = Hosts {
        hosts: vec![],
        told,
        tell,
        known: vec![None; count + 1],
        alive: vec![false; count + 1],
    };
    let mut rows = vec![];
    let mut note = |what: &str, took: Duration, before: f64, server: &Server, members: usize| {
        let told = Told::by(server);
        rows.push(vec![
            what.to_owned(),
            format!("{:.1} s", took.as_secs_f64()),
            format!("{:.0}", (told.packets - before).max(0.0)),
            format!("{:.0}", told.watches),
            format!("{:.0}", told.ephemerals),
            members.to_string(),
        ]);
    };

    let before = Told::by(servers.first()).packets;
    let begun = Instant::now();
    all.open(&connect_string, count, 1);
    all.agree(begun);
    let begun = Instant::now();
    (0..hosts).for_each(|n| all.open(&connect_string, n * each, each));
    let took = all.agree(begun);
    note("All join at once", took, before, servers.first(), all.living());

    let before = Told::by(servers.first()).packets;
    let begun = Instant::now();
    all.kill(hosts_of(&all, |host| host.first == count));
    let took = all.agree(begun);
    note("The leader is killed", took, before, servers.first(), all.living());

    let before = Told::by(servers.first()).packets;
    let mut victims = hosts_of(&all, |_| true);
    fastrand::shuffle(&mut victims);
    victims.truncate(hosts / 2);
    let begun = Instant::now();
    all.kill(victims);
    let took = all.agree_all(begun, &connect_string);
    note("A random half is killed at once", took, before, servers.first(), all.living());

    let begun = Instant::now();
    servers.first().kill();
    servers.first().start();
    let living = all.living();
    let until = Instant::now() + PATIENCE;
    while Told::by(servers.first()).connections < living as f64 {
        assert!(Instant::now() < until, "all come back in time");
        thread::sleep(Duration::from_millis(20));
    }
    // The leader may lead on: then no member has had anything to tell.
    let took = all.agree(begun).max(begun.elapsed());
    note("The server is killed and starts again", took, 0.0, servers.first(), all.living());

    let columns = ["What happens", "Time", "Packets", "Watches", "Ephemeral znodes", "Members"];
    section.table(&columns, &rows);
    drop(all);
    let left = bare::runtime().block_on(async {
        let client = bare::connect(&connect_string).await;
        let until = Instant::now() + 4 * SESSION;
        loop {
            match client.list_children("/election").await {
                Ok(names) if !names.is_empty() && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
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
    section
}

fn hosts_of(all: &Hosts, is_it: impl Fn(&Host) -> bool) -> Vec<usize> {
    all.hosts.iter().filter(|host| is_it(host)).map(|host| host.first).collect()
}

impl Hosts {
    fn open(&mut self, servers: &str, first: usize, count: usize) {
        let mut command = tied_to_this_thread(&ourselves());
        command.args(["host", servers, &first.to_string(), &count.to_string()]);
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
            while in_queue(&client.list_children("/election").await.expect("it is there")) != living
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            begun.elapsed()
        });
        self.agree(begun).max(took)
    }

    fn all_name_one(&self) -> bool {
        let mut living = self.known.iter().zip(&self.alive).filter(|(_, alive)| **alive);
        let Some((Some((token, _)), _)) = living.clone().next() else { return false };
        let one = |(known, _): (&Option<(u64, bool)>, &bool)| {
            known.is_some_and(|(named, _)| named == *token)
        };
        let leads = living.clone().any(|(known, _)| known.is_some_and(|(_, is_self)| is_self));
        leads && living.all(one)
    }
}

/// How many of these names are members'.
fn in_queue(names: &[String]) -> usize {
    let is_members = |name: &&String| name.ends_with(|last: char| last.is_ascii_digit());
    names.iter().filter(is_members).count()
}

struct Told {
    packets: f64,
    watches: f64,
    ephemerals: f64,
    connections: f64,
}

impl Told {
    fn by(server: &Server) -> Self {
        let told = Counters::of(server);
        Self {
            packets: told.packets(),
            watches: told.of_name("zk_watch_count"),
            ephemerals: told.of_name("zk_ephemerals_count"),
            connections: told.of_name("zk_num_alive_connections"),
        }
    }
}
