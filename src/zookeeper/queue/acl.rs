//! The ACLs of created znodes, and warnings about the ACLs of others.

use super::context::Context;
use super::znode::paths_down_to;
use crate::config::security::AclPolicy;
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::{Acl as Entry, Acls, AuthId, AuthUser, Error, Permission};
use std::mem;
use tracing::warn;

/// All permissions for the identity by which the znode is created.
const OURS: Entry = Entry::new_const(Permission::ALL, "auth", "");
const ANYONE_READS: Entry = Entry::new_const(Permission::READ, "world", "anyone");
const ANYONE_CREATES: Entry = Entry::new_const(Permission::CREATE, "world", "anyone");

static READABLE_BY_ANYONE: [Entry; 2] = [OURS, ANYONE_READS];
static SHARED_WITH_ANYONE: [Entry; 3] = [OURS, ANYONE_READS, ANYONE_CREATES];

/// Returns the ACL of members' znodes and of the path above them. It must not give more permissions than necessary: a client
/// that may delete members' znodes can end a leadership, and one that may write to them can forge announcements.
pub(in crate::zookeeper) fn of_queue(acl: AclPolicy) -> Acls<'static> {
    match acl {
        AclPolicy::Open => Acls::anyone_all(),
        AclPolicy::Creator => Acls::creator_all(),
        AclPolicy::CreatorReadable => Acls::new(&READABLE_BY_ANYONE),
    }
}

/// Returns the ACL of the path's ancestors. Anyone may create other paths below them, so that applications with different
/// identities can share an ancestor. Its owner may delete znodes right below it, but not the path of an election in use: no
/// client can delete a znode that has children.
pub(in crate::zookeeper) fn of_ancestors(acl: AclPolicy) -> Acls<'static> {
    match acl {
        AclPolicy::Open => Acls::anyone_all(),
        AclPolicy::Creator | AclPolicy::CreatorReadable => Acls::new(&SHARED_WITH_ANYONE),
    }
}

/// Warns if the path's ACL lets clients other than members harm the queue. The ACL is checked once in a session, and a
/// warning that is the same as the last is not logged again.
pub(in crate::zookeeper) async fn warn_if_weak(context: &Context) {
    let settings = &context.settings;
    let was_checked = mem::replace(&mut context.state().is_acl_checked, true);
    if settings.is_open_by_choice || was_checked {
        return;
    }
    let root = &settings.root;
    let checked = context.retry_until_answered(async |connection| {
        find_weakness(&connection, root, settings.acl).await
    });
    // `find_weakness` takes every refusal for an answer, `NoNode` as well, so this does not return early.
    let Ok(weakness) = checked.await else { return };
    let remedy = remedy(settings.acl);
    let warning = weakness.map(|weakness| format!("at {root}, {weakness}: {remedy}"));
    let mut last_warning = context.reports.acl_warning.lock().expect("no panic while it is held");
    if let Some(text) = &warning
        && *last_warning != warning
    {
        warn!("{text}");
    }
    *last_warning = warning;
}

/// Reads the path's ACL, and describes which clients other than members may harm the queue, and how; `None` if none may, or
/// if the servers do not show the ACL.
async fn find_weakness(
    connection: &Connection,
    path: &str,
    acl: AclPolicy,
) -> Result<Option<String>, Error> {
    let (entries, _) = match connection.request(connection.client.get_acl(path)).await {
        // Nothing can be said about the ACL: the servers do not let us read it, or the path is gone.
        Err(error) if is_server_answer(&error) => return Ok(None),
        read => read?,
    };
    let us = auth_users(connection).await;
    Ok(possible_harm(&entries, us.as_deref(), acl))
}

/// Returns our identities as the servers know them, if the servers report them.
async fn auth_users(connection: &Connection) -> Option<Vec<AuthUser>> {
    if !connection.has_who_am_i().await {
        return None;
    }
    connection.request(connection.client.list_auth_users()).await.ok()
}

/// Describes the harm that clients other than members may do under these ACL entries; `None` if there is none. `us` contains
/// our own identities, if they are known.
fn possible_harm(entries: &[Entry], us: Option<&[AuthUser]>, acl: AclPolicy) -> Option<String> {
    let anyone_may = |permission| {
        entries.iter().any(|entry| is_anyone(entry) && entry.permission().has(permission))
    };
    let mut harm = vec![];
    if anyone_may(Permission::DELETE) {
        harm.push("delete members' znodes, the leader's among them");
    } else if anyone_may(Permission::ADMIN) {
        harm.push("change who may delete members' znodes");
    }
    // With an open ACL, members have no identity, so any client may act as a member anyway.
    if anyone_may(Permission::CREATE) && acl != AclPolicy::Open {
        harm.push("join the queue, or block it");
    }
    let mut found = vec![];
    if !harm.is_empty() {
        found.push(format!("anyone who reaches ZooKeeper may {}", harm.join(", and ")));
    }
    if let Some(us) = us
        && let Some(owners) = other_owners(entries, us)
    {
        found.push(format!(
            "{owners}, whom we are not, may delete members' znodes and let others do so"
        ));
    }
    if found.is_empty() { None } else { Some(found.join("; and ")) }
}

/// Returns the identities to which the ACL gives DELETE or ADMIN. Returns `None` if there are none, or if the ACL also names
/// one of our identities: then the ACL was made for several identities, and the others are trusted.
fn other_owners(entries: &[Entry], us: &[AuthUser]) -> Option<String> {
    if entries.iter().any(|entry| is_one_of(us, entry)) {
        return None;
    }
    let owners: Vec<_> = entries
        .iter()
        .filter(|entry| !is_anyone(entry))
        .filter(|entry| {
            let permission = entry.permission();
            permission.has(Permission::DELETE) || permission.has(Permission::ADMIN)
        })
        .map(|entry| format!("{}:{}", entry.scheme(), name(entry)))
        .collect();
    if owners.is_empty() { None } else { Some(owners.join(" and ")) }
}

/// Returns true if the entry is for one of our own identities.
fn is_one_of(us: &[AuthUser], entry: &Entry) -> bool {
    // Servers show `x` in place of the password hash to clients that may not change the ACL. We could change it by an entry
    // of our own with ADMIN, so if the hash of such an entry is hidden, the entry is not ours, even if it has our name.
    let is_hash_hidden = entry.scheme() == "digest" && entry.id().ends_with(":x");
    if is_hash_hidden && entry.permission().has(Permission::ADMIN) {
        return false;
    }
    us.iter().any(|user| user.scheme() == entry.scheme() && user.user() == name(entry))
}

/// Returns true if the entry is for any client, or for a range of addresses that is larger than any private one, such as
/// `0.0.0.0/0`.
fn is_anyone(entry: &Entry) -> bool {
    if *entry.auth_id() == AuthId::anyone() {
        return true;
    }
    let Some((_, prefix_length)) = entry.id().split_once('/') else { return false };
    entry.scheme() == "ip" && prefix_length.parse::<u8>().is_ok_and(|length| length < 8)
}

/// Returns the identity in the entry, without its password hash.
fn name(entry: &Entry) -> &str {
    match entry.scheme() {
        "digest" => entry.id().split(':').next().unwrap_or_default(),
        _ => entry.id(),
    }
}

/// Returns the advice about a weak ACL.
fn remedy(acl: AclPolicy) -> &'static str {
    match acl {
        AclPolicy::Open => {
            "give all members an identity (zookeeper.auth, zookeeper.tls.cert) before the path is \
             created, or say zookeeper.acl = \"open\" if it is meant to be so"
        }
        AclPolicy::Creator | AclPolicy::CreatorReadable => {
            "the path has had this ACL since it was created, and members leave it so: have the path's owner, or an \
             administrator of ZooKeeper, change it (setAcl), or let the path be created again while no member is in it"
        }
    }
}

/// Describes for operators, in one line, why the servers refused a request at the path, and the remedy. If the ACL was the
/// reason, the line has our identity as the servers know it, and the entries of the ACL.
pub(crate) async fn refusal(
    connection: &Connection,
    acl: AclPolicy,
    path: &str,
    error: &Error,
) -> String {
    match error {
        Error::NoAuth => {
            let us = own_identity(connection).await;
            let allowed = acl_entries(connection, path).await;
            // If the ACL has our user name, only the password is different. An entry is `digest:app (ALL)`: the space is
            // the end of the name.
            if us.starts_with("digest:") && allowed.contains(&format!("{us} ")) {
                return format!(
                    "ZooKeeper does not let us in at {path}: it is for {us} with another password \
                     than ours. Give all members the same zookeeper.credentials_file"
                );
            }
            let identity = match cfg!(feature = "kerberos") && us.contains("sasl:") {
                true => {
                    "zookeeper.auth, zookeeper.tls.cert; with Kerberos zookeeper.kerberos.principal, or, for a principal \
                         for each host, kerberos.removeHostFromPrincipal=true in the servers' zoo.cfg"
                }
                false => "zookeeper.auth, zookeeper.tls.cert",
            };
            format!(
                "ZooKeeper does not let us in at {path}: we are {us}, and it is for {allowed}. Give \
                 all members the same identity ({identity}), or have its ACL changed (setAcl)"
            )
        }
        Error::InvalidAcl => {
            let us = own_identity(connection).await;
            // If the name after `sasl:` is empty, the SASL login has succeeded, but the servers have no provider that knows
            // SASL names in ACLs.
            if us.split(" and ").any(|user| user == "sasl:") {
                return format!(
                    "ZooKeeper cannot keep {path} for us, as zookeeper.acl = \"{acl}\" wants it: we are logged in by SASL, \
                     and the servers keep no ACLs of such clients. Set \
                     authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider in their zoo.cfg"
                );
            }
            format!(
                "ZooKeeper cannot keep {path} for us, as zookeeper.acl = \"{acl}\" wants it: we are \
                 {us}. Have the servers take our identity for one (an authProvider), or set \
                 zookeeper.acl = \"open\""
            )
        }
        error => format!("ZooKeeper refuses us at {path}: {error}"),
    }
}

/// Describes our identity as the servers know it.
async fn own_identity(connection: &Connection) -> String {
    let Some(users) = auth_users(connection).await else {
        return "an identity that it does not report".into();
    };
    let known = users.iter().filter(|user| user.scheme() != "ip");
    let known: Vec<_> = known.map(|user| format!("{}:{}", user.scheme(), user.user())).collect();
    if known.is_empty() { "no identity that it knows".into() } else { known.join(" and ") }
}

/// Describes the ACL that refused a request at the path: the ACL of the path or, if the path does not exist, of its nearest
/// ancestor. Returns "others" if no ACL can be read.
async fn acl_entries(connection: &Connection, path: &str) -> String {
    let paths: Vec<_> = paths_down_to(path).collect();
    for path in paths.into_iter().rev() {
        let acl = match connection.request(connection.client.get_acl(path)).await {
            Ok((acl, _)) => acl,
            Err(Error::NoNode) => continue,
            Err(_) => break,
        };
        let entries = acl
            .iter()
            .map(|entry| format!("{}:{} ({})", entry.scheme(), name(entry), entry.permission()));
        return entries.collect::<Vec<_>>().join(", ");
    }
    "others".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_may_harm_the_queue_are_named() {
        const READ: Permission = Permission::READ;
        const CREATE: Permission = Permission::CREATE;
        const ALL: Permission = Permission::ALL;
        let us = [AuthUser::new("ip", "127.0.0.1"), AuthUser::new("digest", "app")];
        let ours = ("digest", "app:hash=", ALL);
        let hidden = ("digest", "app:x", READ | CREATE | Permission::WRITE);
        let anyone = |permission| ("world", "anyone", permission);
        let may_delete = "anyone who reaches ZooKeeper may delete members' znodes, the leader's among \
                      them, and join the queue, or block it";
        let creates = "anyone who reaches ZooKeeper may join the queue, or block it";
        let owned =
            "digest:squat, whom we are not, may delete members' znodes and let others do so";
        let cases = [
            (vec![ours, anyone(READ)], None),
            (vec![ours, anyone(READ | CREATE)], Some(creates.to_owned())),
            (vec![ours, ("ip", "0.0.0.0/0", ALL)], Some(may_delete.to_owned())),
            (vec![ours, ("ip", "10.0.0.0/8", ALL)], None),
            (vec![anyone(ALL)], Some(may_delete.to_owned())),
            // An operator has allowed several identities, of which we are one.
            (vec![ours, ("digest", "other:hash=", ALL)], None),
            (vec![hidden, ("digest", "operator:x", ALL)], None),
            (
                vec![("digest", "squat:x", ALL), anyone(READ | CREATE)],
                Some(format!("{creates}; and {owned}")),
            ),
            // Another identity with our name: if it was ours, its hash would be shown.
            (
                vec![("digest", "app:x", ALL), anyone(CREATE)],
                Some(format!("{creates}; and {}", owned.replace("squat", "app"))),
            ),
        ];
        for (entries, expected) in cases {
            let acl: Vec<_> = entries
                .iter()
                .map(|(scheme, id, may)| Entry::new(*may, AuthId::new(scheme, id)))
                .collect();
            assert_eq!(
                possible_harm(&acl, Some(&us), AclPolicy::CreatorReadable),
                expected,
                "{entries:?}"
            );
        }
        let open = [Entry::new(READ | CREATE, AuthId::anyone())];
        assert_eq!(
            possible_harm(&open, Some(&us[..1]), AclPolicy::Open),
            None,
            "anyone is a member"
        );
    }
}
