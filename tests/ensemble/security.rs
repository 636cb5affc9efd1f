//! TLS, logins and access control: right settings work everywhere, and wrong ones are named.

use crate::{
    certificates::{Authority, Issued, put},
    described::questions,
    expire::expire,
    flock::{agreed, agreed_after, has_role, in_line, ready, settled},
    member::{Member, Setup},
    observer::{Observer, Znode},
    program::Program,
    servers::{Servers, Settings, free_ports},
    wait::{eventually, throughout},
};
use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use std::{
    fs,
    net::TcpListener,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output},
    time::Duration,
};
use tempfile::TempDir;
use zookeeper::{Acl, Acls, AuthId, CreateMode, Error, Permission};

const PASSWORD: &str = "correct-horse-battery";
const WRONG_PASSWORD: &str = "staple-horse-battery";

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
        let jaas = format!(
            "Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required \
             user_app=\"{PASSWORD}\"; }};\n"
        );
        let jaas = put(home.path(), "jaas.conf", &jaas);
        let place = home.path().display();
        let settings = Settings {
            more: format!(
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 secureClientPort={secure_port}\n\
                 secureClientPortAddress=127.0.0.1\n\
                 ssl.keyStore.location={place}/server.pem\n\
                 ssl.keyStore.type=PEM\n\
                 ssl.trustStore.location={place}/server-ca.pem\n\
                 ssl.trustStore.type=PEM\n\
                 ssl.clientAuth={client_auth}\n\
                 authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                 authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
                 {more}"
            ),
            properties: vec![format!("java.security.auth.login.config={}", jaas.display())],
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
            "shows a certificate that no revocation list in zookeeper.tls.ca tells of",
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
        ("a login where none is known", login(Setup::of(&simple)), "we are nobody it knows"),
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
    let [mut first, second] = in_line(&setup, ["a", "b"]);
    let observer = Observer::of(&fort.servers);
    let (leader, line) = settled([&first, &second], &observer);

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
    let (again, line_again) = settled([&first, &second], &observer);
    assert_eq!(again, leader, "the sessions were resumed");
    let owners = |line: &[Znode]| line.iter().map(|it| it.stat.ephemeral_owner).collect::<Vec<_>>();
    assert_eq!(owners(&line_again), owners(&line));

    first.kill();
    assert_eq!(agreed_after(&leader, [&second]).id, "b");
}

#[test]
fn certificates_are_taken_up_when_their_files_change_and_not_by_halves() {
    let authority = Authority::new("ours");
    let mut fort = Fort::build(&authority, &authority.issue("zk", &["localhost"]), "need");
    let [member] = in_line(&fort.admitting(&authority), ["a"]);
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
    let complaints = member.log().lines().filter(|l| l.contains("what was there before")).count();
    assert!(complaints > 0, "{}", member.log());

    let next = Authority::new("the next");
    fort.file("server.pem", &next.issue("zk", &["localhost"]).both());
    fort.file("server-ca.pem", &next.pem());
    let _files_are_written = fort.admitting(&next);
    comes_back(&mut fort);
    assert!(member.log().contains("what is in the files again"), "{}", member.log());
}

#[test]
fn a_client_of_another_identity_can_read_and_nothing_else() {
    let servers = Servers::standalone();
    let stranger = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let setup = with_digest(Setup::of(&servers), home.path(), "app");
    let [first, second] = in_line(&setup, ["a", "b"]);
    let (leader, line) = settled([&first, &second], &stranger);

    let theirs = format!("/election/{}", line[0].name);
    let deleted = stranger.ask(async |it| it.delete(&theirs, None).await);
    assert!(matches!(deleted, Err(Error::NoAuth)), "{deleted:?}");
    for path in [&*theirs, "/election"] {
        let refused = [
            stranger.ask(async |it| it.set_data(path, b"{}", None).await.map(drop)),
            stranger.ask(async |it| it.set_acl(path, &Acls::anyone_all(), None).await.map(drop)),
        ];
        assert!(refused.iter().all(|it| matches!(it, Err(Error::NoAuth))), "{path}: {refused:?}");
    }
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let created =
        stranger.ask(async |it| it.create("/election/leader_", b"", &mode).await.map(drop));
    assert!(matches!(created, Err(Error::NoAuth)), "{created:?}");
    assert_eq!(agreed([&first, &second]), leader);
    assert!(!first.log().contains("anyone who reaches"), "{}", first.log());

    // Nor can a member of another identity join, and it says why.
    let third = with_digest(Setup::of(&servers), home.path(), "other").start("c");
    let wrong = put(home.path(), "wrong", &format!("app:{WRONG_PASSWORD}")).display().to_string();
    let setup = Setup::of(&servers).option("--auth", "digest");
    let fourth = setup.option("--credentials-file", &wrong).start("d");
    eventually("it says that its password is another", || {
        let problem = fourth.status()["session"]["problem"].to_string();
        let line = "at /election: it is for digest:app with another password than ours";
        if problem.contains(line) { Ok(()) } else { Err(problem) }
    });
    eventually("it names its own identity and the path's owner", || {
        let problem = third.status()["session"]["problem"].to_string();
        let words =
            ["at /election:", "we are digest:other", "digest:app (ALL), world:anyone (READ)"];
        if words.iter().all(|word| problem.contains(word)) { Ok(()) } else { Err(problem) }
    });
}

#[test]
fn the_creator_alone_can_read_if_it_is_to_be_so() {
    let servers = Servers::standalone();
    let stranger = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let setup = with_digest(Setup::of(&servers), home.path(), "app").option("--acl", "creator");
    let members = in_line(&setup, ["a", "b"]);
    agreed(&members);
    let read = stranger.ask(async |it| it.list_children("/election").await);
    assert!(matches!(read, Err(Error::NoAuth)), "{read:?}");

    let login = home.path().join("app").display().to_string();
    let inspect = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        command.args(["inspect", "--zookeeper", &servers.connect_string()]).args(more);
        all_of(&mut command)
    };
    let seen = inspect(&["--auth", "digest", "--credentials-file", &login]);
    assert!(seen.contains("a leads, named by all 2"), "{seen}");
    let refused = inspect(&[]);
    let line = "ZooKeeper does not let us in at /election: we are nobody it knows";
    assert!(refused.contains(line), "{refused}");
}

#[test]
fn a_path_where_anyone_may_delete_is_warned_of_unless_it_is_meant_to_be_open() {
    let servers = Servers::standalone();
    let stranger = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let warning = "anyone who reaches ZooKeeper may delete members' znodes";
    let warnings = |member: &Member| {
        let log = member.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains(warning)).count()
    };
    stranger.make_path("/election");

    let [open] = in_line(&Setup::of(&servers).option("--acl", "open"), ["a"]);
    let others = in_line(&Setup::of(&servers), ["b"]);
    let closed = in_line(&with_digest(Setup::of(&servers), home.path(), "app"), ["c"]);
    for member in others.iter().chain(&closed) {
        eventually("it is warned of", || match warnings(member) {
            1 => Ok(()),
            n => Err(format!("{n} times: {}", member.log())),
        });
    }
    assert_eq!(warnings(&open), 0, "{}", open.log());

    // A member that joins again checks again, and does not repeat the warning.
    closed[0].post("/pause");
    assert_eq!(closed[0].post("/resume").status, 202);
    eventually("it is ready again", || ready(&closed[0]));
    throughout("it is not said again", Duration::from_secs(1), || match warnings(&closed[0]) {
        1 => Ok(()),
        n => Err(format!("{n} times")),
    });

    // The warning is true: another client can delete the leader's znode.
    let (leader, line) = settled([&open, &others[0], &closed[0]], &stranger);
    stranger.delete(&format!("/election/{}", line[0].name));
    assert_eq!(agreed_after(&leader, [&open, &others[0], &closed[0]]).id, "b");
}

/// A client that was there first may have made the path, and owns it.
#[test]
fn a_path_that_is_anothers_is_joined_with_a_warning_that_says_whose_it_is() {
    let mut servers = Servers::standalone();
    let squatter = Observer::of(&servers);
    let home = TempDir::new().unwrap();
    let acl = [
        Acl::new(Permission::ALL, AuthId::new("auth", "")),
        Acl::new(Permission::READ | Permission::CREATE, AuthId::anyone()),
    ];
    let made = squatter.ask(async |it| {
        it.auth("digest", b"squat:er").await?;
        let mode = CreateMode::Persistent.with_acls(Acls::new(&acl));
        it.create("/election", b"", &mode).await.map(drop)
    });
    made.unwrap();

    let [member] = in_line(&with_digest(Setup::of(&servers), home.path(), "app"), ["a"]);
    eventually("it is told", || {
        let told = "at /election, anyone who reaches ZooKeeper may stand in the line, or in its \
                    way; and digest:squat, whom we are not, may delete members' znodes";
        let log = member.log();
        if log.contains(told) { Ok(()) } else { Err(log) }
    });

    // The warning is true: the owner of the path can delete the leader's znode.
    let leader = agreed([&member]);
    squatter.delete(&format!("/election/{}", leader.znode));
    let leader = agreed_after(&leader, [&member]);

    // In another session there is nothing new to say.
    let own = squatter.znode(&format!("/election/{}", leader.znode)).expect("it leads");
    expire(servers.first(), own.stat.ephemeral_owner);
    agreed_after(&leader, [&member]);
    assert_eq!(member.log().matches("whom we are not").count(), 1, "{}", member.log());
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
        let said = problem.contains("zookeeper.acl") && problem.contains("we are nobody it knows");
        if said { Ok(()) } else { Err(problem) }
    });
}

#[test]
fn no_secret_is_told() {
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
    let told = "what was there before";
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

fn all_of(command: &mut Command) -> String {
    let Output { stdout, stderr, .. } = command.output().expect("it runs");
    String::from_utf8([stdout, stderr].concat()).expect("text")
}

fn with_digest(setup: Setup, home: &Path, user: &str) -> Setup {
    let login = put(home, user, &format!("{user}:{PASSWORD}\n")).display().to_string();
    setup.option("--auth", "digest").option("--credentials-file", &login)
}

fn has_connection(member: &Member, wanted: bool) -> Result<(), String> {
    let status = member.status();
    if status["session"]["connected"] == wanted { Ok(()) } else { Err(status.to_string()) }
}
