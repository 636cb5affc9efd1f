//! All that a server knows, and what it does with what clients send: without IO and without a clock.
//!
//! Each frame is handled to its end before the next one of any connection. What is to be sent is collected, in
//! order, and taken by [`ServerState::take_outputs`]; so a notification leaves before the answer to the request that caused it,
//! and before that of any later one.

mod connect;
mod containers;
mod read;
mod request;
mod watch;
mod write;

pub(crate) use connect::ConnectRefusal;

use crate::acl::{self, AclEntry, Id};
use crate::error::ErrorCode;
use crate::sessions::Sessions;
use crate::settings::Keeper;
use crate::tree::Tree;
use crate::watches::{ConnectionId, EventKind, Watches};
use crate::wire::reply::{self, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The moment at which something is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Since 1970, in milliseconds: what stats show.
    pub(crate) wall_ms: i64,
    /// Since the server started, in milliseconds: what sessions live by.
    pub(crate) elapsed_ms: u64,
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    pub(crate) tick_ms: u64,
    pub(crate) min_timeout_ms: i32,
    pub(crate) max_timeout_ms: i32,
    pub(crate) extended_types: bool,
    pub(crate) keeper: Option<Keeper>,
}

/// Something to do to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Frame(Vec<u8>),
    /// Close it, once all before was sent.
    Close,
    /// Close it at once.
    Drop,
}

/// How many packets came and went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) address: SocketAddr,
    pub(crate) established_ms: i64,
    /// 0 as long as there is none.
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) ids: Vec<Id>,
    /// Whether nothing more is taken from it.
    closing: bool,
    pub(crate) traffic: Traffic,
    pub(crate) last: LastOperation,
}

/// The last operation of a connection, for `cons`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastOperation {
    pub(crate) name: &'static str,
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) elapsed_ms: u64,
}

/// A server's state.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) limits: ServerLimits,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    /// On data and existence.
    pub(crate) data_watches: Watches,
    pub(crate) child_watches: Watches,
    pub(crate) connections: BTreeMap<ConnectionId, ClientConnection>,
    pub(crate) traffic: Traffic,
    /// That of the last transaction that was applied, refused ones included: the one in answers.
    pub(crate) zxid: i64,
    /// The last one that was given out.
    given_zxid: i64,
    /// Session passwords are derived from this secret.
    secret: [u8; 16],
    outputs: Vec<(ConnectionId, Output)>,
}

impl ServerState {
    /// The state of a new server, whose transactions begin at 1 as those of a real standalone one.
    pub(crate) fn new(limits: ServerLimits, secret: [u8; 16], wall_ms: i64) -> Self {
        Self {
            limits,
            tree: Tree::new(),
            sessions: Sessions::new(limits.tick_ms, wall_ms),
            data_watches: Watches::default(),
            child_watches: Watches::default(),
            connections: BTreeMap::new(),
            traffic: Traffic::default(),
            zxid: 0,
            given_zxid: 0,
            secret,
            outputs: Vec::new(),
        }
    }

    /// Takes in a new connection.
    pub(crate) fn accept(&mut self, id: ConnectionId, address: SocketAddr, now: Now) {
        let connection = ClientConnection {
            address,
            established_ms: now.wall_ms,
            session: 0,
            timeout_ms: 0,
            ids: vec![Id::of_address(address.ip())],
            closing: false,
            traffic: Traffic::default(),
            last: LastOperation { name: "NA", xid: -1, zxid: -1, elapsed_ms: 0 },
        };
        self.connections.insert(id, connection);
    }

    /// Forgets a connection and its watches; its session lives on until it expires.
    pub(crate) fn disconnect(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.sessions.detach(connection.session, id);
        }
        self.data_watches.remove_connection(id);
        self.child_watches.remove_connection(id);
    }

    /// Closes a connection at once.
    pub(crate) fn drop_connection(&mut self, id: ConnectionId) {
        self.outputs.push((id, Output::Drop));
        self.disconnect(id);
    }

    /// Takes the outputs for the connections, in order.
    pub(crate) fn take_outputs(&mut self) -> Vec<(ConnectionId, Output)> {
        std::mem::take(&mut self.outputs)
    }

    fn next_zxid(&mut self) -> i64 {
        self.given_zxid += 1;
        self.given_zxid
    }

    fn send(&mut self, to: ConnectionId, frame: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&to) {
            connection.traffic.sent += 1;
            self.traffic.sent += 1;
            self.outputs.push((to, Output::Frame(frame)));
        }
    }

    fn answer(&mut self, to: ConnectionId, xid: i32, result: &Result<Reply, ErrorCode>) {
        self.send(to, reply::answer(xid, self.zxid, result));
    }

    /// Lets a connection close once all was sent, and takes nothing more from it.
    fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.closing = true;
        }
        self.outputs.push((id, Output::Close));
    }

    /// Notifies the watchers of a path's data or existence, and says which they are.
    fn notify_data(
        &mut self,
        path: &str,
        kind: EventKind,
        acl: &[AclEntry],
    ) -> BTreeSet<ConnectionId> {
        let watching = self.data_watches.trigger(path, kind);
        self.notify(&watching, path, kind, acl);
        watching
    }

    /// Notifies the watchers of a path's children, except the ones that know already.
    fn notify_children(
        &mut self,
        path: &str,
        kind: EventKind,
        acl: &[AclEntry],
        knowing: &BTreeSet<ConnectionId>,
    ) {
        let mut watching = self.child_watches.trigger(path, kind);
        watching.retain(|id| !knowing.contains(id));
        self.notify(&watching, path, kind, acl);
    }

    /// Notifies those that may read what they watch. For the others a one-shot is used up all the same.
    fn notify(
        &mut self,
        watching: &BTreeSet<ConnectionId>,
        path: &str,
        kind: EventKind,
        acl: &[AclEntry],
    ) {
        for id in watching {
            if acl::check(acl, acl::READ, self.ids(*id)).is_ok() {
                self.send(*id, reply::notification(kind, path));
            }
        }
    }

    fn ids(&self, of: ConnectionId) -> &[Id] {
        self.connections.get(&of).map_or(&[][..], |connection| connection.ids.as_slice())
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
