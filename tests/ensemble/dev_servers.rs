//! In-memory servers in the place of the real ones of `servers.rs`, each in a thread of the test's own process.
//!
//! They keep nothing: a test whose server comes back with its data needs a real one, and cannot be written here.

use crate::ports;
pub(crate) use dev_server::Keeper;
use dev_server::{DevServer, Knobs};
use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

pub(crate) use crate::ports::free_ports;

/// That of the real servers.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// How a server is to be set up, by default as a real one of the tests, or like ClickHouse Keeper where `TEST_KEEPER` is set.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// How often a server looks for containers that are empty.
    pub(crate) container_check: Duration,
    /// Behave like ClickHouse Keeper.
    pub(crate) keeper: Option<Keeper>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick: TICK,
            min_session_timeout: 2 * TICK,
            max_session_timeout: Duration::from_secs(20),
            container_check: Duration::from_secs(60),
            keeper: std::env::var_os("TEST_KEEPER").map(|_| Keeper::default()),
        }
    }
}

/// One server, by the name of the real ones.
pub(crate) struct Servers(Server);

pub(crate) struct Server {
    socket: SocketAddrV4,
    settings: Settings,
    running: Option<Running>,
}

struct Running {
    knobs: Knobs,
    runtime: Handle,
    /// The thread waits while there is one of these.
    paused: Option<mpsc::Sender<()>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Servers {
    pub(crate) fn standalone() -> Self {
        let mut servers = Self::prepared(&Settings::default());
        servers.start();
        servers
    }

    /// Prepares a server without starting it: `start` does that.
    pub(crate) fn prepared(settings: &Settings) -> Self {
        let [port] = free_ports();
        let socket = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Self(Server { socket, settings: settings.clone(), running: None })
    }

    pub(crate) fn start(&mut self) {
        self.0.launch();
    }

    pub(crate) fn connect_string(&self) -> String {
        self.0.address()
    }

    pub(crate) fn first(&mut self) -> &mut Server {
        &mut self.0
    }
}

impl Server {
    /// Closes its connections and its port, and forgets all.
    pub(crate) fn kill(&mut self) {
        let Running { paused, stop, thread, .. } = self.running.take().expect("it runs");
        drop(paused);
        drop(stop);
        thread.join().expect("its thread does not panic");
    }

    /// It has forgotten all when it was killed.
    pub(crate) fn forget_all(&self) {}

    /// Stops its only thread, as SIGSTOP would: connections stay open and nothing is answered.
    pub(crate) fn pause(&mut self) {
        let running = self.running.as_mut().expect("it runs");
        let (resume, resumed) = mpsc::channel::<()>();
        let (pause, paused) = mpsc::channel();
        running.runtime.spawn(async move {
            pause.send(()).expect("the test waits for it");
            let _it_may_go_on = resumed.recv();
        });
        paused.recv().expect("its thread runs");
        running.paused = Some(resume);
    }

    pub(crate) fn resume(&mut self) {
        self.running.as_mut().expect("it runs").paused = None;
    }

    pub(crate) fn address(&self) -> String {
        self.socket.to_string()
    }

    pub(crate) fn socket(&self) -> SocketAddrV4 {
        self.socket
    }

    /// Sends a four-letter word (`wchc`, `cons`) and reads the answer.
    pub(crate) fn ask(&self, word: &str) -> io::Result<String> {
        ports::ask(self.socket, word)
    }

    fn launch(&mut self) {
        let settings = dev_server::ServerSettings {
            listen: self.socket.into(),
            tick: self.settings.tick,
            min_session_timeout: Some(self.settings.min_session_timeout),
            max_session_timeout: Some(self.settings.max_session_timeout),
            max_connections_per_address: 0,
            extended_types: false,
            container_check_interval: self.settings.container_check,
            keeper: self.settings.keeper,
            ..dev_server::ServerSettings::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (start, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let server = DevServer::start(settings).await.expect("its port is free");
                start.send((server.knobs(), Handle::current())).expect("the test waits for it");
                let _dropped = stopped.await;
                server.stop().await;
            });
        });
        let (knobs, runtime) = started.recv().expect("it listens");
        self.running = Some(Running { knobs, runtime, paused: None, stop, thread });
    }
}

/// Ends another client's session by force, as `expire.rs` does on a real server.
pub(crate) fn expire(server: &Server, session: i64) {
    let running = server.running.as_ref().expect("it runs");
    assert!(running.knobs.expire(session), "there is no session {session:#x}");
}
