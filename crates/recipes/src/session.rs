//! One session: its timeout, its heartbeats, and the lease that its acknowledged quorum writes are worth.

use crate::heartbeat::HeartbeatHistory;
use crate::lease::{HeartbeatInterval, Lease, LeasePolicy};
use crate::{Moment, Sequence, SessionId};
use std::time::Duration;

/// The known life of one ZooKeeper session.
///
/// Invariant: while [`LeasedSession::lease_left`] says so, the servers have not ended the session, so none of its ephemeral
/// znodes is gone, unless the session itself or an unknown client's force deleted it. It does not matter which znode was
/// written, nor for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeasedSession {
    id: SessionId,
    /// The smallest that it ever had.
    timeout: Duration,
    policy: LeasePolicy,
    history: HeartbeatHistory,
    heartbeat: Heartbeat,
    lease: Option<Lease>,
}

/// The record of a session that the next process resumes after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionRecord {
    pub session: SessionId,
    /// The smallest that it ever had.
    pub timeout: Duration,
    /// Until when the servers surely do not end it, if that is known: a resumption that is answered before is in time.
    pub known_until: Option<Moment>,
    /// The last index of the member.
    pub index: Option<u64>,
}

/// The one heartbeat that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Heartbeat {
    Sent(Moment),
    Answered(Moment),
}

/// The purpose of a member's heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Duty {
    /// Others are ahead, and more than one of them.
    Wait,
    /// Only the head is ahead: the lease must have enough left at any moment.
    StandBy,
    /// None is ahead.
    Hold,
}

impl LeasedSession {
    /// Begins with a session granted to a request sent at this moment. Returns `None` if its timeout leaves no useful
    /// lease.
    pub(crate) fn opened(
        policy: LeasePolicy,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
    ) -> Option<Self> {
        policy.lease_duration(timeout, HeartbeatInterval::Normal)?;
        let history = HeartbeatHistory::begun(sent_at);
        let heartbeat = Heartbeat::Answered(sent_at);
        Some(Self { id, timeout, policy, history, heartbeat, lease: None })
    }

    /// Goes on over another connection, asked for and had at these moments. Returns `None` if the timeout granted now
    /// leaves no useful lease. The session counts for at most the smallest timeout it ever had: a new leader of the
    /// servers may go by any of them.
    pub(crate) fn resumed(
        mut self,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Option<Self> {
        let policy = self.policy;
        policy.lease_duration(timeout, HeartbeatInterval::Normal)?;
        self.timeout = self.timeout.min(timeout);
        self.history = self.history.resumed(sent_at, now, self.timeout, &policy.margins);
        self.lease =
            self.lease.map(|lease| lease.cut_to(policy.lease_duration(timeout, lease.interval())));
        Some(self)
    }

    /// Goes on with the session of a process before, asked for and had at these moments with this timeout. Returns `None`
    /// if that leaves no useful lease. Nothing is taken over but until when the session was known to live, and that only
    /// where the servers grant as much as before.
    pub(crate) fn taken_over(
        policy: LeasePolicy,
        record: SessionRecord,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Option<Self> {
        let known_until = record.known_until.filter(|_| timeout >= record.timeout);
        let opened = Self::opened(policy, record.session, timeout.min(record.timeout), sent_at)?;
        Some(Self { history: HeartbeatHistory::taken_over(known_until, sent_at, now), ..opened })
    }

    /// Returns what a next process has to know.
    pub(crate) fn record(&self, index: Option<u64>) -> SessionRecord {
        let known_until = self.history.known_until(self.timeout, &self.policy.margins);
        SessionRecord { session: self.id, timeout: self.timeout, known_until, index }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Begins a heartbeat: the request that is sent at this moment.
    pub(crate) fn heartbeat_sent(&mut self, now: Moment) {
        self.heartbeat = Heartbeat::Sent(now);
    }

    /// Waits no longer for the heartbeat under way: the request concerned a znode that is lost.
    pub(crate) fn forget_heartbeat(&mut self) {
        let (Heartbeat::Sent(at) | Heartbeat::Answered(at)) = self.heartbeat;
        self.heartbeat = Heartbeat::Answered(at);
    }

    /// Counts a pause as an answered heartbeat, as far as the next one's time is concerned.
    pub(crate) fn skip_heartbeat(&mut self, now: Moment) {
        self.heartbeat = Heartbeat::Answered(now);
    }

    pub(crate) fn is_heartbeat_under_way(&self) -> bool {
        matches!(self.heartbeat, Heartbeat::Sent(_))
    }

    /// Notes that a request sent at this moment was answered.
    pub(crate) fn answered(&mut self, sent_at: Moment, now: Moment) {
        self.history = self.history.answered(sent_at, now, &self.policy.margins);
        if self.heartbeat == Heartbeat::Sent(sent_at) {
            self.heartbeat = Heartbeat::Answered(sent_at);
        }
    }

    /// Notes that a quorum committed a write sent at this moment. As far as heartbeats have been regular, that is worth
    /// a lease, counted from the sending.
    pub(crate) fn committed(&mut self, sent_at: Moment, now: Moment) {
        self.answered(sent_at, now);
        let granted = self.history.interval(&self.policy.margins).and_then(|interval| {
            let duration = self.policy.lease_duration(self.timeout, interval)?;
            Some(Lease::granted(sent_at, duration, interval))
        });
        self.lease = granted
            .filter(|lease| self.lease.is_none_or(|known| known.until() < lease.until()))
            .or(self.lease);
    }

    /// Drops the lease that the session's writes have earned so far.
    pub(crate) fn drop_lease(&mut self) {
        self.lease = None;
    }

    pub(crate) fn lease_left(&self, now: Moment) -> Option<Duration> {
        self.lease.and_then(|lease| lease.left(now))
    }

    /// When the lease ends, or ended; `None` if there was none.
    pub(crate) fn lease_ends_at(&self) -> Option<Moment> {
        self.lease.map(|lease| lease.until())
    }

    /// Whether enough of the lease is left to begin to act on it.
    pub(crate) fn has_enough_lease(&self, now: Moment) -> bool {
        self.lease_left(now).is_some_and(|left| left > self.policy.enough())
    }

    /// Whether a member that has long done without heartbeats could be granted a lease at once.
    pub(crate) fn is_unbroken(&self, now: Moment) -> bool {
        self.history.is_unbroken(now, &self.policy.margins)
    }

    /// Whether a quorum has to answer the heartbeat that is sent now: of a member that waits, about one heartbeat in
    /// `every`.
    pub(crate) fn is_proof_due(&self, ticket: Sequence, every: u32, now: Moment) -> bool {
        let (Heartbeat::Sent(last) | Heartbeat::Answered(last)) = self.heartbeat;
        let margins = &self.policy.margins;
        margins.proof_turn(ticket, every, now) != margins.proof_turn(ticket, every, last)
    }

    /// When the next heartbeat is due, unless one is under way.
    pub(crate) fn heartbeat_due(&self, ticket: Sequence, duty: Duty) -> Option<Moment> {
        let Heartbeat::Answered(last) = self.heartbeat else { return None };
        Some(last.after(self.policy.margins.heartbeat_delay(ticket, self.interval(duty))))
    }

    fn interval(&self, duty: Duty) -> HeartbeatInterval {
        let double = self.policy.lease_duration(self.timeout, HeartbeatInterval::Double);
        let heartbeat = self.policy.margins.heartbeat;
        // The next answer comes within two heartbeats of the last sending. Until then enough must be left.
        let always_enough = 2 * heartbeat + self.policy.enough();
        let serves = match duty {
            Duty::Wait => double.is_some(),
            Duty::StandBy => double.is_some_and(|double| double.0 > always_enough),
            Duty::Hold => false,
        };
        if serves { HeartbeatInterval::Double } else { HeartbeatInterval::Normal }
    }

    /// Returns the session without what each heartbeat changes.
    pub(crate) fn without_heartbeats(self) -> Self {
        let never = Moment(Duration::ZERO);
        let history = HeartbeatHistory::begun(never);
        Self { history, heartbeat: Heartbeat::Answered(never), ..self }
    }
}
