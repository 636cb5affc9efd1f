//! Reads the queues of locks, and barriers, for clients: each queue or barrier at most once a second, however many clients
//! request it, and one after the other.
//!
//! The reader uses the session of the locks. The renewals of leases use the same connection and must not wait for long, so
//! znodes are read in small groups (`read_short`).

use super::barrier_znodes::READY;
use super::{HoldingsSettings, data};
use crate::api::{BarrierMember, BarrierState, LockMode, LockPlace, LockQueue, date};
use crate::cached::{Cached, ChangeCounter};
use crate::clock::Clock;
use crate::config::RecipePaths;
use crate::holdings::{BreakStep, HoldingName, ReadRequest};
use crate::status::ConnectionState;
use crate::zookeeper::client::{Connection, SessionHandle, in_words, is_server_answer};
use crate::zookeeper::queue::{
    BROKEN, ListError, names_below, owner, read_short, refusal, server_time, token,
};
use ::zookeeper::{Error, Stat};
use recipes::barrier::{self, Reading, Ready, Round};
use recipes::holding::HoldingKind;
use recipes::lock::{LockEntry, holders};
use recipes::{FencingToken, Sequence};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tracing::warn;

/// How long to wait for a connection. Clients wait longer for an answer, so that they learn why this has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// A read is attempted this many times, because the first attempt fails if the session is replaced meanwhile by one that
/// can hold locks.
const ATTEMPTS: u32 = 2;

/// The largest number of places that are read of a queue or barrier, from the first one.
const PLACES_MAX: usize = 2000;

/// Answers the requests of clients to read queues and barriers, or to break a place, one after the other.
pub(super) struct QueueReader {
    pub(super) settings: HoldingsSettings,
    pub(super) clock: Clock,
    pub(super) session: SessionHandle,
    pub(super) link: watch::Receiver<ConnectionState>,
    /// Notified before each reading, so that the runner opens a session, or keeps the session open.
    pub(super) about_to_read: Arc<Notify>,
    /// The changes of locks and barriers that this member has made. A cached reading from before the last one is outdated.
    pub(super) changes: ChangeCounter,
    /// The last readings of each kind, which answer all requests for a second.
    pub(super) names: BTreeMap<HoldingKind, Cached<ReadResult<[String]>>>,
    pub(super) queues: BTreeMap<HoldingName, Cached<ReadResult<LockQueue>>>,
    pub(super) barriers: BTreeMap<HoldingName, Cached<ReadResult<BarrierState>>>,
}

/// The result of a reading, or the reason for operators why it failed.
type ReadResult<T> = Result<Arc<T>, String>;

impl QueueReader {
    /// Answers requests until no sender is left.
    pub(super) async fn run(mut self, requests: &mut mpsc::Receiver<ReadRequest>) {
        while let Some(request) = requests.recv().await {
            self.answer(request).await;
        }
    }

    /// Answers a request, from a reading that is at most a second old if there is one.
    async fn answer(&mut self, request: ReadRequest) {
        let now = self.clock.now();
        // Take this number before the reading, so that a change during the reading makes the reading outdated.
        let changes = self.changes.get();
        self.names.retain(|_, cached| cached.is_fresh(now, changes));
        self.queues.retain(|_, cached| cached.is_fresh(now, changes));
        self.barriers.retain(|_, cached| cached.is_fresh(now, changes));
        let RecipePaths { locks, barriers, .. } = self.settings.paths.clone();
        match request {
            ReadRequest::Names(kind, answer) => {
                if !self.names.contains_key(&kind) {
                    let root = self.settings.root(kind).to_owned();
                    let names = self
                        .read(&root, async |connection| read_names(connection, &root).await)
                        .await;
                    self.names.insert(kind, Cached::new(names, self.clock.now(), changes));
                }
                let _receiver_gone = answer.send(self.names[&kind].value.clone());
            }
            ReadRequest::Queue(name, answer) => {
                if !self.queues.contains_key(&name) {
                    let path = format!("{locks}/{name}");
                    let queue = self
                        .read(&path, async |connection| read_queue(connection, &path).await)
                        .await;
                    self.queues.insert(name.clone(), Cached::new(queue, self.clock.now(), changes));
                }
                let _receiver_gone = answer.send(self.queues[&name].value.clone());
            }
            ReadRequest::Barrier(name, answer) => {
                if !self.barriers.contains_key(&name) {
                    let path = format!("{barriers}/{name}");
                    let read = self
                        .read(&path, async |connection| read_barrier(connection, &path).await)
                        .await;
                    self.barriers
                        .insert(name.clone(), Cached::new(read, self.clock.now(), changes));
                }
                let _receiver_gone = answer.send(self.barriers[&name].value.clone());
            }
            ReadRequest::Break(name, wanted, step, answer) => {
                let path = format!("{locks}/{name}");
                let found = self
                    .read(&path, async |connection| {
                        break_place(connection, &path, wanted, step).await
                    })
                    .await;
                if found == Ok(true) {
                    let done = match step {
                        BreakStep::Mark => "is marked as broken, for an operator",
                        BreakStep::Delete => "is deleted, as an operator has broken it",
                    };
                    warn!("lock {name}: the place with token {wanted} {done}");
                }
                // Even a step that has failed may have been carried out.
                self.changes.note_change();
                // After this time, the owner of a marked place no longer holds the lock. An owner without a connection
                // gives its session up after one session timeout, and a lease that was renewed before then lasts less
                // than one session timeout longer.
                let wait = 2 * self.settings.zookeeper.session_timeout;
                let _receiver_gone = answer.send(found.map(|is_found| is_found.then_some(wait)));
            }
        }
    }

    /// Calls `read` with a connection of the session of the locks, and once more if that connection is lost meanwhile.
    ///
    /// # Errors
    /// Describes to operators why the reading failed. `path` is the path that a refusal is about.
    async fn read<T>(
        &mut self,
        path: &str,
        read: impl AsyncFn(&Connection) -> Result<T, ListError>,
    ) -> Result<T, String> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.about_to_read.notify_one();
            let connecting = timeout(CONNECT_TIMEOUT, self.session.connection());
            let connection = connecting.await.map_err(|_| self.link_problem())?;

            match read(&connection).await {
                Ok(read) => return Ok(read),
                Err(ListError::Crowded(problem)) => return Err(problem),
                Err(ListError::Failed(error)) if is_server_answer(&error) => {
                    let acl = self.settings.zookeeper.security.acl;
                    return Err(refusal(&connection, acl, path, &error).await);
                }
                Err(ListError::Failed(error)) if attempts == ATTEMPTS => {
                    return Err(in_words(&error));
                }
                // The connection was lost: try again with the next one.
                Err(_) => {}
            }
        }
    }

    /// Describes why the session is not connected.
    fn link_problem(&self) -> String {
        let problem = self.link.borrow().problem.clone();
        problem.unwrap_or_else(|| "there is no connection to ZooKeeper".into())
    }
}

/// Returns the names of all locks, or of all barriers, in order.
async fn read_names(connection: &Connection, root: &str) -> Result<Arc<[String]>, ListError> {
    let mut names = names_below(connection, root).await?;
    names.retain(|name| HoldingName::new(name).is_some());
    names.sort_unstable();
    Ok(names.into())
}

/// A znode of a queue or a barrier, as it was read.
struct ReadZnode<E> {
    entry: E,
    name: String,
    data: Vec<u8>,
    stat: Stat,
}

/// Reads these znodes, and returns the ephemeral ones: the others do not belong to any client that waits or holds.
async fn read_ephemerals<E>(
    connection: &Connection,
    path: &str,
    entries: Vec<(E, String)>,
) -> Result<Vec<ReadZnode<E>>, Error> {
    let paths: Vec<_> = entries.iter().map(|(_, name)| format!("{path}/{name}")).collect();
    let read = read_short(connection, &paths).await?;
    let mut znodes = vec![];
    for ((entry, name), read) in entries.into_iter().zip(read) {
        // The znode was deleted meanwhile.
        let Some((data, stat)) = read else { continue };
        if owner(&stat).is_some() {
            znodes.push(ReadZnode { entry, name, data, stat });
        }
    }
    Ok(znodes)
}

/// Returns the queue of a lock: the places that hold the lock, and the places that wait for it.
async fn read_queue(connection: &Connection, path: &str) -> Result<Arc<LockQueue>, ListError> {
    let names = names_below(connection, path).await?;
    let mut entries: Vec<_> =
        names.into_iter().filter_map(|name| Some((LockEntry::of_name(&name)?, name))).collect();
    entries.sort_unstable_by_key(|(entry, _)| entry.sequence);
    entries.truncate(PLACES_MAX);
    let read = read_ephemerals(connection, path, entries).await?;
    let modes: Vec<_> = read.iter().map(|read| read.entry.mode).collect();
    let mut queue = LockQueue::default();
    for (read, holds) in read.into_iter().zip(holders(&modes)) {
        let data::Owner { member, process } = data::owner_of(&read.data);
        let (mode, slots) = LockMode::of(read.entry.mode);
        let place = LockPlace {
            member,
            process,
            mode,
            slots,
            token: token(&read.stat).0,
            since: date(server_time(read.stat.ctime)),
            znode: read.name,
        };
        if holds {
            queue.holders.push(place);
        } else {
            queue.waiting.push(place);
        }
    }
    Ok(Arc::new(queue))
}

/// Carries out one step of breaking the place with the token `wanted`: marks its znode, so that the owner gives the place
/// up, or deletes the znode. Returns true if the place existed.
async fn break_place(
    connection: &Connection,
    path: &str,
    wanted: FencingToken,
    step: BreakStep,
) -> Result<bool, ListError> {
    let names = names_below(connection, path).await?;
    let entries: Vec<_> =
        names.into_iter().filter_map(|name| Some((LockEntry::of_name(&name)?, name))).collect();
    let read = read_ephemerals(connection, path, entries).await?;
    let Some(place) = read.into_iter().find(|read| token(&read.stat) == wanted) else {
        return Ok(false);
    };
    let path = format!("{path}/{}", place.name);
    let done = match step {
        BreakStep::Mark => {
            let written = connection.client.set_data(&path, BROKEN, None);
            connection.request(written).await.map(drop)
        }
        BreakStep::Delete => connection.request(connection.client.delete(&path, None)).await,
    };
    match done {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the members at a barrier, waiting or inside, in order.
async fn read_barrier(connection: &Connection, path: &str) -> Result<Arc<BarrierState>, ListError> {
    let names = names_below(connection, path).await?;
    let ready = match names.iter().any(|name| name == READY) {
        true => connection.request(connection.client.get_data(&format!("{path}/{READY}"))).await,
        false => Err(Error::NoNode),
    };
    let ready = match ready {
        Ok(ready) => Some(ready),
        Err(Error::NoNode) => None,
        Err(error) => return Err(error.into()),
    };
    let mut entries: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((barrier::BarrierEntry::of_name(&name)?, name)))
        .collect();
    entries.sort_unstable_by_key(|(entry, _)| entry.sequence);
    entries.truncate(PLACES_MAX);
    let read = read_ephemerals(connection, path, entries).await?;
    let ready = ready.map(|(data, stat)| match data::ready_of(&data) {
        Some(ready) => ready,
        // Another ZooKeeper client has created `ready`: all members that joined before are inside. The number 0 stands
        // for nobody, as in `ready_of_another_client`.
        None => {
            let inside = read.iter().filter(|read| read.stat.czxid < stat.czxid);
            let last = inside.map(|read| read.entry.sequence).next_back();
            let nobody = Sequence::new(0).expect("0 is not negative");
            Ready { last: last.unwrap_or(nobody), size: None }
        }
    });
    // Only to find the size that all members must name; the round does not matter.
    let counted = Reading::of(Round(0), read.iter().map(|read| read.entry).collect(), ready);
    let members = read.into_iter().map(|read| {
        let data::Owner { member, process } = data::owner_of(&read.data);
        BarrierMember {
            member,
            process,
            inside: ready.is_some_and(|ready| read.entry.sequence <= ready.last),
            token: token(&read.stat).0,
            since: date(server_time(read.stat.ctime)),
            znode: read.name,
        }
    });
    let members = members.collect();
    let size = counted.size.map(NonZeroU32::get);
    Ok(Arc::new(BarrierState { size, open: ready.is_some(), members }))
}
