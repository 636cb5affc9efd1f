//! The metadata of a znode: as the server stores it, and as clients see it.

use crate::wire::Writer;

/// The owner of a znode.
///
/// The real server stores the owner in the single number `ephemeralOwner`, with special values for containers and TTLs
/// (`EphemeralType`), for which clients see 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A persistent znode, which belongs to the tree.
    #[default]
    Tree,
    Session(i64),
    Container,
    /// A znode that is deleted after this many milliseconds without changes and without children.
    Ttl(i64),
}

impl Owner {
    /// The longest TTL: 40 bits of milliseconds, as in `EphemeralType.TTL.maxValue`.
    const MAX_TTL_MS: i64 = 0xff_ffff_ffff;

    /// Returns the owner of a znode with a TTL; `None` if the TTL is out of bounds.
    pub(crate) fn with_ttl(ttl_ms: i64) -> Option<Self> {
        (1..=Self::MAX_TTL_MS).contains(&ttl_ms).then_some(Self::Ttl(ttl_ms))
    }
}

/// Metadata of a znode, as the server stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeMeta {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime_ms: i64,
    pub(crate) mtime_ms: i64,
    pub(crate) version: i32,
    /// The number of children ever created under the znode, which is the next sequence number.
    pub(crate) creations: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: Owner,
}

impl NodeMeta {
    pub(crate) fn new(zxid: i64, time_ms: i64, owner: Owner) -> Self {
        Self {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime_ms: time_ms,
            mtime_ms: time_ms,
            owner,
            ..Self::default()
        }
    }
}

/// Metadata of a znode, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) meta: NodeMeta,
    pub(crate) data_length: i32,
    pub(crate) children: i32,
}

impl Stat {
    pub(crate) fn encode(&self, into: &mut Writer) {
        let Self { meta, data_length, children } = self;
        into.long(meta.czxid);
        into.long(meta.mzxid);
        into.long(meta.ctime_ms);
        into.long(meta.mtime_ms);
        into.int(meta.version);
        into.int(self.cversion());
        into.int(meta.aversion);
        into.long(self.ephemeral_owner());
        into.int(*data_length);
        into.int(*children);
        into.long(meta.pzxid);
    }

    /// Returns the number of creations plus deletions: each child that no longer exists was deleted once.
    pub(crate) fn cversion(&self) -> i32 {
        self.meta.creations.wrapping_mul(2).wrapping_sub(self.children)
    }

    fn ephemeral_owner(&self) -> i64 {
        match self.meta.owner {
            Owner::Session(session) => session,
            Owner::Tree | Owner::Container | Owner::Ttl(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cversion_counts_creations_and_deletions() {
        fn cversion(creations: i32, children: i32) -> i32 {
            let meta = NodeMeta { creations, ..NodeMeta::default() };
            Stat { meta, data_length: 0, children }.cversion()
        }
        assert_eq!(cversion(5, 5), 5);
        assert_eq!(cversion(5, 2), 8);
        assert_eq!(cversion(i32::MAX, 1), -3);
    }

    #[test]
    fn only_sessions_are_shown_as_owners() {
        fn shown(owner: Owner) -> i64 {
            let meta = NodeMeta { owner, ..NodeMeta::default() };
            Stat { meta, data_length: 0, children: 0 }.ephemeral_owner()
        }
        assert_eq!(shown(Owner::Session(7)), 7);
        assert_eq!(shown(Owner::Container), 0);
        assert_eq!(shown(Owner::Ttl(7)), 0);
    }

    #[test]
    fn a_ttl_has_forty_bits() {
        assert_eq!(Owner::with_ttl(1), Some(Owner::Ttl(1)));
        assert_eq!(Owner::with_ttl(0), None);
        assert_eq!(Owner::with_ttl(-1), None);
        assert_eq!(Owner::with_ttl(0xff_ffff_ffff), Some(Owner::Ttl(0xff_ffff_ffff)));
        assert_eq!(Owner::with_ttl(0x100_0000_0000), None);
    }
}
