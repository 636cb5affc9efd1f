//! Double barriers: the events for a participant, and the list of participants.

use super::{Endpoint, LockHeld, OwnHoldingState};
use serde::{Deserialize, Serialize};

pub const BARRIERS: Endpoint<BarrierNames> = Endpoint::get("/barriers");
/// `GET` returns the participants of a barrier; `POST` enters it, and returns a stream of events.
pub const BARRIER_PATH: &str = "/barriers/{name}";
/// `POST` makes a participant that is inside leave the barrier.
pub const LEAVE_BARRIER_PATH: &str = "/barriers/{name}/leave/{id}";

/// The data of the event `waiting`.
#[derive(Serialize, Deserialize)]
pub struct BarrierWaiting {
    /// The id by which to leave.
    pub id: String,
    /// The number of participants at the last reading, including this one.
    pub present: u64,
    /// The number of participants that enter together.
    pub size: u32,
}

/// The data of the events `entered` and `renewed`.
#[derive(Serialize, Deserialize)]
pub struct BarrierEntered {
    /// The id by which to leave.
    pub id: String,
    #[serde(flatten)]
    pub held: LockHeld,
}

/// The participants in front of a barrier and inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BarrierState {
    /// Null if no participant states a size.
    pub size: Option<u32>,
    /// True from when the participants enter until the round has ended: when all of them have left or died, the next
    /// participant that reads the barrier ends the round.
    pub open: bool,
    /// The participants, in order of arrival.
    pub members: Vec<BarrierMember>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BarrierMember {
    /// The member through which the participant came; null if another ZooKeeper client created the znode.
    pub member: Option<String>,
    /// The name that the process gave itself; null if it gave none.
    pub process: Option<String>,
    /// True if the participant has entered, and has not left yet.
    pub inside: bool,
    /// The fencing token.
    pub token: u64,
    /// The name of the participant's znode.
    pub znode: String,
    /// When the participant came, by the servers' clock.
    pub since: String,
}

/// A barrier that is waited for or entered through this member.
#[derive(Serialize, Deserialize)]
pub struct OwnBarrier {
    /// The name of the barrier.
    pub barrier: String,
    /// The number of participants that enter together.
    pub size: u32,
    pub state: OwnHoldingState,
    /// Null unless the participant is inside.
    pub token: Option<u64>,
    /// The time of the request.
    pub since: String,
}

#[derive(Serialize, Deserialize)]
pub struct BarrierNames {
    pub barriers: Vec<String>,
}
