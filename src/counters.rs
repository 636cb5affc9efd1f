//! The counters and measurements behind `/metrics`. No decision depends on them.

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts};
use recipes::election::{Event, Role, Standing};
use recipes::{AcquiredBy, FencingToken, Moment, SessionEvent, SessionId, Ticket};
use std::time::Duration;

/// The runner's counters. They are published together with the standing, and describe the same moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// The number of announcements of a leader other than the previous one.
    pub leader_changes: u64,
    /// The number of times that this member became leader because it was notified that the head was gone.
    pub handovers_by_notification: u64,
    /// The number of times that this member became leader by a claim.
    pub handovers_by_claim: u64,
    /// The number of claims of this member that a quorum refused, or whose znode was found to be gone.
    pub claims_refused: u64,
    /// The number of sessions that were opened.
    pub sessions: u64,
    /// The session timeout that the servers granted last, even if it is too short for a lease.
    pub granted: Option<Duration>,
    /// The latest moment until which a session of an earlier life (process) of this member may exist; `None` before the
    /// first session of this process.
    pub earlier_lives_end_at: Option<Moment>,
    /// The largest token that a leader had.
    pub largest_token: Option<FencingToken>,
    /// The token of the last known leader.
    last_leader: Option<FencingToken>,
    /// The token of this member's last term, so that each term is counted once.
    own_term: Option<FencingToken>,
    /// The session that was opened or taken over last, and when that request was sent.
    session_since: Option<(SessionId, Moment)>,
    /// The last known place of this member in the queue, which is 1 at the head, and the ticket that it had there.
    last_place: Option<(Ticket, usize)>,
    /// The total length of the times without a known leader that have ended.
    past_leaderless: Duration,
    /// The moment from which no leader is known; `None` while another member leads. While this member leads: the end of its
    /// lease, which may be in the future.
    leaderless_from: Option<Moment>,
}

impl Counters {
    /// Returns the counters of a member that starts now, and knows of no leader.
    pub fn new(now: Moment) -> Self {
        Self { leaderless_from: Some(now), ..Self::default() }
    }

    /// Counts an event before the member handles it.
    pub fn on_event(&mut self, event: &Event) {
        if let Event::Session(SessionEvent::TakenOver { record, sent_at, .. }) = event {
            self.session_since = Some((record.session, *sent_at));
        }
        // If a leader resumes its term after a restart, this is not a hand-over, so `count_handover` must not count it.
        self.own_term = event.resumed_term().or(self.own_term);
        self.claims_refused += u64::from(matches!(event, Event::ClaimRefused { .. }));
        if let Event::Session(SessionEvent::Opened { session, sent_at, .. }) = event {
            self.sessions += 1;
            self.session_since = Some((*session, *sent_at));
        }
        if let Event::Session(
            SessionEvent::Opened { timeout, sent_at, .. }
            | SessionEvent::TakenOver { timeout, sent_at, .. }
            | SessionEvent::Resumed { timeout, sent_at },
        ) = event
        {
            self.granted = Some(*timeout);
            // An earlier life of this member has sent nothing since this request. Its session ends within a timeout and
            // one tick, because the servers check for expired sessions once a tick. A timeout is at least two ticks, so
            // a tick is at most half a timeout. If the servers elect a new leader, this leader restarts all timeouts,
            // but the connections also break: this session is then resumed, which updates this moment.
            self.earlier_lives_end_at = Some(sent_at.after(*timeout + *timeout / 2));
        }
    }

    /// Updates the counters with the standing after an event.
    pub fn on_state(&mut self, standing: &Standing, now: Moment) {
        if let (Some(ticket), Some(place)) = (standing.ticket(), standing.place()) {
            self.last_place = Some((ticket, place));
        }
        self.count_handover(standing);
        let role = standing.at(now);
        let leaderless_from = match role {
            // A moment in the future: without another event, this member leads until its lease ends.
            Role::Leader { .. } => standing.changes_at(now),
            Role::Follower { leader: Some(_) } => None,
            // If this member's lease ended before this call, the time without a leader began then.
            _ => Some(self.leaderless_from.map_or(now, |from| from.min(now))),
        };
        if let Some(leader) = role.leader() {
            let token = leader.ticket.token;
            self.leader_changes += u64::from(self.last_leader.is_some_and(|last| last != token));
            self.last_leader = Some(token);
            self.largest_token = self.largest_token.max(Some(token));
            // Add the time without a leader that has just ended.
            self.past_leaderless = self.leaderless(now);
        }
        self.leaderless_from = leaderless_from;
    }

    /// Counts how this member became leader: once for each of its terms, although many standings belong to one term.
    fn count_handover(&mut self, standing: &Standing) {
        let term = standing.acquired_by().zip(standing.ticket());
        let Some((acquired_by, Ticket { token, .. })) = term else { return };
        if self.own_term == Some(token) {
            return;
        }
        self.own_term = Some(token);
        match acquired_by {
            AcquiredBy::Notification => self.handovers_by_notification += 1,
            AcquiredBy::Claim => self.handovers_by_claim += 1,
        }
    }

    /// Returns the total time for which no leader was known.
    pub fn leaderless(&self, now: Moment) -> Duration {
        // `since` is zero for a moment in the future.
        let current = self.leaderless_from.map_or(Duration::ZERO, |from| now.since(from));
        self.past_leaderless + current
    }

    /// Returns the age of this session; `None` if it is not the session that was opened or taken over last.
    pub fn age_of(&self, session: SessionId, now: Moment) -> Option<Duration> {
        self.session_since.filter(|(known, _)| *known == session).map(|(_, at)| now.since(at))
    }

    /// Returns an upper bound of this member's place in the queue: the members ahead of it only become fewer. `None` until
    /// the member has seen itself in the queue.
    pub fn place(&self, standing: &Standing) -> Option<usize> {
        let ticket = standing.ticket()?;
        // A place that was read with an earlier ticket does not count.
        self.last_place.filter(|(seen, _)| *seen == ticket).map(|(_, place)| place)
    }
}

/// Measurements of the election's requests.
#[derive(Debug)]
pub struct Meter {
    pub renewals: IntCounterVec,
    pub renewal_duration: Histogram,
    pub transfers: IntCounterVec,
    pub preemptions: IntCounterVec,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            renewals: counter_by_result(
                "bellwether_renewals_total",
                "Renewals of the leader's or the standby's lease, by outcome: a quorum committed it, ZooKeeper refused it, or \
                 it is not known.",
                &["committed", "refused", "unanswered"],
            ),
            renewal_duration: histogram(
                "bellwether_renewal_duration_seconds",
                "How long renewals took that were committed.",
            ),
            transfers: counter_by_result(
                "bellwether_transfers_total",
                "Transfers that this member was asked for while it led, by outcome.",
                &["done", "failed"],
            ),
            preemptions: counter_by_result(
                "bellwether_preemptions_total",
                "Attempts of this member, while it led, to hand over to a member of higher priority, by outcome.",
                &["done", "failed"],
            ),
        }
    }
}

impl Meter {
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.renewals.clone()),
            Box::new(self.renewal_duration.clone()),
            Box::new(self.transfers.clone()),
            Box::new(self.preemptions.clone()),
        ]
    }
}

/// Returns the value of the label `result` for a transfer or a preemption.
pub fn outcome(is_done: bool) -> &'static str {
    if is_done { "done" } else { "failed" }
}

/// Measurements of locks, or of barriers, that clients request through this member.
#[derive(Debug)]
pub struct HoldingMeter {
    /// How long clients waited for locks that they acquired, or for barriers that they entered.
    pub waits: Histogram,
    /// The number of locks, or of places in barriers, that were lost before their clients released or left them.
    pub lost: IntCounter,
}

impl HoldingMeter {
    pub fn of_locks() -> Self {
        Self {
            waits: histogram(
                "bellwether_lock_wait_seconds",
                "How long clients waited for the locks that they acquired.",
            ),
            lost: counter(
                "bellwether_locks_lost_total",
                "Locks that were lost: their lease ran out, their session ended, or their znode was deleted by force.",
            ),
        }
    }

    pub fn of_barriers() -> Self {
        Self {
            waits: histogram(
                "bellwether_barrier_wait_seconds",
                "How long clients waited for the barriers that they entered.",
            ),
            lost: counter(
                "bellwether_barriers_lost_total",
                "Places in barriers that were lost: their lease ran out, their session ended, or their znode was deleted by \
                 force.",
            ),
        }
    }

    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.waits.clone()), Box::new(self.lost.clone())]
    }
}

/// Measurements of the shared configuration.
#[derive(Debug)]
pub struct ConfigMeter {
    pub watched: IntGauge,
    pub changes: IntCounter,
    pub writes: IntCounterVec,
}

impl Default for ConfigMeter {
    fn default() -> Self {
        let watched = IntGauge::new(
            "bellwether_config_watched",
            "Names of the shared configuration that are watched through this member.",
        );
        Self {
            watched: watched.expect("the name is valid"),
            changes: counter(
                "bellwether_config_changes_total",
                "Changes of values that were seen while they were watched.",
            ),
            writes: counter_by_result(
                "bellwether_config_writes_total",
                "Writes of values through this member, by outcome.",
                &["done", "refused", "failed"],
            ),
        }
    }
}

impl ConfigMeter {
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.watched.clone()),
            Box::new(self.changes.clone()),
            Box::new(self.writes.clone()),
        ]
    }
}

/// The upper bounds of the buckets in seconds: from a round trip to a nearby quorum to the default session timeout.
const BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

fn histogram(name: &str, help: &str) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(BUCKETS.into());
    Histogram::with_opts(options).expect("the name is valid")
}

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect("the name is valid")
}

/// Creates a counter for each value of the label `result`. Each series exists from the start with the value 0, because
/// Prometheus would not count the first increment of a series that appears later.
fn counter_by_result(name: &str, help: &str, results: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), &["result"]);
    let counters = counters.expect("the names are valid");
    for result in results {
        let _created = counters.with_label_values(&[result]);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{Announcement, Member, Policy, Profile, ZnodeData};
    use recipes::{Margins, MemberId, Sequence, SessionRecord};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// With the default margins, a lease is 6.89 s of a session of ten.
    const LEASE_MS: u64 = 6_890;

    #[test]
    fn time_without_a_leader_begins_when_the_lease_ends_however_late_that_is_noticed() {
        let mut watched = CountedMember::new(at(0));
        assert_eq!(watched.leaderless(400), 400);
        watched.step(at(1_000), opened(1, at(1_000)));
        watched.step(at(1_000), Event::Joined(ticket(1)));
        watched.step(at(1_000), queue_read(&[1]));
        watched.step(at(2_000), Event::Committed { sent_at: at(1_000) });
        assert_eq!(watched.leaderless(1_000 + LEASE_MS), 2_000);
        assert_eq!(watched.leaderless(1_000 + LEASE_MS + 300), 2_300, "before it has woken");
        watched.step(at(20_000), Event::Woke);
        assert_eq!(watched.leaderless(20_000), 2_000 + 20_000 - 1_000 - LEASE_MS);
    }

    #[test]
    fn what_the_servers_granted_last_is_known_when_there_is_no_session_any_more() {
        let mut counters = Counters::new(at(0));
        assert_eq!(counters.granted, None);
        let timeout = Duration::from_secs(3);
        let sent_at = at(0);
        counters.on_event(&Event::Session(SessionEvent::Opened {
            session: SessionId(1),
            timeout,
            sent_at,
        }));
        counters.on_event(&Event::Session(SessionEvent::Lost));
        assert_eq!(counters.granted, Some(timeout));
        let timeout = Duration::from_secs(2);
        counters.on_event(&Event::Session(SessionEvent::Resumed { timeout, sent_at }));
        assert_eq!(counters.granted, Some(timeout));
    }

    #[test]
    fn a_leader_that_is_announced_again_is_no_change() {
        let mut watched = CountedMember::following(&[1, 2, 7]);
        let read = |leader| Event::PredecessorRead {
            predecessor: ticket(2),
            announcement: leads(leader),
            distance: None,
        };
        watched.step(at(0), read(1));
        watched.step(at(0), read(1));
        assert_eq!(watched.counters.leader_changes, 0, "the first is no change");
        watched.step(at(0), Event::HeadGone { head: number(1), sent_at: at(0) });
        watched.step(at(3_000), read(2));
        assert_eq!(watched.counters.leader_changes, 1);
        assert_eq!(watched.leaderless(9_000), 3_000);
    }

    #[test]
    fn a_place_is_that_of_the_ticket_with_which_it_was_seen() {
        let mut watched = CountedMember::following(&[1, 2, 7]);
        assert_eq!(watched.place(), Some(3));
        watched.step(at(0), Event::TicketLost(ticket(7)));
        assert_eq!(watched.place(), None);
        watched.step(at(0), Event::Joined(ticket(9)));
        assert_eq!(watched.place(), None);
        watched.step(at(0), queue_read(&[2, 9]));
        assert_eq!(watched.place(), Some(2));
        watched.step(at(0), gone(2));
        assert_eq!(watched.place(), Some(1));
    }

    #[test]
    fn a_place_is_one_less_when_the_head_is_gone() {
        let mut watched = CountedMember::following(&[1, 2, 7]);
        watched.step(at(0), Event::HeadGone { head: number(1), sent_at: at(0) });
        assert_eq!(watched.place(), Some(2));
    }

    #[test]
    fn a_handover_is_counted_once_by_its_way() {
        let counted = |w: &CountedMember| {
            (w.counters.handovers_by_notification, w.counters.handovers_by_claim)
        };
        let mut alone = CountedMember::following(&[7]);
        alone.step(at(0), Event::Committed { sent_at: at(0) });
        alone.step(at(900), Event::Committed { sent_at: at(900) });
        assert_eq!(counted(&alone), (0, 1));
        let mut second = CountedMember::following(&[1, 7]);
        second.step(
            at(0),
            Event::PredecessorRead { predecessor: ticket(1), announcement: None, distance: None },
        );
        second.step(at(0), Event::Committed { sent_at: at(0) });
        second.step(at(0), gone(1));
        assert_eq!(counted(&second), (1, 0));
    }

    #[test]
    fn a_leader_that_is_back_after_a_restart_hands_over_nothing() {
        let mut watched = CountedMember::new(at(0));
        let timeout = Duration::from_secs(10);
        let session = SessionId(1);
        let known_until = Some(at(9_000));
        let record = SessionRecord { session, timeout, known_until, index: None };
        watched.step(
            at(0),
            Event::Session(SessionEvent::TakenOver { record, timeout, sent_at: at(0) }),
        );
        let announcement = Some(Announcement { leader: profile("me"), ticket: ticket(1) });
        let data = Some(ZnodeData { announcement, ..ZnodeData::of(profile("me")) });
        watched.step(at(0), Event::TicketFound { ticket: ticket(1), data });
        watched.step(at(0), queue_read(&[1]));
        watched.step(at(0), Event::Committed { sent_at: at(0) });
        assert!(watched.member.standing().acquired_by().is_some());
        let Counters { handovers_by_notification, handovers_by_claim, sessions, granted, .. } =
            watched.counters;
        assert_eq!((handovers_by_notification, handovers_by_claim, sessions), (0, 0, 0));
        assert_eq!(granted, Some(timeout));
        assert_eq!(watched.counters.age_of(SessionId(1), at(5_000)), Some(Duration::from_secs(5)));
    }

    #[test]
    fn an_age_is_that_of_the_session_which_was_opened() {
        let watched = CountedMember::following(&[1, 7]);
        let age = |session| watched.counters.age_of(SessionId(session), at(5_000));
        assert_eq!((age(1), age(2)), (Some(Duration::from_secs(5)), None));
    }

    struct CountedMember {
        member: Member,
        counters: Counters,
    }

    impl CountedMember {
        fn new(now: Moment) -> Self {
            let second = Duration::from_secs(1);
            let margins = Margins { heartbeat: second, half_tick: second };
            let policy = Policy::new(margins);
            Self { member: Member::new(profile("me"), policy), counters: Counters::new(now) }
        }

        /// A member that is the last in the queue.
        fn following(numbers: &[i32]) -> Self {
            let mut watched = Self::new(at(0));
            watched.step(at(0), opened(1, at(0)));
            let last = numbers.last().expect("the queue is not empty");
            watched.step(at(0), Event::Joined(ticket(*last)));
            watched.step(at(0), queue_read(numbers));
            watched
        }

        fn step(&mut self, now: Moment, event: Event) {
            self.counters.on_event(&event);
            let _undone = self.member.step(now, event);
            self.counters.on_state(&self.member.standing(), now);
        }

        fn leaderless(&self, ms: u64) -> u64 {
            self.counters.leaderless(at(ms)).as_millis().try_into().unwrap()
        }

        fn place(&self) -> Option<usize> {
            self.counters.place(&self.member.standing())
        }
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn opened(session: i64, sent_at: Moment) -> Event {
        let timeout = Duration::from_secs(10);
        Event::Session(SessionEvent::Opened { session: SessionId(session), timeout, sent_at })
    }

    fn number(number: i32) -> Sequence {
        Sequence::new(number).unwrap()
    }

    fn ticket(n: i32) -> Ticket {
        Ticket { sequence: number(n), token: FencingToken(n.unsigned_abs().into()) }
    }

    fn gone(n: i32) -> Event {
        let Ticket { sequence, token } = ticket(n);
        Event::PredecessorGone { predecessor: sequence, token: Some(token) }
    }

    fn queue_read(numbers: &[i32]) -> Event {
        Event::QueueRead(numbers.iter().map(|n| number(*n)).collect())
    }

    fn leads(number: i32) -> Option<Announcement> {
        Some(Announcement { leader: profile("first"), ticket: ticket(number) })
    }

    fn profile(name: &str) -> Arc<Profile> {
        let id = MemberId::new(name).unwrap();
        Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision: 0 })
    }
}
