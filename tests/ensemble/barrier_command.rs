//! `bellwether barrier`: commands that begin together, by way of sidecars and without one, and return when all have ended.

use crate::{
    command::{FAILED, NOT_IN_TIME, PROGRAM, ran, url},
    group::started_in_order,
    lock_command::Way,
    member::Setup,
    observer::Observer,
    program::Program,
    servers::Servers,
    wait::{eventually, throughout},
};
use std::{fs::File, path::PathBuf, time::Duration};
use tempfile::TempDir;

#[test]
fn three_run_together_and_none_returns_before_all_have_ended() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let ways = [Way::of(&first), Way::of(&second), Way::without_sidecar(&servers)];
    let run = Run::new();
    let mut programs = vec![];
    for (n, way) in ways.iter().enumerate() {
        let program = run.starts(way, n, 3);
        if n < 2 {
            program.complains(|line| line.contains("waiting for barrier deploy, a barrier of 3"));
        }
        programs.push(program);
    }
    for program in &programs {
        program.says(0, |line| {
            line.strip_prefix("deploy ").is_some_and(|token| token.parse::<u64>().is_ok())
        });
    }
    run.ends(0);
    run.ends(2);
    eventually("both have left", || {
        match ran(&["barriers", "deploy", "--json", "--url", &url(&first)]) {
            told if told.out.matches(r#""inside":"#).count() == 1
                && told.out.contains(r#""inside":true"#) =>
            {
                Ok(())
            }
            told => Err(format!("{told:?}")),
        }
    });
    throughout("they wait for the other", Duration::from_millis(500), || {
        if programs.iter_mut().all(Program::runs) { Ok(()) } else { Err("one has ended".into()) }
    });
    run.ends(1);
    for (n, program) in programs.iter_mut().enumerate() {
        assert_eq!(program.wait().code(), Some(i32::try_from(n).unwrap()), "as its command does");
    }
    assert!(observer.znode("/barriers/deploy/ready").is_none());
    assert_eq!(ran(&["barriers", "--url", &url(&first)]).out, "BARRIER\ndeploy\n");
}

/// It is dead before the lease ends, and its znode gone with the session.
#[test]
fn a_command_is_ended_whose_sidecar_is_killed_and_the_others_return_without_it() {
    let servers = Servers::standalone();
    let [first, second] = started_in_order(&Setup::of(&servers).short_sessions(), ["a", "b"]);
    let run = Run::new();
    let mut programs = [run.starts(&Way::of(&first), 0, 2), run.starts(&Way::of(&second), 1, 2)];
    for program in &programs {
        program.says(0, |line| line.starts_with("deploy "));
    }
    second.signal("KILL");
    assert_eq!(programs[1].wait().code(), Some(FAILED));
    programs[1].complains(|line| line.contains("barrier deploy was lost"));
    run.ends(0);
    assert_eq!(programs[0].wait().code(), Some(0));
}

#[test]
fn who_does_not_enter_runs_nothing_and_says_why() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let [off] = started_in_order(&Setup::of(&servers).option("--recipes-root", ""), ["b"]);
    for way in [Way::of(&member), Way::without_sidecar(&servers)] {
        let said = ran(&words(&way, &["--size", "2", "--wait", "300ms"], "echo it ran"));
        assert_eq!((said.code, &*said.out), (NOT_IN_TIME, ""), "{said:?}");
        assert!(said.err.contains("bellwether barriers deploy"), "{said:?}");
    }
    let said = ran(&words(&Way::of(&off), &["--size", "2"], "echo it ran"));
    assert!(said.code == FAILED && said.err.contains("recipes.root"), "{said:?}");
    let run = Run::new();
    let mut waits = run.starts(&Way::of(&member), 0, 2);
    waits.complains(|line| line.contains("waiting for barrier deploy"));
    for way in [Way::of(&member), Way::without_sidecar(&servers)] {
        let said = ran(&words(&way, &["--size", "3"], "echo it ran"));
        assert_eq!((said.code, &*said.out), (FAILED, ""), "{said:?}");
        assert!(said.err.contains("a barrier of 2"), "{said:?}");
    }
    waits.signal("TERM");
    assert_eq!(waits.wait().code(), Some(128 + 15));
}

#[test]
fn a_signal_ends_the_wait_for_the_others_to_leave() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let run = Run::new();
    let mut programs =
        [run.starts(&Way::of(&member), 0, 2), run.starts(&Way::without_sidecar(&servers), 1, 2)];
    for program in &programs {
        program.says(0, |line| line.starts_with("deploy "));
    }
    run.ends(0);
    eventually("it has left", || match ran(&["status", "--json", "--url", &url(&member)]) {
        told if told.out.contains(r#""state":"leaving""#) => Ok(()),
        told => Err(format!("{told:?}")),
    });
    programs[0].signal("TERM");
    assert_eq!(programs[0].wait().code(), Some(128 + 15));
    run.ends(1);
    assert_eq!(programs[1].wait().code(), Some(1));
}

/// Programs that end when they are told to, each with its number as exit code.
struct Run(TempDir);

impl Run {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn starts(&self, way: &Way, n: usize, size: usize) -> Program {
        let file = self.file(n);
        let script = format!(
            "echo $BELLWETHER_BARRIER $BELLWETHER_TOKEN; until [ -e {} ]; do sleep 0.02; done; exit {n}",
            file.display()
        );
        let size = size.to_string();
        let words = words(way, &["--size", &size], &script);
        let words: Vec<_> = [PROGRAM.to_owned()]
            .into_iter()
            .chain(words.iter().map(|it| (*it).to_owned()))
            .collect();
        Program::start(&n.to_string(), words.iter().map(String::as_str), &[])
    }

    fn ends(&self, n: usize) {
        File::create(self.file(n)).expect("a file");
    }

    fn file(&self, n: usize) -> PathBuf {
        self.0.path().join(n.to_string())
    }
}

fn words<'a>(way: &'a Way, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let own = way.0.iter().map(String::as_str);
    let words = ["barrier", "deploy"].into_iter().chain(own).chain(options.iter().copied());
    words.chain(["--", "sh", "-c", script]).collect()
}
