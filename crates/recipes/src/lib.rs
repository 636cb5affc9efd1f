//! Coordination recipes on ZooKeeper, as pure functions: events in, actions out.
//!
//! No IO, no clock, no randomness, no logging, no dependencies. The [`election`] has a session of its own; locks
//! ([`lock`]) and barriers ([`barrier`]) share another one, see [`holding`]. A runner owns a
//! [`Member`](election::Member), calls it in this order, and carries out its actions:
//!
//! 1. [`Member::start`](election::Member::start) once, for the first actions.
//! 2. [`Member::step`](election::Member::step) for each event, with the moment at which it is handled. The runner
//!    carries out the returned actions in order. The answer to an action comes as an event, unless the session ends
//!    first; [`election::Action`] says which actions have no answer.
//! 3. [`Member::wake_at`](election::Member::wake_at) after each step: at that moment, step with
//!    [`Event::Woke`](election::Event::Woke). Waking late may cost leadership, never safety.
//! 4. [`Member::standing`](election::Member::standing) after each step: the state that may be published. Evaluate it at
//!    the moment of publishing, with [`Standing::at`](election::Standing::at), since a lease ends without an event.
//!
//! A runner promises:
//!
//! - moments come from a clock that never goes back, and that keeps running while the machine is suspended, because
//!   leases end meanwhile;
//! - each `sent_at` in an event is a moment before the request was sent;
//! - writes to the own znode are carried out in the order of their actions;
//! - events of an earlier session are never delivered in a later one;
//! - if several readings of the queue are under way, only the last is delivered;
//! - a queue has at most one claim znode, which a claim creates in the same transaction. A claim that cannot create it
//!   is not committed, and its refusal is delivered;
//! - the loss of the own znode, or its absence from the queue, is delivered only if a quorum agrees;
//! - once a quorum agrees that a znode is gone, its disappearance is delivered, even if the connected server still
//!   shows it;
//! - the session of a previous process is delivered only after that process has ended, to one process at a time, and
//!   never once any process has begun to close that session;
//! - if the own znode was lost before the predecessor disappeared, the loss of the own znode is delivered first.
//!
//! # Invariants
//!
//! 1. **A lease belongs to the session** ([`lease`], [`session`]): while the lease runs, the servers have not ended the
//!    session, so the session's znodes exist unless the session itself or an unknown client deleted them.
//! 2. A lease starts when a write that a quorum acknowledged was sent, never when its answer came; and it is granted
//!    only while heartbeats are regular ([`heartbeat`]).
//! 3. A lease that ran out is never renewed: the member that held it leaves the queue and joins again.
//! 4. **A contender holds only while no other is ahead of it and its session's lease runs** ([`contender`]). So two
//!    contenders never hold at the same instant: a contender is first only once the znode ahead is gone, and that znode
//!    exists until the lease of its session has ended or was given up. For a server that shows a wrong queue, see 10.
//! 5. The queue never grows at its head ([`queue`]): once the head is gone, the member right behind it is first.
//! 6. Each holder's token is larger than the tokens of all holders before it. Along a queue, sequences and tokens grow
//!    together, unless a znode was created by hand.
//! 7. A session waits for the answer to at most one heartbeat at a time.
//! 8. Each member watches only its predecessor, so the death of a member wakes one other member.
//! 9. No znode proves that a member leads: a member leads only while its lease runs.
//! 10. **An acknowledged claim excludes every other claim**, even if a single server shows an outdated queue: the claim
//!     znode exists until the session of its creator ends. So a member whose server lost a transaction can lead at the
//!     same time as another member in one case only: it began to lead when it was notified that its predecessor was
//!     gone. The claim that it sent at that moment is then refused, and it stops leading.

#![allow(rustdoc::private_intra_doc_links, reason = "the invariants name private modules")]

pub mod barrier;
mod contender;
pub mod election;
mod family;
mod heartbeat;
pub mod holding;
mod ids;
mod lease;
pub mod lock;
pub mod place;
mod queue;
mod session;
mod time;

pub use contender::{AcquiredBy, ClaimOwner};
pub use family::ForeignClient;
pub use ids::{FencingToken, MemberId, Sequence, SessionId, Ticket};
pub use lease::{LeaseDuration, Margins};
pub use queue::Queue;
pub use session::{SessionEvent, SessionRecord};
pub use time::Moment;
