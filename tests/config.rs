//! The configuration file and the two ways of looking at it, on the real binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use bellwether::config::File;
use bellwether::election::Margins;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;

fn bellwether(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BELLWETHER_")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG").env_remove("POD_NAME").args(args);
    command
}

fn ran(command: &mut Command) -> (i32, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let both = [stdout, stderr].concat();
    (status.code().expect("it exits by itself"), String::from_utf8(both).unwrap())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn the_sample_file_has_every_default_and_changes_nothing() {
    let text = include_str!("../config/bellwether.toml");
    let _parses: File = toml::from_str(text).unwrap();
    let values = |printed: &str| {
        let line = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        printed.lines().map(line).collect::<Vec<_>>()
    };
    let (code, sample) =
        ran(&mut bellwether(&["check-config", "--id", "a", "--config", "config/bellwether.toml"]));
    assert_eq!(code, 0, "{sample}");
    let (_, default) = ran(&mut bellwether(&["check-config", "--id", "a"]));
    assert_eq!(values(&sample), values(&default));
}

#[test]
fn the_operators_table_of_timeouts_is_what_the_formula_says() {
    let tick = Duration::from_secs(2);
    let guide = include_str!("../docs/operations.md");
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|row: &Vec<_>| row.len() == 8 && row[2].ends_with(" s"))
        .collect();
    assert_eq!(rows.len(), 7, "{rows:?}");
    for row in rows {
        let session: u32 = row[1].strip_suffix('s').unwrap().parse().unwrap();
        let session = session * Duration::from_secs(1);
        let heartbeat = session / 10;
        let margins = Margins { heartbeat, half_tick: tick / 2 };
        let lease = margins.term(session).unwrap().0;
        // Signs of life have to be regular again, and the renewal itself to be answered.
        let resumed = 3 * heartbeat + tick / 2;
        let survived = lease.saturating_sub(resumed).max(heartbeat / 2);
        let rounded = |span: Duration| format!("{:.1} s", span.as_secs_f64());
        assert_eq!(row[2], format!("{:.3} s", lease.as_secs_f64()), "{row:?}");
        let ends = [session.as_secs(), (session + tick).as_secs()];
        assert_eq!(row[3], format!("{} to {} s", ends[0], ends[1]), "{row:?}");
        assert_eq!(row[4], rounded(session + 2 * tick + 2 * heartbeat), "{row:?}");
        assert_eq!(row[5], rounded(survived), "{row:?}");
        assert_eq!(row[6], rounded(lease), "{row:?}");
    }
}

#[test]
fn what_is_commented_out_in_the_sample_parses_too() {
    let text = include_str!("../config/bellwether.toml");
    let token = file("secret\n");
    let token = token.path().to_str().unwrap();
    let mut uncommented = text.replace("/etc/bellwether/token", token);
    uncommented = uncommented.replace("/etc/bellwether/webhook-secret", token);
    for key in ["id", "address", "labels", "heartbeat", "probe_listen", "token_file"] {
        let commented = format!("# {key} =");
        assert!(text.contains(&commented), "{key}");
        uncommented = uncommented.replace(&commented, &format!("{key} ="));
    }
    for key in [
        "on",
        "command",
        "timeout",
        "acknowledges",
        "url",
        "retries",
        "secret_file",
        "signal",
        "pid_file",
        "file",
        "mode",
        "unknown",
    ] {
        let commented = format!("\n# {key} =");
        assert!(text.contains(&commented), "{key}");
        uncommented = uncommented.replace(&commented, &format!("\n{key} ="));
    }
    uncommented = uncommented.replace("\n# [[hook]]", "\n[[hook]]");
    let sample = file(&uncommented);
    let (code, printed) = ran(bellwether(&["check-config", "--config"]).arg(sample.path()));
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("version=1.4,zone=a"), "{printed}");
    let hooks: Vec<_> = printed.lines().filter(|line| line.starts_with("hook[")).collect();
    assert_eq!(hooks.len(), 4, "{printed}");
    // What is written there is the default.
    let (on, path) = ("on = [\"leader-lost\"]\n", "url = \"http://127.0.0.1:8080/leadership\"\n");
    let bare =
        file(&format!("[[hook]]\n{on}{path}[[hook]]\nfile = \"/run/bellwether/leader.json\"\n"));
    let (_, bare) = ran(bellwether(&["check-config", "--config"]).arg(bare.path()));
    let is_default = |words: &str| bare.contains(words) && printed.contains(words);
    assert!(is_default("timeout 5s, retries 3"), "{bare}");
    assert!(is_default("leader.json, mode 0644, on every change"), "{bare}");
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = file("[election]\npath = \"/file\"\n[member]\nid = \"file\"\n");
    let origin = |command: &mut Command, key: &str| {
        let (code, printed) = ran(command);
        assert_eq!(code, 0, "{printed}");
        let line = printed.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" ")
    };
    let mut command = bellwether(&["check-config", "--config"]);
    command.arg(file.path());
    assert!(origin(&mut command, "election.path").starts_with("/file file"));
    command.env("BELLWETHER_ELECTION", "/environment");
    let environment = "/environment environment BELLWETHER_ELECTION";
    assert_eq!(origin(&mut command, "election.path"), environment);
    command.args(["--election", "/flag"]);
    assert_eq!(origin(&mut command, "election.path"), "/flag flag --election");
    assert_eq!(origin(&mut command, "http.listen"), "127.0.0.1:4040 default");
    assert_eq!(
        origin(bellwether(&["check-config"]).env("POD_NAME", "pod-0"), "member.id"),
        "pod-0 default"
    );
}

#[test]
fn what_is_wrong_ends_with_2_before_a_port_is_bound() {
    let unknown = file("[zookeeper]\nserver = \"a:1\"\n");
    let unknown = unknown.path().to_str().unwrap();
    let level = file("[log]\nlevel = \"bogus==\"\n");
    let level = level.path().to_str().unwrap();
    let hook = file("[[hook]]\non = [\"became-leader\"]\nurl = \"https://127.0.0.1/\"\n");
    let hook = hook.path().to_str().unwrap();
    let unsigned =
        "[[hook]]\non = [\"became-leader\"]\nurl = \"http://h/\"\nsecret_file = \"/not/there\"\n";
    let unsigned = file(unsigned);
    let unsigned = unsigned.path().to_str().unwrap();
    let unwanted = "[[hook]]\non = [\"became-leader\"]\nurl = \"http://h/\"\nacknowledges = true\n";
    let unwanted = file(unwanted);
    let unwanted = unwanted.path().to_str().unwrap();
    let empty = file(" \n");
    let empty = empty.path().to_str().unwrap();
    for (args, named) in [
        (vec!["--config", unknown], "server"),
        (vec!["--config", "/does/not/exist"], "/does/not/exist"),
        (vec!["--id", ""], "member.id"),
        (vec!["--election", "x"], "election.path"),
        (vec!["--zookeeper", "a:b"], "zookeeper.servers"),
        (vec!["--session-timeout", "1s"], "zookeeper.session_timeout"),
        (vec!["--session-timeout", "fast"], "zookeeper.session_timeout"),
        (vec!["--label", "nonsense"], "KEY=VALUE"),
        (vec!["--log-format", "xml"], "log.format"),
        (vec!["--token-file", empty], "http.token_file"),
        (vec!["--token-file", ""], "http.token_file"),
        (vec!["--token-file", "/dev/zero"], "http.token_file"),
        (vec!["--config", level], "log.level"),
        (vec!["--config", hook], "hook[0].url is https"),
        (vec!["--config", unsigned], "hook[0].secret_file: /not/there cannot be read"),
        (vec!["--config", unwanted], "hook[0].acknowledges takes election.activate"),
        (vec!["--token-file", "/does/not/exist"], "http.token_file"),
        (vec!["--listen", "unix:here.sock"], "http.listen"),
        (vec!["--nonsense"], "--nonsense"),
    ] {
        for command in ["run", "check-config"] {
            let (code, printed) = ran(bellwether(&[command]).args(&args));
            assert_eq!(code, 2, "{command} {args:?}: {printed}");
            assert!(printed.contains(named), "{command} {args:?}: {printed}");
            assert!(!printed.contains("panicked"), "{printed}");
        }
    }
}

#[test]
fn an_address_in_use_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, printed) = ran(&mut bellwether(&["run", "--listen", &address]));
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("http.listen") && printed.contains(&address), "{printed}");
}
