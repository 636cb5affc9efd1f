//! TLS, logins and what is left of secrets: right settings work everywhere, and wrong ones are named.

use crate::{
    certificates::{Authority, Issued, put, secure_client_port},
    described::questions,
    group::{agreed, agreed_after, has_role, ready, settled, started_in_order},
    identities::{PASSWORD, WRONG_PASSWORD, all_of, jaas, with_digest},
    member::{Member, Setup},
    observer::{Observer, Znode},
    program::Program,
    servers::{Servers, Settings, free_ports},
    wait::eventually,
};
use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use std::{fs, net::TcpListener, os::unix::process::ExitStatusExt, process::Command};
use tempfile::TempDir;

/// One server with TLS on one port, without on another, and logins by SASL on both.
struct Fort {
    servers: Servers,
    secure_port: u16,
    home: TempDir,
}

impl Fort {
    /// Older servers speak TLS 1.2, newer ones 1.3 as well.
    fn build(authority: &Authority, server: &Issued, client_auth: &str) -> Self {
        Self::build_with(authority, server, client_auth, "ssl.enabledProtocols=TLSv1.2\n")
    }

    fn build_with(authority: &Authority, server: &Issued, client_auth: &str, more: &str) -> Self {
        let home = TempDir::with_prefix("bellwether-security-").expect("a temporary directory");
        let [secure_port] = free_ports();
        put(home.path(), "server.pem", &server.both());
        put(home.path(), "server-ca.pem", &authority.pem());
        let settings = Settings {
            more: format!(
                "{}\
                 authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                 authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
                 {more}",
                secure_client_port(home.path(), secure_port, client_auth)
            ),
            properties: vec![
                jaas(home.path()),
                // Newer servers refuse DIGEST-MD5 otherwise.
                "zookeeper.fips-mode=false".into(),
            ],
            ..Settings::default()
        };
        let mut servers = Servers::prepared(&settings);
        servers.start();
        Self { servers, secure_port, home }
    }

    fn file(&self, name: &str, text: &str) -> String {
        put(self.home.path(), name, text).display().to_string()
    }

    /// With all that lets a member in: TLS, a certificate and a login.
    fn admitting(&self, authority: &Authority) -> Setup {
        let own = authority.issue("app", &[]);
        self.secure("localhost")
            .option("--tls-ca", &self.file("ca.pem", &authority.pem()))
            .option("--tls-cert", &self.file("cert.pem", &own.certificate))
            .option("--tls-key", &self.file("key.pem", &own.key))
            .option("--auth", "sasl")
            .option("--credentials-file", &self.file("login", &format!("app:{PASSWORD}\n")))
    }

    fn secure(&self, host: &str) -> Setup {
        Setup::at(format!("{host}:{}", self.secure_port))
    }
}

#[test]
fn each_wrong_set_up_is_named_in_one_line() {
    let (authority, another) = (Authority::new("ours"), Authority::new("another"));
    let fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "need");
    let expired = authority.issue_expired("zk", &["localhost"]);
    let ruin = Fort::build(&authority, &expired, "need");
    let newer = "ssl.protocol=TLSv1.3\nssl.enabledProtocols=TLSv1.3\n\
                 ssl.ciphersuites=TLS_AES_256_GCM_SHA384\n\
                 sessionRequireClientSASLAuth=true\n";
    let newer = Fort::build_with(&authority, &authority.issue("zk", &["localhost"]), "need", newer);
    let simple = Servers::standalone();
    let member = authority.issue("app", &[]);
    let (ca, cert, key) = (
        fort.file("ca.pem", &authority.pem()),
        fort.file("cert.pem", &member.certificate),
        fort.file("key.pem", &member.key),
    );
    let stale = authority.issue_expired("app", &[]);
    let (stale_cert, stale_key) =
        (fort.file("stale.pem", &stale.certificate), fort.file("stale-key.pem", &stale.key));
    let foreign = another.issue("app", &[]);
    let (foreign_cert, foreign_key) = (
        fort.file("foreign.pem", &foreign.certificate),
        fort.file("foreign-key.pem", &foreign.key),
    );
    let other_ca = fort.file("other-ca.pem", &another.pem());
    let one_list = [authority.pem(), another.pem(), another.revocation_list()].concat();
    let one_list = fort.file("one-list.pem", &one_list);
    let wrong = fort.file("wrong", &format!("app:{WRONG_PASSWORD}\n"));
    let own = |setup: Setup| setup.option("--tls-cert", &cert).option("--tls-key", &key);
    let with_ca = |setup: Setup| setup.option("--tls-ca", &ca);
    let plain = || Setup::of(&fort.servers);
    let login = |setup: Setup| setup.option("--auth", "sasl").option("--credentials-file", &wrong);

    let cases = [
        (
            "another CA",
            own(fort.secure("localhost")).option("--tls-ca", &other_ca),
            "shows a certificate that no CA in zookeeper.tls.ca",
        ),
        (
            "no revocation list of the servers' CA",
            own(fort.secure("localhost")).option("--tls-ca", &one_list),
            "shows a certificate that no revocation list in zookeeper.tls.ca covers",
        ),
        (
            "another name",
            own(with_ca(fort.secure("127.0.0.1"))),
            "shows a certificate for localhost, and not for 127.0.0.1",
        ),
        (
            "the servers' certificate expired",
            own(with_ca(ruin.secure("localhost"))),
            "shows a certificate that expired on 2021-02-03T00:00:00Z",
        ),
        (
            "no certificate of ours",
            with_ca(fort.secure("localhost")),
            "demands a certificate of ours",
        ),
        (
            "no certificate of ours, TLS 1.3",
            with_ca(newer.secure("localhost")),
            "demands a certificate of ours",
        ),
        (
            "our certificate expired, TLS 1.3",
            with_ca(newer.secure("localhost"))
                .option("--tls-cert", &stale_cert)
                .option("--tls-key", &stale_key),
            "does not accept our certificate: zookeeper.tls.cert:",
        ),
        (
            "our certificate expired",
            with_ca(fort.secure("localhost"))
                .option("--tls-cert", &stale_cert)
                .option("--tls-key", &stale_key),
            "does not accept our certificate: zookeeper.tls.cert:",
        ),
        (
            "our certificate is of another CA",
            with_ca(fort.secure("localhost"))
                .option("--tls-cert", &foreign_cert)
                .option("--tls-key", &foreign_key),
            "does not accept our certificate, zookeeper.tls.cert",
        ),
        ("TLS to a port without", own(with_ca(plain())), "speaks no TLS on this port"),
        (
            "no TLS to a port with",
            fort.secure("localhost"),
            "speaks TLS on this port, and we do not",
        ),
        ("a wrong password", login(plain()), "the servers refuse the login of \"app\""),
        (
            "no login",
            Setup::of(&newer.servers),
            "the servers demand a login and none is configured",
        ),
        (
            "a login where none is known",
            login(Setup::of(&simple)),
            "we are no identity that it knows",
        ),
        ("no server there", Setup::at("127.0.0.1:1".to_owned()), "cannot be reached"),
    ];
    for (what, setup, line) in cases {
        let member = setup.short_sessions().start("a");
        let problem = eventually(what, || {
            let status = member.status();
            let problem = status["session"]["problem"].as_str().unwrap_or_default().to_owned();
            if problem.contains(line) { Ok(problem) } else { Err(status.to_string()) }
        });
        eprintln!("| {what} | {problem} |");
        assert!(!problem.contains('\n'), "{problem}");
        assert!(member.get("/readyz").body.contains(line), "{}", member.get("/readyz").body);
        eventually("the log says so", || {
            let log = member.log();
            let said = log.lines().filter(|l| l.contains("WARN") && l.contains(line)).count();
            if said == 1 { Ok(()) } else { Err(log) }
        });
        has_role(&member, "absent").unwrap();
    }

    // A single attempt may not learn why the servers refuse it, so `inspect` names the likely reason.
    for _ in 0..10 {
        let mut inspect = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        inspect.args(["inspect", "--zookeeper", &fort.servers.connect_string()]);
        let told = all_of(inspect.args(["--auth", "sasl", "--credentials-file", &wrong]));
        assert!(told.contains("the servers refuse the login of \"app\""), "{told}");
    }

    // `inspect`, which needs no sidecar, says the same.
    let zookeeper = format!("localhost:{}", fort.secure_port);
    let inspect =
        [env!("CARGO_BIN_EXE_bellwether"), "inspect", "--zookeeper", &zookeeper, "--tls-ca", &ca];
    let mut looks = Program::start("inspect", inspect, &[]);
    looks.complains(|line| line.contains("demands a certificate of ours"));
    assert_eq!(looks.wait().code(), Some(3));
}

#[test]
fn the_election_runs_over_tls_with_a_login() {
    let authority = Authority::new("ours");
    let mut fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "need");
    let setup = fort.admitting(&authority);
    let [mut first, second] = started_in_order(&setup, ["a", "b"]);
    let observer = Observer::of(&fort.servers);
    let (leader, queue) = settled([&first, &second], &observer);

    fort.servers.first().kill();
    for member in [&first, &second] {
        eventually("the member notices", || {
            match member.status()["session"]["connected"] == false {
                true => Ok(()),
                false => Err(member.log()),
            }
        });
    }
    fort.servers.first().start();
    let (again, queue_again) = settled([&first, &second], &observer);
    assert_eq!(again, leader, "the sessions were resumed");
    let owners =
        |queue: &[Znode]| queue.iter().map(|it| it.stat.ephemeral_owner).collect::<Vec<_>>();
    assert_eq!(owners(&queue_again), owners(&queue));

    first.kill();
    assert_eq!(agreed_after(&leader, [&second]).id, "b");
}

#[test]
fn certificates_are_taken_up_when_their_files_change_and_not_by_halves() {
    let authority = Authority::new("ours");
    let mut fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "need");
    let [member] = started_in_order(&fort.admitting(&authority), ["a"]);
    let leader = agreed([&member]);
    let comes_back = |fort: &mut Fort| {
        fort.servers.first().kill();
        eventually("the member notices", || has_connection(&member, false));
        fort.servers.first().start();
        eventually("the member is back", || has_connection(&member, true));
        assert_eq!(agreed([&member]), leader, "with the same session");
    };

    let whole = fs::read_to_string(fort.home.path().join("cert.pem")).unwrap();
    fort.file("cert.pem", &whole[..whole.len() / 2]);
    fort.file("login", "");
    comes_back(&mut fort);
    member.wait_for_log("still using the previous credentials");

    let next = Authority::new("the next");
    fort.file("server.pem", &next.issue("zk", &["localhost"]).both());
    fort.file("server-ca.pem", &next.pem());
    let _files_are_written = fort.admitting(&next);
    comes_back(&mut fort);
    member.wait_for_log("using the current credentials for ZooKeeper again");
}

#[test]
fn an_identity_that_the_servers_do_not_know_is_named() {
    let authority = Authority::new("ours");
    let fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "none");
    let own = authority.issue("app", &[]);
    let member = fort
        .secure("localhost")
        .option("--tls-ca", &fort.file("ca.pem", &authority.pem()))
        .option("--tls-cert", &fort.file("cert.pem", &own.certificate))
        .option("--tls-key", &fort.file("key.pem", &own.key))
        .start("a");
    eventually("it says so", || {
        let problem = member.status()["session"]["problem"].to_string();
        let said = problem.contains("zookeeper.acl")
            && problem.contains("we are no identity that it knows");
        if said { Ok(()) } else { Err(problem) }
    });
}

#[test]
fn no_secret_leaves_the_member() {
    let authority = Authority::new("ours");
    let mut fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "need");
    let right = fort.admitting(&authority).environment("RUST_LOG", "trace");
    let key = fs::read_to_string(fort.home.path().join("key.pem")).unwrap();
    let wrong = format!("app:{WRONG_PASSWORD}");
    let said_in_environment = |scheme: &str, secret: &str| {
        Setup::of(&fort.servers)
            .option("--auth", scheme)
            .option("--election", "/another")
            .environment("BELLWETHER_CREDENTIALS", secret)
            .environment("RUST_LOG", "trace")
    };
    let to = fort.home.path().join("environment").display().to_string();
    let task = ["sh", "-c", &format!("env > {to}.new; mv {to}.new {to}; sleep 1000")];
    let hooked = format!("{to}.hook");
    let hook = format!(
        "[[hook]]\non = [\"became-leader\"]\n\
         command = [\"sh\", \"-c\", '''env > {hooked}.new; mv {hooked}.new {hooked}''']\n"
    );
    let by_digest = said_in_environment("digest", &format!("app:{PASSWORD}"))
        .option("--config", &fort.file("hook.toml", &hook))
        .executing(&task);
    let members = [
        right.start("a"),
        right.option("--log-format", "json").start("b"),
        by_digest.start("c"),
        said_in_environment("sasl", &wrong).start("d"),
    ];
    members[..3].iter().for_each(|member| eventually("it is let in", || ready(member)));
    eventually("it is refused", || match members[3].log().contains("refuse the login") {
        true => Ok(()),
        false => Err(members[3].log()),
    });
    let mut outputs: Vec<(String, String)> = Vec::new();
    for file in [to, hooked] {
        let environment = eventually("the command and the hook run", || {
            fs::read_to_string(&file).map_err(|error| error.to_string())
        });
        assert!(environment.contains("BELLWETHER_ID=c"), "{environment}");
        outputs.push((file, environment));
    }
    // What is shown again after a connection is lost, and when nothing makes sense any more.
    let good = fs::read_to_string(fort.home.path().join("login")).unwrap();
    fort.file("login", &format!("{PASSWORD}\n"));
    fort.file("key.pem", &key.replace("-----END", "-----UND"));
    fort.servers.first().kill();
    fort.servers.first().start();
    eventually("it is back", || has_connection(&members[0], true));
    members[0].signal("HUP");
    let told = "still using the previous credentials";
    eventually("it tells of the files", || match members[0].log().contains(told) {
        true => Ok(()),
        false => Err(members[0].log()),
    });

    for member in &members {
        let more = ["/readyz?verbose", "/livez?verbose", "/nonsense"].map(str::to_owned);
        for path in questions(member).into_iter().chain(more) {
            outputs.push((format!("{path} of {}", member.id), member.get(&path).body));
        }
        outputs.push((format!("the log of {}", member.id), member.log()));
    }
    let login = fort.home.path().join("login").display().to_string();
    let zookeeper = fort.servers.connect_string();
    for command in [&["check-config"][..], &["inspect", "--zookeeper", &zookeeper]] {
        for secret in [&*format!("app:{PASSWORD}"), PASSWORD] {
            let mut it = Command::new(env!("CARGO_BIN_EXE_bellwether"));
            it.args(command).args(["--auth", "digest"]);
            it.env("BELLWETHER_CREDENTIALS", secret).env("RUST_LOG", "trace");
            outputs.push((format!("{command:?}"), all_of(&mut it)));
            let mut it = Command::new(env!("CARGO_BIN_EXE_bellwether"));
            it.args(command).args(["--auth", secret, "--credentials-file", &login]);
            outputs.push((format!("{command:?} with a secret for a scheme"), all_of(&mut it)));
        }
    }
    for secret in spellings(&[PASSWORD, WRONG_PASSWORD, good.trim(), &wrong], &key) {
        for (what, output) in &outputs {
            assert!(!output.contains(&secret), "{what} tells {secret:?}: {output}");
        }
    }
}

#[test]
fn no_core_dump_is_left_of_a_process_with_secrets() {
    let servers = Servers::standalone();
    let home = TempDir::new().unwrap();
    let place = home.path().display().to_string();
    let dumping =
        || Setup::of(&servers).run_by(&["prlimit", "--core=unlimited", "--", "env", "-C", &place]);
    let has_dumped = |mut member: Member| {
        eventually("it is in the queue", || ready(&member));
        member.signal("ABRT");
        member.wait().0.core_dumped()
    };
    // Where the machine keeps no core dumps of anything, there is nothing to be seen.
    if !has_dumped(dumping().option("--election", "/one").start("a")) {
        return eprintln!("this machine keeps no core dumps");
    }
    let secret = with_digest(dumping().option("--election", "/other"), home.path(), "app");
    assert!(!has_dumped(secret.start("a")));

    // No core dump is left either of a process that reads its first secret later, for a hook.
    let key = put(home.path(), "webhook", "whsec_c2VjcmV0\n");
    let hook = "[[hook]]\non = [\"became-leader\"]\nurl = \"http://127.0.0.1:1/\"\n";
    let config = put(home.path(), "bellwether.toml", hook);
    let later = dumping().option("--election", "/later");
    let member = later.option("--config", &config.display().to_string()).start("a");
    eventually("it is in the queue", || ready(&member));
    let signed = format!("{hook}secret_file = \"{}\"\n", key.display());
    put(home.path(), "bellwether.toml", &signed);
    member.signal("HUP");
    let taken_up = "the hooks are those of the file now";
    eventually("it has taken it up", || match member.log().contains(taken_up) {
        true => Ok(()),
        false => Err(member.log()),
    });
    assert!(!has_dumped(member));
}

/// The command shows a token, or was given a password in its environment.
#[test]
fn no_core_dump_is_left_of_a_command_with_secrets() {
    let home = TempDir::new().unwrap();
    let place = home.path().display().to_string();
    let token = put(home.path(), "token", "correct-horse\n").display().to_string();
    // It never answers.
    let sidecar = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", sidecar.local_addr().unwrap());
    let has_dumped = |command: &[&str], environment: &[(&str, &str)]| {
        let dumping = ["prlimit", "--core=unlimited", "--", "env", "-C", &*place];
        let asked = [env!("CARGO_BIN_EXE_bellwether"), command[0], "--url", &url];
        let words = dumping.iter().chain(&asked).chain(&command[1..]).copied();
        let mut asks = Program::start("it", words, environment);
        let _it_waits_for_an_answer = sidecar.accept().unwrap();
        asks.signal("ABRT");
        asks.wait().core_dumped()
    };
    // Where the machine keeps no core dumps of anything, there is nothing to be seen.
    if !has_dumped(&["resign"], &[]) {
        return eprintln!("this machine keeps no core dumps");
    }
    assert!(!has_dumped(&["resign", "--token-file", &token], &[]));
    assert!(!has_dumped(&["watch"], &[("BELLWETHER_CREDENTIALS", "app:correct-horse")]));
}

/// Returns every spelling of a secret that careless code may print.
fn spellings(passwords: &[&str], key: &str) -> Vec<String> {
    let bytes = |text: &str| format!("{:?}", text.as_bytes()).replace(['[', ']'], "");
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let passwords = passwords.iter().flat_map(|password| {
        let encoded = BASE64_STANDARD_NO_PAD.encode(password);
        // The last characters hold other bits if more follows.
        let encoded = encoded[..encoded.len() - 2].to_owned();
        [(*password).to_owned(), bytes(password), hex(password), encoded]
    });
    passwords.chain(key.lines().filter(|line| !line.starts_with('-')).map(str::to_owned)).collect()
}

fn has_connection(member: &Member, wanted: bool) -> Result<(), String> {
    let status = member.status();
    if status["session"]["connected"] == wanted { Ok(()) } else { Err(status.to_string()) }
}
