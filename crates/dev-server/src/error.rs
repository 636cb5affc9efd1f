//! The error codes of replies.

/// Why a request is refused, with the number that `KeeperException.Code` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum ErrorCode {
    /// Not tried, since an operation before it in the same multi was refused.
    RuntimeInconsistency = -2,
    /// The body could not be decoded, or has null where the real server would fail on it.
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
    /// The number on the wire.
    pub(crate) fn number(self) -> i32 {
        self as i32
    }
}
