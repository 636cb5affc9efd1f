//! Runs a command only while this member leads.
//!
//! Two processes watch over it. The *supervisor* is a thread of `bellwether exec`: it starts the
//! command when this member leads, tells of each renewal of the lease, and lets no order take
//! leadership away before the command is dead. The *guard* is a process between it and the command:
//! it ends the command in time by its own clock, so also when everything else is frozen, cut off
//! or dead. Either is enough: whoever finds the other silent kills.

mod countdown;
mod guard;
mod link;
mod plan;
mod supervisor;

pub use guard::{become_command, guard, started_by_us};
pub use supervisor::{Orders, Plan, supervise};
