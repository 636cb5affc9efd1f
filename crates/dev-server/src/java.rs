//! The order in which Java's hash sets list their strings.
//!
//! A real server lists children, and deletes the znodes of a session, in that order. It is reproduced here, so that a
//! client that forgets to sort fails as it would with a real server. Not reproduced: the order within a bucket of nine
//! names or more, which Java turns into a tree.

use std::collections::BTreeMap;

/// A set of strings that is listed in the order of a `java.util.HashSet`.
#[derive(Clone, Debug)]
pub(crate) struct JavaSet {
    /// Each name with the number of its insertion.
    names: BTreeMap<String, u64>,
    /// The number of buckets, a power of two.
    buckets: usize,
    insertions: u64,
}

impl JavaSet {
    /// Creates an empty set with this many buckets, a power of two: the initial number of the imitated Java set.
    pub(crate) fn with_buckets(buckets: usize) -> Self {
        Self { names: BTreeMap::new(), buckets, insertions: 0 }
    }

    pub(crate) fn insert(&mut self, name: &str) {
        if self.names.contains_key(name) {
            return;
        }
        // When a bucket gets a ninth name, Java turns the bucket into a tree, but in a table of fewer than 64 buckets
        // it doubles the table instead.
        if self.buckets < 64 && self.count_in_bucket_of(name) >= 8 {
            self.buckets *= 2;
        }
        self.names.insert(name.to_owned(), self.insertions);
        self.insertions += 1;
        // The load factor is 0.75; a set never shrinks.
        if self.names.len() > self.buckets / 4 * 3 {
            self.buckets *= 2;
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Lists the names bucket by bucket, and the names of one bucket in the order of insertion.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut names: Vec<(&String, u64)> =
            self.names.iter().map(|(name, number)| (name, *number)).collect();
        names.sort_by_cached_key(|(name, number)| {
            (bucket(string_hash(name), self.buckets), *number)
        });
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Lists the names as a clone of the set would. The clone has only as many buckets as its names need, even if the
    /// set had more names before.
    pub(crate) fn list_of_clone(&self) -> Vec<String> {
        let mut names = self.list();
        let buckets = (names.len() * 4 / 3 + 1).next_power_of_two();
        names.sort_by_cached_key(|name| bucket(string_hash(name), buckets));
        names
    }

    fn count_in_bucket_of(&self, name: &str) -> usize {
        let wanted = bucket(string_hash(name), self.buckets);
        self.names.keys().filter(|other| bucket(string_hash(other), self.buckets) == wanted).count()
    }
}

/// Returns Java's `String.hashCode`.
pub(crate) fn string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// Returns the bucket into which Java's hash tables put a hash; `buckets` is a power of two.
pub(crate) fn bucket(hash: i32, buckets: usize) -> usize {
    let hash = hash.cast_unsigned();
    ((hash ^ (hash >> 16)) as usize) & buckets.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(buckets: usize, names: &[&str]) -> JavaSet {
        let mut set = JavaSet::with_buckets(buckets);
        for name in names {
            set.insert(name);
        }
        set
    }

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(string_hash(""), 0);
        assert_eq!(string_hash("a"), 97);
        assert_eq!(string_hash("Aa"), 2112);
        assert_eq!(string_hash("BB"), 2112);
        assert_eq!(string_hash("zookeeper"), 1_600_681_804);
    }

    #[test]
    fn names_come_by_bucket_then_by_insertion() {
        // In 8 buckets, "i" (105) shares one with "a" (97), before "b" (98).
        assert_eq!(set(8, &["b", "i", "a"]).list(), ["i", "a", "b"]);
        assert_eq!(set(8, &["BB", "Aa"]).list(), ["BB", "Aa"]);
    }

    #[test]
    fn a_set_grows_beyond_three_quarters() {
        let mut names = set(8, &["i", "a", "b", "c", "d", "e"]);
        assert_eq!(names.list(), ["i", "a", "b", "c", "d", "e"]);
        names.insert("f");
        assert_eq!(names.list(), ["a", "b", "c", "d", "e", "f", "i"]);
    }

    #[test]
    fn a_full_bucket_makes_a_set_grow() {
        let equal = ["AaAaAaAa", "AaAaAaBB", "AaAaBBAa", "AaAaBBBB", "AaBBAaAa", "AaBBAaBB"];
        let mut names = set(8, &equal);
        assert_eq!(names.buckets, 8);
        for (name, buckets) in [("AaBBBBAa", 16), ("AaBBBBBB", 16), ("BBAaAaAa", 32)] {
            names.insert(name);
            assert_eq!(names.buckets, buckets);
        }
    }

    #[test]
    fn a_clone_has_as_many_buckets_as_it_needs() {
        // 2 names need 4 buckets: "i" and "a" share the second of them.
        assert_eq!(set(16, &["a", "i"]).list_of_clone(), ["a", "i"]);
        assert_eq!(set(16, &["d", "a"]).list_of_clone(), ["d", "a"]);
        assert_eq!(set(16, &["d", "a"]).list(), ["a", "d"]);
    }
}
