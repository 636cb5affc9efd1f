//! What all parts share: the servers, and how much is to be done.

use crate::servers::{Server, Servers, Settings};
use std::{
    env, fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

pub(crate) struct Scene {
    /// Whether everything is only to be seen to work.
    pub(crate) quick: bool,
    /// How large the elections are whose leader hands over, if not as usual.
    pub(crate) members: Option<Vec<usize>>,
    /// How many servers there are, one number after the other.
    pub(crate) servers: Vec<u16>,
    /// Another build of the program than the one that cargo made for this.
    pub(crate) program: Option<String>,
    names: AtomicUsize,
}

pub(crate) struct Ensemble {
    pub(crate) name: String,
    pub(crate) servers: Servers,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            quick: false,
            members: None,
            servers: vec![1, 3],
            program: None,
            names: AtomicUsize::new(0),
        }
    }

    /// What there is to measure against, one after the other, each begun anew.
    pub(crate) fn ensembles(&self) -> impl Iterator<Item = Ensemble> + '_ {
        self.servers.iter().map(|&servers| Ensemble {
            name: match servers {
                1 => "One server".to_owned(),
                3 => "Three servers".to_owned(),
                more => format!("{more} servers"),
            },
            servers: started(servers),
        })
    }

    pub(crate) fn pick<T>(&self, thorough: T, quick: T) -> T {
        if self.quick { quick } else { thorough }
    }

    pub(crate) fn repetitions(&self) -> usize {
        self.pick(3, 1)
    }

    /// A path that no election has used yet.
    pub(crate) fn path(&self) -> String {
        format!("/bench-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// As servers are usually run: each write is on the disk before it is answered.
pub(crate) fn started(servers: u16) -> Servers {
    let mut servers = Servers::prepared(&Settings {
        servers,
        max_session_timeout: Duration::from_secs(60),
        more: "forceSync=yes\n".to_owned(),
        ..Settings::default()
    });
    servers.start();
    servers
}

/// What a server has counted, by `mntr`.
pub(crate) struct Counters(String);

impl Counters {
    pub(crate) fn of(server: &Server) -> Self {
        Self(server.ask("mntr").expect("it runs"))
    }

    pub(crate) fn of_name(&self, name: &str) -> f64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        value.and_then(|value| value.trim().parse().ok()).expect("every server counts it")
    }

    pub(crate) fn packets(&self) -> f64 {
        self.of_name("zk_packets_received") + self.of_name("zk_packets_sent")
    }
}

/// How many the servers have agreed on since they have their present head: the lower half of the number.
pub(crate) fn transactions(server: &Server) -> u64 {
    let told = server.ask("srvr").expect("it runs");
    let zxid = told.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
    let zxid = zxid.and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
    zxid.expect("a server tells it") & u64::from(u32::MAX)
}

/// This program, for those of its parts that are processes of their own.
pub(crate) fn ourselves() -> String {
    let path = env::current_exe().expect("a program has a path");
    path.into_os_string().into_string().expect("paths here are text")
}

/// A file beside this one.
pub(crate) fn beside(name: &str) -> String {
    format!("{}/benches/bench/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The processor time of all threads that the process has now.
pub(crate) fn cpu_ms(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs");
    let spent_ns = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    spent_ns.sum::<f64>() / 1e6
}
