//! A small network of a test's own: two switches joined by a trunk, servers on one and members on the other,
//! whose packets can be dropped or delayed.
//!
//! Every host, and the two switches together, is a network namespace without a name, held by open files and
//! running processes alone. So nothing of it outlives the test, however that ends, and no two tests meet.

use crate::{
    host::Host,
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use std::{
    collections::VecDeque,
    fs::File,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) struct Network {
    pub(crate) servers: Vec<Arc<Host>>,
    pub(crate) members: Vec<Arc<Host>>,
    slow_trunk: Option<SlowTrunk>,
}

/// Drops what a host sends on its way, without an error to either end. Only addresses are looked at, so that the
/// hosts still find each other's hardware address: a real network does not tell them either.
const RULES: &str = "
    table bridge faults {
        set cut { type ipv4_addr . ipv4_addr; }
        chain forward {
            type filter hook forward priority 0;
            ip saddr . ip daddr @cut drop
        }
        chain lossy {
        }
    }
";

impl Network {
    /// Makes the network, and moves this thread to the switch, which no cut reaches.
    ///
    /// What the test itself asks of servers it asks from there, like an administrator.
    pub(crate) fn new(servers: u8, members: u8) -> Self {
        let switch = namespace("the switch");
        Host::new(Ipv4Addr::new(10, 0, 0, 254), switch.file()).enter();
        ip("link add servers type bridge\n\
            link add members type bridge\n\
            address add 10.0.0.254/24 dev servers\n\
            link set servers up\n\
            link set members up\n\
            link add trunk-s type veth peer name trunk-m\n\
            link set trunk-s master servers up\n\
            link set trunk-m master members up\n");
        nft(RULES);
        let plug = |side: &str, n: u8| {
            let address = Ipv4Addr::new(10, 0, 0, n);
            let host = namespace("a host");
            ip(&format!(
                "link add {side}-{n} type veth peer name eth0 netns {pid}\n\
                 link set {side}-{n} master {side} up\n",
                pid = host.process.id(),
            ));
            let host = Host::new(address, host.file());
            host.inside(|| ip(&format!("address add {address}/24 dev eth0\nlink set eth0 up\n")));
            host
        };
        Self {
            servers: (1..=servers).map(|n| plug("servers", n)).collect(),
            members: (101..=100 + members).map(|n| plug("members", n)).collect(),
            slow_trunk: None,
        }
    }

    /// Drops all packets from the first hosts to the second, from now on.
    pub(crate) fn cut_one_way<'a>(
        &self,
        from: impl IntoIterator<Item = &'a Arc<Host>>,
        to: impl IntoIterator<Item = &'a Arc<Host>> + Clone,
    ) {
        let pairs: Vec<String> = from
            .into_iter()
            .flat_map(|one| {
                to.clone().into_iter().map(|other| format!("{} . {}", one.address, other.address))
            })
            .collect();
        nft(&format!("add element bridge faults cut {{ {} }}", pairs.join(", ")));
    }

    /// Drops all packets between the first hosts and the second, from now on.
    pub(crate) fn cut<'a>(
        &self,
        ones: impl IntoIterator<Item = &'a Arc<Host>> + Clone,
        others: impl IntoIterator<Item = &'a Arc<Host>> + Clone,
    ) {
        self.cut_one_way(ones.clone(), others.clone());
        self.cut_one_way(others, ones);
    }

    /// Takes a host off the switch: from now on it has no route to anywhere.
    pub(crate) fn unplug(&self, host: &Host) {
        host.inside(|| ip("link set eth0 down\n"));
    }

    pub(crate) fn plug_in(&self, host: &Host) {
        host.inside(|| ip("link set eth0 up\n"));
    }

    /// Whatever passes between servers and members takes so long each way, and a part of it is lost.
    pub(crate) fn slow_down(&mut self, each_way: Duration, lost_percent: u8) {
        nft(&format!(
            "add rule bridge faults lossy numgen random mod 100 < {lost_percent} drop
             add rule bridge faults forward iifname \"slow-*\" jump lossy"
        ));
        self.slow_trunk = Some(SlowTrunk::lay(each_way));
    }

    /// Lets everything through again, at once.
    pub(crate) fn heal(&mut self) {
        if self.slow_trunk.take().is_some() {
            ip("link set trunk-s master servers\nlink set trunk-m master members\n");
        }
        nft(&format!("delete table bridge faults\n{RULES}"));
    }
}

/// Replaces the trunk. Not every kernel can delay packets (`netem`), so a process does it: each switch gets a
/// TAP device, whose frames socat hands over as datagrams, and a thread of ours passes them on, later.
struct SlowTrunk {
    done: Arc<AtomicBool>,
    _ends: [Process; 2],
}

impl SlowTrunk {
    fn lay(delay: Duration) -> Self {
        let relay = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let here = relay.local_addr().expect("a bound address");
        let ends = ["slow-s", "slow-m"].map(|device| {
            let port = UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            let there = port.expect("a port");
            let mut socat = tied_to_this_thread("socat");
            socat
                .args(["-b", "65536", &format!("UDP4:{here},bind={there}")])
                .arg(format!("TUN,tun-type=tap,tun-name={device},iff-no-pi,iff-up"));
            (there, Process::start(&mut socat))
        });
        for device in ["slow-s", "slow-m"] {
            eventually("socat made the device", || {
                let found = Command::new("ip").args(["link", "show", device]).output();
                let made = found.is_ok_and(|output| output.status.success());
                if made { Ok(()) } else { Err("it is not there".to_owned()) }
            });
        }
        let done = Arc::<AtomicBool>::default();
        let [one, other] = [ends[0].0, ends[1].0];
        thread::spawn({
            let done = Arc::clone(&done);
            move || pass_on_later(&relay, [one, other], delay, &done)
        });
        ip("link set trunk-s nomaster\n\
            link set trunk-m nomaster\n\
            link set slow-s master servers\n\
            link set slow-m master members\n");
        Self { done, _ends: ends.map(|(_, process)| process) }
    }
}

impl Drop for SlowTrunk {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn pass_on_later(relay: &UdpSocket, ends: [SocketAddr; 2], delay: Duration, done: &AtomicBool) {
    let mut under_way = VecDeque::<(Instant, SocketAddr, Vec<u8>)>::new();
    let mut frame = vec![0; 65536];
    while !done.load(Ordering::Relaxed) {
        let next = under_way.front().map(|(due, ..)| due.saturating_duration_since(Instant::now()));
        let wait = next.unwrap_or(delay).clamp(Duration::from_millis(1), delay);
        relay.set_read_timeout(Some(wait)).expect("a wait that is not zero");
        if let Ok((length, from)) = relay.recv_from(&mut frame) {
            let to = if from == ends[0] { ends[1] } else { ends[0] };
            under_way.push_back((Instant::now() + delay, to, frame[..length].to_vec()));
        }
        while under_way.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let (_, to, frame) = under_way.pop_front().expect("there is a first one");
            // A frame that cannot be delivered is lost, as on a wire.
            let _ = relay.send_to(&frame, to);
        }
    }
}

/// A new namespace, and a process that keeps it until a file does.
struct Namespace {
    process: Process,
    file: File,
}

impl Namespace {
    fn file(self) -> File {
        self.file
    }
}

fn namespace(what: &str) -> Namespace {
    let mut command = tied_to_this_thread("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]);
    let mut process = Process::start(command.stdout(Stdio::piped()));
    let stdout = process.child().stdout.take().expect("stdout is piped");
    let mut said = String::new();
    let _ = BufReader::new(stdout).read_line(&mut said);
    assert!(
        said == "up\n",
        "{what} needs a network namespace: be root, or run this under `unshare --map-root-user`"
    );
    let file = File::open(format!("/proc/{}/ns/net", process.id())).expect("a living process");
    Namespace { process, file }
}

fn ip(batch: &str) {
    run(Command::new("ip").args(["-batch", "-"]), batch);
}

fn nft(ruleset: &str) {
    run(Command::new("nft").args(["-f", "-"]), ruleset);
}

fn run(command: &mut Command, input: &str) {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(input.as_bytes()).expect("it reads all of its input");
    drop(stdin);
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "{command:?} refused: {input}");
}
