//! The session in which locks are held, and barriers entered: carries out what the holdings want, and puts what happens
//! into their events.

use super::readings::Readings;
use super::watches::{self, PlaceEvent, WatchRequest};
use super::{HoldingsSettings, barrier_znodes, data};
use crate::clock::Clock;
use crate::config::security::AclPolicy;
use crate::holdings::ProcessName;
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::{
    SessionEvent, SessionHandle, SessionSettings, SessionTask, UnclosedSession, delay_after_force,
};
use crate::zookeeper::queue::{
    self, CHILDREN_MAX, Context, QueueEvent, QueueSettings, RETRY_DELAY, Reports, join, still_ours,
    unless_crowded, unless_denied, warn_if_weak,
};
use ::zookeeper::Error;
use ::zookeeper::OneshotWatcher;
use recipes::barrier::{self, Reading, Ready, Round};
use recipes::holding::{Event, HoldingId};
use recipes::lock;
use recipes::{Moment, Sequence, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;

/// How many requests about places may be under way at once: heartbeats come between them.
const REQUESTS_AT_ONCE: usize = 64;

/// Of how many locks and barriers in a session the ACL is looked at.
const ACLS_MAX: usize = 1000;

/// Of one session, which requests end with.
pub(super) struct HoldingsSession {
    session: SessionTask,
    shared: SessionContext,
    events: mpsc::UnboundedReceiver<Message>,
    requests: JoinSet<()>,
    watches: JoinSet<()>,
    places: BTreeMap<HoldingId, HoldingPlace>,
    readings: BTreeMap<Arc<str>, Readings>,
    /// Holdings whose queue or barrier has just been read, with the reading.
    read: VecDeque<(HoldingId, Arc<Listing>)>,
    /// The events to deliver next.
    due: VecDeque<Event>,
    /// Wait for `ready` to be made or deleted, at the paths of barriers.
    ready_watches: BTreeMap<Arc<str>, AbortHandle>,
    /// Paths whose ACL has been checked.
    acls_known: BTreeSet<Arc<str>>,
}

/// The state shared by all requests of a session.
#[derive(Clone)]
struct SessionContext {
    settings: HoldingsSettings,
    session: SessionHandle,
    reports: Reports,
    clock: Clock,
    told: mpsc::UnboundedSender<Message>,
    pace: Arc<Semaphore>,
}

/// One holding's place in a lock's queue or a barrier, or on the way there.
struct HoldingPlace {
    kind: Kind,
    path: Arc<str>,
    context: Arc<Context>,
    own: OwnPlace,
    watching: Option<AbortHandle>,
    wants: mpsc::UnboundedSender<WatchRequest>,
    /// The queue or barrier as it was last read.
    shown: Arc<Listing>,
    /// Znodes ahead that are gone, whatever a server shows: while the own znode exists, no number is used twice.
    gone: BTreeSet<Sequence>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lock,
    Barrier,
}

/// The own znode of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnPlace {
    Joining,
    Stands(Ticket),
    /// The own znode is deleted, and the barrier waits for others.
    Left,
}

/// A watch of `ready`, and of the connection with which it goes.
struct ReadyWatch {
    watcher: OneshotWatcher,
    connections: SessionHandle,
}

/// The result of a reading; empty by default.
pub(super) struct Listing {
    /// In order of their numbers.
    pub(super) entries: Vec<NamedEntry>,
    pub(super) round: Round,
    /// The version of the path's data in that round.
    pub(super) version: i32,
    pub(super) ready: Option<Ready>,
}

/// An entry, and what its znode is named.
pub(super) struct NamedEntry {
    pub(super) entry: QueueEntry,
    pub(super) name: String,
}

#[derive(Clone, Copy)]
pub(super) enum QueueEntry {
    Lock(lock::LockEntry),
    Barrier(barrier::BarrierEntry),
}

enum Message {
    Session(SessionEvent),
    Place(HoldingId, PlaceEvent),
    Read(Arc<str>, Arc<Listing>, Option<ReadyWatch>),
    /// The queue is to be read once more for this one.
    Unread(HoldingId),
    /// `ready` was made or deleted in this barrier, or the watch of it is gone.
    ReadyChanged(Arc<str>),
    /// A request to the barrier for this holding was answered, whatever the answer.
    Answered(HoldingId),
    Renewed(Moment),
    /// The session cannot go on: the servers keep us from our own znode, or a task died.
    Unusable,
}

impl HoldingsSession {
    pub(super) fn open(
        settings: HoldingsSettings,
        session: SessionSettings,
        before: UnclosedSession,
        reports: Reports,
    ) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let clock = session.clock;
        let sender = told.clone();
        let session = SessionTask::open(
            session,
            before,
            Box::new(move |event| {
                let _receiver_gone = sender.send(Message::Session(event));
            }),
        );
        let pace = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        let shared =
            SessionContext { settings, session: session.handle(), reports, clock, told, pace };
        Self {
            session,
            shared,
            events,
            requests: JoinSet::new(),
            watches: JoinSet::new(),
            places: BTreeMap::new(),
            readings: BTreeMap::new(),
            read: VecDeque::new(),
            due: VecDeque::new(),
            ready_watches: BTreeMap::new(),
            acls_known: BTreeSet::new(),
        }
    }

    pub(super) fn handle(&self) -> SessionHandle {
        self.session.handle()
    }

    /// Has a quorum commit a write that changes nothing.
    pub(super) fn renew(&mut self, sent_at: Moment) {
        let shared = self.shared.clone();
        self.requests.spawn(async move {
            loop {
                match shared.session.connection().await.check("/").await {
                    // A check that fails is a transaction of this session all the same, which a quorum has logged.
                    Ok(()) | Err(Error::NoAuth) => return shared.tell(Message::Renewed(sent_at)),
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
            }
        });
    }

    /// Begins what one lock wants done.
    pub(super) fn perform_lock(
        &mut self,
        id: HoldingId,
        path: &Arc<str>,
        process: Option<&ProcessName>,
        action: lock::Action,
    ) {
        match action {
            lock::Action::Join(mode) => self.join(id, Kind::Lock, path, process, mode.prefix()),
            lock::Action::ReadQueue => self.read(id),
            lock::Action::Watch(sequence) => self.watch(id, sequence),
            lock::Action::Prove(sequence) => self.want(id, WatchRequest::Prove(sequence)),
            lock::Action::Leave(ticket) => self.leave(id, ticket),
        }
    }

    /// Begins what one member of a barrier wants done.
    pub(super) fn perform_barrier(
        &mut self,
        id: HoldingId,
        path: &Arc<str>,
        process: Option<&ProcessName>,
        action: barrier::Action,
    ) {
        match action {
            barrier::Action::Join(size) => {
                self.join(id, Kind::Barrier, path, process, barrier::prefix(size));
            }
            barrier::Action::Read => {
                if !self.places.contains_key(&id) {
                    // This holding left in an earlier session, and others may still be inside.
                    self.add_place(id, Kind::Barrier, path.clone(), String::new(), OwnPlace::Left);
                    self.watch_others(id);
                }
                self.read(id);
            }
            barrier::Action::Watch(sequence) => self.watch(id, sequence),
            barrier::Action::Prove(sequence) => self.want(id, WatchRequest::Prove(sequence)),
            barrier::Action::MakeReady { round, size, members } => {
                let Some(place) = self.places.get(&id) else { return };
                let Some(last) = members.iter().last() else { return };
                let context = place.context.clone();
                let shown = place.shown.clone();
                let ready = Ready { last, size: Some(size) };
                let members: BTreeSet<_> = members.iter().collect();
                self.change_barrier(id, async move || {
                    barrier_znodes::make_ready(&context, &shown, round, ready, &members).await
                });
            }
            barrier::Action::EndRound(round) => {
                let Some(place) = self.places.get(&id) else { return };
                let context = place.context.clone();
                let shown = place.shown.clone();
                self.change_barrier(id, async move || {
                    barrier_znodes::end_round(&context, &shown, round).await;
                    vec![]
                });
            }
            barrier::Action::Leave(ticket) => self.leave(id, ticket),
        }
    }

    /// Changes a barrier in a task that returns the znodes of other clients.
    fn change_barrier<F: Future<Output = Vec<Sequence>> + Send>(
        &mut self,
        id: HoldingId,
        change: impl FnOnce() -> F + Send + 'static,
    ) {
        let shared = self.shared.clone();
        self.requests.spawn(async move {
            for sequence in change().await {
                // Whatever a server shows, none stands there.
                shared.tell(Message::Place(id, PlaceEvent::Gone { sequence, token: None }));
            }
            shared.tell(Message::Answered(id));
        });
    }

    /// Returns the place that it had before.
    fn add_place(
        &mut self,
        id: HoldingId,
        kind: Kind,
        path: Arc<str>,
        prefix: String,
        own: OwnPlace,
    ) -> Option<HoldingPlace> {
        let context = Arc::new(self.shared.context(&path, prefix));
        let (wants, _) = mpsc::unbounded_channel();
        let place = HoldingPlace {
            kind,
            path,
            context,
            own,
            watching: None,
            wants,
            shown: Arc::default(),
            gone: BTreeSet::new(),
        };
        self.places.insert(id, place)
    }

    fn join(
        &mut self,
        id: HoldingId,
        kind: Kind,
        path: &Arc<str>,
        process: Option<&ProcessName>,
        prefix: String,
    ) {
        let shared = self.shared.clone();
        let before = self.add_place(id, kind, path.clone(), prefix, OwnPlace::Joining);
        let context = self.places[&id].context.clone();
        self.forget_readings(id);
        let was_lost = before.is_some();
        if let Some(watching) = before.and_then(|place| place.watching) {
            watching.abort();
        }
        let data = data::encode(&shared.settings.member, id, process);
        let is_acl_news = self.acls_known.len() < ACLS_MAX
            && self.acls_known.insert(path.clone())
            && !shared.is_open_and_told();
        self.requests.spawn(async move {
            if was_lost {
                tokio::time::sleep(delay_after_force()).await;
            }
            let joined = join(&context, &data, queue::OwnZnodeMatch::WithData).await;
            let Some((ticket, sent_at)) = joined else {
                return shared.tell(Message::Place(id, PlaceEvent::Left));
            };
            shared.tell(Message::Place(id, PlaceEvent::Joined { ticket, sent_at }));
            if is_acl_news {
                warn_if_weak(&context).await;
            }
        });
    }

    /// Stops the join of a holding that is released. A znode that was created already is reported, to be deleted.
    pub(super) fn withdraw(&self, id: HoldingId) {
        if let Some(HoldingPlace { own: OwnPlace::Joining, context, .. }) = self.places.get(&id) {
            context.withdraw();
        }
    }

    fn read(&mut self, id: HoldingId) {
        let Some(HoldingPlace { path, .. }) = self.places.get(&id) else { return };
        let path = path.clone();
        if self.readings.entry(path.clone()).or_default().ask(id) {
            self.begin_reading(path, id);
        }
    }

    /// Reads the queue or barrier of this one, and of all others that asked.
    fn begin_reading(&mut self, path: Arc<str>, id: HoldingId) {
        let Some(place) = self.places.get(&id) else { return };
        let shared = self.shared.clone();
        let context = place.context.clone();
        let kind = place.kind;
        // No more stood there when it joined than were ever created, as its number says: nobody need be asked how many do.
        let is_short = place.shown.entries.is_empty()
            && matches!(place.own, OwnPlace::Stands(ticket) if ticket.sequence.number() < CHILDREN_MAX);
        self.requests.spawn(async move {
            let mut connections = shared.session.clone();
            // Before any connection is taken: so the loss of none is missed.
            connections.mark_seen();
            let read = context.until_judged(async |connection| {
                if !is_short {
                    unless_crowded(&context, &connection).await?;
                }
                match kind {
                    Kind::Lock => {
                        let root = &context.settings.root;
                        let listed = connection.request(connection.client.list_children(root));
                        Ok((shown_queue(listed.await?), None))
                    }
                    Kind::Barrier => barrier_znodes::read(&context, &connection).await,
                }
            });
            // Without a path, the queue is empty.
            let (shown, watcher) = read.await.unwrap_or_default();
            let watch = watcher.map(|watcher| ReadyWatch { watcher, connections });
            shared.tell(Message::Read(path, Arc::new(shown), watch));
        });
    }

    fn on_read(&mut self, path: &Arc<str>, shown: &Arc<Listing>, watch: Option<ReadyWatch>) {
        if let Some(watch) = watch {
            self.watch_ready(path, watch);
        }
        let Some(readings) = self.readings.get_mut(path) else { return };
        let (asked, again) = readings.end();
        let next = readings.one().filter(|id| self.places.contains_key(id));
        match next {
            Some(id) if again => self.begin_reading(path.clone(), id),
            Some(_) | None => drop(self.readings.remove(path)),
        }
        for id in asked {
            let Some(place) = self.places.get(&id) else { continue };
            match place.own {
                OwnPlace::Joining => {}
                OwnPlace::Stands(ticket) if find(&shown.entries, ticket.sequence).is_none() => {
                    // The current server may lack the znode.
                    let shared = self.shared.clone();
                    let context = place.context.clone();
                    self.requests.spawn(async move {
                        own_is_not_shown(&shared, &context, id, ticket).await
                    });
                }
                OwnPlace::Stands(_) | OwnPlace::Left => self.read.push_back((id, shown.clone())),
            }
        }
    }

    /// Tells when `ready` is made or deleted, or can be watched no longer, instead of the watch before.
    fn watch_ready(&mut self, path: &Arc<str>, watch: ReadyWatch) {
        let shared = self.shared.clone();
        let at = path.clone();
        let ReadyWatch { watcher, mut connections } = watch;
        let watching = self.watches.spawn(async move {
            tokio::select! {
                biased;
                // The watch went with its connection: the library panics where one is polled after it.
                _ = connections.changed() => {}
                _ = watcher.changed() => {}
            }
            shared.tell(Message::ReadyChanged(at));
        });
        self.ready_watches.insert(path.clone(), watching).inspect(AbortHandle::abort);
    }

    fn on_ready_changed(&mut self, path: &Arc<str>) {
        let ids = self.places.iter().filter(|(_, place)| place.path == *path).map(|(id, _)| *id);
        self.due.extend(ids.map(|id| Event::Barrier(id, barrier::Event::Changed)));
    }

    /// Returns what the next of those hears whose queue has just been read. One by one: there may be many, of a long queue.
    fn next_read(&mut self) -> Option<Event> {
        while let Some((id, shown)) = self.read.pop_front() {
            let Some(place) = self.places.get_mut(&id) else { continue };
            place.gone.retain(|sequence| find(&shown.entries, *sequence).is_some());
            let entries = shown.entries.iter().map(|named| named.entry);
            let entries = entries.filter(|entry| !place.gone.contains(&entry.sequence()));
            let event = match place.kind {
                Kind::Lock => {
                    let entries = entries.filter_map(QueueEntry::of_lock).collect();
                    Event::Lock(id, lock::Event::QueueRead(entries))
                }
                Kind::Barrier => {
                    let entries = entries.filter_map(QueueEntry::of_barrier).collect();
                    let reading = Reading::of(shown.round, entries, shown.ready);
                    Event::Barrier(id, barrier::Event::Read(reading))
                }
            };
            place.shown = shown;
            return Some(event);
        }
        None
    }

    fn want(&self, id: HoldingId, want: WatchRequest) {
        if let Some(place) = self.places.get(&id) {
            let _receiver_gone = place.wants.send(want);
        }
    }

    fn watch(&mut self, id: HoldingId, sequence: Sequence) {
        let Some(place) = self.places.get(&id) else { return };
        let Some(NamedEntry { name, .. }) = find(&place.shown.entries, sequence) else { return };
        self.want(id, WatchRequest::Watch(sequence, format!("{}/{name}", place.path)));
    }

    fn leave(&mut self, id: HoldingId, ticket: Ticket) {
        let Some(place) = self.places.get(&id) else { return };
        let shared = self.shared.clone();
        let context = place.context.clone();
        self.requests.spawn(async move {
            let path = context.path(ticket.sequence);
            let is_retry = AtomicBool::new(false);
            let deleted = context.until_judged(async |connection| {
                // While there was no answer, the path may have become another's.
                if is_retry.swap(true, Ordering::Relaxed) {
                    still_ours(&context, &connection, ticket).await?;
                }
                let deleted = connection.request(connection.client.delete(&path, None)).await;
                unless_denied(&context, &path, deleted).await
            });
            // If a quorum says that there is none, it is gone as well.
            let _gone_already = deleted.await;
            shared.tell(Message::Place(id, PlaceEvent::Left));
        });
    }

    /// Waits for the next event of the holdings. May be dropped and called again: nothing is lost.
    pub(super) async fn next_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.due.pop_front().or_else(|| self.next_read()) {
                return event;
            }
            self.reap();
            match self.events.recv().await.expect("this holds a sender") {
                Message::Session(SessionEvent::Opened { session, timeout, sent_at }) => {
                    return Event::SessionOpened { session, timeout, sent_at };
                }
                Message::Session(SessionEvent::Resumed { timeout, sent_at }) => {
                    return Event::SessionResumed { timeout, sent_at };
                }
                Message::Session(SessionEvent::TakenOver { .. }) => {
                    unreachable!("no process leaves such a session to a next one")
                }
                Message::Session(SessionEvent::Disconnected) => {}
                Message::Session(SessionEvent::Lost) | Message::Unusable => {
                    return Event::SessionLost;
                }
                Message::Renewed(sent_at) => return Event::Committed { sent_at },
                Message::Read(path, shown, watch) => self.on_read(&path, &shown, watch),
                Message::Unread(id) => self.read(id),
                Message::ReadyChanged(path) => self.on_ready_changed(&path),
                Message::Answered(id) => return Event::Barrier(id, barrier::Event::Changed),
                Message::Place(id, event) => {
                    if let Some(event) = self.noted(id, event) {
                        return event;
                    }
                }
            }
        }
    }

    /// Updates a place. Returns the event for its holding.
    fn noted(&mut self, id: HoldingId, event: PlaceEvent) -> Option<Event> {
        let place = self.places.get_mut(&id)?;
        let kind = place.kind;
        match event {
            PlaceEvent::Joined { ticket, .. } => {
                place.own = OwnPlace::Stands(ticket);
                let (wants, wanted) = mpsc::unbounded_channel();
                place.wants = wants;
                let shared = self.shared.clone();
                let context = place.context.clone();
                let watching =
                    self.watches.spawn(watches::watch(context, ticket, wanted, move |event| {
                        shared.tell(Message::Place(id, event))
                    }));
                place.watching = Some(watching);
            }
            PlaceEvent::TicketLost(lost) if place.own != OwnPlace::Stands(lost) => return None,
            PlaceEvent::Gone { sequence, .. } => {
                place.gone.insert(sequence);
            }
            PlaceEvent::Left if kind == Kind::Barrier => {
                place.own = OwnPlace::Left;
                self.watch_others(id);
            }
            _ => {}
        }
        match kind {
            Kind::Lock => Some(Event::Lock(id, event.of_lock())),
            Kind::Barrier => event.of_barrier().map(|event| Event::Barrier(id, event)),
        }
    }

    /// Watches others from now on, without an own znode.
    fn watch_others(&mut self, id: HoldingId) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let (wants, wanted) = mpsc::unbounded_channel();
        place.wants = wants;
        let shared = self.shared.clone();
        let context = place.context.clone();
        let watching = self.watches.spawn(watches::watch_others(context, wanted, move |event| {
            shared.tell(Message::Place(id, event))
        }));
        place.watching.replace(watching).inspect(AbortHandle::abort);
    }

    fn forget_readings(&mut self, id: HoldingId) {
        self.read.retain(|(other, _)| *other != id);
        if let Some(place) = self.places.get(&id)
            && let Some(readings) = self.readings.get_mut(&place.path)
        {
            readings.forget(id);
        }
    }

    /// Forgets a holding of which nothing is left.
    pub(super) fn forget(&mut self, id: HoldingId) {
        self.forget_readings(id);
        let Some(HoldingPlace { kind, path, watching, .. }) = self.places.remove(&id) else {
            return;
        };
        watching.inspect(AbortHandle::abort);
        if kind == Kind::Barrier && self.places.values().all(|place| place.path != path) {
            self.ready_watches.remove(&path).inspect(AbortHandle::abort);
        }
    }

    fn reap(&mut self) {
        while let Some(done) =
            self.requests.try_join_next().or_else(|| self.watches.try_join_next())
        {
            if let Err(error) = done
                && error.is_panic()
            {
                error!(%error, "a request for a lock or barrier died: starting over with another session");
                self.shared.tell(Message::Unusable);
            }
        }
    }

    /// Ends the session, and with it all znodes. Returns it if it may live on.
    pub(super) async fn close(mut self) -> UnclosedSession {
        self.requests.shutdown().await;
        let closing = self.session.close().await;
        self.watches.shutdown().await;
        closing.await
    }
}

impl SessionContext {
    fn tell(&self, told: Message) {
        let _receiver_gone = self.told.send(told);
    }

    /// Whether it was told that all is open: so is each lock then.
    fn is_open_and_told(&self) -> bool {
        let told = self.reports.acl_warning.lock().expect("no panic while it is held");
        self.settings.zookeeper.security.acl == AclPolicy::Open && told.is_some()
    }

    fn context(&self, path: &str, prefix: String) -> Context {
        let security = &self.settings.zookeeper.security;
        let settings = QueueSettings {
            root: path.to_owned(),
            znodes: ZnodeNames::with_prefix(&prefix),
            acl: security.acl,
            is_open_by_choice: security.is_open_by_choice,
        };
        let told = self.told.clone();
        // Of all that a queue can tell, what is used of it here tells one thing.
        let tell = Box::new(move |_: QueueEvent| {
            let _receiver_gone = told.send(Message::Unusable);
        });
        let session = self.session.clone();
        let reports = self.reports.clone();
        let context = Context::new(settings, session, reports, self.clock, tell);
        context.paced_by(self.pace.clone()).breakable()
    }
}

impl QueueEntry {
    pub(super) fn sequence(self) -> Sequence {
        match self {
            Self::Lock(entry) => entry.sequence,
            Self::Barrier(entry) => entry.sequence,
        }
    }

    fn of_lock(self) -> Option<lock::LockEntry> {
        if let Self::Lock(entry) = self { Some(entry) } else { None }
    }

    fn of_barrier(self) -> Option<barrier::BarrierEntry> {
        if let Self::Barrier(entry) = self { Some(entry) } else { None }
    }
}

impl Default for Listing {
    fn default() -> Self {
        // No path was last written in that round.
        Self { entries: vec![], round: Round(-1), version: -1, ready: None }
    }
}

impl Listing {
    /// Returns this with these entries, in order.
    pub(super) fn with(self, entries: impl Iterator<Item = NamedEntry>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|named| named.entry.sequence());
        Self { entries, ..self }
    }
}

fn shown_queue(names: Vec<String>) -> Listing {
    Listing::default().with(names.into_iter().filter_map(|name| {
        Some(NamedEntry { entry: QueueEntry::Lock(lock::LockEntry::of_name(&name)?), name })
    }))
}

pub(super) fn find(entries: &[NamedEntry], sequence: Sequence) -> Option<&NamedEntry> {
    let at = entries.binary_search_by_key(&sequence, |named| named.entry.sequence()).ok()?;
    entries.get(at)
}

/// Finds out whether a quorum agrees that the own znode is not in its queue. Else the queue is read again.
async fn own_is_not_shown(
    shared: &SessionContext,
    context: &Context,
    id: HoldingId,
    ticket: Ticket,
) {
    let connection = context.session.connection().await;
    let path = context.path(ticket.sequence);
    if let Error::NoNode = context.own_is_not_shown(&connection, &path).await {
        return shared.tell(Message::Place(id, PlaceEvent::TicketLost(ticket)));
    }
    drop(connection);
    tokio::time::sleep(RETRY_DELAY).await;
    shared.tell(Message::Unread(id));
}
