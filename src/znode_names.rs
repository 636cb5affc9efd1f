//! The names of the election's znodes: a prefix and a number, or names as another client writes them.

use recipes::{ForeignClient, Sequence, SessionId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The number of names of deleted znodes that are kept, because logs and answers about past events still show them.
const GONE_MAX: usize = 1_000;

/// The names of this election and of its znodes.
#[derive(Clone, Debug)]
pub struct ElectionNames {
    /// The election's path as configured (`election.path`).
    pub election: String,
    /// The election's full path, with the connect string's chroot.
    pub path: String,
    pub znodes: ZnodeNames,
}

/// The names of an election's znodes. Clones share the names that were seen.
#[derive(Clone, Debug)]
pub struct ZnodeNames(Names);

#[derive(Clone, Debug)]
enum Names {
    /// The names are this prefix and the number.
    Prefix(Arc<str>),
    /// The names are those of another client. They cannot be computed from the number, so each name is remembered when it is
    /// first seen.
    Family(ForeignClient, Arc<Mutex<BTreeMap<Sequence, Arc<str>>>>),
}

impl ZnodeNames {
    /// The names in an election that is shared with contenders of another client.
    pub fn of_family(family: ForeignClient) -> Self {
        Self(Names::Family(family, Arc::default()))
    }

    /// Returns the client with whose contenders the election is shared; `None` for an election of members only.
    pub fn family(&self) -> Option<ForeignClient> {
        match self.0 {
            Names::Prefix(_) => None,
            Names::Family(family, _) => Some(family),
        }
    }

    /// Returns the number of a contender's znode; `None` if the name is not a contender's.
    pub fn sequence(&self, name: &str) -> Option<Sequence> {
        match &self.0 {
            Names::Prefix(prefix) => Sequence::of_name(name, prefix),
            Names::Family(family, _) => family.sequence_of(name),
        }
    }

    /// Returns the name of the znode with this number, or a placeholder if another client's name was never seen.
    pub fn name(&self, sequence: Sequence) -> String {
        match &self.0 {
            Names::Prefix(prefix) => sequence.name(prefix),
            Names::Family(family, seen) => {
                let seen = seen.lock().expect("no panic while it is held");
                seen.get(&sequence).map_or_else(
                    || format!("({family}'s){:010}", sequence.number()),
                    |name| name.to_string(),
                )
            }
        }
    }

    /// Returns the name, up to the number, of a member's znode that is created in this session.
    pub fn name_start(&self, session: SessionId) -> String {
        match &self.0 {
            Names::Prefix(prefix) => prefix.to_string(),
            Names::Family(family, _) => family.name_start(session),
        }
    }

    /// Returns the prefix, or the client's name, which tells this election from others in the same path.
    pub fn kind(&self) -> &str {
        match &self.0 {
            Names::Prefix(prefix) => prefix,
            Names::Family(family, _) => family.name(),
        }
    }

    /// Returns true if a znode of this name may have been created in this session. If names do not contain a session,
    /// this is true for the names of all members.
    pub fn may_be_of(&self, session: SessionId, name: &str) -> bool {
        name.starts_with(&self.name_start(session))
    }

    /// Remembers the name of a contender's znode.
    pub fn remember(&self, name: &str) {
        let Names::Family(family, seen) = &self.0 else { return };
        if let Some(sequence) = family.sequence_of(name) {
            seen.lock().expect("no panic while it is held").insert(sequence, name.into());
        }
    }

    /// Remembers the names of all contenders in a listing of the path. If two names have the same number, one was created by
    /// hand: the name that is already known is kept, otherwise the alphabetically first.
    pub fn remember_all(&self, names: &[String]) {
        let Names::Family(family, seen) = &self.0 else { return };
        let mut listed: BTreeMap<Sequence, &str> = BTreeMap::new();
        let mut seen = seen.lock().expect("no panic while it is held");
        for name in names {
            let Some(sequence) = family.sequence_of(name) else { continue };
            let known = seen.get(&sequence).map(|known| &**known);
            let chosen = listed.entry(sequence).or_insert(name);
            if known == Some(&**name) || (known != Some(*chosen) && &**name < *chosen) {
                *chosen = name;
            }
        }
        for (sequence, name) in &listed {
            // A known number has another name if the path was deleted, and created again with a new counter.
            if seen.get(sequence).is_none_or(|known| **known != **name) {
                seen.insert(*sequence, (*name).into());
            }
        }
        let gone = seen.keys().filter(|sequence| !listed.contains_key(sequence)).count();
        let too_many = gone.saturating_sub(GONE_MAX);
        // The znodes with the smallest numbers are the oldest.
        let oldest = seen.keys().copied().filter(|sequence| !listed.contains_key(sequence));
        for sequence in oldest.take(too_many).collect::<Vec<_>>() {
            seen.remove(&sequence);
        }
    }

    /// Returns a name of the maximum length, for the check that a member's data fits into its znode. The session makes
    /// no difference to the length.
    pub fn longest(&self) -> String {
        format!("{}{:010}", self.name_start(SessionId(-1)), Sequence::LAST)
    }
}

impl From<&str> for ZnodeNames {
    fn from(prefix: &str) -> Self {
        Self(Names::Prefix(prefix.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: i32) -> Sequence {
        Sequence::new(number).unwrap()
    }

    #[test]
    fn our_own_names_are_prefix_and_number() {
        let names = ZnodeNames::from("leader_");
        assert_eq!(names.name(sequence(7)), "leader_0000000007");
        assert_eq!(names.sequence("leader_0000000007"), Some(sequence(7)));
        assert_eq!(names.name_start(SessionId(1)), "leader_");
        assert_eq!((names.family(), names.longest()), (None, "leader_2147483647".to_owned()));
    }

    #[test]
    fn another_clients_names_are_those_that_were_seen() {
        let names = ZnodeNames::of_family(ForeignClient::Kazoo);
        let name = |digit: &str, number: i32| format!("{}__lock__{number:010}", digit.repeat(32));
        assert_eq!(names.name(sequence(3)), "(kazoo's Election's)0000000003");
        let clone = names.clone();
        clone.remember_all(&[name("b", 3), name("a", 4), "n_0000000005".into(), "x".into()]);
        assert_eq!(
            (names.name(sequence(3)), names.name(sequence(4))),
            (name("b", 3), name("a", 4))
        );
        // A known one is not replaced by one that was made by hand, and of two unknown ones the choice is the same for all.
        names.remember_all(&[name("a", 3), name("b", 3)]);
        assert_eq!(names.name(sequence(3)), name("b", 3));
        names.remember_all(&[name("d", 6), name("c", 6), name("e", 6)]);
        assert_eq!(names.name(sequence(6)), name("c", 6));
        // In a path that was created again, a known number belongs to another znode.
        names.remember_all(&[name("f", 3)]);
        assert_eq!(names.name(sequence(3)), name("f", 3));
    }

    #[test]
    fn names_that_are_gone_are_forgotten_the_oldest_first_and_none_that_stands() {
        let names = ZnodeNames::of_family(ForeignClient::ZookeeperRecipe);
        let name = |number: i32| format!("n_{number:010}");
        let gone = i32::try_from(GONE_MAX).unwrap();
        for number in 0..=gone + 1 {
            names.remember_all(&[name(0), name(number)]);
        }
        let is_known = |number| names.name(sequence(number)) == name(number);
        assert!(is_known(0) && is_known(2) && is_known(gone + 1));
        names.remember_all(&[name(0)]);
        assert!(is_known(0) && !is_known(1) && is_known(2));
    }
}
