//! The session of locks and barriers: performs the actions of the holdings, and converts answers and notifications into
//! their events.

use super::readings::Readings;
use super::{HoldingsSettings, barrier_znodes, data};
use crate::clock::Clock;
use crate::config::security::AclPolicy;
use crate::holdings::ProcessName;
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::{
    SessionHandle, SessionSettings, SessionTask, UnclosedSession, rejoin_delay,
};
use crate::zookeeper::queue::{
    self, AheadEvent, CHILDREN_MAX, Context, QueueEvent, QueueSettings, RETRY_DELAY, Reports,
    WatchRequest, fail_if_crowded, give_up_if_no_auth, join, reap, still_ours, warn_if_weak,
};
use ::zookeeper::Error;
use ::zookeeper::OneshotWatcher;
use recipes::barrier::{self, Reading, Ready, Round};
use recipes::holding::{Event, HoldingId, HoldingKind, HoldingSpec};
use recipes::lock;
use recipes::place;
use recipes::{Moment, Sequence, SessionEvent, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

/// The maximum number of concurrent requests of a session, so that heartbeats do not wait behind too many of them.
const REQUESTS_AT_ONCE: usize = 64;

/// The maximum number of paths whose ACL is checked in a session, because each checked path is kept in memory.
const ACLS_MAX: usize = 1000;

/// The session of all locks and barriers, with its requests and watches, which end with it.
pub(super) struct HoldingsSession {
    session: SessionTask,
    shared: SessionContext,
    /// Receives the results of requests and watches.
    messages: mpsc::UnboundedReceiver<Message>,
    /// Tasks that send requests.
    requests: JoinSet<()>,
    /// Tasks that wait for the notifications of watches.
    watches: JoinSet<()>,
    places: BTreeMap<HoldingId, HoldingPlace>,
    /// The readings that are under way or requested, by the path of the queue or barrier.
    readings: BTreeMap<Arc<str>, Readings>,
    /// Finished readings that are yet to be returned as events, each with a holding that requested it.
    unreported_reads: VecDeque<(HoldingId, Arc<Listing>)>,
    /// Tasks that wait until `ready` is created or deleted, by the path of the barrier.
    ready_watches: BTreeMap<Arc<str>, AbortHandle>,
    /// Paths whose ACL has been checked, or is being checked.
    checked_acls: BTreeSet<Arc<str>>,
}

/// The state shared by all requests of a session.
#[derive(Clone)]
struct SessionContext {
    settings: HoldingsSettings,
    session: SessionHandle,
    reports: Reports,
    clock: Clock,
    /// Sends the results of requests and watches to [`HoldingsSession::next_event`].
    messages: mpsc::UnboundedSender<Message>,
    /// The permits for requests, [`REQUESTS_AT_ONCE`] in all.
    permits: Arc<Semaphore>,
}

/// The place of one holding in a lock's queue or at a barrier, also while it joins.
struct HoldingPlace {
    kind: HoldingKind,
    path: Arc<str>,
    context: Arc<Context>,
    own_znode: OwnZnode,
    /// The task that watches the own znode and those ahead; `None` while the place joins.
    watch_task: Option<AbortHandle>,
    /// Sends requests to that task.
    watch_requests: mpsc::UnboundedSender<WatchRequest>,
    /// The queue or barrier as it was last read.
    listing: Arc<Listing>,
    /// The numbers of znodes that were reported as gone. A later reading may still show one, because the reading is
    /// older than the deletion or the znode is not ephemeral: then the znode is hidden. While the own znode exists, no
    /// number is used again, so this never hides another znode.
    gone: BTreeSet<Sequence>,
}

/// The state of the own znode of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnZnode {
    /// The znode is being created.
    Joining,
    /// The znode exists, as far as is known.
    Joined(Ticket),
    /// The znode is deleted, and this member waits until the others have left the barrier.
    Left,
}

/// A watch of `ready`, and the connections of its session. The watch ends when its connection is replaced or lost.
struct ReadyWatch {
    watcher: OneshotWatcher,
    connections: SessionHandle,
}

/// The znodes of a lock's queue or of a barrier, as they were read; empty by default.
pub(super) struct Listing {
    /// Sorted by number.
    pub(super) entries: Vec<NamedEntry>,
    /// The round of a barrier. Each round begins with a write to the barrier's path.
    pub(super) round: Round,
    /// The version of the path's data in that round. The barrier is changed only while its path still has this version.
    pub(super) version: i32,
    /// The content of a barrier's `ready`, if `ready` exists.
    pub(super) ready: Option<Ready>,
}

/// The number of an entry, and the name of its znode.
pub(super) struct NamedEntry {
    pub(super) sequence: Sequence,
    pub(super) name: String,
}

/// A message from the tasks of a session to [`HoldingsSession::next_event`].
enum Message {
    Session(SessionEvent),
    /// Something happened to the place of this holding.
    Place(HoldingId, place::Event),
    /// The queue or barrier at this path was read, once for all holdings that requested a reading. A barrier's reading has a
    /// watch of `ready`.
    Read(Arc<str>, Arc<Listing>, Option<ReadyWatch>),
    /// The queue must be read again for this holding: the last reading did not show the own znode, which exists.
    ReadAgain(HoldingId),
    /// `ready` of this barrier was created or deleted, or its watch has ended.
    ReadyChanged(Arc<str>),
    /// A quorum has committed the heartbeat that was sent at this moment.
    Renewed(Moment),
    /// The session cannot go on: the servers deny access to our own znode, or a task has panicked. It is reported as lost.
    Unusable,
}

impl HoldingsSession {
    pub(super) fn open(
        settings: HoldingsSettings,
        session: SessionSettings,
        previous: UnclosedSession,
        reports: Reports,
    ) -> Self {
        let (messages, received) = mpsc::unbounded_channel();
        let clock = session.clock;
        let sender = messages.clone();
        let task = SessionTask::open(
            session,
            previous,
            Box::new(move |event| {
                let _receiver_gone = sender.send(Message::Session(event));
            }),
        );
        let permits = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        let shared =
            SessionContext { settings, session: task.handle(), reports, clock, messages, permits };
        Self {
            session: task,
            shared,
            messages: received,
            requests: JoinSet::new(),
            watches: JoinSet::new(),
            places: BTreeMap::new(),
            readings: BTreeMap::new(),
            unreported_reads: VecDeque::new(),
            ready_watches: BTreeMap::new(),
            checked_acls: BTreeSet::new(),
        }
    }

    /// Sends a heartbeat, a transaction that only checks the root, and repeats it until a quorum has committed it, or
    /// the session ends.
    pub(super) fn renew(&mut self, sent_at: Moment) {
        let shared = self.shared.clone();
        self.requests.spawn(async move {
            loop {
                match shared.session.connection().await.check("/").await {
                    // A denied check is also a transaction of this session, and a quorum has logged it.
                    Ok(()) | Err(Error::NoAuth) => return shared.send(Message::Renewed(sent_at)),
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
            }
        });
    }

    /// Performs an action of one place; its requests run in tasks.
    pub(super) fn perform(
        &mut self,
        id: HoldingId,
        path: &Arc<str>,
        process: Option<&ProcessName>,
        action: place::Action,
    ) {
        match action {
            place::Action::Join(spec) => self.join(id, spec, path, process),
            place::Action::Read => {
                if !self.places.contains_key(&id) {
                    // This member left the barrier in an earlier session, so it has no znode in this one. It reads the
                    // barrier to learn when the others have left.
                    self.add_place(id, None, path.clone());
                    self.watch_ahead(id, None);
                }
                self.read(id);
            }
            place::Action::Watch(sequence) => self.watch(id, sequence),
            place::Action::Confirm(sequence) => {
                self.request_watch(id, WatchRequest::Confirm(sequence));
            }
            place::Action::Leave(ticket) => self.leave(id, ticket),
            place::Action::MakeReady { round, size, members } => {
                let Some(last) = members.iter().last() else { return };
                let ready = Ready { last, size: Some(size) };
                let members: BTreeSet<_> = members.iter().collect();
                self.change_barrier(id, async move |context, listing| {
                    barrier_znodes::make_ready(&context, &listing, round, ready, &members).await
                });
            }
            place::Action::EndRound(round) => {
                self.change_barrier(id, async move |context, listing| {
                    barrier_znodes::end_round(&context, &listing, round).await;
                    vec![]
                });
            }
        }
    }

    /// Changes a barrier in a task, given its last reading. `change` returns the znodes that turn out not to belong to a
    /// member. Afterwards the barrier is read again, whatever the outcome.
    fn change_barrier<F: Future<Output = Vec<Sequence>> + Send>(
        &mut self,
        id: HoldingId,
        change: impl FnOnce(Arc<Context>, Arc<Listing>) -> F + Send + 'static,
    ) {
        let Some(HoldingPlace { context, listing, .. }) = self.places.get(&id) else { return };
        let context = context.clone();
        let listing = listing.clone();
        let shared = self.shared.clone();
        self.requests.spawn(async move {
            for sequence in change(context, listing).await {
                // This znode does not belong to a member, so report it as gone although it exists.
                shared.send(Message::Place(id, place::Event::Gone { sequence, token: None }));
            }
            shared.send(Message::Place(id, place::Event::BarrierChanged));
        });
    }

    /// Adds a place for this holding, and returns its previous place. Without a `spec`, the new place has no znode: it
    /// is for a member that has left its barrier, and reads the barrier until the others have left.
    fn add_place(
        &mut self,
        id: HoldingId,
        spec: Option<HoldingSpec>,
        path: Arc<str>,
    ) -> Option<HoldingPlace> {
        let prefix = spec.map(HoldingSpec::prefix).unwrap_or_default();
        let context = Arc::new(self.shared.context(&path, prefix));
        // `watch_ahead` replaces this channel, which has no receiver.
        let (watch_requests, _) = mpsc::unbounded_channel();
        let place = HoldingPlace {
            kind: spec.map_or(HoldingKind::Barrier, HoldingSpec::kind),
            path,
            context,
            own_znode: if spec.is_some() { OwnZnode::Joining } else { OwnZnode::Left },
            watch_task: None,
            watch_requests,
            listing: Arc::default(),
            gone: BTreeSet::new(),
        };
        self.places.insert(id, place)
    }

    /// Creates the own znode in a task. If this holding has a place in this session already, the znode of that place is
    /// lost.
    fn join(
        &mut self,
        id: HoldingId,
        spec: HoldingSpec,
        path: &Arc<str>,
        process: Option<&ProcessName>,
    ) {
        let shared = self.shared.clone();
        let lost_place = self.add_place(id, Some(spec), path.clone());
        let context = self.places[&id].context.clone();
        // A reading that began before the join does not show the new znode, so it would look like an error of the server.
        self.forget_readings(id);
        let was_lost = lost_place.is_some();
        if let Some(HoldingPlace { watch_task: Some(task), .. }) = lost_place {
            task.abort();
        }
        let data = data::encode_owner(&shared.settings.member, id, process);
        let is_unchecked =
            self.checked_acls.len() < ACLS_MAX && self.checked_acls.insert(path.clone());
        let checks_acl = is_unchecked && !shared.is_known_to_be_open();
        self.requests.spawn(async move {
            // Perhaps a client is deleting the whole path, which an immediate join would prevent.
            if was_lost {
                tokio::time::sleep(rejoin_delay()).await;
            }
            let joined = join(&context, &data, queue::OwnZnodeMatch::WithData).await;
            let Some((ticket, sent_at)) = joined else {
                // The join was withdrawn before it created a znode.
                return shared.send(Message::Place(id, place::Event::Left));
            };
            shared.send(Message::Place(id, place::Event::Joined { ticket, sent_at }));
            if checks_acl {
                warn_if_weak(&context).await;
            }
        });
    }

    /// Stops the join of a holding that is released. If the znode was already created, the join still reports its ticket, so
    /// that the znode is deleted.
    pub(super) fn withdraw_join(&self, id: HoldingId) {
        if let Some(place) = self.places.get(&id)
            && place.own_znode == OwnZnode::Joining
        {
            place.context.withdraw();
        }
    }

    /// Requests a reading of the queue or barrier of this holding, and begins it unless another one is running at that path.
    fn read(&mut self, id: HoldingId) {
        let Some(HoldingPlace { path, .. }) = self.places.get(&id) else { return };
        let path = path.clone();
        if self.readings.entry(path.clone()).or_default().request(id) {
            self.begin_reading(path, id);
        }
    }

    /// Reads the queue or barrier of this holding, for all holdings that have requested it.
    fn begin_reading(&mut self, path: Arc<str>, id: HoldingId) {
        let Some(place) = self.places.get(&id) else { return };
        let shared = self.shared.clone();
        let context = place.context.clone();
        let kind = place.kind;
        // When the own znode was created, no more znodes than its number can have existed. If the number is small, the first
        // reading need not check how many znodes there are.
        let is_known_to_be_short = place.listing.entries.is_empty()
            && matches!(place.own_znode, OwnZnode::Joined(ticket) if ticket.sequence.number() < CHILDREN_MAX);
        self.requests.spawn(async move {
            let mut connections = shared.session.clone();
            // Mark before a connection is used: `changed` then reports each loss of a connection from here on.
            connections.mark_seen();
            let read = context.retry_until_answered(async |connection| {
                if !is_known_to_be_short {
                    fail_if_crowded(&context, &connection).await?;
                }
                match kind {
                    HoldingKind::Lock => {
                        let root = &context.settings.root;
                        let listed = connection.request(connection.client.list_children(root));
                        Ok((queue_listing(listed.await?), None))
                    }
                    HoldingKind::Barrier => barrier_znodes::read(&context, &connection).await,
                }
            });
            // If the path does not exist, the queue is empty.
            let (listing, watcher) = read.await.unwrap_or_default();
            let watch = watcher.map(|watcher| ReadyWatch { watcher, connections });
            shared.send(Message::Read(path, Arc::new(listing), watch));
        });
    }

    /// Handles the end of a reading: begins the next one at that path if it was requested, and keeps the result for all
    /// holdings that requested the reading that has ended.
    fn on_read(&mut self, path: &Arc<str>, listing: &Arc<Listing>, watch: Option<ReadyWatch>) {
        if let Some(watch) = watch {
            self.watch_ready(path, watch);
        }
        let Some(readings) = self.readings.get_mut(path) else { return };
        let (requesters, begins_again) = readings.end();
        match readings.any_requester() {
            Some(id) if begins_again && self.places.contains_key(&id) => {
                self.begin_reading(path.clone(), id);
            }
            // No other reading was requested, or no holding waits for it any longer.
            _ => drop(self.readings.remove(path)),
        }
        for id in requesters {
            let Some(place) = self.places.get(&id) else { continue };
            match place.own_znode {
                // The reading was requested for a znode that was lost since. After the join, the holding reads again.
                OwnZnode::Joining => {}
                OwnZnode::Joined(ticket)
                    if find_entry(&listing.entries, ticket.sequence).is_none() =>
                {
                    // The znode may be lost, or the current server may be wrong.
                    let shared = self.shared.clone();
                    let context = place.context.clone();
                    self.requests.spawn(async move {
                        verify_own_znode(&shared, &context, id, ticket).await
                    });
                }
                OwnZnode::Joined(_) | OwnZnode::Left => {
                    self.unreported_reads.push_back((id, listing.clone()))
                }
            }
        }
    }

    /// Watches `ready`, instead of the previous watch. Reports when it is created or deleted, or when the watch has
    /// ended.
    fn watch_ready(&mut self, path: &Arc<str>, watch: ReadyWatch) {
        let shared = self.shared.clone();
        let barrier = path.clone();
        let ReadyWatch { watcher, mut connections } = watch;
        let task = self.watches.spawn(async move {
            tokio::select! {
                biased;
                // This comes first: the watch ends with its connection, and the library panics if an ended watch is
                // polled.
                () = connections.changed() => {}
                _ = watcher.changed() => {}
            }
            shared.send(Message::ReadyChanged(barrier));
        });
        if let Some(previous) = self.ready_watches.insert(path.clone(), task) {
            previous.abort();
        }
    }

    /// Reports to all holdings at this barrier that it may have changed. They request a reading, which watches `ready`
    /// again.
    fn on_ready_changed(&self, path: &Arc<str>) {
        for (id, _) in self.places.iter().filter(|(_, place)| place.path == *path) {
            self.shared.send(Message::Place(*id, place::Event::BarrierChanged));
        }
    }

    /// Returns the event for the next holding whose queue or barrier was read. Only one event is created at a time, because
    /// each has a copy of the queue, and many holdings may wait in one long queue.
    fn next_read(&mut self) -> Option<Event> {
        while let Some((id, listing)) = self.unreported_reads.pop_front() {
            let Some(place) = self.places.get_mut(&id) else { continue };
            // Forget the gone znodes that this reading no longer shows, and hide those that it still shows (see
            // `HoldingPlace::gone`).
            place.gone.retain(|sequence| find_entry(&listing.entries, *sequence).is_some());
            let existing =
                listing.entries.iter().filter(|entry| !place.gone.contains(&entry.sequence));
            let names = existing.map(|entry| &*entry.name);
            let event = match place.kind {
                HoldingKind::Lock => {
                    place::Event::QueueRead(names.filter_map(lock::LockEntry::of_name).collect())
                }
                HoldingKind::Barrier => {
                    let entries = names.filter_map(barrier::BarrierEntry::of_name).collect();
                    place::Event::BarrierRead(Reading::of(listing.round, entries, listing.ready))
                }
            };
            place.listing = listing;
            return Some(Event::Place(id, event));
        }
        None
    }

    /// Sends a request to the task that watches the znodes ahead of this holding.
    fn request_watch(&self, id: HoldingId, request: WatchRequest) {
        if let Some(place) = self.places.get(&id) {
            let _receiver_gone = place.watch_requests.send(request);
        }
    }

    /// Watches the znode with this number, which the last reading showed.
    fn watch(&mut self, id: HoldingId, sequence: Sequence) {
        let Some(place) = self.places.get(&id) else { return };
        let Some(entry) = find_entry(&place.listing.entries, sequence) else { return };
        let path = format!("{}/{}", place.path, entry.name);
        self.request_watch(id, WatchRequest::Watch(sequence, path));
    }

    /// Deletes the own znode in a task, and then reports [`place::Event::Left`].
    fn leave(&mut self, id: HoldingId, ticket: Ticket) {
        let Some(place) = self.places.get(&id) else { return };
        let shared = self.shared.clone();
        let context = place.context.clone();
        self.requests.spawn(async move {
            let path = context.path(ticket.sequence);
            // An atomic, because the closure is called for each attempt and cannot borrow a variable mutably.
            let is_retry = AtomicBool::new(false);
            let deleted = context.retry_until_answered(async |connection| {
                // Before a retry, check that the znode is still ours: the first request may have deleted it, and another
                // client may use the path now.
                if is_retry.swap(true, Ordering::Relaxed) {
                    still_ours(&context, &connection, ticket).await?;
                }
                let deleted = connection.request(connection.client.delete(&path, None)).await;
                give_up_if_no_auth(&context, &path, deleted).await
            });
            // An error means that our znode is gone, as a quorum has confirmed. Its path may be that of another client by now.
            let _gone_already = deleted.await;
            shared.send(Message::Place(id, place::Event::Left));
        });
    }

    /// Waits for the next event of the holdings. Cancel-safe: no event is lost.
    pub(super) async fn next_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.next_read() {
                return event;
            }
            // After a panic, a request or a watch is missing, so replace the session.
            if reap([&mut self.requests, &mut self.watches], "a request for a lock or barrier") {
                self.shared.send(Message::Unusable);
            }
            match self.messages.recv().await.expect("`shared` holds a sender") {
                Message::Session(event) => return Event::Session(event),
                Message::Unusable => return Event::Session(SessionEvent::Lost),
                Message::Renewed(sent_at) => return Event::Committed { sent_at },
                Message::Read(path, listing, watch) => self.on_read(&path, &listing, watch),
                Message::ReadAgain(id) => self.read(id),
                Message::ReadyChanged(path) => self.on_ready_changed(&path),
                Message::Place(id, event) => {
                    if let Some(event) = self.on_place_event(id, event) {
                        return event;
                    }
                }
            }
        }
    }

    /// Updates a place, and returns the event for its holding, unless the event is outdated.
    fn on_place_event(&mut self, id: HoldingId, event: place::Event) -> Option<Event> {
        let place = self.places.get_mut(&id)?;
        match event {
            place::Event::Joined { ticket, .. } => {
                place.own_znode = OwnZnode::Joined(ticket);
                self.watch_ahead(id, Some(ticket));
            }
            // The lost znode is an earlier one, or its loss was reported already.
            place::Event::TicketLost(lost) if place.own_znode != OwnZnode::Joined(lost) => {
                return None;
            }
            place::Event::Gone { sequence, .. } => {
                place.gone.insert(sequence);
            }
            // From now on, no own znode is watched, only those of the others inside.
            place::Event::Left if place.kind == HoldingKind::Barrier => {
                place.own_znode = OwnZnode::Left;
                self.watch_ahead(id, None);
            }
            _ => {}
        }
        Some(Event::Place(id, event))
    }

    /// Starts the task that watches the own znode, if there is one, and each other znode whose watch is requested
    /// later. Replaces the previous task.
    fn watch_ahead(&mut self, id: HoldingId, own: Option<Ticket>) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let (watch_requests, requests) = mpsc::unbounded_channel();
        place.watch_requests = watch_requests;
        let shared = self.shared.clone();
        let context = place.context.clone();
        let task = self.watches.spawn(async move {
            queue::watch(&context, own, requests, |event| {
                let event = match event {
                    AheadEvent::Read { znode, .. } => place::Event::Watched(znode),
                    AheadEvent::Gone { sequence, token } => place::Event::Gone { sequence, token },
                };
                shared.send(Message::Place(id, event));
            })
            .await;
            // The own znode is lost. Without an own znode, `queue::watch` does not return.
            if let Some(ticket) = own {
                shared.send(Message::Place(id, place::Event::TicketLost(ticket)));
            }
        });
        if let Some(previous) = place.watch_task.replace(task) {
            previous.abort();
        }
    }

    /// Forgets the readings that this holding has requested.
    fn forget_readings(&mut self, id: HoldingId) {
        self.unreported_reads.retain(|(other, _)| *other != id);
        if let Some(place) = self.places.get(&id)
            && let Some(readings) = self.readings.get_mut(&place.path)
        {
            readings.forget(id);
        }
    }

    /// Forgets a holding that is over. If no other holding is at its barrier, stops watching `ready`.
    pub(super) fn forget(&mut self, id: HoldingId) {
        self.forget_readings(id);
        let Some(HoldingPlace { kind, path, watch_task, .. }) = self.places.remove(&id) else {
            return;
        };
        if let Some(task) = watch_task {
            task.abort();
        }
        if kind == HoldingKind::Barrier
            && self.places.values().all(|place| place.path != path)
            && let Some(task) = self.ready_watches.remove(&path)
        {
            task.abort();
        }
    }

    /// Ends the session, and with it all znodes. Returns the session if it may still be alive. The watches end after the
    /// connection, because the library would otherwise send a request to remove each of them.
    pub(super) async fn close(mut self) -> UnclosedSession {
        self.requests.shutdown().await;
        let closing = self.session.close().await;
        self.watches.shutdown().await;
        closing.await
    }
}

impl SessionContext {
    fn send(&self, message: Message) {
        let _receiver_gone = self.messages.send(message);
    }

    /// Returns true if a warning about open ACLs was already published: it also covers each lock and barrier, so their ACLs
    /// need not be checked.
    fn is_known_to_be_open(&self) -> bool {
        let warning = self.reports.acl_warning.lock().expect("no panic while it is held");
        self.settings.zookeeper.security.acl == AclPolicy::Open && warning.is_some()
    }

    /// Returns the context for the requests of one place. The names of its znodes begin with `prefix`.
    fn context(&self, path: &str, prefix: String) -> Context {
        let security = &self.settings.zookeeper.security;
        let settings = QueueSettings {
            root: path.to_owned(),
            znodes: ZnodeNames::from(&*prefix),
            acl: security.acl,
            is_open_by_choice: security.is_open_by_choice,
        };
        let messages = self.messages.clone();
        // The requests of locks and barriers report only one event: that the session is unusable.
        let events = Box::new(move |_: QueueEvent| {
            let _receiver_gone = messages.send(Message::Unusable);
        });
        let session = self.session.clone();
        let reports = self.reports.clone();
        Context::new(settings, session, reports, self.clock, events)
            .of_lock_or_barrier(self.permits.clone())
    }
}

impl Default for Listing {
    fn default() -> Self {
        // No barrier has this round: zxids are not negative.
        Self { entries: vec![], round: Round(-1), version: -1, ready: None }
    }
}

impl Listing {
    /// Returns this listing with these entries instead, in order.
    pub(super) fn with_entries(self, entries: impl Iterator<Item = NamedEntry>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|entry| entry.sequence);
        Self { entries, ..self }
    }
}

/// Returns the listing of a lock's queue. Other znodes below its path are ignored.
fn queue_listing(names: Vec<String>) -> Listing {
    Listing::default().with_entries(names.into_iter().filter_map(|name| {
        Some(NamedEntry { sequence: lock::LockEntry::of_name(&name)?.sequence, name })
    }))
}

/// Finds the entry with this number in a listing.
pub(super) fn find_entry(entries: &[NamedEntry], sequence: Sequence) -> Option<&NamedEntry> {
    let index = entries.binary_search_by_key(&sequence, |entry| entry.sequence).ok()?;
    entries.get(index)
}

/// Asks a quorum whether our own znode exists, after a reading did not show it. If it does not exist, reports its loss.
/// If it exists, or without an answer, requests another reading.
async fn verify_own_znode(
    shared: &SessionContext,
    context: &Context,
    id: HoldingId,
    ticket: Ticket,
) {
    let connection = context.session.connection().await;
    let path = context.path(ticket.sequence);
    if let Error::NoNode = context.confirm_own_znode_missing(&connection, &path).await {
        return shared.send(Message::Place(id, place::Event::TicketLost(ticket)));
    }
    // Drop the connection before the wait: the session can end only when all clones of its connection are dropped.
    drop(connection);
    tokio::time::sleep(RETRY_DELAY).await;
    shared.send(Message::ReadAgain(id));
}
