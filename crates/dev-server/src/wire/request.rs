//! Requests of clients.

use super::{Malformed, Reader, opcode};

/// The first frame of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    pub(crate) last_zxid_seen: i64,
    pub(crate) timeout_ms: i32,
    /// The session to resume, or 0 for a new one.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Whether the client knows of read-only servers. If so, the answer contains whether this server is read-only.
    pub(crate) knows_read_only: bool,
}

impl Connect {
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let _protocol_version = from.int()?;
        Ok(Self {
            last_zxid_seen: from.long()?,
            timeout_ms: from.int()?,
            session: from.long()?,
            password: from.buffer()?.unwrap_or_default().to_owned(),
            knows_read_only: !from.is_empty(),
        })
    }
}

/// An ACL entry as it was sent, where any string may be null.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawAcl {
    pub(crate) perms: i32,
    pub(crate) scheme: Option<String>,
    pub(crate) id: Option<String>,
}

/// A request within a session.
#[derive(Debug)]
pub(crate) enum Request {
    Ping,
    CloseSession,
    Write(WriteRequest),
    /// The operations of a multi. If they read, the request is refused when it is handled.
    Multi(Vec<Self>),
    /// A check outside of a multi.
    BareCheck,
    Reconfig,
    Read(ReadRequest),
    Watch(Watch),
    Unknown,
}

/// A request that may change the tree.
#[derive(Debug)]
pub(crate) enum WriteRequest {
    Create(Create),
    Delete { path: Option<String>, version: i32 },
    SetData { path: Option<String>, data: Option<Vec<u8>>, version: i32 },
    SetAcl { path: Option<String>, acl: Option<Vec<RawAcl>>, version: i32 },
    Check { path: Option<String>, version: i32 },
}

impl WriteRequest {
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Create(create) => create.path.as_deref(),
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. } => path.as_deref(),
        }
    }
}

/// A request for a new znode.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) kind: CreateKind,
    pub(crate) path: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Option<Vec<RawAcl>>,
    pub(crate) flags: i32,
    /// The TTL in milliseconds; -1 if the operation has none.
    pub(crate) ttl_ms: i64,
}

/// The operation with which a znode is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateKind {
    /// Answered with the path only.
    Create,
    /// Answered with the path and the stat, like the next two.
    Create2,
    Container,
    Ttl,
}

/// A request that only reads.
#[derive(Debug)]
pub(crate) enum ReadRequest {
    Exists {
        path: Option<String>,
        watch: bool,
    },
    Data {
        path: Option<String>,
        watch: bool,
    },
    Children {
        path: Option<String>,
        watch: bool,
        with_stat: bool,
    },
    Acl {
        path: Option<String>,
    },
    Sync {
        path: Option<String>,
    },
    Ephemerals {
        prefix: Option<String>,
    },
    AllChildrenNumber {
        path: Option<String>,
    },
    WhoAmI,
    /// The operations of a multiRead. If they write, the request is refused when it is handled.
    Multi(Vec<Request>),
}

/// A request about watches. `mode` is a number of `AddWatchMode`, and `kind` a number of `Watcher.WatcherType`.
#[derive(Debug)]
pub(crate) enum Watch {
    Set(SetWatches),
    Add { path: Option<String>, mode: i32 },
    Check { path: Option<String>, kind: i32 },
    Remove { path: Option<String>, kind: i32 },
}

/// The watches that a client had before it resumed its session over another connection.
#[derive(Debug)]
pub(crate) struct SetWatches {
    /// The last zxid that the client has seen.
    pub(crate) relative_zxid: i64,
    pub(crate) data: Paths,
    pub(crate) exists: Paths,
    pub(crate) children: Paths,
    pub(crate) persistent: Paths,
    pub(crate) recursive: Paths,
}

/// A vector of paths, where the vector and each path may be null.
pub(crate) type Paths = Option<Vec<Option<String>>>;

impl Request {
    pub(crate) fn decode(kind: i32, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match kind {
            opcode::PING => Self::Ping,
            opcode::CLOSE_SESSION => Self::CloseSession,
            opcode::CHECK => Self::BareCheck,
            opcode::RECONFIG => Self::Reconfig,
            opcode::MULTI => Self::Multi(decode_operations(from)?),
            opcode::SET_ACL => Self::Write(WriteRequest::SetAcl {
                path: from.string()?,
                acl: acl(from)?,
                version: from.int()?,
            }),
            // Operations that a multi may contain are decoded in the same way.
            opcode::CREATE
            | opcode::CREATE2
            | opcode::CREATE_CONTAINER
            | opcode::CREATE_TTL
            | opcode::DELETE
            | opcode::SET_DATA => decode_operation(kind, from)?,
            opcode::EXISTS => {
                Self::Read(ReadRequest::Exists { path: from.string()?, watch: from.bool()? })
            }
            opcode::GET_DATA => {
                Self::Read(ReadRequest::Data { path: from.string()?, watch: from.bool()? })
            }
            opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => Self::Read(ReadRequest::Children {
                path: from.string()?,
                watch: from.bool()?,
                with_stat: kind == opcode::GET_CHILDREN2,
            }),
            opcode::GET_ACL => Self::Read(ReadRequest::Acl { path: from.string()? }),
            opcode::SYNC => Self::Read(ReadRequest::Sync { path: from.string()? }),
            opcode::GET_EPHEMERALS => {
                Self::Read(ReadRequest::Ephemerals { prefix: from.string()? })
            }
            opcode::GET_ALL_CHILDREN_NUMBER => {
                Self::Read(ReadRequest::AllChildrenNumber { path: from.string()? })
            }
            opcode::WHO_AM_I => Self::Read(ReadRequest::WhoAmI),
            opcode::MULTI_READ => Self::Read(ReadRequest::Multi(decode_operations(from)?)),
            opcode::SET_WATCHES => Self::Watch(Watch::Set(set_watches(from, false)?)),
            opcode::SET_WATCHES2 => Self::Watch(Watch::Set(set_watches(from, true)?)),
            opcode::ADD_WATCH => {
                Self::Watch(Watch::Add { path: from.string()?, mode: from.int()? })
            }
            opcode::CHECK_WATCHES => {
                Self::Watch(Watch::Check { path: from.string()?, kind: from.int()? })
            }
            opcode::REMOVE_WATCHES => {
                Self::Watch(Watch::Remove { path: from.string()?, kind: from.int()? })
            }
            _ => Self::Unknown,
        })
    }
}

/// Decodes the operations of a multi or multiRead. As in the real server, either all must write or all must read.
fn decode_operations(from: &mut Reader<'_>) -> Result<Vec<Request>, Malformed> {
    let mut operations: Vec<Request> = Vec::new();
    loop {
        let kind = from.int()?;
        let done = from.bool()?;
        let _error = from.int()?;
        if done {
            return Ok(operations);
        }
        let operation = decode_operation(kind, from)?;
        let is_mixed = operations.first().is_some_and(|first| {
            matches!(first, Request::Read(_)) != matches!(operation, Request::Read(_))
        });
        if is_mixed {
            return Err(Malformed("a multi has operations that write and others that read"));
        }
        operations.push(operation);
    }
}

/// Decodes an operation that a multi or multiRead may contain.
fn decode_operation(kind: i32, from: &mut Reader<'_>) -> Result<Request, Malformed> {
    Ok(match kind {
        opcode::CREATE => Request::Write(create(CreateKind::Create, from)?),
        opcode::CREATE2 => Request::Write(create(CreateKind::Create2, from)?),
        opcode::CREATE_CONTAINER => Request::Write(create(CreateKind::Container, from)?),
        opcode::CREATE_TTL => Request::Write(create(CreateKind::Ttl, from)?),
        opcode::DELETE => {
            Request::Write(WriteRequest::Delete { path: from.string()?, version: from.int()? })
        }
        opcode::SET_DATA => Request::Write(WriteRequest::SetData {
            path: from.string()?,
            data: owned(from.buffer()?),
            version: from.int()?,
        }),
        opcode::CHECK => {
            Request::Write(WriteRequest::Check { path: from.string()?, version: from.int()? })
        }
        // Within a multiRead, the real server sets no watch even if the request asks for it.
        opcode::GET_DATA => {
            let path = from.string()?;
            let _watch = from.bool()?;
            Request::Read(ReadRequest::Data { path, watch: false })
        }
        opcode::GET_CHILDREN => {
            let path = from.string()?;
            let _watch = from.bool()?;
            Request::Read(ReadRequest::Children { path, watch: false, with_stat: false })
        }
        _ => return Err(Malformed("a multi has an operation that is not allowed in it")),
    })
}

fn create(kind: CreateKind, from: &mut Reader<'_>) -> Result<WriteRequest, Malformed> {
    Ok(WriteRequest::Create(Create {
        kind,
        path: from.string()?,
        data: owned(from.buffer()?),
        acl: acl(from)?,
        flags: from.int()?,
        ttl_ms: if kind == CreateKind::Ttl { from.long()? } else { -1 },
    }))
}

fn acl(from: &mut Reader<'_>) -> Result<Option<Vec<RawAcl>>, Malformed> {
    from.vector(|from| {
        Ok(RawAcl { perms: from.int()?, scheme: from.string()?, id: from.string()? })
    })
}

/// Decodes a setWatches, or with `persistent` a setWatches2, which has two more lists.
fn set_watches(from: &mut Reader<'_>, persistent: bool) -> Result<SetWatches, Malformed> {
    let mut watches = SetWatches {
        relative_zxid: from.long()?,
        data: from.vector(Reader::string)?,
        exists: from.vector(Reader::string)?,
        children: from.vector(Reader::string)?,
        persistent: Some(Vec::new()),
        recursive: Some(Vec::new()),
    };
    if persistent {
        watches.persistent = from.vector(Reader::string)?;
        watches.recursive = from.vector(Reader::string)?;
    }
    Ok(watches)
}

fn owned(bytes: Option<&[u8]>) -> Option<Vec<u8>> {
    bytes.map(<[u8]>::to_vec)
}
