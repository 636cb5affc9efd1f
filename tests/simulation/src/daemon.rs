//! One daemon: what `bellwether::daemon` builds of a configuration, on one runtime, without threads, sockets and signals.

use crate::kernel::{self, Wait};
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use bellwether::byte_budget::ByteBudget;
use bellwether::clock::Clock;
use bellwether::config::{Config, Given, Origin, Sources, Values};
use bellwether::http::{self, Authorization, ConnectionLimits};
use bellwether::notify::{self, HooksHandle};
use bellwether::status::{self, Snapshot, StatusHandle};
use bellwether::znode_names::ElectionNames;
use bellwether::zookeeper::{self, HoldingsSettings, OpenedSessionFile, ResumeState, SessionFile};
use bellwether::{holdings, own_state, preemption, shared_config};
use http_body_util::BodyExt;
use hyper::service::Service as _;
use recipes::Moment;
use recipes::election::Member;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, LocalSet};

/// How a daemon is configured.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    pub id: String,
    pub hosts: String,
    pub session_timeout: Duration,
    pub tick: Duration,
    pub heartbeat: Duration,
    pub priority: u8,
    pub session_file: Option<PathBuf>,
}

pub struct Daemon {
    runtime: Runtime,
    local: LocalSet,
    status: StatusHandle,
    service: http::Service,
    stop: Vec<oneshot::Sender<()>>,
    /// How many of its sessions' loops have ended, and whether all of them left nothing behind.
    ended: Rc<Cell<(usize, bool)>>,
    leave: watch::Sender<Option<Moment>>,
}

/// An answer of the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub body: String,
}

/// Receives an answer.
pub type AnswerSlot = Rc<RefCell<Option<HttpAnswer>>>;

/// A stream of events that a client reads.
#[derive(Clone)]
pub struct EventStream {
    pub received: Rc<RefCell<Vec<String>>>,
    pub status: Rc<Cell<Option<u16>>>,
    pub has_ended: Rc<Cell<bool>>,
    /// The client no longer reads.
    pub is_stuck: Rc<Cell<bool>>,
    client: AbortHandle,
}

impl Daemon {
    /// Starts a daemon, which runs when it is stepped.
    pub fn start(settings: &DaemonSettings) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_keep_alive(Duration::ZERO)
            .on_thread_start(kernel::thread_begins)
            .on_thread_stop(kernel::thread_ends)
            .build()
            .expect("a runtime can be built");
        let local = LocalSet::new();
        let parts = {
            let _entered = runtime.enter();
            start_parts(settings, &local)
        };
        let Parts { status, service, stop, ended, leave } = parts;
        Self { runtime, local, status, service, stop, ended, leave }
    }

    /// Runs all its tasks until each waits.
    pub fn step(&self) -> Wait {
        self.runtime.block_on(self.local.run_until(kernel::idle()))
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.status.snapshot.borrow().clone()
    }

    /// Returns how many locks and barriers its loops know of, and tasks there are.
    pub fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }

    /// Asks the HTTP API. The answer comes in a later step.
    pub fn ask(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> AnswerSlot {
        let _entered = self.runtime.enter();
        let answer = self.service.call(request(method, uri, headers, body));
        let slot = AnswerSlot::default();
        let into = slot.clone();
        self.local.spawn_local(async move {
            let Ok(response) = answer.await;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map(|body| body.to_bytes());
            let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
            *into.borrow_mut() = Some(HttpAnswer { status, body });
        });
        slot
    }

    /// Opens a stream of the HTTP API, which ends when it is closed.
    pub fn open(&self, method: Method, uri: &str) -> EventStream {
        let _entered = self.runtime.enter();
        let answer = self.service.call(request(method, uri, &[], ""));
        let received = Rc::<RefCell<Vec<String>>>::default();
        let status = Rc::<Cell<Option<u16>>>::default();
        let has_ended = Rc::<Cell<bool>>::default();
        let is_stuck = Rc::<Cell<bool>>::default();
        let into = (received.clone(), status.clone(), has_ended.clone(), is_stuck.clone());
        let client = self.local.spawn_local(async move {
            let (received, status, has_ended, is_stuck) = into;
            let Ok(response) = answer.await;
            status.set(Some(response.status().as_u16()));
            let mut body = response.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    received.borrow_mut().push(String::from_utf8_lossy(&data).into_owned());
                }
                if is_stuck.get() {
                    std::future::pending::<()>().await;
                }
            }
            has_ended.set(true);
        });
        EventStream { received, status, has_ended, is_stuck, client: client.abort_handle() }
    }

    /// Lets it leave in order, as SIGTERM does.
    pub fn leave(&mut self) {
        for stop in self.stop.drain(..) {
            let _already_gone = stop.send(());
        }
        let until = Moment(Duration::from_nanos(kernel::clock()) + Duration::from_secs(2));
        self.leave.send_replace(Some(until));
    }

    /// Returns whether it has left, and if so, whether nothing of it is surely left.
    pub fn has_left(&self) -> Option<bool> {
        let (ended, is_clean) = self.ended.get();
        (ended == 2).then_some(is_clean)
    }

    /// Ends it as SIGKILL does.
    pub fn kill(self) {
        let Self { runtime, local, .. } = self;
        drop(local);
        runtime.shutdown_background();
    }
}

impl EventStream {
    /// Ends the client.
    pub fn close(&self) {
        self.client.abort();
    }
}

fn request(method: Method, uri: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let request = Request::builder().method(method).uri(uri).header("x-bellwether", "1");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let body = if body.is_empty() { Body::empty() } else { Body::from(body.to_owned()) };
    request.body(body).expect("a simulated client asks for what there is")
}

struct Parts {
    status: StatusHandle,
    service: http::Service,
    stop: Vec<oneshot::Sender<()>>,
    ended: Rc<Cell<(usize, bool)>>,
    leave: watch::Sender<Option<Moment>>,
}

/// Builds what the daemon builds, in the same order.
fn start_parts(settings: &DaemonSettings, local: &LocalSet) -> Parts {
    let config = settings.config();
    let clock = Clock::system();
    let resume = resume_state(&config, clock);
    let recipes = config.recipes.map(|paths| HoldingsSettings {
        zookeeper: config.settings.zookeeper.clone(),
        paths,
        margins: config.policy.margins,
        member: config.profile.id.clone(),
    });
    let recipes = recipes.expect("locks are on by default");
    let member = Member::new(Arc::new(config.profile), config.policy);
    let member = member.with_time_to_end(config.reserve).of_priority(config.priority);
    let (publisher, status) = status::set_up(&member, clock.now());
    let (stage, HooksHandle { leave, records, .. }) = notify::set_up(vec![]);
    let budget = ByteBudget::of_mib(config.buffers_mib);
    let (mut holding_requests, holdings) = holdings::set_up();
    let (mut config_requests, shared_config) =
        shared_config::set_up(&recipes.paths.config, &budget);
    let status = StatusHandle {
        hooks: records,
        holdings: Some(holdings),
        shared_config: Some(shared_config),
        ..status
    };
    let names = ElectionNames {
        election: config.election,
        path: config.settings.root.clone(),
        znodes: config.settings.znodes.clone(),
    };
    let limits = ConnectionLimits::for_application(budget);
    let services =
        http::services(status.clone(), clock, names.clone(), Authorization::Header, &limits);
    let ended = Rc::new(Cell::new((0, true)));
    let (stop_election, election_stops) = oneshot::channel();
    let (stop_holdings, mut holdings_stop) = oneshot::channel();
    let of_election = ended.clone();
    let of_holdings = ended.clone();
    let zookeeper = config.settings;
    let credentials = bellwether::zookeeper::Credentials::of(&zookeeper.zookeeper);
    let of_the_recipes = credentials.clone();
    local.spawn_local(async move {
        let is_clean = zookeeper::run(
            member,
            zookeeper,
            credentials,
            clock,
            publisher,
            resume,
            election_stops,
        )
        .await;
        let (count, all) = of_election.get();
        of_election.set((count + 1, all && is_clean));
    });
    local.spawn_local(async move {
        let requests = (&mut holding_requests, &mut config_requests);
        let is_clean =
            zookeeper::run_holdings(recipes, of_the_recipes, clock, requests, &mut holdings_stop)
                .await;
        let (count, all) = of_holdings.get();
        of_holdings.set((count + 1, all && is_clean));
    });
    let of_hooks = status.clone();
    local.spawn_local(async move {
        let _ended = notify::run(stage, names, None, clock, of_hooks).await;
    });
    local.spawn_local(own_state::publish(status.clone()));
    local.spawn_local(preemption::run(status.clone(), clock));
    Parts { status, service: services.api, stop: vec![stop_election, stop_holdings], ended, leave }
}

fn resume_state(config: &Config, clock: Clock) -> ResumeState {
    let Some(path) = &config.session_file else { return ResumeState::default() };
    let member = config.profile.id.as_str();
    let opened = SessionFile::open(Path::new(path), &config.settings, member, clock);
    let OpenedSessionFile { file, former, .. } = opened.expect("no other process has it open");
    ResumeState { file: Some(Arc::new(file)), former }
}

impl DaemonSettings {
    fn config(&self) -> Config {
        let mut sources = Sources::default();
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        let mut give = |key: &'static str, text: String| {
            sources.given.insert(key, Given { text, origin: Origin::Flag("simulation") });
        };
        give("zookeeper.servers", self.hosts.clone());
        give("member.id", self.id.clone());
        give("zookeeper.session_timeout", millis(self.session_timeout));
        give("zookeeper.tick_time", millis(self.tick));
        give("lease.heartbeat", millis(self.heartbeat));
        give("election.priority", self.priority.to_string());
        if let Some(file) = &self.session_file {
            give("zookeeper.session_file", file.display().to_string());
        }
        let values = Values::new(sources).expect("nothing is given twice");
        Config::new(&values).unwrap_or_else(|error| panic!("the settings are right: {error}"))
    }
}
