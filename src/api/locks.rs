//! Locks: the events of a lock's stream, and the entries of its queue.

use super::Endpoint;
use recipes::lock::Mode;
use serde::{Deserialize, Serialize};

pub const LOCKS: Endpoint<LockNames> = Endpoint::get("/locks");
/// `GET` returns the queue of a lock; `POST` requests the lock, and returns a stream; `PUT` requests it for a TTL, for
/// clients that cannot stream.
pub const LOCK_PATH: &str = "/locks/{name}";
/// `PUT` renews a lock that is held for a TTL; `DELETE` releases it.
pub const TTL_LOCK_PATH: &str = "/locks/{name}/{lock}";
/// `POST` breaks a place in the queue of a lock: its owner must give up the place, and its znode is deleted.
pub const BREAK_LOCK_PATH: &str = "/locks/{name}/break/{token}";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// One client holds the lock alone.
    Exclusive,
    /// Any number of clients hold the lock at once, but not together with an exclusive holder.
    Shared,
    /// A semaphore: as many clients as there are slots hold it at once.
    Slots,
    /// A mode that this version does not know.
    #[serde(other)]
    Unknown,
}

impl LockMode {
    /// Returns the mode as in bodies, and the number of slots if the mode is `slots`.
    pub fn of(mode: Mode) -> (Self, Option<u32>) {
        match mode {
            Mode::Exclusive => (Self::Exclusive, None),
            Mode::Shared => (Self::Shared, None),
            Mode::Slots(slots) => (Self::Slots, Some(slots.get())),
        }
    }
}

/// The data of the events `held` and `renewed`.
#[derive(Serialize, Deserialize)]
pub struct LockHeld {
    /// The fencing token, which grows from one holder to the next.
    pub token: u64,
    /// How long the lock is guaranteed to be held without a renewal, in milliseconds.
    pub valid_for_ms: u64,
    /// When that time ends, on `CLOCK_BOOTTIME` of this machine, in nanoseconds.
    pub valid_until_boottime_ns: Option<u64>,
    /// The same moment on `CLOCK_MONOTONIC`, which stops while the machine is suspended.
    pub valid_until_monotonic_ns: Option<u64>,
}

/// The data of the event `waiting`.
#[derive(Serialize, Deserialize)]
pub struct LockWaiting {
    /// An upper bound of the number of places that must leave the queue before this client can hold the lock.
    pub position: u64,
    /// Null if the holders could not be read.
    pub holders: Option<Vec<LockPlace>>,
}

/// The data of the events `lost`, `refused`, `timeout` and, of barriers, `left`, after which the stream ends.
#[derive(Serialize, Deserialize)]
pub struct LockEnded {
    /// The reason, for people.
    pub why: String,
}

/// A lock that is held for a TTL.
#[derive(Serialize, Deserialize)]
pub struct TtlLock {
    /// The id by which to renew and release the lock.
    pub lock: String,
    #[serde(flatten)]
    pub held: LockHeld,
}

/// The holders of a lock and the places that wait for it, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LockQueue {
    pub holders: Vec<LockPlace>,
    pub waiting: Vec<LockPlace>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockPlace {
    /// The member through which the lock was requested; null if another ZooKeeper client created the znode.
    pub member: Option<String>,
    /// The name that the process gave itself; null if it gave none.
    pub process: Option<String>,
    pub mode: LockMode,
    /// Null unless the mode is `slots`.
    pub slots: Option<u32>,
    /// The fencing token, by which an operator names the place to break it.
    pub token: u64,
    pub znode: String,
    /// When the place joined the queue, by the servers' clock.
    pub since: String,
}

/// A lock that was requested through this member.
#[derive(Serialize, Deserialize)]
pub struct OwnLock {
    /// The name of the lock.
    pub lock: String,
    pub mode: LockMode,
    /// Null unless the mode is `slots`.
    pub slots: Option<u32>,
    pub state: OwnHoldingState,
    /// Null while the lock is waited for.
    pub token: Option<u64>,
    /// The time of the request.
    pub since: String,
}

/// The state of a lock, or of a place at a barrier, that was requested through this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnHoldingState {
    Waiting,
    /// The lock is held.
    Held,
    /// The barrier is entered.
    Inside,
    /// The participant has left the barrier, and waits until all others have left too.
    Leaving,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

#[derive(Serialize, Deserialize)]
pub struct LockNames {
    pub locks: Vec<String>,
}
