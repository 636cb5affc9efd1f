//! Logins by digest and access control, which a server without TLS and SASL has as well.

use crate::{
    certificates::put,
    expire::expire,
    group::{agreed, agreed_after, ready, settled, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    servers::Servers,
    wait::{eventually, throughout},
};
use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};
use tempfile::TempDir;
use zookeeper::{Acl, Acls, AuthId, CreateMode, Error, Permission};

pub(crate) const PASSWORD: &str = "correct-horse-battery";
pub(crate) const WRONG_PASSWORD: &str = "staple-horse-battery";

/// Writes the JAAS file of servers that know `app` by its password, and returns the property that names it.
pub(crate) fn jaas(directory: &Path) -> String {
    let text = format!(
        "Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required \
         user_app=\"{PASSWORD}\"; }};\n"
    );
    format!("java.security.auth.login.config={}", put(directory, "jaas.conf", &text).display())
}

#[test]
fn a_client_of_another_identity_can_read_and_nothing_else() {
    let servers = Servers::standalone();
    let unknown_client = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let setup = with_digest(Setup::of(&servers), home.path(), "app");
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    let (leader, queue) = settled([&first, &second], &unknown_client);

    let theirs = format!("/election/{}", queue[0].name);
    let deleted = unknown_client.ask(async |it| it.delete(&theirs, None).await);
    assert!(matches!(deleted, Err(Error::NoAuth)), "{deleted:?}");
    for path in [&*theirs, "/election"] {
        let refused = [
            unknown_client.ask(async |it| it.set_data(path, b"{}", None).await.map(drop)),
            unknown_client
                .ask(async |it| it.set_acl(path, &Acls::anyone_all(), None).await.map(drop)),
        ];
        assert!(refused.iter().all(|it| matches!(it, Err(Error::NoAuth))), "{path}: {refused:?}");
    }
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let created =
        unknown_client.ask(async |it| it.create("/election/leader_", b"", &mode).await.map(drop));
    assert!(matches!(created, Err(Error::NoAuth)), "{created:?}");
    assert_eq!(agreed([&first, &second]), leader);
    assert!(!first.log().contains("anyone who reaches"), "{}", first.log());

    // Nor can a member of another identity join, and it says why.
    let third = with_digest(Setup::of(&servers), home.path(), "other").start("c");
    let wrong = put(home.path(), "wrong", &format!("app:{WRONG_PASSWORD}")).display().to_string();
    let setup = Setup::of(&servers).option("--auth", "digest");
    let fourth = setup.option("--credentials-file", &wrong).start("d");
    eventually("it says that its password is another", || {
        let problem = fourth.status()["session"]["problem"].to_string();
        let line = "at /election: it is for digest:app with another password than ours";
        if problem.contains(line) { Ok(()) } else { Err(problem) }
    });
    eventually("it names its own identity and the path's owner", || {
        let problem = third.status()["session"]["problem"].to_string();
        let words =
            ["at /election:", "we are digest:other", "digest:app (ALL), world:anyone (READ)"];
        if words.iter().all(|word| problem.contains(word)) { Ok(()) } else { Err(problem) }
    });
    // It can read who is in the queue, and waits for its place all the same.
    let problem = third.status()["session"]["problem"].clone();
    assert_eq!(third.get("/members").status, 200);
    assert_eq!(third.status()["session"]["problem"], problem);
    let told = third.log().matches(problem.as_str().expect("a text")).count();
    assert_eq!(told, 1, "{}", third.log());
}

#[test]
fn the_creator_alone_can_read_if_it_is_to_be_so() {
    let servers = Servers::standalone();
    let unknown_client = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let setup = with_digest(Setup::of(&servers), home.path(), "app").option("--acl", "creator");
    let members = started_in_order(&setup, ["a", "b"]);
    agreed(&members);
    let read = unknown_client.ask(async |it| it.list_children("/election").await);
    assert!(matches!(read, Err(Error::NoAuth)), "{read:?}");

    let login = home.path().join("app").display().to_string();
    let inspect = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        command.args(["inspect", "--zookeeper", &servers.connect_string()]).args(more);
        all_of(&mut command)
    };
    let seen = inspect(&["--auth", "digest", "--credentials-file", &login]);
    assert!(seen.contains("a   leader") && seen.contains("b   standby"), "{seen}");
    let refused = inspect(&[]);
    let line = "ZooKeeper does not let us in at /election: we are no identity that it knows";
    assert!(refused.contains(line), "{refused}");
}

#[test]
fn a_path_where_anyone_may_delete_is_warned_of_unless_it_is_meant_to_be_open() {
    let servers = Servers::standalone();
    let unknown_client = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let warning = "anyone who reaches ZooKeeper may delete members' znodes";
    let warnings = |member: &Member| {
        let log = member.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains(warning)).count()
    };
    unknown_client.make_path("/election");

    let [open] = started_in_order(&Setup::of(&servers).option("--acl", "open"), ["a"]);
    let others = started_in_order(&Setup::of(&servers), ["b"]);
    let closed = started_in_order(&with_digest(Setup::of(&servers), home.path(), "app"), ["c"]);
    for member in others.iter().chain(&closed) {
        eventually("it is warned of", || match warnings(member) {
            1 => Ok(()),
            n => Err(format!("{n} times: {}", member.log())),
        });
    }
    assert_eq!(warnings(&open), 0, "{}", open.log());

    // A member that joins again checks again, and does not repeat the warning.
    closed[0].post("/pause");
    assert_eq!(closed[0].post("/resume").status, 202);
    eventually("it is ready again", || ready(&closed[0]));
    throughout("it is not said again", Duration::from_secs(1), || match warnings(&closed[0]) {
        1 => Ok(()),
        n => Err(format!("{n} times")),
    });

    // The warning is true: another client can delete the leader's znode.
    let (leader, queue) = settled([&open, &others[0], &closed[0]], &unknown_client);
    unknown_client.delete(&format!("/election/{}", queue[0].name));
    assert_eq!(agreed_after(&leader, [&open, &others[0], &closed[0]]).id, "b");
}

/// A client that was there first may have made the path, and owns it.
#[test]
fn a_path_that_is_anothers_is_joined_with_a_warning_that_says_whose_it_is() {
    let mut servers = Servers::standalone();
    let squatter = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let acl = [
        Acl::new(Permission::ALL, AuthId::new("auth", "")),
        Acl::new(Permission::READ | Permission::CREATE, AuthId::anyone()),
    ];
    let made = squatter.ask(async |it| {
        it.auth("digest", b"squat:er").await?;
        let mode = CreateMode::Persistent.with_acls(Acls::new(&acl));
        it.create("/election", b"", &mode).await.map(drop)
    });
    made.unwrap();

    let [member] = started_in_order(&with_digest(Setup::of(&servers), home.path(), "app"), ["a"]);
    eventually("it is told", || {
        let told = "at /election, anyone who reaches ZooKeeper may join the queue, or block \
                    it; and digest:squat, whom we are not, may delete members' znodes";
        let log = member.log();
        if log.contains(told) { Ok(()) } else { Err(log) }
    });

    // The warning is true: the owner of the path can delete the leader's znode.
    let leader = agreed([&member]);
    squatter.delete(&format!("/election/{}", leader.znode));
    let leader = agreed_after(&leader, [&member]);

    // In another session there is nothing new to say.
    let own = squatter.znode(&format!("/election/{}", leader.znode)).expect("it leads");
    expire(servers.first(), own.stat.ephemeral_owner);
    agreed_after(&leader, [&member]);
    assert_eq!(member.log().matches("whom we are not").count(), 1, "{}", member.log());
}

pub(crate) fn all_of(command: &mut Command) -> String {
    let Output { stdout, stderr, .. } = command.output().expect("it runs");
    String::from_utf8([stdout, stderr].concat()).expect("text")
}

pub(crate) fn with_digest(setup: Setup, home: &Path, user: &str) -> Setup {
    let login = put(home, user, &format!("{user}:{PASSWORD}\n")).display().to_string();
    setup.option("--auth", "digest").option("--credentials-file", &login)
}
