//! Real ZooKeeper servers from Debian's package, each with its own port and directory, gone after the test.

use crate::{
    host::Host,
    ports,
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    thread,
    time::Duration,
};
use tempfile::TempDir;

pub(crate) use crate::ports::free_ports;

/// Debian's `zookeeper.jar` names the jars it needs in its manifest, but for what Netty itself needs for
/// TLS; `slf4j-simple` lets it log to a file. `ZOOKEEPER_CLASSPATH` names another version (`scripts/zookeeper`).
const CLASSPATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:\
    /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// A tick far below the default of 2 s, so that short session timeouts are granted.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// How the servers are to be set up. Session timeouts outside of the range are cut to it by the server.
pub(crate) struct Settings {
    pub(crate) servers: u16,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// How often a server looks for containers that are empty.
    pub(crate) container_check: Duration,
    /// More lines for each server's configuration.
    pub(crate) more: String,
    /// More system properties for each server.
    pub(crate) properties: Vec<String>,
    /// Of another version.
    pub(crate) class_path: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            servers: 1,
            tick: TICK,
            min_session_timeout: 2 * TICK,
            max_session_timeout: Duration::from_secs(20),
            container_check: Duration::from_secs(60),
            more: String::new(),
            properties: Vec::new(),
            class_path: env::var("ZOOKEEPER_CLASSPATH").ok(),
        }
    }
}

pub(crate) struct Servers {
    all: Vec<Server>,
    _home: TempDir,
}

pub(crate) struct Server {
    host: Arc<Host>,
    port: u16,
    home: PathBuf,
    container_check: Duration,
    properties: Vec<String>,
    class_path: String,
    process: Option<Process>,
}

struct Peer {
    address: Ipv4Addr,
    /// For clients, for the quorum and for votes.
    ports: [u16; 3],
}

impl Servers {
    pub(crate) fn standalone() -> Self {
        let mut servers = Self::prepared(&Settings::default());
        servers.start();
        servers
    }

    pub(crate) fn three() -> Self {
        let mut servers = Self::prepared(&Settings { servers: 3, ..Settings::default() });
        servers.start();
        servers
    }

    /// Prepares servers without starting them: `start` does that.
    pub(crate) fn prepared(settings: &Settings) -> Self {
        let hosts: Vec<Arc<Host>> = (0..settings.servers).map(|_| Host::this()).collect();
        Self::prepared_on(&hosts, settings)
    }

    /// One server on each host.
    pub(crate) fn prepared_on(hosts: &[Arc<Host>], settings: &Settings) -> Self {
        let home = TempDir::with_prefix("bellwether-ensemble-").expect("a temporary directory");
        let peers: Vec<Peer> = hosts
            .iter()
            .map(|host| Peer { address: host.address, ports: host.inside(free_ports) })
            .collect();
        let all = hosts
            .iter()
            .enumerate()
            .map(|(n, host)| {
                let directory = home.path().join(n.to_string());
                fs::create_dir_all(directory.join("data")).expect("a directory for the data");
                fs::write(directory.join("data/myid"), n.to_string()).expect("myid is written");
                let [port, ..] = peers[n].ports;
                let server = Server {
                    host: Arc::clone(host),
                    port,
                    home: directory,
                    container_check: settings.container_check,
                    properties: settings.properties.clone(),
                    class_path: settings.class_path.clone().unwrap_or_else(|| CLASSPATH.into()),
                    process: None,
                };
                fs::write(server.file("zoo.cfg"), server.config(settings, &peers))
                    .expect("zoo.cfg is written");
                server
            })
            .collect();
        Self { all, _home: home }
    }

    /// Starts all of them, and returns when all of them serve.
    pub(crate) fn start(&mut self) {
        self.all.iter_mut().for_each(Server::launch);
        self.all.iter_mut().for_each(|server| server.wait_until_serving(&mut 0));
    }

    /// Starts the servers that do not run, all at once, so that none waits too long for a quorum with
    /// the others. Since 3.9.6, a follower that loses its leader may find a gap in its own log and end: a minority of such
    /// servers is started without their data, as an operator would do it.
    pub(crate) fn revive(&mut self) {
        self.all.iter_mut().filter(|server| server.process.is_none()).for_each(Server::launch);
        let mut minority = (self.all.len() - 1) / 2;
        self.all.iter_mut().for_each(|server| server.wait_until_serving(&mut minority));
    }

    pub(crate) fn connect_string(&self) -> String {
        let hosts: Vec<String> = self.all.iter().map(Server::address).collect();
        hosts.join(",")
    }

    /// The only server, or the first of three.
    pub(crate) fn first(&mut self) -> &mut Server {
        &mut self.all[0]
    }

    pub(crate) fn all(&mut self) -> &mut [Server] {
        &mut self.all
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut Server> {
        self.all.iter_mut()
    }

    /// Whether they are of a version that the documents recommend. Of the others, one may go on without a transaction that was
    /// committed, or with one that was not, when all are killed at once (ZOOKEEPER-4785 and others).
    pub(crate) fn keep_what_they_commit(&self) -> bool {
        match self.all[0].version() {
            [3, 8, patch] => patch >= 5,
            [3, 9, patch] => patch >= 4,
            [major, minor, _] => (major, minor) > (3, 9),
        }
    }

    /// Whether they start with a log that lacks a transaction.
    pub(crate) fn start_with_gaps(&self) -> bool {
        self.all[0].version() < [3, 9, 6]
    }
}

impl Server {
    /// Gives it this transaction log, as if all in it had happened before its first start.
    pub(crate) fn give_a_past(&self, log: &[u8]) {
        fs::create_dir_all(self.file("data/version-2")).expect("a directory for the log");
        fs::write(self.file("data/version-2/log.1"), log).expect("the log is written");
    }

    /// Starts it, the first time or again on the same port and data, and returns when it serves.
    pub(crate) fn start(&mut self) {
        self.launch();
        self.wait_until_serving(&mut 0);
    }

    /// SIGKILL: nothing is flushed, no session is closed.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("a server that runs").kill();
    }

    /// SIGSTOP: connections stay open and nothing is answered.
    pub(crate) fn pause(&self) {
        self.process.as_ref().expect("a server that runs").signal("STOP");
    }

    pub(crate) fn resume(&self) {
        self.process.as_ref().expect("a server that runs").signal("CONT");
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn address(&self) -> String {
        self.socket().to_string()
    }

    pub(crate) fn socket(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host.address, self.port)
    }

    /// Deletes all its data while it does not run: the other servers send it again.
    pub(crate) fn forget_all(&self) {
        assert!(!self.runs(), "the server runs");
        fs::remove_dir_all(self.logs()).expect("its data is deleted");
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Where it keeps its logs of transactions and its snapshots.
    pub(crate) fn logs(&self) -> PathBuf {
        self.file("data/version-2")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// The three numbers of its version.
    fn version(&self) -> [u32; 3] {
        let told = self.ask("srvr").expect("it serves");
        let (_, version) = told.split_once("version: ").expect("it is the first line");
        let mut numbers = version.split(['.', '-']).map_while(|number| number.parse().ok());
        std::array::from_fn(|_| numbers.next().expect("three numbers"))
    }

    /// Sends a four-letter word (`srvr`, `mntr`, `wchc`, `cons`) and reads the answer.
    pub(crate) fn ask(&self, word: &str) -> io::Result<String> {
        ports::ask(self.socket(), word)
    }

    fn launch(&mut self) {
        let log = self.file("log");
        let mut command = tied_to_this_thread("java");
        command
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .arg(format!("-Dorg.slf4j.simpleLogger.logFile={}", log.display()))
            .arg("-Dzookeeper.admin.enableServer=false")
            .arg(format!("-Dznode.container.checkIntervalMs={}", self.container_check.as_millis()))
            // A server that waits alone asks again soon, not after up to a minute.
            .arg("-Dzookeeper.fastleader.maxNotificationInterval=1000")
            // It may have been given a past, which is a log without a snapshot.
            .arg("-Dzookeeper.snapshot.trust.empty=true")
            .args(self.properties.iter().map(|property| format!("-D{property}")))
            .args(["-cp", &self.class_path])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.file("zoo.cfg"))
            .stderr(Stdio::null());
        self.process = Some(self.host.inside(|| Process::start(&mut command)));
    }

    /// So many may yet be started without their data.
    fn wait_until_serving(&mut self, may_be_emptied: &mut usize) {
        let what = format!("the ZooKeeper server on {} serves", self.address());
        eventually(&what, || {
            let process = self.process.as_mut().expect("a server that was launched");
            if let Some(status) = process.ended() {
                let log = self.end_of_log();
                let has_gap = log.contains("is not the next proposal");
                assert!(has_gap && *may_be_emptied > 0, "the server ended ({status}). {log}");
                *may_be_emptied -= 1;
                eprintln!("{} has a gap in its log, and starts without its data", self.address());
                self.process = None;
                self.forget_all();
                self.launch();
            }
            match self.ask("srvr") {
                Ok(answer) if answer.contains("Mode: ") => Ok(()),
                other => Err(format!("{other:?}. {}", self.end_of_log())),
            }
        });
    }

    fn config(&self, settings: &Settings, peers: &[Peer]) -> String {
        let ensemble = match peers {
            [_] => String::new(),
            peers => peers
                .iter()
                .enumerate()
                .map(|(n, Peer { address, ports: [_, quorum, vote] })| {
                    format!("server.{n}={address}:{quorum}:{vote}\n")
                })
                .collect(),
        };
        // The limits in ticks come to 20 s and 4 s: followers must not be lost to a busy machine.
        format!(
            "tickTime={tick}\n\
             minSessionTimeout={min}\n\
             maxSessionTimeout={max}\n\
             initLimit=100\n\
             syncLimit=20\n\
             maxClientCnxns=0\n\
             forceSync=no\n\
             4lw.commands.whitelist=*\n\
             clientPortAddress={address}\n\
             clientPort={port}\n\
             dataDir={data}\n\
             {ensemble}{more}",
            more = settings.more,
            tick = settings.tick.as_millis(),
            min = settings.min_session_timeout.as_millis(),
            max = settings.max_session_timeout.as_millis(),
            address = self.host.address,
            port = self.port,
            data = self.file("data").display(),
        )
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("The end of its log:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- ZooKeeper on {}. {}", self.address(), self.end_of_log());
        }
    }
}
