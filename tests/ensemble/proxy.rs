//! A forwarder in front of a real server, which lets through what a test lets it, frame by frame.
//!
//! ZooKeeper's protocol is frames behind their length; the first each way is the handshake.

use crate::{frames::read_frame, servers::Server};
use std::{
    io::{self, Write},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Each connection is closed at once.
    Closed,
    /// The handshake is answered; later requests do not reach the server.
    GreetsOnly,
    /// A create of a ticket waits for so many more of them, and then all go on at once.
    Gathers(usize),
    /// Open until a member joins: the connection is lost before the request reaches the server.
    /// Closed from then on.
    LosesTheCreate,
    /// Open until a member joins: the connection is lost when the server has created the
    /// znode, before it says so. Closed from then on.
    LosesTheReplyToTheCreate,
}

struct Shared {
    server: SocketAddrV4,
    mode: Mutex<Mode>,
    mode_set: Condvar,
    open: Mutex<Vec<TcpStream>>,
    done: AtomicBool,
}

/// What the two threads of one connection share.
struct Visit {
    shared: Arc<Shared>,
    /// The request whose answer is to be lost.
    lost: Mutex<Option<i32>>,
}

enum Judged {
    Pass,
    Swallow,
    Cut,
}

impl Proxy {
    pub(crate) fn before(server: &Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a bound address").port();
        let shared = Arc::new(Shared {
            server: server.socket(),
            mode: Mutex::new(Mode::Open),
            mode_set: Condvar::new(),
            open: Mutex::default(),
            done: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if serving.done.load(Ordering::Relaxed) {
                    return;
                }
                // A client that cannot be served is dropped, which closes its connection.
                let _ = serving.let_in(client);
            }
        });
        Self { port, shared }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn mode(&self) -> Mode {
        *self.shared.mode()
    }

    /// Sets the mode, also for connections that are open.
    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode() = mode;
        self.shared.mode_set.notify_all();
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for stream in self.shared.open.lock().expect("no thread panics with it").drain(..) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the thread that waits for clients, so that it sees that all is done.
        let _ = TcpStream::connect(self.address());
    }
}

impl Shared {
    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().expect("no thread panics with it")
    }

    fn let_in(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        // Held to the end, so that `cut` finds every client that was let in.
        let mode = self.mode();
        if *mode == Mode::Closed {
            return Ok(());
        }
        let server = TcpStream::connect(self.server)?;
        let visit = Arc::new(Visit { shared: Arc::clone(self), lost: Mutex::default() });
        let mut open = self.open.lock().expect("no thread panics with it");
        open.extend([client.try_clone()?, server.try_clone()?]);
        let (asking, answering) = (Arc::clone(&visit), visit);
        let (client_in, server_in) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || pass_on(client_in, server, |nth, frame| asking.asks(nth, frame)));
        thread::spawn(move || {
            pass_on(server_in, client, |nth, frame| answering.answers(nth, frame))
        });
        Ok(())
    }
}

impl Visit {
    fn asks(&self, nth: usize, frame: &[u8]) -> Judged {
        let mut mode = self.shared.mode();
        match *mode {
            Mode::Open => Judged::Pass,
            Mode::Closed => Judged::Cut,
            Mode::GreetsOnly => only_if(nth == 0),
            Mode::Gathers(more) if nth > 0 && creates_ticket(frame) => {
                *mode = more.checked_sub(1).map_or(Mode::Open, Mode::Gathers);
                self.shared.mode_set.notify_all();
                let gathers = |mode: &mut Mode| matches!(mode, Mode::Gathers(_));
                drop(self.shared.mode_set.wait_while(mode, gathers));
                Judged::Pass
            }
            Mode::LosesTheCreate if nth > 0 && creates_ticket(frame) => {
                *mode = Mode::Closed;
                Judged::Cut
            }
            Mode::LosesTheReplyToTheCreate if nth > 0 && creates_ticket(frame) => {
                *self.lost.lock().expect("no thread panics with it") = number(frame, 0);
                Judged::Pass
            }
            Mode::Gathers(_) | Mode::LosesTheCreate | Mode::LosesTheReplyToTheCreate => {
                Judged::Pass
            }
        }
    }

    fn answers(&self, nth: usize, frame: &[u8]) -> Judged {
        let mut mode = self.shared.mode();
        let lost = *self.lost.lock().expect("no thread panics with it");
        if nth > 0 && lost.is_some() && lost == number(frame, 0) {
            *mode = Mode::Closed;
            return Judged::Cut;
        }
        match *mode {
            Mode::GreetsOnly => only_if(nth == 0),
            Mode::Closed => Judged::Cut,
            Mode::Open
            | Mode::Gathers(_)
            | Mode::LosesTheCreate
            | Mode::LosesTheReplyToTheCreate => Judged::Pass,
        }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, judge: impl Fn(usize, &[u8]) -> Judged) {
    for nth in 0.. {
        let Ok(frame) = read_frame(&mut from) else { break };
        let passed = match judge(nth, &frame[4..]) {
            Judged::Pass => to.write_all(&frame),
            Judged::Swallow => Ok(()),
            Judged::Cut => break,
        };
        if passed.is_err() {
            break;
        }
    }
    // What one end does to the connection is done to the other.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Returns whether a request creates a ticket. It is its number, the operation's, and here the path after its length.
fn creates_ticket(request: &[u8]) -> bool {
    const CREATE: i32 = 1;
    const CREATE_AND_STAT: i32 = 15;
    let creates = matches!(number(request, 4), Some(CREATE | CREATE_AND_STAT));
    let length = number(request, 8).and_then(|length| usize::try_from(length).ok());
    let path = length.and_then(|length| request.get(12..12 + length));
    let is_tickets = |path: &[u8]| path.ends_with(b"/leader_") || path.ends_with(b"/read-");
    creates && path.is_some_and(is_tickets)
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn only_if(wanted: bool) -> Judged {
    if wanted { Judged::Pass } else { Judged::Swallow }
}
