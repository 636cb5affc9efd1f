//! Leadership as a span of time, and the only clock the election knows: the one it is told.
//!
//! A session that lives when a quorum commits a write lives on for a while. How long is the
//! [`Margins`]' business; that nobody counts on it for longer is the [`Lease`]'s; that the write
//! was no lucky straggler is the [`Rhythm`]'s.

use super::FencingToken;
use std::time::Duration;

/// Time since some fixed moment of this process's life. It has no `now()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    pub fn after(self, span: Duration) -> Self {
        Self(self.0 + span)
    }

    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a committed write lets us lead. Strictly less than the session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(pub Duration);

/// What lies between a session's timeout and the term that may be built on it.
///
/// A server's followers report which sessions are alive only when the server's leader asks, every
/// `half_tick`; we give a sign of life at most `heartbeat` apart; so the timeout of a session
/// whose write was committed runs, at worst, from `heartbeat + half_tick` before that write was
/// sent. Once more `heartbeat`, in case one report is lost or the server's leader itself stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Margins {
    /// At most this far apart are two signs of life.
    pub heartbeat: Duration,
    /// Half the servers' `tickTime`: how far apart the server's leader asks its followers.
    pub half_tick: Duration,
}

impl Margins {
    /// How late the servers' own timers may fire. Seen: 15 ms.
    const JITTER: Duration = Duration::from_millis(100);
    /// One part in this many: by how much two machines' clocks may differ in rate.
    const DRIFT: u32 = 1000;

    /// The longest safe term, or `None` if it would not outlast a heartbeat.
    pub fn term(&self, session_timeout: Duration) -> Option<Term> {
        let drift = session_timeout / Self::DRIFT;
        let lost = drift + 2 * self.heartbeat + self.half_tick + Self::JITTER;
        session_timeout.checked_sub(lost).filter(|term| *term > self.heartbeat).map(Term)
    }

    /// The smallest session timeout with a useful term.
    pub fn least_session_timeout(&self) -> Duration {
        let without_drift = 3 * self.heartbeat + self.half_tick + Self::JITTER;
        without_drift * (Self::DRIFT + 1) / (Self::DRIFT - 1) + Duration::from_millis(1)
    }

    /// When to give the next sign of life: early enough that a late timer keeps to `heartbeat`.
    pub(super) fn pace(&self) -> Duration {
        self.heartbeat * 3 / 4
    }
}

/// Whether our signs of life come as regularly as [`Margins`] assumes.
///
/// After a gap (we stalled, or the servers did) nothing is known of what the session's timeout
/// runs from, so nothing may be granted until two more signs, `half_tick` apart, were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rhythm {
    last: Moment,
    gap: Gap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Gap {
    None,
    /// The sign that ended the gap is the last one.
    JustEnded,
    /// The first sign after the one that ended the gap.
    Since(Moment),
}

impl Rhythm {
    pub(super) fn begun(at: Moment) -> Self {
        Self { last: at, gap: Gap::None }
    }

    /// A sign of life sent at this moment was answered.
    pub(super) fn sign(self, sent_at: Moment, margins: &Margins) -> Self {
        if sent_at <= self.last {
            return self;
        }
        let gap = if sent_at.since(self.last) > margins.heartbeat {
            Gap::JustEnded
        } else {
            match self.gap {
                Gap::None => Gap::None,
                Gap::JustEnded => Gap::Since(sent_at),
                Gap::Since(first) if sent_at.since(first) >= margins.half_tick => Gap::None,
                Gap::Since(first) => Gap::Since(first),
            }
        };
        Self { last: sent_at, gap }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.gap == Gap::None
    }
}

/// The right to act as leader until a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    token: FencingToken,
    since: Moment,
    until: Moment,
}

impl Lease {
    /// Counted from when the write left, never from when its answer came.
    pub(super) fn granted(token: FencingToken, sent_at: Moment, term: Term) -> Self {
        Self { token, since: sent_at, until: sent_at.after(term.0) }
    }

    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// What is left of the lease, or `None` once it has run out.
    pub fn left(&self, now: Moment) -> Option<Duration> {
        self.until.0.checked_sub(now.0).filter(|left| !left.is_zero())
    }

    /// The lease as it stands if the term had been this one when it was granted.
    pub(super) fn cut_to(self, term: Term) -> Self {
        Self { until: self.until.min(self.since.after(term.0)), ..self }
    }

    pub(super) fn until(&self) -> Moment {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    const MARGINS: Margins = Margins { heartbeat: ms(1000), half_tick: ms(1000) };

    #[test]
    fn the_term_is_the_timeout_less_every_margin() {
        // 10 s - 10 ms (drift) - 2 x 1 s - 1 s - 100 ms
        assert_eq!(MARGINS.term(ms(10_000)), Some(Term(ms(6_890))));
    }

    #[test]
    fn a_term_that_does_not_outlast_a_heartbeat_is_none() {
        let least = MARGINS.least_session_timeout();
        assert!(MARGINS.term(least).is_some());
        assert!(MARGINS.term(least - ms(10)).is_none());
        assert!(MARGINS.term(ms(0)).is_none());
    }

    #[test]
    fn a_lease_ends_at_its_end() {
        let lease = Lease::granted(FencingToken(1), at(100), Term(ms(50)));
        assert_eq!(lease.left(at(149)), Some(ms(1)));
        assert_eq!(lease.left(at(150)), None);
        assert_eq!(lease.left(at(151)), None);
    }

    #[test]
    fn a_gap_is_forgiven_after_two_more_signs_half_a_tick_apart() {
        let signs = |moments: &[u64]| {
            moments.iter().fold(Rhythm::begun(at(0)), |r, &ms| r.sign(at(ms), &MARGINS)).is_steady()
        };
        assert!(signs(&[1000, 2000]));
        assert!(!signs(&[1001]));
        assert!(!signs(&[2000, 2500]));
        assert!(!signs(&[2000, 2500, 3400]));
        assert!(signs(&[2000, 2500, 3400, 3500]));
        assert!(!signs(&[2000, 2500, 3400, 4500]), "another gap begins anew");
        assert!(!signs(&[2000, 1500, 1600]), "late answers to early signs prove nothing");
    }
}
