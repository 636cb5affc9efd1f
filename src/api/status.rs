//! The state of a member.

use super::{Get, Leader, OwnBarrier, OwnLock, Role, SyncedFile};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const STATUS: Get<Status> = Get::at("/status");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub id: String,
    pub role: Role,
    /// The election's path.
    pub election: String,
    pub znode: Option<String>,
    pub sequence: Option<i32>,
    pub token: Option<u64>,
    pub predecessor: Option<String>,
    /// Null unless only the head is ahead of this member.
    pub standby: Option<Standby>,
    pub leader: Option<Leader>,
    pub valid_for_ms: Option<u64>,
    /// How much it is preferred as the leader, from 0 to 100.
    #[schema(maximum = 100)]
    pub priority: u8,
    /// Whether it was told to stay out of the queue.
    pub paused: bool,
    pub session: Session,
    /// Problems, the gravest first; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<OwnProblem>,
    /// Left out if its health is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<Application>,
    /// In the order in which they run; left out if none is configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The locks that are held or waited for through this member; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<OwnLock>,
    /// The barriers that are waited for or entered through this member; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barriers: Vec<OwnBarrier>,
    /// The values of the shared configuration that are kept as files; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<SyncedFile>,
    pub index: Option<u64>,
    pub clock: LeaseClock,
    pub version: String,
    pub uptime_ms: u64,
}

/// The member that leads when the head is gone.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Standby {
    /// Whether it leads at the notification, by the lease that its session has; else it has to claim first.
    pub ready: bool,
}

/// Which clocks `valid_until_boottime_ns` is of: a process that finds the same in its own `/proc` reads the
/// same ones.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct LeaseClock {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// `readlink /proc/self/ns/time`.
    pub time_namespace: Option<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Session {
    pub id: Option<String>,
    pub timeout_ms: Option<u64>,
    pub connected: bool,
    /// The server that it is connected with; null without a connection.
    #[schema(required = true)]
    pub server: Option<String>,
    /// Why this member is not where it wants to be; left out when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How the session came from a process before; left out where this one opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Restart {
    /// The longest time for which there may have been no process.
    pub down_for_ms: u64,
    /// The number of times that the session has been resumed after a restart.
    pub restarts: u64,
}

/// A problem of a member, or of the election as the member sees it.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct OwnProblem {
    /// Tells problems apart, and stays the same: `paused`, `unhealthy`, `zookeeper`, `foreign`, `unknown-znode`, `no-leader`,
    /// `duplicate-id`, `newer-format`, `longer-session`, `tick-time`, `slow-zookeeper`, `session-file` or `hook`.
    pub kind: String,
    /// For people.
    pub problem: String,
    pub since: String,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Application {
    /// Whether it is healthy: by default only then is this member in the queue.
    pub healthy: bool,
    /// Why the last check failed, or why it is not healthy all the same, for people; else null.
    pub failure: Option<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Hook {
    /// The action of the hook.
    pub hook: String,
    /// On which changes.
    pub on: Vec<String>,
    pub runs: u64,
    /// How many of the runs failed.
    pub failures: u64,
    /// The number of runs that were ended because this member no longer led, or left.
    pub cut_short: u64,
    /// On which change it runs at this moment.
    pub running: Option<String>,
    pub last: Option<HookRun>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct HookRun {
    pub change: String,
    /// When it began.
    pub at: String,
    pub took_ms: u64,
    /// How it failed, for people; null if it did not.
    pub failure: Option<String>,
}
