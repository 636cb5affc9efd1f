//! Tells an application that cannot ask: runs the operator's hooks at each change of who leads.
//!
//! One thread runs them in order, never two at a time, and blocks no other thread: it reads the snapshot that
//! the runner publishes. It remembers what it told last, and compares that with the snapshot when it has time
//! again; so of the changes that come while a hook runs, only the newest is told. A hook that runs for a
//! term is cut short when the term ends, by the clock, so that `lost-leadership` never comes late.

mod command;
mod file;
mod kept;
mod label;
mod message;
mod post;
mod process;
mod runner;

pub use kept::keep_all;
pub use kept::records;
pub use message::HookNames;
pub use runner::{HookInputs, HooksHandle, run, set_up};

use std::fmt;
use std::time::Duration;

/// Why a run is ended before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// It has taken this long.
    Late(Duration),
    /// It ran for a term that has ended.
    LeadsNoMore,
    /// Its message is outdated.
    Overtaken,
    /// This process ends.
    Leaving,
}

/// Why a run did not succeed.
#[derive(Debug)]
enum HookError {
    Failed(String),
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
    fn from(enough: StopReason) -> Self {
        match enough {
            StopReason::Late(limit) => Self::Failed(format!("not done within {limit:?}")),
            StopReason::LeadsNoMore => Self::CutShort("cut short, as this member leads no more"),
            StopReason::Overtaken => Self::CutShort("cut short, as that is not so any more"),
            StopReason::Leaving => Self::CutShort("cut short, as this member is to be gone"),
        }
    }
}
