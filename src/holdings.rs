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

    /// Parses a name. The error says that it must be a `what`, such as `example`.
    ///
    /// # Errors
    /// One sentence that says what is wrong with the name, and how to write it.
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
pub struct Ask {
    pub name: HoldingName,
    pub wanted: HoldingSpec,
    pub process: Option<ProcessName>,
    /// Publishes the standing of this request. The runner drops it when nothing of the request is left in ZooKeeper.
    pub published: watch::Sender<Published>,
    /// Closed when the caller releases the lock, leaves the barrier, or stops waiting.
    pub released: oneshot::Receiver<Infallible>,
}

/// The published state of one requested lock or barrier.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// `None` until the runner has taken the request.
    pub standing: Option<HoldingSnapshot>,
    pub ended: Option<End>,
}

impl Published {
    /// Returns the state at this moment. Do not store it: a lease ends without an event.
    pub fn at(&self, now: Moment) -> HoldingState {
        let known = match self.ended {
            Some(end) => Some(HoldingState::Ended(end)),
            None => self.standing.as_ref().and_then(|standing| standing.at(now)),
        };
        known.unwrap_or(HoldingState::Waiting { ahead: None })
    }
}

/// Requests to read locks and barriers from ZooKeeper, and to break a place in a queue.
pub enum LookRequest {
    /// The names of all locks, or of all barriers.
    Names(HoldingKind, Answer<Arc<[String]>>),
    /// The queue of one lock.
    Queue(HoldingName, Answer<Arc<LockQueue>>),
    /// The participants of one barrier.
    Barrier(HoldingName, Answer<Arc<BarrierState>>),
    /// Breaks the place with this token in the queue of a lock. The answer is the time after which a place that was marked
    /// is guaranteed not to hold the lock any longer; `None` if the queue has no such place.
    Break(HoldingName, FencingToken, BreakStep, Answer<Option<Duration>>),
}

/// A step in breaking a place in the queue of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakStep {
    /// Mark the znode, so that its owner gives up the place.
    Mark,
    /// Delete the znode.
    Delete,
}

/// Sends the answer, or the reason why there is none.
pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// The callers' side of the channels.
#[derive(Clone)]
pub struct HoldingsHandle {
    pub asks: mpsc::Sender<Ask>,
    pub looks: mpsc::Sender<LookRequest>,
    pub meter: Arc<HoldingsMeter>,
}

/// The runner's side of the channels.
pub struct HoldingsRequests {
    pub asks: mpsc::Receiver<Ask>,
    pub looks: mpsc::Receiver<LookRequest>,
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
    let (asks, asked) = mpsc::channel(REQUESTS_MAX);
    let (looks, looked) = mpsc::channel(REQUESTS_MAX);
    let meter = Arc::<HoldingsMeter>::default();
    let requests = HoldingsRequests { asks: asked, looks: looked, meter: meter.clone() };
    (requests, HoldingsHandle { asks, looks, meter })
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
