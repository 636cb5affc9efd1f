//! Requests that only read.

use super::ServerState;
use crate::acl;
use crate::error::ErrorCode;
use crate::tree::Node;
use crate::watches::{ConnectionId, WatchMode};
use crate::wire::opcode;
use crate::wire::reply::{OperationResult, Reply};
use crate::wire::request::{ReadRequest, Request};

/// The maximum size of a multiRead's results, in bytes: one short frame may request the same long data thousands of
/// times.
const MAX_MULTI_READ: usize = 16 << 20;

impl ServerState {
    /// Answers a request that only reads, and may set a watch. For a null path, Java throws a NullPointerException.
    pub(super) fn read(
        &mut self,
        from: ConnectionId,
        read: ReadRequest,
    ) -> Result<Reply, ErrorCode> {
        match read {
            ReadRequest::Exists { path, watch } => {
                let path = path.ok_or(ErrorCode::Marshalling)?;
                // As in the real server, other invalid paths are not refused: they have no znode.
                if path.contains('\0') {
                    return Err(ErrorCode::BadArguments);
                }
                // A path without a znode is watched too, for its creation.
                if watch {
                    self.data_watches.add(&path, from, WatchMode::OneShot);
                }
                let node = self.tree.node(&path).ok_or(ErrorCode::NoNode)?;
                Ok(Reply::Stat(node.stat()))
            }
            ReadRequest::Data { path, watch } => {
                let path = path.ok_or(ErrorCode::Marshalling)?;
                let node = self.readable(from, &path)?;
                let reply = Reply::Data(node.data.clone(), node.stat());
                if watch {
                    self.data_watches.add(&path, from, WatchMode::OneShot);
                }
                Ok(reply)
            }
            ReadRequest::Children { path, watch, with_stat } => {
                let path = path.ok_or(ErrorCode::Marshalling)?;
                let node = self.readable(from, &path)?;
                let reply = Reply::Names(node.children(), with_stat.then(|| node.stat()));
                if watch {
                    self.child_watches.add(&path, from, WatchMode::OneShot);
                }
                Ok(reply)
            }
            ReadRequest::Acl { path } => {
                let path = path.ok_or(ErrorCode::Marshalling)?;
                let node = self.tree.node(&path).ok_or(ErrorCode::NoNode)?;
                let caller = self.ids(from);
                acl::check(&node.acl, acl::READ | acl::ADMIN, caller)?;
                let list = match acl::check(&node.acl, acl::ADMIN, caller) {
                    Ok(()) => node.acl.to_vec(),
                    Err(_) => acl::masked(&node.acl),
                };
                Ok(Reply::Acl(list, node.stat()))
            }
            // A single server never lags, so a sync does nothing, and does not even check the path.
            ReadRequest::Sync { path } => Ok(Reply::Path(path)),
            ReadRequest::Ephemerals { prefix } => {
                let session =
                    self.connections.get(&from).map_or(0, |connection| connection.session);
                let mut paths = self.tree.ephemerals_of(session);
                let prefix = prefix.unwrap_or_default();
                if !matches!(prefix.trim(), "" | "/") {
                    paths.retain(|path| path.starts_with(&prefix));
                }
                Ok(Reply::Names(paths, None))
            }
            ReadRequest::AllChildrenNumber { path } => {
                let path = path.ok_or(ErrorCode::Marshalling)?;
                self.readable(from, &path)?;
                let count = self.tree.count_below(&path);
                Ok(Reply::Number(i32::try_from(count).unwrap_or(i32::MAX)))
            }
            ReadRequest::WhoAmI => Ok(Reply::Identities(self.ids(from).to_vec())),
            ReadRequest::Multi(parts) => self.multi_read(from, parts),
        }
    }

    /// Answers several reads, each of which may be refused separately. At an operation that writes, or whose path is
    /// null, the request fails as a whole.
    fn multi_read(&mut self, from: ConnectionId, parts: Vec<Request>) -> Result<Reply, ErrorCode> {
        let mut results = Vec::new();
        let mut size = 0;
        for part in parts {
            let Request::Read(read) = part else { return Ok(Reply::ResultsSoFar(results)) };
            if size > MAX_MULTI_READ {
                return Err(ErrorCode::Marshalling);
            }
            // The decoder accepts only these two reads in a multiRead.
            let kind = match read {
                ReadRequest::Data { .. } => opcode::GET_DATA,
                _ => opcode::GET_CHILDREN,
            };
            results.push(match self.read(from, read) {
                Ok(reply) => {
                    size += match &reply {
                        Reply::Data(data, _) => data.as_ref().map_or(0, Vec::len),
                        Reply::Names(names, _) => names.iter().map(String::len).sum(),
                        _ => 0,
                    };
                    OperationResult::Done(kind, reply)
                }
                // The path is null.
                Err(ErrorCode::Marshalling) => return Ok(Reply::ResultsSoFar(results)),
                Err(code) => OperationResult::Error(code.number()),
            });
        }
        Ok(Reply::Results(results))
    }

    /// Returns a znode, if the caller may read it.
    fn readable(&self, from: ConnectionId, path: &str) -> Result<&Node, ErrorCode> {
        let node = self.tree.node(path).ok_or(ErrorCode::NoNode)?;
        acl::check(&node.acl, acl::READ, self.ids(from))?;
        Ok(node)
    }
}
