//! Runs a command only while this member leads, or only while a lock is held.
//!
//! Three processes watch the command, and each measures the time itself. The first is `bellwether exec` or `bellwether
//! lock`. Its *supervisor* (in `exec`, a thread) starts the guards when there is a lease, forwards each renewal of the lease to them, and
//! delays every request that would end leadership until the command is dead. The *inner guard* is the command's parent.
//! It ends the command before the lease ends, even when the supervisor is frozen, disconnected or dead. The *outer guard*
//! is the parent of the inner guard and a child of the supervisor. It and the supervisor kill the processes that the
//! inner guard did not kill in time.
//!
//! All three are subreapers: when a process dies, its children become children of the nearest subreaper above it, even if
//! they run in Unix sessions of their own. So no process that the command started outlives the lease as long as one of
//! the three runs.

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

/// The exit code if `bellwether exec` or `bellwether lock` itself fails, and not the command. The tools `env` and
/// `timeout` use the same code.
pub const FAILED: u8 = 125;

/// How long before the end of the lease the inner guard, the outer guard and the supervisor kill the processes that are
/// left. The outer guard and the supervisor also kill the inner guard, so they come later: the inner guard must first
/// have the time to end the command itself. Each margin is longer than it took to kill a hundred processes in the
/// measurements of docs/exec.md.
const INNER_GUARD_MARGIN: Duration = KILL_MARGIN;
const OUTER_GUARD_MARGIN: Duration = Duration::from_millis(375);
const SUPERVISOR_MARGIN: Duration = Duration::from_millis(250);
