//! The state of a member.

use super::{Endpoint, Leader, OwnBarrier, OwnLock, Role, SyncedFile};
use crate::problems::ProblemKind;
use serde::{Deserialize, Serialize};

pub const STATUS: Endpoint<Status> = Endpoint::get("/status");

#[derive(Serialize, Deserialize)]
pub struct Status {
    pub id: String,
    pub role: Role,
    /// The election's path, as it was configured.
    pub election: String,
    /// The election's path, with the chroot of the connect string in front.
    #[serde(default)]
    pub path: String,
    pub znode: Option<String>,
    pub sequence: Option<i32>,
    pub token: Option<u64>,
    pub predecessor: Option<String>,
    /// Null unless this member is right behind the head of the queue, and so is next to lead.
    pub standby: Option<Standby>,
    pub leader: Option<Leader>,
    /// The remaining time of this member's lease, in milliseconds; null unless this member leads.
    pub valid_for_ms: Option<u64>,
    /// How much the member is preferred as the leader, from 0 to 100.
    pub priority: u8,
    /// True if the member was paused.
    pub paused: bool,
    pub session: Session,
    /// The problems, the most serious first; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<OwnProblem>,
    /// Left out if the health of the application is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<Application>,
    /// In the order in which they run; left out if no hook is configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The locks that are held or waited for through this member; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<OwnLock>,
    /// The barriers that are waited for or entered through this member; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barriers: Vec<OwnBarrier>,
    /// The values of the shared configuration that are written to files; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<SyncedFile>,
    /// The index by which to wait for the next change at `/leader`; null until this member has joined.
    pub index: Option<u64>,
    pub clock: LeaseClock,
    /// The version of the program.
    pub version: String,
    pub uptime_ms: u64,
}

/// Describes a member that is next to lead: it becomes the leader when the head is gone.
#[derive(Serialize, Deserialize)]
pub struct Standby {
    /// True if the member leads as soon as it is notified that the head is gone, because its session has a lease. Otherwise
    /// the member must claim leadership first.
    pub ready: bool,
}

/// Identifies the clocks in which `valid_until_boottime_ns` and `valid_until_monotonic_ns` are measured. A process reads the
/// same clocks if it finds the same values in its own `/proc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseClock {
    /// The content of `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// The target of the link `/proc/self/ns/time`.
    pub time_namespace: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub struct Session {
    pub id: Option<String>,
    pub timeout_ms: Option<u64>,
    /// True while the session has a connection to a server.
    pub connected: bool,
    /// The server to which the session is connected; null without a connection.
    pub server: Option<String>,
    /// The problem that keeps this member from taking part in the election; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Set if this process resumed the session of the previous process; left out if this process opened the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

#[derive(Serialize, Deserialize)]
pub struct Restart {
    /// An upper bound of the time for which no process ran.
    pub down_for_ms: u64,
    /// The number of restarts that this session has outlived so far.
    pub restarts: u64,
}

/// A problem of a member, or of the election as the member sees it.
#[derive(Serialize, Deserialize)]
pub struct OwnProblem {
    /// Its name does not change.
    pub kind: ProblemKind,
    /// Describes the problem to people.
    pub problem: String,
    /// When the problem began, or when this member noticed it.
    pub since: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Application {
    /// True if the application is healthy. By default, the member is in the queue only while it is.
    pub healthy: bool,
    /// Why the last check failed, or why the application is unhealthy even though the last check succeeded, for people;
    /// null if neither is so.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hook {
    /// The action of the hook.
    pub hook: String,
    /// The changes for which the hook runs.
    pub on: Vec<String>,
    /// The number of runs that have ended.
    pub runs: u64,
    /// The number of runs that failed.
    pub failures: u64,
    /// The number of runs that were ended because this member no longer led, or left.
    pub cut_short: u64,
    /// The change for which the hook runs at the moment; null while it does not run.
    pub running: Option<String>,
    /// The last run that has ended; null if none has.
    pub last: Option<HookRun>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookRun {
    /// The change for which the hook ran.
    pub change: String,
    /// The start of the run.
    pub at: String,
    pub took_ms: u64,
    /// How the run failed, for people; null if it did not.
    pub failure: Option<String>,
}
