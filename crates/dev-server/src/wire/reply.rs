//! Replies of the server.

use super::{Writer, opcode};
use crate::acl::{AclEntry, Id};
use crate::error::ErrorCode;
use crate::stat::Stat;
use crate::watches::EventKind;

/// The xid of a watch notification.
const NOTIFICATION: i32 = -1;
/// The state of the connection in a notification: `SyncConnected`.
const CONNECTED: i32 = 3;

/// The body of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    Path(Option<String>),
    Created(String, Stat),
    Stat(Stat),
    Data(Option<Vec<u8>>, Stat),
    Names(Vec<String>, Option<Stat>),
    Acl(Vec<AclEntry>, Stat),
    Number(i32),
    Identities(Vec<Id>),
    Results(Vec<OperationResult>),
    /// The results of the operations before the operation at which a multi or multiRead failed as a whole. The real
    /// server sends these results after a header with MarshallingError.
    ResultsSoFar(Vec<OperationResult>),
}

/// The result of one operation of a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationResult {
    /// The number of the operation (see `opcode`), and the body of its answer.
    Done(i32, Reply),
    /// The number of an error code; 0 for an operation before the refused operation.
    Error(i32),
}

/// Returns the frame that answers a request.
pub(crate) fn answer(xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int(xid);
    writer.long(zxid);
    match result {
        Ok(reply) => {
            writer.int(match reply {
                Reply::ResultsSoFar(_) => ErrorCode::Marshalling.number(),
                _ => 0,
            });
            reply.encode(&mut writer);
        }
        Err(code) => writer.int(code.number()),
    }
    writer.finish()
}

/// Returns the frame that notifies of an event. Its header has zxid -1 and error code 0, as in ZooKeeper 3.8.
pub(crate) fn notification(kind: EventKind, path: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int(NOTIFICATION);
    writer.long(-1);
    writer.int(0);
    writer.int(kind.number());
    writer.int(CONNECTED);
    writer.string(path);
    writer.finish()
}

/// Returns the frame that answers a connect request. The timeout, session and password are zero if the session to
/// resume does not exist, or the client's password is wrong.
pub(crate) fn connected(
    timeout_ms: i32,
    session: i64,
    password: &[u8],
    knows_read_only: bool,
) -> Vec<u8> {
    let mut writer = Writer::new();
    let protocol_version = 0;
    writer.int(protocol_version);
    writer.int(timeout_ms);
    writer.long(session);
    writer.buffer(Some(password));
    if knows_read_only {
        let read_only = false;
        writer.bool(read_only);
    }
    writer.finish()
}

impl Reply {
    fn encode(&self, into: &mut Writer) {
        match self {
            Self::Nothing => {}
            Self::Path(path) => into.buffer(path.as_ref().map(String::as_bytes)),
            Self::Created(path, stat) => {
                into.string(path);
                stat.encode(into);
            }
            Self::Stat(stat) => stat.encode(into),
            Self::Data(data, stat) => {
                into.buffer(data.as_deref());
                stat.encode(into);
            }
            Self::Names(names, stat) => {
                into.vector(names, |into, name| into.string(name));
                if let Some(stat) = stat {
                    stat.encode(into);
                }
            }
            Self::Acl(acl, stat) => {
                into.vector(acl, |into, entry| {
                    into.int(entry.perms);
                    into.string(&entry.id.scheme);
                    into.string(&entry.id.id);
                });
                stat.encode(into);
            }
            Self::Number(number) => into.int(*number),
            Self::Identities(ids) => into.vector(ids, |into, id| {
                into.string(&id.scheme);
                into.string(id.user_name());
            }),
            Self::Results(results) | Self::ResultsSoFar(results) => {
                for result in results {
                    result.encode(into);
                }
                multi_header(into, -1, true, -1);
            }
        }
    }
}

impl OperationResult {
    fn encode(&self, into: &mut Writer) {
        match self {
            Self::Done(kind, reply) => {
                multi_header(into, *kind, false, 0);
                reply.encode(into);
            }
            Self::Error(number) => {
                multi_header(into, opcode::ERROR, false, *number);
                into.int(*number);
            }
        }
    }
}

/// Writes the header before each result of a multi. The last header has `done`, no kind (-1) and no error code (-1),
/// and is followed by no result.
fn multi_header(into: &mut Writer, kind: i32, done: bool, error: i32) {
    into.int(kind);
    into.bool(done);
    into.int(error);
}
