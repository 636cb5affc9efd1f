//! The Prometheus metrics, evaluated at the moment of the scrape.

use super::{AppState, Verdict};
use crate::api::{Hook, OwnHoldingState, SyncedFileStatus};
use crate::problems::ProblemKind;
use crate::status::HookRecord;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Gauge, GaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder};
use recipes::election::Role;
use recipes::{AcquiredBy, ForeignClient};
use std::collections::HashMap;

/// The metrics, in the text format of Prometheus.
pub(super) async fn metrics(State(app): State<AppState>) -> impl IntoResponse {
    let text = TextEncoder.encode_to_string(&metric_families(&app));
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], text.expect("every family has a name and a sample"))
}

fn metric_families(app: &AppState) -> Vec<MetricFamily> {
    // The answer says whether this member leads, so it must not be sent after the lease.
    let verdict = app.evaluate_and_claim();
    let Verdict { snapshot, role, now, .. } = &verdict;
    let link = &snapshot.link;
    let counters = &snapshot.counters;
    let scrape = Scrape::of(&app.names.election);

    scrape.gauges(
        "bellwether_role",
        "1 for the role of this member, 0 for the others: candidate is first in the queue but unconfirmed by a \
         quorum, absent is not in the queue.",
        ["role"],
        [
            (["leader"], one_if(verdict.leads())),
            (["candidate"], one_if(*role == Role::Candidate)),
            (["follower"], one_if(verdict.follows())),
            (["absent"], one_if(*role == Role::Absent)),
        ],
    );
    scrape.gauge(
        "bellwether_paused",
        "1 if this member is paused, that is, stays out of the queue until it is resumed, else 0.",
        one_if(snapshot.standing.is_paused()),
    );
    scrape.gauge(
        "bellwether_application_healthy",
        "0 if the application of this member is known not to be healthy, else 1.",
        one_if(!snapshot.standing.is_unhealthy()),
    );
    scrape.gauge(
        "bellwether_queue_position",
        "The position of this member in the queue when it last read the queue, 1 being first: it may be further ahead by \
         now, but never further behind. 0 if it has not seen itself in the queue.",
        counters.place(&snapshot.standing).map_or(0.0, |place| place as f64),
    );
    scrape.gauge(
        "bellwether_leader_token",
        "Fencing token of the leader that this member knows; 0 if it knows none.",
        verdict.leader().map_or(0.0, |leader| leader.ticket.token.0 as f64),
    );
    scrape.gauge(
        "bellwether_duplicate_id",
        "1 if another member was seen to have the id of this member, else 0. If the other member leads, this member reports \
         no leader, and is not ready.",
        one_if(snapshot.problems.get(ProblemKind::DuplicateId).is_some()),
    );
    scrape.gauges(
        "bellwether_foreign_contenders",
        "Contenders of other ZooKeeper clients that were seen in the election's path, by client: each such client elects a \
         leader of its own there.",
        ["family"],
        ForeignClient::ALL.map(|family| {
            let queue = link.foreign.iter().find(|queue| queue.family == family);
            ([family.name()], queue.map_or(0, |queue| queue.contenders) as f64)
        }),
    );
    scrape.counter(
        "bellwether_leader_changes_total",
        "How often this member learned of a leader other than the last one that it knew.",
        counters.leader_changes as f64,
    );
    scrape.counters(
        "bellwether_handovers_total",
        "How often this member became leader, by way: at once at the notification that the head was gone, as a standby with \
         a lease, or after a claim that a quorum acknowledged.",
        ["way"],
        [
            ([AcquiredBy::Notification.name()], counters.handovers_by_notification as f64),
            ([AcquiredBy::Claim.name()], counters.handovers_by_claim as f64),
        ],
    );
    scrape.gauge(
        "bellwether_priority",
        "How much this member is preferred as the leader, from 0 to 100.",
        f64::from(snapshot.standing.priority().number()),
    );
    scrape.counter(
        "bellwether_claims_refused_total",
        "How often a quorum refused a claim of this member because another member's claim existed, or this member found its \
         own claim deleted: a ZooKeeper server has lost a transaction, or a client has deleted another's znode.",
        counters.claims_refused as f64,
    );
    scrape.counter(
        "bellwether_leaderless_seconds_total",
        "For how long this member knew of no leader, since it started.",
        counters.leaderless(*now).as_secs_f64(),
    );
    scrape.gauge(
        "bellwether_lease_remaining_seconds",
        "For how long the lease of this member holds if it is not renewed; 0 if it does not lead.",
        if let Role::Leader { left, .. } = role { left.as_secs_f64() } else { 0.0 },
    );
    scrape.add(app.status.meter.collectors());
    let has_session = link.session.is_some();
    scrape.gauges(
        "bellwether_session_state",
        "1 for the state of the session with ZooKeeper, 0 for the others. A disconnected session may still live on the servers.",
        ["state"],
        [
            (["connected"], one_if(has_session && link.connected)),
            (["disconnected"], one_if(has_session && !link.connected)),
            (["none"], one_if(!has_session)),
        ],
    );
    let age = link.session.and_then(|(session, _)| counters.age_of(session, *now));
    scrape.gauge(
        "bellwether_session_age_seconds",
        "How old the session is; 0 if there is none.",
        age.unwrap_or_default().as_secs_f64(),
    );
    scrape.gauge(
        "bellwether_session_timeout_seconds",
        "The session timeout that the servers granted last; 0 if there has been no session yet.",
        counters.granted.unwrap_or_default().as_secs_f64(),
    );
    scrape.counter(
        "bellwether_sessions_total",
        "Sessions that were opened.",
        counters.sessions as f64,
    );
    scrape.gauge(
        "bellwether_session_restarts",
        "How often the session was resumed by a next process after a restart; 0 if this process opened it.",
        link.restart.map_or(0.0, |restart| restart.restarts as f64),
    );
    scrape.gauge(
        "bellwether_session_down_seconds",
        "The longest time that there may have been no process before this one resumed the session; 0 if this one opened it.",
        link.restart.map_or(0.0, |restart| restart.down_for.as_secs_f64()),
    );
    #[cfg(feature = "kerberos")]
    if let Some(end_at) = snapshot.tickets_end_at {
        let left = end_at.duration_since(app.clock.date()).unwrap_or_default();
        scrape.gauge(
            "bellwether_kerberos_tickets_remaining_seconds",
            "For how long the Kerberos tickets of this member last; 0 if they have ended. Not there without \
             zookeeper.auth = \"kerberos\".",
            left.as_secs_f64(),
        );
    }
    hooks(&scrape, &app.status.hooks.borrow().records);
    if let Some(holdings) = &app.status.holdings {
        let locks = app.registry.locks(*now);
        let states = [("held", OwnHoldingState::Held), ("waiting", OwnHoldingState::Waiting)];
        scrape.gauges(
            "bellwether_locks",
            "Locks that applications hold or wait for through this member, by state.",
            ["state"],
            states.map(|(name, state)| {
                ([name], locks.iter().filter(|lock| lock.state == state).count() as f64)
            }),
        );
        let barriers = app.registry.barriers(*now);
        let states = [
            ("waiting", OwnHoldingState::Waiting),
            ("inside", OwnHoldingState::Inside),
            ("leaving", OwnHoldingState::Leaving),
        ];
        scrape.gauges(
            "bellwether_barriers",
            "Applications in front of barriers or inside, through this member, by state.",
            ["state"],
            states.map(|(name, state)| {
                ([name], barriers.iter().filter(|place| place.state == state).count() as f64)
            }),
        );
        scrape.add(holdings.meter.locks.collectors());
        scrape.add(holdings.meter.barriers.collectors());
    }
    if let Some(config) = &app.status.shared_config {
        scrape.add(config.meter.collectors());
        let files = app.status.synced_files.borrow();
        let current = files.iter().enumerate().map(|(n, record)| {
            let is_current = record.state == SyncedFileStatus::Current;
            ([n.to_string(), record.name.clone()], one_if(is_current))
        });
        scrape.gauges(
            "bellwether_config_file_current",
            "1 if the file has the current value in ZooKeeper, else 0. The label config is the index of the [[config]], from 0.",
            ["config", "name"],
            current,
        );
    }
    scrape.add(app.requests.collectors());
    scrape.gauges(
        "bellwether_build_info",
        "1, with the version of the program.",
        ["version"],
        [([env!("CARGO_PKG_VERSION")], 1.0)],
    );

    // Dashboards for Kubernetes' client-go read this metric. It may have no label but `name`, so it is not added to
    // `scrape`, which would add the label `election`.
    let master = Opts::new(
        "leader_election_master_status",
        "1 if this member leads, else 0; the name is the election's.",
    );
    let master = Gauge::with_opts(master.const_label("name", &app.names.election));
    let master = master.expect("the name is valid");
    master.set(one_if(verdict.leads()));
    let mut families = scrape.families();
    families.extend(master.collect());
    families
}

/// Adds the metrics of the hooks. The label of a hook is its position in the configuration, as in the log, because the
/// text of its action may be long.
fn hooks(scrape: &Scrape, records: &[HookRecord]) {
    let samples = records.iter().enumerate().flat_map(|(n, record)| {
        let Hook { runs, failures, cut_short, .. } = record.report;
        let done = runs.saturating_sub(failures + cut_short);
        let results = [("done", done), ("failed", failures), ("cut_short", cut_short)];
        results.map(|(result, count)| ([n.to_string(), result.to_owned()], count as f64))
    });
    scrape.counters(
        "bellwether_hook_runs_total",
        "Runs of hooks that have ended, by the number of the hook and by how they ended.",
        ["hook", "result"],
        samples,
    );
    let spent = records.iter().enumerate();
    scrape.counters(
        "bellwether_hook_duration_seconds_total",
        "How long the runs of a hook took together.",
        ["hook"],
        spent.map(|(n, record)| ([n.to_string()], record.spent.as_secs_f64())),
    );
}

/// The metrics of one scrape.
struct Scrape(Registry);

impl Scrape {
    /// Creates an empty registry. Each series has the election as a label.
    fn of(election: &str) -> Self {
        let labels = HashMap::from([("election".to_owned(), election.to_owned())]);
        Self(Registry::new_custom(None, Some(labels)).expect("the label is valid"))
    }

    fn add(&self, collectors: Vec<Box<dyn Collector>>) {
        for collector in collectors {
            self.0.register(collector).expect("each metric has a name of its own");
        }
    }

    /// Adds a gauge that has no label besides the election.
    fn gauge(&self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [], [([""; 0], value)]);
    }

    /// Adds a counter that has no label besides the election.
    fn counter(&self, name: &str, help: &str, value: f64) {
        self.counters(name, help, [], [([""; 0], value)]);
    }

    /// Adds a gauge for each item of `values`: the values of its labels, and the value of the gauge.
    fn gauges<const N: usize, V: AsRef<str>>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([V; N], f64)>,
    ) {
        let gauges = GaugeVec::new(Opts::new(name, help), &labels).expect("the names are valid");
        for (labels, value) in values {
            gauges.with_label_values(&labels.each_ref().map(AsRef::as_ref)).set(value);
        }
        self.add(vec![Box::new(gauges)]);
    }

    /// Adds a counter for each item of `values`: the values of its labels, and the value of the counter.
    fn counters<const N: usize, V: AsRef<str>>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([V; N], f64)>,
    ) {
        let counters =
            CounterVec::new(Opts::new(name, help), &labels).expect("the names are valid");
        for (labels, value) in values {
            counters.with_label_values(&labels.each_ref().map(AsRef::as_ref)).inc_by(value);
        }
        self.add(vec![Box::new(counters)]);
    }

    fn families(&self) -> Vec<MetricFamily> {
        let mut families = self.0.gather();
        // The registry appends the label `election` to each metric. Sort it in among the other labels.
        for metric in families.iter_mut().flat_map(MetricFamily::mut_metric) {
            let mut labels = metric.take_label();
            labels.sort();
            metric.set_label(labels);
        }
        families
    }
}

fn one_if(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ask;
    use super::super::{Authorization, ConnectionLimits, services};
    use crate::byte_budget::ByteBudget;
    use crate::clock::Clock;
    use crate::status;
    use crate::znode_names::ElectionNames;
    use http_body_util::BodyExt;
    use recipes::election::{Event, Member, Policy, Profile};
    use recipes::{
        FencingToken, Margins, MemberId, Moment, Sequence, SessionEvent, SessionId, Ticket,
    };
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    /// While the runner does not run, the last snapshot stays published, and its lease may be over.
    #[tokio::test]
    async fn a_lease_that_has_run_out_is_not_shown_though_the_last_snapshot_has_it() {
        let leads = r#"leader_election_master_status{name="/e"} 1"#;
        let fresh = scrape("/e", Duration::ZERO).await;
        assert!(fresh.contains(leads), "{fresh}");
        assert!(fresh.contains(r#"bellwether_leader_token{election="/e"} 7"#), "{fresh}");

        // The lease is 6.89 s long.
        let stale = scrape("/e", Duration::from_secs(8)).await;
        assert!(!stale.contains(leads), "{stale}");
        for line in [
            r#"leader_election_master_status{name="/e"} 0"#,
            r#"bellwether_role{election="/e",role="leader"} 0"#,
            r#"bellwether_role{election="/e",role="candidate"} 1"#,
            r#"bellwether_lease_remaining_seconds{election="/e"} 0"#,
            r#"bellwether_leader_token{election="/e"} 0"#,
        ] {
            assert!(stale.contains(line), "{line}: {stale}");
        }
        let leaderless = r#"bellwether_leaderless_seconds_total{election="/e"} "#;
        let leaderless = stale.split(leaderless).nth(1).and_then(|rest| rest.lines().next());
        let leaderless: f64 = leaderless.and_then(|value| value.parse().ok()).expect(&stale);
        assert!((1.11..8.0).contains(&leaderless), "since the lease ended: {leaderless}");
    }

    #[tokio::test]
    async fn special_characters_in_an_elections_path_are_escaped() {
        let text = scrape("/a\"b\\c\nd", Duration::ZERO).await;
        assert!(text.contains(r#"bellwether_paused{election="/a\"b\\c\nd"} 0"#), "{text}");
        assert!(text.contains(r#"status{name="/a\"b\\c\nd"} 1"#), "{text}");
    }

    /// Returns the metrics of a member whose claim was sent, and committed at once, this long ago.
    async fn scrape(election: &str, ago: Duration) -> String {
        let second = Duration::from_secs(1);
        let margins = Margins { heartbeat: second, half_tick: second };
        let id = MemberId::new("a").unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let mut member = Member::new(Arc::new(profile), Policy::new(margins));
        let clock = Clock::system();
        let then = Moment(clock.now().0.checked_sub(ago).expect("up for a while"));
        let (publisher, status) = status::set_up(&member, then);
        let sequence = Sequence::new(3).unwrap();
        let timeout = Duration::from_secs(10);
        for event in [
            Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at: then }),
            Event::Joined(Ticket { sequence, token: FencingToken(7) }),
            Event::QueueRead([sequence].into_iter().collect()),
            Event::Committed { sent_at: then },
        ] {
            let _undone = member.step(then, event);
        }
        publisher.amend(|snapshot| {
            snapshot.standing = member.standing();
            snapshot.counters.on_state(&snapshot.standing, then);
        });
        let names = ElectionNames {
            election: election.into(),
            path: election.into(),
            znodes: "leader_".into(),
        };
        let limits = ConnectionLimits::for_application(ByteBudget::of_mib(12));
        let probes = services(status, clock, names, Authorization::Header, &limits).probes;
        let body = ask(&probes, "/metrics").await.into_body();
        let text = body.collect().await.unwrap().to_bytes();
        String::from_utf8(text.to_vec()).unwrap()
    }
}
