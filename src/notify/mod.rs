//! Runs the operator's hooks at each change of the leader, for applications that cannot ask the API for it.
//!
//! A single thread runs the hooks in order, never two at a time. It blocks no other thread, because it only reads the
//! snapshot that the election's runner publishes. After the hooks for a change, it compares the snapshot with that
//! change. So of the changes that happen meanwhile, only the newest is reported, and before it the end of this member's
//! own term, if that is among them. A hook that runs because this member leads is stopped at the end of the lease, so
//! that it does not delay the hooks for `lost-leadership`.

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

/// The reason for stopping a hook before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// The hook ran longer than this time limit.
    TimedOut(Duration),
    /// The hook ran because this member led, and this member's term has ended.
    LostLeadership,
    /// The leader has changed, so the state that the hook writes is outdated.
    Overtaken,
    /// This process is shutting down.
    Leaving,
}

/// The reason why a hook did not succeed.
#[derive(Debug)]
enum HookError {
    /// The hook failed, for this reason.
    Failed(String),
    /// The hook was stopped for this reason. This does not count as a failure of the hook.
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
