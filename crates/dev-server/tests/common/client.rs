//! A small client: one session over one connection, one request at a time.

use crate::wire::{Body, Rest};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const CREATE: i32 = 1;
pub(crate) const DELETE: i32 = 2;
pub(crate) const EXISTS: i32 = 3;
pub(crate) const GET_DATA: i32 = 4;
pub(crate) const SET_DATA: i32 = 5;
pub(crate) const GET_ACL: i32 = 6;
pub(crate) const SET_ACL: i32 = 7;
pub(crate) const GET_CHILDREN: i32 = 8;
pub(crate) const SYNC: i32 = 9;
pub(crate) const PING: i32 = 11;
pub(crate) const GET_CHILDREN2: i32 = 12;
pub(crate) const CHECK: i32 = 13;
pub(crate) const MULTI: i32 = 14;
pub(crate) const CREATE2: i32 = 15;
pub(crate) const RECONFIG: i32 = 16;
pub(crate) const CHECK_WATCHES: i32 = 17;
pub(crate) const REMOVE_WATCHES: i32 = 18;
pub(crate) const CREATE_CONTAINER: i32 = 19;
pub(crate) const CREATE_TTL: i32 = 21;
pub(crate) const MULTI_READ: i32 = 22;
pub(crate) const AUTH: i32 = 100;
pub(crate) const SET_WATCHES: i32 = 101;
pub(crate) const GET_EPHEMERALS: i32 = 103;
pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
pub(crate) const SET_WATCHES2: i32 = 105;
pub(crate) const ADD_WATCH: i32 = 106;
pub(crate) const WHO_AM_I: i32 = 107;
pub(crate) const CLOSE: i32 = -11;
/// Not the number of any operation.
pub(crate) const UNKNOWN: i32 = 99;

/// Longer than anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A notification: its kind, and its path.
pub(crate) type Event = (i32, String);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout_ms: i32,
    /// The last zxid that it has seen in an answer.
    pub(crate) last_zxid: i64,
    xid: i32,
}

impl Client {
    /// A client with a new session.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::open(address, 0, &[0; 16], 10_000, 0).await
    }

    /// A client that has asked for a session, which it may have been refused: then it is 0.
    pub(crate) async fn open(
        address: SocketAddr,
        session: i64,
        password: &[u8],
        timeout_ms: i32,
        last_zxid: i64,
    ) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let protocol_version = 0;
        let request = Body::default()
            .int(protocol_version)
            .long(last_zxid)
            .int(timeout_ms)
            .long(session)
            .buffer(password)
            .bool(false);
        write(&mut stream, &request.0).await?;
        let frame = read(&mut stream).await?;
        let mut rest = Rest(&frame);
        assert_eq!(rest.int(), protocol_version);
        let timeout_ms = rest.int();
        let session = rest.long();
        let password = rest.buffer().unwrap().to_vec();
        assert!(!rest.bool(), "read-only");
        assert!(rest.is_empty());
        Ok(Self { stream, session, password, timeout_ms, last_zxid, xid: 0 })
    }

    /// Opens another connection for the same session.
    pub(crate) async fn resume(&self, address: SocketAddr) -> io::Result<Self> {
        let Self { session, password, timeout_ms, last_zxid, .. } = self;
        let mut resumed = Self::open(address, *session, password, *timeout_ms, *last_zxid).await?;
        resumed.xid = self.xid;
        Ok(resumed)
    }

    /// Sends a request without waiting, and says which xid it has.
    pub(crate) async fn send(&mut self, kind: i32, body: &Body) -> io::Result<i32> {
        let xid = match kind {
            PING => -2,
            AUTH => -4,
            SET_WATCHES | SET_WATCHES2 => -8,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        let frame = Body::default().int(xid).int(kind);
        write(&mut self.stream, &[frame.0, body.0.clone()].concat()).await?;
        Ok(xid)
    }

    /// Sends a request and waits for its answer, with the notifications before it.
    pub(crate) async fn ask(&mut self, kind: i32, body: &Body) -> io::Result<(Vec<Event>, Answer)> {
        let xid = self.send(kind, body).await?;
        let mut events = Vec::new();
        loop {
            match self.receive().await? {
                Ok(event) => events.push(event),
                Err(answer) => {
                    assert_eq!(answer.xid, xid, "answers come in order");
                    return Ok((events, answer));
                }
            }
        }
    }

    /// Waits for a notification, or an answer as an error.
    pub(crate) async fn receive(&mut self) -> io::Result<Result<Event, Answer>> {
        let frame = read(&mut self.stream).await?;
        let mut rest = Rest(&frame);
        let (xid, zxid, error) = (rest.int(), rest.long(), rest.int());
        if xid == -1 {
            let kind = rest.int();
            assert_eq!(rest.int(), 3, "it is connected");
            let path = rest.string();
            assert!(rest.is_empty());
            return Ok(Ok((kind, path)));
        }
        self.last_zxid = self.last_zxid.max(zxid);
        Ok(Err(Answer { xid, zxid, error, body: rest.0.to_vec() }))
    }

    /// Creates a znode that all may do all with, and returns the answer.
    pub(crate) async fn create(&mut self, path: &str, flags: i32) -> io::Result<Answer> {
        Ok(self.ask(CREATE, &create(path, flags)).await?.1)
    }

    /// Sends bytes as they are.
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Waits until the server closes the connection.
    pub(crate) async fn closed(&mut self) {
        let closed = async { while self.receive().await.is_ok() {} };
        timeout(PATIENCE, closed).await.expect("the server closes the connection");
    }
}

/// What `printf WORD | nc` shows.
pub(crate) async fn ask_word(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    stream.shutdown().await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// The body of a create whose data are "data".
pub(crate) fn create(path: &str, flags: i32) -> Body {
    Body::default().string(path).buffer(b"data").acl(&[(31, "world", "anyone")]).int(flags)
}

/// The body of a read.
pub(crate) fn read_of(path: &str, watch: bool) -> Body {
    Body::default().string(path).bool(watch)
}

async fn write(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    stream.write_all(&Body::default().buffer(frame).0).await
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let read = async {
        let length = stream.read_i32().await?;
        let mut frame = vec![0; length.try_into().unwrap()];
        stream.read_exact(&mut frame).await?;
        Ok(frame)
    };
    timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
