//! Members whose process is killed and started again: with a session file, a restart is not a crash.

use crate::{
    cgroup::MemoryGroup,
    group::{agreed, agreed_after, has_role, started_in_order},
    member::{Member, SessionFiles, Setup},
    observer::Observer,
    process::{parent_of, signal},
    servers::Servers,
    task::{Diary, Run},
    wait::{eventually, throughout},
};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::ExitStatusExt,
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How often the leader is killed, and for how long there may be none in the median. `KILLS=50` measures, on a machine that
/// does nothing else; otherwise a crash, which takes the session's ten seconds, is to be told from a restart.
fn kills(goal: Duration) -> (usize, Duration) {
    match std::env::var("KILLS") {
        Ok(times) => (times.parse().expect("KILLS is a number"), goal),
        Err(_) => (5, Duration::from_secs(3)),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("no leader for {median:?} in the median of {}, {most:?} at most", times.len());
    median
}

#[test]
fn a_leader_that_is_killed_leads_on_under_the_same_token() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let files = SessionFiles::new();
    let setup = Setup::of(&servers);
    let kept = files.kept_by(&setup, "a");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let [follower] = started_in_order(&setup, ["b"]);
    let before = agreed([&leader, &follower]);
    eventually("the standby is ready", || follower.is_ready_standby());
    let mut events = follower.stream("/events");
    assert_eq!(events.event().name, "state");
    let (kills, goal) = kills(Duration::from_millis(300));
    let mut away = vec![];
    let index_of = |member: &Member| member.status()["index"].as_u64().expect("it has joined");
    for n in 1..=kills {
        let index = index_of(&leader);
        leader.kill();
        let killed = Instant::now();
        leader = kept.start("a");
        eventually("it leads again", || has_role(&leader, "leader"));
        away.push(killed.elapsed());
        assert_eq!(agreed([&leader, &follower]), before, "{}", leader.log());
        assert!(index_of(&leader) > index, "an index never falls");
        let restart = &leader.status()["session"]["restart"];
        assert_eq!(restart["restarts"], n, "{restart}");
        assert!(restart["down_for_ms"].as_u64().is_some_and(|ms| ms < 10_000), "{restart}");
    }
    assert!(median(away) < goal);
    assert_eq!(observer.queue("/election", "leader_").len(), 2);
    let history = leader.get("/history").json();
    assert!(history["terms"][0]["down_for_ms"].is_u64(), "{history}");
    let page = leader.get("/metrics").body;
    let restarts = format!("bellwether_session_restarts{{election=\"/election\"}} {kills}");
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
    let files = SessionFiles::new();
    let kept = files.kept_by(&Setup::of(&servers), "a");
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
    let files = SessionFiles::new();
    let setup = Setup::of(&servers);
    let names = ["a", "b", "c"];
    let members = names.map(|id| started_in_order(&files.kept_by(&setup, id), [id]));
    let mut members = members.map(|[member]| member);
    let before = agreed(&members);
    let line = || -> Vec<_> {
        observer.queue("/election", "leader_").into_iter().map(|znode| znode.name).collect()
    };
    let places = line();
    for n in [1, 2] {
        members[n].kill();
        members[n] = files.kept_by(&setup, names[n]).start(names[n]);
        assert_eq!(agreed(&members), before);
    }
    assert_eq!(line(), places);
    eventually("the standby is ready", || members[1].is_ready_standby());
    members[0].signal("TERM");
    members[0].wait();
    assert_eq!(agreed_after(&before, &members[1..]).id, "b");
    assert!(!files.of("a").exists(), "a member that left leaves nothing behind");
}

/// What happened to the session while no process had it: it expired, or its znode was deleted.
#[test]
fn a_member_whose_session_or_znode_is_gone_joins_as_new() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let files = SessionFiles::new();
    let setup = Setup::of(&servers).short_sessions();
    let kept = files.kept_by(&setup, "a");
    let [mut first] = started_in_order(&kept, ["a"]);
    let before = agreed([&first]);
    first.kill();
    eventually("its session has expired", || {
        match observer.queue("/election", "leader_").is_empty() {
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
    let files = SessionFiles::new();
    let kept = files.kept_by(&Setup::of(&servers), "a");
    let [leader] = started_in_order(&kept, ["a"]);
    let before = agreed([&leader]);
    leader.signal("STOP");
    let mut second = kept.start("a");
    assert_eq!(second.wait().0.code(), Some(2), "{}", second.log());
    second.wait_for_log("is held by another process");
    assert_eq!(second.log().lines().count(), 1, "{}", second.log());
    leader.signal("CONT");
    assert_eq!(agreed([&leader]), before);
}

#[test]
fn what_is_done_to_the_file_costs_a_session_at_most() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let setup = Setup::of(&servers).short_sessions();
    let kept = files.kept_by(&setup, "a");
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
        member.wait_for_log("became leader");
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
    refused.wait_for_log("is a symbolic link");
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
    member.wait_for_log("a restart will cost the session");
    member.wait_for_log("No space left on device");
}

/// It may have no more memory than it has, and is asked for more.
#[test]
fn a_leader_that_dies_of_a_lack_of_memory_is_back_under_the_same_token() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let kept = files.kept_by(&Setup::of(&servers), "a");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let before = agreed([&leader]);
    let no_more = Rlimit { current: Some(0), maximum: Some(0) };
    let process = Pid::from_raw(leader.process_id().cast_signed());
    prlimit(process, Resource::As, no_more).expect("root may limit any process");
    ask_until_it_dies(&mut leader);
    let leader = kept.start("a");
    eventually("it leads again", || has_role(&leader, "leader"));
    assert_eq!(agreed([&leader]), before, "{}", leader.log());
}

/// The same by the kernel's hand, which kills it as it would kill any other.
#[test]
fn a_leader_that_the_kernel_kills_for_its_memory_is_back_under_the_same_token() {
    // Before all that might be in it: it is removed last.
    let group = match MemoryGroup::new() {
        Ok(group) => group,
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let setup = Setup::of(&servers);
    let kept = files.kept_by(&setup, "a");
    let [mut leader] = started_in_order(&kept, ["a"]);
    let [follower] = started_in_order(&setup, ["b"]);
    let before = agreed([&leader, &follower]);
    eventually("the standby is ready", || follower.is_ready_standby());
    let mut events = follower.stream("/events");
    assert_eq!(events.event().name, "state");
    group.limit(leader.process_id(), 1 << 20);
    ask_until_it_dies(&mut leader);
    assert_eq!((leader.wait().0.signal(), group.kills()), (Some(9), 1), "{}", leader.log());

    let leader = kept.start("a");
    eventually("it leads again", || has_role(&leader, "leader"));
    assert_eq!(agreed([&leader, &follower]), before, "{}", leader.log());
    assert_eq!(leader.status()["session"]["restart"]["restarts"], 1);
    assert_eq!(leader.handovers().unwrap().total(), 0, "nothing was handed over");
    // The first change that the follower hears of is the first that there is.
    assert_eq!(leader.post("/resign").status, 202);
    assert_eq!(events.event().name, "became-leader");
    agreed_after(&before, [&leader, &follower]);
}

/// Opens streams of events, until it has no memory for them.
fn ask_until_it_dies(member: &mut Member) {
    let mut callers = vec![];
    let port = member.port();
    eventually("it finds no memory", || {
        for _ in 0..32 {
            let Ok(mut caller) = TcpStream::connect(("127.0.0.1", port)) else { break };
            let _it_may_be_dead =
                caller.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n");
            callers.push(caller);
        }
        if member.runs() { Err(format!("it serves {}", callers.len())) } else { Ok(()) }
    });
}

#[test]
fn never_two_commands_at_once_while_sidecar_and_guards_are_killed() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers), "trap '' TERM").option("--on-exit", "restart");
    let kept = files.kept_by(&setup, "a");
    let mut member = kept.start("a");
    let first = next_after(None, &diary);
    let mut run = first.clone();
    for order in [
        &["sidecar"][..],
        &["inner", "sidecar"],
        &["outer", "sidecar"],
        &["sidecar", "inner"],
        &["sidecar", "outer"],
        &["inner", "outer", "sidecar"],
        &["sidecar", "inner", "outer"],
    ] {
        let inner = parent_of(run.pid);
        let outer = parent_of(inner);
        for which in order {
            match *which {
                "inner" => signal(inner, Signal::KILL),
                "outer" => signal(outer, Signal::KILL),
                _ => member.kill(),
            }
        }
        member = restarted(&kept);
        run = next_after(Some(&run), &diary);
        assert_eq!(run.token, first.token, "{order:?}: {}", member.log());
        diary.shows_one_at_a_time();
    }
}

/// Waits for a command that began after this one and lives, and returns its run.
fn next_after(before: Option<&Run>, diary: &Diary) -> Run {
    eventually("a command runs", || {
        let runs = diary.runs();
        let is_next = |run: &Run| before.is_none_or(|before| before.first < run.first);
        let lives = |run: &Run| {
            let status = fs::read_to_string(format!("/proc/{}/status", run.pid));
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        let last = runs.last().filter(|run| is_next(run) && lives(run));
        last.cloned().ok_or_else(|| format!("{runs:?}"))
    })
}

/// Starts it as a parent does that starts it again whenever it has ended: while something of the program lives, it is
/// refused.
fn restarted(setup: &Setup) -> Member {
    eventually("it is let in", || {
        let mut member = setup.start("a");
        eventually("it starts the command or is refused", || {
            let starts = member.log().contains("starting the program");
            if starts || !member.runs() { Ok(()) } else { Err(member.log()) }
        });
        if member.runs() { Ok(member) } else { Err(member.log()) }
    })
}

#[test]
fn the_file_is_this_user_s_alone() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let kept = files.kept_by(&Setup::of(&servers), "a");
    let [mut member] = started_in_order(&kept, ["a"]);
    let mode = fs::metadata(files.of("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::set_permissions(files.of("a"), fs::Permissions::from_mode(0o644)).unwrap();
    member.kill();
    let mut refused = kept.start("a");
    assert_eq!(refused.wait().0.code(), Some(2));
    refused.wait_for_log("can be read or written by others");
}
