//! Leadership as a span of time, and the only clock the election knows: the one it is told.
//!
//! A session that lives when a quorum commits a write lives on for a while. How long is the
//! [`Margins`]' business; that nobody counts on it for longer is the [`Lease`]'s; that the write
//! was no lucky straggler is the [`Rhythm`]'s.

use super::{FencingToken, Sequence, SessionId};
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

/// By what a member leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub margins: Margins,
    pub disconnect: Disconnect,
    pub activation: Activation,
    pub unhealthy: Unhealthy,
}

impl Policy {
    /// As it is where nothing else is asked for.
    pub const fn new(margins: Margins) -> Self {
        let (activation, unhealthy) = (Activation::AtOnce, Unhealthy::StandAside);
        Self { margins, disconnect: Disconnect::Hold, activation, unhealthy }
    }
}

/// What a leader does when its connection is lost. Both are safe: the lease bounds the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Disconnect {
    /// Leads on to the end of its lease, and beyond if the session is resumed in time.
    #[default]
    Hold,
    /// Gives leadership and its place in the line up at once.
    StepDown,
}

/// When the application of a new leader counts as its.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    #[default]
    AtOnce,
    /// When it has said so. If it does not within this time, its member gives leadership up.
    OnAcknowledgement { within: Duration },
}

/// What a member does whose application is not healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unhealthy {
    /// It does not stand in the line, even if then nobody does.
    #[default]
    StandAside,
    /// It stands, and leads, only where nobody else stands.
    LeadAlone,
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

    /// What lies in between if signs of life are further apart.
    pub(super) fn at(&self, spacing: Spacing) -> Self {
        match spacing {
            Spacing::Close => *self,
            Spacing::Wide => Self { heartbeat: 2 * self.heartbeat, ..*self },
        }
    }

    /// The longest safe term, or `None` if it would not outlast a heartbeat.
    pub fn term(&self, session_timeout: Duration) -> Option<Term> {
        if cfg!(bellwether_without_lease) {
            return Some(Term(WITHOUT_LEASE));
        }
        let drift = session_timeout / Self::DRIFT;
        let lost = drift + self.looks_back() + Self::JITTER;
        session_timeout.checked_sub(lost).filter(|term| *term > self.heartbeat).map(Term)
    }

    /// From how long before a committed write was sent the session's timeout may run.
    fn looks_back(&self) -> Duration {
        2 * self.heartbeat + self.half_tick
    }

    /// The smallest session timeout with a useful term.
    pub fn least_session_timeout(&self) -> Duration {
        let without_drift = 3 * self.heartbeat + self.half_tick + Self::JITTER;
        without_drift * (Self::DRIFT + 1) / (Self::DRIFT - 1) + Duration::from_millis(1)
    }

    /// When to give the next sign of life: early enough that its answer, even from far away, is
    /// there in time for this spacing; and at a pace of each ticket's own, so that a line that was
    /// woken at once does not go on in step.
    pub(super) fn pace(&self, ticket: Sequence, spacing: Spacing) -> Duration {
        if cfg!(bellwether_without_lease) {
            return WITHOUT_LEASE;
        }
        let from = match spacing {
            Spacing::Close => 384,
            Spacing::Wide => 896,
        };
        self.heartbeat * (from + spread(ticket.number().unsigned_abs()) / 2) / 1024
    }

    /// How long to wait until looking again whether nobody stands in the line: each session in its
    /// own time, lest two that find it empty stand at once.
    pub(super) fn patience(&self, session: SessionId) -> Duration {
        // The lower half: the servers count there.
        let count = (session.0 & 0xFFFF_FFFF).try_into().unwrap_or(0);
        self.heartbeat * (1024 + 4 * spread(count)) / 1024
    }
}

/// How far apart signs of life are that a term is built on.
///
/// Those of a leader come close enough for the longest term. Whoever only stands in line gives half as many, and
/// a leader's servers may be slow for a while: all of them are worth a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spacing {
    /// A heartbeat at most.
    Close,
    /// Two.
    Wide,
}

/// From 0 to 255, and far from that of the next number.
fn spread(number: u32) -> u32 {
    number.wrapping_mul(0x9E37_79B9) >> 24
}

/// For the counter-experiment, which needs `--cfg bellwether_without_lease` and is never shipped:
/// leadership is then, as elsewhere, to be connected and first in the line. `scripts/soak
/// --without-lease` shows what comes of it.
const WITHOUT_LEASE: Duration = Duration::from_secs(365 * 86_400);

/// Whether our signs of life come as regularly as [`Margins`] assumes.
///
/// When a session is opened or resumed, the servers' leader learns of it at once. A later sign
/// reaches it only by the next report, which may be lost. So after a gap (we stalled, or the
/// servers did) nothing is known of what the session's timeout runs from until our signs have come
/// regularly for as long as the margins look back, and nothing may be granted.
///
/// A sign reached the servers at some moment between its sending and its answer. So two signs are
/// surely no further apart than a heartbeat if the answer to the second came within a heartbeat of
/// the sending of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rhythm {
    /// When the last one was sent.
    last: Moment,
    close: Regular,
    wide: Regular,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Regular {
    /// No two signs reached the servers further apart than by the spacing since this moment.
    since: Moment,
    /// Whether the servers' leader learned at that moment that the session lives.
    known: bool,
}

impl Rhythm {
    /// The session was opened or resumed by a request sent at this moment.
    pub(super) fn begun(at: Moment) -> Self {
        Self::from(Regular { since: at, known: true }, at)
    }

    fn from(regular: Regular, last: Moment) -> Self {
        Self { last, close: regular, wide: regular }
    }

    /// The session, of this timeout, was resumed by a request sent and answered at these moments. If that was
    /// so late that the servers may have been at work on its end, they learned nothing from it.
    pub(super) fn resumed(
        self,
        sent_at: Moment,
        answered_at: Moment,
        timeout: Duration,
        margins: &Margins,
    ) -> Self {
        let lives = |spacing| {
            let term = margins.at(spacing).term(timeout);
            let in_time = term.is_some_and(|term| answered_at.since(self.last) < term.0);
            self.is_steady(spacing, margins) && in_time
        };
        if lives(Spacing::Close) || lives(Spacing::Wide) {
            Self::begun(sent_at)
        } else {
            Self::from(Regular { since: answered_at, known: false }, sent_at)
        }
    }

    /// A sign of life was sent and answered at these moments.
    pub(super) fn sign(self, sent_at: Moment, answered_at: Moment, margins: &Margins) -> Self {
        if sent_at <= self.last {
            return self;
        }
        let unless_late = |regular, spacing| {
            if answered_at.since(self.last) > margins.at(spacing).heartbeat {
                return Regular { since: answered_at, known: false };
            }
            regular
        };
        let close = unless_late(self.close, Spacing::Close);
        let wide = unless_late(self.wide, Spacing::Wide);
        Self { last: sent_at, close, wide }
    }

    /// Whether a sign of life that is sent now comes within a heartbeat of the one before, if it is
    /// answered at once.
    pub(super) fn is_unbroken(&self, now: Moment, margins: &Margins) -> bool {
        now.since(self.last) < margins.heartbeat / 2
    }

    /// What the signs are regular by, if they are.
    pub(super) fn spacing(&self, margins: &Margins) -> Option<Spacing> {
        let spacings = [Spacing::Close, Spacing::Wide];
        spacings.into_iter().find(|spacing| self.is_steady(*spacing, margins))
    }

    fn is_steady(&self, spacing: Spacing, margins: &Margins) -> bool {
        let Regular { since, known } = match spacing {
            Spacing::Close => self.close,
            Spacing::Wide => self.wide,
        };
        let regular = self.last.since(since) >= margins.at(spacing).looks_back();
        known || regular || cfg!(bellwether_without_lease)
    }
}

/// The right to act as leader until a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    token: FencingToken,
    since: Moment,
    until: Moment,
    spacing: Spacing,
}

impl Lease {
    /// Counted from when the write left, never from when its answer came.
    pub(super) fn granted(
        token: FencingToken,
        sent_at: Moment,
        term: Term,
        spacing: Spacing,
    ) -> Self {
        Self { token, since: sent_at, until: sent_at.after(term.0), spacing }
    }

    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// What is left of the lease, or `None` once it has run out.
    pub fn left(&self, now: Moment) -> Option<Duration> {
        self.until.0.checked_sub(now.0).filter(|left| !left.is_zero())
    }

    /// By what it was granted.
    pub(super) fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The lease as it stands if the term had been this one when it was granted, or if there had been none.
    pub(super) fn cut_to(self, term: Option<Term>) -> Self {
        let term = term.map_or(Duration::ZERO, |term| term.0);
        Self { until: self.until.min(self.since.after(term)), ..self }
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
        // The same, less 2 x 2 s.
        assert_eq!(MARGINS.at(Spacing::Wide).term(ms(10_000)), Some(Term(ms(4_890))));
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
        let lease = Lease::granted(FencingToken(1), at(100), Term(ms(50)), Spacing::Close);
        assert_eq!(lease.left(at(149)), Some(ms(1)));
        assert_eq!(lease.left(at(150)), None);
        assert_eq!(lease.left(at(151)), None);
    }

    #[test]
    fn a_lease_that_is_cut_ends_as_if_the_term_had_always_been_so() {
        let lease = Lease::granted(FencingToken(1), at(100), Term(ms(50)), Spacing::Close);
        assert_eq!(lease.cut_to(Some(Term(ms(30)))).until(), at(130));
        assert_eq!(lease.cut_to(Some(Term(ms(80)))).until(), at(150));
        assert_eq!(lease.cut_to(None).until(), at(100));
    }

    #[test]
    fn every_pace_leaves_the_answer_half_of_the_spacing() {
        for (spacing, bounds) in
            [(Spacing::Close, ms(375)..=ms(500)), (Spacing::Wide, ms(875)..=ms(1000))]
        {
            let pace = |n| MARGINS.pace(Sequence::new(n).unwrap(), spacing);
            let paces: std::collections::BTreeSet<_> = (0..100).map(pace).collect();
            assert!(paces.iter().all(|pace| bounds.contains(pace)), "{paces:?}");
            assert!(paces.len() > 50, "neighbours do not keep in step: {paces:?}");
        }
    }

    #[test]
    fn a_gap_is_forgiven_when_signs_have_come_regularly_for_as_long_as_the_margins_look_back() {
        let steady = |signs: &[u64]| {
            let sign = |r: Rhythm, &ms| r.sign(at(ms), at(ms), &MARGINS);
            signs.iter().fold(Rhythm::begun(at(0)), sign).is_steady(Spacing::Close, &MARGINS)
        };
        assert!(steady(&[]));
        assert!(steady(&[1000, 2000]));
        assert!(!steady(&[1001]));
        assert!(!steady(&[2000, 3000, 4000, 4999]));
        assert!(steady(&[2000, 3000, 4000, 5000]));
        assert!(!steady(&[2000, 3000, 4000, 5001]), "another gap begins anew");
        assert!(!steady(&[2000, 1500, 1600]), "late answers to early signs prove nothing");
        let resumed = Rhythm::begun(at(1000));
        assert!(
            resumed.sign(at(500), at(2500), &MARGINS).is_steady(Spacing::Close, &MARGINS),
            "nor disprove"
        );
    }

    #[test]
    fn signs_too_far_apart_for_the_longest_term_are_regular_by_the_wider_spacing() {
        let spacing = |signs: &[u64]| {
            let sign = |r: Rhythm, &ms| r.sign(at(ms), at(ms), &MARGINS);
            signs.iter().fold(Rhythm::begun(at(0)), sign).spacing(&MARGINS)
        };
        assert_eq!(spacing(&[1000, 2000]), Some(Spacing::Close));
        assert_eq!(spacing(&[1001, 3001]), Some(Spacing::Wide));
        assert_eq!(spacing(&[2001]), None);
        assert_eq!(spacing(&[2001, 4001, 6001, 7000]), None);
        assert_eq!(spacing(&[2001, 4001, 6001, 7001]), Some(Spacing::Wide), "after 5 s");
        assert_eq!(spacing(&[1001, 2001, 3001, 4001]), Some(Spacing::Close), "after 3 s");
    }

    #[test]
    fn a_session_resumed_in_time_by_the_wider_spacing_is_as_good_as_new() {
        // The terms are 6.89 s and 4.89 s.
        let wide = Rhythm::begun(at(0)).sign(at(1500), at(1500), &MARGINS);
        let resumed = |at_ms| wide.resumed(at(at_ms), at(at_ms), ms(10_000), &MARGINS);
        assert_eq!(resumed(6_389).spacing(&MARGINS), Some(Spacing::Close));
        assert_eq!(resumed(6_390).spacing(&MARGINS), None);
    }

    #[test]
    fn a_session_resumed_late_has_to_show_its_rhythm_first() {
        // Their term is 3 s, and none where signs come twice as far apart.
        let timeout = Duration::from_micros(6_106_106);
        let resumed = |r: Rhythm, ms| r.resumed(at(ms - 1), at(ms), timeout, &MARGINS);
        assert!(resumed(Rhythm::begun(at(0)), 2999).is_steady(Spacing::Close, &MARGINS));
        assert!(!resumed(Rhythm::begun(at(0)), 3000).is_steady(Spacing::Close, &MARGINS));
        let unsteady = Rhythm::begun(at(0)).sign(at(1500), at(1500), &MARGINS);
        assert!(
            !resumed(unsteady, 1600).is_steady(Spacing::Close, &MARGINS),
            "from when was its last sign known?"
        );
    }

    #[test]
    fn a_sign_whose_answer_is_late_may_have_come_late() {
        let begun = Rhythm::begun(at(0));
        assert!(begun.sign(at(500), at(1000), &MARGINS).is_steady(Spacing::Close, &MARGINS));
        assert!(!begun.sign(at(500), at(1001), &MARGINS).is_steady(Spacing::Close, &MARGINS));
    }

    #[test]
    fn after_a_gap_rhythm_begins_with_an_answer() {
        let gap = Rhythm::begun(at(0)).sign(at(1500), at(2000), &MARGINS);
        let steady = |signs: &[u64]| {
            let sign = |r: Rhythm, &ms| r.sign(at(ms), at(ms), &MARGINS);
            signs.iter().fold(gap, sign).is_steady(Spacing::Close, &MARGINS)
        };
        assert!(!steady(&[2500, 3500, 4500]));
        assert!(steady(&[2500, 3500, 4500, 5000]));
    }
}
