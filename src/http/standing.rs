//! Who leads and where this member stands. Others parse these bodies: a field is a promise.

use super::problem::{BadRequest, Problem, Unavailable};
use super::{Sight, claim};
use crate::clock::KernelTime;
use crate::desk::{Application, HookRecord, Report};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use recipes::Moment;
use recipes::election::{Announcement, Role, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, IntoResponses, ToSchema};

/// What `/leader` and the events tell.
#[derive(Serialize, ToSchema)]
#[schema(as = Told)]
pub(super) struct Body {
    /// Null while none is known.
    leader: Option<Leader>,
    /// Whether that is this member.
    is_self: bool,
    /// For how long its lease still holds, in milliseconds; only the leader knows.
    valid_for_ms: Option<u64>,
    /// When its lease ends, unless it is renewed, by `CLOCK_BOOTTIME` of this machine, in nanoseconds.
    valid_until_boottime_ns: Option<u64>,
    /// The same by `CLOCK_MONOTONIC`, which stands still while the machine is suspended.
    valid_until_monotonic_ns: Option<u64>,
    /// Grows at each change of what this member tells.
    index: u64,
}

#[derive(Serialize, ToSchema)]
struct Leader {
    id: String,
    /// Where its application can be reached.
    address: Option<String>,
    labels: BTreeMap<String, String>,
    znode: String,
    /// The fencing token: it grows from one leader to the next.
    token: u64,
    /// Whether its application has taken up its work, where it is asked to say so.
    active: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Is {
    is_leader: bool,
    role: RoleName,
    /// Whether the leader's application has taken up its work, where it is asked to say so.
    active: bool,
    leader: Option<String>,
    token: Option<u64>,
    /// When this member's lease ends, as `/leader` says it.
    valid_until_boottime_ns: Option<u64>,
    valid_until_monotonic_ns: Option<u64>,
    /// For people.
    reason: String,
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Role)]
pub(super) enum RoleName {
    Leader,
    /// First in the line, but no quorum has lately confirmed it.
    Candidate,
    Follower,
    /// Not in the line.
    Absent,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    id: String,
    role: RoleName,
    /// The election's path.
    election: String,
    znode: Option<String>,
    sequence: Option<i32>,
    token: Option<u64>,
    predecessor: Option<String>,
    /// Null unless only the head is ahead of this member.
    standby: Option<Standby>,
    leader: Option<Leader>,
    valid_for_ms: Option<u64>,
    /// Whether it was told to stay out of the line.
    paused: bool,
    session: SessionBody,
    /// Left out if its health is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<ApplicationBody>,
    /// In the order in which they run; left out if none is configured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<HookBody>,
    index: u64,
    clock: ClockBody,
    version: &'static str,
    uptime_ms: u64,
}

/// The member that leads when the head is gone.
#[derive(Serialize, ToSchema)]
pub(super) struct Standby {
    /// Whether it leads at the notification, by the lease that its session has; else it has to claim first.
    pub(super) ready: bool,
}

/// Which clocks `valid_until_boottime_ns` is of: a process that finds the same in its own `/proc` reads the
/// same ones.
#[derive(Serialize, ToSchema)]
#[schema(as = Clock)]
struct ClockBody {
    /// `/proc/sys/kernel/random/boot_id`.
    boot_id: Option<String>,
    /// `readlink /proc/self/ns/time`.
    time_namespace: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
struct SessionBody {
    id: Option<String>,
    timeout_ms: Option<u64>,
    connected: bool,
    /// Why this member is not where it wants to be; left out when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Application)]
struct ApplicationBody {
    /// Whether it may stand, and lead.
    healthy: bool,
    /// Why the last check failed, or why it is not healthy all the same, for people; else null.
    failure: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Hook)]
struct HookBody {
    /// What it does.
    hook: String,
    /// On which changes.
    on: Vec<&'static str>,
    runs: u64,
    /// How many of the runs failed.
    failures: u64,
    /// How many of them were ended because this member led no more, or left.
    cut_short: u64,
    /// On which change it runs at this moment.
    running: Option<&'static str>,
    last: Option<HookRunBody>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HookRun)]
struct HookRunBody {
    change: &'static str,
    /// When it began.
    at: String,
    took_ms: u64,
    /// How it failed, for people; null if it did not.
    failure: Option<String>,
}

/// What was told of who leads, as it was written. Whoever asks before any of it has changed is told
/// the same: to write it again would take longer than all the rest.
#[derive(Clone)]
pub(super) struct Told {
    /// The index, for how long the lease holds, in milliseconds, and until when: all the rest follows
    /// from them.
    of: (u64, Option<u64>, Option<Moment>),
    headers: HeaderMap,
    body: Bytes,
}

/// A report, judged at one moment.
pub(super) struct Verdict {
    pub(super) report: Report,
    pub(super) role: Role,
    pub(super) view: View,
    pub(super) now: Moment,
}

/// `?index=N` waits until there is news since `N`, for as long as `wait` says.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Answer once the index is another than this one.
    #[param(maximum = 18446744073709551615u64)]
    index: Option<u64>,
    /// Answer after this long at the latest: `30s`, by default `5m`, at most `10m`.
    #[param(example = "30s", pattern = "^(0|[0-9]{1,9}(ms|s|m|h))$")]
    wait: Option<String>,
}

const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Who leads, as far as this member may say.
#[utoipa::path(get, path = "/leader", params(Wait), responses(
    (status = 200, description = "Somebody leads", body = Body),
    (status = 304, description = "It is what If-None-Match says"),
    BadRequest,
    Unavailable,
))]
pub(super) async fn leader(
    State(sight): State<Sight>,
    request: Request,
) -> Result<Response, Problem> {
    let verdict = match request.uri().query() {
        Some(_) => sight.waited(request.uri()).await?,
        None => sight.judge(),
    };
    Ok(told(&sight, &verdict, request.headers()))
}

/// The same, without waiting for news.
#[utoipa::path(get, path = "/leader", responses(
    (status = 200, description = "Somebody leads", body = Body),
    Unavailable,
))]
pub(super) async fn leader_now(State(sight): State<Sight>, request: Request) -> Response {
    told(&sight, &sight.judge(), request.headers())
}

fn told(sight: &Sight, verdict: &Verdict, headers: &HeaderMap) -> Response {
    claim::follow(verdict);
    if verdict.leader().is_none() {
        let mut response = verdict.nobody_leads().into_response();
        response.headers_mut().extend(super::common_headers(sight.index(verdict)));
        return response;
    }
    let Told { body, headers: mut told, of: _ } = sight.told(verdict);
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
        let tag = told[header::ETAG].to_str().unwrap_or_default();
        let known = known.to_str().unwrap_or_default();
        known.split(',').any(|one| one.trim() == "*" || weak(one) == weak(tag))
    });
    if is_known {
        told.remove(header::CONTENT_TYPE);
        told.remove(header::CONTENT_LENGTH);
        return (StatusCode::NOT_MODIFIED, told).into_response();
    }
    let mut response = Response::new(body.into());
    *response.headers_mut() = told;
    response
}

impl Wait {
    fn length(&self) -> Result<Duration, Problem> {
        let Some(written) = &self.wait else { return Ok(WAIT_DEFAULT) };
        let length = humantime::parse_duration(written).map_err(|error| {
            Problem::bad_request(format!("wait={written:?} is no duration ({error}): write 30s"))
        })?;
        Ok(length.min(WAIT_MAX))
    }
}

/// Whether this member leads at this very moment.
#[utoipa::path(get, path = "/is-leader", params(Activity), responses(YesOrNo, BadRequest))]
pub(super) async fn is_leader(
    State(sight): State<Sight>,
    activity: Result<Query<Activity>, QueryRejection>,
) -> Result<Response, Problem> {
    let wants = Activity::wanted(activity)?;
    Ok(sight.answer(wants))
}

/// `?active=1` asks for a leader whose application has taken up its work.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Activity {
    /// `1`: no is the answer also until the leader's application has acknowledged.
    #[param(pattern = "^[01]$")]
    active: Option<String>,
}

impl Activity {
    /// # Errors
    /// The query makes no sense.
    pub(super) fn wanted(
        asked: Result<Query<Self>, QueryRejection>,
    ) -> Result<fn(&Verdict) -> bool, Problem> {
        match asked.as_ref().map(|Query(asked)| asked.active.as_deref()) {
            Ok(None | Some("0")) => Ok(Verdict::leads),
            Ok(Some("1")) => Ok(|verdict| verdict.leads() && verdict.is_active()),
            Ok(Some(other)) => {
                Err(Problem::bad_request(format!("active={other:?} must be 1 or 0")))
            }
            Err(error) => Err(Problem::bad_request(format!("{error}: write ?active=1"))),
        }
    }
}

/// Whether this member stands in the line behind somebody.
#[utoipa::path(get, path = "/is-follower", responses(YesOrNo))]
pub(super) async fn is_follower(State(sight): State<Sight>) -> Response {
    sight.answer(Verdict::follows)
}

/// The answer is the status; the body says why.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "they are schemas")]
pub(super) enum YesOrNo {
    /// It is so.
    #[response(status = 200)]
    Yes(Is),
    /// It is not so.
    #[response(status = 503)]
    No(Is),
}

/// Everything this member knows of itself.
#[utoipa::path(get, path = "/status", responses(
    (status = 200, description = "At this moment", body = Status),
))]
pub(super) async fn status(State(sight): State<Sight>) -> Json<Status> {
    let verdict = sight.judge();
    claim::follow(&verdict);
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
        standby: standing.standby_is_ready(verdict.now).map(|ready| Standby { ready }),
        leader: verdict.leader().map(|leader| sight.leader_body(leader)),
        valid_for_ms: verdict.valid_for_ms(),
        paused: standing.is_paused(),
        session: SessionBody {
            id: link.session.map(|(id, _)| id.to_string()),
            timeout_ms: link.session.map(|(_, timeout)| millis(timeout)),
            connected: link.connected,
            problem: link.problem.clone(),
        },
        application: sight
            .desk
            .application
            .borrow()
            .clone()
            .map(|Application { healthy, failure }| ApplicationBody { healthy, failure }),
        hooks: sight.desk.hooks.borrow().records.iter().map(HookBody::of).collect(),
        index: sight.index(&verdict),
        clock: ClockBody {
            boot_id: sight.clock_identity.boot_id.clone(),
            time_namespace: sight.clock_identity.time_namespace.clone(),
        },
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: millis(verdict.now.since(sight.started.at)),
    })
}

impl Sight {
    /// Judged when asked, not when last heard: the driver may be asleep, the lease is not.
    pub(super) fn judge(&self) -> Verdict {
        let report = self.desk.report.borrow().clone();
        let now = self.clock.now();
        let role = report.standing.at(now);
        Verdict { view: View::of(&role), role, report, now }
    }

    /// Whether this member leads under this token at this moment.
    pub(super) fn leads_with(&self, token: u64) -> bool {
        let now = self.clock.now();
        let role = self.desk.report.borrow().standing.at(now);
        View::of(&role).own_term().is_some_and(|own| own.0 == token)
    }

    /// Waits until the index is another than this one: at once if it comes from another life of
    /// this process. `None` if this one ends.
    pub(super) async fn changed_since(&self, seen: u64) -> Option<Verdict> {
        let mut reports = self.desk.report.clone();
        loop {
            reports.mark_unchanged();
            let verdict = self.judge();
            if self.index(&verdict) != seen {
                return Some(verdict);
            }
            // The end of a lease is a change of which nobody else tells.
            let lease_end = verdict.report.standing.changes_at(verdict.now);
            tokio::select! {
                changed = reports.changed() => changed.ok()?,
                () = self.clock.sleep_until(lease_end) => {}
            }
        }
    }

    /// As `?index=N&wait=30s` asks.
    async fn waited(&self, asked: &Uri) -> Result<Verdict, Problem> {
        let Query(wait) = Query::<Wait>::try_from_uri(asked).map_err(|error| {
            Problem::bad_request(format!("{}: write ?index=NUMBER&wait=30s", error.body_text()))
        })?;
        let length = wait.length()?;
        match wait.index {
            Some(seen) => self.news_since(seen, length).await,
            None => Ok(self.judge()),
        }
    }

    async fn news_since(&self, seen: u64, wait: Duration) -> Result<Verdict, Problem> {
        let _place = self.place()?;
        let news = tokio::time::timeout(wait, self.changed_since(seen)).await;
        Ok(news.ok().flatten().unwrap_or_else(|| self.judge()))
    }

    /// A place among those who wait for news.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = self.waiting.clone().try_acquire_owned();
        let crowded = "more streams and blocking queries are open than this member serves: close \
                       some, or poll";
        place.map_err(|_| Problem::crowded(crowded))
    }

    /// That of an answer which is made at this moment.
    pub(super) fn index_now(&self) -> u64 {
        let now = self.clock.now();
        self.started.index(self.desk.report.borrow().standing.index_at(now))
    }

    pub(super) fn index(&self, verdict: &Verdict) -> u64 {
        self.started.index(verdict.report.standing.index_at(verdict.now))
    }

    fn told(&self, verdict: &Verdict) -> Told {
        let index = self.index(verdict);
        let of = (index, verdict.valid_for_ms(), verdict.lease_end());
        let mut last = self.told[usize::from(self.shares_clock)]
            .lock()
            .expect("nobody panics while holding it");
        if let Some(told) = last.as_ref().filter(|told| told.of == of) {
            return told.clone();
        }
        let body = serde_json::to_vec(&self.body(verdict)).expect("it has nothing that JSON lacks");
        let tag = HeaderValue::try_from(self.started.tag(index));
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::ETAG, tag.expect("a tag is visible ASCII")),
            (header::CONTENT_LENGTH, HeaderValue::from(body.len())),
        ];
        let headers = headers.into_iter().chain(super::common_headers(index)).collect();
        let told = Told { of, headers, body: body.into() };
        last.insert(told).clone()
    }

    pub(super) fn body(&self, verdict: &Verdict) -> Body {
        let index = self.index(verdict);
        let until = self.valid_until(verdict);
        let valid_until_boottime_ns = until.map(|until| until.boottime_ns);
        let valid_until_monotonic_ns = until.map(|until| until.monotonic_ns);
        let valid_for_ms = verdict.valid_for_ms();
        let past = self.body_of(verdict.leader(), verdict.leads(), index);
        Body { valid_for_ms, valid_until_boottime_ns, valid_until_monotonic_ns, ..past }
    }

    /// When the lease ends, for those who can read the same clocks.
    fn valid_until(&self, verdict: &Verdict) -> Option<KernelTime> {
        let lease_end = verdict.lease_end().filter(|_| self.shares_clock)?;
        Some(self.clock.kernel_time(lease_end))
    }

    pub(super) fn answer(&self, is_so: impl Fn(&Verdict) -> bool) -> Response {
        let verdict = self.judge();
        claim::follow(&verdict);
        verdict.answer(is_so, self.valid_until(&verdict))
    }

    /// Without the lease: that of a term which others have followed is over.
    pub(super) fn body_of(&self, leader: Option<&Announcement>, is_self: bool, index: u64) -> Body {
        Body {
            leader: leader.map(|leader| self.leader_body(leader)),
            is_self,
            valid_for_ms: None,
            valid_until_boottime_ns: None,
            valid_until_monotonic_ns: None,
            index,
        }
    }

    fn leader_body(&self, announcement: &Announcement) -> Leader {
        let Announcement { leader, ticket, active } = announcement;
        Leader {
            id: leader.id.to_string(),
            address: leader.address.clone(),
            labels: leader.labels.clone(),
            znode: ticket.sequence.name(&self.names.prefix),
            token: ticket.token.0,
            active: *active,
        }
    }
}

impl HookBody {
    fn of(record: &HookRecord) -> Self {
        let HookRecord { what, on, runs, failures, cut_short, running, last, spent: _ } = record;
        let last = last.as_ref().map(|run| HookRunBody {
            change: run.change,
            at: super::date(run.at),
            took_ms: millis(run.took),
            failure: run.failure.clone(),
        });
        Self {
            hook: what.clone(),
            on: on.clone(),
            runs: *runs,
            failures: *failures,
            cut_short: *cut_short,
            running: *running,
            last,
        }
    }
}

impl RoleName {
    pub(super) fn of(role: &Role) -> Self {
        match role {
            Role::Leader { .. } => Self::Leader,
            Role::Candidate => Self::Candidate,
            Role::Follower { .. } => Self::Follower,
            Role::Absent => Self::Absent,
        }
    }
}

impl Verdict {
    pub(super) fn leader(&self) -> Option<&Announcement> {
        self.view.leader()
    }

    pub(super) fn leads(&self) -> bool {
        self.view.own_term().is_some()
    }

    /// Whether the leader's application has taken up its work.
    pub(super) fn is_active(&self) -> bool {
        self.leader().is_some_and(|leader| leader.active)
    }

    pub(super) fn follows(&self) -> bool {
        matches!(self.role, Role::Follower { .. })
    }

    fn valid_for_ms(&self) -> Option<u64> {
        self.lease_end().map(|end| millis(end.since(self.now)))
    }

    fn lease_end(&self) -> Option<Moment> {
        match &self.role {
            Role::Leader { left, .. } => Some(self.now.after(*left)),
            Role::Follower { .. } | Role::Candidate | Role::Absent => None,
        }
    }

    pub(super) fn role_name(&self) -> RoleName {
        RoleName::of(&self.role)
    }

    /// Yes or no, as the status.
    fn answer(&self, is_so: impl Fn(&Self) -> bool, until: Option<KernelTime>) -> Response {
        let status = if is_so(self) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let leader = self.leader();
        let is = Is {
            is_leader: self.leads(),
            role: self.role_name(),
            active: self.is_active(),
            leader: leader.map(|leader| leader.leader.id.to_string()),
            token: leader.map(|leader| leader.ticket.token.0),
            valid_until_boottime_ns: until.map(|until| until.boottime_ns),
            valid_until_monotonic_ns: until.map(|until| until.monotonic_ns),
            reason: self.reason(),
        };
        (status, Json(is)).into_response()
    }

    /// Why the answer is what it is, for whoever reads it at night.
    pub(super) fn reason(&self) -> String {
        match &self.role {
            Role::Leader { left, announcement } => {
                let leads = if announcement.active {
                    "this member leads"
                } else {
                    "this member is elected, and waits for its application to acknowledge it"
                };
                format!("{leads}; its lease holds for {} ms yet", millis(*left))
            }
            Role::Candidate => "first in the line, but no quorum has lately confirmed it".into(),
            Role::Follower { leader: Some(heard) } => format!("{} leads", heard.leader.id),
            Role::Follower { leader: None } => "in the line, but no leader is known yet".into(),
            Role::Absent if self.report.standing.is_paused() => {
                "not in the line: paused, until POST /resume".into()
            }
            Role::Absent if self.report.standing.is_unhealthy() => {
                "not in the line: its application is not healthy, see /status".into()
            }
            Role::Absent => match &self.report.link.problem {
                Some(problem) => format!("not in the line: {problem}"),
                None => "not in the line".into(),
            },
        }
    }

    fn nobody_leads(&self) -> Problem {
        Problem::unavailable("no-leader", "no leader is known", self.reason())
    }
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}
