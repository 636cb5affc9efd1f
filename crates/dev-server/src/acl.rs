//! Access control lists, with the schemes world, digest, auth and ip.

use crate::error::ErrorCode;
use crate::java::{bucket, string_hash};
use crate::wire::request::RawAcl;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;
const ALL: i32 = 31;

/// The maximum number of entries in a list. A short frame may contain many entries "auth", and each expands to all
/// digest ids of the caller, so that without a limit the list could take much memory.
const MAX_ENTRIES: usize = 1 << 16;

const WORLD: &str = "world";
const ANYONE: &str = "anyone";
const AUTH: &str = "auth";
const DIGEST: &str = "digest";
const IP: &str = "ip";

/// An identity under a scheme of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// An entry of a list: the permissions of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclEntry {
    pub(crate) perms: i32,
    pub(crate) id: Id,
}

impl Id {
    fn new(scheme: &str, id: &str) -> Self {
        Self { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// Returns the id that a connection has because of its address, in Java's notation.
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::new(IP, &host_address(address))
    }

    /// Returns the name that `whoAmI` shows.
    pub(crate) fn user_name(&self) -> &str {
        match self.id.split_once(':') {
            Some((user, _)) if self.scheme == DIGEST => user,
            _ => &self.id,
        }
    }

    fn is_anyone(&self) -> bool {
        self.scheme == WORLD && self.id == ANYONE
    }
}

/// Returns the list of a znode with all permissions for everyone.
pub(crate) fn open() -> Arc<[AclEntry]> {
    Arc::new([AclEntry { perms: ALL, id: Id::new(WORLD, ANYONE) }])
}

/// Returns the list of a znode that everyone may read.
pub(crate) fn read_only() -> Arc<[AclEntry]> {
    Arc::new([AclEntry { perms: READ, id: Id::new(WORLD, ANYONE) }])
}

/// Adds the id from an `addauth` request to the ids of a connection, unless the request is refused.
pub(crate) fn authenticate(
    scheme: Option<&str>,
    auth: Option<&[u8]>,
    address: IpAddr,
    ids: &mut Vec<Id>,
) -> Result<(), ErrorCode> {
    let id = match (scheme, auth) {
        (Some(DIGEST), Some(auth)) => Id::new(DIGEST, &digest(auth)),
        // As in the real server, the credentials are ignored.
        (Some(IP), _) => Id::of_address(address),
        _ => return Err(ErrorCode::AuthFailed),
    };
    if !ids.contains(&id) {
        ids.push(id);
        // The real server keeps the ids in a hash set, of 16 buckets at first, and expands "auth" in the order of that
        // set.
        ids.sort_by_key(|id| bucket(id_hash(id), 16));
    }
    Ok(())
}

/// Returns the form of `user:password` in lists: `user:BASE64(SHA1(user:password))`.
fn digest(credentials: &[u8]) -> String {
    let credentials = String::from_utf8_lossy(credentials);
    let user = credentials.split(':').next().unwrap_or_default();
    format!("{user}:{}", BASE64_STANDARD.encode(Sha1::digest(credentials.as_bytes())))
}

/// Returns the list for a znode when a client requests `raw`, as `PrepRequestProcessor.fixupACL` does: each entry once,
/// and "auth" replaced by the digest ids of the caller. An address is not such an id: it needs no authentication.
pub(crate) fn fixup(raw: Option<Vec<RawAcl>>, caller: &[Id]) -> Result<Arc<[AclEntry]>, ErrorCode> {
    let raw = raw.unwrap_or_default();
    let mut fixed = Vec::new();
    let mut seen = HashSet::new();
    for entry in &raw {
        if !seen.insert(entry) {
            continue;
        }
        if fixed.len() > MAX_ENTRIES {
            return Err(ErrorCode::InvalidAcl);
        }
        let RawAcl { perms, scheme, id } = entry;
        let Some(scheme) = scheme.as_deref() else { return Err(ErrorCode::InvalidAcl) };
        if scheme == AUTH {
            let count_before = fixed.len();
            let digests = caller.iter().filter(|id| id.scheme == DIGEST);
            fixed.extend(digests.map(|id| AclEntry { perms: *perms, id: id.clone() }));
            if fixed.len() == count_before {
                return Err(ErrorCode::InvalidAcl);
            }
            continue;
        }
        let is_known_scheme = matches!(scheme, WORLD | DIGEST | IP);
        let id = match id {
            Some(id) => Id::new(scheme, id),
            // Java throws a NullPointerException when it looks at the id, which it does only for known schemes.
            None if is_known_scheme => return Err(ErrorCode::Marshalling),
            None => return Err(ErrorCode::InvalidAcl),
        };
        let valid = match scheme {
            WORLD => id.is_anyone(),
            DIGEST => is_digest(&id.id),
            IP => network(&id.id).is_some(),
            _ => false,
        };
        if !valid {
            return Err(ErrorCode::InvalidAcl);
        }
        fixed.push(AclEntry { perms: *perms, id });
    }
    if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed.into()) }
}

/// Refuses a caller, unless an entry of the list grants it one of the permissions. An empty list grants all, as in the
/// real server.
pub(crate) fn check(list: &[AclEntry], permissions: i32, caller: &[Id]) -> Result<(), ErrorCode> {
    let is_allowed = list.is_empty()
        || list.iter().any(|entry| {
            entry.perms & permissions != 0
                && (entry.id.is_anyone() || caller.iter().any(|id| matches(id, &entry.id)))
        });
    if is_allowed { Ok(()) } else { Err(ErrorCode::NoAuth) }
}

/// Returns the list for callers that may not change it: the hashes of passwords are replaced by `x`.
pub(crate) fn masked(list: &[AclEntry]) -> Vec<AclEntry> {
    list.iter()
        .map(|entry| match entry.id.id.split_once(':') {
            Some((user, _)) if entry.id.scheme == DIGEST => {
                AclEntry { perms: entry.perms, id: Id::new(DIGEST, &format!("{user}:x")) }
            }
            _ => entry.clone(),
        })
        .collect()
}

/// Returns true if an id of a caller has the permissions of an entry for the id `listed`.
fn matches(caller: &Id, listed: &Id) -> bool {
    caller.scheme == listed.scheme
        && match caller.scheme.as_str() {
            DIGEST => caller.id == listed.id,
            IP => network(&listed.id).is_some_and(|(network, bits)| {
                ipv4(&caller.id).is_some_and(|address| first_bits(address, bits) == network)
            }),
            _ => false,
        }
}

/// Returns true if Java's `split(":")`, which drops empty strings at the end, returns two parts.
fn is_digest(id: &str) -> bool {
    let parts: Vec<&str> = id.split(':').collect();
    let empty_at_end = parts.iter().rev().take_while(|part| part.is_empty()).count();
    parts.len() - empty_at_end == 2
}

/// Parses an IPv4 network into its address and its length in bits; ZooKeeper 3.8 supports no other networks.
fn network(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse::<u32>().ok().filter(|bits| *bits <= 32)?),
        None => (text, 32),
    };
    Some((first_bits(ipv4(address)?, bits), bits))
}

fn ipv4(text: &str) -> Option<u32> {
    text.parse().ok().map(Ipv4Addr::to_bits)
}

/// Returns the first bits of an address, followed by zeros.
fn first_bits(address: u32, bits: u32) -> u32 {
    address & u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0)
}

/// Returns an address as `InetAddress.getHostAddress` writes it: IPv6 addresses are not abbreviated.
pub(crate) fn host_address(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

/// Returns the hash of jute's generated class `Id`.
fn id_hash(id: &Id) -> i32 {
    let scheme = 37_i32.wrapping_mul(17).wrapping_add(string_hash(&id.scheme));
    scheme.wrapping_mul(37).wrapping_add(string_hash(&id.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn raw(scheme: &str, id: &str) -> RawAcl {
        RawAcl { perms: ALL, scheme: Some(scheme.to_owned()), id: Some(id.to_owned()) }
    }

    fn fix(entries: Vec<RawAcl>, caller: &[Id]) -> Result<Vec<AclEntry>, ErrorCode> {
        fixup(Some(entries), caller).map(|list| list.to_vec())
    }

    #[test]
    fn a_digest_is_that_of_the_real_server() {
        // From ZooKeeper's own documentation and tests.
        assert_eq!(digest(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn auth_stands_for_the_digests_of_the_caller() {
        let mut ids = vec![Id::of_address(LOCAL)];
        assert_eq!(fix(vec![raw(AUTH, "")], &ids), Err(ErrorCode::InvalidAcl));
        authenticate(Some(DIGEST), Some(b"u:p"), LOCAL, &mut ids).unwrap();
        let list = fix(vec![raw(AUTH, "")], &ids).unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].id.scheme, DIGEST);
        assert_eq!(list[0].id.user_name(), "u");
        assert_eq!(check(&list, WRITE, &ids), Ok(()));
        assert_eq!(check(&list, WRITE, &[Id::of_address(LOCAL)]), Err(ErrorCode::NoAuth));
    }

    #[test]
    fn schemes_without_a_provider_are_refused() {
        let mut ids = Vec::new();
        assert_eq!(
            authenticate(Some(WORLD), Some(b""), LOCAL, &mut ids),
            Err(ErrorCode::AuthFailed)
        );
        assert_eq!(authenticate(Some(DIGEST), None, LOCAL, &mut ids), Err(ErrorCode::AuthFailed));
        for entry in [raw(WORLD, "x"), raw("x509", "cn"), raw(DIGEST, "u:"), raw(IP, "::1")] {
            assert_eq!(fix(vec![entry], &[]), Err(ErrorCode::InvalidAcl));
        }
        assert_eq!(fix(Vec::new(), &[]), Err(ErrorCode::InvalidAcl));
        assert_eq!(fixup(None, &[]).err(), Some(ErrorCode::InvalidAcl));
    }

    #[test]
    fn a_list_does_not_multiply_without_end() {
        let user = |n: usize| Id::new(DIGEST, &format!("u{n}:x"));
        let ids: Vec<Id> = (0..1000).map(user).collect();
        let auth = |perms| RawAcl { perms, ..raw(AUTH, "") };
        assert_eq!(fix((0..65).map(auth).collect(), &ids).map(|list| list.len()), Ok(65_000));
        assert_eq!(fix((0..100).map(auth).collect(), &ids), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn each_entry_is_kept_once() {
        let list = fix(vec![raw(WORLD, ANYONE), raw(IP, "1.2.3.4"), raw(WORLD, ANYONE)], &[]);
        assert_eq!(list.unwrap().len(), 2);
    }

    #[test]
    fn an_ip_matches_within_its_network() {
        let caller = Id::new(IP, "10.1.2.3");
        assert!(matches(&caller, &Id::new(IP, "10.1.2.3")));
        assert!(matches(&caller, &Id::new(IP, "10.1.0.0/16")));
        assert!(matches(&caller, &Id::new(IP, "1.2.3.4/0")));
        assert!(!matches(&caller, &Id::new(IP, "10.1.2.4/31")));
        assert!(network("10.1.2/24").is_none());
        assert!(network("10.1.2.3/33").is_none());
    }

    #[test]
    fn digests_are_hidden() {
        let list = [AclEntry { perms: READ, id: Id::new(DIGEST, "u:hash") }];
        assert_eq!(masked(&list)[0].id.id, "u:x");
    }

    #[test]
    fn addresses_are_written_as_java_does() {
        assert_eq!(host_address("::1".parse().unwrap()), "0:0:0:0:0:0:0:1");
        assert_eq!(host_address("::ffff:1.2.3.4".parse().unwrap()), "1.2.3.4");
    }
}
