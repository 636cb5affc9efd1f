//! The floor: bare sessions that do nothing but what no protocol can do without.
//!
//! They use the same client library, on threads of their own, and know beforehand all that a member has
//! to find out. Also here is the herd, the design that a queue is there to avoid.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpStream, tcp::OwnedWriteHalf},
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};
use zookeeper::{Acls, Client, CreateMode, Error, EventType, OneshotWatcher};

pub(crate) const SESSION: Duration = Duration::from_secs(20);

const EPHEMERAL: CreateMode = CreateMode::Ephemeral;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
}

/// A runtime that goes on in a thread of its own, so that a session in it lives while nothing is asked.
pub(crate) struct Running {
    pub(crate) runtime: Handle,
    _until_dropped: oneshot::Sender<()>,
}

impl Running {
    pub(crate) fn new() -> Self {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel::<()>();
        thread::spawn(move || runtime.block_on(dropped));
        Self { runtime: handle, _until_dropped: until_dropped }
    }
}

pub(crate) async fn connect(servers: &str) -> Client {
    Client::connector()
        .with_session_timeout(SESSION)
        .connect(servers)
        .await
        .expect("the servers run")
}

pub(crate) async fn make(client: &Client, path: &str, mode: CreateMode) {
    let made = client.create(path, b"", &mode.with_acls(Acls::anyone_all())).await;
    assert!(matches!(made, Ok(_) | Err(Error::NodeExists)), "{path}: {made:?}");
}

/// A session that watches a znode's data, from when this returns on. It ends with what happened to it, and
/// when that was known.
pub(crate) fn watch(servers: &str, path: String) -> JoinHandle<(EventType, Instant)> {
    let servers = servers.to_owned();
    let (say, said) = channel();
    let watcher = thread::spawn(move || {
        runtime().block_on(async {
            let client = connect(&servers).await;
            let (_, _, watch) = client.get_and_watch_data(&path).await.expect("it stands");
            say.send(()).expect("the caller waits");
            (watch.changed().await.event_type, Instant::now())
        })
    });
    said.recv().expect("it watches");
    watcher
}

/// What the floor's contender does when it is notified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floor {
    /// It leads.
    Notification,
    /// It writes, and leads when a quorum has.
    Write,
}

/// One of two processes that hand leadership to and fro, as a contestant: a session that deletes its znode, or one that
/// is notified of that.
pub(crate) fn contend(floor: Floor, port: &str, servers: &str, path: &str, is_first: bool) {
    let port: u16 = port.parse().expect("a number");
    runtime().block_on(async {
        let observer = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        observer.set_nodelay(true).expect("it is open");
        let (orders, mut observer) = observer.into_split();
        let mut orders = BufReader::new(orders).lines();
        let client = connect(servers).await;
        let names = if is_first { ["a", "b"] } else { ["b", "a"] };
        let [own, other] = names.map(|name| format!("{path}-{name}"));
        make(&client, &own, EPHEMERAL).await;
        let mut leads = is_first;
        if leads {
            say(&mut observer, "leads").await;
        }
        say(&mut observer, "ready").await;
        loop {
            if leads {
                let Ok(Some(_release)) = orders.next_line().await else { return };
                client.delete(&own, None).await.expect("it is ours");
                make(&client, &own, EPHEMERAL).await;
            }
            let mut watch = look_at(&client, &other).await.expect("the other stands");
            if leads {
                let Ok(Some(_settle)) = orders.next_line().await else { return };
                say(&mut observer, "back").await;
            }
            while watch.changed().await.event_type != EventType::NodeDeleted {
                // Its data changed, and it may be gone by now.
                match look_at(&client, &other).await {
                    Some(next) => watch = next,
                    None => break,
                }
            }
            if floor == Floor::Write {
                client.set_data(&own, b"leads", None).await.expect("it is ours");
            }
            say(&mut observer, "leads").await;
            leads = true;
        }
    });
}

async fn look_at(client: &Client, path: &str) -> Option<OneshotWatcher> {
    match client.get_and_watch_data(path).await {
        Ok((_, _, watch)) => Some(watch),
        Err(Error::NoNode) => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn say(observer: &mut OwnedWriteHalf, word: &str) {
    observer.write_all(format!("{word}\n").as_bytes()).await.expect("the observer reads");
}

/// Sessions in a row of threads, each of which does this with its number.
pub(crate) struct Row {
    heard: Receiver<(usize, Instant)>,
    _until_dropped: Vec<oneshot::Sender<()>>,
}

impl Row {
    /// `act` is to say when it stands ready, and then that it has heard, again and again.
    fn of<F: Future<Output = ()>>(
        count: usize,
        act: impl Fn(usize, Say) -> F + Send + Sync + 'static,
    ) -> Self {
        let act = Arc::new(act);
        let (say, heard) = channel();
        let mut until_dropped = vec![];
        for nth in 0..count {
            let (act, say) = (act.clone(), Say { nth, to: say.clone() });
            let (keep, dropped) = oneshot::channel();
            until_dropped.push(keep);
            thread::spawn(move || {
                runtime().block_on(async {
                    tokio::select! {
                        () = act(nth, say) => {}
                        _ = dropped => {}
                    }
                });
            });
            heard.recv_timeout(SESSION).expect("it stands ready");
        }
        Self { heard, _until_dropped: until_dropped }
    }

    /// Each watches the data of the one before it, reads it when that changes, and writes the same into
    /// its own: a chain that does nothing else. The first watches `/chain`, in which `chain` writes.
    pub(crate) fn chain(servers: &str, count: usize) -> Self {
        let servers = servers.to_owned();
        Self::of(count, move |nth, say| {
            let servers = servers.clone();
            async move {
                let client = connect(&servers).await;
                let own = format!("/chain-{nth}");
                let ahead =
                    if nth == 0 { "/chain".to_owned() } else { format!("/chain-{}", nth - 1) };
                make(&client, &own, EPHEMERAL).await;
                let (_, _, mut watch) =
                    client.get_and_watch_data(&ahead).await.expect("that one stands");
                say.so();
                loop {
                    watch.changed().await;
                    let (data, _, next) =
                        client.get_and_watch_data(&ahead).await.expect("that one stands");
                    say.so();
                    watch = next;
                    client.set_data(&own, &data, None).await.expect("it is ours");
                }
            }
        })
    }

    /// Each session lists the whole queue and watches its head. When the head goes, all list it again, and the session
    /// that is first now says so in its znode.
    pub(crate) fn herd(servers: &str, path: &str, count: usize) -> Self {
        let place = (servers.to_owned(), path.to_owned());
        Self::of(count, move |_, say| {
            let (servers, parent) = place.clone();
            async move {
                let client = connect(&servers).await;
                let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
                let (_, sequence) = client
                    .create(&format!("{parent}/n_"), b"", &mode)
                    .await
                    .expect("the path exists");
                let own = format!("n_{sequence}");
                loop {
                    let names = client.list_children(&parent).await.expect("the path exists");
                    let head = names.iter().min().expect("at least the own znode is there");
                    let path = format!("{parent}/{head}");
                    if *head == own {
                        client.set_data(&path, b"leads", None).await.expect("it is ours");
                        say.so();
                        return std::future::pending().await;
                    }
                    while let Ok((data, _, watch)) = client.get_and_watch_data(&path).await {
                        if data == b"leads" {
                            say.so();
                        }
                        watch.changed().await;
                    }
                }
            }
        })
    }

    /// Waits until as many have heard, and returns when each did, in that order.
    pub(crate) fn heard(&self, count: usize) -> Vec<(usize, Instant)> {
        (0..count)
            .map(|_| self.heard.recv_timeout(SESSION).expect("the change comes through"))
            .collect()
    }
}

pub(crate) struct Say {
    nth: usize,
    to: Sender<(usize, Instant)>,
}

impl Say {
    fn so(&self) {
        let _receiver_gone = self.to.send((self.nth, Instant::now()));
    }
}
