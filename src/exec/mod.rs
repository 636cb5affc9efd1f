//! Runs a command only while this member leads, or only while a lock is held.
//!
//! Three processes watch over it, each by its own clock. The *supervisor* is a thread of `bellwether exec`, or runs in
//! `bellwether lock`: it starts the command when there is a lease, passes on each renewal, and lets no request end
//! leadership before the command is dead. The *inner guard* is the command's parent: it ends the
//! command in time, also when everything else is frozen, cut off or dead. The *outer guard*, between them, and
//! the supervisor kill what the inner guard has not.
//!
//! All three are subreapers: when a process dies, its children go to the nearest of them above it,
//! whatever sessions they made for themselves. So nothing that the command started outlives the lease as
//! long as one of the three runs.

mod countdown;
mod decide;
mod guard;
mod guard_protocol;
mod supervisor;

pub use decide::CommandLease;
pub use guard::{guard_command, guard_guard};
pub use supervisor::{Plan, Requests, run_under, supervise};

use crate::config::KILL_MARGIN;
use std::time::Duration;

/// The exit code where `exec` or `lock` itself fails, and not the command: as `env` and `timeout` have it.
pub const FAILED: u8 = 125;

/// How long before the end of the lease each of the three kills: each has longer than it took for a hundred processes
/// where that was measured (docs/exec.md). Each waits for the one before it, since a guard that is killed too early cannot
/// first ask the command to end.
const INNER_GUARD_KILLS: Duration = KILL_MARGIN;
const OUTER_GUARD_KILLS: Duration = Duration::from_millis(375);
const SUPERVISOR_KILLS: Duration = Duration::from_millis(250);
