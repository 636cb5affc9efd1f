//! Runs a member of an election on ZooKeeper, in layers: each knows only those above it in this list.
//!
//! - `client`: one session, kept over connections. Knows no recipe.
//! - `queue`: a queue of ephemeral sequential znodes. Knows no recipe either: data is bytes there.
//! - `election`: what an election adds to a queue: announcements, and the recipe's own events and actions.
//! - `shared_config`: the values that applications share, in a session that it is lent; it knows `client` and `queue`.
//! - `holdings`: the locks and barriers that applications ask for, on a session of their own; it knows `client`, `queue` and
//!   `shared_config`.
//! - `inspect`: a look from outside; it knows `client`, `queue` and `election`.
//! - `runner`: the loop that owns the [`Member`](recipes::election::Member), the only one that steps it.
//!
//! Together they keep five promises:
//!
//! 1. every [`Action`](recipes::election::Action) is answered by an event or fails silently with its
//!    session;
//! 2. writes to our own znode are done in the order in which they were wanted;
//! 3. no event of an earlier session reaches the member in a later one;
//! 4. of several readings of the queue, only the last reaches the member;
//! 5. the loss of our own znode reaches the member before that of the predecessor's, if it was committed before it
//!    (`queue/watches.rs` explains how).
//!
//! [`check`] is for before anything is begun, and [`Inspector`] for a look from outside, which joins
//! nothing and writes nothing.

mod cached;
mod client;
mod election;
mod holdings;
mod inspect;
mod queue;
mod runner;
mod shared_config;

/// The advice about a znode at the head of the queue that does not belong to a member.
pub const UNKNOWN_ZNODE_REMEDY: &str =
    "find that client (`cons` at the servers' client port), or delete the znode";

pub use client::{OpenedSessionFile, SavedSession, SessionFile, check};
pub use election::MemberData;
#[cfg(any(test, fuzzing))]
pub(crate) use election::{decode, encode};
pub use holdings::{HoldingsSettings, run_holdings};
pub use inspect::{Election, Foreign, Inspector, TriedServer, Znode, try_servers};
pub use runner::{ResumeState, run};
