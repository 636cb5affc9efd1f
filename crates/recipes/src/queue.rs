//! The order of the queue: the head, and the members ahead of a contender.

use crate::{FencingToken, Sequence, Ticket};
use std::sync::Arc;

/// The members of a queue in order, as read at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue(Arc<[Sequence]>);

/// The place of a contender in a reading of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueuePlace {
    /// No contender is ahead.
    First,
    /// The contender right ahead is `predecessor`, and the first contender of the queue is `head`.
    Behind { predecessor: Sequence, head: Sequence },
    /// The reading does not show the contender.
    Missing,
}

/// The members ahead of a contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Predecessors {
    /// The nearest member ahead, whose znode is watched.
    pub(crate) predecessor: Sequence,
    /// The token of the predecessor's znode; `None` until that znode is read.
    pub(crate) predecessor_token: Option<FencingToken>,
    /// The queue as it was last read. Members that have joined since are behind this contender.
    pub(crate) queue: Queue,
    /// The first member of the queue, or the member that was first and is gone.
    pub(crate) head: Head,
    /// The token of the head's znode; `None` until that znode is read.
    pub(crate) head_token: Option<FencingToken>,
}

/// The first member of the queue, as far as this member knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Head {
    /// The member with this sequence is the first.
    Present(Sequence),
    /// The member with this sequence was the first and is gone. The next head is not known: the queue must be read
    /// again.
    Gone(Sequence),
}

impl FromIterator<Sequence> for Queue {
    fn from_iter<I: IntoIterator<Item = Sequence>>(members: I) -> Self {
        let mut queue: Vec<_> = members.into_iter().collect();
        queue.sort_unstable();
        Self(queue.into())
    }
}

impl Queue {
    pub fn iter(&self) -> impl Iterator<Item = Sequence> {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, member: Sequence) -> bool {
        self.0.binary_search(&member).is_ok()
    }

    /// Returns the member right behind `member`; `None` if there is none or `member` is not in the queue.
    pub(crate) fn behind(&self, member: Sequence) -> Option<Sequence> {
        let index = self.0.binary_search(&member).ok()?;
        self.0.get(index + 1).copied()
    }

    /// Returns the place of the contender with the sequence `own`.
    pub(crate) fn place_of(&self, own: Sequence) -> QueuePlace {
        match self.0.binary_search(&own) {
            // The index is the number of members ahead.
            Ok(0) => QueuePlace::First,
            Ok(ahead) => QueuePlace::Behind { predecessor: self.0[ahead - 1], head: self.0[0] },
            Err(_) => QueuePlace::Missing,
        }
    }
}

impl Predecessors {
    /// Returns true if the predecessor is the head, so that the contender is the next to hold.
    pub(crate) fn predecessor_is_head(&self) -> bool {
        self.head == Head::Present(self.predecessor)
    }

    /// Returns true if the predecessor's znode had this token when it was last read.
    pub(crate) fn predecessor_has_token(&self, token: FencingToken) -> bool {
        self.predecessor_token == Some(token)
    }

    /// Returns true unless the known head rules out that a member with this ticket is the first in the queue, or has
    /// become the first since the head was read.
    pub(crate) fn may_be_first(&self, ticket: Ticket) -> bool {
        self.is_in_order_with_head(ticket) && self.head.allows_first(ticket.sequence)
    }

    /// Returns true if a member with this ticket is ahead of the known head, and so of all members in the last reading
    /// of the queue.
    pub(crate) fn is_before_head(&self, ticket: Ticket) -> bool {
        self.is_in_order_with_head(ticket) && ticket.sequence < self.head.sequence()
    }

    /// Returns false if the sequences of this ticket and of the head are in another order than their tokens. Then one
    /// of the two znodes was created by hand, or, if the sequences are equal, the path was re-created.
    fn is_in_order_with_head(&self, ticket: Ticket) -> bool {
        match self.head_token {
            Some(token) => {
                ticket.is_in_order_with(Ticket { sequence: self.head.sequence(), token })
            }
            // The head's znode was not read yet, so nothing contradicts the order.
            None => true,
        }
    }

    /// Returns two members whose sequences are in another order than their tokens: one of the two znodes was created by
    /// hand. `None` if the known tokens of the head, of the predecessor and of this contender are in order.
    pub(crate) fn out_of_order(&self, own: Ticket) -> Option<(Sequence, Sequence)> {
        fn ticket(sequence: Sequence, token: Option<FencingToken>) -> Option<Ticket> {
            token.map(|token| Ticket { sequence, token })
        }
        let head = ticket(self.head.sequence(), self.head_token);
        let predecessor = ticket(self.predecessor, self.predecessor_token);
        for pair in [(head, predecessor), (head, Some(own)), (predecessor, Some(own))] {
            if let (Some(one), Some(other)) = pair
                && !one.is_in_order_with(other)
            {
                return Some((one.sequence, other.sequence));
            }
        }
        None
    }

    /// Returns an upper bound of the number of members ahead: some may have left without this contender's knowledge.
    /// `own` is this contender's sequence.
    pub(crate) fn count(&self, own: Sequence) -> usize {
        let queue = &self.queue.0;
        // The members that were before the present head in the last reading have left since, and so has a head that is
        // gone.
        let gone = queue.partition_point(|member| !self.head.allows_first(*member));
        queue.partition_point(|member| *member < own).saturating_sub(gone)
    }
}

impl Head {
    pub(crate) fn sequence(self) -> Sequence {
        let (Self::Present(head) | Self::Gone(head)) = self;
        head
    }

    /// Returns true if `member` may be the first, now or later. A member with a smaller sequence than the head cannot,
    /// because the queue never grows at its head.
    pub(crate) fn allows_first(self, member: Sequence) -> bool {
        match self {
            Self::Present(head) => member >= head,
            Self::Gone(head) => member > head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(n: i32) -> Sequence {
        Sequence::new(n).unwrap()
    }

    #[test]
    fn order_is_the_number() {
        let queue: Queue = [12, 3, 40].map(sequence).into_iter().collect();
        assert_eq!(queue.place_of(sequence(3)), QueuePlace::First);
        let behind = QueuePlace::Behind { predecessor: sequence(12), head: sequence(3) };
        assert_eq!(queue.place_of(sequence(40)), behind);
        assert_eq!(queue.place_of(sequence(4)), QueuePlace::Missing);
        let right_behind = [12, 40, 4].map(|member| queue.behind(sequence(member)));
        assert_eq!(right_behind, [Some(sequence(40)), None, None]);
    }

    /// As text, the first negative name would come before all others, and lead.
    #[test]
    fn t15_names_at_the_counters_end_keep_their_order_and_names_beyond_it_have_no_place() {
        let names = [
            "leader_-2147483647",
            "leader_2147483647",
            "leader_-2147483648",
            "leader_2147483646",
            "leader_0999999999",
        ];
        let queue: Queue =
            names.iter().filter_map(|name| Sequence::of_name(name, "leader_")).collect();
        let in_order = [999_999_999, 2_147_483_646, 2_147_483_647].map(sequence);
        assert!(queue.iter().eq(in_order), "{queue}");
        assert_eq!(queue.place_of(in_order[0]), QueuePlace::First);
        let behind = QueuePlace::Behind { predecessor: in_order[1], head: in_order[0] };
        assert_eq!(queue.place_of(in_order[2]), behind);
    }
}
