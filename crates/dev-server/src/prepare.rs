//! Checks whether a write is allowed, and determines what it will change.
//!
//! The checks and their order are those of `PrepRequestProcessor`. As there, they see the tree together with the
//! changes of earlier operations in the same transaction, so a multi is decided as a whole before it changes anything.

use crate::acl::{self, AclEntry, Id};
use crate::error::ErrorCode;
use crate::mode::CreateMode;
use crate::path;
use crate::stat::{NodeMeta, Owner};
use crate::tree::{NewNode, Tree};
use crate::wire::opcode;
use crate::wire::request::{Create, CreateKind, RawAcl, WriteRequest};
use std::collections::HashMap;
use std::sync::Arc;

/// The caller of an operation: its session, its identities, and what the server allows.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    pub(crate) session: i64,
    pub(crate) ids: Vec<Id>,
    /// Whether znodes with a TTL may be created.
    pub(crate) extended_types: bool,
}

/// A change of the tree that has passed all checks.
#[derive(Debug)]
pub(crate) enum TreeChange {
    Create(CreateKind, NewNode),
    Delete(String),
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        /// The version after the change.
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Arc<[AclEntry]>,
        /// The version of the ACL after the change.
        version: i32,
    },
    /// A check, which changes nothing.
    Nothing,
}

impl TreeChange {
    /// Returns the opcode that the result of a multi shows for this operation. A multi contains no setACL.
    pub(crate) fn result_kind(&self) -> i32 {
        match self {
            Self::Create(CreateKind::Create, _) => opcode::CREATE,
            // As in the real server, a result with a stat has this number, whatever the operation was.
            Self::Create(..) => opcode::CREATE2,
            Self::Delete(_) => opcode::DELETE,
            Self::SetData { .. } | Self::SetAcl { .. } => opcode::SET_DATA,
            Self::Nothing => opcode::CHECK,
        }
    }
}

/// A transaction in preparation.
#[derive(Debug)]
pub(crate) struct Preparation<'a> {
    tree: &'a Tree,
    caller: &'a Requester,
    zxid: i64,
    time_ms: i64,
    /// The znodes that the transaction changes, with their state after it; `None` for a znode that it deletes.
    outstanding: HashMap<String, Option<Record>>,
}

/// The state of a znode, as far as the checks depend on it (`ChangeRecord`).
#[derive(Clone, Debug)]
struct Record {
    meta: NodeMeta,
    children: i32,
    acl: Arc<[AclEntry]>,
}

impl<'a> Preparation<'a> {
    pub(crate) fn new(tree: &'a Tree, caller: &'a Requester, zxid: i64, time_ms: i64) -> Self {
        Self { tree, caller, zxid, time_ms, outstanding: HashMap::new() }
    }

    /// Checks one operation, and returns the change that it will make.
    pub(crate) fn prepare(&mut self, write: WriteRequest) -> Result<TreeChange, ErrorCode> {
        match write {
            WriteRequest::Create(create) => self.create(create),
            WriteRequest::Delete { path, version } => self.delete(path, version),
            WriteRequest::SetData { path, data, version } => self.set_data(path, data, version),
            WriteRequest::SetAcl { path, acl, version } => self.set_acl(path, acl, version),
            WriteRequest::Check { path, version } => self.check(path, version),
        }
    }

    fn create(&mut self, create: Create) -> Result<TreeChange, ErrorCode> {
        let Create { kind, path, data, acl, flags, ttl_ms } = create;
        let mode = CreateMode::from_flags(flags).ok_or(ErrorCode::BadArguments)?;
        // These checks are those of `EphemeralType.validateTTL`. `ttl_ms` is -1 if the operation has no TTL.
        if mode.has_ttl() {
            if !self.caller.extended_types {
                return Err(ErrorCode::Unimplemented);
            }
            Owner::with_ttl(ttl_ms).ok_or(ErrorCode::BadArguments)?;
        } else if ttl_ms >= 0 {
            return Err(ErrorCode::BadArguments);
        }
        // Java throws a NullPointerException for null, which the client sees as MarshallingError.
        let mut path = path.ok_or(ErrorCode::Marshalling)?;
        let parent_path = path::parent_of_new(&path)?.to_owned();
        let acl = acl::fixup(acl, &self.caller.ids)?;
        let mut parent = self.record(&parent_path)?;
        acl::check(&parent.acl, acl::CREATE, &self.caller.ids)?;
        if mode.is_sequential() {
            path.push_str(&format!("{:010}", parent.meta.creations));
        }
        path::validate(&path)?;
        if self.record(&path).is_ok() {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent.meta.owner, Owner::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        // As in the real server, the operation and not the flags decides on a container or a TTL here, although the
        // flags decided above whether a TTL is allowed.
        let owner = match kind {
            CreateKind::Create | CreateKind::Create2 if mode.is_ephemeral() => {
                Owner::Session(self.caller.session)
            }
            CreateKind::Create | CreateKind::Create2 => Owner::Tree,
            CreateKind::Container => Owner::Container,
            // Without a TTL, the real server would terminate here.
            CreateKind::Ttl => Owner::with_ttl(ttl_ms).ok_or(ErrorCode::BadArguments)?,
        };
        let parent_creations = parent.meta.creations.wrapping_add(1);
        parent.meta.creations = parent_creations;
        parent.meta.pzxid = self.zxid;
        parent.children = parent.children.saturating_add(1);
        self.outstanding.insert(parent_path, Some(parent));
        let meta = NodeMeta::new(self.zxid, self.time_ms, owner);
        self.outstanding
            .insert(path.clone(), Some(Record { meta, children: 0, acl: Arc::clone(&acl) }));
        Ok(TreeChange::Create(kind, NewNode { path, data, acl, owner, parent_creations }))
    }

    fn delete(&mut self, path: Option<String>, version: i32) -> Result<TreeChange, ErrorCode> {
        let path = path.ok_or(ErrorCode::Marshalling)?;
        let parent_path = path::parent_of_existing(&path)?.to_owned();
        let mut parent = self.record(&parent_path)?;
        acl::check(&parent.acl, acl::DELETE, &self.caller.ids)?;
        let node = self.record(&path)?;
        check_version(node.meta.version, version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        parent.meta.pzxid = self.zxid;
        parent.children = parent.children.saturating_sub(1);
        self.outstanding.insert(parent_path, Some(parent));
        self.outstanding.insert(path.clone(), None);
        Ok(TreeChange::Delete(path))
    }

    fn set_data(
        &mut self,
        path: Option<String>,
        data: Option<Vec<u8>>,
        version: i32,
    ) -> Result<TreeChange, ErrorCode> {
        let path = validated(path)?;
        let mut node = self.record(&path)?;
        acl::check(&node.acl, acl::WRITE, &self.caller.ids)?;
        let version = next_version(node.meta.version, version)?;
        node.meta.version = version;
        node.meta.mzxid = self.zxid;
        node.meta.mtime_ms = self.time_ms;
        self.outstanding.insert(path.clone(), Some(node));
        Ok(TreeChange::SetData { path, data, version })
    }

    fn set_acl(
        &mut self,
        path: Option<String>,
        acl: Option<Vec<RawAcl>>,
        version: i32,
    ) -> Result<TreeChange, ErrorCode> {
        let path = validated(path)?;
        let acl = acl::fixup(acl, &self.caller.ids)?;
        let node = self.record(&path)?;
        acl::check(&node.acl, acl::ADMIN, &self.caller.ids)?;
        let version = next_version(node.meta.aversion, version)?;
        // `outstanding` does not need this change: no later operation can see it, because a multi contains no setACL.
        Ok(TreeChange::SetAcl { path, acl, version })
    }

    fn check(&self, path: Option<String>, version: i32) -> Result<TreeChange, ErrorCode> {
        let path = validated(path)?;
        let node = self.record(&path)?;
        acl::check(&node.acl, acl::READ, &self.caller.ids)?;
        check_version(node.meta.version, version)?;
        Ok(TreeChange::Nothing)
    }

    /// Returns the state of a znode after the earlier operations of the transaction.
    fn record(&self, path: &str) -> Result<Record, ErrorCode> {
        if let Some(outstanding) = self.outstanding.get(path) {
            return outstanding.clone().ok_or(ErrorCode::NoNode);
        }
        let node = self.tree.node(path).ok_or(ErrorCode::NoNode)?;
        let children = node.children_count();
        Ok(Record { meta: node.meta, children, acl: Arc::clone(&node.acl) })
    }
}

/// Validates the path of a znode that is changed or checked. Null is refused with BadArguments here, but with
/// MarshallingError in creations and deletions.
fn validated(path: Option<String>) -> Result<String, ErrorCode> {
    let path = path.ok_or(ErrorCode::BadArguments)?;
    path::validate(&path)?;
    Ok(path)
}

/// Refuses a request that expects another version than the current one. A request for -1 accepts any version.
fn check_version(current: i32, expected: i32) -> Result<(), ErrorCode> {
    if expected == -1 || expected == current { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

/// Returns the version after a write, if [`check_version`] allows the write.
fn next_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    check_version(current, expected)?;
    Ok(current.wrapping_add(1))
}

#[cfg(test)]
mod tests;
