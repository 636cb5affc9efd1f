//! Watches our own znode and the znodes ahead of it that we wait for.
//!
//! The invariant of this file: **if our own znode is deleted before a znode ahead of it, the loss of our own is reported
//! first.** Otherwise a member could act as the head of the queue with a znode that it no longer owns. The
//! invariant holds because
//!
//! 1. the servers send the notifications and answers of one session in the order of commits, and the client library
//!    delivers them in that order;
//! 2. one task watches all these znodes and polls the watch of our own first. After a notification or answer about a znode
//!    ahead, it polls the watch of our own znode again before it reports the event of that znode;
//! 3. a watch ends with its connection. On the next connection, our own znode is read and watched before the znodes ahead.

use super::context::{BROKEN, Context, leave_server_if_missing, leave_server_if_shown};
use super::znode::{is_of_session, is_ours, owner, token};
use crate::zookeeper::client::{Connection, SessionHandle};
use ::zookeeper::{Error, EventType, OneshotWatcher, Stat, WatchedEvent};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use recipes::{FencingToken, Sequence, Ticket};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::warn;

/// A request about a znode ahead of ours. It is answered by an [`AheadEvent`].
pub(in crate::zookeeper) enum WatchRequest {
    /// Watch the znode with this number, at this path. In an election, this replaces the watch of the previous znode.
    Watch(Sequence, String),
    /// Ask a quorum whether the watched znode with this number exists. If it does, nothing is reported.
    Confirm(Sequence),
}

/// An event of a watched znode ahead.
#[derive(Clone, Debug)]
pub(in crate::zookeeper) enum AheadEvent {
    /// The znode exists and is watched. In an election, it has this data, and the event is sent again after each change of
    /// the data. For a lock or barrier, the data is empty.
    Read { znode: Ticket, data: Vec<u8> },
    /// The znode is gone or does not belong to a member, or no server shows it. It is no longer watched. The token is that
    /// of the znode that was watched; `None` if it was not read yet, or the last read found no ephemeral znode.
    Gone { sequence: Sequence, token: Option<FencingToken> },
}

/// Watches our own znode, if we have one, and the znodes ahead that `requests` name. Passes the events of the znodes ahead
/// to `on_event`. Returns when our own znode is lost, which the caller reports.
pub(in crate::zookeeper) async fn watch(
    context: &Arc<Context>,
    own: Option<Ticket>,
    requests: mpsc::UnboundedReceiver<WatchRequest>,
    on_event: impl Fn(AheadEvent),
) {
    let mut connections = context.session.clone();
    let mut ahead = ZnodesAhead::new(context.clone(), requests);
    // An event of a znode ahead that came together with a notification about our own znode. It may be passed on only once
    // our own znode is known to exist.
    let mut held_back = None;
    loop {
        // The watches below are set over the current connection. `watch_all` notices when another replaces it.
        connections.mark_seen();
        let mut own_change = match own {
            Some(ticket) => match watch_own(context, ticket).await {
                Some(change) => change,
                None => return,
            },
            None => pending().boxed(),
        };
        if let Some(event) = held_back.take() {
            on_event(event);
        }
        match watch_all(&mut own_change, &mut connections, &mut ahead, &on_event).await {
            WatchesEnd::OwnLost => return,
            WatchesEnd::ReadAgain(event) => held_back = event,
        }
        ahead.read_again();
    }
}

/// The reason why the current watches can no longer be used, and what follows.
enum WatchesEnd {
    /// Our own znode is lost.
    OwnLost,
    /// The connection has ended or the watch of our own znode has fired, so all znodes must be read and watched again. The
    /// event of a znode ahead, if there is one, is held back until our own znode is known to exist.
    ReadAgain(Option<AheadEvent>),
}

impl WatchesEnd {
    /// Decides what follows a notification about our own znode. `event` is of a znode ahead and was not passed on yet. It is
    /// dropped if our own znode is deleted.
    fn after_own_change(change: &WatchedEvent, event: Option<AheadEvent>) -> Self {
        match change.event_type {
            EventType::NodeDeleted => Self::OwnLost,
            _ => Self::ReadAgain(event),
        }
    }
}

/// Passes the events of the znodes ahead to `on_event`, until the watches can no longer be used.
async fn watch_all(
    own: &mut BoxFuture<'static, WatchedEvent>,
    connections: &mut SessionHandle,
    ahead: &mut ZnodesAhead,
    on_event: &impl Fn(AheadEvent),
) -> WatchesEnd {
    loop {
        tokio::select! {
            biased;
            // The connection was replaced or lost, and the watches ended with it. Poll this first: the library panics if an
            // ended watch is polled.
            () = connections.changed() => return WatchesEnd::ReadAgain(None),
            change = &mut *own => return WatchesEnd::after_own_change(&change, None),
            event = ahead.next_event() => {
                // The watch of our own znode may have fired since it was polled above.
                if let Some(change) = (&mut *own).now_or_never() {
                    return WatchesEnd::after_own_change(&change, Some(event));
                }
                on_event(event);
            }
        }
    }
}

/// Reads and watches our own znode. Returns a future of the watch's notification; `None` if the znode is gone or belongs to
/// another session, or if an operator has written [`BROKEN`] into the znode of a lock or barrier.
///
/// In an election this sets a watch for children. An ephemeral znode cannot have children, so the watch fires only when the
/// znode is deleted, and not at each of our own writes. We never write to the znode of a lock or barrier, so there the data
/// is watched.
async fn watch_own(context: &Context, ticket: Ticket) -> Option<BoxFuture<'static, WatchedEvent>> {
    let path = context.path(ticket.sequence);
    let read = context.retry_until_answered(async |connection| {
        let client = &connection.client;
        let read = if context.is_lock_or_barrier {
            let read = connection.request(client.get_and_watch_data(&path)).await;
            read.map(|(data, stat, watcher)| (data == BROKEN, stat, watcher))
        } else {
            let read = connection.request(client.get_and_watch_children(&path)).await;
            read.map(|(_, stat, watcher)| (false, stat, watcher))
        };
        match read {
            Ok((is_broken, stat, watcher)) => {
                let is_valid = is_ours(&stat, ticket, &connection) && !is_broken;
                Ok(if is_valid { Some(watcher) } else { None })
            }
            Err(Error::NoNode) => Err(context.confirm_own_znode_missing(&connection, &path).await),
            Err(error) => Err(error),
        }
    });
    let watcher = read.await.ok().flatten()?;
    Some(watcher.changed().boxed())
}

/// The znodes ahead that are watched, with their pending requests and watches.
struct ZnodesAhead {
    context: Arc<Context>,
    requests: mpsc::UnboundedReceiver<WatchRequest>,
    watched: BTreeMap<Sequence, WatchedZnode>,
    /// The pending reads, watches and confirmations. Each completes with its outcome.
    steps: FuturesUnordered<BoxFuture<'static, WatchStep>>,
}

/// A znode ahead that is watched.
struct WatchedZnode {
    path: String,
    /// The token of the znode at the last read; `None` before the first read, or if there was no ephemeral znode.
    token: Option<FencingToken>,
}

/// The outcome of a pending request or watch of a znode ahead.
enum WatchStep {
    /// The znode was read, and is watched if it exists.
    Read(Sequence, WatchRead),
    /// The watch has fired.
    Changed(Sequence, WatchedEvent),
    /// A quorum says that the znode is gone.
    Gone(Sequence),
    /// A quorum says that the znode exists, so nothing follows.
    Confirmed,
}

/// The outcome of reading a znode ahead.
enum WatchRead {
    /// The znode has this data and stat, and this watch is set.
    Exists(Vec<u8>, Stat, OneshotWatcher),
    /// The znode does not exist, as a quorum has confirmed.
    Gone,
    /// A quorum says that the znode exists, but the servers that were tried do not show it, so it cannot be watched.
    NotShown,
}

impl ZnodesAhead {
    fn new(context: Arc<Context>, requests: mpsc::UnboundedReceiver<WatchRequest>) -> Self {
        let watched = BTreeMap::new();
        let steps = FuturesUnordered::new();
        Self { context, requests, watched, steps }
    }

    /// Waits for the next event of a znode ahead. Cancel-safe: no event is lost.
    async fn next_event(&mut self) -> AheadEvent {
        loop {
            tokio::select! {
                biased;
                Some(request) = self.requests.recv() => self.on_request(request),
                Some(step) = self.steps.next() => {
                    if let Some(event) = self.on_step(step) {
                        return event;
                    }
                }
                else => pending().await,
            }
        }
    }

    /// Reads and watches all znodes ahead again, over the current connection.
    fn read_again(&mut self) {
        self.steps.clear();
        self.watched.keys().for_each(|sequence| self.read(*sequence));
    }

    fn on_request(&mut self, request: WatchRequest) {
        match request {
            WatchRequest::Watch(sequence, path) => {
                // A member of an election watches only its predecessor.
                if !self.context.is_lock_or_barrier {
                    self.watched.clear();
                    self.steps.clear();
                }
                self.watched.insert(sequence, WatchedZnode { path, token: None });
                self.read(sequence);
            }
            WatchRequest::Confirm(sequence) => {
                let Some(WatchedZnode { path, .. }) = self.watched.get(&sequence) else { return };
                let context = self.context.clone();
                let path = path.clone();
                let confirmed = async move {
                    if confirm_exists(&context, &path).await {
                        WatchStep::Confirmed
                    } else {
                        WatchStep::Gone(sequence)
                    }
                };
                self.steps.push(confirmed.boxed());
            }
        }
    }

    /// Begins to read the znode with this number, and to watch it.
    fn read(&self, sequence: Sequence) {
        let Some(WatchedZnode { path, .. }) = self.watched.get(&sequence) else { return };
        let context = self.context.clone();
        let path = path.clone();
        let read = async move {
            let read = context.retry_until_answered(async |connection| {
                read_and_watch(&context, &connection, &path).await
            });
            // The only error is that the znode does not exist.
            WatchStep::Read(sequence, read.await.unwrap_or(WatchRead::Gone))
        };
        self.steps.push(read.boxed());
    }

    /// Handles the outcome of a pending request or watch. Returns an event if the outcome must be reported.
    fn on_step(&mut self, step: WatchStep) -> Option<AheadEvent> {
        match step {
            WatchStep::Read(sequence, read) => self.on_read(sequence, read),
            WatchStep::Changed(sequence, change) if change.event_type != EventType::NodeDeleted => {
                // A watch fires once, so set it again with the read.
                self.read(sequence);
                None
            }
            // A notification of the deletion needs no confirmation: a server sends it when it applies the deletion.
            WatchStep::Changed(sequence, _) | WatchStep::Gone(sequence) => self.end_watch(sequence),
            WatchStep::Confirmed => None,
        }
    }

    fn on_read(&mut self, sequence: Sequence, read: WatchRead) -> Option<AheadEvent> {
        let watched = self.watched.get_mut(&sequence)?;
        let (data, stat, watcher) = match read {
            WatchRead::Exists(data, stat, watcher) => (data, stat, watcher),
            WatchRead::Gone => return self.end_watch(sequence),
            WatchRead::NotShown => {
                // The znode is reported as gone although that is not proved. So leave out the token: without it, a standby
                // does not lead at once by its lease, but only after a quorum has committed its claim.
                watched.token = None;
                return self.end_watch(sequence);
            }
        };
        if owner(&stat).is_none() {
            match self.context.is_lock_or_barrier {
                true => warn!(
                    "{} is not ephemeral, so it is not a place in the queue: ignored. Delete it",
                    watched.path
                ),
                false => self.context.ignore_non_ephemeral(&[sequence]),
            }
            return self.end_watch(sequence);
        }
        // The token may differ from that of the last read: then the two reads showed different znodes with the same number.
        // ZooKeeper gives no number twice while our znode exists, so a server is wrong about one of the two. The znode of
        // this read is ahead of ours in either case, so watch it.
        let token = token(&stat);
        watched.token = Some(token);
        let changed = watcher.changed().map(move |change| WatchStep::Changed(sequence, change));
        self.steps.push(changed.boxed());
        let znode = Ticket { sequence, token };
        Some(AheadEvent::Read { znode, data })
    }

    /// Stops watching the znode. Returns the event that the znode is gone; `None` if it was not watched any longer.
    fn end_watch(&mut self, sequence: Sequence) -> Option<AheadEvent> {
        let WatchedZnode { token, .. } = self.watched.remove(&sequence)?;
        Some(AheadEvent::Gone { sequence, token })
    }
}

/// Reads a znode ahead and watches it. If the server does not show the znode, a quorum must confirm that the znode is gone,
/// because the server may have lost it.
///
/// A lock or barrier does not need the data of znodes ahead, so it sets a watch for children, which an ephemeral znode
/// cannot have: the watch fires only when the znode is deleted.
async fn read_and_watch(
    context: &Context,
    connection: &Connection,
    path: &str,
) -> Result<WatchRead, Error> {
    let client = &connection.client;
    let read = if context.is_lock_or_barrier {
        let read = connection.request(client.get_and_watch_children(path)).await;
        read.map(|(_, stat, watcher)| (vec![], stat, watcher))
    } else {
        connection.request(client.get_and_watch_data(path)).await
    };
    match read {
        Err(Error::NoNode) => {}
        // Our session owns two znodes, and the member would wait for the end of its own session.
        Ok((_, stat, _)) if !context.is_lock_or_barrier && is_of_session(&stat, connection) => {
            warn!(
                "{path} is ahead of our znode and owned by our own session: starting over with another session"
            );
            return context.give_session_up().await;
        }
        read => {
            return read.map(|(data, stat, watcher)| WatchRead::Exists(data, stat, watcher));
        }
    }
    match leave_server_if_missing(connection, path).await? {
        // There may be no other server. The wrong event that the znode is gone is safe, because a quorum would refuse the
        // claim of a second leader.
        false if context.all_leaders_claim() => Ok(WatchRead::NotShown),
        // Read again, from another server if this one was left. Without a claim that would exclude a second holder, wait
        // until the server and a quorum agree.
        _ => Err(Error::Timeout),
    }
}

/// Returns true if a quorum says that the znode exists, and false if it is gone. If it is gone, but the current server still
/// shows it, first leaves that server.
async fn confirm_exists(context: &Context, path: &str) -> bool {
    let checked =
        context.retry_until_answered(async |connection| match connection.check(path).await {
            Err(Error::NoNode) => {
                leave_server_if_shown(&connection, path).await?;
                Err(Error::NoNode)
            }
            checked => checked,
        });
    checked.await.is_ok()
}
