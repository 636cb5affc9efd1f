//! Checks whether a session's heartbeats came as regularly as the [`Margins`] assume.

use crate::lease::HeartbeatInterval;
use crate::{Margins, Moment};
use std::time::Duration;

/// How regular a session's heartbeats have been.
///
/// When a session is opened or resumed, the servers' leader learns of it at once. Later heartbeats reach it only with
/// the next report of a follower, which may be lost. So after a gap, caused by a stall of the member or of the servers,
/// it is not known from when the session's timeout runs until heartbeats have been regular for as long as the margins'
/// window. Until then, no lease may be granted.
///
/// A heartbeat reached the servers at some moment between its sending and its answer. So two heartbeats reached the
/// servers at most an interval apart if the answer to the second came within an interval of the sending of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeartbeatHistory {
    /// When the last answered heartbeat was sent.
    last_sent: Moment,
    /// When the last heartbeat that surely reached the servers' leader was sent. A server that is cut off from the
    /// leader still answers reads.
    last_confirmed: Moment,
    /// Regularity at [`HeartbeatInterval::Normal`].
    normal: Regularity,
    /// Regularity at [`HeartbeatInterval::Double`].
    double: Regularity,
}

/// The regularity of heartbeats at one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Regularity {
    /// Since this moment, no two consecutive heartbeats reached the servers further apart than the interval.
    since: Moment,
    /// Whether the servers' leader surely knew at that moment that the session lives. Otherwise heartbeats have to be
    /// regular for the whole window before they earn a lease.
    known_to_leader: bool,
}

impl HeartbeatHistory {
    /// Begins with a request sent at `sent_at`, which opened the session, or resumed it while it was known to live.
    pub(crate) fn begun(sent_at: Moment) -> Self {
        Self::with_both(Regularity { since: sent_at, known_to_leader: true }, sent_at)
    }

    /// Begins with the same regularity at both intervals.
    fn with_both(regularity: Regularity, last_sent: Moment) -> Self {
        Self { last_sent, last_confirmed: last_sent, normal: regularity, double: regularity }
    }

    /// Starts again when a request, sent at `sent_at` and answered at `answered_at`, has resumed the session, which has
    /// this timeout. If the answer came so late that the servers may already have been ending the session, regularity begins
    /// with the answer.
    pub(crate) fn resumed(
        self,
        sent_at: Moment,
        answered_at: Moment,
        timeout: Duration,
        margins: &Margins,
    ) -> Self {
        Self::taken_over(self.known_until(timeout, margins), sent_at, answered_at)
    }

    /// Begins with a request, sent at `sent_at` and answered at `answered_at`, that resumed a session which was known
    /// to live until `known_until`. Only if the answer came before that moment do heartbeats count as regular at once.
    pub(crate) fn taken_over(
        known_until: Option<Moment>,
        sent_at: Moment,
        answered_at: Moment,
    ) -> Self {
        if known_until.is_some_and(|until| answered_at < until) {
            Self::begun(sent_at)
        } else {
            Self::with_both(Regularity { since: answered_at, known_to_leader: false }, sent_at)
        }
    }

    /// Returns the moment until which the session surely lives, given its timeout and how regular its heartbeats have
    /// been; `None` if nothing is known. After a resumption that is answered before that moment, heartbeats count as
    /// regular at once.
    pub(crate) fn known_until(&self, timeout: Duration, margins: &Margins) -> Option<Moment> {
        let mut known_until: Option<Moment> = None;
        for interval in HeartbeatInterval::ALL {
            if self.is_regular(interval, margins)
                && let Some(duration) = margins.for_interval(interval).lease_duration(timeout)
            {
                // For the duration of a lease after a confirmed heartbeat was sent, the session surely lives.
                known_until = known_until.max(Some(self.last_confirmed.after(duration.0)));
            }
        }
        known_until
    }

    /// Adds a heartbeat that was sent at `sent_at` and answered at `answered_at`.
    pub(crate) fn answered(self, sent_at: Moment, answered_at: Moment, margins: &Margins) -> Self {
        // This heartbeat, or a later one, was answered already, so the answer shows nothing new.
        if sent_at <= self.last_sent {
            return self;
        }
        // The heartbeat may have reached the servers as late as its answer came. If that leaves a gap, regularity
        // starts again with the answer.
        let restart_if_late = |regularity, interval| {
            if answered_at.since(self.last_sent) > margins.for_interval(interval).heartbeat {
                return Regularity { since: answered_at, known_to_leader: false };
            }
            regularity
        };
        let normal = restart_if_late(self.normal, HeartbeatInterval::Normal);
        let double = restart_if_late(self.double, HeartbeatInterval::Double);
        Self { last_sent: sent_at, normal, double, ..self }
    }

    /// Notes that a quorum committed a heartbeat that was sent at `sent_at`.
    pub(crate) fn committed(self, sent_at: Moment) -> Self {
        Self { last_confirmed: self.last_confirmed.max(sent_at), ..self }
    }

    /// Returns true if a heartbeat sent now would leave at least half of the interval for its answer, so that
    /// heartbeats can stay regular.
    pub(crate) fn is_unbroken(&self, now: Moment, margins: &Margins) -> bool {
        now.since(self.last_sent) < margins.heartbeat / 2
    }

    /// Returns the shortest interval at which heartbeats have been regular, which earns the longest lease; `None` if
    /// they have not been regular at any.
    pub(crate) fn interval(&self, margins: &Margins) -> Option<HeartbeatInterval> {
        HeartbeatInterval::ALL.into_iter().find(|interval| self.is_regular(*interval, margins))
    }

    fn is_regular(&self, interval: HeartbeatInterval, margins: &Margins) -> bool {
        let Regularity { since, known_to_leader } = match interval {
            HeartbeatInterval::Normal => self.normal,
            HeartbeatInterval::Double => self.double,
        };
        let long_enough = self.last_sent.since(since) >= margins.for_interval(interval).window();
        known_to_leader || long_enough || cfg!(bellwether_without_lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGINS: Margins = Margins { heartbeat: ms(1000), half_tick: ms(1000) };

    #[test]
    fn a_gap_is_forgiven_after_regular_heartbeats_for_the_whole_window() {
        let regular = |sent: &[u64]| is_regular(with(HeartbeatHistory::begun(at(0)), sent));
        assert!(regular(&[]));
        assert!(regular(&[1000, 2000]));
        assert!(!regular(&[1001]));
        assert!(!regular(&[2000, 3000, 4000, 4999]));
        assert!(regular(&[2000, 3000, 4000, 5000]));
        assert!(!regular(&[2000, 3000, 4000, 5001]), "another gap begins anew");
        assert!(!regular(&[2000, 1500, 1600]), "late answers to early heartbeats prove nothing");
        let resumed = HeartbeatHistory::begun(at(1000));
        assert!(is_regular(resumed.answered(at(500), at(2500), &MARGINS)), "nor disprove");
    }

    #[test]
    fn heartbeats_too_far_apart_for_the_longest_lease_are_regular_by_the_double_interval() {
        let interval = |sent: &[u64]| with(HeartbeatHistory::begun(at(0)), sent).interval(&MARGINS);
        assert_eq!(interval(&[1000, 2000]), Some(HeartbeatInterval::Normal));
        assert_eq!(interval(&[1001, 3001]), Some(HeartbeatInterval::Double));
        assert_eq!(interval(&[2001]), None);
        assert_eq!(interval(&[2001, 4001, 6001, 7000]), None);
        let after_5_s = interval(&[2001, 4001, 6001, 7001]);
        assert_eq!(after_5_s, Some(HeartbeatInterval::Double));
        let after_3_s = interval(&[1001, 2001, 3001, 4001]);
        assert_eq!(after_3_s, Some(HeartbeatInterval::Normal));
    }

    #[test]
    fn a_session_resumed_in_time_by_the_double_interval_is_as_good_as_new() {
        // The leases are 6.89 s and 4.89 s.
        let read = HeartbeatHistory::begun(at(0)).answered(at(1500), at(1500), &MARGINS);
        let resumed = |history: HeartbeatHistory, at_ms| {
            let resumed = history.resumed(at(at_ms), at(at_ms), ms(10_000), &MARGINS);
            resumed.interval(&MARGINS)
        };
        let written = read.committed(at(1500));
        assert_eq!(resumed(written, 6_389), Some(HeartbeatInterval::Normal));
        assert_eq!(resumed(written, 6_390), None);
        assert_eq!(resumed(read, 4_889), Some(HeartbeatInterval::Normal));
        assert_eq!(resumed(read, 4_890), None, "the read may have reached no other server");
    }

    #[test]
    fn a_session_resumed_late_has_to_be_regular_first() {
        // The lease is 3 s, and none where heartbeats come twice as far apart.
        let timeout = Duration::from_micros(6_106_106);
        let resumed =
            |history: HeartbeatHistory, ms| history.resumed(at(ms - 1), at(ms), timeout, &MARGINS);
        assert!(is_regular(resumed(HeartbeatHistory::begun(at(0)), 2999)));
        assert!(!is_regular(resumed(HeartbeatHistory::begun(at(0)), 3000)));
        let irregular = HeartbeatHistory::begun(at(0)).answered(at(1500), at(1500), &MARGINS);
        assert!(!is_regular(resumed(irregular, 1600)), "from when was its last heartbeat known?");
    }

    #[test]
    fn a_heartbeat_whose_answer_is_late_may_have_come_late() {
        let begun = HeartbeatHistory::begun(at(0));
        assert!(is_regular(begun.answered(at(500), at(1000), &MARGINS)));
        assert!(!is_regular(begun.answered(at(500), at(1001), &MARGINS)));
    }

    #[test]
    fn after_a_gap_regularity_begins_with_an_answer() {
        let gap = HeartbeatHistory::begun(at(0)).answered(at(1500), at(2000), &MARGINS);
        assert!(!is_regular(with(gap, &[2500, 3500, 4500])));
        assert!(is_regular(with(gap, &[2500, 3500, 4500, 5000])));
    }

    /// Adds heartbeats sent at these moments, each answered at once.
    fn with(history: HeartbeatHistory, sent_ms: &[u64]) -> HeartbeatHistory {
        sent_ms.iter().fold(history, |history, ms| history.answered(at(*ms), at(*ms), &MARGINS))
    }

    fn is_regular(history: HeartbeatHistory) -> bool {
        history.is_regular(HeartbeatInterval::Normal, &MARGINS)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }
}
