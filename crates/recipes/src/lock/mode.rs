//! Lock modes: which holders are compatible, and how a znode's name contains its mode.

use crate::Sequence;
use std::num::NonZeroU32;

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A single holder: the writer of a read/write lock.
    Exclusive,
    /// Any number of holders, but none while a writer holds.
    Shared,
    /// As many holders as there are slots: a semaphore.
    Slots(NonZeroU32),
}

/// An entry in a lock's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockEntry {
    pub sequence: Sequence,
    pub mode: Mode,
}

impl Mode {
    /// Returns the prefix of the names of znodes with this mode.
    pub fn prefix(self) -> String {
        match self {
            Self::Exclusive => "write-".into(),
            Self::Shared => "read-".into(),
            Self::Slots(slots) => format!("slots-{slots}-"),
        }
    }

    /// Returns true if the two modes cannot belong to the same lock: if one has slots, the other must have the same
    /// number of slots.
    pub(crate) fn is_incompatible_with(self, other: Self) -> bool {
        self != other && matches!((self, other), (Self::Slots(_), _) | (_, Self::Slots(_)))
    }

    /// Returns true if an entry of this mode counts an entry of the mode `ahead` that is ahead of it: because it waits
    /// for that entry, or because that entry takes one of the slots.
    pub(crate) fn counts(self, ahead: Self) -> bool {
        match self {
            Self::Exclusive | Self::Slots(_) => true,
            Self::Shared => ahead != Self::Shared,
        }
    }

    /// Returns the maximum number of entries that [count](Self::counts) and may be ahead of a holder.
    pub(crate) fn max_ahead(self) -> usize {
        match self {
            Self::Exclusive | Self::Shared => 0,
            Self::Slots(slots) => slots.get() as usize - 1,
        }
    }
}

/// Returns for each entry of a queue, in order, whether it may hold, given the entries ahead: for operators who look at
/// a lock. The leases of the sessions do not count.
pub fn holders(queue: &[Mode]) -> impl Iterator<Item = bool> {
    let mut ahead = 0;
    let mut not_shared_ahead = 0;
    queue.iter().map(move |mode| {
        // A shared lock waits only for entries that are not shared.
        let in_the_way = if *mode == Mode::Shared { not_shared_ahead } else { ahead };
        ahead += 1;
        not_shared_ahead += usize::from(*mode != Mode::Shared);
        in_the_way <= mode.max_ahead()
    })
}

impl LockEntry {
    /// Parses the name of a znode; returns `None` if the znode is not an entry of a lock. `lock-`, the prefix in the
    /// ZooKeeper paper for locks without readers, means exclusive.
    pub fn of_name(name: &str) -> Option<Self> {
        let mode = if name.starts_with("read-") {
            Mode::Shared
        } else if let Some(slots) = name.strip_prefix("slots-") {
            let (slots, _) = slots.split_once('-')?;
            Mode::Slots(slots.parse().ok()?)
        } else {
            Mode::Exclusive
        };
        let mut sequence = Sequence::of_name(name, &mode.prefix());
        if sequence.is_none() && mode == Mode::Exclusive {
            sequence = Sequence::of_name(name, "lock-");
        }
        Some(Self { sequence: sequence?, mode })
    }

    /// Returns the name of this entry's znode.
    pub fn name(self) -> String {
        self.sequence.name(&self.mode.prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_as_it_was_written() {
        for mode in [Mode::Exclusive, Mode::Shared, slots(1), slots(3), slots(u32::MAX)] {
            let entry = LockEntry { sequence: Sequence::new(7).unwrap(), mode };
            assert_eq!(LockEntry::of_name(&entry.name()), Some(entry));
        }
    }

    #[test]
    fn the_papers_lock_is_a_writer_and_unknown_clients_have_no_place() {
        let writer = LockEntry { sequence: Sequence::new(7).unwrap(), mode: Mode::Exclusive };
        assert_eq!(LockEntry::of_name("lock-0000000007"), Some(writer));
        for unknown_client in [
            "",
            "write-",
            "write-7",
            "read-00000000071",
            "read--000000007",
            "slots-0000000007",
            "slots-0-0000000007",
            "slots-03-0000000007",
            "slots-+3-0000000007",
            "slots-4294967296-0000000007",
            "lock-lock-0000000007",
            "_c_5f9a-lock-0000000003",
        ] {
            assert_eq!(LockEntry::of_name(unknown_client), None, "{unknown_client}");
        }
    }

    #[test]
    fn those_hold_that_have_none_in_their_way() {
        let w = Mode::Exclusive;
        let r = Mode::Shared;
        let held = |queue: &[Mode]| holders(queue).collect::<Vec<_>>();
        assert_eq!(held(&[w, w, r]), [true, false, false]);
        assert_eq!(held(&[r, r, w, r]), [true, true, false, false]);
        assert_eq!(held(&[slots(2); 3]), [true, true, false]);
        // A waiting entry counts the entries ahead with the same result.
        for queue in [vec![r, w, r, r, w], vec![slots(3); 5]] {
            let counted = (0..queue.len()).map(|own| {
                let ahead = queue[..own].iter().filter(|ahead| queue[own].counts(**ahead));
                ahead.count() <= queue[own].max_ahead()
            });
            assert!(counted.eq(holders(&queue)), "{queue:?}");
        }
    }

    #[test]
    fn slots_are_at_odds_with_all_but_the_same_number() {
        assert!(!Mode::Exclusive.is_incompatible_with(Mode::Shared));
        assert!(!slots(2).is_incompatible_with(slots(2)));
        assert!(slots(2).is_incompatible_with(slots(3)));
        assert!(slots(1).is_incompatible_with(Mode::Exclusive));
        assert!(Mode::Shared.is_incompatible_with(slots(1)));
    }

    fn slots(slots: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(slots).unwrap())
    }
}
