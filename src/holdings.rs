//! The channels between the runner of locks and barriers and its callers.

use crate::api::{BarrierState, LockQueue};
use crate::counters::HoldingMeter;
use recipes::holding::{End, HoldingKind, HoldingSnapshot, HoldingSpec, HoldingState};
use recipes::{FencingToken, Moment};
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The capacity of each channel of requests.
const REQUESTS_MAX: usize = 64;

/// The name of a lock or a barrier: 1 to 64 of `A-Z a-z 0-9 . _ -`, but neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldingName(Arc<str>);

impl HoldingName {
    pub fn new(name: &str) -> Option<Self> {
        let is_name = (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        (is_name && name != "." && name != "..").then(|| Self(name.into()))
    }

    /// Parses a name. The error message says that `written` is not a `what`, such as "lock's name", and shows `example`.
    ///
    /// # Errors
    /// One sentence with the invalid name and the rules for names.
    pub fn parse(written: &str, what: &str, example: &str) -> Result<Self, String> {
        Self::new(written).ok_or_else(|| {
            format!(
                "{written:?} is not a {what}: write 1 to 64 of A-Z a-z 0-9 . _ -, but not . or .., such as {example}"
            )
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HoldingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that a process gives itself when it requests a lock or barrier, for people to read: 1 to 128 visible ASCII
/// characters, such as `web-3:4711`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ProcessName(Arc<str>);

impl ProcessName {
    pub fn new(name: &str) -> Option<Self> {
        let is_name =
            (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        is_name.then(|| Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProcessName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, &'static str> {
        Self::new(&name).ok_or("write 1 to 128 visible ASCII characters, such as web-3:4711")
    }
}

/// A request to hold a lock, or to enter a barrier.
pub struct HoldRequest {
    pub name: HoldingName,
    pub wanted: HoldingSpec,
    pub process: Option<ProcessName>,
    /// Publishes the state of this lock or barrier. The runner drops the sender when the znodes of the request are deleted.
    pub publisher: watch::Sender<Published>,
    /// No value is ever sent. The channel closes when the caller drops its sender: to release the lock, to leave the
    /// barrier, or to stop waiting.
    pub released: oneshot::Receiver<Infallible>,
}

/// The published state of one requested lock or barrier.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The state; `None` until the runner has taken the request. At the end of a lease, it changes without an event.
    pub standing: Option<HoldingSnapshot>,
    /// The reason for the end, once the lock or barrier has ended.
    pub ended: Option<End>,
}

impl Published {
    /// Returns the state at the moment `now`. Do not store the state: a lease ends without an event.
    pub fn at(&self, now: Moment) -> HoldingState {
        let known = match self.ended {
            Some(end) => Some(HoldingState::Ended(end)),
            None => self.standing.as_ref().and_then(|standing| standing.at(now)),
        };
        // The runner has not taken the request yet.
        known.unwrap_or(HoldingState::Waiting { ahead: None })
    }
}

/// A request to read locks or barriers from ZooKeeper, or to break a place in the queue of a lock.
pub enum ReadRequest {
    /// The names of all locks, or of all barriers.
    Names(HoldingKind, Answer<Arc<[String]>>),
    /// The queue of one lock.
    Queue(HoldingName, Answer<Arc<LockQueue>>),
    /// The participants of one barrier.
    Barrier(HoldingName, Answer<Arc<BarrierState>>),
    /// Carries out one step in breaking the place with this token in the queue of a lock. The answer is the time to
    /// wait between the two steps: after that, the owner of a marked place is guaranteed not to hold the lock any
    /// longer. `None` if the queue has no place with the token.
    Break(HoldingName, FencingToken, BreakStep, Answer<Option<Duration>>),
}

/// A step in breaking a place in the queue of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakStep {
    /// Mark the znode of the place, so that its owner gives up the place.
    Mark,
    /// Delete the znode of the place.
    Delete,
}

/// Sends the answer, or the reason for operators why the reading failed.
pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// The callers' side of the channels.
#[derive(Clone)]
pub struct HoldingsHandle {
    pub hold_requests: mpsc::Sender<HoldRequest>,
    pub read_requests: mpsc::Sender<ReadRequest>,
    pub meter: Arc<HoldingsMeter>,
}

/// The runner's side of the channels.
pub struct HoldingsRequests {
    pub hold_requests: mpsc::Receiver<HoldRequest>,
    pub read_requests: mpsc::Receiver<ReadRequest>,
    pub meter: Arc<HoldingsMeter>,
}

/// Measurements of locks and of barriers.
#[derive(Debug)]
pub struct HoldingsMeter {
    pub locks: HoldingMeter,
    pub barriers: HoldingMeter,
}

impl Default for HoldingsMeter {
    fn default() -> Self {
        Self { locks: HoldingMeter::of_locks(), barriers: HoldingMeter::of_barriers() }
    }
}

impl HoldingsMeter {
    pub fn of(&self, wanted: HoldingSpec) -> &HoldingMeter {
        match wanted {
            HoldingSpec::Lock(_) => &self.locks,
            HoldingSpec::Barrier(_) => &self.barriers,
        }
    }
}

/// Creates both sides of the channels.
pub fn set_up() -> (HoldingsRequests, HoldingsHandle) {
    let (hold_sender, hold_requests) = mpsc::channel(REQUESTS_MAX);
    let (read_sender, read_requests) = mpsc::channel(REQUESTS_MAX);
    let meter = Arc::<HoldingsMeter>::default();
    let requests = HoldingsRequests { hold_requests, read_requests, meter: meter.clone() };
    (requests, HoldingsHandle { hold_requests: hold_sender, read_requests: read_sender, meter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_fits_into_a_path_and_a_shell() {
        for name in ["a", "a.b_c-D9", &"x".repeat(64), "...", "-"] {
            assert!(HoldingName::new(name).is_some(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "ä", "a\n", "\0", &"x".repeat(65)] {
            assert!(HoldingName::new(name).is_none(), "{name:?}");
        }
    }
}
