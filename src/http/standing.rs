//! Who leads and where this member stands. Others parse these bodies: a field is a promise.

use super::Sight;
use super::problem::Problem;
use crate::desk::Report;
use crate::election::{Announcement, Moment, Role};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The driver turns every second; after this long it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

#[derive(Serialize)]
pub(super) struct LeaderBody {
    leader: Leader,
    is_self: bool,
    valid_for_ms: Option<u64>,
    index: u64,
}

#[derive(Serialize)]
struct Leader {
    id: String,
    address: Option<String>,
    labels: BTreeMap<String, String>,
    znode: String,
    token: u64,
}

#[derive(Serialize)]
pub(super) struct Is {
    is_leader: bool,
    role: &'static str,
    leader: Option<String>,
    token: Option<u64>,
    reason: String,
}

#[derive(Serialize)]
pub(super) struct Status {
    id: String,
    role: &'static str,
    election: String,
    znode: Option<String>,
    sequence: Option<i32>,
    token: Option<u64>,
    predecessor: Option<String>,
    leader: Option<Leader>,
    valid_for_ms: Option<u64>,
    session: SessionBody,
    index: u64,
    version: &'static str,
    uptime_ms: u64,
}

#[derive(Serialize)]
struct SessionBody {
    id: Option<String>,
    timeout_ms: Option<u64>,
    connected: bool,
    /// Why this member is not where it wants to be; left out when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Health {
    status: &'static str,
    reason: String,
}

/// A report, judged at one moment.
pub(super) struct Verdict {
    pub(super) report: Report,
    pub(super) role: Role,
    now: Moment,
}

pub(super) async fn leader(State(sight): State<Sight>) -> Result<Json<LeaderBody>, Problem> {
    let verdict = sight.judge();
    let Some(leader) = verdict.leader() else { return Err(verdict.nobody_leads()) };
    Ok(Json(LeaderBody {
        leader: sight.leader_body(leader),
        is_self: verdict.leads(),
        valid_for_ms: verdict.valid_for_ms(),
        index: verdict.index(),
    }))
}

pub(super) async fn is_leader(State(sight): State<Sight>) -> (StatusCode, Json<Is>) {
    let verdict = sight.judge();
    (yes_or_no(verdict.leads()), Json(verdict.is()))
}

pub(super) async fn is_follower(State(sight): State<Sight>) -> (StatusCode, Json<Is>) {
    let verdict = sight.judge();
    (yes_or_no(matches!(verdict.role, Role::Follower { .. })), Json(verdict.is()))
}

pub(super) async fn status(State(sight): State<Sight>) -> Json<Status> {
    let verdict = sight.judge();
    let Report { standing, link, .. } = &verdict.report;
    let ticket = standing.ticket();
    let prefix = &sight.names.prefix;
    Json(Status {
        id: standing.profile().id.to_string(),
        role: verdict.role_name(),
        election: sight.names.election.clone(),
        znode: ticket.map(|ticket| ticket.sequence.name(prefix)),
        sequence: ticket.map(|ticket| ticket.sequence.number()),
        token: ticket.map(|ticket| ticket.token.0),
        predecessor: standing.predecessor().map(|predecessor| predecessor.name(prefix)),
        leader: verdict.leader().map(|leader| sight.leader_body(leader)),
        valid_for_ms: verdict.valid_for_ms(),
        session: SessionBody {
            id: link.session.map(|(id, _)| id.to_string()),
            timeout_ms: link.session.map(|(_, timeout)| millis(timeout)),
            connected: link.connected,
            problem: link.problem.clone(),
        },
        index: verdict.index(),
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: millis(verdict.now.since(sight.started_at)),
    })
}

/// Sound as long as the election's loop turns, whether or not ZooKeeper is there.
pub(super) async fn livez(State(sight): State<Sight>) -> (StatusCode, Json<Health>) {
    let verdict = sight.judge();
    let idle = verdict.now.since(verdict.report.turned_at);
    let stuck = idle > STUCK_AFTER;
    let reason = if stuck {
        format!("the election's loop has not turned for {idle:?}")
    } else {
        "the election's loop turns".into()
    };
    (yes_or_no(!stuck), Json(Health { status: if stuck { "fail" } else { "pass" }, reason }))
}

/// Ready to answer: this member stands in the line and knows a leader, itself or another.
pub(super) async fn readyz(State(sight): State<Sight>) -> (StatusCode, Json<Health>) {
    let verdict = sight.judge();
    let ready = verdict.report.standing.ticket().is_some() && verdict.leader().is_some();
    let reason = verdict.reason();
    (yes_or_no(ready), Json(Health { status: if ready { "pass" } else { "fail" }, reason }))
}

impl Sight {
    /// Judged when asked, not when last heard: the driver may be asleep, the lease is not.
    pub(super) fn judge(&self) -> Verdict {
        let report = self.desk.report.borrow().clone();
        let now = self.clock.now();
        Verdict { role: report.standing.at(now), report, now }
    }

    fn leader_body(&self, announcement: &Announcement) -> Leader {
        let Announcement { leader, ticket } = announcement;
        Leader {
            id: leader.id.to_string(),
            address: leader.address.clone(),
            labels: leader.labels.clone(),
            znode: ticket.sequence.name(&self.names.prefix),
            token: ticket.token.0,
        }
    }
}

impl Verdict {
    pub(super) fn leader(&self) -> Option<&Announcement> {
        match &self.role {
            Role::Leader { announcement, .. } => Some(announcement),
            Role::Follower { heard } => heard.as_ref(),
            Role::Candidate | Role::Absent => None,
        }
    }

    fn leads(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    fn valid_for_ms(&self) -> Option<u64> {
        match &self.role {
            Role::Leader { left, .. } => Some(millis(*left)),
            Role::Follower { .. } | Role::Candidate | Role::Absent => None,
        }
    }

    fn index(&self) -> u64 {
        self.report.standing.index_at(self.now)
    }

    fn role_name(&self) -> &'static str {
        match self.role {
            Role::Leader { .. } => "leader",
            Role::Candidate => "candidate",
            Role::Follower { .. } => "follower",
            Role::Absent => "absent",
        }
    }

    fn is(&self) -> Is {
        let leader = self.leader();
        Is {
            is_leader: self.leads(),
            role: self.role_name(),
            leader: leader.map(|leader| leader.leader.id.to_string()),
            token: leader.map(|leader| leader.ticket.token.0),
            reason: self.reason(),
        }
    }

    /// Why the answer is what it is, for whoever reads it at night.
    pub(super) fn reason(&self) -> String {
        match &self.role {
            Role::Leader { left, .. } => {
                format!("this member leads; its lease holds for {} ms yet", millis(*left))
            }
            Role::Candidate => "first in the line, but no quorum has lately confirmed it".into(),
            Role::Follower { heard: Some(heard) } => format!("{} leads", heard.leader.id),
            Role::Follower { heard: None } => "in the line, but no leader is known yet".into(),
            Role::Absent => match &self.report.link.problem {
                Some(problem) => format!("not in the line: {problem}"),
                None => "not in the line".into(),
            },
        }
    }

    fn nobody_leads(&self) -> Problem {
        Problem::unavailable("no leader is known", self.reason())
    }
}

fn yes_or_no(yes: bool) -> StatusCode {
    if yes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}
