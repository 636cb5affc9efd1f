//! Reads the queues of locks for those who want to look, over a connection of its own: at most once a second each,
//! however many ask, and one at a time.

use super::{LocksSettings, data};
use crate::clock::Clock;
use crate::locks::{Answer, LockName, Look, Place};
use crate::zookeeper::client::{Connection, Opened, in_words, is_verdict};
use crate::zookeeper::inspect::{close, connect_or_explain};
use crate::zookeeper::queue::{Children, children, owner, refusal, token};
use ::zookeeper::{Error, Stat};
use recipes::lock::{Entry, holders};
use recipes::{Moment, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a reading answers further callers.
const TTL: Duration = Duration::from_secs(1);

/// The connection is closed when none has looked for so long.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// No longer queue is read in full: so much of its head.
const PLACES_MAX: usize = 2000;

pub(super) struct Reader {
    settings: LocksSettings,
    clock: Clock,
    opened: Option<Opened>,
    names: Cached<[String]>,
    queues: BTreeMap<LockName, Cached<[Place]>>,
}

/// The last reading, and when it ended.
type Cached<T> = Option<(Moment, Result<Arc<T>, String>)>;

impl Reader {
    pub(super) fn new(settings: LocksSettings, clock: Clock) -> Self {
        Self { settings, clock, opened: None, names: None, queues: BTreeMap::new() }
    }

    /// Answers until there is none left that could ask.
    pub(super) async fn run(mut self, looks: &mut mpsc::Receiver<Look>) {
        loop {
            match timeout(IDLE_AFTER, looks.recv()).await {
                Ok(Some(look)) => self.answer(look).await,
                Ok(None) => break,
                Err(_) => self.close().await,
            }
        }
        self.close().await;
    }

    async fn answer(&mut self, look: Look) {
        let now = self.clock.now();
        self.queues.retain(|_, cached| fresh(cached, now).is_some());
        match look {
            Look::Names(answer) => {
                if fresh(&self.names, now).is_none() {
                    let names = self.read(async |reader, at| reader.names(at).await).await;
                    self.names = Some((self.clock.now(), names));
                }
                tell(answer, &self.names);
            }
            Look::Queue(name, answer) => {
                if !self.queues.contains_key(&name) {
                    let path = self.settings.path_of(&name);
                    let queue = self.read(async |_, at| queue(at, &path).await).await;
                    self.queues.insert(name.clone(), Some((self.clock.now(), queue)));
                }
                tell(answer, &self.queues[&name]);
            }
        }
    }

    /// Reads over the connection that there is, or another.
    async fn read<T>(
        &mut self,
        read: impl AsyncFn(&Self, &Connection) -> Result<Result<T, String>, Error>,
    ) -> Result<T, String> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => connect_or_explain(&self.settings.zookeeper).await?,
        };
        let error = match read(self, &opened.connection).await {
            Ok(read) => {
                self.opened = Some(opened);
                return read;
            }
            Err(error) if is_verdict(&error) => {
                let acl = self.settings.zookeeper.security.acl;
                refusal(&opened.connection, acl, &self.settings.root, &error).await
            }
            Err(error) => in_words(&error),
        };
        close(opened).await;
        Err(error)
    }

    async fn names(&self, connection: &Connection) -> Result<Result<Arc<[String]>, String>, Error> {
        let names = names_below(connection, &self.settings.root).await?;
        Ok(names.map(|mut names| {
            names.retain(|name| LockName::new(name).is_some());
            names.sort_unstable();
            names.into()
        }))
    }

    async fn close(&mut self) {
        if let Some(opened) = self.opened.take() {
            close(opened).await;
        }
    }
}

fn fresh<T: ?Sized>(cached: &Cached<T>, now: Moment) -> Option<&Result<Arc<T>, String>> {
    cached.as_ref().filter(|(at, _)| now.since(*at) < TTL).map(|(_, read)| read)
}

fn tell<T: ?Sized>(answer: Answer<Arc<T>>, cached: &Cached<T>) {
    let (_, read) = cached.as_ref().expect("it has just been read");
    let _receiver_gone = answer.send(read.clone());
}

/// Returns none where there is no such path, and a problem for operators where there are too many.
async fn names_below(
    connection: &Connection,
    path: &str,
) -> Result<Result<Vec<String>, String>, Error> {
    // What is read behind it is as new as what the servers' leader knew then.
    match connection.request(connection.client.sync(path)).await {
        Err(error) if !is_verdict(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match children(connection, path).await {
        Ok(Children::Listed(names)) => Ok(Ok(names)),
        Ok(Children::TooMany(problem)) => Ok(Err(problem)),
        Err(Error::NoNode) => Ok(Ok(vec![])),
        Err(error) => Err(error),
    }
}

/// Returns who is in a queue, in order.
async fn queue(connection: &Connection, path: &str) -> Result<Result<Arc<[Place]>, String>, Error> {
    let names = match names_below(connection, path).await? {
        Ok(names) => names,
        Err(problem) => return Ok(Err(problem)),
    };
    let mut entries: Vec<_> =
        names.into_iter().filter_map(|name| Some((Entry::of_name(&name)?, name))).collect();
    entries.sort_unstable_by_key(|(entry, _)| entry.sequence);
    entries.truncate(PLACES_MAX);
    // All at once: each request leaves with the call.
    let asked: Vec<_> = entries
        .into_iter()
        .map(|(entry, znode)| {
            let read = connection.client.get_data(&format!("{path}/{znode}"));
            (entry, znode, read)
        })
        .collect();
    let mut places = vec![];
    for (entry, znode, read) in asked {
        let (data, stat) = match connection.request(read).await {
            // It has gone in the meantime.
            Err(Error::NoNode) => continue,
            read => read?,
        };
        if owner(&stat).is_some() {
            places.push(place(entry, znode, &data, &stat));
        }
    }
    let modes: Vec<_> = places.iter().map(|place| place.entry.mode).collect();
    for (place, holds) in places.iter_mut().zip(holders(&modes)) {
        place.holds = holds;
    }
    Ok(Ok(places.into()))
}

fn place(entry: Entry, znode: String, data: &[u8], stat: &Stat) -> Place {
    let since_epoch = Duration::from_millis(stat.ctime.try_into().unwrap_or(0));
    Place {
        entry,
        ticket: Ticket { sequence: entry.sequence, token: token(stat) },
        znode,
        member: data::member(data),
        since: SystemTime::UNIX_EPOCH + since_epoch,
        holds: false,
    }
}
