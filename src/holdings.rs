//! The channels between the runner of the locks and barriers and those who ask for them.

use crate::counters::HoldingMeter;
use recipes::Moment;
use recipes::holding::{End, HoldingSpec, HoldingStanding, HoldingState, Loss};
use recipes::lock::LockEntry;
use recipes::{FencingToken, Ticket};
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};

/// The most locks and barriers that are held or waited for at once through one member.
pub const HOLDINGS_MAX: usize = 1024;

/// How many requests may wait for the runner or the reader to take them.
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

    /// Returns the name, of what these words say.
    ///
    /// # Errors
    /// One sentence that says what is wrong with it, and how it is written.
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

/// The process that asks for a lock or barrier, as it names itself to people: 1 to 128 visible ASCII characters, such as
/// `web-3:4711`.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Asks for a lock, or to enter a barrier.
pub struct Ask {
    pub name: HoldingName,
    pub wanted: HoldingSpec,
    pub process: Option<ProcessName>,
    /// Publishes its standing; dropped when nothing of it is left.
    pub published: watch::Sender<Published>,
    /// Its sender is dropped when the lock is given back, the barrier is left, or neither is waited for any more.
    pub released: oneshot::Receiver<Infallible>,
}

/// The published state of one lock or barrier that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// `None` until the runner has taken the request.
    pub standing: Option<HoldingStanding>,
    pub ended: Option<Ended>,
}

/// How a lock or barrier ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Released,
    /// All have left the barrier.
    AllLeft,
    /// Another asked before, of the same name, for a lock of another kind or number of slots, or a barrier of another size.
    Refused {
        found: HoldingSpec,
    },
    Lost(Loss),
    /// [`HOLDINGS_MAX`] are asked for already.
    TooMany,
    /// This member leaves.
    Stopped,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        match end {
            End::Released => Self::Released,
            End::AllLeft => Self::AllLeft,
            End::Refused { found } => Self::Refused { found },
            End::Lost(loss) => Self::Lost(loss),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("it was given back"),
            Self::AllLeft => f.write_str("all have left"),
            Self::Refused { found } => write!(f, "another asked before for {found}"),
            Self::Lost(loss) => write!(f, "{loss}"),
            Self::TooMany => write!(
                f,
                "{HOLDINGS_MAX} locks and barriers are held or waited for through this member: give some back, or try later"
            ),
            Self::Stopped => f.write_str("this member leaves"),
        }
    }
}

/// How a lock or barrier stands at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldingView {
    /// So many at most are ahead that count against it; `None` while that is not known.
    Waiting {
        ahead: Option<usize>,
    },
    /// Waits in front of a barrier, beside so many others when it looked last; `None` while that is not known.
    Gathering {
        present: Option<usize>,
    },
    /// Holds the lock, or is inside the barrier.
    Held {
        token: FencingToken,
        until: Moment,
    },
    /// Has left the barrier; others are still inside.
    Leaving,
    Ended(Ended),
}

impl Published {
    /// Judges it at this moment: a lease ends without an event.
    pub fn at(&self, now: Moment) -> HoldingView {
        if let Some(ended) = self.ended {
            return HoldingView::Ended(ended);
        }
        match self.standing.as_ref().map(|standing| standing.at(now)) {
            // Nothing is known of it, whatever it is.
            None => HoldingView::Waiting { ahead: None },
            Some(HoldingState::Waiting { ahead }) => HoldingView::Waiting { ahead },
            Some(HoldingState::Gathering { present }) => HoldingView::Gathering { present },
            Some(HoldingState::Held { token, left }) => {
                HoldingView::Held { token, until: now.after(left) }
            }
            Some(HoldingState::Leaving) => HoldingView::Leaving,
            Some(HoldingState::Ended) => HoldingView::Ended(Ended::Lost(Loss::LeaseRanOut)),
        }
    }
}

impl HoldingView {
    /// Whether it is waited for, to hold it or to go inside.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Gathering { .. })
    }

    /// Whether it is not known yet how it stands.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Waiting { ahead: None } | Self::Gathering { present: None })
    }
}

/// Asks what stands in ZooKeeper.
pub enum LookRequest {
    /// The names of all locks.
    Names(Answer<Arc<[String]>>),
    /// The queue of one.
    Queue(HoldingName, Answer<Arc<[LockQueuePlace]>>),
    /// The names of all barriers.
    BarrierNames(Answer<Arc<[String]>>),
    Barrier(HoldingName, Answer<Arc<BarrierContent>>),
    /// Break the place in a lock's queue whose znode has this token. Answered with the time after which it is surely not held
    /// any more once it was marked; with `None` if there is no such place.
    Break(HoldingName, FencingToken, BreakStep, Answer<Option<Duration>>),
}

/// A step of breaking a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakStep {
    /// Have its owner give it up.
    Mark,
    /// Delete its znode.
    Delete,
}

/// The answer, or why there is none.
pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// One place in a lock's queue, as it was read.
#[derive(Clone, Debug)]
pub struct LockQueuePlace {
    pub entry: LockEntry,
    pub ticket: Ticket,
    pub znode: String,
    /// The member through which it is asked for; `None` if the znode does not say.
    pub member: Option<String>,
    pub process: Option<ProcessName>,
    pub since: SystemTime,
    /// Whether none that stand ahead keep it from holding.
    pub holds: bool,
}

/// The processes in front of a barrier or inside, as they were read.
#[derive(Clone, Debug)]
pub struct BarrierContent {
    /// `None` if none that is there says one.
    pub size: Option<NonZeroU32>,
    pub is_open: bool,
    /// In order of arrival.
    pub members: Vec<BarrierOccupant>,
}

/// A process in front of a barrier or inside, as it was read.
#[derive(Clone, Debug)]
pub struct BarrierOccupant {
    pub ticket: Ticket,
    pub znode: String,
    /// The member through which it came; `None` if the znode does not say.
    pub member: Option<String>,
    pub process: Option<ProcessName>,
    pub since: SystemTime,
    pub is_inside: bool,
}

/// The side of those who ask.
#[derive(Clone)]
pub struct HoldingsHandle {
    pub asks: mpsc::Sender<Ask>,
    pub looks: mpsc::Sender<LookRequest>,
    pub meter: Arc<HoldingsMeter>,
}

/// The runner's side.
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
