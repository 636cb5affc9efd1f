//! Who stands where.

use super::Sequence;

/// The members in line, first come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line(Vec<Sequence>);

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
        Self(line)
    }
}

impl Line {
    pub fn iter(&self) -> impl Iterator<Item = Sequence> {
        self.0.iter().copied()
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
    }
}
