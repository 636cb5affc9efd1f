//! Decides from the results of several checks whether the application is healthy. Pure: no clock and no requests.

/// The application's health, which changes only after several checks in a row with the same result.
///
/// Otherwise, an application that fails at every other check would move leadership back and forth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debounce {
    /// The number of failures in a row that make the application unhealthy, and of successes in a row that make it healthy
    /// again. An application that was never healthy becomes so with its first success.
    needed: u32,
    is_healthy: bool,
    was_ever_healthy: bool,
    /// The number of the latest checks, in a row, whose result contradicts `is_healthy`.
    contradicting: u32,
}

impl Debounce {
    pub(super) fn new(needed: u32) -> Self {
        Self { needed, is_healthy: false, was_ever_healthy: false, contradicting: 0 }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy
    }

    /// Handles the result of a check. Returns true if the application's health has changed.
    pub(super) fn note(&mut self, succeeded: bool) -> bool {
        if succeeded == self.is_healthy {
            self.contradicting = 0;
            return false;
        }
        self.contradicting += 1;
        if self.was_ever_healthy && self.contradicting < self.needed {
            return false;
        }
        self.is_healthy = succeeded;
        self.was_ever_healthy = true;
        self.contradicting = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes checks, which succeed at `+` and fail at `-`. Returns what changed at each: `H` to healthy, `U` to unhealthy,
    /// `.` nothing.
    fn changes(checks: &str) -> String {
        let mut debounce = Debounce::new(3);
        let check = |check| match (debounce.note(check == '+'), debounce.is_healthy()) {
            (false, _) => '.',
            (true, true) => 'H',
            (true, false) => 'U',
        };
        checks.chars().map(check).collect()
    }

    #[test]
    fn it_is_healthy_from_its_first_success_on_and_unhealthy_after_so_many_failures_in_a_row() {
        assert_eq!(changes("--+--+---"), "..H.....U");
    }

    #[test]
    fn it_is_healthy_again_after_as_many_successes_in_a_row() {
        assert_eq!(changes("+---++-+++--"), "H..U.....H..");
    }
}
