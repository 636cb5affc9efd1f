//! Which member leads, to which members a change is announced, and which are not woken.

use crate::{
    group::{Named, agreed, has_role, leader_of, role_of, settled, started_in_order},
    member::{Member, SHORT_SESSION, Setup},
    observer::{Observer, Znode},
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn the_leader_dies_only_its_successor_acts_and_its_announcement_reaches_all() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, second, third, fourth] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c", "d"]);
    let (old, before) = settled([&first, &second, &third, &fourth], &observer);
    let index_before = index(&fourth);
    assert_eq!(old.id, "a");

    first.kill();
    let (new, after) = settled_without(&before[0], [&second, &third, &fourth], &observer);

    assert!(index(&fourth) > index_before, "a change was published");
    assert_eq!((&*new.id, &new.znode), ("b", &before[1].name));
    assert!(new.token > old.token, "{new:?} after {old:?}");
    assert_eq!(new.token, before[1].token());
    for (was, is) in before[1..].iter().zip(&after) {
        assert_eq!(identity(was), identity(is), "no member made a new ticket");
    }
    let writes = |n: usize| after[n].stat.version - before[n + 1].stat.version;
    // Both standbys, the old one and the new, may also have written after the first look that they are ready.
    assert!((1..=2).contains(&writes(0)) && (1..=2).contains(&writes(1)), "{after:?}");
    assert_eq!(writes(2), 1, "{after:?}");
    assert!(after[0].stat.mzxid < after[2].stat.mzxid, "the announcement is relayed: {after:?}");
    assert_eq!(predecessor(&second), Value::Null);
    assert_eq!(predecessor(&third), json!(before[1].name));
    assert_eq!(predecessor(&fourth), json!(before[2].name));
}

#[test]
fn a_follower_whose_predecessor_has_its_id_says_so_and_stays_ready() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    let members = started_in_order(&setup, ["a", "twin", "twin"]);
    let problem = eventually("it is seen that no earlier life is that old", || {
        let problems = members[2].status()["problems"].clone();
        let found =
            problems.as_array().and_then(|all| all.iter().find(|it| it["kind"] == "duplicate-id"));
        found.cloned().ok_or_else(|| problems.to_string())
    });
    let token = members[1].status()["token"].clone();
    let text = format!("another member of the queue has the id of this one, with token {token}");
    assert!(problem["problem"].as_str().is_some_and(|it| it.starts_with(&text)), "{problem}");
    eventually("the log says so too", || {
        let log = members[2].log();
        if log.contains(&text) { Ok(()) } else { Err(log) }
    });
    assert_eq!(members[2].get("/readyz").status, 200);
}

#[test]
fn a_middle_member_dies_its_successor_watches_the_next_one_ahead_and_the_leader_is_not_touched() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, mut second, third, fourth] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c", "d"]);
    let (leader, before) = settled([&first, &second, &third, &fourth], &observer);
    let indexes = [&first, &third, &fourth].map(index);
    assert_eq!(predecessor(&third), json!(before[1].name));

    second.kill();
    let (still, after) = settled_without(&before[1], [&first, &third, &fourth], &observer);
    eventually("the successor waits behind the leader", || {
        let seen = predecessor(&third);
        if seen == json!(before[0].name) { Ok(()) } else { Err(seen.to_string()) }
    });

    assert_eq!(still, leader);
    assert_eq!(after[0], before[0], "nothing was written");
    eventually("the fourth has written that it is the third, and nothing else", || {
        let znode = observer.queue("/election", "leader_").pop().expect("it is in the queue");
        let data: Value = serde_json::from_slice(&znode.data).expect("JSON");
        let writes = znode.stat.version - before[3].stat.version;
        match identity(&znode) == identity(&before[3]) && data["distance"] == 2 && writes == 1 {
            true => Ok(()),
            false => Err(format!("{znode:?}")),
        }
    });
    assert_eq!(identity(&after[1]), identity(&before[2]), "the new standby says that it is ready");
    assert_eq!(predecessor(&fourth), json!(before[2].name));
    assert_eq!([&first, &third, &fourth].map(index), indexes, "no change was published");
}

#[test]
fn the_tail_dies_and_no_member_acts() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second, mut third] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c"]);
    let (leader, before) = at_rest([&first, &second, &third], &observer);
    let indexes_before = [&first, &second].map(index);

    third.kill();
    settled_without(&before[2], [&first, &second], &observer);

    throughout("no member acts for one session timeout", SHORT_SESSION, || {
        let queue = observer.queue("/election", "leader_");
        let indexes = [&first, &second].map(index);
        if queue == before[..2] && indexes == indexes_before {
            Ok(())
        } else {
            Err(format!("{queue:?} {indexes:?}"))
        }
    });
    assert_eq!(agreed([&first, &second]), leader);
}

#[test]
fn while_nothing_happens_nothing_is_written_and_the_leader_stays() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let (leader, before) = at_rest(&members, &observer);

    throughout("all stays as it is for three session timeouts", 3 * SHORT_SESSION, || {
        let (queue, named) = (observer.queue("/election", "leader_"), agreed(&members));
        let leads = members[0].get("/is-leader").status == 200;
        let same = queue == before && named == leader && leads;
        if same { Ok(()) } else { Err(format!("{named:?} in {queue:?}, it leads: {leads}")) }
    });
}

/// Waits until they are settled, and the standby has written that it is ready, which is the last there is to write.
fn at_rest<'a>(
    members: impl IntoIterator<Item = &'a Member>,
    observer: &Observer,
) -> (Named, Vec<Znode>) {
    let (leader, _) = settled(members, observer);
    let queue = eventually("the standby has said that it is ready", || {
        let queue = observer.queue("/election", "leader_");
        let is_ready = queue.get(1).is_some_and(|standby| standby.json()["standby_ready"] == true);
        if is_ready { Ok(queue) } else { Err(format!("{queue:?}")) }
    });
    (leader, queue)
}

#[test]
fn ten_members_start_at_once_one_leads_and_all_ten_name_it() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let members: Vec<Member> = (0..10).map(|n| setup.start(&format!("m{n}"))).collect();

    let (leader, queue) = settled(&members, &observer);

    let mut roles = BTreeMap::<String, usize>::new();
    members.iter().for_each(|member| *roles.entry(role_of(member)).or_default() += 1);
    assert_eq!(roles, [("leader".to_owned(), 1), ("follower".to_owned(), 9)].into());
    let ids: BTreeSet<String> = queue.iter().map(|znode| znode.json()["id"].to_string()).collect();
    assert_eq!(ids.len(), 10, "each is in the queue once: {queue:?}");
    assert_eq!(leader.token, queue[0].token());
}

#[test]
fn leader_and_successor_die_together() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [mut first, mut second, third, fourth] =
        started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b", "c", "d"]);
    let (old, before) = settled([&first, &second, &third, &fourth], &observer);

    first.kill();
    second.kill();
    eventually("both znodes are gone", || {
        let queue = observer.queue("/election", "leader_");
        if queue.len() == 2 { Ok(()) } else { Err(format!("{queue:?}")) }
    });
    let (new, _) = settled([&third, &fourth], &observer);

    assert_eq!((&*new.id, new.token), ("c", before[2].token()));
    assert!(new.token > old.token);
    has_role(&fourth, "follower").expect("the other one follows");
}

#[test]
fn a_joiner_behind_a_silent_unknown_client_knows_the_leader_at_once() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers);
    let [first, second, third] = started_in_order(&setup, ["a", "b", "c"]);
    let leader = agreed([&first, &second, &third]);
    let mute = zookeeper::CreateMode::EphemeralSequential;
    observer.create("/election/leader_", b"", mute);

    let [joiner] = started_in_order(&setup, ["d"]);

    assert_eq!(Named::read(&leader_of(&joiner)["leader"]), Some(leader));
    eventually("the joiner waits behind the unknown client", || has_role(&joiner, "follower"));
}

#[test]
fn each_follower_watches_its_predecessor_and_each_member_only_the_end_of_its_own() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second, third, fourth] =
        started_in_order(&Setup::of(&servers), ["a", "b", "c", "d"]);
    let (_, queue) = settled([&first, &second, &third, &fourth], &observer);
    let server = servers.first();

    // Each follower's session and its predecessor's path, as the server lists them.
    let expected: BTreeMap<i64, Vec<String>> = queue
        .iter()
        .zip(&queue[1..])
        .map(|(ahead, own)| (own.stat.ephemeral_owner, vec![format!("/election/{}", ahead.name)]))
        .collect();
    eventually("one watch a follower", || {
        let watches = server.ask("wchc").map_err(|error| error.to_string())?;
        if by_session(&watches) == expected { Ok(()) } else { Err(watches) }
    });
    // `wchc` lists the three watches of data; `mntr` also counts those of children: one a member, on its own znode, which
    // has none, so that it fires when the znode is deleted and at nothing else.
    let all = server.ask("mntr").expect("mntr");
    assert!(all.lines().any(|line| line == "zk_watch_count\t7"), "{all}");
}

/// Returns the queue, settled after this znode has left it.
#[track_caller]
fn settled_without<const N: usize>(
    gone: &Znode,
    members: [&Member; N],
    observer: &Observer,
) -> (Named, Vec<Znode>) {
    eventually("the znode of the dead is gone", || {
        match observer.znode(&format!("/election/{}", gone.name)) {
            None => Ok(()),
            Some(znode) => Err(format!("{znode:?}")),
        }
    });
    settled(members, observer)
}

fn identity(znode: &Znode) -> (&str, i64, i64) {
    (&znode.name, znode.stat.czxid, znode.stat.ephemeral_owner)
}

fn index(member: &Member) -> u64 {
    member.status()["index"].as_u64().expect("it has joined")
}

fn predecessor(member: &Member) -> Value {
    member.status()["predecessor"].clone()
}

/// `wchc` lists a session's id in a line and the watched paths below it, each behind a tab.
fn by_session(watches: &str) -> BTreeMap<i64, Vec<String>> {
    let mut sessions = BTreeMap::<i64, Vec<String>>::new();
    let mut session = 0;
    for line in watches.lines().filter(|line| !line.is_empty()) {
        if let Some(path) = line.strip_prefix('\t') {
            sessions.entry(session).or_default().push(path.to_owned());
        } else {
            let digits = line.trim_start_matches("0x");
            session = i64::from_str_radix(digits, 16).expect("a session's id in hexadecimal");
        }
    }
    sessions
}
