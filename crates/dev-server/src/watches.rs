//! Watches: which connections to notify of changes, by path.

use crate::error::ErrorCode;
use crate::path::with_ancestors;
use std::collections::{BTreeMap, BTreeSet};

/// A client's connection, numbered in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A change of a path, numbered as in `Watcher.Event.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum EventKind {
    Created = 1,
    Deleted = 2,
    DataChanged = 3,
    ChildrenChanged = 4,
}

impl EventKind {
    pub(crate) fn number(self) -> i32 {
        self as i32
    }
}

/// The lifetime of a watch, and the events it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchMode {
    OneShot,
    Persistent,
    /// Reports events at the path and everywhere below it, but never that children changed.
    Recursive,
}

/// The watches of one kind: on data and existence, or on children.
///
/// As in ZooKeeper 3.8, a connection has one watch on a path. A later watch replaces an earlier one, even if the later
/// one is a one-shot watch and the earlier one is persistent.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_path: BTreeMap<String, BTreeMap<ConnectionId, WatchMode>>,
}

impl Watches {
    pub(crate) fn add(&mut self, path: &str, connection: ConnectionId, mode: WatchMode) {
        self.by_path.entry(path.to_owned()).or_default().insert(connection, mode);
    }

    /// Returns the connections to notify of an event, and removes their one-shot watches.
    pub(crate) fn trigger(&mut self, path: &str, kind: EventKind) -> BTreeSet<ConnectionId> {
        let mut notified = BTreeSet::new();
        // A recursive watch on an ancestor also reports the event.
        for watched in with_ancestors(path) {
            let Some(connections) = self.by_path.get_mut(watched) else { continue };
            connections.retain(|connection, mode| {
                let reports = match mode {
                    WatchMode::Recursive => kind != EventKind::ChildrenChanged,
                    WatchMode::Persistent | WatchMode::OneShot => watched == path,
                };
                if reports {
                    notified.insert(*connection);
                }
                !(reports && *mode == WatchMode::OneShot)
            });
            if connections.is_empty() {
                self.by_path.remove(watched);
            }
        }
        notified
    }

    /// Removes the watch of a connection on a path. Returns true if there was one.
    pub(crate) fn remove(&mut self, path: &str, connection: ConnectionId) -> bool {
        let Some(connections) = self.by_path.get_mut(path) else { return false };
        let removed = connections.remove(&connection).is_some();
        if connections.is_empty() {
            self.by_path.remove(path);
        }
        removed
    }

    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) {
        self.by_path.retain(|_, connections| {
            connections.remove(&connection);
            !connections.is_empty()
        });
    }

    /// Returns true if any connection has a watch on the path, as the real server does for `checkWatches`.
    ///
    /// The real server looks for the parent of the path, and if the path has no watch but there is a recursive watch
    /// anywhere, for all ancestors. For an empty path, it looks for nothing. When it looks for the parent of a name
    /// without a slash, Java throws an exception, which the client sees as MarshallingError.
    pub(crate) fn any_on(&self, path: &str) -> Result<bool, ErrorCode> {
        if path.is_empty() {
            return Ok(false);
        }
        let is_watched = self.by_path.contains_key(path);
        if !path.starts_with('/') && (!path.contains('/') || !is_watched && self.any_recursive()) {
            return Err(ErrorCode::Marshalling);
        }
        Ok(is_watched)
    }

    /// Returns each watch: its path, and its connection.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, ConnectionId)> {
        let watches = self.by_path.iter();
        watches.flat_map(|(path, all)| all.keys().map(|connection| (path.as_str(), *connection)))
    }

    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    fn any_recursive(&self) -> bool {
        let mut modes = self.by_path.values().flat_map(BTreeMap::values);
        modes.any(|mode| *mode == WatchMode::Recursive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn a_one_shot_notifies_once() {
        let mut watches = Watches::default();
        watches.add("/a", A, WatchMode::OneShot);
        watches.add("/a", B, WatchMode::OneShot);
        assert_eq!(watches.trigger("/a/b", EventKind::Created), BTreeSet::new());
        assert_eq!(watches.trigger("/a", EventKind::DataChanged), BTreeSet::from([A, B]));
        assert_eq!(watches.trigger("/a", EventKind::DataChanged), BTreeSet::new());
    }

    #[test]
    fn a_persistent_watch_notifies_of_its_own_path_for_ever() {
        let mut watches = Watches::default();
        watches.add("/a", A, WatchMode::Persistent);
        for _ in 0..2 {
            assert_eq!(watches.trigger("/a", EventKind::ChildrenChanged), BTreeSet::from([A]));
            assert_eq!(watches.trigger("/a/b", EventKind::Created), BTreeSet::new());
        }
    }

    #[test]
    fn a_recursive_watch_notifies_of_all_below_but_of_no_children() {
        let mut watches = Watches::default();
        watches.add("/", A, WatchMode::Recursive);
        assert_eq!(watches.trigger("/a/b", EventKind::Created), BTreeSet::from([A]));
        assert_eq!(watches.trigger("/a/b", EventKind::Deleted), BTreeSet::from([A]));
        assert_eq!(watches.trigger("/a", EventKind::ChildrenChanged), BTreeSet::new());
    }

    #[test]
    fn the_last_watch_of_a_connection_on_a_path_counts() {
        let mut watches = Watches::default();
        watches.add("/a", A, WatchMode::Persistent);
        watches.add("/a", A, WatchMode::OneShot);
        assert_eq!(watches.trigger("/a", EventKind::DataChanged), BTreeSet::from([A]));
        assert_eq!(watches.trigger("/a", EventKind::DataChanged), BTreeSet::new());
    }

    #[test]
    fn a_relative_path_is_looked_for_as_far_as_java_gets() {
        let mut watches = Watches::default();
        assert_eq!(watches.any_on("a"), Err(ErrorCode::Marshalling));
        assert_eq!(watches.any_on("a/b"), Ok(false));
        watches.add("/", A, WatchMode::Recursive);
        assert_eq!(watches.any_on("a/b"), Err(ErrorCode::Marshalling));
        watches.add("", A, WatchMode::OneShot);
        assert_eq!(watches.any_on(""), Ok(false));
        watches.add("a/b", A, WatchMode::OneShot);
        assert_eq!(watches.any_on("a/b"), Ok(true));
    }

    #[test]
    fn a_removed_watch_notifies_of_nothing() {
        let mut watches = Watches::default();
        watches.add("/a", A, WatchMode::Persistent);
        watches.add("/b", A, WatchMode::OneShot);
        watches.add("/b", B, WatchMode::OneShot);
        assert!(watches.remove("/a", A));
        assert!(!watches.remove("/a", A));
        assert_eq!(watches.any_on("/a"), Ok(false));
        watches.remove_connection(A);
        assert_eq!(watches.trigger("/b", EventKind::Deleted), BTreeSet::from([B]));
        assert_eq!(watches.count(), 0);
    }
}
