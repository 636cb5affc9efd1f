//! How long an acknowledged quorum write guarantees that a session lives.

use crate::{Moment, Sequence, SessionId};
use std::time::Duration;

/// How long an acknowledged quorum write lets a member hold. Always less than the session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseDuration(pub Duration);

/// The margin between a session's timeout and the lease that may be built on it.
///
/// The servers' followers report which sessions are alive only when the servers' leader asks, every `half_tick`, and a
/// member's heartbeats are at most `heartbeat` apart. So the timeout of a session whose write was committed starts, at
/// worst, `heartbeat + half_tick` before that write was sent. Another `heartbeat` covers one lost report, or one stall
/// of the servers' leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Margins {
    /// The longest time between two heartbeats.
    pub heartbeat: Duration,
    /// Half the servers' `tickTime`: how often the servers' leader asks its followers.
    pub half_tick: Duration,
}

/// How far apart the heartbeats may be on which a lease is based.
///
/// A holder sends heartbeats often enough for the longest lease. A member that only waits sends half as many, and slow
/// servers may delay a holder's heartbeats: heartbeats that are up to twice as far apart earn a shorter lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeartbeatInterval {
    /// At most `Margins::heartbeat`.
    Normal,
    /// At most twice `Margins::heartbeat`.
    Double,
}

impl HeartbeatInterval {
    pub(crate) const ALL: [Self; 2] = [Self::Normal, Self::Double];
}

/// The rules for leases: the margins, and the work that a lease must leave time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeasePolicy {
    pub(crate) margins: Margins,
    /// The time that it takes to end the work done under a lease. Work begins under a lease only while more than this
    /// time and one heartbeat are left of it.
    pub(crate) reserve: Duration,
}

/// The right to hold until a moment, earned by a write that a quorum acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// When the write was sent.
    since: Moment,
    /// When the lease ends.
    until: Moment,
    /// The interval at which heartbeats were regular when the lease was granted.
    interval: HeartbeatInterval,
}

impl Margins {
    /// How late the servers' own timers may fire. 15 ms were measured; the rest is reserve.
    const TIMER_MARGIN: Duration = Duration::from_millis(100);
    /// Allowance for clock drift: the rates of two machines' clocks may differ by one part in this many.
    const DRIFT: u32 = 1000;

    /// Returns the margins for heartbeats that are this far apart.
    pub(crate) fn for_interval(&self, interval: HeartbeatInterval) -> Self {
        match interval {
            HeartbeatInterval::Normal => *self,
            HeartbeatInterval::Double => Self { heartbeat: 2 * self.heartbeat, ..*self },
        }
    }

    /// Returns the longest safe lease in a session of this timeout, or `None` if that lease would end before the next
    /// heartbeat can renew it.
    pub fn lease_duration(&self, session_timeout: Duration) -> Option<LeaseDuration> {
        if cfg!(bellwether_without_lease) {
            return Some(LeaseDuration(WITHOUT_LEASE));
        }
        let drift = session_timeout / Self::DRIFT;
        let margin = drift + self.window() + Self::TIMER_MARGIN;
        session_timeout
            .checked_sub(margin)
            .filter(|duration| *duration > self.heartbeat)
            .map(LeaseDuration)
    }

    /// Returns how long before the sending of a committed write the session's timeout may have started.
    pub(crate) fn window(&self) -> Duration {
        2 * self.heartbeat + self.half_tick
    }

    /// Returns the smallest session timeout that allows a useful lease.
    pub fn least_session_timeout(&self) -> Duration {
        // The timeout for which `lease_duration` returns just more than a heartbeat. That function takes off one part
        // in DRIFT for drift, which the division adds again. The `+ 1` and the millisecond round up.
        let without_drift = 3 * self.heartbeat + self.half_tick + Self::TIMER_MARGIN;
        without_drift * (Self::DRIFT + 1) / (Self::DRIFT - 1) + Duration::from_millis(1)
    }

    /// Returns how long after a heartbeat the next one is sent: early enough that its answer, even from a distant
    /// server, arrives within the interval. The delay differs between tickets, so that members that are woken at the
    /// same time do not keep sending at the same time.
    pub(crate) fn heartbeat_delay(
        &self,
        ticket: Sequence,
        interval: HeartbeatInterval,
    ) -> Duration {
        if cfg!(bellwether_without_lease) {
            return WITHOUT_LEASE;
        }
        // The delay is 7/16 to 8/16 of the longest time between heartbeats, so at least half of that time is left for
        // the answer. A shorter delay would cost more requests and not make the lease longer.
        let longest = self.for_interval(interval).heartbeat;
        longest * (7 * 256 + jitter(ticket.number().unsigned_abs())) / (16 * 256)
    }

    /// Returns how long a member that foreign contenders keep out of the queue waits before it reads the queue again:
    /// one to two times `heartbeat`. The delay differs between sessions, so that members do not read and join all at
    /// once.
    pub(crate) fn recheck_delay(&self, session: SessionId) -> Duration {
        // ZooKeeper increments the low half of session ids, so that half spreads the delays.
        let count = (session.0 & 0xFFFF_FFFF).try_into().unwrap_or(0);
        self.heartbeat * (1024 + 4 * jitter(count)) / 1024
    }
}

/// Returns how long after a heartbeat the next one is sent when heartbeats need not be regular. The client library
/// pings when it has sent nothing for 0.225 of the session timeout, or for 10 s. The heartbeat comes just before that,
/// and so replaces the ping.
pub(crate) fn idle_delay(ticket: Sequence, session_timeout: Duration) -> Duration {
    let longest = (session_timeout * 22 / 100).min(Duration::from_millis(9_800));
    // The delay is 63/64 to 64/64 of the longest, so that members do not send all at once.
    longest * (63 * 256 + jitter(ticket.number().unsigned_abs())) / (64 * 256)
}

/// Returns the number of the turn to which `moment` belongs. A turn lasts for six session timeouts, and a member that
/// waits asks a quorum once in each turn. Turns start at different times for different tickets, so that waiting members
/// do not ask all at once.
pub(crate) fn check_turn(ticket: Sequence, session_timeout: Duration, moment: Moment) -> u128 {
    let period = 6 * session_timeout;
    let offset = period * jitter(ticket.number().unsigned_abs()) / 256;
    (moment.0 + offset).as_nanos() / period.as_nanos().max(1)
}

/// Returns a number from 0 to 255, far from the result for the next ticket or session (Fibonacci hashing).
fn jitter(number: u32) -> u32 {
    number.wrapping_mul(0x9E37_79B9) >> 24
}

/// A lease that in effect never ends, for an experiment that shows what leases prevent. The experiment needs
/// `--cfg bellwether_without_lease` and is never shipped: a member then leads while it is connected and first in the
/// queue, as in other clients. `scripts/soak --without-lease` shows the outcome.
const WITHOUT_LEASE: Duration = Duration::from_secs(365 * 86_400);

impl LeasePolicy {
    /// Returns the duration of the lease that an acknowledged quorum write earns at this heartbeat interval; `None` if
    /// so short a lease is not useful.
    pub(crate) fn lease_duration(
        &self,
        session_timeout: Duration,
        interval: HeartbeatInterval,
    ) -> Option<LeaseDuration> {
        let duration = self.margins.for_interval(interval).lease_duration(session_timeout);
        duration.filter(|duration| duration.0 > self.enough())
    }

    /// Returns the part of a lease that must be left to begin work under it. If a shorter part were left, the work
    /// would have to be ended before the next heartbeat can renew the lease.
    pub(crate) fn enough(&self) -> Duration {
        self.margins.heartbeat + self.reserve
    }
}

impl Lease {
    /// Creates a lease that starts when the write was sent, not when its answer came.
    pub(crate) fn granted(
        sent_at: Moment,
        duration: LeaseDuration,
        interval: HeartbeatInterval,
    ) -> Self {
        Self { since: sent_at, until: sent_at.after(duration.0), interval }
    }

    /// Returns what is left of the lease, or `None` once it has run out.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        self.until.0.checked_sub(now.0).filter(|left| !left.is_zero())
    }

    pub(crate) fn interval(&self) -> HeartbeatInterval {
        self.interval
    }

    /// Shortens the lease to `duration`, counted from its start, unless it is shorter already. With `None`, when no
    /// lease is useful any longer, it ends at its start.
    pub(crate) fn cut_to(self, duration: Option<LeaseDuration>) -> Self {
        let duration = duration.map_or(Duration::ZERO, |duration| duration.0);
        Self { until: self.until.min(self.since.after(duration)), ..self }
    }

    pub(crate) fn until(&self) -> Moment {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGINS: Margins = Margins { heartbeat: ms(1000), half_tick: ms(1000) };

    #[test]
    fn the_lease_is_the_timeout_less_every_margin() {
        // 10 s - 10 ms (drift) - 2 x 1 s - 1 s - 100 ms
        assert_eq!(MARGINS.lease_duration(ms(10_000)), Some(LeaseDuration(ms(6_890))));
        // The same, less 2 x 2 s.
        let double = MARGINS.for_interval(HeartbeatInterval::Double);
        assert_eq!(double.lease_duration(ms(10_000)), Some(LeaseDuration(ms(4_890))));
    }

    #[test]
    fn a_lease_that_does_not_outlast_a_heartbeat_is_none() {
        let least = MARGINS.least_session_timeout();
        assert!(MARGINS.lease_duration(least).is_some());
        assert!(MARGINS.lease_duration(least - ms(10)).is_none());
        assert!(MARGINS.lease_duration(ms(0)).is_none());
    }

    #[test]
    fn a_lease_ends_at_its_end() {
        let lease = granted(100, 50);
        assert_eq!(lease.left(at(149)), Some(ms(1)));
        assert_eq!(lease.left(at(150)), None);
        assert_eq!(lease.left(at(151)), None);
    }

    #[test]
    fn a_lease_that_is_cut_ends_as_if_its_duration_had_always_been_so() {
        let lease = granted(100, 50);
        assert_eq!(lease.cut_to(Some(LeaseDuration(ms(30)))).until(), at(130));
        assert_eq!(lease.cut_to(Some(LeaseDuration(ms(80)))).until(), at(150));
        assert_eq!(lease.cut_to(None).until(), at(100));
    }

    #[test]
    fn every_delay_leaves_the_answer_time_to_arrive_within_the_interval() {
        for (interval, bounds) in [
            (HeartbeatInterval::Normal, ms(437)..=ms(500)),
            (HeartbeatInterval::Double, ms(875)..=ms(1000)),
        ] {
            let delay = |n| MARGINS.heartbeat_delay(Sequence::new(n).unwrap(), interval);
            let delays: std::collections::BTreeSet<_> = (0..100).map(delay).collect();
            assert!(delays.iter().all(|delay| bounds.contains(delay)), "{delays:?}");
            assert!(delays.len() > 50, "neighbours do not keep in step: {delays:?}");
        }
    }

    #[test]
    fn an_idle_member_heartbeats_before_the_client_library_pings() {
        let delay = |n| idle_delay(Sequence::new(n).unwrap(), ms(10_000));
        let delays: std::collections::BTreeSet<_> = (0..100).map(delay).collect();
        assert!(delays.iter().all(|delay| (ms(2165)..=ms(2200)).contains(delay)), "{delays:?}");
        assert!(delays.len() > 50, "neighbours do not keep in step: {delays:?}");
        let longest = idle_delay(Sequence::new(1).unwrap(), ms(600_000));
        assert!((ms(9_600)..=ms(9_800)).contains(&longest), "{longest:?}");
    }

    fn granted(since_ms: u64, duration_ms: u64) -> Lease {
        Lease::granted(at(since_ms), LeaseDuration(ms(duration_ms)), HeartbeatInterval::Normal)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }
}
