//! The session in which locks are held: carries out what the holdings want, and puts what happens into their events.

use super::readings::Readings;
use super::watches::{self, Want};
use super::{LocksSettings, data};
use crate::clock::Clock;
use crate::config::security::Acl;
use crate::locks::LockName;
use crate::zookeeper::client::{
    Session, SessionEvent, SessionHandle, SessionSettings, UnclosedSession,
};
use crate::zookeeper::queue::{
    CHILDREN_MAX, Context, Own, QueueEvent, QueueSettings, REJOIN_DELAY, RETRY_DELAY, Reports,
    join, queue_names, still_ours, unless_denied, warn_if_weak,
};
use ::zookeeper::Error;
use recipes::holding::{Event, HoldingId};
use recipes::lock::{self, Entry, Mode};
use recipes::{Moment, Sequence, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;

/// How many creates, deletes and readings of queues may be under way at once: heartbeats come between them.
const REQUESTS_AT_ONCE: usize = 64;

/// Of how many locks in a session the ACL is looked at.
const ACLS_MAX: usize = 1000;

/// Of one session, which requests end with.
pub(super) struct LocksSession {
    session: Session,
    shared: Shared,
    events: mpsc::UnboundedReceiver<Told>,
    requests: JoinSet<()>,
    watches: JoinSet<()>,
    places: BTreeMap<HoldingId, Place>,
    readings: BTreeMap<LockName, Readings>,
    /// Those whose queue has just been read, and what it was.
    read: VecDeque<(HoldingId, Arc<[Named]>)>,
    /// Those whose ACL is no news.
    acls_known: BTreeSet<LockName>,
}

/// What all requests of a session need.
#[derive(Clone)]
struct Shared {
    settings: LocksSettings,
    session: SessionHandle,
    reports: Reports,
    clock: Clock,
    told: mpsc::UnboundedSender<Told>,
    pace: Arc<Semaphore>,
}

/// One holding's place in a queue, or on the way there.
struct Place {
    name: LockName,
    context: Arc<Context>,
    ticket: Option<Ticket>,
    watching: Option<AbortHandle>,
    wants: mpsc::UnboundedSender<Want>,
    /// The queue as it was last read.
    queue: Arc<[Named]>,
    /// Those ahead that are gone, whatever a server shows: while the own znode stands, no number is given twice.
    gone: BTreeSet<Sequence>,
}

/// An entry, and what its znode is named.
struct Named {
    entry: Entry,
    name: String,
}

enum Told {
    Session(SessionEvent),
    Place(HoldingId, lock::Event),
    Read(LockName, Arc<[Named]>),
    /// The queue is to be read once more for this one.
    Unread(HoldingId),
    Renewed(Moment),
    /// The session cannot go on: the servers keep us from our own znode, or a task died.
    Unusable,
}

impl LocksSession {
    pub(super) fn open(
        settings: LocksSettings,
        session: SessionSettings,
        before: UnclosedSession,
        reports: Reports,
    ) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let (clock, sender) = (session.clock, told.clone());
        let session = Session::open(
            session,
            before,
            Box::new(move |event| {
                let _receiver_gone = sender.send(Told::Session(event));
            }),
        );
        let pace = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        let shared = Shared { settings, session: session.handle(), reports, clock, told, pace };
        Self {
            session,
            shared,
            events,
            requests: JoinSet::new(),
            watches: JoinSet::new(),
            places: BTreeMap::new(),
            readings: BTreeMap::new(),
            read: VecDeque::new(),
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
                    Ok(()) | Err(Error::NoAuth) => return shared.tell(Told::Renewed(sent_at)),
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
            }
        });
    }

    /// Begins what one lock wants done.
    pub(super) fn perform(&mut self, id: HoldingId, name: &LockName, action: lock::Action) {
        match action {
            lock::Action::Join(mode) => self.join(id, name, mode),
            lock::Action::ReadQueue => self.read_queue(id),
            lock::Action::Watch(sequence) => self.watch(id, sequence),
            lock::Action::Prove(sequence) => {
                if let Some(place) = self.places.get(&id) {
                    let _receiver_gone = place.wants.send(Want::Prove(sequence));
                }
            }
            lock::Action::Leave(ticket) => self.leave(id, ticket),
        }
    }

    fn join(&mut self, id: HoldingId, name: &LockName, mode: Mode) {
        let shared = self.shared.clone();
        let context = Arc::new(shared.context(name, mode));
        let (wants, _) = mpsc::unbounded_channel();
        let place = Place {
            name: name.clone(),
            context: context.clone(),
            ticket: None,
            watching: None,
            wants,
            queue: Arc::new([]),
            gone: BTreeSet::new(),
        };
        let before = self.places.insert(id, place);
        self.forget_readings(id);
        let was_lost = before.is_some();
        if let Some(watching) = before.and_then(|place| place.watching) {
            watching.abort();
        }
        let data = data::encode(&shared.settings.member, id);
        let is_acl_news = self.acls_known.len() < ACLS_MAX
            && self.acls_known.insert(name.clone())
            && !shared.is_open_and_told();
        self.requests.spawn(async move {
            if was_lost {
                tokio::time::sleep(REJOIN_DELAY.mul_f64(1.0 + fastrand::f64())).await;
            }
            let turn = shared.turn().await;
            let (ticket, sent_at) = join(&context, &data, Own::WithData).await;
            shared.tell(Told::Place(id, lock::Event::Joined { ticket, sent_at }));
            drop(turn);
            if is_acl_news {
                warn_if_weak(&context).await;
            }
        });
    }

    fn read_queue(&mut self, id: HoldingId) {
        let Some(Place { name, .. }) = self.places.get(&id) else { return };
        let name = name.clone();
        if self.readings.entry(name.clone()).or_default().ask(id) {
            self.begin_reading(name, id);
        }
    }

    /// Reads the queue of this one, and of all others that asked.
    fn begin_reading(&mut self, name: LockName, id: HoldingId) {
        let Some(place) = self.places.get(&id) else { return };
        let (shared, context) = (self.shared.clone(), place.context.clone());
        // No more stood there when it joined than were ever created, as its number says: nobody need be asked how many do.
        let is_short = |ticket: Ticket| ticket.sequence.number() < CHILDREN_MAX;
        let is_short = place.queue.is_empty() && place.ticket.is_some_and(is_short);
        self.requests.spawn(async move {
            let _turn = shared.turn().await;
            let read = context.until_judged(async |connection| match is_short {
                true => {
                    let root = &context.settings.root;
                    connection.request(connection.client.list_children(root)).await
                }
                false => queue_names(&context, &connection).await,
            });
            let named = |name: String| Some(Named { entry: Entry::of_name(&name)?, name });
            let mut queue: Vec<_> =
                read.await.unwrap_or_default().into_iter().filter_map(named).collect();
            queue.sort_unstable_by_key(|named| named.entry.sequence);
            shared.tell(Told::Read(name, queue.into()));
        });
    }

    fn on_read(&mut self, name: LockName, queue: &Arc<[Named]>) {
        let Some(readings) = self.readings.get_mut(&name) else { return };
        let (asked, again) = readings.end();
        let next = readings.one().filter(|id| self.places.contains_key(id));
        match next {
            Some(id) if again => self.begin_reading(name, id),
            Some(_) | None => drop(self.readings.remove(&name)),
        }
        for id in asked {
            let Some(place) = self.places.get(&id) else { continue };
            let Some(ticket) = place.ticket else { continue };
            if find(queue, ticket.sequence).is_none() {
                // It may be that the server at hand lacks it.
                let (shared, context) = (self.shared.clone(), place.context.clone());
                self.requests
                    .spawn(async move { own_is_not_shown(&shared, &context, id, ticket).await });
                continue;
            }
            self.read.push_back((id, queue.clone()));
        }
    }

    /// Returns what the next of those hears whose queue has just been read. One by one: there may be many, of a long queue.
    fn next_read(&mut self) -> Option<Event> {
        while let Some((id, queue)) = self.read.pop_front() {
            let Some(place) = self.places.get_mut(&id) else { continue };
            place.gone.retain(|sequence| find(&queue, *sequence).is_some());
            let entries = queue.iter().map(|named| named.entry);
            let entries = entries.filter(|entry| !place.gone.contains(&entry.sequence)).collect();
            place.queue = queue;
            return Some(Event::Lock(id, lock::Event::QueueRead(entries)));
        }
        None
    }

    fn watch(&mut self, id: HoldingId, sequence: Sequence) {
        let Some(place) = self.places.get(&id) else { return };
        let Some(Named { name, .. }) = find(&place.queue, sequence) else { return };
        let path = format!("{}/{name}", place.context.settings.root);
        let _receiver_gone = place.wants.send(Want::Watch(sequence, path));
    }

    fn leave(&mut self, id: HoldingId, ticket: Ticket) {
        let Some(place) = self.places.get(&id) else { return };
        let (shared, context) = (self.shared.clone(), place.context.clone());
        self.requests.spawn(async move {
            let _turn = shared.turn().await;
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
            shared.tell(Told::Place(id, lock::Event::Left));
        });
    }

    /// Waits for the next event of the holdings. May be dropped and called again: nothing is lost.
    pub(super) async fn next_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.next_read() {
                return event;
            }
            self.reap();
            match self.events.recv().await.expect("this holds a sender") {
                Told::Session(SessionEvent::Opened { session, timeout, sent_at }) => {
                    return Event::SessionOpened { session, timeout, sent_at };
                }
                Told::Session(SessionEvent::Resumed { timeout, sent_at }) => {
                    return Event::SessionResumed { timeout, sent_at };
                }
                Told::Session(SessionEvent::TakenOver { .. }) => {
                    unreachable!("no process leaves such a session to a next one")
                }
                Told::Session(SessionEvent::Disconnected) => {}
                Told::Session(SessionEvent::Lost) | Told::Unusable => return Event::SessionLost,
                Told::Renewed(sent_at) => return Event::Committed { sent_at },
                Told::Read(name, queue) => self.on_read(name, &queue),
                Told::Unread(id) => self.read_queue(id),
                Told::Place(id, event) => {
                    if self.notes(id, &event) {
                        return Event::Lock(id, event);
                    }
                }
            }
        }
    }

    /// Notes what became of a place. Returns whether its holding is to be told.
    fn notes(&mut self, id: HoldingId, event: &lock::Event) -> bool {
        let Some(place) = self.places.get_mut(&id) else { return false };
        match event {
            lock::Event::Joined { ticket, .. } => {
                place.ticket = Some(*ticket);
                let (wants, wanted) = mpsc::unbounded_channel();
                place.wants = wants;
                let (shared, context, ticket) =
                    (self.shared.clone(), place.context.clone(), *ticket);
                let tell = move |event| shared.tell(Told::Place(id, event));
                let watching = self.watches.spawn(watches::watch(context, ticket, wanted, tell));
                place.watching = Some(watching);
            }
            lock::Event::TicketLost(lost) => return place.ticket == Some(*lost),
            lock::Event::Gone { sequence, .. } => {
                place.gone.insert(*sequence);
            }
            lock::Event::QueueRead(_) | lock::Event::Watched(_) | lock::Event::Left => {}
        }
        true
    }

    fn forget_readings(&mut self, id: HoldingId) {
        self.read.retain(|(other, _)| *other != id);
        if let Some(place) = self.places.get(&id)
            && let Some(readings) = self.readings.get_mut(&place.name)
        {
            readings.forget(id);
        }
    }

    /// Forgets a holding of which nothing is left.
    pub(super) fn forget(&mut self, id: HoldingId) {
        self.forget_readings(id);
        if let Some(watching) = self.places.remove(&id).and_then(|place| place.watching) {
            watching.abort();
        }
    }

    fn reap(&mut self) {
        while let Some(done) =
            self.requests.try_join_next().or_else(|| self.watches.try_join_next())
        {
            if let Err(error) = done
                && error.is_panic()
            {
                error!(%error, "a request for a lock died: starting over with another session");
                self.shared.tell(Told::Unusable);
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

impl Shared {
    fn tell(&self, told: Told) {
        let _receiver_gone = self.told.send(told);
    }

    async fn turn(&self) -> impl Drop + use<> {
        self.pace.clone().acquire_owned().await.expect("it is never closed")
    }

    /// Whether it was told that all is open: so is each lock then.
    fn is_open_and_told(&self) -> bool {
        let told = self.reports.acl_warning.lock().expect("no panic while it is held");
        self.settings.zookeeper.security.acl == Acl::Open && told.is_some()
    }

    fn context(&self, name: &LockName, mode: Mode) -> Context {
        let security = &self.settings.zookeeper.security;
        let settings = QueueSettings {
            root: self.settings.path_of(name),
            prefix: mode.prefix(),
            acl: security.acl,
            is_open_by_choice: security.is_open_by_choice,
        };
        let told = self.told.clone();
        // Of all that a queue can tell, what is used of it here tells one thing.
        let tell = Box::new(move |_: QueueEvent| {
            let _receiver_gone = told.send(Told::Unusable);
        });
        Context::new(settings, self.session.clone(), self.reports.clone(), self.clock, tell)
    }
}

fn find(queue: &[Named], sequence: Sequence) -> Option<&Named> {
    let at = queue.binary_search_by_key(&sequence, |named| named.entry.sequence).ok()?;
    queue.get(at)
}

/// Finds out whether a quorum agrees that the own znode is not in its queue. Else the queue is read again.
async fn own_is_not_shown(shared: &Shared, context: &Context, id: HoldingId, ticket: Ticket) {
    let connection = context.session.connection().await;
    let path = context.path(ticket.sequence);
    if let Error::NoNode = context.own_is_not_shown(&connection, &path).await {
        return shared.tell(Told::Place(id, lock::Event::TicketLost(ticket)));
    }
    drop(connection);
    tokio::time::sleep(RETRY_DELAY).await;
    shared.tell(Told::Unread(id));
}
