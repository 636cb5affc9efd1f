//! ZooKeeper does what the election wants done.
//!
//! The driver owns the [`Member`](recipes::election::Member); nobody else steps it. It keeps three
//! promises:
//!
//! - every [`Action`](recipes::election::Action) is answered by an event or fails silently with its
//!   session;
//! - writes to our own znode are done in the order in which they were wanted;
//! - no event of an earlier session is heard in a later one.
//!
//! [`check`] is for before anything is begun, and [`survey()`] is for who only wants to look: it joins nothing and writes nothing.

mod acl;
mod connection;
mod diagnosis;
mod driver;
mod flaw;
mod journal;
mod keeper;
mod passport;
mod session;
mod survey;
mod wire;

pub use driver::run;
pub use passport::check;
pub use survey::{Znode, survey};
pub use wire::Says;
#[cfg(any(test, fuzzing))]
pub(crate) use wire::{decode, encode};
