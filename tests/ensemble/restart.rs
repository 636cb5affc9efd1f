//! Members whose process is killed and started again: with a session file, a restart is not a crash.

use crate::{
    exec::{kill, parent_of},
    group::{agreed, agreed_after, has_role, leader_of, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    servers::Servers,
    task::Diary,
    wait::{eventually, throughout},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How often the leader is killed. `KILLS=50` measures.
fn kills() -> usize {
    std::env::var("KILLS").map_or(5, |n| n.parse().expect("KILLS is a number"))
}

/// Session files, one for each member.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new_in("/dev/shm").expect("a directory in memory"))
    }

    fn of(&self, id: &str) -> PathBuf {
        self.0.path().join(id)
    }

    fn setup(&self, setup: &Setup, id: &str) -> Setup {
        setup.clone().option("--session-file", self.of(id).to_str().expect("a path of text"))
    }
}

#[test]
fn a_leader_that_is_killed_leads_on_under_the_same_token() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let files = Files::new();
    let setup = Setup::of(&servers);
    let kept = files.setup(&setup, "a");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let [follower] = started_in_order(&setup, ["b"]);
    let before = agreed([&leader, &follower]);
    eventually("the standby is ready", || follower.is_ready_standby());
    let mut events = follower.stream("/events");
    assert_eq!(events.event().name, "state");
    let mut away = vec![];
    for n in 1..=kills() {
        leader.kill();
        let killed = Instant::now();
        leader = kept.start("a");
        eventually("it leads again", || has_role(&leader, "leader"));
        away.push(killed.elapsed());
        assert_eq!(agreed([&leader, &follower]), before, "{}", leader.log());
        let restart = &leader.status()["session"]["restart"];
        assert_eq!(restart["restarts"], n, "{restart}");
        assert!(restart["down_for_ms"].as_u64().is_some_and(|ms| ms < 10_000), "{restart}");
    }
    away.sort();
    eprintln!("away for {:?} in the median, {:?} at most", away[away.len() / 2], away.last());
    // Its session lasts ten seconds.
    assert!(away[away.len() / 2] < Duration::from_secs(2), "{away:?}");
    assert_eq!(observer.line("/election", "leader_").len(), 2);
    let history = leader.get("/history").json();
    assert!(history["terms"][0]["down_for_ms"].is_u64(), "{history}");
    let page = leader.get("/metrics").body;
    let restarts = format!("bellwether_session_restarts{{election=\"/election\"}} {}", kills());
    assert!(page.contains(&restarts), "{page}");
    assert_eq!(leader.handovers().unwrap().total(), 0, "nothing was handed over");

    // The first change that the follower hears of is the first that there is.
    assert_eq!(leader.post("/resign").status, 202);
    let change = events.event();
    assert_eq!(change.name, "became-leader", "{}", change.data);
    agreed_after(&before, [&leader, &follower]);
}

#[test]
fn a_leader_that_is_killed_again_while_it_resumes_leads_on() {
    let servers = Servers::standalone();
    let files = Files::new();
    let kept = files.setup(&Setup::of(&servers), "a");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let before = agreed([&leader]);
    for delay_ms in [0, 5, 10, 15, 20, 30, 40, 60, 80] {
        leader.kill();
        leader = kept.start("a");
        thread::sleep(Duration::from_millis(delay_ms));
    }
    leader.kill();
    let leader = kept.start("a");
    eventually("it leads again", || has_role(&leader, "leader"));
    assert_eq!(agreed([&leader]), before, "{}", leader.log());
}

#[test]
fn a_standby_and_a_follower_that_are_killed_keep_their_places() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let files = Files::new();
    let setup = Setup::of(&servers);
    let names = ["a", "b", "c"];
    let members = names.map(|id| started_in_order(&files.setup(&setup, id), [id]));
    let mut members = members.map(|[member]| member);
    let before = agreed(&members);
    let line = || -> Vec<_> {
        observer.line("/election", "leader_").into_iter().map(|znode| znode.name).collect()
    };
    let places = line();
    for n in [1, 2] {
        members[n].kill();
        members[n] = files.setup(&setup, names[n]).start(names[n]);
        assert_eq!(agreed(&members), before);
    }
    assert_eq!(line(), places);
    eventually("the standby is ready", || members[1].is_ready_standby());
    members[0].signal("TERM");
    members[0].wait();
    assert_eq!(agreed_after(&before, &members[1..]).id, "b");
    assert!(!files.of("a").exists(), "a member that left leaves nothing behind");
}

#[test]
fn a_member_that_releases_makes_way_at_once() {
    let servers = Servers::standalone();
    let files = Files::new();
    let setup = Setup::of(&servers);
    let kept = files.setup(&setup, "a").option("--on-restart", "release");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let [standby] = started_in_order(&setup, ["b"]);
    let before = agreed([&leader, &standby]);
    eventually("the standby is ready", || standby.is_ready_standby());
    leader.kill();
    let killed = Instant::now();
    let leader = kept.start("a");
    let after = agreed_after(&before, [&standby]);
    let away = killed.elapsed();
    eprintln!("released after {away:?}");
    assert!(after.id == "b" && away < Duration::from_secs(3), "{after:?} after {away:?}");
    assert_eq!(agreed([&leader, &standby]), after);
    assert!(leader.log().contains("closing the session before"), "{}", leader.log());
}

/// What happened to the session while no process had it: it expired, or its znode was deleted.
#[test]
fn a_member_whose_session_or_znode_is_gone_joins_as_new() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let files = Files::new();
    let setup = Setup::of(&servers).short_sessions();
    let kept = files.setup(&setup, "a");
    let [mut first] = started_in_order(&kept, ["a"]);
    let before = agreed([&first]);
    first.kill();
    eventually("its session has expired", || {
        match observer.line("/election", "leader_").is_empty() {
            true => Ok(()),
            false => Err("its znode stands".to_owned()),
        }
    });
    let mut second = kept.start("a");
    let after = agreed_after(&before, [&second]);
    second.kill();
    observer.delete(&format!("/election/{}", after.znode));
    let third = kept.start("a");
    let last = agreed_after(&after, [&third]);
    assert!(last.token > after.token, "{last:?} after {after:?}");
}

#[test]
fn a_second_process_is_refused_also_while_the_first_is_frozen() {
    let servers = Servers::standalone();
    let files = Files::new();
    let kept = files.setup(&Setup::of(&servers), "a");
    let [leader] = started_in_order(&kept, ["a"]);
    let before = agreed([&leader]);
    leader.signal("STOP");
    let mut second = kept.start("a");
    assert_eq!(second.wait().0.code(), Some(2), "{}", second.log());
    let log = second.log();
    assert!(log.contains("is held by another process") && log.lines().count() == 1, "{log}");
    leader.signal("CONT");
    assert_eq!(agreed([&leader]), before);
}

#[test]
fn what_is_done_to_the_file_costs_a_session_at_most() {
    let servers = Servers::standalone();
    let files = Files::new();
    let setup = Setup::of(&servers).short_sessions();
    let kept = files.setup(&setup, "a");
    let path = files.of("a");
    let [mut member] = started_in_order(&kept, ["a"]);
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 3] = [
        ("truncated", |path| fs::write(path, "").unwrap()),
        ("garbled", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[80..120].fill(b'?');
            fs::write(path, bytes).unwrap();
        }),
        ("removed", |path| fs::remove_file(path).unwrap()),
    ];
    for (name, harm) in harms {
        let before = agreed([&member]);
        member.kill();
        harm(&path);
        member = kept.start("a");
        let after = agreed_after(&before, [&member]);
        assert!(after.token > before.token, "{name}: {after:?}");
        let warns = member.log().contains("is damaged");
        assert_eq!(warns, name == "garbled", "{name}: {}", member.log());
    }
    // While it runs, the next heartbeat writes all of it again.
    let before = agreed([&member]);
    fs::write(&path, "").unwrap();
    eventually("it is written again", || match fs::metadata(&path).unwrap().len() {
        0 => Err("it is empty".to_owned()),
        _ => Ok(()),
    });
    member.kill();
    member = kept.start("a");
    assert_eq!(agreed([&member]), before);
    // Swapped for a link, it is refused.
    let elsewhere = files.of("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    throughout("it leads on", Duration::from_millis(500), || has_role(&member, "leader"));
    member.kill();
    let mut refused = kept.start("a");
    assert_eq!(refused.wait().0.code(), Some(2), "{}", refused.log());
    assert!(refused.log().contains("is a symbolic link"), "{}", refused.log());
}

#[test]
fn a_full_disk_costs_the_session_of_a_restart_and_nothing_else() {
    let servers = Servers::standalone();
    let home = TempDir::new().unwrap();
    let mount = home.path().to_str().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs {mount} && : > {mount}/session && chmod 600 {mount}/session && \
         dd if=/dev/zero of={mount}/full bs=4k count=2 2>/dev/null; exec \"$@\""
    );
    let setup = Setup::of(&servers).option("--session-file", &format!("{mount}/session"));
    let member = setup.run_by(&["unshare", "--mount", "--", "sh", "-c", &script, "sh"]).start("a");
    eventually("it leads", || has_role(&member, "leader"));
    let log = member.log();
    assert!(log.contains("a restart will cost the session") && log.contains("No space"), "{log}");
}

#[test]
fn never_two_commands_at_once_while_sidecar_and_guards_are_killed() {
    let servers = Servers::standalone();
    let files = Files::new();
    let diary = Diary::new();
    let kept = files.setup(&diary.kept_by(Setup::of(&servers), "trap '' TERM"), "a");
    let mut member = kept.start("a");
    let mut seen = diary.next_run(0);
    // In either order, and all at once.
    for order in [&[][..], &["inner"], &["outer"], &["sidecar", "inner"], &["inner", "outer"]] {
        let before = diary.runs().len();
        let inner = parent_of(seen.pid);
        let outer = parent_of(inner);
        let sidecar_first = order.first() == Some(&"sidecar");
        if sidecar_first {
            member.kill();
        }
        for which in order {
            match *which {
                "inner" => try_kill(inner),
                "outer" => try_kill(outer),
                _ => {}
            }
        }
        if !sidecar_first {
            member.kill();
        }
        member = restarted(&kept);
        let next = diary.next_run(before);
        assert_eq!(next.token, seen.token, "{order:?}: {}", member.log());
        diary.shows_one_at_a_time();
        seen = next;
    }
    kill(seen.pid, "KILL");
    member.wait();
}

/// As a parent does that starts it again whenever it has ended: while something of the command lives, it is refused.
fn restarted(setup: &Setup) -> Member {
    eventually("it is let in", || {
        let mut member = setup.start("a");
        eventually("it leads or is refused", || match member.runs() {
            false => Ok(()),
            true if member.log().contains("the command runs") => Ok(()),
            true => Err(member.log()),
        });
        if member.runs() { Ok(member) } else { Err(member.log()) }
    })
}

fn try_kill(pid: i32) {
    let _dead_already = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
}

/// An application that has acknowledged has not to do so again.
#[test]
fn an_application_that_was_active_is_active_after_a_restart() {
    let servers = Servers::standalone();
    let files = Files::new();
    let setup = Setup::of(&servers).option("--activate", "ack").option("--address", "one");
    let kept = files.setup(&setup, "a");
    let [mut member] = started_in_order(&kept, ["a"]);
    assert_eq!(member.post("/ack").status, 200);
    member.kill();
    let member = kept.option("--address", "two").start("a");
    eventually("it leads again", || has_role(&member, "leader"));
    let leader = leader_of(&member);
    assert_eq!((&leader["active"], &leader["address"]), (&Value::from(true), &"two".into()));
}

#[test]
fn the_file_is_this_user_s_alone() {
    let servers = Servers::standalone();
    let files = Files::new();
    let kept = files.setup(&Setup::of(&servers), "a");
    let [mut member] = started_in_order(&kept, ["a"]);
    let mode = fs::metadata(files.of("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::set_permissions(files.of("a"), fs::Permissions::from_mode(0o644)).unwrap();
    member.kill();
    let mut refused = kept.start("a");
    assert_eq!(refused.wait().0.code(), Some(2));
    assert!(refused.log().contains("can be read or written by others"), "{}", refused.log());
}
