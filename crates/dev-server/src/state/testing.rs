//! Clients for tests, which exchange frames with a [`ServerState`].

use super::{Now, Output, ServerState};
use crate::settings::ServerSettings;
use crate::watches::ConnectionId;
use crate::wire::{Malformed, Reader, Writer};
use std::net::{Ipv4Addr, SocketAddr};

/// A server state with clients, and the present time.
pub(crate) struct Bench {
    pub(crate) state: ServerState,
    pub(crate) now: Now,
    connections: u64,
}

/// An output to a client, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The kind of a notification, and its path.
    Event(i32, String),
    Answer(Answer),
    Close,
    Drop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

/// The answer to the first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let limits = ServerSettings::default().limits();
        let now = Now { wall_ms: 1_000_000, elapsed_ms: 0 };
        Self { state: ServerState::new(limits, [7; 16], now.wall_ms), now, connections: 0 }
    }

    pub(crate) fn accept(&mut self) -> ConnectionId {
        self.connections += 1;
        let id = ConnectionId(self.connections);
        self.state.accept(id, SocketAddr::from((Ipv4Addr::LOCALHOST, 4711)), self.now);
        id
    }

    /// Sends the first frame of a connection, and returns the answer.
    pub(crate) fn connect(
        &mut self,
        from: ConnectionId,
        timeout_ms: i32,
        session: i64,
        password: &[u8],
    ) -> Welcome {
        let frame = body(|body| {
            body.int(0);
            body.long(0);
            body.int(timeout_ms);
            body.long(session);
            body.buffer(Some(password));
            body.bool(false);
        });
        self.state.connect(self.now, from, &frame).unwrap();
        let outputs = self.state.take_outputs();
        let frame = outputs.iter().find_map(|(to, output)| match output {
            Output::Frame(frame) if *to == from => Some(frame),
            _ => None,
        });
        let mut reader = Reader::new(&frame.unwrap()[4..]);
        assert_eq!(reader.int(), Ok(0));
        let welcome = Welcome {
            timeout_ms: reader.int().unwrap(),
            session: reader.long().unwrap(),
            password: reader.buffer().unwrap().unwrap().to_vec(),
        };
        assert_eq!(reader.bool(), Ok(false));
        welcome
    }

    /// Connects a client with a new session.
    pub(crate) fn client(&mut self) -> (ConnectionId, Welcome) {
        let id = self.accept();
        let welcome = self.connect(id, 10_000, 0, &[0; 16]);
        (id, welcome)
    }

    /// Sends a request with xid 7, and returns the outputs to all clients.
    pub(crate) fn send(
        &mut self,
        from: ConnectionId,
        kind: i32,
        rest: impl FnOnce(&mut Writer),
    ) -> Vec<(ConnectionId, Received)> {
        self.try_send(from, kind, rest).1
    }

    pub(crate) fn try_send(
        &mut self,
        from: ConnectionId,
        kind: i32,
        rest: impl FnOnce(&mut Writer),
    ) -> (Result<(), Malformed>, Vec<(ConnectionId, Received)>) {
        let frame = body(|body| {
            body.int(7);
            body.int(kind);
            rest(body);
        });
        let result = self.state.request(self.now, from, &frame);
        (result, self.received())
    }

    /// Sends a request, and returns the answer to it.
    pub(crate) fn ask(
        &mut self,
        from: ConnectionId,
        kind: i32,
        rest: impl FnOnce(&mut Writer),
    ) -> Answer {
        let received = self.send(from, kind, rest);
        let mut answers = received.into_iter().filter_map(|(to, received)| match received {
            Received::Answer(answer) if to == from => Some(answer),
            _ => None,
        });
        answers.next().unwrap()
    }

    /// Takes the outputs to all clients.
    pub(crate) fn received(&mut self) -> Vec<(ConnectionId, Received)> {
        self.state.take_outputs().into_iter().map(|(to, output)| (to, decode(output))).collect()
    }

    /// Creates a znode with data "data" and all permissions for everyone, and returns the answer.
    pub(crate) fn create(&mut self, from: ConnectionId, path: &str, flags: i32) -> Answer {
        self.ask(from, 1, |body| create(body, path, flags))
    }
}

impl Answer {
    pub(crate) fn string(&self) -> String {
        Reader::new(&self.body).string().unwrap().unwrap()
    }

    pub(crate) fn strings(&self) -> Vec<String> {
        let strings = Reader::new(&self.body).vector(Reader::string).unwrap().unwrap();
        strings.into_iter().map(Option::unwrap).collect()
    }
}

/// Writes the body of a create.
pub(crate) fn create(body: &mut Writer, path: &str, flags: i32) {
    body.string(path);
    body.buffer(Some(b"data"));
    acl(body, &[(31, "world", "anyone")]);
    body.int(flags);
}

pub(crate) fn acl(body: &mut Writer, entries: &[(i32, &str, &str)]) {
    body.vector(entries, |body, (perms, scheme, id)| {
        body.int(*perms);
        body.string(scheme);
        body.string(id);
    });
}

fn body(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    write(&mut writer);
    writer.finish().split_off(4)
}

fn decode(output: Output) -> Received {
    let frame = match output {
        Output::Frame(frame) => frame,
        Output::Close => return Received::Close,
        Output::Drop => return Received::Drop,
    };
    let mut reader = Reader::new(&frame[4..]);
    let xid = reader.int().unwrap();
    let zxid = reader.long().unwrap();
    let error = reader.int().unwrap();
    if xid == -1 {
        assert_eq!((zxid, error), (-1, 0));
        let kind = reader.int().unwrap();
        assert_eq!(reader.int(), Ok(3));
        return Received::Event(kind, reader.string().unwrap().unwrap());
    }
    Received::Answer(Answer { xid, zxid, error, body: frame[20..].to_vec() })
}
