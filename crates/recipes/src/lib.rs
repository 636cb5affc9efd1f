//! Coordination recipes on ZooKeeper, as pure functions: events in, actions out.
//!
//! No IO, no clock, no randomness, no log, no dependency. The [`election`] has a session of its own; locks ([`lock`]) and
//! barriers ([`barrier`]) share another, as [`holding`] says. One runner owns a [`Member`](election::Member), calls it in
//! this order, and does what it says:
//!
//! 1. [`Member::start`](election::Member::start) once, for the first actions.
//! 2. [`Member::step`](election::Member::step) for each event, with the moment at which it is handled. Each action that
//!    is returned is carried out, in order, and answered by an event, or it ends with its session.
//! 3. [`Member::wake_at`](election::Member::wake_at) after each step: at that moment, step with
//!    [`Event::Woke`](election::Event::Woke). Being late costs leadership, never safety.
//! 4. [`Member::standing`](election::Member::standing) after each step: what may be published. It is judged at the
//!    moment of publishing, by [`Standing::at`](election::Standing::at), since a lease ends without an event.
//!
//! A runner promises:
//!
//! - moments come from a clock that never goes back and runs through suspension;
//! - `sent_at` is read before the request leaves;
//! - writes to the own znode are carried out in the order in which they were wanted;
//! - no event of an earlier session is delivered in a later one;
//! - of several readings of the queue under way, only the last is delivered;
//! - a claim is committed together with the claim znode, of which there is one in a queue, or its refusal is delivered;
//! - that the own znode is gone, or is not in the queue, is delivered only where a quorum agrees;
//! - the disappearance of a znode on which a quorum agrees is delivered, also where the server at hand still shows it;
//! - a session of a process before is delivered to one process at a time, after the one before has ended, and not if that one
//!   had begun to close it;
//! - the loss of the own znode is delivered before the disappearance of the predecessor, if it was committed before it.
//!
//! # Invariants
//!
//! 1. **A lease is the session's** ([`lease`], [`session`]): while it runs, the servers have not ended the session, so
//!    its znodes stand unless they were deleted by the session itself or by force.
//! 2. A lease is counted from the sending of a write that a quorum acknowledged, never from the answer; and it is
//!    granted only while heartbeats are regular ([`heartbeat`]).
//! 3. A lease that ran out is never renewed: its holder leaves the queue and joins again.
//! 4. **A contender holds only while none is ahead of it and its session's lease runs** ([`contender`]). So no two hold
//!    at one instant: one behind cannot be first before the znode ahead is gone, and that is not before the lease ended.
//! 5. The queue never grows at its head ([`queue`]): a member right behind a head that is gone is first.
//! 6. Tokens grow from holder to holder. Numbers and tokens grow together along a queue, unless a znode was made by hand.
//! 7. At most one heartbeat is waited for at a time.
//! 8. Each member watches its predecessor only: a death wakes one member.
//! 9. Nothing stored says "this member leads".
//! 10. **An acknowledged claim excludes every other**, whatever single servers show: the claim znode stands until the
//!     session of its maker ends. So a member at a server that lost a transaction leads beside another for no longer than
//!     it takes its claim to be refused, and only by the notification.

#![allow(rustdoc::private_intra_doc_links, reason = "the map names private modules")]

pub mod barrier;
mod contender;
pub mod election;
mod family;
mod heartbeat;
pub mod holding;
mod ids;
mod lease;
pub mod lock;
mod queue;
mod session;
mod time;

pub use contender::{AcquiredBy, ClaimOwner};
pub use family::{First, ForeignClient};
pub use ids::{FencingToken, MemberId, Sequence, SessionId, Ticket};
pub use lease::{LeaseDuration, Margins};
pub use queue::Queue;
pub use session::SessionRecord;
pub use time::Moment;
