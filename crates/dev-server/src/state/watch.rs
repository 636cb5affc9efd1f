//! Requests about watches.

use super::ServerState;
use crate::error::ErrorCode;
use crate::watches::{ConnectionId, EventKind, WatchMode, Watches};
use crate::wire::reply::{self, Reply};
use crate::wire::request::{Paths, SetWatches, Watch};

/// Returns two answers: whether a request is about watches on children, and whether it is about watches on data. Its
/// `number` is one of `Watcher.WatcherType`.
fn watches_of_kind(number: i32) -> Result<(bool, bool), ErrorCode> {
    match number {
        1 => Ok((true, false)),
        2 => Ok((false, true)),
        3 => Ok((true, true)),
        // Java throws an IllegalArgumentException here.
        _ => Err(ErrorCode::Marshalling),
    }
}

impl ServerState {
    pub(super) fn watch(&mut self, from: ConnectionId, watch: Watch) -> Result<Reply, ErrorCode> {
        match watch {
            Watch::Set(watches) => self.set_watches(from, watches),
            Watch::Add { path, mode } => {
                let mode = match mode {
                    0 => WatchMode::Persistent,
                    1 => WatchMode::Recursive,
                    _ => return Err(ErrorCode::Marshalling),
                };
                // As in the real server, a watch on null is accepted, but no event can ever match it.
                if let Some(path) = path {
                    self.data_watches.add(&path, from, mode);
                    self.child_watches.add(&path, from, mode);
                }
                // The body of the real server's answer is an error code, here that of success.
                Ok(Reply::Number(0))
            }
            Watch::Check { path, kind } => {
                let (on_children, on_data) = watches_of_kind(kind)?;
                let path = path.ok_or(ErrorCode::Marshalling)?;
                let has_child_watch = on_children && self.child_watches.any_on(&path)?;
                let has_data_watch = on_data && self.data_watches.any_on(&path)?;
                let is_watched = has_child_watch || has_data_watch;
                if is_watched { Ok(Reply::Nothing) } else { Err(ErrorCode::NoWatcher) }
            }
            Watch::Remove { path, kind } => {
                let (on_children, on_data) = watches_of_kind(kind)?;
                let path = path.ok_or(ErrorCode::NoWatcher)?;
                // Remove the watch of each kind that the request is about.
                let removed_child = on_children && self.child_watches.remove(&path, from);
                let removed_data = on_data && self.data_watches.remove(&path, from);
                let is_removed = removed_child || removed_data;
                if is_removed { Ok(Reply::Nothing) } else { Err(ErrorCode::NoWatcher) }
            }
        }
    }

    /// Sets the watches that a client had on its previous connection. A watch that has missed an event since then is
    /// not set, and the client is notified of that event instead.
    fn set_watches(&mut self, from: ConnectionId, set: SetWatches) -> Result<Reply, ErrorCode> {
        let SetWatches { relative_zxid, data, exists, children, persistent, recursive } = set;
        for path in paths(data) {
            let path = path?;
            let missed = self.tree.node(&path).map_or(Some(EventKind::Deleted), |node| {
                (node.meta.mzxid > relative_zxid).then_some(EventKind::DataChanged)
            });
            self.notify_or_watch(from, &path, missed, |state| &mut state.data_watches);
        }
        for path in paths(exists) {
            let path = path?;
            // The znode did not exist when the client set this watch.
            let missed = self.tree.node(&path).map(|_| EventKind::Created);
            self.notify_or_watch(from, &path, missed, |state| &mut state.data_watches);
        }
        for path in paths(children) {
            let path = path?;
            let missed = self.tree.node(&path).map_or(Some(EventKind::Deleted), |node| {
                (node.meta.pzxid > relative_zxid).then_some(EventKind::ChildrenChanged)
            });
            self.notify_or_watch(from, &path, missed, |state| &mut state.child_watches);
        }
        // As in the real server, missed events are not reported to persistent and recursive watches.
        for (list, mode) in [(persistent, WatchMode::Persistent), (recursive, WatchMode::Recursive)]
        {
            for path in paths(list) {
                let path = path?;
                self.child_watches.add(&path, from, mode);
                self.data_watches.add(&path, from, mode);
            }
        }
        Ok(Reply::Nothing)
    }

    /// Sends the event that a watch has missed. If it has missed no event, sets the watch.
    fn notify_or_watch(
        &mut self,
        from: ConnectionId,
        path: &str,
        missed: Option<EventKind>,
        watches: impl FnOnce(&mut Self) -> &mut Watches,
    ) {
        match missed {
            Some(kind) => self.send(from, reply::notification(kind, path)),
            None => watches(self).add(path, from, WatchMode::OneShot),
        }
    }
}

/// Returns the paths of a list. A null path, or a null list, is an error, because Java throws a NullPointerException.
fn paths(list: Paths) -> impl Iterator<Item = Result<String, ErrorCode>> {
    let list = list.unwrap_or_else(|| vec![None]);
    list.into_iter().map(|path| path.ok_or(ErrorCode::Marshalling))
}
