//! Commands that run only while their member leads: never two at once, and none beyond its lease.
//!
//! "Stubborn" is a command that ignores SIGTERM.

use crate::{
    group::{agreed, agreed_after, has_role, leader_of, started_in_order},
    member::Setup,
    observer::Observer,
    process::{parent_of, send_signal, tied_to_this_thread},
    servers::{Servers, Settings},
    task::{Diary, STUBBORN},
    transfer::transfer,
    wait::{eventually, throughout},
};
use serde_json::json;
use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Compares the lease's end, as the member tells it, with the command's end, as the kernel tells it.
#[test]
fn a_stubborn_command_is_dead_before_the_lease_of_a_member_without_zookeeper_ends() {
    let mut servers = Servers::standalone();
    let diary = Diary::new();
    let [member] =
        started_in_order(&diary.kept_by(Setup::of(&servers).short_sessions(), STUBBORN), ["a"]);
    diary.next_run(0);
    let lock = diary.path("lock");
    let end = thread::spawn(move || Diary::wait_for_the_end(&lock));

    servers.first().pause();
    let mut lease_end = None;
    eventually("it leads no more", || {
        let asked = Instant::now();
        let answer = leader_of(&member);
        match answer["valid_for_ms"].as_u64().filter(|_| answer["is_self"] == true) {
            Some(left) => {
                // Never later than it is, since the answer was written later than asked for.
                lease_end = Some(asked + Duration::from_millis(left));
                Err(answer.to_string())
            }
            None => Ok(()),
        }
    });

    let (end, lease_end) = (end.join().unwrap().unwrap(), lease_end.expect("it led"));
    assert!(end < lease_end, "{:?} too late", end - lease_end);
    eprintln!("dead {:?} before the lease ended", lease_end - end);
    member.wait_for_log("not renewed in time");
}

#[test]
fn a_frozen_sidecar_does_not_keep_its_command_alive() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers).short_sessions(), STUBBORN);
    let members = started_in_order(&setup, ["a", "b"]);
    let first = diary.next_run(0);

    members[0].signal("STOP");
    let second = diary.next_run(1);
    assert_eq!((&*first.who, &*second.who), ("a", "b"));
    members[0].signal("CONT");
    agreed(&members);
    diary.shows_one_at_a_time();
    eprintln!("frozen: {:?}", diary.gaps());
}

/// The outer guard kills the inner one, which cannot report how the command ended: no failure of the command, also
/// where that is the first that the sidecar reads.
#[test]
fn a_sidecar_and_a_guard_that_are_frozen_beyond_the_lease_cost_the_term_only() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers).short_sessions(), STUBBORN);
    let members = started_in_order(&setup, ["a", "b"]);
    let first = diary.next_run(0);

    send_signal(parent_of(first.pid), "STOP");
    members[0].signal("STOP");
    assert_eq!(diary.next_run(1).who, "b");
    members[0].signal("CONT");
    eventually("it knows that its command is dead", || {
        let log = members[0].log();
        // By which of the two depends on whether it first notices that it leads no more.
        let ended = ["the lease was not renewed in time", "has ended, as it was told"];
        if ended.iter().any(|it| log.contains(it)) { Ok(()) } else { Err(log) }
    });
    agreed(&members);
    assert!(!members[0].log().contains("ERROR"), "{}", members[0].log());
    diary.shows_one_at_a_time();
}

/// Processes that left the command's process group are killed, too.
#[test]
fn a_sidecar_that_is_killed_takes_the_command_and_all_its_offspring_along() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let offspring = format!("{STUBBORN}; setsid sleep 600 & (sleep 600 &)");
    let [mut member] = started_in_order(&diary.kept_by(Setup::of(&servers), &offspring), ["a"]);
    diary.next_run(0);
    assert!(diary.is_held());

    member.kill();
    eventually("nothing of it is left", || {
        if diary.is_held() { Err("it lives".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn a_guard_that_is_killed_takes_the_command_along_and_it_is_started_anew() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers), STUBBORN).option("--on-exit", "restart");
    let [member] = started_in_order(&setup, ["a"]);
    let first = diary.next_run(0);

    send_signal(parent_of(first.pid), "KILL");
    let second = diary.next_run(1);
    assert_eq!(first.token, second.token);
    send_signal(parent_of(parent_of(second.pid)), "KILL");
    diary.next_run(2);
    diary.shows_one_at_a_time();
    let errors = member.log().lines().filter(|line| line.contains("ERROR")).count();
    assert_eq!(errors, 2, "one for each guard: {}", member.log());
}

/// The sidecar watches the guard, which watches the command.
#[test]
fn a_guard_that_is_frozen_is_not_waited_for() {
    let mut servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers).short_sessions(), STUBBORN);
    let [member] = started_in_order(&setup.option("--on-exit", "stay"), ["a"]);
    let first = diary.next_run(0);

    send_signal(parent_of(first.pid), "STOP");
    servers.first().pause();
    eventually("the command is dead", || if diary.is_held() { Err(member.log()) } else { Ok(()) });
}

#[test]
fn a_member_that_resigns_is_out_of_the_queue_only_when_its_command_is_dead() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let members = started_in_order(&diary.kept_by(Setup::of(&servers), STUBBORN), ["a", "b"]);
    diary.next_run(0);

    assert_eq!(members[0].post("/resign").status, 202);
    let runs = (diary.next_run(0), diary.next_run(1));
    assert_eq!((&*runs.0.who, &*runs.1.who), ("a", "b"));
    assert_eq!(members[1].post("/drain").status, 200);
    assert_eq!(diary.next_run(2).who, "a");
    diary.shows_one_at_a_time();
    eprintln!("resigned, drained: {:?}", diary.gaps());
}

#[test]
fn a_member_that_hands_over_to_another_ends_its_command_first() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers), STUBBORN);
    let members = started_in_order(&setup, ["a", "b", "c"]);
    diary.next_run(0);

    let moved = transfer(&members[0], &json!({"to": "c"}));
    assert_eq!((moved.status, &moved.json()["leader"]["id"]), (200, &json!("c")), "{moved:?}");
    let runs = (diary.next_run(0), diary.next_run(1));
    assert_eq!((&*runs.0.who, &*runs.1.who), ("a", "c"));
    diary.shows_one_at_a_time();
    eprintln!("transferred: {:?}", diary.gaps());
}

#[test]
fn a_stubborn_command_is_dead_before_the_next_starts_when_its_member_is_terminated() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let mut members = started_in_order(&diary.kept_by(Setup::of(&servers), STUBBORN), ["a", "b"]);
    diary.next_run(0);
    let before = agreed(&members);

    members[0].signal("TERM");
    let (status, _) = members[0].wait();
    assert_eq!(status.code(), Some(128 + 9), "{status}");
    assert_eq!(agreed_after(&before, [&members[1]]).id, "b");
    assert_eq!(diary.next_run(1).who, "b");
    diary.shows_one_at_a_time();
    eprintln!("terminated: {:?}", diary.gaps());
}

#[test]
fn a_command_that_ends_in_time_is_not_killed() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let bye = r#"trap 'echo bye >> "$DIARY/said"; exit 7' TERM INT"#;
    for signal in ["TERM", "INT"] {
        let [mut member] = started_in_order(&diary.kept_by(Setup::of(&servers), bye), ["a"]);
        eventually("it runs", || if diary.is_held() { Ok(()) } else { Err(member.log()) });
        member.signal(signal);
        assert_eq!(member.wait().0.code(), Some(7), "{signal}: {}", member.log());
    }
    assert_eq!(diary.text("said"), "bye\nbye\n");
}

#[test]
fn a_follower_that_is_terminated_leaves_at_once_with_0() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let [_leader, mut follower] =
        started_in_order(&diary.kept_by(Setup::of(&servers), ""), ["a", "b"]);
    follower.signal("TERM");
    assert_eq!(follower.wait().0.code(), Some(0));
}

/// A second signal says that the operator does not want to wait: the command is killed at once.
#[test]
fn a_command_whose_member_is_told_twice_to_end_is_killed() {
    let servers = Servers::standalone();
    let deaf = "trap '' TERM; echo deaf >&2; while :; do sleep 0.1; done";
    let setup = Setup::of(&servers).option("--kill-after", "4s").executing(&["sh", "-c", deaf]);
    let [mut member] = started_in_order(&setup, ["a"]);
    eventually("it runs", || {
        let log = member.log();
        if log.contains("deaf") { Ok(()) } else { Err(log) }
    });

    member.signal("TERM");
    eventually("the first signal is handled", || {
        let log = member.log();
        if log.contains("then leaving") { Ok(()) } else { Err(log) }
    });
    eventually("one that comes later kills", || {
        member.signal("TERM");
        let log = member.log();
        if log.contains("killing the program") { Ok(()) } else { Err(log) }
    });
    assert_eq!(member.wait().0.code(), Some(128 + 9), "{}", member.log());
}

#[test]
fn other_signals_reach_the_command() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let traps =
        r#"for s in HUP QUIT USR1 USR2 WINCH; do trap "echo $s >> \"\$DIARY/said\"" $s; done"#;
    let [member] = started_in_order(&diary.kept_by(Setup::of(&servers), traps), ["a"]);
    diary.next_run(0);
    for signal in ["HUP", "QUIT", "USR1", "USR2", "WINCH"] {
        member.signal(signal);
        eventually("the command hears it", || {
            let said = diary.text("said");
            if said.ends_with(&format!("{signal}\n")) { Ok(()) } else { Err(said) }
        });
    }
    assert_eq!(diary.runs().len(), 1, "and it runs on");
}

/// The exit code is 128+n after a signal, as a shell has it. One that cannot be run is never begun: tests/config.rs.
#[test]
fn it_exits_as_its_command_does() {
    let servers = Servers::standalone();
    for (command, code) in
        [(&["true"][..], 0), (&["sh", "-c", "exit 3"], 3), (&["sh", "-c", "kill -15 $$"], 143)]
    {
        let mut member = Setup::of(&servers).executing(command).start("a");
        assert_eq!(member.wait().0.code(), Some(code), "{command:?}: {}", member.log());
        member.wait_for_log("left the queue");
    }
}

#[test]
fn the_next_in_the_queue_runs_it_when_it_has_ended_here() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let diary = Diary::new();
    let until_told = "until [ -e \"$DIARY/enough\" ]; do sleep 0.02; done; exit 5";
    let script = format!("echo $BELLWETHER_ID $BELLWETHER_ELECTION >> $DIARY/said; {until_told}");
    let setup = diary.kept_by(Setup::of(&servers), &script);
    let [mut first, mut second] = started_in_order(&setup, ["a", "b"]);
    eventually("the first runs it", || said(&diary, "a /election\n"));
    fs::write(diary.path("enough"), "").unwrap();
    assert_eq!(first.wait().0.code(), Some(5));
    assert_eq!(second.wait().0.code(), Some(5));
    assert_eq!(diary.text("said"), "a /election\nb /election\n");
    assert!(observer.queue("/election", "leader_").is_empty());
}

#[test]
fn a_member_that_stays_leads_on_without_its_command() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let setup = diary.kept_by(Setup::of(&servers), "echo run >> \"$DIARY/said\"; exit 5");
    let [member] = started_in_order(&setup.option("--on-exit", "stay"), ["a"]);
    eventually("it has run", || said(&diary, "run\n"));
    throughout("it leads, and runs nothing", Duration::from_secs(2), || {
        has_role(&member, "leader")?;
        said(&diary, "run\n")
    });
    // The next term is another matter.
    assert_eq!(member.post("/resign").status, 202);
    eventually("it runs in the next term", || said(&diary, "run\nrun\n"));
}

#[test]
fn what_is_restarted_until_it_succeeds_once_is_started_no_more() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let thrice = "echo run >> \"$DIARY/said\"; [ $(wc -l < \"$DIARY/said\") -eq 3 ]; exit";
    let setup = diary.kept_by(Setup::of(&servers), thrice).option("--on-exit", "restart");
    let mut member = setup.flag("--once").start("a");
    assert_eq!(member.wait().0.code(), Some(0), "{}", member.log());
    assert_eq!(diary.text("said"), "run\nrun\nrun\n");
}

/// A command that ended under a lease in doubt is started again when the lease holds after all.
#[test]
fn a_doubt_that_passes_costs_a_restart() {
    let mut servers = Servers::standalone();
    let diary = Diary::new();
    let [member] = started_in_order(&diary.kept_by(Setup::of(&servers), ""), ["a"]);
    let first = diary.next_run(0);
    servers.first().pause();
    eventually("its command is told to end", || {
        if diary.is_held() { Err(member.log()) } else { Ok(()) }
    });
    servers.first().resume();
    let second = diary.next_run(1);
    diary.shows_one_at_a_time();
    eprintln!("token {} then {}", first.token, second.token);
}

#[test]
fn a_session_too_short_to_end_a_command_in_is_not_led_in() {
    let max_session_timeout = Duration::from_secs(2);
    let mut servers = Servers::prepared(&Settings { max_session_timeout, ..Settings::default() });
    servers.start();
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("it-ran");
    let setup = Setup::of(&servers).executing(&["touch", trace.to_str().unwrap()]);
    let member = setup.option("--heartbeat", "300ms").option("--kill-after", "4s").start("a");
    let problem = eventually("it says why", || {
        let status = member.status();
        let problem = status["session"]["problem"].as_str().map(str::to_owned);
        problem.filter(|it| it.contains("exec.kill_after")).ok_or_else(|| status.to_string())
    });
    assert!(problem.contains("does not lead"), "{problem}");
    assert!(!trace.exists());
}

#[test]
fn the_command_reads_and_writes_where_we_do_and_opens_as_many_files_as_it_could_without_us() {
    let servers = Servers::standalone();
    let mut command = tied_to_this_thread("prlimit");
    command
        .args(["--nofile=512:1024", "--", env!("CARGO_BIN_EXE_bellwether"), "exec", "--id", "a"])
        .args(["--listen", "127.0.0.1:0", "--zookeeper", &servers.connect_string(), "--"])
        .args(["sh", "-c", "cat; ulimit -Sn; ulimit -Hn; nice; echo ${BELLWETHER_URL%:*}; grep -E 'Sig(Blk|Ign)' /proc/self/status"])
        .stdin(Stdio::from(fs::File::open("/proc/sys/kernel/ostype").unwrap()))
        .stdout(Stdio::piped());
    let output = command.output().expect("it runs");
    let said = String::from_utf8(output.stdout).unwrap();
    let nice = Command::new("nice").output().expect("coreutils are installed").stdout;
    let [start @ .., blocked, ignored] = &said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    let nice = String::from_utf8(nice).unwrap();
    assert_eq!(start, ["Linux", "512", "1024", nice.trim(), "http://127.0.0.1"]);
    assert_eq!(*blocked, "SigBlk:\t0000000000000000");
    // Signals beyond the classic 31 may be ignored because the process that started this test ignores them.
    let ignored = ignored.strip_prefix("SigIgn:\t").expect("the kernel's words");
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff, 0, "{said}");
    assert_eq!(output.status.code(), Some(0));
}

fn said(diary: &Diary, all: &str) -> Result<(), String> {
    let said = diary.text("said");
    if said == all { Ok(()) } else { Err(said) }
}
