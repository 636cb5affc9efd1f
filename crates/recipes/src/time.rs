//! The moments that a recipe is given. Recipes never read a clock.

use std::time::Duration;

/// Time since a fixed moment that the runner chooses, such as the start of the machine. This type has no `now()`, so
/// that only the runner reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// Returns the moment that is `span` later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0 + span)
    }

    /// Returns the time from `earlier` to this moment; zero if this moment is before `earlier`.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
