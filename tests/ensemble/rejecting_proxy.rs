//! A proxy between a member and its server, which forwards all but the first request of each
//! kind with an error: the server never sees it.

use crate::frames::read_frame;
use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

pub(crate) struct Refuser {
    address: SocketAddr,
    left: Arc<Mutex<BTreeSet<i32>>>,
}

/// What both directions of one connection share.
#[derive(Default)]
struct Talk {
    /// The replies that the client waits for, which must come in the order of its requests.
    pending: Mutex<Pending>,
    fewer: Condvar,
}

#[derive(Default)]
struct Pending {
    replies: usize,
    last_zxid: [u8; 8],
    over: bool,
}

/// Marks the connection as over when its reader of replies ends.
struct Over<'a>(&'a Talk);

impl Refuser {
    /// Refuses the first request of each of these kinds with this error.
    pub(crate) fn before(server: SocketAddr, kinds: &[i32], error: i32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let left = Arc::new(Mutex::new(kinds.iter().copied().collect()));
        let shared = Arc::clone(&left);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let left = Arc::clone(&shared);
                thread::spawn(move || drop(join(client, server, &left, error)));
            }
        });
        Self { address, left }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The kinds of which no request has come yet.
    pub(crate) fn left(&self) -> BTreeSet<i32> {
        self.left.lock().expect("no thread panics while holding it").clone()
    }
}

fn join(
    client: TcpStream,
    server: SocketAddr,
    left: &Mutex<BTreeSet<i32>>,
    error: i32,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let talk = Arc::new(Talk::default());
    let (to_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let replies = Arc::clone(&talk);
    thread::spawn(move || drop(pass_replies(from_server, to_client, &replies)));
    let passed = pass_requests(&client, &server, &talk, left, error);
    let _gone_already = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    passed
}

fn pass_requests(
    mut client: &TcpStream,
    mut server: &TcpStream,
    talk: &Talk,
    left: &Mutex<BTreeSet<i32>>,
    error: i32,
) -> io::Result<()> {
    // The first frame asks for a session, and has no header.
    server.write_all(&read_frame(&mut client)?)?;
    loop {
        let request = read_frame(&mut client)?;
        let kind = i32::from_be_bytes(four(&request, 8)?);
        let refused = left.lock().expect("no thread panics while holding it").remove(&kind);
        let mut pending = talk.pending.lock().expect("no thread panics while holding it");
        if !refused {
            pending.replies += 1;
            drop(pending);
            server.write_all(&request)?;
            continue;
        }
        pending = talk
            .fewer
            .wait_while(pending, |pending| pending.replies > 0 && !pending.over)
            .expect("no thread panics while holding it");
        let xid = four(&request, 4)?;
        let reply = [&16_i32.to_be_bytes()[..], &xid, &pending.last_zxid, &error.to_be_bytes()];
        client.write_all(&reply.concat())?;
    }
}

fn pass_replies(mut server: TcpStream, mut client: TcpStream, talk: &Talk) -> io::Result<()> {
    const NOTIFICATION: i32 = -1;
    let _over = Over(talk);
    client.write_all(&read_frame(&mut server)?)?;
    loop {
        let reply = read_frame(&mut server)?;
        let is_answer = i32::from_be_bytes(four(&reply, 4)?) != NOTIFICATION;
        // Under the lock, so that nothing is put between this reply and the next.
        let mut pending = talk.pending.lock().expect("no thread panics while holding it");
        client.write_all(&reply)?;
        if is_answer {
            pending.last_zxid.copy_from_slice(&reply[8..16]);
            pending.replies -= 1;
            talk.fewer.notify_all();
        }
    }
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if let Ok(mut pending) = self.0.pending.lock() {
            pending.over = true;
        }
        self.0.fewer.notify_all();
    }
}

fn four(frame: &[u8], at: usize) -> io::Result<[u8; 4]> {
    let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
