//! Watches our own znode and the predecessor's, or several znodes ahead of ours.
//!
//! The invariant of this file: **the loss of our own znode is reported before the loss of a znode ahead of it, if it was
//! committed before it.** Otherwise a member could act as the head of the queue with a znode that it no longer owns. The
//! invariant holds because
//!
//! 1. the servers send the notifications and answers of one session in the order of commits, and the client library
//!    delivers them in that order;
//! 2. one task watches all these znodes and polls our own first. After each event of a znode ahead, notification or answer,
//!    it checks the watch of our own znode before it reports that event;
//! 3. a watch ends with its connection. On the next connection, our own znode is read and watched before those ahead.

use super::QueueEvent;
use super::context::{BROKEN, Context, leave_if_znode_missing};
use super::znode::{is_of_session, is_ours, token};
use crate::zookeeper::client::{Connection, LeaveServerOutcome, SessionHandle};
use ::zookeeper::{Error, EventType, OneshotWatcher, Stat, WatchedEvent};
use futures_util::future::{BoxFuture, FutureExt};
use recipes::{FencingToken, Sequence, Ticket};
use tokio::sync::watch;
use tracing::warn;

/// Watches until our own znode is lost. The predecessor to watch may change at any time.
pub(super) async fn watch(
    context: &Context,
    ticket: Ticket,
    wanted: watch::Receiver<Option<Sequence>>,
) {
    let predecessor = Predecessor { context, wanted, watched: None };
    watch_until_own_is_lost(context, ticket, predecessor, |event| context.send_event(event)).await;
    context.send_event(QueueEvent::TicketLost(ticket));
}

/// The znodes ahead of our own, whose events are reported in order.
pub(in crate::zookeeper) trait ZnodesAhead {
    type Event;

    /// Waits for an event of one of the znodes. Cancel-safe: no event is lost.
    async fn next_event(&mut self) -> Self::Event;

    /// Reads all znodes again, because the watches ended with their connection.
    fn read_again(&mut self);
}

/// Watches our own znode together with those ahead, and reports the events of those ahead. Returns when our own znode is
/// lost, which the caller reports.
pub(in crate::zookeeper) async fn watch_until_own_is_lost<A: ZnodesAhead>(
    context: &Context,
    ticket: Ticket,
    mut ahead: A,
    on_event: impl Fn(A::Event),
) {
    let mut connections = context.session.clone();
    let mut unsent = None;
    loop {
        connections.mark_seen();
        let Some(mut own) = watch_own(context, ticket).await else { return };
        if let Some(event) = unsent.take() {
            on_event(event);
        }
        match watch_all(&mut own, &mut connections, &mut ahead, &on_event).await {
            WatchesEnd::OwnLost => return,
            WatchesEnd::ReadAgain(event) => unsent = event,
        }
        ahead.read_again();
    }
}

/// The next step when the watches can no longer be used.
enum WatchesEnd<E> {
    /// Our own znode is lost.
    OwnLost,
    /// Reads all znodes again. The event of a znode ahead is reported once our own is known to exist.
    ReadAgain(Option<E>),
}

impl<E> WatchesEnd<E> {
    fn after_own_change(change: &WatchedEvent, unsent: Option<E>) -> Self {
        match change.event_type {
            EventType::NodeDeleted => Self::OwnLost,
            _ => Self::ReadAgain(unsent),
        }
    }
}

async fn watch_all<A: ZnodesAhead>(
    own: &mut BoxFuture<'static, WatchedEvent>,
    connections: &mut SessionHandle,
    ahead: &mut A,
    on_event: &impl Fn(A::Event),
) -> WatchesEnd<A::Event> {
    loop {
        tokio::select! {
            biased;
            // The watches ended with their connection: the library panics if one is polled after that.
            _ = connections.changed() => return WatchesEnd::ReadAgain(None),
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

/// Watches our own znode. Returns `None` if it is gone or belongs to another session.
///
/// The watch is for children, and an ephemeral znode has none. So it fires when the znode is deleted, but not at each of
/// our own writes. A breakable place is not written to by its owner, so its data is watched.
async fn watch_own(context: &Context, ticket: Ticket) -> Option<BoxFuture<'static, WatchedEvent>> {
    let path = context.path(ticket.sequence);
    let read = context.retry_until_answered(async |connection| {
        let client = &connection.client;
        let read = if context.is_breakable {
            let read = connection.request(client.get_and_watch_data(&path)).await;
            read.map(|(data, stat, watcher)| (data == BROKEN, stat, watcher))
        } else {
            let read = connection.request(client.get_and_watch_children(&path)).await;
            read.map(|(_, stat, watcher)| (false, stat, watcher))
        };
        match read {
            Ok((is_broken, stat, watcher)) => {
                let stands = is_ours(&stat, ticket, &connection) && !is_broken;
                Ok(stands.then_some(watcher))
            }
            Err(Error::NoNode) => Err(context.own_is_not_shown(&connection, &path).await),
            Err(error) => Err(error),
        }
    });
    let watcher = read.await.ok().flatten()?;
    Some(watcher.changed().boxed())
}

/// The predecessor to watch.
struct Predecessor<'a> {
    context: &'a Context,
    wanted: watch::Receiver<Option<Sequence>>,
    watched: Option<WatchedPredecessor>,
}

struct WatchedPredecessor {
    sequence: Sequence,
    /// The token of the znode that existed at the last read.
    token: Option<FencingToken>,
    /// The watch; `None` if the znode has to be read first.
    change: Option<BoxFuture<'static, WatchedEvent>>,
}

impl ZnodesAhead for Predecessor<'_> {
    type Event = QueueEvent;

    async fn next_event(&mut self) -> QueueEvent {
        let context = self.context;
        loop {
            let watched = &mut self.watched;
            let next = async {
                match watched {
                    Some(watched) => watched.next_event(context).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Ok(()) = self.wanted.changed() => {
                    let wanted = *self.wanted.borrow_and_update();
                    self.watched =
                        wanted.map(|sequence| WatchedPredecessor { sequence, token: None, change: None });
                }
                event = next => {
                    if matches!(event, QueueEvent::PredecessorGone { .. }) {
                        self.watched = None;
                    }
                    return event;
                }
            }
        }
    }

    fn read_again(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.change = None;
        }
    }
}

impl WatchedPredecessor {
    /// Waits for a change of the znode, or reads it if it is not watched yet.
    async fn next_event(&mut self, context: &Context) -> QueueEvent {
        if let Some(change) = &mut self.change {
            let change = change.await;
            self.change = None;
            if change.event_type == EventType::NodeDeleted {
                return self.gone();
            }
        }
        let path = context.path(self.sequence);
        let read = context.retry_until_answered(async |connection| {
            read_and_watch(context, &connection, &path).await
        });
        let Ok(read) = read.await else { return self.gone() };
        let Some((data, stat, watcher)) = read else {
            // Leave the token out: without proof that the znode is gone, a lease must not be used.
            self.token = None;
            return self.gone();
        };
        if context.is_not_ephemeral(self.sequence, &stat) || context.is_denied(self.sequence, &stat)
        {
            return self.gone();
        }
        // A znode with this number that is not the one seen before is ahead of ours as well: while our znode exists, no
        // number is given twice, so one of two servers has shown a znode that no quorum committed.
        let token = token(&stat);
        self.token = Some(token);
        self.change = Some(watcher.changed().boxed());
        let predecessor = Ticket { sequence: self.sequence, token };
        QueueEvent::PredecessorRead { predecessor, data, modified_ms: stat.mtime }
    }

    fn gone(&self) -> QueueEvent {
        QueueEvent::PredecessorGone { predecessor: self.sequence, token: self.token }
    }
}

/// Reads a predecessor's znode and watches it. A read that finds no znode counts only if a quorum agrees, because a server
/// may have lost the znode; a notification needs no such check. Returns `None` if a quorum says that the znode exists, but
/// the current server does not show it and no other server is known.
async fn read_and_watch(
    context: &Context,
    connection: &Connection,
    path: &str,
) -> Result<Option<(Vec<u8>, Stat, OneshotWatcher)>, Error> {
    match connection.request(connection.client.get_and_watch_data(path)).await {
        Err(Error::NoNode) => {}
        Ok((_, stat, _)) if is_of_session(&stat, connection) => {
            warn!(
                "{path} is ahead of us and of our own session: starting over with another session"
            );
            return context.give_session_up().await;
        }
        read => return read.map(Some),
    }
    match leave_if_znode_missing(connection, path).await? {
        LeaveServerOutcome::First | LeaveServerOutcome::Again => Err(Error::Timeout),
        LeaveServerOutcome::NotYet => Ok(None),
    }
}
