//! Locks: the events for one who asks for a lock, and the entries of its queue.

use super::Get;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const LOCKS: Get<LockNames> = Get::at("/locks");
/// A lock's queue; with `POST`, a stream; with `PUT`, a lock that is kept for a client that cannot stream.
pub const LOCK_PATH: &str = "/locks/{name}";
/// A lock that is kept.
pub const KEPT_LOCK_PATH: &str = "/locks/{name}/{lock}";
/// Breaks a place in a lock's queue.
pub const BREAK_LOCK_PATH: &str = "/locks/{name}/break/{token}";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// By one alone.
    Exclusive,
    /// By any number at once, beside no exclusive one.
    Shared,
    /// By the first so many of the queue.
    Slots,
    /// A state that only a later version knows.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// The data of the events `held` and `renewed`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockHeld {
    /// The fencing token: it grows from one holder to the next.
    pub token: u64,
    /// The time for which it is surely held without a renewal, in milliseconds.
    pub valid_for_ms: u64,
    /// When that ends, by `CLOCK_BOOTTIME` of this machine, in nanoseconds.
    pub valid_until_boottime_ns: Option<u64>,
    /// The same by `CLOCK_MONOTONIC`, which stands still while the machine is suspended.
    pub valid_until_monotonic_ns: Option<u64>,
}

/// The data of the event `waiting`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockWaiting {
    /// How many have to go first, at most.
    pub position: u64,
    /// Null if that could not be read.
    pub holders: Option<Vec<LockPlace>>,
}

/// The data of the events `lost`, `refused`, `timeout` and, of barriers, `left`, after which the stream ends.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockEnded {
    /// For people.
    pub why: String,
}

/// The data of the events of a lock's stream.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum LockEvent {
    Waiting(LockWaiting),
    Held(LockHeld),
    Ended(LockEnded),
}

/// A lock that is kept until its time is over.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TtlLock {
    /// By what to renew it and to give it back.
    pub lock: String,
    #[serde(flatten)]
    pub held: LockHeld,
}

/// The holders of a lock and those that wait for it, in order.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockQueue {
    pub holders: Vec<LockPlace>,
    pub waiting: Vec<LockPlace>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockPlace {
    /// The member through which it is asked for; null if the znode does not say: another ZooKeeper client.
    pub member: Option<String>,
    /// The process that asked for it, as it named itself; null if it did not.
    pub process: Option<String>,
    pub mode: LockMode,
    /// Null unless the mode is `slots`.
    pub slots: Option<u32>,
    pub token: u64,
    pub znode: String,
    /// The time at which it joined the queue, by the servers' clock.
    pub since: String,
}

/// A lock that is asked for through this member.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OwnLock {
    pub lock: String,
    pub mode: LockMode,
    /// Null unless the mode is `slots`.
    pub slots: Option<u32>,
    pub state: LockState,
    /// Null while it is waited for.
    pub token: Option<u64>,
    /// The time of the request.
    pub since: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    Held,
    Waiting,
    /// A state that only a later version knows.
    #[serde(other, skip_serializing)]
    Unknown,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct LockNames {
    pub locks: Vec<String>,
}
