//! A server's state without sockets and a clock, for a simulation that has its own.

use crate::settings::ServerSettings;
use crate::state::{Now, Output, ServerState};
use crate::tree::Node;
use crate::watches::ConnectionId;
use crate::wire::opcode;
use std::net::SocketAddr;

/// A server as a function of its input frames.
///
/// Two replicas that receive the same frames at the same moments have the same state.
#[derive(Debug)]
pub struct Replica {
    state: ServerState,
}

/// A znode of a replica, without its path.
#[derive(Clone, Debug)]
pub struct ReplicaZnode(Node);

impl Replica {
    /// Creates a server whose session passwords are derived from this secret.
    pub fn new(settings: &ServerSettings, secret: [u8; 16], wall_ms: i64) -> Self {
        Self { state: ServerState::new(settings.limits(), secret, wall_ms) }
    }

    /// Adds a new connection, whose number must not have been used before.
    pub fn accept(&mut self, connection: u64, address: SocketAddr, now: Now) {
        self.state.accept(ConnectionId(connection), address, now);
    }

    /// Handles the first frame of a connection. Returns false if it was refused: the connection must then be closed.
    pub fn connect(&mut self, connection: u64, frame: &[u8], now: Now) -> bool {
        self.state.connect(now, ConnectionId(connection), frame).is_ok()
    }

    /// Handles a later frame. Returns false if it was malformed: the connection must then be closed.
    pub fn request(&mut self, connection: u64, frame: &[u8], now: Now) -> bool {
        self.state.request(now, ConnectionId(connection), frame).is_ok()
    }

    /// Forgets a connection and its watches.
    pub fn disconnect(&mut self, connection: u64) {
        self.state.disconnect(ConnectionId(connection));
    }

    /// Ends a session that its client has not closed. Returns true if it existed.
    pub fn expire(&mut self, session: i64) -> bool {
        self.state.expire(session)
    }

    /// Takes the effects on connections, in order.
    pub fn take_outputs(&mut self) -> Vec<(u64, Output)> {
        let outputs = self.state.take_outputs().into_iter();
        outputs.map(|(connection, output)| (connection.0, output)).collect()
    }

    /// Returns the session of a connection and its timeout in milliseconds, if it has a session.
    pub fn session(&self, connection: u64) -> Option<(i64, u64)> {
        let connection = self.state.connections.get(&ConnectionId(connection))?;
        let timeout_ms = u64::try_from(connection.timeout_ms).ok()?;
        (connection.session != 0).then_some((connection.session, timeout_ms))
    }

    /// Returns the sessions that have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.state.sessions.ids().collect()
    }

    /// Returns the zxid of the last transaction, even if it was refused.
    pub fn zxid(&self) -> i64 {
        self.state.zxid
    }

    /// Returns the paths of all ephemeral znodes, with their sessions.
    pub fn ephemerals(&self) -> Vec<(i64, Vec<String>)> {
        self.state.tree.ephemerals().collect()
    }

    /// Returns the number of watches.
    pub fn watches(&self) -> usize {
        self.state.data_watches.count() + self.state.child_watches.count()
    }

    /// Returns the number of znodes.
    pub fn count(&self) -> usize {
        self.state.tree.count()
    }

    /// Returns a copy of a znode.
    pub fn znode(&self, path: &str) -> Option<ReplicaZnode> {
        self.state.tree.node(path).cloned().map(ReplicaZnode)
    }

    /// Removes and returns a znode without children, as if it had never been created. A simulation thus makes a server
    /// that has lost a transaction. Clients are not notified.
    pub fn take_out(&mut self, path: &str) -> Option<ReplicaZnode> {
        self.state.tree.take_out(path).map(ReplicaZnode)
    }

    /// Adds a removed znode, unless its parent is gone. Clients are not notified.
    pub fn put_in(&mut self, path: &str, znode: ReplicaZnode) {
        self.state.tree.put_in(path, znode.0);
    }

    /// Returns true if an ensemble must handle a request in the order of its transactions, and not on one server alone:
    /// a request that writes, a sync, or an auth, because an auth changes the identity with which later writes are
    /// judged.
    pub fn is_ordered(frame: &[u8]) -> bool {
        let kind = frame.get(4..8).and_then(|kind| kind.try_into().ok()).map(i32::from_be_bytes);
        kind.is_some_and(|kind| {
            opcode::takes_zxid(kind) || kind == opcode::SYNC || kind == opcode::AUTH
        })
    }
}
