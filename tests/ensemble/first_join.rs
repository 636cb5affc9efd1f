//! A member that joins for the first time behind a proxy, and the znode that it makes.

use crate::{
    group::settled,
    member::{Member, Setup},
    observer::{Observer, Znode},
    proxy::{Mode, Proxy},
    servers::Servers,
};
use std::time::Duration;

/// Starts a member that joins for the first time behind a proxy of this mode.
pub(crate) fn joins(mode: Mode, session: Duration) -> (Servers, Observer, Proxy, Member) {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    let proxy = Proxy::before(servers.first());
    proxy.set(mode);
    let member = Setup::at(proxy.address()).sessions(session).start("a");
    (servers, observer, proxy, member)
}

/// Waits until the member leads by the only znode there is, which belongs to its session.
#[track_caller]
pub(crate) fn stands_alone(member: &Member, observer: &Observer) -> Znode {
    let (leader, queue) = settled([member], observer);
    let session = member.status()["session"]["id"].clone();
    let [own] = &queue[..] else { unreachable!("settled with one znode for each member") };
    assert_eq!((own.token(), &own.name), (leader.token, &leader.znode));
    assert_eq!(session, format!("{:#x}", own.stat.ephemeral_owner));
    own.clone()
}

pub(crate) fn only_znode(observer: &Observer) -> Result<Znode, String> {
    let queue = observer.queue("/election", "leader_");
    if let [only] = &queue[..] { Ok(only.clone()) } else { Err(format!("{queue:?}")) }
}

/// How many znodes were created or deleted in the queue, ever.
pub(crate) fn changes_of_the_line(observer: &Observer) -> i32 {
    observer.znode("/election").expect("the parent exists").stat.cversion
}
