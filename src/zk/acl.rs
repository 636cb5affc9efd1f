//! Who may do what with the znodes we create, and what is said when others do not let us.

use super::connection::{Wire, is_verdict};
use crate::config::security::Acl;
use zookeeper::{Acl as Entry, Acls, AuthId, AuthUser, Error, Permission};

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

/// Who else than members may harm the election at `path`, and how, in words; `None` if nobody may.
pub(super) async fn hole(wire: &Wire, path: &str, acl: Acl) -> Result<Option<String>, Error> {
    let (entries, _) = match wire.ask(wire.client.get_acl(path)).await {
        // Neither ours to read nor anyone's, then.
        Err(error) if is_verdict(&error) => return Ok(None),
        read => read?,
    };
    // Servers tell since 3.7.
    let us = wire.ask(wire.client.list_auth_users()).await.ok();
    Ok(exposed(&entries, us.as_deref(), acl))
}

fn exposed(entries: &[Entry], us: Option<&[AuthUser]>, acl: Acl) -> Option<String> {
    let anyone_may = |permission| {
        entries.iter().any(|entry| is_anyone(entry) && entry.permission().has(permission))
    };
    let mut deeds = vec![];
    if anyone_may(Permission::DELETE) {
        deeds.push("delete members' znodes, the leader's among them");
    } else if anyone_may(Permission::ADMIN) {
        deeds.push("change who may delete members' znodes");
    }
    // Where nobody has an identity, anyone is a member.
    if anyone_may(Permission::CREATE) && acl != Acl::Open {
        deeds.push("stand in the line, or in its way");
    }
    let anyone = (!deeds.is_empty())
        .then(|| format!("anyone who reaches ZooKeeper may {}", deeds.join(", and ")));
    let anothers = us.and_then(|us| owner(entries, us)).map(|owner| {
        format!("{owner}, whom we are not, may delete members' znodes and let others do so")
    });
    let found: Vec<_> = anyone.into_iter().chain(anothers).collect();
    (!found.is_empty()).then(|| found.join("; and "))
}

/// Who may do as they like there, if it is let to us at most because it is let to anyone. Whoever
/// has an ACL made for several identities names ours among them.
fn owner(entries: &[Entry], us: &[AuthUser]) -> Option<String> {
    const MIGHT: [Permission; 2] = [Permission::DELETE, Permission::ADMIN];
    let is_ours = |entry: &Entry| {
        // Servers show what is behind a name only to those who may change the ACL.
        let is_hidden = entry.scheme() == "digest" && entry.id().ends_with(":x");
        let is_anothers = is_hidden && entry.permission().has(Permission::ADMIN);
        let is_one = |us: &AuthUser| us.scheme() == entry.scheme() && us.user() == name(entry);
        !is_anothers && us.iter().any(is_one)
    };
    if entries.iter().any(is_ours) {
        return None;
    }
    let mighty = |entry: &&Entry| MIGHT.iter().any(|might| entry.permission().has(*might));
    let others = entries.iter().filter(|entry| !is_anyone(entry)).filter(mighty);
    let others: Vec<_> =
        others.map(|entry| format!("{}:{}", entry.scheme(), name(entry))).collect();
    (!others.is_empty()).then(|| others.join(" and "))
}

/// Whether it is for everybody, or for so many addresses that it may as well be.
fn is_anyone(entry: &Entry) -> bool {
    let bits: Option<u8> = entry.id().split_once('/').and_then(|(_, bits)| bits.parse().ok());
    *entry.auth_id() == AuthId::anyone()
        || entry.scheme() == "ip" && bits.is_some_and(|bits| bits < 8)
}

/// Whoever that is, without what is made of a password.
fn name(entry: &Entry) -> &str {
    match entry.scheme() {
        "digest" => entry.id().split(':').next().unwrap_or_default(),
        _ => entry.id(),
    }
}

/// What to do about it.
pub(super) fn mend(acl: Acl) -> &'static str {
    match acl {
        Acl::Open => {
            "give all members an identity (zookeeper.auth, zookeeper.tls.cert) before the path is \
             created, or say zookeeper.acl = \"open\" if it is meant to be so"
        }
        Acl::Creator | Acl::CreatorReadable => {
            "it was created so, and is left so: have its owner, or whoever administers ZooKeeper, \
             change its ACL (setAcl), or let it be created anew while nobody is in it"
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
    fn whoever_else_may_harm_an_election_is_named() {
        const READ: Permission = Permission::READ;
        const CREATE: Permission = Permission::CREATE;
        const ALL: Permission = Permission::ALL;
        let us = [AuthUser::new("ip", "127.0.0.1"), AuthUser::new("digest", "app")];
        let ours = ("digest", "app:hash=", ALL);
        let hidden = ("digest", "app:x", READ | CREATE | Permission::WRITE);
        let anyone = |permission| ("world", "anyone", permission);
        let mighty = "anyone who reaches ZooKeeper may delete members' znodes, the leader's among \
                      them, and stand in the line, or in its way";
        let creates = "anyone who reaches ZooKeeper may stand in the line, or in its way";
        let owned =
            "digest:squat, whom we are not, may delete members' znodes and let others do so";
        let cases = [
            (vec![ours, anyone(READ)], None),
            (vec![ours, anyone(READ | CREATE)], Some(creates.to_owned())),
            (vec![ours, ("ip", "0.0.0.0/0", ALL)], Some(mighty.to_owned())),
            (vec![ours, ("ip", "10.0.0.0/8", ALL)], None),
            (vec![anyone(ALL)], Some(mighty.to_owned())),
            // One of several identities that an operator let in.
            (vec![ours, ("digest", "other:hash=", ALL)], None),
            (vec![hidden, ("digest", "operator:x", ALL)], None),
            (
                vec![("digest", "squat:x", ALL), anyone(READ | CREATE)],
                Some(format!("{creates}; and {owned}")),
            ),
            // Whoever is called as we are, and is not: we would see what is behind our own name.
            (
                vec![("digest", "app:x", ALL), anyone(CREATE)],
                Some(format!("{creates}; and {}", owned.replace("squat", "app"))),
            ),
        ];
        for (entries, told) in cases {
            let acl: Vec<_> = entries
                .iter()
                .map(|(scheme, id, may)| Entry::new(*may, AuthId::new(scheme, id)))
                .collect();
            assert_eq!(exposed(&acl, Some(&us), Acl::CreatorReadable), told, "{entries:?}");
        }
        let open = [Entry::new(READ | CREATE, AuthId::anyone())];
        assert_eq!(exposed(&open, Some(&us[..1]), Acl::Open), None, "anyone is a member");
    }
}
