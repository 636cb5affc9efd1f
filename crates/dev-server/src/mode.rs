//! The seven modes of `CreateMode`.

/// How a znode is created, according to the flags of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateMode {
    Persistent,
    Ephemeral,
    PersistentSequential,
    EphemeralSequential,
    Container,
    PersistentWithTtl,
    PersistentSequentialWithTtl,
}

impl CreateMode {
    pub(crate) fn from_flags(flags: i32) -> Option<Self> {
        Some(match flags {
            0 => Self::Persistent,
            1 => Self::Ephemeral,
            2 => Self::PersistentSequential,
            3 => Self::EphemeralSequential,
            4 => Self::Container,
            5 => Self::PersistentWithTtl,
            6 => Self::PersistentSequentialWithTtl,
            _ => return None,
        })
    }

    pub(crate) fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    pub(crate) fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialWithTtl
        )
    }

    pub(crate) fn has_ttl(self) -> bool {
        matches!(self, Self::PersistentWithTtl | Self::PersistentSequentialWithTtl)
    }
}
