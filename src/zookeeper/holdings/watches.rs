//! Watches the own znode of one holding, and the znodes that it waits for. `queue/watches` describes the order of their
//! events, and has the loop that ensures it.

use crate::zookeeper::client::{Connection, LeaveServerOutcome};
use crate::zookeeper::queue::{
    Context, ZnodesAhead, leave_if_znode_missing, leave_wrong_server, owner, token,
    watch_until_own_is_lost,
};
use ::zookeeper::{Error, EventType, OneshotWatcher, Stat, WatchedEvent};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use recipes::place::Event;
use recipes::{FencingToken, Sequence, Ticket};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::warn;

/// A request about a znode ahead.
pub(super) enum WatchRequest {
    /// Watch the znode with this number, at this path.
    Watch(Sequence, String),
    /// Ask a quorum whether the watched znode with this number exists.
    Confirm(Sequence),
}

/// Watches until the own znode is lost, and reports the loss.
pub(super) async fn watch(
    context: Arc<Context>,
    ticket: Ticket,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    on_event: impl Fn(Event),
) {
    let ahead = ZnodesAheadWatch::new(context.clone(), wanted);
    watch_until_own_is_lost(&context, ticket, ahead, &on_event).await;
    on_event(Event::TicketLost(ticket));
}

/// Watches the znodes of others for a member whose own znode is deleted. Ends with the session.
pub(super) async fn watch_others(
    context: Arc<Context>,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    on_event: impl Fn(Event),
) {
    let mut connections = context.session.clone();
    let mut ahead = ZnodesAheadWatch::new(context, wanted);
    loop {
        connections.mark_seen();
        ahead.read_again();
        loop {
            tokio::select! {
                biased;
                // First, as watches end with their connection, and the library panics if an ended watch is polled.
                changed = connections.changed() => match changed {
                    Ok(()) => break,
                    // The session has ended.
                    Err(_) => return,
                },
                event = ahead.next_event() => on_event(event),
            }
        }
    }
}

/// The znodes ahead that are watched.
struct ZnodesAheadWatch {
    context: Arc<Context>,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    watched: BTreeMap<Sequence, WatchedZnode>,
    /// Pending readings, notifications and confirmations.
    steps: FuturesUnordered<BoxFuture<'static, WatchStep>>,
}

struct WatchedZnode {
    path: String,
    /// The token at the last reading; `None` before the first.
    token: Option<FencingToken>,
}

enum WatchStep {
    Read(Sequence, WatchRead),
    Changed(Sequence, WatchedEvent),
    /// A quorum was asked; true if the znode is gone.
    Confirmed(Sequence, bool),
}

enum WatchRead {
    Stands(Stat, OneshotWatcher),
    /// The znode does not exist, as a quorum has confirmed.
    Gone,
}

impl ZnodesAhead for ZnodesAheadWatch {
    type Event = Event;

    async fn next_event(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                Some(want) = self.wanted.recv() => self.begin(want),
                Some(step) = self.steps.next() => {
                    if let Some(event) = self.after(step) {
                        return event;
                    }
                }
                else => pending().await,
            }
        }
    }

    fn read_again(&mut self) {
        self.steps.clear();
        let sequences: Vec<_> = self.watched.keys().copied().collect();
        sequences.into_iter().for_each(|sequence| self.read(sequence));
    }
}

impl ZnodesAheadWatch {
    fn new(context: Arc<Context>, wanted: mpsc::UnboundedReceiver<WatchRequest>) -> Self {
        let watched = BTreeMap::new();
        let steps = FuturesUnordered::new();
        Self { context, wanted, watched, steps }
    }

    fn begin(&mut self, want: WatchRequest) {
        match want {
            WatchRequest::Watch(sequence, path) => {
                self.watched.insert(sequence, WatchedZnode { path, token: None });
                self.read(sequence);
            }
            WatchRequest::Confirm(sequence) => {
                let Some(WatchedZnode { path, .. }) = self.watched.get(&sequence) else { return };
                let context = self.context.clone();
                let path = path.clone();
                let confirmed =
                    async move { WatchStep::Confirmed(sequence, !stands(&context, &path).await) };
                self.steps.push(confirmed.boxed());
            }
        }
    }

    fn read(&self, sequence: Sequence) {
        let Some(WatchedZnode { path, .. }) = self.watched.get(&sequence) else { return };
        let context = self.context.clone();
        let path = path.clone();
        let read = async move { WatchStep::Read(sequence, read_and_watch(&context, &path).await) };
        self.steps.push(read.boxed());
    }

    fn after(&mut self, step: WatchStep) -> Option<Event> {
        match step {
            WatchStep::Read(sequence, found) => self.after_reading(sequence, found),
            WatchStep::Changed(sequence, change) if change.event_type != EventType::NodeDeleted => {
                self.read(sequence);
                None
            }
            WatchStep::Confirmed(_, false) => None,
            WatchStep::Changed(sequence, _) | WatchStep::Confirmed(sequence, true) => {
                self.gone(sequence)
            }
        }
    }

    fn after_reading(&mut self, sequence: Sequence, found: WatchRead) -> Option<Event> {
        let watched = self.watched.get_mut(&sequence)?;
        let WatchRead::Stands(stat, watcher) = found else { return self.gone(sequence) };
        let path = &watched.path;
        let token = token(&stat);
        let is_ephemeral = owner(&stat).is_some();
        if !is_ephemeral {
            warn!("{path} is not ephemeral, so it is not a place in the queue: ignored. Delete it");
            return self.gone(sequence);
        }
        // This may be a different znode with the same number as before, but it counts as ahead all the same: while the
        // own znode exists, no number is given twice, so one of the two servers has shown a znode that no quorum
        // committed.
        watched.token = Some(token);
        let changed = watcher.changed().map(move |change| WatchStep::Changed(sequence, change));
        self.steps.push(changed.boxed());
        Some(Event::Watched(Ticket { sequence, token }))
    }

    fn gone(&mut self, sequence: Sequence) -> Option<Event> {
        let WatchedZnode { token, .. } = self.watched.remove(&sequence)?;
        Some(Event::Gone { sequence, token })
    }
}

/// Reads a znode and watches its children: an ephemeral znode has none, so the watch fires when the znode is deleted.
/// If the znode is not shown, that counts only if a quorum agrees, and the read is repeated until then: a lock has no
/// claim that would exclude a second holder. A notification needs no such check.
async fn read_and_watch(context: &Context, path: &str) -> WatchRead {
    let read = context.retry_until_answered(async |connection| {
        match connection.request(connection.client.get_and_watch_children(path)).await {
            Ok((_, stat, watcher)) => return Ok(WatchRead::Stands(stat, watcher)),
            Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        leave_if_znode_missing(&connection, path).await?;
        Err(Error::Timeout)
    });
    read.await.unwrap_or(WatchRead::Gone)
}

/// Asks a quorum whether a znode exists. If it does not, but the current server still shows it, leaves that server.
async fn stands(context: &Context, path: &str) -> bool {
    let judged =
        context.retry_until_answered(async |connection| match connection.check(path).await {
            Err(Error::NoNode) => {
                leave_if_shown(&connection, path).await?;
                Err(Error::NoNode)
            }
            checked => checked,
        });
    judged.await.is_ok()
}

async fn leave_if_shown(connection: &Connection, path: &str) -> Result<(), Error> {
    let shown = connection.request(connection.client.check_stat(path)).await?.is_some();
    if shown
        && leave_wrong_server(connection, path, "still shows", "it is gone")
            == LeaveServerOutcome::NotYet
    {
        // On this connection, the watch of the deleted znode would never fire.
        connection.give_up();
    }
    Ok(())
}
