//! Requests that change the tree.

use super::{Now, ServerState};
use crate::acl::{self, AclEntry};
use crate::error::ErrorCode;
use crate::mode::CreateMode;
use crate::prepare::{Preparation, Requester, TreeChange};
use crate::tree::NewNode;
use crate::watches::{ConnectionId, EventKind};
use crate::wire::reply::{OperationResult, Reply};
use crate::wire::request::{Create, CreateKind, ReadRequest, Request, WriteRequest};
use std::collections::BTreeSet;
use std::sync::Arc;

impl ServerState {
    /// Executes one write. Even a refused write takes a zxid, as in the real server.
    pub(super) fn write(
        &mut self,
        now: Now,
        from: ConnectionId,
        write: WriteRequest,
    ) -> Result<Reply, ErrorCode> {
        let zxid = self.assign_zxid();
        let caller = self.caller(from);
        let change = Preparation::new(&self.tree, &caller, zxid, now.wall_ms).prepare(write);
        let reply = change.and_then(|change| self.apply(change, zxid, now.wall_ms));
        self.zxid = zxid;
        reply
    }

    /// Executes all of several writes, or none. If a write is refused, its result is its error code; the result of each
    /// earlier write is 0, and that of each later write, which was not tried, is RuntimeInconsistency.
    pub(super) fn multi(
        &mut self,
        now: Now,
        from: ConnectionId,
        parts: Vec<Request>,
    ) -> Result<Reply, ErrorCode> {
        let zxid = self.assign_zxid();
        // For a null path, the real server fails when it has assigned a zxid, but before there is a transaction. So
        // `self.zxid` does not change.
        let has_null_path = parts.iter().any(|part| match part {
            Request::Write(write) => write.path().is_none(),
            Request::Read(ReadRequest::Data { path, .. } | ReadRequest::Children { path, .. }) => {
                path.is_none()
            }
            _ => false,
        });
        if has_null_path {
            return Ok(Reply::ResultsSoFar(Vec::new()));
        }
        let count = parts.len();
        let caller = self.caller(from);
        let mut changes = Vec::new();
        let mut refused = None;
        let mut preparation = Preparation::new(&self.tree, &caller, zxid, now.wall_ms);
        for part in parts {
            match part_of_multi(part).and_then(|write| preparation.prepare(write)) {
                Ok(change) => changes.push(change),
                Err(code) => {
                    refused = Some(code);
                    break;
                }
            }
        }
        self.zxid = zxid;
        let results = match refused {
            // A Java exception, for example at an operation that only reads, fails the whole multi in the real server.
            // So single operations have no results.
            Some(ErrorCode::Marshalling) => return Ok(Reply::ResultsSoFar(Vec::new())),
            Some(code) => {
                let mut results = vec![OperationResult::Error(0); changes.len()];
                results.push(OperationResult::Error(code.number()));
                let untried = ErrorCode::RuntimeInconsistency.number();
                results.resize(count, OperationResult::Error(untried));
                results
            }
            None => {
                let mut results = Vec::new();
                for change in changes {
                    let kind = change.result_kind();
                    results.push(match self.apply(change, zxid, now.wall_ms) {
                        Ok(reply) => OperationResult::Done(kind, reply),
                        Err(code) => OperationResult::Error(code.number()),
                    });
                }
                results
            }
        };
        Ok(Reply::Results(results))
    }

    /// Applies a change that has passed all checks, and notifies watchers. An error here is a bug in the checks.
    fn apply(&mut self, change: TreeChange, zxid: i64, time_ms: i64) -> Result<Reply, ErrorCode> {
        match change {
            TreeChange::Create(kind, new) => self.create(kind, new, zxid, time_ms),
            TreeChange::Delete(path) => {
                self.delete(&path, zxid);
                Ok(Reply::Nothing)
            }
            TreeChange::SetData { path, data, version } => {
                let stat = self.tree.set_data(&path, data, version, zxid, time_ms);
                let acl = self.acl(&path);
                self.notify_data(&path, EventKind::DataChanged, &acl);
                stat.map(Reply::Stat).ok_or(ErrorCode::NoNode)
            }
            TreeChange::SetAcl { path, acl, version } => {
                let stat = self.tree.set_acl(&path, acl, version);
                stat.map(Reply::Stat).ok_or(ErrorCode::NoNode)
            }
            TreeChange::Nothing => Ok(Reply::Nothing),
        }
    }

    fn create(
        &mut self,
        kind: CreateKind,
        new: NewNode,
        zxid: i64,
        time_ms: i64,
    ) -> Result<Reply, ErrorCode> {
        let path = new.path.clone();
        let acl = Arc::clone(&new.acl);
        let stat = self.tree.create(new, zxid, time_ms).ok_or(ErrorCode::NoNode)?;
        self.notify_data(&path, EventKind::Created, &acl);
        self.notify_parent(&path);
        Ok(match kind {
            CreateKind::Create => Reply::Path(Some(path)),
            CreateKind::Create2 | CreateKind::Container | CreateKind::Ttl => {
                Reply::Created(path, stat)
            }
        })
    }

    /// Deletes containers whose last child is gone, and znodes whose TTL has passed, each in its own transaction.
    /// Returns their paths.
    pub(crate) fn delete_outlived(&mut self, now: Now) -> Vec<String> {
        let outlived = self.tree.outlived(now.wall_ms);
        for path in &outlived {
            let zxid = self.assign_zxid();
            self.delete(path, zxid);
            self.zxid = zxid;
        }
        outlived
    }

    /// Deletes a znode and notifies watchers. A connection that watches both its data and its children is notified only
    /// once.
    pub(super) fn delete(&mut self, path: &str, zxid: i64) {
        let acl = self.acl(path);
        if !self.tree.delete(path, zxid) {
            // This happens only after a `take_out`, which leaves an ephemeral znode in the list of its session.
            return;
        }
        let notified = self.notify_data(path, EventKind::Deleted, &acl);
        self.notify_children(path, EventKind::Deleted, &acl, &notified);
        self.notify_parent(path);
    }

    /// Notifies the watchers of the children of a path's parent.
    fn notify_parent(&mut self, path: &str) {
        let parent = parent(path);
        let acl = self.acl(parent);
        self.notify_children(parent, EventKind::ChildrenChanged, &acl, &BTreeSet::new());
    }

    /// Returns the ACL of a znode, or an open ACL if the znode does not exist.
    fn acl(&self, path: &str) -> Arc<[AclEntry]> {
        self.tree.node(path).map_or_else(acl::open, |node| Arc::clone(&node.acl))
    }

    fn caller(&self, from: ConnectionId) -> Requester {
        let connection = self.connections.get(&from);
        Requester {
            session: connection.map_or(0, |connection| connection.session),
            ids: connection.map_or_else(Vec::new, |connection| connection.ids.clone()),
            extended_types: self.limits.extended_types,
        }
    }
}

/// Decodes an operation of a multi as the real server does (`Op.Create`): the flags alone determine how a znode is
/// created, whichever of the four operations was used.
fn part_of_multi(part: Request) -> Result<WriteRequest, ErrorCode> {
    let Request::Write(write) = part else { return Err(ErrorCode::Marshalling) };
    let WriteRequest::Create(create) = write else { return Ok(write) };
    let mode = CreateMode::from_flags(create.flags);
    let has_ttl_flags = mode.is_some_and(CreateMode::has_ttl);
    let kind = match create.kind {
        CreateKind::Ttl if has_ttl_flags => return Ok(WriteRequest::Create(create)),
        // Java throws a ClassCastException here.
        _ if has_ttl_flags => return Err(ErrorCode::Marshalling),
        _ if mode.is_some_and(CreateMode::is_container) => CreateKind::Container,
        _ => CreateKind::Create,
    };
    Ok(WriteRequest::Create(Create { kind, ttl_ms: -1, ..create }))
}

/// Returns the parent's path as clients write it in watches: that of the root is "/", and not "" as in
/// [`path::parent_of_new`](crate::path::parent_of_new).
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}
