//! The modes in which znodes are created, numbered as in ZooKeeper's `CreateMode`.

/// The mode of a create, according to the flags of the request: 0 persistent, 1 ephemeral, 2 persistent and sequential,
/// 3 ephemeral and sequential, 4 container, 5 with a TTL, 6 sequential with a TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreateMode(i32);

impl CreateMode {
    /// Returns `None` for flags that the real server does not know.
    pub(crate) fn from_flags(flags: i32) -> Option<Self> {
        (0..=6).contains(&flags).then_some(Self(flags))
    }

    pub(crate) fn is_ephemeral(self) -> bool {
        matches!(self.0, 1 | 3)
    }

    pub(crate) fn is_sequential(self) -> bool {
        matches!(self.0, 2 | 3 | 6)
    }

    pub(crate) fn is_container(self) -> bool {
        self.0 == 4
    }

    pub(crate) fn has_ttl(self) -> bool {
        matches!(self.0, 5 | 6)
    }
}
