//! The channels between the runner of the locks and those who ask for them.

use crate::counters::LockMeter;
use recipes::Moment;
use recipes::holding::{End, Loss, Standing, Status};
use recipes::lock::{Entry, Mode};
use recipes::{FencingToken, Ticket};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{mpsc, oneshot, watch};

/// The most locks that are held or waited for at once by way of one member.
pub const HOLDINGS_MAX: usize = 1024;

/// How many requests may wait for the runner or the reader to take them.
const REQUESTS_MAX: usize = 64;

/// A lock's name: 1 to 64 of `A-Z a-z 0-9 . _ -`, but neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    pub fn new(name: &str) -> Option<Self> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=64).contains(&name.len()) && name.bytes().all(is_known);
        (is_name && name != "." && name != "..").then(|| Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Asks for a lock.
pub struct Ask {
    pub name: LockName,
    pub mode: Mode,
    /// Where its standing is published; dropped when nothing of it is left.
    pub published: watch::Sender<Published>,
    /// Its sender is dropped when the lock is given back, or not waited for any more.
    pub released: oneshot::Receiver<Infallible>,
}

/// What is published of one lock that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// `None` until the runner has taken the request.
    pub standing: Option<Standing>,
    pub ended: Option<Ended>,
}

/// How a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Released,
    /// Another asked before, of the same name, for a lock of another kind or number of slots.
    Refused {
        found: Mode,
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
            End::Released | End::AllLeft => Self::Released,
            End::Refused { found } => Self::Refused { found },
            End::Lost(loss) => Self::Lost(loss),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("it was given back"),
            Self::Refused { found } => write!(f, "another asked before for it, {found}"),
            Self::Lost(loss) => write!(f, "{loss}"),
            Self::TooMany => write!(
                f,
                "{HOLDINGS_MAX} locks are held or waited for by way of this member: give some back, or try later"
            ),
            Self::Stopped => f.write_str("this member leaves"),
        }
    }
}

/// How a lock stands at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// So many at most are ahead that count against it; `None` while that is not known.
    Waiting {
        ahead: Option<usize>,
    },
    Held {
        token: FencingToken,
        until: Moment,
    },
    Ended(Ended),
}

impl Published {
    /// Judges it at this moment: a lease ends without an event.
    pub fn at(&self, now: Moment) -> Judged {
        if let Some(ended) = self.ended {
            return Judged::Ended(ended);
        }
        match self.standing.as_ref().map(|standing| standing.at(now)) {
            None => Judged::Waiting { ahead: None },
            Some(Status::Waiting { ahead }) => Judged::Waiting { ahead },
            Some(Status::Held { token, left }) => Judged::Held { token, until: now.after(left) },
            Some(Status::Ended) => Judged::Ended(Ended::Lost(Loss::LeaseRanOut)),
            Some(Status::Gathering { .. } | Status::Leaving) => {
                unreachable!("a lock is no barrier")
            }
        }
    }
}

/// Asks what stands in ZooKeeper.
pub enum Look {
    /// The names of all locks.
    Names(Answer<Arc<[String]>>),
    /// The queue of one.
    Queue(LockName, Answer<Arc<[Place]>>),
}

/// The answer, or why there is none.
pub type Answer<T> = oneshot::Sender<Result<T, String>>;

/// One place in a lock's queue, as it was read.
#[derive(Clone, Debug)]
pub struct Place {
    pub entry: Entry,
    pub ticket: Ticket,
    pub znode: String,
    /// The member by way of which it is asked for; `None` if the znode does not say.
    pub member: Option<String>,
    pub since: SystemTime,
    /// Whether none that stand ahead keep it from holding.
    pub holds: bool,
}

/// The side of those who ask.
#[derive(Clone)]
pub struct LocksHandle {
    pub asks: mpsc::Sender<Ask>,
    pub looks: mpsc::Sender<Look>,
    pub meter: Arc<LockMeter>,
}

/// The runner's side.
pub struct LocksRequests {
    pub asks: mpsc::Receiver<Ask>,
    pub looks: mpsc::Receiver<Look>,
    pub meter: Arc<LockMeter>,
}

pub fn set_up() -> (LocksRequests, LocksHandle) {
    let (asks, asked) = mpsc::channel(REQUESTS_MAX);
    let (looks, looked) = mpsc::channel(REQUESTS_MAX);
    let meter = Arc::<LockMeter>::default();
    let requests = LocksRequests { asks: asked, looks: looked, meter: meter.clone() };
    (requests, LocksHandle { asks, looks, meter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_fits_into_a_path_and_a_shell() {
        for name in ["a", "a.b_c-D9", &"x".repeat(64), "...", "-"] {
            assert!(LockName::new(name).is_some(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "ä", "a\n", "\0", &"x".repeat(65)] {
            assert!(LockName::new(name).is_none(), "{name:?}");
        }
    }
}
