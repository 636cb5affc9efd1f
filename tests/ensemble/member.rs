//! One running `bellwether`, asked over HTTP as its application would ask it.

use crate::{
    host::Host,
    process::{Process, tied_to_this_thread},
    servers::{Servers, TICK},
    wait::eventually,
};
use serde_json::Value;
use std::{
    env,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Lines, Write},
    ops::AddAssign,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use ureq::{
    Agent, BodyReader,
    http::{HeaderMap, Request},
};

/// The session timeout of tests where no member is killed: long, so that a busy machine ends no session.
pub(crate) const LONG_SESSION: Duration = Duration::from_secs(10);

/// The session timeout of tests where a member is killed: short, as the others wait for its session's end.
pub(crate) const SHORT_SESSION: Duration = Duration::from_secs(2);

/// What a member is started with.
#[derive(Clone)]
pub(crate) struct Setup {
    zookeeper: String,
    /// The program, after the wrappers that run it.
    command: Vec<String>,
    session_timeout: Duration,
    listen: String,
    arguments: Vec<String>,
    /// What `exec` is to run; without it, `run` is what is started.
    task: Vec<String>,
    environment: Vec<(String, String)>,
    /// The directory of the traces, one for each process.
    traces: Option<PathBuf>,
}

pub(crate) struct Member {
    pub(crate) id: String,
    host: Arc<Host>,
    process: Process,
    log: Arc<Mutex<String>>,
    port: OnceLock<u16>,
    agent: Agent,
}

/// What was answered over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Setup {
    pub(crate) fn of(servers: &Servers) -> Self {
        Self::at(servers.connect_string())
    }

    pub(crate) fn at(connect_string: String) -> Self {
        Self {
            zookeeper: connect_string,
            command: vec![env!("CARGO_BIN_EXE_bellwether").to_owned()],
            session_timeout: LONG_SESSION,
            listen: "127.0.0.1:0".to_owned(),
            arguments: Vec::new(),
            task: Vec::new(),
            environment: Vec::new(),
            traces: None,
        }
    }

    /// Uses another build of the binary than the one cargo made for this test.
    pub(crate) fn program(self, program: String) -> Self {
        Self { command: vec![program], ..self }
    }

    /// Starts it through another program, which executes this one in the end.
    pub(crate) fn run_by(mut self, other: &[&str]) -> Self {
        self.command.splice(0..0, other.iter().map(|&word| word.to_owned()));
        self
    }

    pub(crate) fn short_sessions(self) -> Self {
        self.sessions(SHORT_SESSION)
    }

    pub(crate) fn sessions(self, session_timeout: Duration) -> Self {
        Self { session_timeout, ..self }
    }

    pub(crate) fn listen(self, address: &str) -> Self {
        Self { listen: address.to_owned(), ..self }
    }

    pub(crate) fn option(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// A flag without a value.
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.arguments.push(flag.to_owned());
        self
    }

    pub(crate) fn runs_a_command(&self) -> bool {
        !self.task.is_empty()
    }

    /// Runs this command while it leads.
    pub(crate) fn executing(self, task: &[&str]) -> Self {
        Self { task: task.iter().map(|&word| word.to_owned()).collect(), ..self }
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Logs, in JSON, all that `scripts/check-log` reads.
    pub(crate) fn traced(self) -> Self {
        let level = "info,bellwether=debug,bellwether::protocol=trace";
        self.option("--log-format", "json").environment("RUST_LOG", level)
    }

    /// The same, in files of their own.
    pub(crate) fn traced_to(self, directory: &Path) -> Self {
        Self { traces: Some(directory.to_owned()), ..self.traced() }
    }

    /// Starts a member and does not wait for anything.
    pub(crate) fn start(&self, id: &str) -> Member {
        self.start_on(&Host::this(), id)
    }

    pub(crate) fn start_on(&self, host: &Arc<Host>, id: &str) -> Member {
        let mut command = tied_to_this_thread(&self.command[0]);
        command
            .args(&self.command[1..])
            .arg(if self.task.is_empty() { "run" } else { "exec" })
            .args(["--id", id, "--listen", &self.listen, "--zookeeper", &self.zookeeper])
            .args(["--session-timeout", &format!("{}ms", self.session_timeout.as_millis())])
            .args(["--tick-time", &format!("{}ms", TICK.as_millis())])
            .args(&self.arguments)
            .stderr(Stdio::piped());
        if !self.task.is_empty() {
            command.arg("--").args(&self.task);
        }
        for (name, _) in env::vars_os() {
            if name == "POD_NAME" || name.as_encoded_bytes().starts_with(b"BELLWETHER_") {
                command.env_remove(name);
            }
        }
        command.env("RUST_LOG", "info,bellwether=debug");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));

        let mut process = host.inside(|| Process::start(&mut command));
        let log = Arc::<Mutex<String>>::default();
        let stderr = process.child().stderr.take().expect("stderr is piped");
        let lines = Arc::clone(&log);
        let name = format!("trace-{id}-{}", process.id());
        let trace = self.traces.as_ref().map(|directory| directory.join(name));
        thread::spawn(move || {
            let mut trace_file: Option<File> = None;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(path) = trace.as_ref().filter(|_| line.contains("bellwether::protocol"))
                {
                    let file = trace_file.get_or_insert_with(|| {
                        let file = OpenOptions::new().append(true).create(true).open(path);
                        file.expect("a file for a trace")
                    });
                    file.write_all(format!("{line}\n").as_bytes()).expect("room for a trace");
                    continue;
                }
                let mut log = lines.lock().expect("no thread panics while holding the log");
                log.push_str(&line);
                log.push('\n');
            }
        });
        Member {
            id: id.to_owned(),
            host: Arc::clone(host),
            process,
            log,
            port: OnceLock::new(),
            agent: agent(),
        }
    }
}

/// Session files, one for each member.
pub(crate) struct SessionFiles(TempDir);

impl SessionFiles {
    pub(crate) fn new() -> Self {
        Self(TempDir::new_in("/dev/shm").expect("a directory in memory"))
    }

    pub(crate) fn of(&self, id: &str) -> PathBuf {
        self.0.path().join(id)
    }

    /// Has a member keep its session in the file of this name.
    pub(crate) fn kept_by(&self, setup: &Setup, id: &str) -> Setup {
        setup.clone().option("--session-file", self.of(id).to_str().expect("a path of text"))
    }
}

impl Member {
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path)
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Answer {
        let answer = self.try_request(method, path);
        // Instead of sending an answer that is no longer true, a member closes the connection: ask again.
        let answer = answer.or_else(|_| self.try_request(method, path));
        answer.unwrap_or_else(|error| {
            panic!("{} runs, but does not answer {path}: {error}\n{}", self.id, self.log())
        })
    }

    /// Asks a member that may be gone.
    pub(crate) fn try_request(&self, method: &str, path: &str) -> Result<Answer, ureq::Error> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port());
        let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
        let mut response = self.host.inside(|| self.agent.run(request))?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.body_mut().read_to_string()?,
        })
    }

    /// Sends a command.
    pub(crate) fn post(&self, path: &str) -> Answer {
        self.send("POST", path, &[("x-bellwether", "1")], "")
    }

    /// Sends a command to a member that may be gone before it has answered.
    pub(crate) fn try_post(&self, path: &str) -> Result<Answer, ureq::Error> {
        self.try_send("POST", path, &[("x-bellwether", "1")], "")
    }

    pub(crate) fn get_with(&self, path: &str, header: (&str, &str)) -> Answer {
        self.send("GET", path, &[header], "")
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.try_send(method, path, headers, body).expect("a member that runs answers")
    }

    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, ureq::Error> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port());
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_owned()).expect("a request");
        let mut response = self.host.inside(|| self.agent.run(request))?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.body_mut().read_to_string()?,
        })
    }

    pub(crate) fn stream(&self, path: &str) -> Events {
        self.stream_with(path, ("accept", "text/event-stream"))
    }

    pub(crate) fn stream_with(&self, path: &str, header: (&str, &str)) -> Events {
        let uri = format!("http://127.0.0.1:{}{path}", self.port());
        let request = Request::builder().uri(uri).header(header.0, header.1).body(());
        let response = self.agent.run(request.expect("a request")).expect("an answer");
        let (head, body) = response.into_parts();
        assert_eq!(head.headers["content-type"], "text/event-stream");
        Events { lines: BufReader::new(body.into_reader()).lines() }
    }

    pub(crate) fn status(&self) -> Value {
        self.get("/status").json()
    }

    /// Checks that it is the standby, and would lead at the notification that the head is gone.
    pub(crate) fn is_ready_standby(&self) -> Result<(), String> {
        let status = self.status();
        if status["standby"]["ready"] == true { Ok(()) } else { Err(status.to_string()) }
    }

    /// Returns how often it came to lead so far, by each way.
    pub(crate) fn handovers(&self) -> Result<Handovers, String> {
        let page = self.try_request("GET", "/metrics").map_err(|error| error.to_string())?.body;
        Handovers::read(&page).ok_or(page)
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Returns the port of its API, which it logs once it listens.
    pub(crate) fn port(&self) -> u16 {
        *self.port.get_or_init(|| self.logged_port("listening on 127.0.0.1:"))
    }

    /// Returns the port of its probe listener.
    pub(crate) fn probe_port(&self) -> u16 {
        self.logged_port("probes answered on 127.0.0.1:")
    }

    pub(crate) fn logged_port(&self, words: &str) -> u16 {
        eventually("the member listens", || {
            let log = self.log();
            log.split(words).nth(1).and_then(leading_number).ok_or(log)
        })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no thread panics while holding the log").clone()
    }

    /// Waits until this is in its log: a thread reads what the member writes, a moment later.
    pub(crate) fn wait_for_log(&self, words: &str) {
        eventually(&format!("the log has {words:?}"), || {
            let log = self.log();
            log.contains(words).then_some(()).ok_or(log)
        });
    }

    /// SIGKILL: its session lives on until it times out.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for the process to end, and tells how it ended and how long that took.
    pub(crate) fn wait(&mut self) -> (ExitStatus, Duration) {
        self.process.wait()
    }
}

/// How often a member, or several, came to lead by each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handovers {
    /// At the notification that the head was gone, by a lease from before.
    pub(crate) by_notification: u64,
    /// With the acknowledgement of the claim.
    pub(crate) by_claim: u64,
}

impl Handovers {
    /// From a page of metrics, which has both counters from the start.
    fn read(page: &str) -> Option<Self> {
        let count = |way: &str| {
            let way = format!("way=\"{way}\"");
            let line = page.lines().find(|line| {
                line.starts_with("bellwether_handovers_total{") && line.contains(&way)
            })?;
            line.rsplit_once(' ')?.1.parse().ok()
        };
        Some(Self { by_notification: count("notification")?, by_claim: count("claim")? })
    }

    pub(crate) fn total(self) -> u64 {
        self.by_notification + self.by_claim
    }

    /// Returns what was added since.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            by_notification: self.by_notification - before.by_notification,
            by_claim: self.by_claim - before.by_claim,
        }
    }
}

impl AddAssign for Handovers {
    fn add_assign(&mut self, more: Self) {
        self.by_notification += more.by_notification;
        self.by_claim += more.by_claim;
    }
}

/// A stream of server-sent events, as an application reads it.
pub(crate) struct Events {
    lines: Lines<BufReader<BodyReader<'static>>>,
}

pub(crate) struct Event {
    /// Empty if it has none.
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Events {
    /// The next event. Waits for no longer than any request.
    pub(crate) fn event(&mut self) -> Event {
        let mut event = Event { name: String::new(), id: String::new(), data: Value::Null };
        loop {
            let line = self.lines.next().expect("the stream goes on").expect("the stream is text");
            match line.split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).expect("the data is JSON");
                }
                None if !event.data.is_null() => return event,
                Some(_) | None => {}
            }
        }
    }

    pub(crate) fn ended(&mut self) -> bool {
        self.lines.all(|line| line.is_ok())
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("the body is JSON ({error}): {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header of text"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- {} said:\n{}", self.id, self.log());
        }
    }
}

pub(crate) fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into()
}

fn leading_number(text: &str) -> Option<u16> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[track_caller]
pub(crate) fn ok(member: &Member, path: &str) -> Value {
    let answer = member.get(path);
    assert_eq!(answer.status, 200, "{path} of {}: {answer:?}", member.id);
    assert!(answer.header("content-type").starts_with("application/json"), "{answer:?}");
    answer.json()
}

/// RFC 9457.
#[track_caller]
pub(crate) fn problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{answer:?}");
    assert_eq!(answer.json()["status"], status, "{answer:?}");
    assert!(answer.json()["title"].is_string(), "{answer:?}");
}
