//! The error codes of replies.

/// The reason why a request is refused, numbered as in `KeeperException.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum ErrorCode {
    /// Not tried, because an earlier operation in the same multi was refused.
    RuntimeInconsistency = -2,
    /// The body could not be decoded, or contains null where the real server would fail on it.
    Marshalling = -5,
    Unimplemented = -6,
    BadArguments = -8,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    InvalidAcl = -114,
    AuthFailed = -115,
    NoWatcher = -121,
    ReconfigDisabled = -123,
}

impl ErrorCode {
    /// Returns the number on the wire.
    pub(crate) fn number(self) -> i32 {
        self as i32
    }
}
