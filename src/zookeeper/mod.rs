//! Runs a member of an election on ZooKeeper, in layers. Each layer uses only layers that precede it in this list.
//!
//! - `client`: one session, kept alive over several connections. It does not know the recipe.
//! - `queue`: a queue of ephemeral sequential znodes. It does not know the recipe either: a znode's data is only bytes.
//! - `election`: the parts that an election adds to a queue: announcements, and the recipe's own events and actions.
//! - `shared_config`: the values that applications share, in a session that the caller opened; it knows `client` and
//!   `queue`.
//! - `holdings`: the locks and barriers that applications request, in a session of their own; it knows `client`, `queue`
//!   and `shared_config`.
//! - `inspect`: reads an election from outside; it knows `client`, `queue` and `election`.
//! - `runner`: the loop that owns the [`Member`](recipes::election::Member), and the only code that steps it.
//!
//! Together, the layers keep five promises:
//!
//! 1. the answer to an [`Action`](recipes::election::Action) reaches the member as an event, unless the session ends
//!    before (a failed `ReadPriorities` is not answered: a leader sends the next one soon);
//! 2. writes to our own znode are done in the order in which they were requested;
//! 3. no event of an earlier session reaches the member in a later one;
//! 4. once the queue is being read again, an earlier listing no longer reaches the member;
//! 5. if our own znode was deleted before the predecessor's, the loss of our own znode also reaches the member first
//!    (`queue/watches.rs` explains why and how).
//!
//! [`check`] validates the settings before anything is started. [`read_election`] reads from outside: it does not join, and it
//! writes nothing.

mod client;
mod election;
mod holdings;
mod inspect;
mod queue;
mod runner;
mod shared_config;

/// The advice to operators about an unknown client's znode that keeps members from leading: the head of the queue, or the
/// claim.
pub const UNKNOWN_ZNODE_REMEDY: &str =
    "find that client (`cons` at the servers' client port), or delete the znode";

pub use client::{Credentials, OpenedSessionFile, SavedSession, SessionFile, check};
#[cfg(any(test, fuzzing))]
pub(crate) use election::{decode, encode};
pub use holdings::{HoldingsSettings, run_holdings};
pub use inspect::{ClaimZnode, Election, OtherZnode, TriedServer, read_election, try_servers};
pub use runner::{ResumeState, run};
