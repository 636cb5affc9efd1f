//! The channels between the runner of the shared configuration and those who read and write it.

use crate::byte_budget::ByteBudget;
use crate::counters::ConfigMeter;
use crate::holdings::HoldingName;
use hyper::body::Bytes;
use recipes::SessionId;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// The largest number of names that are watched at once through one member: each may have a value of [`VALUE_MAX`] in memory.
pub const NAMES_MAX: usize = 256;

/// The longest value in bytes: the servers take no request longer than 1 MiB (`jute.maxbuffer`), of which the path and
/// the rest of a request take some.
pub const VALUE_MAX: usize = 1024 * 1024 - 4096;

/// How many requests may wait for the runner to take them.
const REQUESTS_MAX: usize = 64;

/// The name of a value, by the rules of the names of locks.
pub type ConfigName = HoldingName;

/// The value of a name, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReading {
    /// Grows with each change: the zxid of the last one, or a later one before which none changed it.
    pub index: u64,
    /// `None` if there was no such znode.
    pub value: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub data: Bytes,
    /// The number of writes since it was created.
    pub version: i32,
    /// The session with which it goes; `None` if it outlives all.
    pub owner: Option<SessionId>,
}

/// The known state of a name.
#[derive(Clone, Debug, Default)]
pub struct ValueState {
    /// `None` before the first reading.
    pub reading: Option<Arc<ValueReading>>,
    /// Whether it is watched at this moment: else it may have changed.
    pub is_live: bool,
    /// The number of the last question that this answers.
    pub answers: u64,
    /// Until when nothing else was there, as an index: no client has seen a larger one that has asked before.
    pub as_of: u64,
    /// Why it cannot be read.
    pub problem: Option<Arc<str>>,
    /// The session by which it was read.
    pub session: Option<SessionId>,
}

/// A name that is watched for as long as there is one of these.
pub struct WatchedValue {
    pub known: watch::Receiver<ValueState>,
    /// The number of the last question.
    pub questions: Arc<watch::Sender<u64>>,
}

/// Asks the runner.
pub enum ConfigRequest {
    Watch(ConfigName, Answer<WatchedValue, TooMany>),
    Write(ValueWrite, Answer<WriteOutcome, WriteError>),
    /// Whether a quorum says that the value is at this version, or with `None` that there is none.
    Prove(ConfigName, Option<i32>, Answer<bool, String>),
    /// The names of all values.
    Names(Answer<Arc<[String]>, String>),
}

pub type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// [`NAMES_MAX`] are watched already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A write.
#[derive(Clone, Debug)]
pub struct ValueWrite {
    pub name: ConfigName,
    pub action: WriteAction,
    pub condition: Condition,
}

#[derive(Clone, Debug)]
pub enum WriteAction {
    /// `is_ephemeral`: it goes with the session.
    Put {
        data: Bytes,
        is_ephemeral: bool,
    },
    Delete,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// The value must not exist.
    Absent,
    /// There is one.
    Exists,
    /// There is one of this version.
    Version(i32),
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Created {
        version: i32,
        index: u64,
    },
    Changed {
        version: i32,
        index: u64,
    },
    /// The index is that of the last change that was seen before.
    Deleted {
        index: u64,
    },
}

/// Why it was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The condition is not met: this version is there, or none.
    Differs { found: Option<i32> },
    /// There is nothing to delete.
    NotThere,
    /// The write is ephemeral, but the value is not, or belongs to another session.
    NotOurs,
    /// [`NAMES_MAX`] are watched already, and one that is ephemeral is watched.
    TooMany,
    /// The servers refuse it.
    Refused(String),
    /// ZooKeeper was not reached, so that nothing was written.
    NotSent,
    /// No answer came, so that it may be written or not.
    Unknown,
}

impl ValueReading {
    /// Whether it is what a client waits for that has seen this index. `as_of`: that of [`ValueState`].
    ///
    /// Where there is no value, a client may have seen the index of a later moment than that at which there was none first. An
    /// index that is larger than any is not of this ensemble.
    pub fn is_news_since(&self, seen: u64, as_of: u64) -> bool {
        self.index > seen || seen > as_of.max(self.index)
    }

    /// Whether this is to be published after what is known. `has_fired`: the znode may have changed in between.
    pub fn is_news_after(&self, known: Option<&Self>, has_fired: bool) -> bool {
        match known {
            None => true,
            // The index has grown by what happened to others.
            Some(Self { index, value: None }) if self.value.is_none() => {
                (has_fired && self.index != *index) || self.index < *index
            }
            Some(known) => {
                self.index != known.index || self.value.is_some() != known.value.is_some()
            }
        }
    }
}

impl ValueState {
    /// Whether there is an ephemeral value of the session by which it was read.
    pub fn is_own(&self) -> bool {
        let owner = self.reading.as_ref().and_then(|reading| reading.value.as_ref()?.owner);
        owner.is_some() && owner == self.session
    }
}

impl WatchedValue {
    /// Has it read again, and returns that reading, and as of which index that is so.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn read_anew(&mut self) -> Result<(Arc<ValueReading>, u64), Arc<str>> {
        let mut number = 0;
        self.questions.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        loop {
            {
                let known = self.known.borrow_and_update();
                if known.answers >= number {
                    match (&known.problem, &known.reading) {
                        (Some(problem), _) => return Err(problem.clone()),
                        (None, Some(reading)) => return Ok((reading.clone(), known.as_of)),
                        (None, None) => {}
                    }
                }
            }
            self.known.changed().await.map_err(|_| Arc::<str>::from(LEAVES))?;
        }
    }

    /// Waits for a reading that is news to a client that has seen this index. `None` if this member leaves.
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

const LEAVES: &str = "this member is leaving";

/// The side of those who read and write.
#[derive(Clone)]
pub struct ConfigHandle {
    pub requests: mpsc::Sender<ConfigRequest>,
    /// The path below which it stands, for people.
    pub root: Arc<str>,
    pub meter: Arc<ConfigMeter>,
}

/// The runner's side.
pub struct ConfigRequests {
    pub requests: mpsc::Receiver<ConfigRequest>,
    /// For the values that are watched.
    pub budget: ByteBudget,
    pub meter: Arc<ConfigMeter>,
}

pub fn set_up(root: &str, budget: &ByteBudget) -> (ConfigRequests, ConfigHandle) {
    let (requests, requested) = mpsc::channel(REQUESTS_MAX);
    let meter = Arc::<ConfigMeter>::default();
    let runners =
        ConfigRequests { requests: requested, budget: budget.clone(), meter: meter.clone() };
    (runners, ConfigHandle { requests, root: root.into(), meter })
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
    fn what_happens_to_other_names_is_no_news_and_no_change_is_missed() {
        assert!(absent(3).is_news_after(None, true));
        assert!(present(4).is_news_after(Some(&absent(3)), true));
        assert!(present(4).is_news_after(Some(&absent(4)), false), "one transaction did both");
        assert!(present(5).is_news_after(Some(&present(4)), true));
        assert!(absent(5).is_news_after(Some(&present(4)), true));
        assert!(
            !present(4).is_news_after(Some(&present(4)), true),
            "the same after another connection"
        );
        assert!(!absent(9).is_news_after(Some(&absent(3)), false), "others have changed");
        assert!(
            absent(9).is_news_after(Some(&absent(3)), true),
            "it may have been there in between"
        );
        assert!(absent(2).is_news_after(Some(&absent(3)), false), "of another ensemble");
    }

    #[tokio::test]
    async fn a_question_is_answered_by_a_reading_that_began_after_it() {
        let (publisher, known) = watch::channel(ValueState::default());
        let mut watched = WatchedValue { known, questions: Arc::new(watch::Sender::new(4)) };
        let old = Arc::new(present(1));
        publisher.send_modify(|known| (known.reading, known.answers) = (Some(old), 4));
        let questions = watched.questions.clone();
        let asked = watched.read_anew();
        tokio::pin!(asked);
        assert!(futures_util::poll!(&mut asked).is_pending(), "the one before is of no use");
        assert_eq!(*questions.borrow(), 5);
        publisher
            .send_modify(|known| (known.reading, known.answers) = (Some(Arc::new(present(2))), 5));
        assert_eq!(asked.await.map(|(reading, _)| reading.index), Ok(2));
    }
}
