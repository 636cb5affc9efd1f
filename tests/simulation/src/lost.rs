//! A server that has lost a transaction: it does not show a znode that exists, or shows one that is gone, and nothing in it
//! notices.
//!
//! Its state is that of the others, since what is written through it is judged by all of them. Only its reads are wrong.

use dev_server::{Now, Replica, ReplicaZnode};
use std::fmt;

/// The path of members' znodes, without their numbers, and that of their claim.
const QUEUE: &str = "/election/leader_";
const CLAIM: &str = "/election/claim-leader_";

/// The transaction that a server has lost.
#[derive(Clone, Debug)]
pub struct LostTransaction {
    path: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Create,
    /// The znode, once it was deleted.
    Delete(Option<ReplicaZnode>),
}

impl LostTransaction {
    /// The one that made this znode.
    pub fn create(path: String) -> Self {
        Self { path, kind: Kind::Create }
    }

    /// The one that will delete this znode.
    pub fn delete(path: String) -> Self {
        Self { path, kind: Kind::Delete(None) }
    }

    /// Whether it has made a member's place in the queue of the election.
    pub fn hides_member(&self) -> bool {
        matches!(self.kind, Kind::Create) && self.path.starts_with(QUEUE)
    }

    /// Whether it has made somebody's place in the queue of a lock, or in a barrier.
    pub fn hides_holding(&self) -> bool {
        matches!(self.kind, Kind::Create) && !self.path.starts_with(QUEUE)
    }

    /// Has its server answer a read.
    pub fn read(&self, state: &mut Replica, connection: u64, frame: &[u8], now: Now) -> bool {
        match &self.kind {
            Kind::Create => {
                let hidden = state.take_out(&self.path);
                let is_well = state.request(connection, frame, now);
                if let Some(hidden) = hidden {
                    state.put_in(&self.path, hidden);
                }
                is_well
            }
            Kind::Delete(None) => state.request(connection, frame, now),
            Kind::Delete(Some(ghost)) => {
                state.put_in(&self.path, ghost.clone());
                let is_well = state.request(connection, frame, now);
                state.take_out(&self.path);
                is_well
            }
        }
    }

    /// Returns the znode whose end is to be lost, while it exists.
    pub fn doomed(&self, state: &Replica) -> Option<ReplicaZnode> {
        match self.kind {
            Kind::Delete(None) => state.znode(&self.path),
            Kind::Create | Kind::Delete(Some(_)) => None,
        }
    }

    /// Notes what [`Self::doomed`] returned before a transaction. Returns whether its end is lost now.
    pub fn note(&mut self, doomed: Option<ReplicaZnode>, state: &Replica) -> bool {
        let is_lost = doomed.is_some() && state.znode(&self.path).is_none();
        if is_lost {
            self.kind = Kind::Delete(doomed);
        }
        is_lost
    }
}

impl fmt::Display for LostTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.kind {
            Kind::Create => "created",
            Kind::Delete(_) => "deleted",
        };
        write!(f, "the one that {done} {}", self.path)
    }
}

/// Returns whether a quorum has acknowledged the claim of the member with this znode, by its name.
pub fn has_claim(committed: &Replica, znode: &str) -> bool {
    let own = format!("/election/{znode}");
    let mut sessions = committed.ephemerals().into_iter();
    sessions.any(|(_, paths)| paths.iter().any(|path| path == CLAIM) && paths.contains(&own))
}

/// Returns the znodes whose transactions may be lost: of members, or of locks and barriers.
pub fn candidates(committed: &Replica, are_members: bool) -> Vec<String> {
    let paths = committed.ephemerals().into_iter().flat_map(|(_, paths)| paths);
    let mut paths: Vec<_> =
        paths.filter(|path| path != CLAIM && path.starts_with(QUEUE) == are_members).collect();
    paths.sort();
    paths
}
