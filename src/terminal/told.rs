//! What a sidecar's answers say, as far as anything is made of them here.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(super) struct Told {
    pub(super) leader: Option<Leader>,
    pub(super) is_self: bool,
    pub(super) valid_for_ms: Option<u64>,
    pub(super) index: u64,
}

#[derive(Deserialize)]
pub(super) struct Leader {
    pub(super) id: String,
    pub(super) address: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) znode: String,
    pub(super) token: u64,
    #[serde(default = "yes")]
    pub(super) active: bool,
}

/// An older sidecar knows no leader that is not.
fn yes() -> bool {
    true
}

/// An event's data.
#[derive(Deserialize)]
pub(super) struct News {
    #[serde(flatten)]
    pub(super) told: Told,
    pub(super) at: String,
    pub(super) cause: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Is {
    pub(super) is_leader: bool,
    pub(super) reason: String,
}

#[derive(Deserialize)]
pub(super) struct Status {
    pub(super) id: String,
    pub(super) role: String,
    pub(super) election: String,
    pub(super) znode: Option<String>,
    pub(super) predecessor: Option<String>,
    pub(super) leader: Option<Leader>,
    pub(super) valid_for_ms: Option<u64>,
    pub(super) paused: bool,
    pub(super) session: Session,
    pub(super) application: Option<Application>,
    #[serde(default)]
    pub(super) hooks: Vec<Hook>,
    pub(super) version: String,
    pub(super) uptime_ms: u64,
}

#[derive(Deserialize)]
pub(super) struct Application {
    pub(super) healthy: bool,
    pub(super) failure: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Hook {
    pub(super) hook: String,
    pub(super) running: Option<String>,
    pub(super) last: Option<HookRun>,
}

#[derive(Deserialize)]
pub(super) struct HookRun {
    pub(super) change: String,
    pub(super) took_ms: u64,
    pub(super) failure: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Session {
    pub(super) id: Option<String>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) connected: bool,
    pub(super) problem: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Members {
    pub(super) members: Vec<Member>,
}

#[derive(Deserialize)]
pub(super) struct Member {
    pub(super) id: Option<String>,
    pub(super) znode: String,
    pub(super) address: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) is_leader: bool,
    pub(super) is_self: bool,
    pub(super) names: Option<String>,
    pub(super) version: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct History {
    pub(super) terms: Vec<Term>,
}

#[derive(Deserialize)]
pub(super) struct Term {
    pub(super) id: String,
    pub(super) token: u64,
    pub(super) is_self: bool,
    pub(super) from: String,
    pub(super) to: Option<String>,
    pub(super) ended: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Done {
    pub(super) done: String,
    pub(super) role: String,
    pub(super) znode: Option<String>,
    pub(super) predecessor: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Problem {
    pub(super) r#type: String,
    pub(super) title: String,
    pub(super) detail: String,
}
