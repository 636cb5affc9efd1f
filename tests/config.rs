//! The configuration file and the two ways of looking at it, on the real binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "ensemble/certificates.rs"]
#[expect(dead_code, reason = "for tests that have servers")]
mod certificates;

use bellwether::config::table::ALL;
use bellwether::config::{DefaultValue, PodEnvironment, Values};
use certificates::Authority;
use recipes::Margins;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;

fn bellwether(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BELLWETHER_")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG").args(args);
    for (name, _) in POD {
        command.env_remove(name);
    }
    command
}

/// What Kubernetes and the downward API say.
const POD: [(&str, &str); 4] = [
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("POD_NAME", "shop-0"),
    ("POD_IP", "10.0.0.7"),
];

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
fn a_command_is_found_by_the_name_that_other_programs_give_it_and_none_that_harms_is_suggested() {
    for (words, shown) in [
        (&["help", "lock"][..], "Run a program while a lock is held"),
        (&["help", "config", "set"], "Write a value"),
        (&["step-down", "--help"], "Have the leader go to the tail of the queue"),
        (&["demote", "--help"], "Have the leader go to the tail of the queue"),
        (&["switchover", "--help"], "Have the leader hand over to another member"),
        (&["failover", "--help"], "Have the leader hand over to another member"),
        (&["promote", "--help"], "Have the leader hand over to another member"),
        (&["config", "delete", "--help"], "Delete a value"),
    ] {
        let (code, said) = ran(&mut bellwether(words));
        assert!(code == 0 && said.contains(shown), "{words:?}: {said}");
    }
    for (word, suggested) in
        [("shutdwn", None), ("transfr", None), ("promot", None), ("membrs", Some("members"))]
    {
        let (code, said) = ran(&mut bellwether(&[word]));
        assert_eq!(code, 2, "{said}");
        assert_eq!(said.contains("similar subcommand"), suggested.is_some(), "{said}");
        assert!(suggested.is_none_or(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn a_misspelled_variable_is_reported_and_prevents_nothing() {
    let mut command = bellwether(&["check-config"]);
    command.env("BELLWETHER_SESION_TIMEOUT", "hunter2").env("BELLWETHER_PORT", "tcp://10.0.0.1:80");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert_eq!(
        stderr,
        "bellwether: BELLWETHER_SESION_TIMEOUT is set, but is not a known variable\n"
    );
    // The lease, by the formula of docs/operations.md.
    let lease = stdout.lines().find(|line| line.starts_with("(the lease) ")).expect("it says so");
    assert_eq!(lease.split_whitespace().nth(2), Some("6.89s"), "{lease}");
}

#[test]
fn help_does_not_show_what_is_for_the_program_alone() {
    let pages = tempfile::tempdir().unwrap();
    let to = pages.path().to_str().unwrap();
    let (code, said) = ran(&mut bellwether(&["man", "--to", to]));
    assert_eq!(code, 0, "{said}");
    let written = std::fs::read_dir(pages.path()).unwrap();
    let mut shown: Vec<_> =
        written.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert!(shown.contains(&"bellwether-exec.1".to_owned()), "{shown:?}");
    for papers in [["--help"], ["man"]] {
        shown.push(ran(&mut bellwether(&papers)).1);
    }
    for text in shown {
        for hidden in ["exec-outer-guard", "exec-inner-guard", "exec-command"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}

#[test]
fn the_sample_file_has_every_default_and_changes_nothing() {
    let text = include_str!("../config/bellwether.toml");
    let mut read = Values::new(PodEnvironment::default());
    read.read_file(text, "bellwether.toml".as_ref()).unwrap();
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
        let lease = margins.lease_duration(session).unwrap().0;
        // Heartbeats have to be regular again, and the renewal itself to be answered.
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
    // A group that each machine has.
    uncommented = uncommented.replace("socket_group = \"shop\"", "socket_group = \"root\"");
    let own = Authority::new("ours").issue("app", &[]);
    let files = [
        ("ca", own.certificate.clone()),
        ("cert", own.certificate),
        ("key", own.key),
        ("credentials", "app:hush\n".to_owned()),
    ];
    let files = files.map(|(name, text)| (name, file(&text)));
    for (name, file) in &files {
        for sample in [format!("/etc/bellwether/{name}.pem"), format!("/etc/bellwether/{name}")] {
            uncommented = uncommented.replace(&sample, file.path().to_str().unwrap());
        }
    }
    // What has no fixed default is commented out.
    for row in ALL.iter().filter(|row| !matches!(row.default, DefaultValue::Text(_))) {
        let key = row.key.rsplit('.').next().unwrap();
        let commented = format!("# {key} =");
        assert!(text.contains(&commented), "{key}");
        // One login leaves no place for another.
        if !row.key.starts_with("zookeeper.kerberos.") {
            uncommented = uncommented.replace(&commented, &format!("{key} ="));
        }
    }
    for key in [
        "on",
        "command",
        "timeout",
        "url",
        "retries",
        "secret_file",
        "signal",
        "pid_file",
        "file",
        "mode",
        "unknown",
        "pod_label",
        "endpoint_slice",
        "service_account",
        "name",
        "then",
    ] {
        let commented = format!("\n# {key} =");
        assert!(text.contains(&commented), "{key}");
        uncommented = uncommented.replace(&commented, &format!("\n{key} ="));
    }
    uncommented = uncommented.replace("\n# [[hook]]", "\n[[hook]]");
    uncommented = uncommented.replace("\n# [[config]]", "\n[[config]]");
    let sample = file(&uncommented);
    let mut check = bellwether(&["check-config", "--config"]);
    let (code, printed) = ran(check.arg(sample.path()).envs(POD));
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("version=1.4,zone=a"), "{printed}");
    let hooks: Vec<_> = printed.lines().filter(|line| line.starts_with("hook[")).collect();
    assert_eq!(hooks.len(), 6, "{printed}");
    assert!(printed.contains("limits.json as file /run/app/limits.json"), "{printed}");
    // What is written there is the default.
    let (on, path) = ("on = [\"leader-lost\"]\n", "url = \"http://127.0.0.1:8080/leadership\"\n");
    let bare = file(&format!(
        "[[hook]]\n{on}{path}[[hook]]\nfile = \"/run/bellwether/leader.json\"\n[[hook]]\npod_label = \"bellwether.io/role\"\n"
    ));
    let (_, bare) = ran(bellwether(&["check-config", "--config"]).arg(bare.path()).envs(POD));
    let is_default = |words: &str| bare.contains(words) && printed.contains(words);
    assert!(is_default("timeout 5s, retries 3"), "{bare}");
    assert!(is_default("leader.json, mode 0644, on every change"), "{bare}");
    let label = "pod label bellwether.io/role of shop-0, timeout 5s, with \
                 /var/run/secrets/kubernetes.io/serviceaccount, on every change";
    assert!(is_default(label), "{bare}");
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
    let wrong_type = file("[health]\ninterval = true\n");
    let wrong_type = wrong_type.path().to_str().unwrap();
    let list = file("[zookeeper]\nservers = [\"a:1\", \"b:2\"]\n");
    let list = list.path().to_str().unwrap();
    let one_bracket = file("[hook]\nurl = \"http://127.0.0.1/\"\n");
    let one_bracket = one_bracket.path().to_str().unwrap();
    let device = file("[[hook]]\nfile = \"/dev/null\"\n");
    let device = device.path().to_str().unwrap();
    let directory = file("[[config]]\nname = \"x\"\nfile = \"/tmp\"\n");
    let directory = directory.path().to_str().unwrap();
    let twice = file("[[hook]]\nfile = \"/run/x\"\n[[hook]]\nfile = \"/run/x\"\n");
    let twice = twice.path().to_str().unwrap();
    let hook_and_value =
        file("[[hook]]\nfile = \"/tmp/a\"\n[[config]]\nname = \"x\"\nfile = \"/tmp/a\"\n");
    let hook_and_value = hook_and_value.path().to_str().unwrap();
    let label = file("[[hook]]\npod_label = \"role\"\n");
    let label = label.path().to_str().unwrap();
    let unsigned =
        "[[hook]]\non = [\"became-leader\"]\nurl = \"http://h/\"\nsecret_file = \"/not/there\"\n";
    let unsigned = file(unsigned);
    let unsigned = unsigned.path().to_str().unwrap();
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
        (vec!["--label", "a=1", "--label", "a=2"], "has the key \"a\" twice"),
        (vec!["--log-format", "xml"], "log.format"),
        (vec!["--token-file", empty], "http.token_file"),
        (vec!["--token-file", ""], "http.token_file"),
        (vec!["--token-file", "/dev/zero"], "http.token_file"),
        (vec!["--config", level], "log.level"),
        (vec!["--config", hook], "hook[0].url is not a URL with http"),
        (
            vec!["--config", wrong_type],
            "health.interval must be text in quotes or a number, and is boolean",
        ),
        (
            vec!["--config", list],
            "zookeeper.servers must be text in quotes or a number, and is array",
        ),
        (vec!["--config", one_bracket], "write each in two brackets, as [[hook]]"),
        (vec!["--config", device], "/dev/null is not a regular file"),
        (vec!["--config", directory], "config[0].file: /tmp is not a regular file"),
        (vec!["--election", "/config/a"], "is in /config, which is for config"),
        (vec!["--preempt-after", "0s"], "write 500ms, 10s or 2m; or \"never\""),
        (vec!["--priority", "-3"], "election.priority"),
        (vec!["--config", twice], "the file of another hook or value already"),
        (vec!["--config", hook_and_value], "config[0].file: /tmp/a is the file of another hook"),
        (vec!["--config", label], "hook[0].pod_label is only for a pod in Kubernetes"),
        (vec!["--config", unsigned], "hook[0].secret_file: /not/there cannot be read"),
        (vec!["--token-file", "/does/not/exist"], "http.token_file"),
        (vec!["--listen", "unix:here.sock"], "http.listen"),
        (vec!["--listen", "unix:/run/a", "--socket-mode", "rw"], "octal digits, such as"),
        (vec!["--listen", "unix:/run/a", "--socket-mode", "7777"], "http.socket_mode"),
        (vec!["--listen", "unix:/run/a", "--socket-group", "a:b"], "http.socket_group"),
        (vec!["--listen", "unix:/run/a", "--socket-group", "nobody's"], "write the group's number"),
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
fn all_that_is_wrong_is_said_at_once() {
    let wrong = file("[lease]\nheartbeat = [5]\nbeat = \"1s\"\n");
    let wrong = wrong.path().to_str().unwrap();
    let hooks = file("[[hook]]\nurl = \"http://h/\"\n[[hook]]\nfile = \"a\"\n");
    let hooks = hooks.path().to_str().unwrap();
    let flags = ["--tick-time", "soon", "--session-timeout", "fast"];
    for (args, named) in [
        (&["--config", hooks][..], ["hook[0].on is missing", "hook[1].file = \"a\" must"]),
        (
            &["--config", wrong][..],
            ["lease.beat is not a known key", "lease.heartbeat must be text"],
        ),
        (&flags[..], ["zookeeper.session_timeout = \"fast\"", "zookeeper.tick_time = \"soon\""]),
    ] {
        let (code, printed) = ran(bellwether(&["run"]).args(args));
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!((code, lines.len()), (2, 2), "{printed}");
        for (line, named) in lines.iter().zip(named) {
            assert!(line.starts_with("bellwether: ") && line.contains(named), "{printed}");
        }
    }
}

/// Of `openssl x509 -req -signkey` without extensions.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBFzCBvwIUByAiEoFq/xl9J3PfU1dAQp0CQO4wCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDYXBwMCAXDTI2MTEyMTE3NTE0MFoYDzIxMjYxMDI4MTc1MTQwWjAOMQww
CgYDVQQDDANhcHAwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARBC8UK55ZS3IW8
lKAeyyCPFVoegII/+tkIDp8T8/4WXGY3H5ZIdhzbI9UuDC+/EKsTfli17qnITRoS
2Hv3V4WuMAoGCCqGSM49BAMCA0cAMEQCIBlEECY1doPcixQg8hfx4XU/gF//RB3N
Y7a9madVC9OlAiBY4qiDUKCNoS5FddC+70gZBZa1TOi5EeEuqyaoAweCKA==
-----END CERTIFICATE-----
";

/// Of `openssl ca -gencrl` without extensions.
const LIST_OF_VERSION_1: &str = "\
-----BEGIN X509 CRL-----
MIGUMDwwCgYIKoZIzj0EAwIwDjEMMAoGA1UEAwwDYXBwFw0yNjExMjExNzUxNDFa
GA8yMTI2MTAyODE3NTE0MVowCgYIKoZIzj0EAwIDSAAwRQIgHtw9DVCsZPPZ3v5V
18ML3l8W8FPMtlUyNnOye3rxkk8CIQCGnopCBZxpR+sLJNQhv4GadpUSLdZ4Qrl+
0Rk1o8dmIQ==
-----END X509 CRL-----
";

#[test]
fn credentials_that_cannot_work_are_refused_with_their_file() {
    let (authority, now) = (Authority::new("ours"), Authority::new("ours").issue("app", &[]));
    let ca = file(&authority.pem());
    let (cert, key) = (file(&now.certificate), file(&now.key));
    let other_key = file(&authority.issue("app", &[]).key);
    let half = file(&now.certificate[..now.certificate.len() / 2]);
    let no_pem = file("hush\n");
    let broken = file(&now.key.replace("MIG", "!hush!"));
    let encrypted =
        file("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let old = file(VERSION_1);
    let with_old_list = file(&format!("{}{LIST_OF_VERSION_1}", authority.pem()));
    let (empty, many) = (file(""), file("app:hush\nmore\n"));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    let (ca, cert, key) = (path(&ca), path(&cert), path(&key));
    let tls = |ca: &str, cert: &str, key: &str| {
        let all = ["--tls-ca", ca, "--tls-cert", cert, "--tls-key", key];
        all.map(str::to_owned).to_vec()
    };
    let login =
        |file: &str| ["--auth", "digest", "--credentials-file", file].map(str::to_owned).to_vec();
    for (args, named, also) in [
        (tls("/does/not/exist", &cert, &key), "zookeeper.tls.ca", "/does/not/exist cannot be read"),
        (tls(&path(&empty), &cert, &key), "zookeeper.tls.ca", "is empty"),
        (tls(&path(&no_pem), &cert, &key), "zookeeper.tls.ca", "holds no certificate in PEM"),
        (tls(&ca, &path(&half), &key), "zookeeper.tls.cert", "ends in the middle"),
        (tls(&ca, "/dev/zero", &key), "zookeeper.tls.cert", "is not a file"),
        (tls(&ca, &cert, &path(&other_key)), "zookeeper.tls.key", "is not the private key of"),
        (tls(&ca, &cert, &path(&no_pem)), "zookeeper.tls.key", "holds no private key"),
        (tls(&ca, &cert, &path(&broken)), "zookeeper.tls.key", "is not valid PEM"),
        (tls(&ca, &cert, &path(&encrypted)), "zookeeper.tls.key", "passphrase"),
        (
            tls(&ca, &path(&old), &key),
            "zookeeper.tls.cert",
            "certificate that is not acceptable (Other(OtherError(UnsupportedCertVersion)))",
        ),
        (
            tls(&path(&with_old_list), &cert, &key),
            "zookeeper.tls.ca",
            "revocation list that is not acceptable",
        ),
        (tls("", &cert, &key), "zookeeper.tls.ca", "is empty"),
        (tls(&ca, &cert, &key)[..4].to_vec(), "zookeeper.tls.key", "set all three"),
        (login("/does/not/exist"), "zookeeper.credentials_file", "cannot be read"),
        (login(&path(&no_pem)), "zookeeper.credentials_file", "user:password"),
        (login(&path(&many)), "zookeeper.credentials_file", "user:password"),
        (login(&path(&empty)), "zookeeper.credentials_file", "is empty"),
        (login("x")[..2].to_vec(), "zookeeper.credentials_file", "BELLWETHER_CREDENTIALS"),
        (vec!["--auth".into(), "app:hush".into()], "zookeeper.auth", "sasl"),
        (
            [tls(&ca, &cert, &key), vec!["--zookeeper".into(), "a_b!:1".into()]].concat(),
            "zookeeper.servers",
            "no certificate can be for \"a_b!\"",
        ),
    ] {
        for command in ["run", "check-config", "inspect"] {
            let (code, printed) = ran(bellwether(&[command]).args(&args));
            assert_eq!(code, 2, "{command} {args:?}: {printed}");
            assert!(printed.contains(named) && printed.contains(also), "{args:?}: {printed}");
            assert!(!printed.contains("hush") && printed.lines().count() == 1, "{printed}");
        }
    }
}

/// Sooner or later an operator writes the secret where its file's name belongs.
#[test]
fn a_secret_that_stands_where_a_files_name_belongs_is_not_repeated() {
    let hook = "[[hook]]\non = [\"became-leader\"]\nurl = \"http://h/\"\nsecret_file";
    let key = "-----BEGIN PRIVATE KEY-----\\nhush\\n";
    for (text, named) in [
        (
            "[zookeeper]\nservers = \"app:hush@h:1\"\n",
            "zookeeper.servers is not a connect string, and has an @",
        ),
        (
            "[zookeeper]\nservers = \"app:hush/x@h:1\"\n",
            "zookeeper.servers is not a connect string, and has an @",
        ),
        (
            "[zookeeper]\nauth = \"sasl\"\ncredentials_file = \"app:hush\"\n",
            "zookeeper.credentials_file: what is written there",
        ),
        ("[http]\ntoken_file = \"hush\"\n", "http.token_file: what is written there"),
        (&format!("{hook} = \"whsec_hush\"\n"), "hook[0].secret_file must be the absolute path"),
        (&format!("[zookeeper.tls]\nkey = \"{key}\"\n"), "zookeeper.tls.cert needs"),
        (&format!("[zookeeper.tls]\ncert = \"{key}\"\n"), "zookeeper.tls.cert needs"),
        (&format!("[zookeeper.tls]\nca = \"{key}\"\n"), "zookeeper.tls.ca: what is written"),
    ] {
        let config = file(text);
        for command in ["run", "check-config"] {
            let (code, printed) = ran(bellwether(&[command, "--config"]).arg(config.path()));
            assert_eq!(code, 2, "{text}: {printed}");
            assert!(printed.contains(named) && !printed.contains("hush"), "{text}: {printed}");
        }
    }
    let (code, printed) = ran(&mut bellwether(&["resign", "--token-file", "hush"]));
    assert_eq!(code, 2, "{printed}");
    assert!(
        printed.contains("--token-file: what is written there") && !printed.contains("hush"),
        "{printed}"
    );
    // A name without a path is one all the same if there is such a file.
    let (_, printed) = ran(&mut bellwether(&["check-config", "--token-file", "Cargo.toml"]));
    assert!(printed.contains("http.token_file: Cargo.toml"), "{printed}");
}

#[test]
fn of_a_health_check_as_of_a_hook_neither_query_nor_arguments_are_shown() {
    for (check, shown) in [
        ("http://127.0.0.1:8080/healthz?key=hush", "http://127.0.0.1:8080/healthz "),
        ("/app/check --password=hush now", "/app/check (2 arguments) "),
    ] {
        let (code, printed) = ran(&mut bellwether(&["check-config", "--app-health", check]));
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains(shown) && !printed.contains("hush"), "{printed}");
    }
}

#[test]
fn a_certificate_of_ours_that_has_expired_is_warned_of() {
    let authority = Authority::new("ours");
    let expired = authority.issue_expired("app", &[]);
    let (ca, cert, key) = (file(&authority.pem()), file(&expired.certificate), file(&expired.key));
    let mut command = bellwether(&["check-config", "--tls-ca"]);
    command.arg(ca.path()).arg("--tls-cert").arg(cert.path()).arg("--tls-key").arg(key.path());
    let (code, printed) = ran(&mut command);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("has expired on 2021-02-03T00:00:00Z"), "{printed}");
}

#[test]
fn a_secret_in_the_environment_beats_the_file_and_is_not_shown() {
    let config = file("[zookeeper]\nauth = \"sasl\"\ncredentials_file = \"/does/not/exist\"\n");
    let mut command = bellwether(&["check-config", "--config"]);
    command.arg(config.path()).env("BELLWETHER_CREDENTIALS", "app:hush");
    let (code, printed) = ran(&mut command);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("environment BELLWETHER_CREDENTIALS"), "{printed}");
    assert!(!printed.contains("hush"), "{printed}");
    let (code, printed) = ran(command.env("BELLWETHER_CREDENTIALS_FILE", "/also/there"));
    assert_eq!(code, 2, "{printed}");
    assert!(printed.contains("/also/there cannot be read"), "{printed}");
}

#[test]
fn a_command_needs_room_which_is_checked_where_it_is_asked_for() {
    let check = |args: &[&str]| {
        let mut command = bellwether(&["check-config"]);
        ran(command.args(args).env("BELLWETHER_KILL_AFTER", "6s"))
    };
    let (code, printed) = check(&[]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("BELLWETHER_KILL_AFTER"), "{printed}");
    let (code, printed) = check(&["--exec"]);
    assert_eq!(code, 2, "{printed}");
    assert!(printed.contains("exec.kill_after"), "{printed}");
    assert_eq!(check(&["--exec", "--kill-after", "1s"]).0, 0);
}

#[test]
fn weak_files_with_secrets_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let token = file("short\n");
    let path = token.path().to_str().unwrap();
    let (_, printed) = ran(&mut bellwether(&["check-config", "--id", "a", "--token-file", path]));
    assert!(printed.contains("fewer than 16 characters"), "{printed}");
    assert!(!printed.contains("can be written by others"), "{printed}");
    let login = file("app:hush\n");
    std::fs::set_permissions(login.path(), PermissionsExt::from_mode(0o602)).unwrap();
    let path = login.path().to_str().unwrap();
    let args = ["check-config", "--id", "a", "--auth", "digest", "--credentials-file", path];
    let (code, printed) = ran(&mut bellwether(&args));
    assert!(code == 0 && printed.contains("can be written by others"), "{printed}");
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["check-config"], &["man"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = bellwether(args);
        let (code, printed) = ran(command.env("BELLWETHER_ID", "a").stdout(full));
        assert_eq!(code, 3, "{args:?}: {printed}");
        assert!(printed.contains("cannot print"), "{args:?}: {printed}");
    }
}

#[test]
fn a_process_that_may_open_next_to_no_files_says_so() {
    let mut command = Command::new("prlimit");
    command.args(["--nofile=8:8", "--", env!("CARGO_BIN_EXE_bellwether"), "run", "--id", "a"]);
    let (code, printed) = ran(command.args(["--listen", "127.0.0.1:0"]));
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("may open 8 files") && !printed.contains("panicked"), "{printed}");
}

#[test]
fn an_address_in_use_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, printed) = ran(&mut bellwether(&["run", "--listen", &address]));
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("http.listen") && printed.contains(&address), "{printed}");
}

#[test]
fn labels_are_read_of_the_environment_and_a_flag_beats_them() {
    let shown = |args: &[&str], labels: &str| {
        let mut command = bellwether(&["check-config"]);
        let (code, printed) = ran(command.args(args).env("BELLWETHER_LABELS", labels));
        let line = printed.lines().find(|line| line.contains("member.labels")).unwrap().to_owned();
        (code, line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let told = "member.labels zone=a, version=1.4 environment BELLWETHER_LABELS";
    assert_eq!(shown(&[], "zone=a, version=1.4"), (0, told.into()));
    let flag = "member.labels zone=b flag --label";
    assert_eq!(shown(&["--label", "zone=b"], "zone=a"), (0, flag.into()));
    let (code, wrong) = shown(&[], "zone");
    assert_eq!(code, 2, "{wrong}");
    assert!(wrong.contains("write KEY=VALUE,KEY=VALUE"), "{wrong}");
}

/// Nothing writes into it, so reading it would wait for ever.
#[test]
fn a_pipe_where_a_file_belongs_is_refused_and_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let pipe = home.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for args in [["check-config", "--config"], ["run", "--token-file"], ["pause", "--token-file"]] {
        let mut limited = Command::new("timeout");
        limited.arg("20").arg(env!("CARGO_BIN_EXE_bellwether")).args(args).arg(pipe);
        let (code, printed) = ran(&mut limited);
        assert_eq!(code, 2, "{args:?}: {printed}");
        assert!(printed.contains(pipe) && printed.contains("is not "), "{args:?}: {printed}");
    }
}

#[test]
fn what_is_not_there_yet_is_warned_of() {
    let hooks = file(
        "[[hook]]\nfile = \"/no/such/place/leader.json\"\n\
         [[hook]]\non = [\"became-leader\"]\ncommand = [\"/no/such/program\"]\n",
    );
    let mut command = bellwether(&["check-config", "--app-health", "/no/such/check", "--config"]);
    command.arg(hooks.path()).args(["--session-file", "/no/such/place/session"]);
    let (code, printed) = ran(&mut command);
    assert_eq!(code, 0, "{printed}");
    for told in [
        "hook[1].command: cannot run /no/such/program: file not found",
        "health.check: cannot run /no/such/check: file not found",
    ] {
        assert!(printed.contains(told), "{told}: {printed}");
    }
}

/// No server is there to join with: it ends before that.
#[test]
fn a_program_that_cannot_be_run_ends_exec_and_lock_before_they_ask_for_anything() {
    let plain = file("");
    for (program, code) in [("/no/such/program", 127), (plain.path().to_str().unwrap(), 126)] {
        for command in [&["exec"][..], &["lock", "migrate"]] {
            let words = [command, &["--", program]].concat();
            let (ended, printed) = ran(&mut bellwether(&words));
            assert_eq!(ended, code, "{printed}");
            assert!(printed.starts_with(&format!("bellwether: cannot run {program}")), "{printed}");
            assert_eq!(printed.lines().count(), 1, "{printed}");
        }
    }
}

#[test]
fn what_is_wrong_with_the_arguments_of_lock_is_told_with_the_remedy() {
    for (words, told) in [
        (&["lock", "a/b"][..], "A-Z a-z 0-9"),
        (&["lock", "a", "--wait", "soon"], "--wait"),
        (&["lock", "a", "--kill-after", "soon"], "--kill-after"),
        (&["lock", "a", "--slots", "1001"], "1 to 1000"),
        (&["lock", "a", "--slots", "-1"], "--slots"),
        (&["barrier", "a", "--size", "-1"], "--size"),
        (&["lock", "a", "--slots", "2", "--shared"], "--shared"),
        (&["lock", "a", "--wait", "1s", "--try"], "--try"),
        (&["lock", "a", "--session-timeout", "2s"], "--zookeeper"),
        (&["lock", "a", "--url", "4040", "--zookeeper", "127.0.0.1:1"], "leave one out"),
        (&["lock", "a", "--zookeeper", "127.0.0.1:1", "--recipes-root", ""], "recipes.root"),
        (
            &["lock", "a", "--zookeeper", "127.0.0.1:1", "--session-timeout", "1s"],
            "no useful lease",
        ),
    ] {
        let (code, printed) = ran(&mut bellwether(&[words, &["--", "true"]].concat()));
        assert_eq!(code, 2, "{words:?}: {printed}");
        assert!(printed.contains(told), "{words:?}: {printed}");
    }
}

#[test]
fn a_program_reads_the_configuration_as_json() {
    let mut command = bellwether(&["check-config", "--json", "-i", "a", "-z", "zk-0:1, zk-1"]);
    let Output { status, stdout, .. } = command.output().unwrap();
    assert!(status.success());
    let told: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    let setting = |key: &str| (&told["settings"][key]["value"], &told["settings"][key]["origin"]);
    assert_eq!(setting("member.id"), (&"a".into(), &"flag --id".into()));
    assert_eq!(setting("http.listen"), (&"127.0.0.1:4040".into(), &"default".into()));
    assert_eq!(told["settings"].as_object().unwrap().len(), ALL.len());
    assert_eq!((&told["lease_ms"], &told["warnings"]), (&6890.into(), &serde_json::json!([])));
    let (code, version) = ran(&mut bellwether(&["version"]));
    let kerberos = if cfg!(feature = "kerberos") { "with" } else { "without" };
    let expected = format!("bellwether {} ({kerberos} Kerberos)\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((code, version), (0, expected));
}
