//! The channels between the runner of the shared configuration and its readers and writers.

use crate::byte_budget::ByteBudget;
use crate::counters::ConfigMeter;
use crate::holdings::HoldingName;
use hyper::body::Bytes;
use recipes::SessionId;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// The maximum number of names that one member watches at a time. Each may have a value of [`VALUE_MAX`] in memory.
pub const NAMES_MAX: usize = 256;

/// The maximum length of a value in bytes. The servers accept requests of at most 1 MiB (`jute.maxbuffer`), and the path and
/// the rest of a request need some of that.
pub const VALUE_MAX: usize = 1024 * 1024 - 4096;

/// The capacity of the channel of requests.
const REQUESTS_MAX: usize = 64;

/// The name of a value. The same rules apply as for the name of a lock.
pub type ConfigName = HoldingName;

/// The value of a name, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReading {
    /// Grows with each change: the zxid of the last change, or of a later transaction up to which the value did not change
    /// again.
    pub index: u64,
    /// `None` if the znode did not exist.
    pub value: Option<Value>,
}

/// A value that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub data: Bytes,
    /// The number of writes since the value was created.
    pub version: i32,
    /// The session with which the value is deleted; `None` if the value is not ephemeral.
    pub owner: Option<SessionId>,
}

/// The latest known state of a name.
#[derive(Clone, Debug, Default)]
pub struct ValueState {
    /// `None` before the first reading.
    pub reading: Option<Arc<ValueReading>>,
    /// True while a watch is set. Otherwise the value may have changed without a notification.
    pub is_live: bool,
    /// The number of the last request for a reading that this state answers: see [`WatchedValue::readings_requested`].
    pub answered_up_to: u64,
    /// The reading is at least as new as this index. The index is never smaller than one that a client was shown before it
    /// requested the reading, so no client is shown an older value after a newer one.
    pub as_of: u64,
    /// Why the name cannot be read, for operators.
    pub problem: Option<Arc<str>>,
    /// The session that read the value.
    pub session: Option<SessionId>,
}

/// A handle to a watched name. The name is watched until its last handle is dropped.
pub struct WatchedValue {
    /// The latest known state of the name.
    pub known: watch::Receiver<ValueState>,
    /// How many readings were requested so far. To request a reading that begins from now on, add 1: see [`Self::read_now`].
    pub readings_requested: Arc<watch::Sender<u64>>,
}

/// Requests to the runner.
pub enum ConfigRequest {
    /// Watches a name. The answer is a handle, which has the current value and its changes.
    Watch(ConfigName, Answer<WatchedValue, TooMany>),
    /// Writes or deletes a value.
    Write(ValueWrite, Answer<WriteOutcome, WriteError>),
    /// Confirms with a quorum that the value has this version, or, with `None`, that it does not exist.
    Confirm(ConfigName, Option<i32>, Answer<bool, String>),
    /// Lists the names of all values.
    Names(Answer<Arc<[String]>, String>),
}

pub type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// [`NAMES_MAX`] names are already watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A conditional write.
#[derive(Clone, Debug)]
pub struct ValueWrite {
    pub name: ConfigName,
    pub action: WriteAction,
    pub condition: Condition,
}

#[derive(Clone, Debug)]
pub enum WriteAction {
    /// Create or change the value. If `is_ephemeral` is set, the value is deleted when the session ends.
    Put { data: Bytes, is_ephemeral: bool },
    /// Delete the value.
    Delete,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The write is unconditional.
    None,
    /// The value must not exist.
    Absent,
    /// The value must exist.
    Exists,
    /// The value must exist and have this version.
    Version(i32),
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The value did not exist before.
    Created { version: i32, index: u64 },
    /// The value existed before.
    Changed { version: i32, index: u64 },
    /// The index is that of the last change before the deletion.
    Deleted { index: u64 },
}

/// Why a value was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The condition is not met: the value has the version `found`, or does not exist.
    Differs { found: Option<i32> },
    /// There is nothing to delete.
    NotThere,
    /// The write is ephemeral, but the value is not, or belongs to another session.
    NotOurs,
    /// [`NAMES_MAX`] names are already watched, and an ephemeral value must be watched too.
    TooMany,
    /// The servers refuse the write, for this reason.
    Refused(String),
    /// ZooKeeper was not reached, so that nothing was written.
    NotSent,
    /// No answer came: the value may or may not have been written.
    Unknown,
}

impl ValueReading {
    /// Returns true if this reading is news for a client that has seen the index `seen`. `as_of` is [`ValueState::as_of`].
    ///
    /// While a value is absent, readings at several members may have different indexes without a change of the value, so a
    /// client may have seen a larger index than that of this reading. If `seen` is larger than `as_of`, it is from another
    /// ensemble, so any reading is news.
    pub fn is_news_since(&self, seen: u64, as_of: u64) -> bool {
        self.index > seen || seen > as_of.max(self.index)
    }

    /// Returns true if this reading must be published, because it differs from the last published one, `known`.
    pub fn is_news_after(&self, known: Option<&Self>) -> bool {
        match known {
            None => true,
            Some(known) => {
                self.index != known.index || self.value.is_some() != known.value.is_some()
            }
        }
    }
}

impl ValueState {
    /// Returns true if the value is ephemeral and belongs to the session that read it.
    pub fn is_own(&self) -> bool {
        let owner = self.reading.as_ref().and_then(|reading| reading.value.as_ref()?.owner);
        owner.is_some() && owner == self.session
    }
}

impl WatchedValue {
    /// Requests a reading that begins after this call, and returns it with the index up to which it is current.
    ///
    /// # Errors
    /// Why the name cannot be read.
    pub async fn read_now(&mut self) -> Result<(Arc<ValueReading>, u64), Arc<str>> {
        let mut number = 0;
        self.readings_requested.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        loop {
            {
                let known = self.known.borrow_and_update();
                if known.answered_up_to >= number {
                    match (&known.problem, &known.reading) {
                        (Some(problem), _) => return Err(problem.clone()),
                        (None, Some(reading)) => return Ok((reading.clone(), known.as_of)),
                        // Each answer has a reading or a problem, so this does not happen.
                        (None, None) => {}
                    }
                }
            }
            self.known.changed().await.map_err(|_| Arc::<str>::from(LEAVING))?;
        }
    }

    /// Waits for a reading with a larger index than `seen`, or for any reading if `seen` is `None`. Returns `None` if this
    /// member is shutting down.
    pub async fn news_since(&mut self, seen: Option<u64>) -> Option<Arc<ValueReading>> {
        loop {
            let reading = self.known.borrow_and_update().reading.clone();
            if let Some(reading) = reading
                && seen.is_none_or(|seen| reading.index > seen)
            {
                return Some(reading);
            }
            self.known.changed().await.ok()?;
        }
    }
}

const LEAVING: &str = "this member is leaving";

/// The side of the channels for those who read and write values.
#[derive(Clone)]
pub struct ConfigHandle {
    pub requests: mpsc::Sender<ConfigRequest>,
    /// The path of the shared configuration in ZooKeeper, for messages.
    pub root: Arc<str>,
    pub meter: Arc<ConfigMeter>,
}

/// The runner's side of the channels.
pub struct ConfigRequests {
    pub requests: mpsc::Receiver<ConfigRequest>,
    /// The memory for the watched values.
    pub budget: ByteBudget,
    pub meter: Arc<ConfigMeter>,
}

/// Creates the channels.
pub fn set_up(root: &str, budget: &ByteBudget) -> (ConfigRequests, ConfigHandle) {
    let (requests, requested) = mpsc::channel(REQUESTS_MAX);
    let meter = Arc::<ConfigMeter>::default();
    let runner =
        ConfigRequests { requests: requested, budget: budget.clone(), meter: meter.clone() };
    (runner, ConfigHandle { requests, root: root.into(), meter })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(index: u64) -> ValueReading {
        let value = Value { data: Bytes::new(), version: 0, owner: None };
        ValueReading { index, value: Some(value) }
    }

    fn absent(index: u64) -> ValueReading {
        ValueReading { index, value: None }
    }

    #[test]
    fn a_client_waits_for_what_came_after_the_index_that_it_has_seen() {
        assert!(present(8).is_news_since(7, 8) && absent(8).is_news_since(7, 8));
        assert!(!present(7).is_news_since(7, 7) && !absent(7).is_news_since(7, 7));
        let foreign = "of another ensemble: no client would wait for it to grow";
        assert!(present(6).is_news_since(7, 6) && absent(6).is_news_since(7, 6), "{foreign}");
        assert!(!absent(6).is_news_since(7, 9), "it was seen absent at another member, later");
    }

    #[test]
    fn a_reading_is_news_if_the_value_may_have_changed() {
        assert!(absent(3).is_news_after(None));
        assert!(present(4).is_news_after(Some(&absent(3))));
        assert!(present(4).is_news_after(Some(&absent(4))), "one transaction did both");
        assert!(present(5).is_news_after(Some(&present(4))));
        assert!(absent(5).is_news_after(Some(&present(4))));
        assert!(!present(4).is_news_after(Some(&present(4))), "the same after another connection");
        assert!(absent(9).is_news_after(Some(&absent(3))), "it may have been there in between");
        assert!(absent(2).is_news_after(Some(&absent(3))), "of another ensemble");
    }

    #[tokio::test]
    async fn a_question_is_answered_by_a_reading_that_began_after_it() {
        let (publisher, known) = watch::channel(ValueState::default());
        let mut watched =
            WatchedValue { known, readings_requested: Arc::new(watch::Sender::new(4)) };
        let old = Arc::new(present(1));
        publisher.send_modify(|known| (known.reading, known.answered_up_to) = (Some(old), 4));
        let readings_requested = watched.readings_requested.clone();
        let asked = watched.read_now();
        tokio::pin!(asked);
        assert!(futures_util::poll!(&mut asked).is_pending(), "the one before is of no use");
        assert_eq!(*readings_requested.borrow(), 5);
        publisher.send_modify(|known| {
            (known.reading, known.answered_up_to) = (Some(Arc::new(present(2))), 5)
        });
        assert_eq!(asked.await.map(|(reading, _)| reading.index), Ok(2));
    }
}
