//! Where an election can live: under any path, with any prefix, below any chroot.

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::Setup,
    observer::Observer,
    servers::Servers,
};

#[test]
fn a_deep_path_that_is_absent() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let path = "/org/example/department/service/shard-7/election";
    let setup = Setup::of(&servers).option("--election", path);

    let members = started_in_order(&setup, ["a", "b"]);

    let leader = agreed(&members);
    let queue = observer.queue(path, "leader_");
    assert_eq!((queue.len(), &*leader.id, &leader.znode), (2, "a", &queue[0].name));
    assert_eq!(members[0].status()["election"], path);
}

#[test]
fn other_prefixes() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    for prefix in ["n_", "node-", "guid_"] {
        let path = format!("/with-{prefix}");
        let setup = Setup::of(&servers).option("--election", &path).option("--prefix", prefix);

        let [mut first, second, third] = started_in_order(&setup, ["a", "b", "c"]);
        let old = agreed([&first, &second, &third]);
        assert_eq!(old.znode, format!("{prefix}0000000000"));
        let queue = observer.queue(&path, prefix);
        assert_eq!(queue.len(), 3);

        first.signal("TERM");
        first.wait();
        let new = agreed_after(&old, [&second, &third]);
        assert_eq!((&*new.id, &new.znode), ("b", &queue[1].name));
    }
}

#[test]
fn a_chroot_that_exists() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/tenants/blue");

    elects_below("/tenants/blue", &servers, &observer);
}

#[test]
fn a_chroot_that_does_not_exist_yet() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);

    elects_below("/tenants/green", &servers, &observer);
}

fn elects_below(chroot: &str, servers: &Servers, observer: &Observer) {
    let setup = Setup::at(format!("{}{chroot}", servers.connect_string()));

    let members = started_in_order(&setup, ["a", "b"]);

    let leader = agreed(&members);
    let queue = observer.queue(&format!("{chroot}/election"), "leader_");
    assert_eq!((queue.len(), &*leader.id, leader.token), (2, "a", queue[0].token()));
    assert_eq!(members[0].status()["election"], "/election", "as it was configured");
    assert_eq!(members[0].status()["path"], format!("{chroot}/election"));
}
