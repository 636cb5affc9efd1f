//! Logins by Kerberos, with a KDC of Debian's and servers that know nobody else.

use crate::{
    certificates::{Authority, put, secure_client_port},
    group::{agreed, agreed_after, has_role, ready, started_in_order},
    identities::all_of,
    member::{Member, Setup},
    ports::free_ports,
    process::{Process, tied_to_this_thread},
    scrape::Scrape,
    servers::{Servers, Settings},
    transfer::transfer,
    wait::{eventually, throughout, within},
};
use serde_json::json;
use std::{
    fs,
    net::{TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const REALM: &str = "TEST.BELLWETHER";

/// The lifetime of a ticket.
const LIFETIME: Duration = Duration::from_secs(60);

/// A KDC of the test's own, and the files of those who ask it.
struct Kdc {
    home: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Kdc {
    /// It knows the servers, `zookeeper/localhost`, and a member, `app`, each by its keytab.
    fn start() -> Self {
        Self::with_lifetime(LIFETIME)
    }

    /// One whose tickets last for so long.
    fn with_lifetime(lifetime: Duration) -> Self {
        let home = TempDir::with_prefix("bellwether-kerberos-").expect("a temporary directory");
        let [port] = free_ports();
        let place = home.path().display();
        put(
            home.path(),
            "krb5.conf",
            &format!(
                "[libdefaults]\n\
                 default_realm = {REALM}\n\
                 dns_lookup_kdc = false\n\
                 dns_canonicalize_hostname = false\n\
                 forwardable = true\n\
                 [realms]\n\
                 {REALM} = {{\n kdc = 127.0.0.1:{port}\n }}\n"
            ),
        );
        put(
            home.path(),
            "kdc.conf",
            &format!(
                "[kdcdefaults]\n\
                 kdc_listen = 127.0.0.1:{port}\n\
                 kdc_tcp_listen = 127.0.0.1:{port}\n\
                 [realms]\n\
                 {REALM} = {{\n\
                 database_name = {place}/principal\n\
                 key_stash_file = {place}/stash\n\
                 max_life = {}s\n\
                 }}\n\
                 [logging]\n\
                 kdc = FILE:{place}/kdc.log\n",
                lifetime.as_secs()
            ),
        );
        let mut kdc = Self { home, port, process: None };
        kdc.does("kdb5_util", &["create", "-s", "-P", "of no use", "-r", REALM]);
        kdc.add("zookeeper/localhost");
        kdc.add("app");
        kdc.resume();
        kdc
    }

    /// Adds a principal, and returns its keytab.
    fn add(&self, principal: &str) -> PathBuf {
        self.admin(&format!("addprinc -randkey {principal}"));
        self.export(principal)
    }

    /// Gives a principal another key, and returns a keytab with it.
    fn export(&self, principal: &str) -> PathBuf {
        let keytab = self.keytab(principal);
        self.admin(&format!("ktadd -k {} {principal}", keytab.display()));
        keytab
    }

    fn keytab(&self, principal: &str) -> PathBuf {
        self.file(&format!("{}.keytab", principal.replace('/', "-")))
    }

    fn admin(&self, query: &str) {
        self.does("kadmin.local", &["-r", REALM, "-q", query]);
    }

    fn does(&self, program: &str, arguments: &[&str]) {
        let told = all_of(self.surround(&mut command(program)).args(arguments));
        // They exit with 0 whatever happens.
        assert!(!told.contains("while") && !told.contains("Error"), "{arguments:?}: {told}");
    }

    /// Has this command use this KDC and its files.
    fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("KRB5_CONFIG", self.file("krb5.conf"))
            .env("KRB5_KDC_PROFILE", self.file("kdc.conf"))
            .env("KRB5CCNAME", self.file("default-cache"))
    }

    /// Starts it, for the first time or again, and returns when it answers.
    fn resume(&mut self) {
        let mut command = tied_to_this_thread("krb5kdc");
        command.env("PATH", path()).args(["-n", "-r", REALM]);
        self.process = Some(Process::start(self.surround(&mut command)));
        eventually("the KDC listens", || {
            TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())
        });
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Answers nothing any longer, as behind a firewall.
    fn freeze(&self) {
        self.process.as_ref().expect("it runs").signal("STOP");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// How often it has given out tickets for this service.
    fn tickets_for(&self, service: &str) -> usize {
        let log = fs::read_to_string(self.file("kdc.log")).unwrap_or_default();
        let issued =
            |line: &&str| line.contains("ISSUE") && line.contains(&format!("for {service}"));
        log.lines().filter(issued).count()
    }

    /// How often it has refused a key: it counts these.
    fn refused_keys(&self) -> usize {
        let log = fs::read_to_string(self.file("kdc.log")).unwrap_or_default();
        log.lines()
            .filter(|line| line.contains("PREAUTH_FAILED") || line.contains("BAD_INTEGRITY"))
            .count()
    }

    /// Fills the default credential cache, which lasts for so long.
    fn log_in(&self, lifetime: Duration) {
        let app = self.keytab("app");
        let lifetime = format!("{}s", lifetime.as_secs());
        self.does("kinit", &["-l", &lifetime, "-k", "-t", app.to_str().expect("text"), "app"]);
    }

    /// A server that takes clients only with a ticket.
    fn server(&self, keytab: &Path) -> Servers {
        self.server_with(keytab, "")
    }

    fn server_with(&self, keytab: &Path, more: &str) -> Servers {
        self.server_of(
            keytab,
            format!(
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                 sessionRequireClientSASLAuth=true\n\
                 {more}"
            ),
        )
    }

    fn server_of(&self, keytab: &Path, zoo_cfg: String) -> Servers {
        let jaas = put(
            self.home.path(),
            &format!("{}.jaas", keytab.file_name().expect("a file").display()),
            &format!(
                "Server {{ com.sun.security.auth.module.Krb5LoginModule required \
                 useKeyTab=true keyTab=\"{}\" storeKey=true useTicketCache=false isInitiator=false \
                 principal=\"zookeeper/localhost@{REALM}\"; }};\n",
                keytab.display()
            ),
        );
        let mut servers = Servers::prepared(&Settings {
            more: zoo_cfg,
            properties: vec![
                format!("java.security.auth.login.config={}", jaas.display()),
                format!("java.security.krb5.conf={}", self.file("krb5.conf").display()),
            ],
            ..Settings::default()
        });
        servers.start();
        servers
    }

    /// A member of this principal, by its keytab.
    fn setup(&self, servers: &Servers, principal: &str) -> Setup {
        let keytab = self.keytab(principal);
        self.setup_at(&by_name(servers))
            .option("--kerberos-principal", &format!("{principal}@{REALM}"))
            .option("--kerberos-keytab", &keytab.display().to_string())
    }

    /// A member of the default credential cache.
    fn setup_at(&self, servers: &str) -> Setup {
        Setup::at(servers.to_owned())
            .option("--auth", "kerberos")
            .environment("KRB5_CONFIG", &self.file("krb5.conf").display().to_string())
            .environment("KRB5CCNAME", &self.file("default-cache").display().to_string())
    }
}

/// Debian has a KDC's programs where only root looks for any.
fn path() -> String {
    format!("/usr/sbin:{}", std::env::var("PATH").expect("there is a path"))
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", path());
    command
}

/// The servers by the name in their principal.
fn by_name(servers: &Servers) -> String {
    servers.connect_string().replace("127.0.0.1", "localhost")
}

fn has_connection(member: &Member, connected: bool) -> Result<(), String> {
    let status = member.status();
    if status["session"]["connected"] == connected {
        Ok(())
    } else {
        Err(format!("{status}\n{}", member.log()))
    }
}

/// Returns when all of these members have lost their connection, and have another.
fn the_server_restarts(servers: &mut Servers, members: &[&Member]) {
    servers.first().kill();
    for member in members {
        eventually("the member notices", || has_connection(member, false));
    }
    servers.first().start();
    for member in members {
        eventually("the member is back", || has_connection(member, true));
    }
}

#[track_caller]
fn logs_within_a_lifetime(member: &Member, words: &str) {
    let logged = within(LIFETIME, || {
        let log = member.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    });
    if let Err(log) = logged {
        panic!("{words:?}: {log}");
    }
}

fn kinds_of_problems(member: &Member) -> Vec<String> {
    let status = member.status();
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    problems.iter().map(|problem| problem["kind"].as_str().unwrap_or_default().to_owned()).collect()
}

fn problem(member: &Member) -> String {
    member.status()["session"]["problem"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn says(member: &Member, words: &[&str]) {
    let said = within(Duration::from_secs(60), || {
        let problem = problem(member);
        match words.iter().all(|word| problem.contains(word)) {
            true => Ok(problem),
            false => Err(format!("{problem}\n{}", member.log())),
        }
    });
    match said {
        Ok(problem) => eprintln!("| {problem} |"),
        Err(seen) => panic!("{words:?}: {seen}"),
    }
}

#[test]
fn members_log_in_with_a_keytab_and_outlive_their_tickets() {
    let kdc = Kdc::start();
    let mut servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let setup = kdc.setup(&servers, "app");
    let [mut first, second] = started_in_order(&setup, ["a", "b"]);
    let leader = agreed([&first, &second]);

    let mut inspect = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    inspect.args(["inspect", "--zookeeper", &by_name(&servers), "--auth", "kerberos"]);
    inspect.args(["--kerberos-principal", &format!("app@{REALM}"), "--kerberos-keytab"]);
    let seen = all_of(kdc.surround(inspect.arg(kdc.keytab("app"))));
    assert!(seen.contains("a   leader") && seen.contains("b   standby"), "{seen}");

    // Another principal may read, and is not let in.
    kdc.add("other");
    let third = kdc.setup(&servers, "other").start("c");
    says(
        &third,
        &[
            &format!("we are sasl:other@{REALM}"),
            &format!("it is for sasl:app@{REALM} (ALL), world:anyone (READ)"),
        ],
    );
    drop(third);

    // The tickets of the start have ended when they were renewed for the third time.
    let renewed = within(3 * LIFETIME, || {
        let log = first.log();
        if log.matches("renewed the Kerberos tickets").count() >= 3 { Ok(()) } else { Err(log) }
    });
    renewed.unwrap();
    the_server_restarts(&mut servers, &[&first, &second]);
    assert_eq!(agreed([&first, &second]), leader, "the sessions were resumed");
    first.kill();
    assert_eq!(agreed_after(&leader, [&second]).id, "b");
}

#[test]
fn a_kdc_that_is_away_costs_nothing_while_the_session_lives() {
    let mut kdc = Kdc::start();
    let mut servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let setup = kdc.setup(&servers, "app");
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    let leader = agreed([&first, &second]);
    let comes_back = |servers: &mut Servers| {
        the_server_restarts(servers, &[&first, &second]);
        assert_eq!(agreed([&first, &second]), leader, "the sessions were resumed");
    };

    // It is gone, and then does not answer: tickets are there all the same.
    kdc.stop();
    comes_back(&mut servers);
    kdc.resume();
    kdc.freeze();
    comes_back(&mut servers);

    // Until they have ended, and longer, the session goes on.
    let warned = within(2 * LIFETIME, || {
        let log = first.log();
        let warned = log.contains(&format!("the Kerberos tickets of app@{REALM} end at "))
            && log.contains(" and are not renewed: ");
        if warned { Ok(()) } else { Err(log) }
    });
    warned.unwrap();
    throughout("it leads", LIFETIME, || {
        let named = agreed([&first, &second]);
        if named == leader { Ok(()) } else { Err(format!("{named:?}")) }
    });

    // One that starts now says what it waits for.
    let third = setup.start("c");
    says(
        &third,
        &[
            &format!("no Kerberos ticket for zookeeper/localhost as app@{REALM}"),
            &format!("the KDC of {REALM} does not answer"),
        ],
    );
    kdc.stop();
    says(&third, &["Cannot contact any KDC", REALM]);
    kdc.resume();
    eventually("it joins", || ready(&third));
    logs_within_a_lifetime(&first, "are renewed again");
    comes_back(&mut servers);
}

#[test]
fn each_wrong_ticket_is_named_in_one_line() {
    let kdc = Kdc::start();
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let server = by_name(&servers);
    let app = kdc.keytab("app");
    let app = app.to_str().unwrap();
    let named = |name: &str| kdc.setup_at(&server).option("--kerberos-principal", name);

    let old = kdc.file("old.keytab");
    let old_server = kdc.file("old-server.keytab");
    fs::copy(kdc.keytab("app"), &old).unwrap();
    kdc.export("app");
    fs::copy(kdc.keytab("zookeeper/localhost"), &old_server).unwrap();

    let app_principal = format!("app@{REALM}");
    let member = |setup: Setup| setup.short_sessions().start("a");
    let who = &*app_principal;
    let old_key = member(named(who).option("--kerberos-keytab", old.to_str().unwrap()));
    let not_in_it = member(named(&format!("nobody@{REALM}")).option("--kerberos-keytab", app));
    let by_address = member(
        kdc.setup_at(&servers.connect_string())
            .option("--kerberos-principal", who)
            .option("--kerberos-keytab", app),
    );
    let service =
        member(named(who).option("--kerberos-keytab", app).option("--kerberos-service", "keeper"));
    let no_cache = member(kdc.setup_at(&server));
    let no_realm = member(named("app@NOWHERE.BELLWETHER").option("--kerberos-keytab", app));
    says(
        &old_key,
        &["for zookeeper/localhost as", who, "old.keytab, is not the one that the KDC has"],
    );
    says(&not_in_it, &["as nobody@TEST.BELLWETHER: ", "app.keytab, has no key of"]);
    says(
        &by_address,
        &["zookeeper/127.0.0.1", "not found in Kerberos database", "zookeeper.servers"],
    );
    says(&service, &["keeper/localhost", "not found in Kerberos database"]);
    says(&no_cache, &["default credential cache", "kinit"]);
    says(&no_realm, &["NOWHERE.BELLWETHER", "zookeeper/localhost"]);
    says(&service, &["zookeeper.kerberos.service"]);
    for member in [&old_key, &not_in_it, &by_address, &service, &no_cache, &no_realm] {
        has_role(member, "absent").unwrap();
        let log = member.log();
        assert!(!log.contains("panicked"), "{log}");
    }

    // The keytab's file goes, comes back empty, and is at last the right one.
    fs::remove_file(&old).unwrap();
    says(&old_key, &["old.keytab", "cannot be read"]);
    fs::write(&old, "").unwrap();
    says(&old_key, &["old.keytab", "is empty"]);
    fs::copy(app, &old).unwrap();
    eventually("it joins", || ready(&old_key));

    // The servers' keytab is not the one that the KDC has: only they can tell.
    let lagging = kdc.server(&old_server);
    kdc.export("zookeeper/localhost");
    fs::copy(&old_server, kdc.keytab("zookeeper/localhost")).unwrap();
    let refused = member(kdc.setup(&lagging, "app"));
    says(&refused, &["refuse the login", who, "zookeeper/localhost", "keytab"]);

    // By DNS, the server has another name than the one that is written.
    let conf = fs::read_to_string(kdc.file("krb5.conf")).unwrap();
    let by_dns = put(
        kdc.home.path(),
        "dns.conf",
        &conf.replace("dns_canonicalize_hostname = false", "dns_canonicalize_hostname = true"),
    );
    let renamed = member(
        kdc.setup_at(&lagging.connect_string())
            .option("--kerberos-principal", who)
            .option("--kerberos-keytab", app)
            .environment("KRB5_CONFIG", &by_dns.display().to_string()),
    );
    says(
        &renamed,
        &[
            "zookeeper/localhost (which Kerberos made of zookeeper/127.0.0.1",
            "rdns = false",
            "dns.conf",
        ],
    );

    // No krb5.conf at all, and one that nobody can read.
    for (file, content) in [("missing.conf", None), ("broken.conf", Some("[realms]\n} {\n"))] {
        let path = kdc.file(file);
        content.iter().for_each(|content| fs::write(&path, content).unwrap());
        let lost =
            member(kdc.setup(&servers, "app").environment("KRB5_CONFIG", path.to_str().unwrap()));
        says(&lost, &[&format!("{} (KRB5_CONFIG)", path.display()), "[realms]"]);
    }

    // Other schemes at servers that take this one alone.
    let login = put(kdc.home.path(), "login", "app:hush\n").display().to_string();
    for scheme in ["digest", "sasl"] {
        let other =
            Setup::at(server.clone()).option("--auth", scheme).option("--credentials-file", &login);
        says(&member(other), &[scheme, "\"kerberos\"", "Krb5LoginModule"]);
    }

    // The KDC gives this principal no tickets.
    kdc.add("locked");
    kdc.admin("modprinc -allow_tix locked");
    let locked = member(kdc.setup(&servers, "locked"));
    says(&locked, &["revoked", "modprinc -unlock", "modprinc +allow_tix"]);
    kdc.add("expired");
    kdc.admin("modprinc -expire 2020-01-01 expired");
    let expired = member(kdc.setup(&servers, "expired"));
    says(&expired, &["expired", "modprinc -expire never"]);

    // The server's principal gets none.
    for (service, change) in [("old", "-expire 2020-01-01"), ("closed", "-allow_svr")] {
        kdc.add(&format!("{service}/localhost"));
        kdc.admin(&format!("modprinc {change} {service}/localhost"));
        let kept_out = member(kdc.setup(&servers, "app").option("--kerberos-service", service));
        says(&kept_out, &["the server's principal", &format!("getprinc {service}/localhost")]);
    }

    // The keytab has a key, of a type that the KDC does not use for this principal.
    let keytab = kdc.keytab("types");
    kdc.admin("addprinc -randkey types");
    kdc.admin(&format!("ktadd -k {} -e aes128-cts:normal types", keytab.display()));
    kdc.admin("cpw -randkey -e aes256-cts:normal types");
    let other_types = member(kdc.setup(&servers, "types"));
    says(&other_types, &["types.keytab, has no key of types@", "of a type that the KDC uses"]);

    // What is no keytab is refused before anything is begun.
    let no_keytab = put(kdc.home.path(), "no.keytab", "app:hush\n");
    for (file, line) in [(no_keytab, "is not a keytab"), (kdc.file("missing"), "cannot be read")] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        check.args(["check-config", "--auth", "kerberos", "--kerberos-principal", who]);
        let told = all_of(check.arg("--kerberos-keytab").arg(file));
        assert!(told.contains("zookeeper.kerberos.keytab") && told.contains(line), "{told}");
        assert!(!told.contains("hush"), "{told}");
    }
}

/// The KDC counts refused logins, and locks the principal that all members share.
#[test]
fn an_outdated_keytab_does_not_lock_the_principal() {
    let kdc = Kdc::start();
    kdc.admin("addpol -maxfailure 5 -failurecountinterval 0s -lockoutduration 0s strict");
    kdc.admin("modprinc -policy strict +requires_preauth app");
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let [first, second] = started_in_order(&kdc.setup(&servers, "app"), ["a", "b"]);
    let leader = agreed([&first, &second]);
    assert!(Scrape::of(&first).of_us("kerberos_tickets_remaining_seconds", "") > 1.0);

    // The principal gets another key, which reaches the members later.
    let new = kdc.file("new.keytab");
    kdc.admin(&format!("ktadd -k {} app", new.display()));
    for member in [&first, &second] {
        logs_within_a_lifetime(member, "is not the one that the KDC has");
        eventually("it is a problem", || match &kinds_of_problems(member)[..] {
            [kind] if kind == "kerberos-tickets" => Ok(()),
            kinds => Err(format!("{kinds:?}")),
        });
        assert_eq!(member.get("/readyz").status, 200);
    }
    let starting = kdc.setup(&servers, "app").start("c");
    says(
        &starting,
        &["app.keytab, is not the one that the KDC has", "as soon as the file has changed"],
    );
    throughout("each member has asked once", Duration::from_secs(25), || {
        match kdc.refused_keys() {
            3 => Ok(()),
            other => Err(format!("{other}")),
        }
    });

    fs::rename(&new, kdc.keytab("app")).unwrap();
    eventually("it joins", || ready(&starting));
    for member in [&first, &second] {
        logs_within_a_lifetime(member, "are renewed again");
        eventually("it is no problem", || match &kinds_of_problems(member)[..] {
            [] => Ok(()),
            kinds => Err(format!("{kinds:?}")),
        });
        // The session of locks is no other member, and says nothing of its own.
        let log = member.log();
        assert_eq!(log.matches("are not renewed").count(), 1, "{log}");
    }
    assert_eq!(kdc.refused_keys(), 3);
    kdc.log_in(LIFETIME);
    assert_eq!(agreed([&first, &second]), leader);
}

/// Suppose each server gets a keytab with the new key alone: the tickets that members have are for the old one.
#[test]
fn members_get_new_tickets_when_a_server_refuses_those_that_they_have() {
    const HOUR: Duration = Duration::from_secs(3600);
    let kdc = Kdc::with_lifetime(HOUR);
    let keytab = kdc.keytab("zookeeper/localhost");
    let mut servers = kdc.server(&keytab);
    kdc.log_in(HOUR);
    let with_keytab = kdc.setup(&servers, "app").start("a");
    eventually("it joins", || ready(&with_keytab));
    let with_cache = kdc.setup_at(&by_name(&servers)).start("b");
    eventually("it joins", || ready(&with_cache));
    let leader = agreed([&with_keytab, &with_cache]);

    let [old, new] = ["old.keytab", "new.keytab"].map(|name| kdc.file(name));
    fs::copy(&keytab, &old).unwrap();
    kdc.admin(&format!("ktadd -k {} zookeeper/localhost", new.display()));
    fs::copy(&new, &keytab).unwrap();
    servers.first().kill();
    eventually("it notices", || has_connection(&with_keytab, false));
    servers.first().start();
    eventually("it has new tickets", || has_connection(&with_keytab, true));
    assert_eq!(agreed([&with_keytab]), leader, "the session was resumed");
    says(&with_cache, &["refuse the login", "kinit gets tickets for the new one"]);
    kdc.log_in(HOUR);
    eventually("it is back", || has_connection(&with_cache, true));

    // New tickets do not help as long as the server does not have the key that the KDC has.
    fs::copy(&old, &keytab).unwrap();
    servers.first().kill();
    eventually("it notices", || has_connection(&with_keytab, false));
    servers.first().start();
    says(&with_keytab, &["refuse the login", "are the clocks right?"]);
    let fetched = kdc.tickets_for("krbtgt/");
    throughout("it seldom asks for new tickets", Duration::from_secs(18), || {
        match kdc.tickets_for("krbtgt/") - fetched {
            0..=2 => Ok(()),
            other => Err(format!("{other} times")),
        }
    });
    fs::copy(&new, &keytab).unwrap();
    eventually("it is back", || has_connection(&with_keytab, true));
    eventually("it joins", || ready(&with_keytab));
}

/// No session is closed on purpose while no other can be opened.
#[test]
fn without_tickets_a_member_keeps_the_session_that_it_has() {
    let kdc = Kdc::start();
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    kdc.log_in(LIFETIME);
    let mut first = kdc.setup(&servers, "app").start("a");
    eventually("it leads", || ready(&first));
    let [second, third] = started_in_order(&kdc.setup_at(&by_name(&servers)), ["b", "c"]);
    let leader = agreed([&first, &second, &third]);
    for member in [&second, &third] {
        let ended = within(2 * LIFETIME, || {
            let log = member.log();
            let ended = log
                .contains("no program has renewed those in the default credential cache")
                && log.contains("): a session with a connection goes on");
            if ended { Ok(()) } else { Err(log) }
        });
        ended.unwrap();
        eventually("it is a problem", || {
            let status = member.status();
            let problem = status["problems"][0]["problem"].as_str().unwrap_or_default();
            let words = [
                &format!("tickets of app@{REALM} have ended (at ")[..],
                "default-cache has no valid",
            ];
            match &kinds_of_problems(member)[..] {
                [kind]
                    if kind == "kerberos-tickets"
                        && words.iter().all(|word| problem.contains(word)) =>
                {
                    Ok(())
                }
                _ => Err(status.to_string()),
            }
        });
        assert_eq!(Scrape::of(member).of_us("kerberos_tickets_remaining_seconds", ""), 0.0);
        assert_eq!(member.get("/readyz").status, 200);
    }

    // Not out of the way of the target, and not into the leadership.
    for to in ["c", "b"] {
        let answer = transfer(&first, &json!({"to": to, "within_ms": 4000}));
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert!(answer.body.contains("no Kerberos tickets"), "{}", answer.body);
    }
    assert_eq!(agreed([&first, &second, &third]), leader);
    for member in [&second, &third] {
        has_connection(member, true).unwrap();
        assert!(!member.log().contains("close the session"), "{}", member.log());
    }
    // Of its own accord it does not go either.
    first.kill();
    assert_eq!(agreed_after(&leader, [&second, &third]).id, "b");
    for answer in [second.post("/resign"), transfer(&second, &json!({"to": "c"}))] {
        assert_eq!(answer.status, 503);
        assert!(answer.body.contains("no-kerberos-tickets"), "{}", answer.body);
    }

    kdc.log_in(LIFETIME);
    // The target too: an offer that it reads without tickets is ignored.
    for member in [&second, &third] {
        eventually("they are there again", || match &kinds_of_problems(member)[..] {
            [] => Ok(()),
            kinds => Err(format!("{kinds:?}")),
        });
    }
    eventually("it hands over", || match transfer(&second, &json!({"to": "c"})) {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.body),
    });
}

/// It would take each client for nobody, and its znodes for anybody's.
#[test]
fn a_server_without_sasl_is_not_taken_for_one_that_lets_us_in() {
    let kdc = Kdc::start();
    let plain = Servers::standalone();
    let line = format!("{} did not answer the login by Kerberos", by_name(&plain));
    let words = [&*line, "Krb5LoginModule"];
    let setup = kdc.setup(&plain, "app").option("--acl", "open");
    says(&setup.start("a"), &words);
    let mut check = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    check.args(["check-config", "--connect", "--zookeeper", &by_name(&plain)]);
    check.args(["--auth", "kerberos", "--kerberos-principal", &format!("app@{REALM}")]);
    let told = all_of(kdc.surround(check.arg("--kerberos-keytab").arg(kdc.keytab("app"))));
    assert!(told.contains("cannot be used") && told.contains(words[0]), "{told}");

    // One that takes logins, and no ACLs of those who logged in.
    let half = kdc.server_of(&kdc.keytab("zookeeper/localhost"), String::new());
    let property = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let member = kdc.setup(&half, "app").start("a");
    let zookeeper = || {
        let status = member.status();
        let problems = status["problems"].to_string();
        if problems.contains(property) { Ok(()) } else { Err(status.to_string()) }
    };
    eventually("it names the property", zookeeper);
    drop(member);

    // Another server is tried then.
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let app = kdc.keytab("app").display().to_string();
    let both = kdc
        .setup_at(&format!("{},{}", by_name(&plain), by_name(&servers)))
        .option("--kerberos-principal", &format!("app@{REALM}"))
        .option("--kerberos-keytab", &app);
    for id in ["b", "c", "d", "e"] {
        let member = both.start(id);
        eventually("it joins", || ready(&member));
    }
}

/// The Kerberos library waits for a second before it asks the next KDC, for each ticket.
#[test]
fn a_command_waits_for_the_second_kdc_when_the_first_is_silent() {
    let kdc = Kdc::start();
    // That is a second exchange for the first ticket.
    kdc.admin("modprinc +requires_preauth app");
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let conf = fs::read_to_string(kdc.file("krb5.conf")).unwrap();
    let first = format!("\n kdc = {}\n kdc =", silent.local_addr().unwrap());
    let conf = put(kdc.home.path(), "two.conf", &conf.replace("\n kdc =", &first));
    let mut check = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    check.args(["check-config", "--connect", "--zookeeper", &by_name(&servers)]);
    check.args(["--auth", "kerberos", "--kerberos-principal", &format!("app@{REALM}")]);
    check.arg("--kerberos-keytab").arg(kdc.keytab("app"));
    let begun = Instant::now();
    let told = all_of(kdc.surround(&mut check).env("KRB5_CONFIG", conf));
    assert!(told.contains("can be used: ZooKeeper"), "{told}");
    assert!(begun.elapsed() > Duration::from_millis(2500), "the first KDC was not asked");
}

#[test]
fn a_lock_without_a_sidecar_says_that_the_kdc_is_silent() {
    let kdc = Kdc::start();
    kdc.freeze();
    let mut lock = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    lock.args(["lock", "job", "--wait", "6s", "--zookeeper", "localhost:1"]);
    lock.args(["--auth", "kerberos", "--kerberos-principal", &format!("app@{REALM}")]);
    lock.arg("--kerberos-keytab").arg(kdc.keytab("app")).args(["--", "true"]);
    let told = all_of(kdc.surround(&mut lock));
    assert!(told.contains("lock job was not got") && told.contains("the KDC of"), "{told}");
}

#[test]
fn the_default_credential_cache_is_anothers_to_renew() {
    let kdc = Kdc::start();
    let mut servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let app = kdc.keytab("app");
    let log_in = || kdc.does("kinit", &["-k", "-t", app.to_str().unwrap(), "app"]);
    let waiting = kdc.setup_at(&by_name(&servers)).start("a");
    says(&waiting, &["default credential cache", "kinit"]);
    log_in();
    eventually("it joins", || ready(&waiting));
    let leader = agreed([&waiting]);

    let given = kdc.tickets_for("zookeeper/localhost");
    log_in();
    let fetched = within(LIFETIME, || match kdc.tickets_for("zookeeper/localhost") {
        now if now > given => Ok(()),
        now => Err(format!("{given}, {now}")),
    });
    fetched.unwrap();
    the_server_restarts(&mut servers, &[&waiting]);
    assert_eq!(agreed([&waiting]), leader);
}

#[test]
fn members_log_in_over_tls() {
    let kdc = Kdc::start();
    let authority = Authority::new("ours");
    put(kdc.home.path(), "server.pem", &authority.issue("zk", &["localhost"]).both());
    let ca = put(kdc.home.path(), "server-ca.pem", &authority.pem());
    let [port] = free_ports();
    let more = format!(
        "{}ssl.enabledProtocols=TLSv1.2\n",
        secure_client_port(kdc.home.path(), port, "none")
    );
    let _servers = kdc.server_with(&kdc.keytab("zookeeper/localhost"), &more);
    let setup = kdc
        .setup_at(&format!("localhost:{port}"))
        .option("--tls-ca", &ca.display().to_string())
        .option("--kerberos-principal", &format!("app@{REALM}"))
        .option("--kerberos-keytab", &kdc.keytab("app").display().to_string());
    let [first, second] = started_in_order(&setup, ["a", "b"]);
    agreed([&first, &second]);
}

/// The next connection may be to another server, when the KDC is away.
#[test]
fn tickets_for_all_servers_are_there_ahead_of_time() {
    let kdc = Kdc::start();
    kdc.add("zookeeper/127.0.0.1");
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let both = format!("{},{}", by_name(&servers), servers.connect_string());
    let setup = kdc.setup_at(&both).option("--kerberos-principal", &format!("app@{REALM}"));
    let keytab = kdc.keytab("app").display().to_string();
    // Both are one server, which it is connected to by the first name.
    let member = setup.option("--kerberos-keytab", &keytab).start("a");
    eventually("it joins", || ready(&member));
    eventually("it has a ticket for the other", || match kdc.tickets_for("zookeeper/127.0.0.1") {
        0 => Err(member.log()),
        _ => Ok(()),
    });
}

/// A server gets what proves who we are, and not our tickets: these are forwardable, and it could log in as us.
#[test]
fn tickets_are_not_handed_to_the_servers() {
    let kdc = Kdc::start();
    let servers = kdc.server(&kdc.keytab("zookeeper/localhost"));
    let [member] = started_in_order(&kdc.setup(&servers, "app"), ["a"]);
    agreed([&member]);
    assert!(kdc.tickets_for("zookeeper/localhost") > 0);
    // The first ones come from the keytab; to hand one on, another is asked for with it.
    let log = fs::read_to_string(kdc.file("kdc.log")).unwrap();
    let forwarded =
        log.lines().filter(|line| line.contains("TGS_REQ") && line.contains("for krbtgt/"));
    assert_eq!(forwarded.count(), 0, "{log}");
}
