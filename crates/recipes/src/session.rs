//! A session: its timeout, its heartbeats, and the lease that its acknowledged quorum writes have earned.

use crate::heartbeat::HeartbeatHistory;
use crate::lease::{HeartbeatInterval, Lease, LeasePolicy, check_turn, idle_delay};
use crate::{Moment, Sequence, SessionId};
use std::fmt;
use std::time::Duration;

/// The known state of one ZooKeeper session.
///
/// Invariant: while [`LeasedSession::lease_left`] returns a duration, the servers have not ended the session. So all
/// its ephemeral znodes exist, unless the session itself or an unknown client deleted them. Every committed write of
/// the session earns the lease, whichever znode it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeasedSession {
    id: SessionId,
    /// The smallest timeout that the session ever had.
    timeout: Duration,
    policy: LeasePolicy,
    history: HeartbeatHistory,
    heartbeat: Heartbeat,
    /// The turn of the last call of [`Self::is_first_poll_of_turn`].
    polled_in: Option<u128>,
    lease: Option<Lease>,
}

/// The record of a session that the next process resumes after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionRecord {
    pub session: SessionId,
    /// The smallest timeout that the session ever had.
    pub timeout: Duration,
    /// The moment until which the servers surely do not end the session, if known. If the next process resumes the
    /// session before then, heartbeats count as regular, so that it can have a lease at once.
    pub known_until: Option<Moment>,
    /// The last index that the member published, from which the next process continues.
    pub index: Option<u64>,
}

/// The events of a session, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// The servers granted the session that was requested at `sent_at`.
    Opened { session: SessionId, timeout: Duration, sent_at: Moment },
    /// The servers resumed the session of the previous process, with this timeout. This process requested that at
    /// `sent_at`.
    TakenOver { record: SessionRecord, timeout: Duration, sent_at: Moment },
    /// The connection is lost. The session may still exist.
    Disconnected,
    /// The session continues over a new connection, requested at `sent_at`. The server may have reduced its timeout.
    Resumed { timeout: Duration, sent_at: Moment },
    /// The session ended, with all its ephemeral znodes: the servers reported it, or none was reached for too long.
    Lost,
}

/// The last heartbeat. At most one is under way: the next one is sent only after the last was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Heartbeat {
    /// The heartbeat sent at this moment is under way.
    Sent(Moment),
    /// The heartbeat sent at this moment was answered.
    Answered(Moment),
}

/// The purpose of a session's heartbeats, which decides how often they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Duty {
    /// Three or more members are ahead, and nothing depends on regular heartbeats: they only keep the session alive.
    Idle,
    /// A lease may soon be needed: two members are ahead, or more if this member is not idle; or the session is for
    /// locks and barriers, and none is requested now.
    Wait,
    /// A lease may be needed at any moment, so enough of it must always be left: only the head is ahead, or a lock or
    /// barrier is waited for.
    StandBy,
    /// The longest lease is needed: no member is ahead, or a lock or barrier is held or can be once there is a lease.
    Hold,
}

impl SessionEvent {
    /// Returns the name for programs that read logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "session-opened",
            Self::TakenOver { .. } => "session-taken-over",
            Self::Disconnected => "disconnected",
            Self::Resumed { .. } => "session-resumed",
            Self::Lost => "session-lost",
        }
    }
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { session, timeout, .. } => {
                write!(f, "session {session} opened, timeout {timeout:?}")
            }
            Self::TakenOver { record, timeout, .. } => {
                write!(f, "session {} resumed after a restart, timeout {timeout:?}", record.session)
            }
            Self::Disconnected => f.write_str("disconnected"),
            Self::Resumed { timeout, .. } => write!(f, "session resumed, timeout {timeout:?}"),
            Self::Lost => f.write_str("session lost"),
        }
    }
}

impl LeasedSession {
    /// Begins with a session that was requested at `sent_at`. Returns `None` if its timeout allows no useful lease.
    pub(crate) fn opened(
        policy: LeasePolicy,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
    ) -> Option<Self> {
        policy.lease_duration(timeout, HeartbeatInterval::Normal)?;
        let history = HeartbeatHistory::begun(sent_at);
        let heartbeat = Heartbeat::Answered(sent_at);
        Some(Self { id, timeout, policy, history, heartbeat, polled_in: None, lease: None })
    }

    /// Continues the session over a new connection, which was requested at `sent_at` and granted at `now`. Returns
    /// `None` if the timeout granted now allows no useful lease. The smallest timeout that the session ever had counts,
    /// because a newly elected leader of the servers may use any timeout that the session has had.
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
        // With a shorter timeout, the servers end the session sooner than the lease assumed, so shorten the lease.
        self.lease =
            self.lease.map(|lease| lease.cut_to(policy.lease_duration(timeout, lease.interval())));
        Some(self)
    }

    /// Continues the session of the previous process, which was requested at `sent_at` and granted at `now` with this
    /// timeout. Returns `None` if this timeout allows no useful lease. The only knowledge kept from the previous
    /// process is until when the session surely lives, and only if the servers grant at least the same timeout as
    /// before.
    pub(crate) fn taken_over(
        policy: LeasePolicy,
        record: SessionRecord,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Option<Self> {
        // A shorter timeout may have applied for some time, so `known_until` may be too late.
        let known_until = if timeout >= record.timeout { record.known_until } else { None };
        let opened = Self::opened(policy, record.session, timeout.min(record.timeout), sent_at)?;
        Some(Self { history: HeartbeatHistory::taken_over(known_until, sent_at, now), ..opened })
    }

    /// Returns the record that the next process needs.
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

    /// Notes that a heartbeat is sent now.
    pub(crate) fn heartbeat_sent(&mut self, now: Moment) {
        self.heartbeat = Heartbeat::Sent(now);
    }

    /// Returns `now`, or a moment after the sending of the heartbeat under way, if that is later. Requests are
    /// identified by the moment of their sending, so a write sent at the returned moment is not mistaken for that
    /// heartbeat.
    pub(crate) fn after_last_heartbeat(&self, now: Moment) -> Moment {
        match self.heartbeat {
            Heartbeat::Sent(at) => now.max(at.after(Duration::from_nanos(1))),
            Heartbeat::Answered(_) => now,
        }
    }

    /// Stops waiting for the answer to the heartbeat under way. Call this when the own znode is lost: a heartbeat that
    /// checks the own znode may then never be answered.
    pub(crate) fn forget_heartbeat(&mut self) {
        let (Heartbeat::Sent(at) | Heartbeat::Answered(at)) = self.heartbeat;
        self.heartbeat = Heartbeat::Answered(at);
    }

    /// Schedules the next heartbeat as if one had been sent now and answered. The history is not changed, so this
    /// earns no lease.
    pub(crate) fn skip_heartbeat(&mut self, now: Moment) {
        self.heartbeat = Heartbeat::Answered(now);
    }

    pub(crate) fn is_heartbeat_under_way(&self) -> bool {
        matches!(self.heartbeat, Heartbeat::Sent(_))
    }

    /// Notes that a request sent at `sent_at` was answered.
    pub(crate) fn answered(&mut self, sent_at: Moment, now: Moment) {
        self.history = self.history.answered(sent_at, now, &self.policy.margins);
        if self.heartbeat == Heartbeat::Sent(sent_at) {
            self.heartbeat = Heartbeat::Answered(sent_at);
        }
    }

    /// Notes that a quorum committed a write sent at `sent_at`. If heartbeats have been regular, the write earns a
    /// lease, which starts at `sent_at`.
    pub(crate) fn committed(&mut self, sent_at: Moment, now: Moment) {
        self.answered(sent_at, now);
        self.history = self.history.committed(sent_at);
        let Some(interval) = self.history.interval(&self.policy.margins) else { return };
        let Some(duration) = self.policy.lease_duration(self.timeout, interval) else { return };
        let granted = Lease::granted(sent_at, duration, interval);
        // After a late answer, heartbeats may be regular only at the double interval, which earns a shorter lease. That
        // must not replace a longer one.
        let is_longer = match self.lease {
            Some(current) => current.until() < granted.until(),
            None => true,
        };
        if is_longer {
            self.lease = Some(granted);
        }
    }

    /// Drops the lease that the session's writes have earned so far, to compare two sessions without their leases.
    pub(crate) fn drop_lease(&mut self) {
        self.lease = None;
    }

    pub(crate) fn lease_left(&self, now: Moment) -> Option<Duration> {
        self.lease.and_then(|lease| lease.left(now))
    }

    /// Returns when the lease ends, or ended; `None` if there was none.
    pub(crate) fn lease_ends_at(&self) -> Option<Moment> {
        self.lease.map(|lease| lease.until())
    }

    /// Returns true if enough of the lease is left to begin to hold by it.
    pub(crate) fn has_enough_lease(&self, now: Moment) -> bool {
        self.lease_left(now).is_some_and(|left| left > self.policy.enough())
    }

    /// Returns true if a heartbeat sent now would come soon enough after the last one for the session to get a lease at
    /// once.
    pub(crate) fn is_unbroken(&self, now: Moment) -> bool {
        self.history.is_unbroken(now, &self.policy.margins)
    }

    /// Returns true if the heartbeat sent now is the first of a turn. Turns are periods of six session timeouts, and begin
    /// at different moments for different seeds. Once in each turn, a lock or barrier that waits asks a quorum whether
    /// the nearest znode ahead still exists.
    pub(crate) fn is_first_of_turn(&self, seed: Sequence, now: Moment) -> bool {
        let (Heartbeat::Sent(last) | Heartbeat::Answered(last)) = self.heartbeat;
        check_turn(seed, self.timeout, now) != check_turn(seed, self.timeout, last)
    }

    /// Returns true if this is the first call in a turn, and not the first in this session. Then a member that waits asks
    /// a quorum whether its predecessor still exists. Unlike [`Self::is_first_of_turn`], this remembers the turn of the
    /// last call, because the first heartbeat of a turn may have another purpose.
    pub(crate) fn is_first_poll_of_turn(&mut self, ticket: Sequence, now: Moment) -> bool {
        let turn = check_turn(ticket, self.timeout, now);
        let polled_in = self.polled_in.replace(turn);
        polled_in.is_some_and(|last| last != turn)
    }

    /// Returns when the next heartbeat is due; `None` while one is under way.
    pub(crate) fn heartbeat_due(&self, ticket: Sequence, duty: Duty) -> Option<Moment> {
        let Heartbeat::Answered(last) = self.heartbeat else { return None };
        let margins = &self.policy.margins;
        let delay = match duty {
            Duty::Idle => idle_delay(ticket, self.timeout),
            duty => margins.heartbeat_delay(ticket, self.interval_for(duty)),
        };
        Some(last.after(delay))
    }

    /// Returns the interval of the heartbeats for this duty. The double interval costs the servers less, but the lease
    /// that it earns is shorter, and may be too short for the duty.
    fn interval_for(&self, duty: Duty) -> HeartbeatInterval {
        let double = self.policy.lease_duration(self.timeout, HeartbeatInterval::Double);
        let heartbeat = self.policy.margins.heartbeat;
        // At the double interval, the next heartbeat is answered within two `heartbeat`s of the sending of the last
        // one, and enough of the last one's lease must be left until then.
        let always_enough = 2 * heartbeat + self.policy.enough();
        let is_double_enough = match duty {
            Duty::Idle | Duty::Wait => double.is_some(),
            Duty::StandBy => double.is_some_and(|double| double.0 > always_enough),
            Duty::Hold => false,
        };
        if is_double_enough { HeartbeatInterval::Double } else { HeartbeatInterval::Normal }
    }

    /// Returns the session without the parts that change with each heartbeat, so that two published states of a member
    /// differ only where readers see a difference.
    pub(crate) fn without_heartbeats(self) -> Self {
        let never = Moment(Duration::ZERO);
        let history = HeartbeatHistory::begun(never);
        Self { history, heartbeat: Heartbeat::Answered(never), polled_in: None, ..self }
    }
}
