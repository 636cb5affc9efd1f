//! `bellwether lock`: a command that runs while a lock is held, by way of a sidecar and without one. Never two at once, and
//! none beyond its lease.

use crate::{
    command::{FAILED, NOT_IN_TIME, PROGRAM, Said, ran, url},
    group::started_in_order,
    member::{Member, Setup},
    observer::Observer,
    program::Program,
    servers::Servers,
    task::{Diary, STUBBORN},
    wait::eventually,
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Of a session of two seconds with the tests' tick: no lease is longer.
const SHORT_LEASE: Duration = Duration::from_millis(1398);

/// By way of what a command holds its lock.
pub(crate) struct Way(pub(crate) Vec<String>);

#[test]
fn two_tokens_never_interleave_whatever_is_killed_or_frozen() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let [first, mut second] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let (by_first, by_second) = (Way::of(&first), Way::of(&second));
    let by_itself = Way::without_sidecar(&servers);
    let ways = [&by_first, &by_first, &by_second, &by_itself, &by_itself, &by_first, &by_itself];
    let mut queue: Vec<Program> = vec![];
    for (n, way) in ways.into_iter().enumerate() {
        let program = way.keeps(&diary, &n.to_string());
        if n == 0 {
            diary.next_run(0);
        } else {
            program.complains(|line| line.contains("waiting for lock job, behind"));
        }
        queue.push(program);
    }
    let runs = |n: usize| {
        let run = diary.next_run(n);
        assert_eq!(run.who, n.to_string(), "in order of arrival");
        run
    };
    let ends = |program: &mut Program, code: i32| {
        assert_eq!(program.wait().code(), Some(code));
        program.complains(|line| line.contains("was lost"));
    };

    // The guards keep the connection until the command is dead.
    queue[0].signal("KILL");
    runs(1);
    queue[1].signal("STOP");
    runs(2);
    queue[1].signal("CONT");
    ends(&mut queue[1], FAILED);
    second.kill();
    runs(3);
    ends(&mut queue[2], FAILED);
    queue[3].signal("KILL");
    runs(4);
    queue[4].signal("STOP");
    runs(5);
    queue[4].signal("CONT");
    ends(&mut queue[4], FAILED);
    first.signal("STOP");
    runs(6);
    first.signal("CONT");
    ends(&mut queue[5], FAILED);
    queue[6].signal("TERM");
    assert_eq!(queue[6].wait().code(), Some(128 + 9), "it is stubborn");
    diary.shows_one_at_a_time();
    eprintln!("killed, frozen: {:?}", diary.gaps());
}

/// It is told to end when the connection is closed, and nothing else is told to it by one that is frozen.
#[test]
fn a_command_is_dead_before_the_lease_of_a_sidecar_ends_that_is_killed_or_frozen() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).short_sessions();
    for strike in ["KILL", "STOP"] {
        let diary = Diary::new();
        let [member] = started_in_order(&setup, ["a"]);
        let mut program = Way::of(&member).keeps(&diary, "0");
        diary.next_run(0);
        let lock = diary.path("lock");
        let end = thread::spawn(move || Diary::wait_for_the_end(&lock));

        let struck = Instant::now();
        member.signal(strike);
        let took = end.join().unwrap().expect("the file is there") - struck;
        assert!(took < SHORT_LEASE, "{strike}: dead after {took:?}");
        eprintln!("{strike}: dead after {took:?}");
        assert_eq!(program.wait().code(), Some(FAILED));
        program.complains(|line| line.contains("lock job was lost"));
    }
}

#[test]
fn a_silence_of_zookeepers_is_not_put_down_to_the_sidecar() {
    let mut servers = Servers::standalone();
    let diary = Diary::new();
    let [member] = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    let mut program = Way::of(&member).keeps(&diary, "0");
    diary.next_run(0);
    servers.first().pause();
    assert_eq!(program.wait().code(), Some(FAILED));
    servers.first().resume();
    program.complains(|line| line.contains("lock job was lost") && line.contains("not renewed"));
}

#[test]
fn a_lock_passes_on_when_the_command_is_dead_whose_sidecar_leaves() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let [mut first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let mut holds = Way::of(&first).keeps(&diary, "0");
    diary.next_run(0);
    let waits = Way::of(&second).keeps(&diary, "1");
    waits.complains(|line| line.contains("waiting for lock job"));
    first.signal("TERM");
    assert_eq!(holds.wait().code(), Some(FAILED));
    holds.complains(|line| line.contains("this member leaves"));
    assert!(first.wait().0.success());
    diary.next_run(1);
    diary.shows_one_at_a_time();
    eprintln!("left: {:?}", diary.gaps());
}

#[test]
fn it_exits_as_its_command_does_which_knows_its_lock_and_token() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    for way in [Way::of(&member), Way::without_sidecar(&servers)] {
        for (script, code) in [("true", 0), ("exit 3", 3), ("kill -15 $$", 143)] {
            assert_eq!(way.runs("codes", &[], script).code, code, "{script}");
        }
        let script = "cat; echo $BELLWETHER_LOCK $BELLWETHER_TOKEN $BELLWETHER_URL";
        let said = way.runs("migrate", &[], script);
        let words: Vec<_> = said.out.split_whitespace().collect();
        assert_eq!(words[0], "migrate", "{said:?}");
        assert!(words[1].parse().is_ok_and(|token: u64| token > 0), "{said:?}");
        let url = (way.0[0] == "--url").then_some(&*way.0[1]);
        assert_eq!(words.get(2).copied(), url, "that of the sidecar by which it is held: {said:?}");
    }
    eventually("nothing is left", || {
        let left = observer.ask(async |client| client.list_children("/locks/codes").await);
        if left.as_ref().is_ok_and(Vec::is_empty) { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

#[test]
fn who_does_not_get_it_in_time_runs_nothing_and_leaves_no_znode() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let ways = [Way::of(&member), Way::without_sidecar(&servers)];
    let held = ways[0].starts("holds", "busy", &[], "echo held; sleep 600");
    held.says(0, |line| line == "held");
    for (way, free) in ways.iter().zip(["free-0", "free-1"]) {
        let tries = (&["--try"][..], "others have lock busy");
        for (options, why) in [tries, (&["--wait", "300ms"], "timed out waiting for lock busy")] {
            let said = way.runs("busy", options, "echo it ran");
            assert_eq!((said.code, &*said.out), (NOT_IN_TIME, ""), "{options:?}: {said:?}");
            assert!(said.err.contains(why), "{said:?}");
        }
        let mut waits = way.starts("waits", "busy", &[], "echo it ran");
        waits.complains(|line| line.contains("waiting for lock busy"));
        waits.signal("TERM");
        assert_eq!(waits.wait().code(), Some(143));
        assert!(waits.said().is_empty());
        assert_eq!(way.runs(free, &["--try"], "true").code, 0);
    }
    eventually("the holder alone is left", || {
        let left = observer.ask(async |client| client.list_children("/locks/busy").await);
        if left.as_ref().is_ok_and(|left| left.len() == 1) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

#[test]
fn it_is_shared_or_one_of_some_slots_as_is_asked() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let ways = [Way::of(&member), Way::without_sidecar(&servers)];
    let holds = |name, options: &[&str]| {
        let holder = ways[0].starts("holds", name, options, "echo held; sleep 600");
        holder.says(0, |line| line == "held");
        holder
    };
    let _reader = holds("data", &["--shared"]);
    let _worker = holds("jobs", &["--slots", "2"]);
    for way in &ways {
        let tried =
            |name, options: &[&str]| way.runs(name, &[options, &["--try"]].concat(), "true");
        assert_eq!(tried("data", &["--shared"]).code, 0);
        assert_eq!(tried("data", &[]).code, NOT_IN_TIME);
        eventually("the other slot is free again", || match tried("jobs", &["--slots", "2"]) {
            Said { code: 0, .. } => Ok(()),
            said => Err(format!("{said:?}")),
        });
        let refused = tried("jobs", &["--slots", "3"]);
        assert_eq!(refused.code, FAILED);
        assert!(refused.err.contains("one of 2 slots"), "{refused:?}");
    }
}

#[test]
fn signals_reach_the_command_and_its_end_gives_the_lock_back() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let script =
        "trap 'echo once more' USR1; trap 'exit 7' TERM; echo runs; while :; do sleep 0.02; done";
    for way in [Way::of(&member), Way::without_sidecar(&servers)] {
        let mut program = way.starts("runs", "job", &[], script);
        let next = program.says(0, |line| line == "runs");
        program.signal("USR1");
        program.says(next, |line| line == "once more");
        let mut waits = way.starts("waits", "job", &[], "true");
        waits.complains(|line| line.contains("waiting for lock job"));
        program.signal("TERM");
        assert_eq!(program.wait().code(), Some(7));
        assert_eq!(waits.wait().code(), Some(0), "long before any session ends");
    }
}

#[test]
fn why_there_is_no_lock_is_told_with_the_remedy() {
    let servers = Servers::standalone();
    let [off] = started_in_order(&Setup::of(&servers).option("--recipes-root", ""), ["a"]);
    let closed = Way(vec!["--url".into(), "http://127.0.0.1:1".into()]);
    for (way, word) in [(Way::of(&off), "recipes.root"), (closed, "does a sidecar run there?")] {
        let said = way.runs("job", &[], "echo it ran");
        assert_eq!((said.code, &*said.out), (FAILED, ""), "{said:?}");
        assert!(said.err.contains(word), "{said:?}");
    }
    let asked = ran(&["locks", "--url", &url(&off)]);
    assert!(asked.code == 1 && asked.err.contains("recipes.root"), "{asked:?}");
}

#[test]
fn without_zookeeper_a_try_without_a_sidecar_says_so() {
    let by_itself = Way(["--zookeeper", "127.0.0.1:1"].map(str::to_owned).to_vec());
    let said = by_itself.runs("job", &["--try"], "echo it ran");
    assert_eq!((said.code, &*said.out), (FAILED, ""), "{said:?}");
    let told = said.err.lines().last().unwrap_or_default();
    assert!(told.contains("lock job was not got: ZooKeeper has not answered"), "{said:?}");
}

#[test]
fn who_holds_a_lock_and_who_waits_is_printed() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    let way = Way::of(&member);
    let holder = way.starts("holds", "job", &[], "echo held; sleep 600");
    holder.says(0, |line| line == "held");
    let waits = way.starts("waits", "job", &["--shared"], "true");
    waits.complains(|line| line.contains("waiting for lock job"));
    let url = url(&member);
    eventually("the next reading has both", || {
        let told = ran(&["locks", "job", "--url", &url]);
        assert_eq!(told.code, 0, "{told:?}");
        let rows: Vec<Vec<_>> =
            told.out.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
        // The process of each is this host's: its name, a colon and a number.
        let is_process =
            |word: &str| word.split_once(':').is_some_and(|(_, id)| id.parse::<u32>().is_ok());
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        match &rows[..] {
            [_, ["a", holder, "holds", "exclusive"], ["a", waits, "waits", "shared"]]
                if is_process(holder) && is_process(waits) && holder != waits =>
            {
                Ok(())
            }
            _ => Err(told.out),
        }
    });
    assert_eq!(ran(&["locks", "--url", &url]).out, "LOCK\njob\n");
    let held = ran(&["locks", "job", "--json", "--url", &url]).out;
    let held: serde_json::Value = serde_json::from_str(&held).expect("JSON");
    let token = held["holders"][0]["token"].to_string();
    let broken = ran(&["locks", "break", "job", &token, "--now", "--url", &url]);
    assert_eq!((broken.code, &*broken.out), (0, "the place is gone\n"));
    holder.complains(|line| line.contains("was lost"));
    let again = ran(&["locks", "break", "job", &token, "--url", &url]);
    assert_eq!(again.code, 1, "{again:?}");

    let next = way.starts("next", "other", &[], "echo held; sleep 600");
    next.says(0, |line| line == "held");
    let held = ran(&["locks", "other", "--json", "--url", &url]).out;
    let held: serde_json::Value = serde_json::from_str(&held).expect("JSON");
    let token = held["holders"][0]["token"].to_string();
    let mut breaks =
        Program::start("breaks", [PROGRAM, "locks", "break", "other", &token, "--url", &url], &[]);
    next.complains(|line| line.contains("was lost"));
    breaks.signal("KILL");
    breaks.wait();
    eventually("the sidecar goes on with it", || {
        let left = ran(&["locks", "other", "--json", "--url", &url]).out;
        if left.contains(r#""holders":[]"#) { Ok(()) } else { Err(left) }
    });
    let none = ran(&["locks", "none", "--json", "--url", &url]).out;
    assert!(none.contains(r#""holders":[]"#), "{none}");
}

impl Way {
    pub(crate) fn of(member: &Member) -> Self {
        Self(vec!["--url".into(), url(member)])
    }

    pub(crate) fn without_sidecar(servers: &Servers) -> Self {
        let zookeeper = servers.connect_string();
        let words = ["--zookeeper", &zookeeper, "--session-timeout", "2s", "--tick-time", "200ms"];
        Self(words.map(str::to_owned).to_vec())
    }

    fn words<'a>(&'a self, name: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
        let own = self.0.iter().map(String::as_str);
        let words = ["lock", name].into_iter().chain(own).chain(options.iter().copied());
        words.chain(["--", "sh", "-c", script]).collect()
    }

    /// Starts one that keeps a diary, and ends only when it is killed.
    fn keeps(&self, diary: &Diary, id: &str) -> Program {
        let script = Diary::script(STUBBORN);
        let words = self.words("job", &["--kill-after", "500ms"], &script);
        let home = diary.path("");
        let environment =
            [("DIARY", home.to_str().expect("a path of text")), ("BELLWETHER_ID", id)];
        Program::start(id, [PROGRAM].into_iter().chain(words), &environment)
    }

    fn starts(&self, called: &str, name: &str, options: &[&str], script: &str) -> Program {
        let words = self.words(name, options, script);
        Program::start(called, [PROGRAM].into_iter().chain(words), &[])
    }

    /// Runs it to its end.
    fn runs(&self, name: &str, options: &[&str], script: &str) -> Said {
        ran(&self.words(name, options, script))
    }
}
