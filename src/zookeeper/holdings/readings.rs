//! The readings of one queue: one at a time, each for all holdings that have requested it.

use recipes::holding::HoldingId;

#[derive(Default)]
pub(super) struct Readings {
    /// The holdings that requested the current reading; `None` if no reading is running.
    under_way: Option<Vec<HoldingId>>,
    /// The holdings that have requested a reading since the current one began.
    next: Vec<HoldingId>,
}

impl Readings {
    /// Notes that a holding requests a reading. Returns true if a reading must begin.
    pub(super) fn ask(&mut self, id: HoldingId) -> bool {
        if !self.next.contains(&id) {
            self.next.push(id);
        }
        self.begin()
    }

    /// Notes that the current reading has ended. Returns the holdings that requested it, and whether the next must begin.
    pub(super) fn end(&mut self) -> (Vec<HoldingId>, bool) {
        let asked = self.under_way.take().unwrap_or_default();
        (asked, self.begin())
    }

    /// Returns one of the holdings that requested the current reading.
    pub(super) fn one(&self) -> Option<HoldingId> {
        self.under_way.iter().flatten().copied().next()
    }

    /// Forgets the requests of a holding whose znode was replaced or removed.
    pub(super) fn forget(&mut self, id: HoldingId) {
        let both = self.under_way.iter_mut().chain([&mut self.next]);
        both.for_each(|ids| ids.retain(|other| *other != id));
    }

    fn begin(&mut self) -> bool {
        let begins = self.under_way.is_none() && !self.next.is_empty();
        if begins {
            self.under_way = Some(std::mem::take(&mut self.next));
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HoldingId = HoldingId(1);
    const B: HoldingId = HoldingId(2);

    #[test]
    fn one_reading_at_a_time_answers_all_that_asked_before_it_began() {
        let mut readings = Readings::default();
        assert!(readings.ask(A));
        assert!(!readings.ask(B) && !readings.ask(B), "one is under way");
        assert!(!readings.ask(A), "what it asks now may be newer than that one");
        assert_eq!(readings.end(), (vec![A], true));
        assert_eq!(readings.end(), (vec![B, A], false));
        assert!(readings.ask(B));
    }

    /// Such a reading does not show its new znode, which would pass for the fault of a server.
    #[test]
    fn a_reading_that_began_before_one_joined_anew_is_not_for_it() {
        let mut readings = Readings::default();
        assert!(readings.ask(A));
        readings.forget(A);
        assert!(!readings.ask(A), "the one before is still under way");
        assert_eq!(readings.end(), (vec![], true));
        assert_eq!(readings.end(), (vec![A], false));
        readings.ask(A);
        readings.ask(B);
        readings.forget(B);
        assert_eq!(readings.end(), (vec![A], false));
    }
}
