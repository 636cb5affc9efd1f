//! The seven modes of `CreateMode`.

/// How a znode is created, according to the flags of the request.
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
