//! The readings of one queue or barrier: one at a time, each for all holdings that had requested it before it began.

use recipes::holding::HoldingId;

/// Keeps track of which holdings requested which reading. The caller performs the readings.
#[derive(Default)]
pub(super) struct Readings {
    /// The holdings that requested the current reading; `None` if no reading is running.
    current: Option<Vec<HoldingId>>,
    /// The holdings that have requested a reading since the current one began. The current reading may not show the change
    /// that made them request one, so they wait for the next reading.
    next: Vec<HoldingId>,
}

impl Readings {
    /// Notes that a holding requests a reading. Returns true if the caller must begin a reading now.
    pub(super) fn request(&mut self, id: HoldingId) -> bool {
        if !self.next.contains(&id) {
            self.next.push(id);
        }
        self.begin()
    }

    /// Notes that the current reading has ended. Returns the holdings that requested it, and true if the caller must begin
    /// the next one now.
    pub(super) fn end(&mut self) -> (Vec<HoldingId>, bool) {
        let requesters = self.current.take().unwrap_or_default();
        (requesters, self.begin())
    }

    /// Returns one of the holdings that requested the current reading; `None` if no reading is running, or no holding
    /// waits for it any longer.
    pub(super) fn any_requester(&self) -> Option<HoldingId> {
        self.current.iter().flatten().copied().next()
    }

    /// Forgets the requests of a holding whose znode was replaced or removed.
    pub(super) fn forget(&mut self, id: HoldingId) {
        let both = self.current.iter_mut().chain([&mut self.next]);
        both.for_each(|ids| ids.retain(|other| *other != id));
    }

    /// Makes the requested reading the current one, unless another reading is running. Returns true if the caller must begin
    /// it now.
    fn begin(&mut self) -> bool {
        let begins = self.current.is_none() && !self.next.is_empty();
        if begins {
            self.current = Some(std::mem::take(&mut self.next));
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
        assert!(readings.request(A));
        assert!(!readings.request(B) && !readings.request(B), "one is under way");
        assert!(!readings.request(A), "what it asks now may be newer than that one");
        assert_eq!(readings.end(), (vec![A], true));
        assert_eq!(readings.end(), (vec![B, A], false));
        assert!(readings.request(B));
    }

    /// Such a reading does not show the new znode of the holding, so it would look like an error of the server.
    #[test]
    fn a_reading_that_began_before_one_joined_anew_is_not_for_it() {
        let mut readings = Readings::default();
        assert!(readings.request(A));
        readings.forget(A);
        assert!(!readings.request(A), "the one before is still under way");
        assert_eq!(readings.end(), (vec![], true));
        assert_eq!(readings.end(), (vec![A], false));
        readings.request(A);
        readings.request(B);
        readings.forget(B);
        assert_eq!(readings.end(), (vec![A], false));
    }
}
