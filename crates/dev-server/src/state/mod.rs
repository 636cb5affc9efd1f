//! The state of a server, and how it handles the frames of clients, without IO and without a clock.
//!
//! Each frame is handled completely before the next one of any connection. Outputs are collected in order, and taken
//! with [`ServerState::take_outputs`]. A handler adds the notifications that a request causes before the answer to the
//! request. So a client receives a notification before that answer, and before the answers to all later requests.

mod connect;
mod read;
mod request;
mod watch;
mod write;

use crate::acl::{self, AclEntry, Id};
use crate::error::ErrorCode;
use crate::sessions::Sessions;
use crate::settings::Keeper;
use crate::tree::Tree;
use crate::watches::{ConnectionId, EventKind, Watches};
use crate::wire::reply::{self, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The moment at which an input is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970, for stats.
    pub wall_ms: i64,
    /// Milliseconds since the server started, for session timeouts.
    pub elapsed_ms: u64,
}

/// The limits of a server, and its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    pub(crate) tick_ms: u64,
    pub(crate) min_timeout_ms: i32,
    pub(crate) max_timeout_ms: i32,
    pub(crate) extended_types: bool,
    pub(crate) keeper: Option<Keeper>,
}

/// An effect on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A frame, including its length.
    Frame(Vec<u8>),
    /// Close the connection once all earlier frames have been sent.
    Close,
    /// Close the connection at once.
    Drop,
}

/// The numbers of packets received and sent.
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
    /// The connection's session; 0 while it has none.
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) ids: Vec<Id>,
    /// Whether the connection is about to be closed, so that further frames are ignored.
    closing: bool,
    pub(crate) traffic: Traffic,
}

/// A server's state.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) limits: ServerLimits,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    /// Watches on data and existence.
    pub(crate) data_watches: Watches,
    /// Watches on children.
    pub(crate) child_watches: Watches,
    pub(crate) connections: BTreeMap<ConnectionId, ClientConnection>,
    pub(crate) traffic: Traffic,
    /// The zxid of the last transaction, including refused ones. Answers contain it.
    pub(crate) zxid: i64,
    /// The last zxid that was assigned. It may be larger than `zxid`: in the real server, some failing requests are
    /// assigned a zxid and never become transactions.
    assigned_zxid: i64,
    /// Session passwords are derived from this secret.
    secret: [u8; 16],
    outputs: Vec<(ConnectionId, Output)>,
}

impl ServerState {
    /// Returns the state of a new server, whose transactions begin at 1, as in a real standalone server.
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
            assigned_zxid: 0,
            secret,
            outputs: Vec::new(),
        }
    }

    /// Adds a new connection.
    pub(crate) fn accept(&mut self, id: ConnectionId, address: SocketAddr, now: Now) {
        let connection = ClientConnection {
            address,
            established_ms: now.wall_ms,
            session: 0,
            timeout_ms: 0,
            ids: vec![Id::of_address(address.ip())],
            closing: false,
            traffic: Traffic::default(),
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

    /// Assigns the next zxid. The caller sets `zxid` to it when it has handled the transaction.
    fn assign_zxid(&mut self) -> i64 {
        self.assigned_zxid += 1;
        self.assigned_zxid
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

    /// Closes a connection once everything has been sent, and ignores further frames from it.
    fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.closing = true;
        }
        self.outputs.push((id, Output::Close));
    }

    /// Notifies the watchers of a path's data or existence, and returns their connections.
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

    /// Notifies the watchers of a path's children, except `notified`, the connections that have already been notified.
    fn notify_children(
        &mut self,
        path: &str,
        kind: EventKind,
        acl: &[AclEntry],
        notified: &BTreeSet<ConnectionId>,
    ) {
        let mut watching = self.child_watches.trigger(path, kind);
        watching.retain(|id| !notified.contains(id));
        self.notify(&watching, path, kind, acl);
    }

    /// Notifies the watchers that may read the path. The other watchers have lost their one-shot watches all the same.
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

    /// Returns the identities of a connection.
    fn ids(&self, of: ConnectionId) -> &[Id] {
        self.connections.get(&of).map_or(&[][..], |connection| connection.ids.as_slice())
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
