//! Whether a session's heartbeats came as regularly as the [`Margins`] assume.

use crate::lease::HeartbeatInterval;
use crate::{Margins, Moment};
use std::time::Duration;

/// How regular a session's heartbeats have been.
///
/// When a session is opened or resumed, the servers' leader learns of it at once. A later heartbeat reaches it only
/// with the next report, which may be lost. So after a gap (the member stalled, or the servers did) it is not known
/// from when the session's timeout runs until heartbeats have been regular for as long as the margins' window, and
/// until then no lease may be granted.
///
/// A heartbeat reached the servers at some moment between its sending and its answer. So two of them reached the
/// servers no further apart than an interval if the answer to the second came within an interval of the sending of the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeartbeatHistory {
    /// When the last one was sent.
    last: Moment,
    normal: Regular,
    double: Regular,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Regular {
    /// No two heartbeats reached the servers further apart than the interval since this moment.
    since: Moment,
    /// Whether the servers' leader learned at that moment that the session lives.
    known: bool,
}

impl HeartbeatHistory {
    /// Begins when the session is opened, or resumed in time, by a request sent at this moment.
    pub(crate) fn begun(at: Moment) -> Self {
        Self::from(Regular { since: at, known: true }, at)
    }

    fn from(regular: Regular, last: Moment) -> Self {
        Self { last, normal: regular, double: regular }
    }

    /// Goes on after the session, of this timeout, was resumed by a request sent and answered at these moments. If
    /// that was so late that the servers may have been at work on its end, they learned nothing from it.
    pub(crate) fn resumed(
        self,
        sent_at: Moment,
        answered_at: Moment,
        timeout: Duration,
        margins: &Margins,
    ) -> Self {
        Self::taken_over(self.known_until(timeout, margins), sent_at, answered_at)
    }

    /// Begins when the session is resumed, by a request sent and answered at these moments, by a member that knew the
    /// session to live until then.
    pub(crate) fn taken_over(
        known_until: Option<Moment>,
        sent_at: Moment,
        answered_at: Moment,
    ) -> Self {
        if known_until.is_some_and(|until| answered_at < until) {
            Self::begun(sent_at)
        } else {
            Self::from(Regular { since: answered_at, known: false }, sent_at)
        }
    }

    /// Returns until when the session, of this timeout, surely lives, as far as heartbeats have been regular.
    pub(crate) fn known_until(&self, timeout: Duration, margins: &Margins) -> Option<Moment> {
        let regular = HeartbeatInterval::ALL
            .into_iter()
            .filter(|interval| self.is_regular(*interval, margins));
        let durations = regular.filter_map(|interval| margins.at(interval).lease_duration(timeout));
        durations.map(|duration| self.last.after(duration.0)).max()
    }

    /// Adds a heartbeat that was sent and answered at these moments.
    pub(crate) fn answered(self, sent_at: Moment, answered_at: Moment, margins: &Margins) -> Self {
        if sent_at <= self.last {
            return self;
        }
        let unless_late = |regular, interval| {
            if answered_at.since(self.last) > margins.at(interval).heartbeat {
                return Regular { since: answered_at, known: false };
            }
            regular
        };
        let normal = unless_late(self.normal, HeartbeatInterval::Normal);
        let double = unless_late(self.double, HeartbeatInterval::Double);
        Self { last: sent_at, normal, double }
    }

    /// Whether a heartbeat sent now comes within an interval of the one before, if it is answered at once.
    pub(crate) fn is_unbroken(&self, now: Moment, margins: &Margins) -> bool {
        now.since(self.last) < margins.heartbeat / 2
    }

    /// Returns the shortest interval by which the heartbeats have been regular, if any.
    pub(crate) fn interval(&self, margins: &Margins) -> Option<HeartbeatInterval> {
        HeartbeatInterval::ALL.into_iter().find(|interval| self.is_regular(*interval, margins))
    }

    fn is_regular(&self, interval: HeartbeatInterval, margins: &Margins) -> bool {
        let Regular { since, known } = match interval {
            HeartbeatInterval::Normal => self.normal,
            HeartbeatInterval::Double => self.double,
        };
        let for_long_enough = self.last.since(since) >= margins.at(interval).window();
        known || for_long_enough || cfg!(bellwether_without_lease)
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
        let double = HeartbeatHistory::begun(at(0)).answered(at(1500), at(1500), &MARGINS);
        let resumed = |at_ms| double.resumed(at(at_ms), at(at_ms), ms(10_000), &MARGINS);
        assert_eq!(resumed(6_389).interval(&MARGINS), Some(HeartbeatInterval::Normal));
        assert_eq!(resumed(6_390).interval(&MARGINS), None);
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

    /// Each answered at once.
    fn with(history: HeartbeatHistory, sent_ms: &[u64]) -> HeartbeatHistory {
        sent_ms.iter().fold(history, |it, ms| it.answered(at(*ms), at(*ms), &MARGINS))
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
