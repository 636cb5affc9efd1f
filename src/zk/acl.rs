//! Who may do what with the znodes we create, and what is said when others do not let us.

use super::connection::{Wire, is_verdict};
use crate::config::security::Acl;
use zookeeper::{Acl as Entry, Acls, AuthId, Error, Permission};

/// Whoever is who we are may do anything.
const OURS: Entry = Entry::new_const(Permission::ALL, "auth", "");
const ANYONE_READS: Entry = Entry::new_const(Permission::READ, "world", "anyone");
const ANYONE_CREATES: Entry = Entry::new_const(Permission::CREATE, "world", "anyone");

static READABLE: [Entry; 2] = [OURS, ANYONE_READS];
static ALSO_FOR_OTHERS: [Entry; 3] = [OURS, ANYONE_READS, ANYONE_CREATES];

/// Of the members' znodes and of the one they stand below: who deletes there ends leaderships, and
/// who writes lies about them.
pub(super) fn of_election(acl: Acl) -> Acls<'static> {
    match acl {
        Acl::Open => Acls::anyone_all(),
        Acl::Creator => Acls::creator_all(),
        Acl::CreatorReadable => Acls::new(&READABLE),
    }
}

/// Of what lies above: other elections may want a place there beside ours, which nobody can delete
/// while there is anything below it.
pub(super) fn of_ancestors(acl: Acl) -> Acls<'static> {
    match acl {
        Acl::Open => Acls::anyone_all(),
        Acl::Creator | Acl::CreatorReadable => Acls::new(&ALSO_FOR_OTHERS),
    }
}

/// What anyone may do in `path` that can unseat a leader, in words, if there is such a thing.
pub(super) async fn hole(wire: &Wire, path: &str) -> Result<Option<&'static str>, Error> {
    let (acl, _) = match wire.ask(wire.client.get_acl(path)).await {
        // Neither ours to read nor anyone's, then.
        Err(error) if is_verdict(&error) => return Ok(None),
        read => read?,
    };
    let anyone_may = |permission| {
        acl.iter()
            .any(|entry| *entry.auth_id() == AuthId::anyone() && entry.permission().has(permission))
    };
    Ok(if anyone_may(Permission::DELETE) {
        Some("delete members' znodes, the leader's among them")
    } else if anyone_may(Permission::ADMIN) {
        Some("change who may delete members' znodes")
    } else {
        None
    })
}

/// What to do about it.
pub(super) fn mend(acl: Acl) -> &'static str {
    match acl {
        Acl::Open => {
            "give all members an identity (zookeeper.auth, zookeeper.tls.cert) before the path is \
             created, or say zookeeper.acl = \"open\" if it is meant to be so"
        }
        Acl::Creator | Acl::CreatorReadable => {
            "it was created so, and is left so: have its ACL changed (setAcl), or let it be created \
             anew while nobody is in it"
        }
    }
}

/// One line about what the servers refused us at `path`: who we are for them, and whose it is.
pub(super) async fn refusal(wire: &Wire, acl: Acl, path: &str, error: &Error) -> String {
    match error {
        Error::NoAuth => {
            let (us, theirs) = (ourselves(wire).await, owners(wire, path).await);
            if us.starts_with("digest:") && theirs.contains(&format!("{us} ")) {
                return format!(
                    "ZooKeeper does not let us in at {path}: it is for {us} with another password \
                     than ours. Give all members the same zookeeper.credentials_file"
                );
            }
            format!(
                "ZooKeeper does not let us in at {path}: we are {us}, and it is for {theirs}. Give \
                 all members the same identity (zookeeper.auth, zookeeper.tls.cert), or have its \
                 ACL changed (setAcl)"
            )
        }
        Error::InvalidAcl => {
            let us = ourselves(wire).await;
            format!(
                "ZooKeeper cannot keep {path} for us, as zookeeper.acl = \"{acl}\" wants it: we are \
                 {us}. Have the servers take our identity for one (an authProvider), or set \
                 zookeeper.acl = \"open\""
            )
        }
        error => format!("ZooKeeper refuses us at {path}: {error}"),
    }
}

async fn ourselves(wire: &Wire) -> String {
    // Servers tell since 3.7.
    let Ok(users) = wire.ask(wire.client.list_auth_users()).await else {
        return "somebody it does not tell".into();
    };
    let known = users.iter().filter(|user| user.scheme() != "ip");
    let known: Vec<_> = known.map(|user| format!("{}:{}", user.scheme(), user.user())).collect();
    if known.is_empty() { "nobody it knows".into() } else { known.join(" and ") }
}

async fn owners(wire: &Wire, path: &str) -> String {
    // Of the nearest that is there.
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    let ends: Vec<_> = ends.collect();
    for end in ends.into_iter().rev() {
        let acl = match wire.ask(wire.client.get_acl(&path[..end])).await {
            Ok((acl, _)) => acl,
            Err(Error::NoNode) => continue,
            Err(_) => break,
        };
        let entries = acl.iter().map(|entry| {
            // What is behind the name is made of the password.
            let id = match entry.scheme() {
                "digest" => entry.id().split(':').next().unwrap_or_default(),
                _ => entry.id(),
            };
            format!("{}:{id} ({})", entry.scheme(), entry.permission())
        });
        return entries.collect::<Vec<_>>().join(", ");
    }
    "others".into()
}
