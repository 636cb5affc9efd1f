//! A contender of another client's election, made by that client itself: a process that tells when it leads.

use crate::{
    asker::now,
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use rustix::time::ClockId;
use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};
use tempfile::TempDir;

/// Debian's. `slf4j-nop` logs nothing.
const JARS: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:\
    /usr/share/java/curator-client.jar:/usr/share/java/guava.jar:/usr/share/java/zookeeper.jar:\
    /usr/share/java/zookeeper-recipes-election.jar:/usr/share/java/slf4j-nop.jar";

/// How contenders of one client are started.
pub(crate) struct Client {
    pub(crate) family: &'static str,
    /// The election's path.
    pub(crate) path: String,
    address: String,
    timeout_ms: u128,
    /// The Java classes, compiled once.
    classes: Option<TempDir>,
    /// When each led, and which are frozen since when: of all that were started so far.
    seen: Arc<Mutex<Vec<Reign>>>,
}

/// A time through which a contender saw that it led, by CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Reign {
    pub(crate) who: String,
    pub(crate) from: u64,
    /// `None` while it lasts.
    pub(crate) until: Option<u64>,
}

/// One process.
pub(crate) struct Contender {
    pub(crate) id: String,
    process: Process,
    told: ChildStdin,
    said: Arc<Mutex<Vec<String>>>,
    complained: Arc<Mutex<String>>,
    seen: Arc<Mutex<Vec<Reign>>>,
}

impl Client {
    pub(crate) fn of(family: &'static str, path: &str, address: String, timeout_ms: u128) -> Self {
        let classes = (family != "kazoo").then(compiled);
        let (path, seen) = (path.to_owned(), Arc::default());
        Self { family, path, address, timeout_ms, classes, seen }
    }

    pub(crate) fn start(&self, id: &str) -> Contender {
        let timeout = self.timeout_ms.to_string();
        let mut command = match &self.classes {
            Some(classes) => {
                let mut java = tied_to_this_thread("java");
                let path = format!("{}:{JARS}", classes.path().display());
                java.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path])
                    .args(["Contender", self.family]);
                java
            }
            None => {
                let python = env::var("KAZOO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
                let mut python = tied_to_this_thread(&python);
                python.arg(sources().join("contender.py"));
                python
            }
        };
        command.args([&*self.address, &self.path, id, &timeout]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        let child = process.child();
        let told = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let (said, complained) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (lines, seen, who) = (Arc::clone(&said), Arc::clone(&self.seen), id.to_owned());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                note(&seen, &who, &line);
                lines.lock().expect("no thread panics while holding it").push(line);
            }
        });
        let errors: Arc<Mutex<String>> = Arc::clone(&complained);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                errors.lock().expect("no thread panics while holding it").push_str(&(line + "\n"));
            }
        });
        let seen = Arc::clone(&self.seen);
        Contender { id: id.to_owned(), process, told, said, complained, seen }
    }

    /// Returns when each contender led, so far.
    pub(crate) fn reigns(&self) -> Vec<Reign> {
        self.seen.lock().expect("no thread panics while holding it").clone()
    }
}

/// Notes what a contender says of its leading.
fn note(seen: &Mutex<Vec<Reign>>, who: &str, line: &str) {
    let number = |text: &str| text.parse::<u64>().expect("a number of nanoseconds");
    let mut seen = seen.lock().expect("no thread panics while holding it");
    if let Some(from) = line.strip_prefix("leads ") {
        seen.push(Reign { who: who.to_owned(), from: number(from), until: None });
    } else if let Some(until) = line.strip_prefix("ends ") {
        let last = seen.iter_mut().rev().find(|reign| reign.who == who);
        if let Some(reign @ Reign { until: None, .. }) = last {
            reign.until = Some(number(until));
        }
    }
}

impl Contender {
    pub(crate) fn leads(&self) -> bool {
        let seen = self.seen.lock().expect("no thread panics while holding it");
        seen.iter().any(|reign| reign.who == self.id && reign.until.is_none())
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").expect("it reads");
        self.told.flush().expect("it reads");
    }

    /// Asks it who leads.
    pub(crate) fn names(&mut self) -> String {
        let answers = |said: &Mutex<Vec<String>>| {
            let said = said.lock().expect("no thread panics while holding it");
            said.iter().filter_map(|line| line.strip_prefix("who ").map(str::to_owned)).collect()
        };
        let before: Vec<String> = answers(&self.said);
        self.tell("who");
        eventually(&format!("{} answers", self.id), || {
            let after: Vec<String> = answers(&self.said);
            let complained = self.complained.lock().expect("no thread panics while holding it");
            after.get(before.len()).cloned().ok_or_else(|| complained.clone())
        })
    }

    /// What it led, it led until now: it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
        self.end(now(ClockId::Monotonic));
    }

    /// Has it end its session, and its process.
    pub(crate) fn leave(&mut self) {
        self.tell("quit");
        self.process.wait();
        self.end(now(ClockId::Monotonic));
    }

    /// While it is stopped, it can neither act nor see.
    pub(crate) fn freeze(&self) {
        let led = self.leads();
        self.process.signal("STOP");
        if led {
            self.end(now(ClockId::Monotonic));
        }
    }

    /// From here on it is taken for a leader again until it says that it does not, if it has not said so.
    pub(crate) fn thaw(&self, led: bool) {
        if led {
            let reign = Reign { who: self.id.clone(), from: now(ClockId::Monotonic), until: None };
            self.seen.lock().expect("no thread panics while holding it").push(reign);
        }
        self.process.signal("CONT");
    }

    fn end(&self, at: u64) {
        let mut seen = self.seen.lock().expect("no thread panics while holding it");
        for reign in seen.iter_mut().filter(|it| it.who == self.id && it.until.is_none()) {
            reign.until = Some(at);
        }
    }
}

/// The same moment by CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns(moment: Instant) -> u64 {
    let since = u64::try_from(moment.elapsed().as_nanos()).expect("a short time");
    now(ClockId::Monotonic).saturating_sub(since)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ensemble/contenders")
}

fn compiled() -> TempDir {
    let classes = tempfile::tempdir().expect("a directory");
    let source = sources().join("Contender.java");
    assert!(fs::exists(&source).expect("it can be looked for"), "{}", source.display());
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-proc:none", "-cp", JARS, "-d"]).arg(classes.path()).arg(source);
    let output = javac.output().expect("a JDK is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    classes
}
