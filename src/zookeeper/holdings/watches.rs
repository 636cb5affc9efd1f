//! Watches the own znode of one holding, and those that it waits for. `queue/watches` has the invariant of that, and
//! the loop that keeps it.

use crate::zookeeper::client::{Connection, LeaveServerOutcome};
use crate::zookeeper::queue::{
    Context, ZnodesAhead, leave_if_lacking, leave_wrong_server, owner, token,
    watch_until_own_is_lost,
};
use ::zookeeper::{Error, EventType, OneshotWatcher, Stat, WatchedEvent};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use recipes::{FencingToken, Moment, Sequence, Ticket, barrier, lock};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::warn;

/// A request about a znode ahead.
pub(super) enum WatchRequest {
    /// Watch the one at this path.
    Watch(Sequence, String),
    /// Have a quorum say whether the watched one stands.
    Prove(Sequence),
}

/// The events of one holding's place.
pub(super) enum PlaceEvent {
    /// Its znode exists.
    Joined { ticket: Ticket, sent_at: Option<Moment> },
    /// Its znode is gone, although the session lives.
    TicketLost(Ticket),
    /// This znode stands, and is watched.
    Watched(Ticket),
    /// No znode stands there any more. The token is that of the znode that was watched.
    Gone { sequence: Sequence, token: Option<FencingToken> },
    /// Its own znode is deleted.
    Left,
}

impl PlaceEvent {
    pub(super) fn of_lock(self) -> lock::Event {
        match self {
            Self::Joined { ticket, sent_at } => lock::Event::Joined { ticket, sent_at },
            Self::TicketLost(ticket) => lock::Event::TicketLost(ticket),
            Self::Watched(znode) => lock::Event::Watched(znode),
            Self::Gone { sequence, token } => lock::Event::Gone { sequence, token },
            Self::Left => lock::Event::Left,
        }
    }

    /// Returns `None` for what is nothing to a barrier.
    pub(super) fn of_barrier(self) -> Option<barrier::Event> {
        Some(match self {
            Self::Joined { ticket, sent_at } => barrier::Event::Joined { ticket, sent_at },
            Self::TicketLost(ticket) => barrier::Event::TicketLost(ticket),
            Self::Watched(_) => return None,
            Self::Gone { sequence, .. } => barrier::Event::Gone(sequence),
            Self::Left => barrier::Event::Left,
        })
    }
}

/// Watches until the own znode is lost.
pub(super) async fn watch(
    context: Arc<Context>,
    ticket: Ticket,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    tell: impl Fn(PlaceEvent),
) {
    let ahead = ZnodesAheadWatch::new(context.clone(), wanted);
    watch_until_own_is_lost(&context, ticket, ahead, &tell).await;
    tell(PlaceEvent::TicketLost(ticket));
}

/// Watches others for one that has no znode any more.
pub(super) async fn watch_others(
    context: Arc<Context>,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    tell: impl Fn(PlaceEvent),
) {
    let mut connections = context.session.clone();
    let mut others = ZnodesAheadWatch::new(context, wanted);
    loop {
        connections.mark_seen();
        others.read_again();
        loop {
            tokio::select! {
                biased;
                // The watches went with their connection: the library panics where one is polled after it.
                changed = connections.changed() => match changed {
                    Ok(()) => break,
                    // The session has ended.
                    Err(_) => return,
                },
                event = others.next_event() => tell(event),
            }
        }
    }
}

/// The znodes ahead that are watched.
struct ZnodesAheadWatch {
    context: Arc<Context>,
    wanted: mpsc::UnboundedReceiver<WatchRequest>,
    watched: BTreeMap<Sequence, WatchedZnode>,
    /// Pending readings, notifications and proofs.
    steps: FuturesUnordered<BoxFuture<'static, WatchStep>>,
}

struct WatchedZnode {
    path: String,
    /// Of the znode that stood there when it was first read.
    token: Option<FencingToken>,
}

enum WatchStep {
    Read(Sequence, WatchRead),
    Changed(Sequence, WatchedEvent),
    Proved(Sequence, bool),
}

enum WatchRead {
    Stands(Stat, OneshotWatcher),
    /// A quorum agrees.
    Gone,
}

impl ZnodesAhead for ZnodesAheadWatch {
    type Event = PlaceEvent;

    async fn next_event(&mut self) -> PlaceEvent {
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
            WatchRequest::Prove(sequence) => {
                let Some(WatchedZnode { path, .. }) = self.watched.get(&sequence) else { return };
                let context = self.context.clone();
                let path = path.clone();
                let proved =
                    async move { WatchStep::Proved(sequence, !stands(&context, &path).await) };
                self.steps.push(proved.boxed());
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

    fn after(&mut self, step: WatchStep) -> Option<PlaceEvent> {
        match step {
            WatchStep::Read(sequence, found) => self.after_reading(sequence, found),
            WatchStep::Changed(sequence, change) if change.event_type != EventType::NodeDeleted => {
                self.read(sequence);
                None
            }
            WatchStep::Proved(_, false) => None,
            WatchStep::Changed(sequence, _) | WatchStep::Proved(sequence, true) => {
                self.gone(sequence)
            }
        }
    }

    fn after_reading(&mut self, sequence: Sequence, found: WatchRead) -> Option<PlaceEvent> {
        let watched = self.watched.get_mut(&sequence)?;
        let WatchRead::Stands(stat, watcher) = found else { return self.gone(sequence) };
        let path = &watched.path;
        let token = token(&stat);
        let is_ephemeral = owner(&stat).is_some();
        if !is_ephemeral {
            warn!("{path} is not ephemeral, so none holds by it; passed over. Delete it");
        }
        // While there was no watch, the path may have become another's.
        if !is_ephemeral || watched.token.is_some_and(|known| known != token) {
            return self.gone(sequence);
        }
        watched.token = Some(token);
        let changed = watcher.changed().map(move |change| WatchStep::Changed(sequence, change));
        self.steps.push(changed.boxed());
        Some(PlaceEvent::Watched(Ticket { sequence, token }))
    }

    fn gone(&mut self, sequence: Sequence) -> Option<PlaceEvent> {
        let WatchedZnode { token, .. } = self.watched.remove(&sequence)?;
        Some(PlaceEvent::Gone { sequence, token })
    }
}

/// Reads a znode and watches it: for its children, of which an ephemeral znode has none, so that the watch fires when
/// the znode is deleted. A reading that finds none counts only if a quorum agrees: until then it is asked again, as no claim
/// keeps a lock that stands. A notification needs no such check.
async fn read_and_watch(context: &Context, path: &str) -> WatchRead {
    let read = context.until_judged(async |connection| {
        match connection.request(connection.client.get_and_watch_children(path)).await {
            Ok((_, stat, watcher)) => return Ok(WatchRead::Stands(stat, watcher)),
            Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        leave_if_lacking(&connection, path).await?;
        Err(Error::Timeout)
    });
    read.await.unwrap_or(WatchRead::Gone)
}

/// Asks a quorum whether a znode stands. A server that shows it though it does not is left.
async fn stands(context: &Context, path: &str) -> bool {
    let judged = context.until_judged(async |connection| match connection.check(path).await {
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
        // The watch of that znode would never fire.
        connection.give_up();
    }
    Ok(())
}
