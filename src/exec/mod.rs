//! Runs a command only while this member leads, or only while a lock is held.
//!
//! Three processes watch the command, each with its own clock. The *supervisor* is a thread of `bellwether exec`, or runs
//! in `bellwether lock`. It starts the command when there is a lease, forwards each renewal, and delays every request that
//! would end leadership until the command is dead. The *inner guard* is the command's parent. It ends the command in time,
//! even when everything else is frozen, disconnected or dead. The *outer guard* runs between the two. It and the supervisor
//! kill whatever the inner guard did not.
//!
//! All three are subreapers: when a process dies, its children are reparented to the nearest of the three above it, even if
//! they created sessions of their own. So nothing that the command started outlives the lease as long as one of the three
//! runs.

mod countdown;
mod decide;
mod guard;
mod guard_protocol;
mod signals;
mod supervisor;

pub use decide::CommandLease;
pub use guard::{run_inner_guard, run_outer_guard};
pub use signals::{SignalListener, signal_name};
pub use supervisor::{Plan, Requests, run_under, supervise};

use crate::config::KILL_MARGIN;
use std::time::Duration;

/// The exit code when `exec` or `lock` itself fails, and not the command. `env` and `timeout` use the same code.
pub const FAILED: u8 = 125;

/// How long before the end of the lease each of the three kills. Each margin is longer than it took to kill a hundred
/// processes in the measurements of docs/exec.md. The three kill one after the other, because a guard that is killed too
/// early cannot ask the command to end first.
const INNER_GUARD_KILLS: Duration = KILL_MARGIN;
const OUTER_GUARD_KILLS: Duration = Duration::from_millis(375);
const SUPERVISOR_KILLS: Duration = Duration::from_millis(250);
