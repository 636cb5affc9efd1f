//! Notifies an application that cannot poll: runs the operator's hooks at each change of the leader.
//!
//! A single thread runs them in order, never two at a time, and blocks no other thread: it reads the snapshot that the
//! runner publishes. After each run it compares the snapshot with the last change that hooks ran for. So of the changes
//! that happen while a hook runs, only the newest is reported. A run that belongs to a term is stopped by the clock when
//! the term ends, so that `lost-leadership` never comes late.

mod command;
mod file;
mod kubernetes;
mod message;
mod perform;
mod post;
mod process;
mod runner;
mod synced_files;

pub use runner::{HookInputs, HooksHandle, run, set_up};
pub use synced_files::records;
pub use synced_files::sync_all;

use std::fmt;
use std::time::Duration;

/// The reason for ending a run early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// The run exceeded this time limit.
    TimedOut(Duration),
    /// The term that the run belongs to has ended.
    LostLeadership,
    /// The message is outdated.
    Overtaken,
    /// This process is shutting down.
    Leaving,
}

/// The reason why a run did not succeed.
#[derive(Debug)]
enum HookError {
    /// The hook failed, for this reason.
    Failed(String),
    /// The run was ended early. This does not count as a failure of the hook.
    CutShort(&'static str),
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(why) => why,
            Self::CutShort(why) => why,
        })
    }
}

impl From<StopReason> for HookError {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::TimedOut(limit) => Self::Failed(format!("not done within {limit:?}")),
            StopReason::LostLeadership => Self::CutShort("aborted: this member no longer leads"),
            StopReason::Overtaken => Self::CutShort("aborted: its message is outdated"),
            StopReason::Leaving => Self::CutShort("aborted: this member is shutting down"),
        }
    }
}
