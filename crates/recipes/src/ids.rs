//! Names and numbers of the protocol. Each has a type of its own, so that none is used in place of another.

use std::fmt;
use std::sync::Arc;

/// The name that an operator gave a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(Arc<str>);

/// The number that ZooKeeper appended to a znode's name. It orders the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(i32);

/// The number by which ZooKeeper's servers identify a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub i64);

/// The zxid of the transaction that created a member's znode (its czxid). It grows from one holder to the next, even if
/// the path is re-created and sequences start at 0 again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(pub u64);

/// Identifies a contender's znode, by its sequence, which is its place in the queue, and by the fencing token under
/// which the contender holds. A re-created path assigns the same sequences again, so the sequence alone is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub sequence: Sequence,
    pub token: FencingToken,
}

impl MemberId {
    /// Returns `None` unless the name is 1 to 253 visible ASCII characters: it appears in logs, and it may be a host
    /// name, which has at most 253.
    pub fn new(name: &str) -> Option<Self> {
        let visible = name.chars().all(|c| c.is_ascii_graphic());
        (visible && (1..=253).contains(&name.len())).then(|| Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Sequence {
    /// The largest sequence. After it, ZooKeeper's counter overflows, and the numbers in names are negative or repeat.
    pub const LAST: i32 = i32::MAX;

    /// Returns `None` for a negative number: the counter has overflowed, so a smaller number no longer means an older
    /// znode.
    pub fn new(number: i32) -> Option<Self> {
        (number >= 0).then_some(Self(number))
    }

    pub fn number(self) -> i32 {
        self.0
    }

    /// Parses the sequence from a znode's name; `None` unless the name is the prefix followed by ten digits, and the
    /// number is at most [`Self::LAST`].
    pub fn of_name(name: &str, prefix: &str) -> Option<Self> {
        let digits = name.strip_prefix(prefix)?;
        if digits.len() != 10 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Self::new(digits.parse().ok()?)
    }

    /// Returns the name of the znode with this sequence.
    pub fn name(self, prefix: &str) -> String {
        format!("{prefix}{:010}", self.0)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Ticket {
    /// Returns true if the sequences of the two tickets are in the same order as their tokens, or both are equal. In
    /// one queue they always are, unless a znode was created by hand, with a sequence that its creator chose instead of
    /// ZooKeeper.
    pub fn is_in_order_with(self, other: Self) -> bool {
        self.sequence.cmp(&other.sequence) == self.token.cmp(&other.token)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ten_digits_behind_the_prefix_make_a_member() {
        let number = |name| Sequence::of_name(name, "leader_").map(Sequence::number);
        assert_eq!(number("leader_0000000007"), Some(7));
        assert_eq!(number("leader_2147483647"), Some(Sequence::LAST));
        for name in [
            "leader_",
            "leader_foo",
            "leader_123",
            "leader_00000000071",
            "leader_-2147483648",
            "leader_+000000007",
            "leader_2147483648",
            "leader_000000000٧",
            "n_0000000000",
            "_c_5f9a-latch-0000000003",
            "0000000007",
            "",
        ] {
            assert_eq!(number(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_is_read_back_as_it_was_written() {
        for n in [0, 7, Sequence::LAST] {
            let sequence = Sequence::new(n).unwrap();
            assert_eq!(Sequence::of_name(&sequence.name("n_"), "n_"), Some(sequence));
        }
    }

    #[test]
    fn an_id_is_visible_and_neither_empty_nor_endless() {
        assert!(MemberId::new("pod-0.app").is_some());
        for bad in ["", "a b", "a\n", "ä", "\u{0}", &"x".repeat(254)] {
            assert!(MemberId::new(bad).is_none(), "{bad:?}");
        }
    }
}
