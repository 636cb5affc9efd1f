//! A real ZooKeeper server of Debian's package, with a free port and a directory of its own, gone after the test.

use std::env;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Debian's `zookeeper.jar` names the jars it needs in its manifest; `slf4j-simple` lets it log to a file.
/// `ZOOKEEPER_CLASSPATH` names another version (`scripts/zookeeper`).
const CLASSPATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// Longer than a start may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One standalone server.
#[derive(Debug)]
pub(crate) struct RealServer {
    process: Child,
    address: SocketAddr,
    home: TempDir,
}

impl RealServer {
    /// Starts a server that looks for containers to delete this often, and returns when it serves. The kernel ends it with
    /// the thread that has started it.
    pub(crate) fn start(container_check_interval: Duration) -> Self {
        let home = TempDir::with_prefix("bellwether-dev-server-").unwrap();
        let address = free_address();
        let config = home.path().join("zoo.cfg");
        let text = format!(
            "tickTime=2000\n\
             maxClientCnxns=0\n\
             forceSync=no\n\
             4lw.commands.whitelist=*\n\
             clientPortAddress={ip}\n\
             clientPort={port}\n\
             dataDir={data}\n",
            ip = address.ip(),
            port = address.port(),
            data = home.path().join("data").display(),
        );
        fs::write(&config, text).unwrap();
        let log = home.path().join("log");
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "java"])
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .arg(format!("-Dorg.slf4j.simpleLogger.logFile={}", log.display()))
            .arg("-Dzookeeper.admin.enableServer=false")
            .arg(format!(
                "-Dznode.container.checkIntervalMs={}",
                container_check_interval.as_millis()
            ))
            .arg("-Dzookeeper.extendedTypesEnabled=true")
            .arg("-cp")
            .arg(env::var_os("ZOOKEEPER_CLASSPATH").unwrap_or_else(|| CLASSPATH.into()))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("util-linux (setpriv) is installed");
        let mut server = Self { process, address, home };
        server.wait_until_serving();
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of what it has logged.
    pub(crate) fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn wait_until_serving(&mut self) {
        let start = Instant::now();
        while !self.serves() {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!(
                    "the real ZooKeeper ended ({status}); it needs Debian's packages zookeeper and \
                     libslf4j-java. The end of its log:\n{}",
                    self.end_of_log()
                );
            }
            assert!(start.elapsed() < PATIENCE, "it does not serve:\n{}", self.end_of_log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn serves(&self) -> bool {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(self.address)?;
            // It may be asked while it begins to listen, and then never answer.
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"srvr")?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("Mode: "))
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _waited = self.process.wait();
    }
}

/// Below the ports from which the kernel serves outgoing connections, which would take it while the server starts.
fn free_address() -> SocketAddr {
    loop {
        let random = RandomState::new().hash_one(0) % 20_000;
        let port = 10_000 + u16::try_from(random).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        }
    }
}
