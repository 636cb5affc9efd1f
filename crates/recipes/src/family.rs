//! Elections of other clients: which client a znode belongs to, judging by its name.
//!
//! Each client names the znodes of its contenders in its own way, and orders all znodes in the path by its own rule. So
//! contenders of two clients in one path form two elections: each has its own leader, or one of the clients fails.

use crate::{Sequence, SessionId};
use std::fmt;

/// The maximum length of a foreign contender's id as it is shown, in characters: that of a
/// [`MemberId`](crate::MemberId).
const LONGEST_ID: usize = 253;

/// A client library that elects a leader with ephemeral sequential znodes. Each variant has the pattern of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ForeignClient {
    /// `_c_<uuid>-latch-<10 digits>`
    CuratorLatch,
    /// `_c_<uuid>-lock-<10 digits>`, also used by `InterProcessMutex` and Spring Integration
    CuratorSelector,
    /// `<32 hexadecimal digits>__lock__<10 digits>`
    Kazoo,
    /// `n_<10 digits>`, of zookeeper-recipes-election
    ZookeeperRecipe,
    /// `<guid>-n_<10 digits>`, of the recipe in ZooKeeper's documentation
    DocumentedRecipe,
    /// `_c_<32 hexadecimal digits>-lock-<10 digits>`
    GoZookeeper,
    /// `leader_<10 digits>`, of Bellwether's own elections with the default prefix. Foreign to a member that takes part
    /// in another client's election
    Bellwether,
}

impl ForeignClient {
    pub const ALL: [Self; 7] = [
        Self::CuratorLatch,
        Self::CuratorSelector,
        Self::Kazoo,
        Self::ZookeeperRecipe,
        Self::DocumentedRecipe,
        Self::GoZookeeper,
        Self::Bellwether,
    ];

    /// Returns the client whose znodes have names like this one, and the znode's number, which is negative once
    /// ZooKeeper's counter has overflowed. Returns `None` if no known client has such names.
    pub fn of_name(name: &str) -> Option<(Self, i32)> {
        let (start, number) = split_number(name)?;
        let client = if start == "n_" {
            Some(Self::ZookeeperRecipe)
        } else if start == OWN_PREFIX {
            Some(Self::Bellwether)
        } else if let Some(rest) = start.strip_prefix("_c_") {
            // Both clients write `_c_` and `-lock-`, but only Curator writes hyphens into the guid.
            let is_go = rest.strip_suffix("-lock-").is_some_and(|guid| is_hex(guid, 32));
            if is_go { Some(Self::GoZookeeper) } else { Self::of_curator(rest) }
        } else if let Some(guid) = start.strip_suffix("__lock__") {
            is_hex(guid, 32).then_some(Self::Kazoo)
        } else {
            let guid = start.strip_suffix("-n_")?;
            (is_uuid(guid) || is_hex(guid, 32)).then_some(Self::DocumentedRecipe)
        };
        Some((client?, number))
    }

    /// Returns the Curator recipe that uses this name; `None` if none does. `rest` is the name between `_c_` and the
    /// number.
    fn of_curator(rest: &str) -> Option<Self> {
        match rest.split_at_checked(36).filter(|(guid, _)| is_uuid(guid))? {
            (_, "-latch-") => Some(Self::CuratorLatch),
            (_, "-lock-") => Some(Self::CuratorSelector),
            _ => None,
        }
    }

    /// Returns the number that orders a znode of this name in the queue of the client `self`. Returns `None` if that
    /// client ignores such a name, or if ZooKeeper's counter has overflowed, since clients disagree about the order of
    /// negative numbers.
    pub fn sequence_of(self, name: &str) -> Option<Sequence> {
        let (client, number) = Self::of_name(name)?;
        let is_in_queue = match self {
            // Each of these two clients also orders the other's znodes, by the number after `lock-`.
            Self::CuratorSelector | Self::GoZookeeper => {
                matches!(client, Self::CuratorSelector | Self::GoZookeeper)
            }
            Self::CuratorLatch
            | Self::Kazoo
            | Self::ZookeeperRecipe
            | Self::DocumentedRecipe
            | Self::Bellwether => client == self,
        };
        if is_in_queue { Sequence::new(number) } else { None }
    }

    /// Returns the name, up to the number, of a znode that a member creates in this session to take part in the
    /// client's election.
    pub fn name_start(self, session: SessionId) -> String {
        let guid = guid_of(session);
        let uuid = [&guid[..8], &guid[8..12], &guid[12..16], &guid[16..20], &guid[20..]].join("-");
        match self {
            Self::CuratorLatch => format!("_c_{uuid}-latch-"),
            Self::CuratorSelector => format!("_c_{uuid}-lock-"),
            Self::Kazoo => format!("{guid}__lock__"),
            Self::ZookeeperRecipe => "n_".into(),
            Self::DocumentedRecipe => format!("{uuid}-n_"),
            Self::GoZookeeper => format!("_c_{guid}-lock-"),
            Self::Bellwether => OWN_PREFIX.into(),
        }
    }

    /// Returns true if the guid in this name shows that a member, and not the client itself, created the znode. Always
    /// false for names of [`Self::ZookeeperRecipe`] and [`Self::Bellwether`], which have no guid.
    pub fn is_created_by_member(name: &str) -> bool {
        // The guid is the first 32 digits of a name, without hyphens and without `_c_`. See `guid_of`: its 13th digit
        // is the version of the UUID.
        let guid = name.strip_prefix("_c_").unwrap_or(name).bytes().filter(|b| *b != b'-');
        let guid: Vec<u8> = guid.take(32).collect();
        guid.len() == 32 && guid[12] == b'8' && guid.ends_with(MEMBER_GUID_END.as_bytes())
    }

    /// Returns the id of a foreign contender: the data of its znode as text. Control characters are replaced, and an id
    /// that is too long is cut. `None` if the data is blank.
    pub fn id(data: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(data);
        let id: String = text
            .trim()
            .chars()
            .take(LONGEST_ID)
            .map(|c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
            .collect();
        (!id.is_empty()).then_some(id)
    }

    /// Returns the client's name in settings, metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::CuratorLatch => "curator-latch",
            Self::CuratorSelector => "curator-selector",
            Self::Kazoo => "kazoo",
            Self::ZookeeperRecipe => "zookeeper-recipe",
            Self::DocumentedRecipe => "documented-recipe",
            Self::GoZookeeper => "go-zookeeper",
            Self::Bellwether => "bellwether",
        }
    }
}

/// The start of members' names with the default `election.prefix`.
const OWN_PREFIX: &str = "leader_";

/// The end of the guids in the names that members create: `bellwet`, in hexadecimal digits.
const MEMBER_GUID_END: &str = "62656c6c776574";

/// Returns the guid, a UUID of version 8, in the names that members create in this session. By this guid, the session
/// recognizes its own znodes.
fn guid_of(session: SessionId) -> String {
    let id = format!("{:016x}", session.0);
    // The first 8 is the version of the UUID, the second one its variant.
    format!("{}8{}8{}{MEMBER_GUID_END}", &id[..12], &id[12..15], &id[15..])
}

/// Formats the client's name for operators.
impl fmt::Display for ForeignClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CuratorLatch => "Curator's LeaderLatch",
            Self::CuratorSelector => "Curator's LeaderSelector",
            Self::Kazoo => "kazoo's Election",
            Self::ZookeeperRecipe => "ZooKeeper's LeaderElectionSupport",
            Self::DocumentedRecipe => "the recipe in ZooKeeper's documentation",
            Self::GoZookeeper => "go-zookeeper's Lock",
            Self::Bellwether => "Bellwether without election.compatible_with",
        })
    }
}

/// Splits a name before the number that ZooKeeper appended: ten digits, with a minus sign once the counter has
/// overflowed. `None` if the name has no such number.
fn split_number(name: &str) -> Option<(&str, i32)> {
    let at = name.len().checked_sub(10)?;
    let is_number = name.is_char_boundary(at) && name[at..].bytes().all(|b| b.is_ascii_digit());
    let start = is_number.then(|| &name[..at])?;
    match start.strip_suffix('-') {
        // A hyphen before the digits is a minus sign, unless the client writes one there in every name.
        Some(unsigned) if !ends_in_hyphen(start) => Some((unsigned, name[at - 1..].parse().ok()?)),
        Some(_) | None => Some((start, name[at..].parse().ok()?)),
    }
}

/// Returns true if this start of a name, up to the number, is of a client that writes a hyphen before every number.
fn ends_in_hyphen(start: &str) -> bool {
    start.ends_with("-latch-") || start.ends_with("-lock-")
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b): (usize, u8)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6f1d2c3e-8a7b-4c5d-9e0f-112233445566";
    const HEX: &str = "6f1d2c3e8a7b4c5d9e0f112233445566";

    fn name(client: ForeignClient, number: &str) -> String {
        match client {
            ForeignClient::CuratorLatch => format!("_c_{UUID}-latch-{number}"),
            ForeignClient::CuratorSelector => format!("_c_{UUID}-lock-{number}"),
            ForeignClient::Kazoo => format!("{HEX}__lock__{number}"),
            ForeignClient::ZookeeperRecipe => format!("n_{number}"),
            ForeignClient::DocumentedRecipe => format!("{UUID}-n_{number}"),
            ForeignClient::GoZookeeper => format!("_c_{HEX}-lock-{number}"),
            ForeignClient::Bellwether => format!("leader_{number}"),
        }
    }

    #[test]
    fn each_client_is_told_by_the_names_that_it_gives() {
        for client in ForeignClient::ALL {
            let of_name = |number| ForeignClient::of_name(&name(client, number));
            assert_eq!(of_name("0000000007"), Some((client, 7)), "{client}");
            assert_eq!(of_name("2147483647"), Some((client, i32::MAX)), "{client}");
            assert_eq!(of_name("-2147483648"), Some((client, i32::MIN)), "{client}");
            for number in ["", "7", "000000000x", "00000000071", "2147483648", "--000000007"] {
                assert_eq!(of_name(number), None, "{client}: {number}");
            }
        }
        assert_eq!(
            ForeignClient::of_name(&format!("{HEX}-n_0000000001")),
            Some((ForeignClient::DocumentedRecipe, 1))
        );
        for unknown_name in [
            "other_0000000000",
            "claim-leader_",
            "0000000000",
            "_c_0-latch-0000000000",
            "_c_6f1d2c3e-8a7b-4c5d-9e0f-11223344556-latch-0000000003",
            "_c_6f1d2c3e-8a7b-4c5d-9e0f-112233445566-READ-0000000003",
            "_c_6f1d2c3e_8a7b_4c5d_9e0f_112233445566-lock-0000000003",
            "6f1d2c3e8a7b4c5d9e0f11223344556x__lock__0000000001",
            "x-n_0000000001",
            "an_0000000001",
            "n-0000000001",
            "ä-latch-0000000001",
            "é000000000",
            "",
        ] {
            assert_eq!(ForeignClient::of_name(unknown_name), None, "{unknown_name}");
        }
    }

    #[test]
    fn an_id_is_one_line_of_text_whatever_was_written() {
        assert_eq!(ForeignClient::id(b" 10.0.0.7\n").as_deref(), Some("10.0.0.7"));
        assert_eq!(ForeignClient::id("Zürich 1".as_bytes()).as_deref(), Some("Zürich 1"));
        assert_eq!(
            ForeignClient::id(b"a\nb\x1b[2J\xff").as_deref(),
            Some("a\u{fffd}b\u{fffd}[2J\u{fffd}")
        );
        assert_eq!(ForeignClient::id(&[b'x'; 900]).map(|id| id.len()), Some(LONGEST_ID));
        for nothing in [&b""[..], b" \n"] {
            assert_eq!(ForeignClient::id(nothing), None);
        }
    }

    #[test]
    fn a_sessions_names_are_the_clients_and_tell_that_a_member_made_them() {
        let session = SessionId(0x0123_4567_89ab_cdef);
        for client in ForeignClient::ALL {
            let name = format!("{}0000000007", client.name_start(session));
            assert_eq!(ForeignClient::of_name(&name), Some((client, 7)), "{name}");
            assert_eq!(client.sequence_of(&name), Sequence::new(7), "{name}");
            let has_guid =
                ![ForeignClient::ZookeeperRecipe, ForeignClient::Bellwether].contains(&client);
            assert_eq!(ForeignClient::is_created_by_member(&name), has_guid, "{name}");
            let others = [SessionId(0x0123_4567_89ab_cdee), SessionId(-1), SessionId(0)];
            let is_different = |other| client.name_start(other) != client.name_start(session);
            assert!(others.into_iter().all(|other| is_different(other) == has_guid), "{name}");
        }
        let latch = ForeignClient::CuratorLatch.name_start(session);
        assert_eq!(latch, "_c_01234567-89ab-8cde-8f62-656c6c776574-latch-");
        assert_eq!(
            ForeignClient::Kazoo.name_start(session),
            "0123456789ab8cde8f62656c6c776574__lock__"
        );
        for client in ForeignClient::ALL {
            assert!(!ForeignClient::is_created_by_member(&name(client, "0000000001")), "{client}");
        }
        assert!(!ForeignClient::is_created_by_member(""));
    }

    #[test]
    fn a_queue_has_all_that_its_client_ranks_by_the_same_number() {
        for client in ForeignClient::ALL {
            let counted: Vec<_> = ForeignClient::ALL
                .into_iter()
                .filter(|other| client.sequence_of(&name(*other, "0000000012")).is_some())
                .collect();
            let both = [ForeignClient::CuratorSelector, ForeignClient::GoZookeeper];
            let expected = if both.contains(&client) { both.to_vec() } else { vec![client] };
            assert_eq!(counted, expected, "{client}");
            assert_eq!(client.sequence_of(&name(client, "-2147483648")), None, "{client}");
        }
    }
}
