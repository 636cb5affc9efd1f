//! Decides from the results of many checks whether the application is healthy. Pure.
//!
//! A single failure does not count, and neither does a single success after failures: an application that keeps failing and
//! recovering would move leadership back and forth. So each time it becomes unhealthy again, its checks have to succeed for
//! twice as long before it counts as healthy. This is reset when the application has stayed healthy for ten times as long.

use recipes::Moment;
use std::time::Duration;

/// The longest time for which checks have to succeed before an application counts as healthy again.
const LONGEST_PROOF: Duration = Duration::from_secs(300);
/// After this many times `proof` in good health, earlier failures no longer count.
const FORGIVEN_AFTER: u32 = 10;

/// Decides the application's health from the results of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debounce {
    /// The number of failures in a row that make the application unhealthy.
    failures: u32,
    /// The interval between two checks.
    interval: Duration,
    /// How long the checks must succeed before the application counts as healthy again.
    proof: Duration,
    state: DebounceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DebounceState {
    /// No check has succeeded yet.
    Unknown,
    /// Healthy since this moment. So many of the last checks failed, in a row.
    Healthy { since: Moment, failed: u32 },
    /// Unhealthy. The checks have succeeded since this moment, if the last one did.
    Unhealthy { succeeding_since: Option<Moment> },
}

impl Debounce {
    pub(super) fn new(failures: u32, interval: Duration) -> Self {
        Self { failures, interval, proof: Duration::ZERO, state: DebounceState::Unknown }
    }

    pub(super) fn is_healthy(&self) -> bool {
        matches!(self.state, DebounceState::Healthy { .. })
    }

    /// Returns how much longer the checks must succeed until the application counts as healthy; `None` unless it is
    /// unhealthy and the last check succeeded.
    pub(super) fn left_to_prove(&self, now: Moment) -> Option<Duration> {
        match self.state {
            DebounceState::Unhealthy { succeeding_since: Some(since) } => {
                Some(self.proof.saturating_sub(now.since(since)))
            }
            _ => None,
        }
    }

    /// Returns the state after a check, and the new health if it has changed.
    pub(super) fn after(self, succeeded: bool, now: Moment) -> (Self, Option<bool>) {
        let healthy = DebounceState::Healthy { since: now, failed: 0 };
        let (state, proof) = match (self.state, succeeded) {
            (DebounceState::Unknown, true) => (healthy, self.proof),
            (DebounceState::Unknown, false) => (DebounceState::Unknown, self.proof),
            (DebounceState::Healthy { since, .. }, true) => {
                let forgiven = now.since(since) >= FORGIVEN_AFTER * self.proof;
                let proof = if forgiven { Duration::ZERO } else { self.proof };
                (DebounceState::Healthy { since, failed: 0 }, proof)
            }
            (DebounceState::Healthy { since, failed }, false) if failed + 1 < self.failures => {
                (DebounceState::Healthy { since, failed: failed + 1 }, self.proof)
            }
            (DebounceState::Healthy { .. }, false) => {
                let proof = (2 * self.proof).clamp(self.interval, LONGEST_PROOF.max(self.interval));
                (DebounceState::Unhealthy { succeeding_since: None }, proof)
            }
            (DebounceState::Unhealthy { .. }, false) => {
                (DebounceState::Unhealthy { succeeding_since: None }, self.proof)
            }
            (DebounceState::Unhealthy { succeeding_since }, true) => {
                let since = succeeding_since.unwrap_or(now);
                let proved = now.since(since) >= self.proof;
                let unhealthy = DebounceState::Unhealthy { succeeding_since: Some(since) };
                (if proved { healthy } else { unhealthy }, self.proof)
            }
        };
        let next = Self { state, proof, ..self };
        let has_changed = next.is_healthy() != self.is_healthy();
        (next, has_changed.then(|| next.is_healthy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a check each second, which succeeds at `+` and fails at `-`. Returns what changed at each: `H` to healthy,
    /// `U` to unhealthy, `.` nothing.
    fn changes(debounce: &mut Debounce, from: u64, checks: &str) -> String {
        let check = |(n, check): (usize, char)| {
            let now = Moment(Duration::from_secs(from + n as u64));
            let (next, turned) = debounce.after(check == '+', now);
            *debounce = next;
            match turned {
                None => '.',
                Some(true) => 'H',
                Some(false) => 'U',
            }
        };
        checks.chars().enumerate().map(check).collect()
    }

    fn patient() -> Debounce {
        Debounce::new(3, Duration::from_secs(1))
    }

    #[test]
    fn it_is_healthy_from_its_first_success_on_and_unhealthy_after_so_many_failures_in_a_row() {
        assert_eq!(changes(&mut patient(), 0, "--+--+---"), "..H.....U");
    }

    #[test]
    fn each_time_its_checks_have_to_succeed_for_twice_as_long() {
        assert_eq!(changes(&mut patient(), 0, "+---++"), "H..U.H");
        let mut relapsed = patient();
        assert_eq!(changes(&mut relapsed, 0, "+---++---++"), "H..U.H..U..");
        assert_eq!(
            relapsed.left_to_prove(Moment(Duration::from_secs(10))),
            Some(Duration::from_secs(1))
        );
        assert_eq!(changes(&mut relapsed, 11, "+"), "H");
        assert_eq!(changes(&mut patient(), 0, "+---++---+-+++"), "H..U.H..U....H", "in a row");
        assert_eq!(changes(&mut patient(), 0, "+---++---+++---++++++"), "H..U.H..U..H..U....H.");
    }

    #[test]
    fn failures_before_a_long_time_of_health_are_forgotten() {
        let mut debounce = patient();
        changes(&mut debounce, 0, "+---++");
        assert_eq!(changes(&mut debounce, 15, "+---++"), "...U.H", "after ten seconds of health");
        assert_eq!(changes(&mut debounce, 29, "+---+++"), "...U..H", "after nine");
    }

    #[test]
    fn no_application_is_kept_out_for_ever() {
        let mut debounce = Debounce::new(1, Duration::from_secs(200));
        assert_eq!(changes(&mut debounce, 0, "+-"), "HU");
        for n in 1..9 {
            assert_eq!(changes(&mut debounce, 10_000 * n, "+"), ".");
            assert_eq!(changes(&mut debounce, 10_000 * n + 301, "+-"), "HU");
        }
    }
}
