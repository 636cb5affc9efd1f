//! A server that behaves like ClickHouse Keeper: it restores no session and refuses containers. It is the in-memory server of
//! `crates/dev-server` in that mode, so this shows how members get along with such a server, and not what Keeper does.

use crate::{
    group::{agreed, agreed_after, started_in_order},
    locks::Lock,
    member::{SessionFiles, Setup},
    observer::Observer,
    proxy::Proxy,
    servers::{Keeper, Servers, Settings},
    wait::eventually,
};
use std::time::Duration;

/// The shortest session that Keeper grants.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

fn keeper(keeper: Keeper) -> Servers {
    let mut servers = Servers::prepared(&Settings {
        keeper: Some(keeper),
        min_session_timeout: SESSION_TIMEOUT,
        ..Settings::default()
    });
    servers.start();
    servers
}

#[test]
fn members_elect_and_hold_locks_however_containers_are_refused() {
    for (closes_at_containers, refuses_words) in [(false, false), (true, false), (true, true)] {
        let servers = keeper(Keeper { closes_at_containers, refuses_words });
        let setup = Setup::of(&servers);
        let [leader, standby] = started_in_order(&setup, ["a", "b"]);
        let first = agreed([&leader, &standby]);
        let mut lock = Lock::of(&standby, "nightly");
        lock.event("held");

        eventually("the standby is ready", || standby.is_ready_standby());
        assert_eq!(leader.post("/resign").status, 202);
        let second = agreed_after(&first, [&leader, &standby]);
        assert!(second.token > first.token, "{second:?}, after {first:?}");
    }
}

/// The server gives the process that comes back a new session, as if it were the old one.
#[test]
fn a_leader_that_is_restarted_joins_as_new_and_leads_once_its_old_session_has_ended() {
    let servers = keeper(Keeper::default());
    let observer = Observer::of(&servers);
    let files = SessionFiles::new();
    let kept = files.kept_by(&Setup::of(&servers), "a");
    let [mut member] = started_in_order(&kept, ["a"]);
    let first = agreed([&member]);

    member.kill();
    member = kept.start("a");
    let second = agreed([&member]);

    assert!(second.token > first.token, "{second:?}, after {first:?}");
    assert_eq!(observer.queue("/election", "leader_").len(), 1);
    let log = member.log();
    assert_eq!(log.matches("the session has expired").count(), 1, "{log}");
}

/// A lost connection costs the session, and with it leadership: no member leads by an old lease in a new session.
#[test]
fn a_leader_that_loses_its_connection_leaves_leadership_to_the_standby() {
    let mut servers = keeper(Keeper::default());
    let setup = Setup::of(&servers);
    let proxy = Proxy::before(servers.first());
    let behind_proxy = Setup::at(proxy.address());
    let [leader] = started_in_order(&behind_proxy, ["a"]);
    let [standby] = started_in_order(&setup, ["b"]);
    let first = agreed([&leader, &standby]);
    eventually("the standby is ready", || standby.is_ready_standby());

    proxy.cut();
    let second = agreed_after(&first, [&leader, &standby]);
    assert_eq!(second.id, "b");
    assert!(second.token > first.token, "{second:?}, after {first:?}");
}
