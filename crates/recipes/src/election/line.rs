//! Who stands where.

use super::Sequence;
use std::sync::Arc;

/// The members in line, first come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line(Arc<[Sequence]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    First,
    Behind {
        predecessor: Sequence,
        head: Sequence,
    },
    /// We are not in it.
    Nowhere,
}

impl FromIterator<Sequence> for Line {
    fn from_iter<I: IntoIterator<Item = Sequence>>(members: I) -> Self {
        let mut line: Vec<_> = members.into_iter().collect();
        line.sort_unstable();
        Self(line.into())
    }
}

impl Line {
    pub fn iter(&self) -> impl Iterator<Item = Sequence> {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who stood next to this one, on the side of the tail.
    pub fn behind(&self, one: Sequence) -> Option<Sequence> {
        let at = self.0.binary_search(&one).ok()?;
        self.0.get(at + 1).copied()
    }

    pub fn place_of(&self, me: Sequence) -> Place {
        match self.0.binary_search(&me) {
            Ok(0) => Place::First,
            Ok(ahead) => Place::Behind { predecessor: self.0[ahead - 1], head: self.0[0] },
            Err(_) => Place::Nowhere,
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
        let line: Line = [12, 3, 40].map(sequence).into_iter().collect();
        assert_eq!(line.place_of(sequence(3)), Place::First);
        let behind = Place::Behind { predecessor: sequence(12), head: sequence(3) };
        assert_eq!(line.place_of(sequence(40)), behind);
        assert_eq!(line.place_of(sequence(4)), Place::Nowhere);
        let behind = [12, 40, 4].map(|one| line.behind(sequence(one)));
        assert_eq!(behind, [Some(sequence(40)), None, None]);
    }

    /// As text, the first negative name would come before all others, and lead.
    #[test]
    fn t15_the_names_at_the_counters_end_keep_their_order_and_those_beyond_it_have_no_place() {
        let names = [
            "leader_-2147483647",
            "leader_2147483647",
            "leader_-2147483648",
            "leader_2147483646",
            "leader_0999999999",
        ];
        let line: Line =
            names.iter().filter_map(|name| Sequence::of_name(name, "leader_")).collect();
        let in_order = [999_999_999, 2_147_483_646, 2_147_483_647].map(sequence);
        assert!(line.iter().eq(in_order), "{line}");
        assert_eq!(line.place_of(in_order[0]), Place::First);
        let behind = Place::Behind { predecessor: in_order[1], head: in_order[0] };
        assert_eq!(line.place_of(in_order[2]), behind);
    }
}
