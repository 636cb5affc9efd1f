//! Terms in a row that ended as the application did not acknowledge them: each takes longer to begin, so that an
//! application that never does has no member elected again and again.

use recipes::election::{Role, Standing};
use recipes::{FencingToken, Moment};
use std::time::Duration;

/// From the second such term to the next.
const FIRST_DELAY: Duration = Duration::from_secs(30);
const LONGEST_DELAY: Duration = Duration::from_secs(300);

/// How many terms in a row were not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unacknowledged {
    terms: u32,
    last: Option<FencingToken>,
}

impl Unacknowledged {
    /// Counts a term that is over, once.
    pub(super) fn ended(&mut self, token: Option<FencingToken>) {
        if token.is_some() && self.last != token {
            self.terms += 1;
            self.last = token;
        }
    }

    /// Forgets the count as soon as a leader, this member or another, is active.
    pub(super) fn stands(&mut self, standing: &Standing, now: Moment) {
        let is_active = match standing.at(now) {
            Role::Leader { announcement, .. } | Role::Follower { leader: Some(announcement) } => {
                announcement.active
            }
            Role::Follower { leader: None } | Role::Candidate | Role::Absent => false,
        };
        if is_active {
            *self = Self::default();
        }
    }

    /// How long to wait before joining again. A first time may be chance.
    pub(super) fn delay(self) -> Duration {
        match self.terms.checked_sub(2) {
            None => Duration::ZERO,
            Some(more) => FIRST_DELAY.saturating_mul(1 << more.min(8)).min(LONGEST_DELAY),
        }
    }

    /// Explains to operators why this member is not in the queue, if it waits.
    pub(super) fn problem(self) -> Option<String> {
        let Self { terms, last: _ } = self;
        let delay = self.delay();
        (!delay.is_zero()).then(|| {
            format!(
                "the application has not acknowledged {terms} terms in a row (POST /ack, bellwether ack), so this \
                 member waits {delay:?} before it joins again"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_are_not_acknowledged_follow_ever_slower() {
        let mut terms = Unacknowledged::default();
        let delays = [1, 2, 2, 3, 4, 5, 6, 7].map(|token| {
            terms.ended(Some(FencingToken(token)));
            terms.delay().as_secs()
        });
        assert_eq!(delays, [0, 30, 30, 60, 120, 240, 300, 300]);
        assert!(terms.problem().unwrap().contains("7 terms in a row"));
        assert_eq!(Unacknowledged::default().problem(), None);
    }
}
