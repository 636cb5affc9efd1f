//! Tests of rejected values, and of the defaults.

use super::security::AclPolicy;
use super::*;
use recipes::ForeignClient;

fn config(flags: &[(&'static str, &str)]) -> Result<Config, String> {
    Config::new(&Values::given(flags)).inspect_err(|error| {
        assert_eq!(error.lines().count(), 1, "{error}");
    })
}

fn error(flags: &[(&'static str, &str)]) -> String {
    config(flags).expect_err("this is no configuration")
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let config = config(&[]).unwrap();
    assert_eq!(config.settings.root, "/election");
    assert_eq!(config.policy.margins.heartbeat, Duration::from_secs(1));
}

#[test]
fn a_derived_default_may_be_set_by_its_description() {
    let words = |row: &Row| (row.key, row.default.text());
    let written = [words(&table::HEARTBEAT.row), words(&table::ACL.row)];
    let config = |more: &[_]| config(&[&written[..], more].concat()).unwrap();
    let twice_as_long = config(&[("zookeeper.session_timeout", "20s")]);
    assert_eq!(twice_as_long.policy.margins.heartbeat, Duration::from_secs(2));
    let security = config(&[]).settings.zookeeper.security;
    assert!(security.acl == AclPolicy::Open && !security.is_open_by_choice);
    let login = [("zookeeper.auth", "digest"), ("zookeeper.credentials_file", "f")];
    assert_eq!(config(&login).settings.zookeeper.security.acl, AclPolicy::CreatorReadable);
}

#[test]
fn a_chroot_leads_the_path() {
    let config = config(&[("zookeeper.servers", "a:1,[::1]:2,c/deep/root")]).unwrap();
    assert_eq!(config.settings.zookeeper.hosts, "a:1,[::1]:2,c:2181");
    assert_eq!(config.settings.root, "/deep/root/election");
    assert_eq!(config.election, "/election");
}

#[test]
fn an_error_begins_with_its_key_and_says_what_to_write_instead() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (key, wrong) in [
        ("zookeeper.servers", "a:0"),
        ("zookeeper.tick_time", "soon"),
        ("zookeeper.session_timeout", "0s"),
        ("election.path", "/"),
        ("election.prefix", "a/b"),
        ("election.compatible_with", "etcd"),
        ("member.id", ""),
        ("member.id", "a b"),
        ("member.id", "ä"),
        ("member.address", "a b:1"),
        ("lease.heartbeat", "19ms"),
        ("http.listen", "4040"),
        ("http.listen", "unix:"),
        ("http.listen", "unix:run/x.sock"),
        ("http.listen", "unix:/run/"),
        ("http.listen", &*long),
        ("http.probe_listen", "4041"),
        ("health.check", "x"),
        ("health.check", "https://h/"),
        ("health.check", "http://"),
        ("health.check", "http://u:p@h/"),
        ("health.check", "./check"),
        ("health.interval", "0s"),
        ("health.timeout", "x"),
        ("health.failures", "0"),
        ("exec.on_exit", "maybe"),
        ("exec.kill_after", "soon"),
    ] {
        let error = config(&[(key, wrong)]).unwrap_err();
        let has_remedy = error.contains(": ") || error.contains(" must ");
        assert!(has_remedy, "{wrong:?}: what to write instead: {error}");
        assert!(error.starts_with(key), "{wrong:?}: {error}");
    }
    assert!(error(&[("member.address", &"x".repeat(600))]).contains("1024"));
    assert!(error(&[("member.labels", "=x")]).contains("is not a label"));
}

#[test]
fn what_another_clients_election_cannot_have_is_refused() {
    let among = |more: &[(&'static str, &'static str)]| {
        [&[("election.compatible_with", "curator-latch")][..], more].concat()
    };
    let settings = config(&among(&[])).unwrap().settings;
    assert_eq!(settings.znodes.family(), Some(ForeignClient::CuratorLatch));
    // As `check-config` shows the defaults, they may be written.
    let default = [("election.prefix", "leader_")];
    assert!(config(&among(&default)).is_ok());
    assert_eq!(
        error(&among(&[("election.prefix", "app_")])),
        "election.prefix = \"app_\" is only for an election of our own, and election.compatible_with = \
         \"curator-latch\": leave one of them out"
    );
    assert_eq!(
        error(&among(&[("recipes.root", "/election/shared")])),
        "recipes.root = \"/election/shared\" is in election.path = \"/election\", where Curator's LeaderLatch takes \
         every znode for a contender: give it a path elsewhere, or switch recipes off with \"\""
    );
    assert_eq!(
        error(&among(&[("election.priority", "90")])),
        "election.priority = \"90\" is only for an election of our own, and election.compatible_with = \
         \"curator-latch\": leave one of them out"
    );
    assert!(error(&among(&[("election.preempt_after", "1m")])).contains("only for an election"));
}

#[test]
fn an_error_quotes_a_health_check_unless_it_may_contain_a_secret() {
    let text = |check: &str| error(&[("health.check", check)]);
    assert!(text("foo").starts_with("health.check = \"foo\" is not a URL"), "{}", text("foo"));
    for secret in ["http://u:hush@h/", "https://h/?key=hush", "check --password=hush"] {
        assert!(!text(secret).contains("hush"), "{}", text(secret));
    }
}

#[test]
fn an_error_does_not_quote_a_value_that_may_be_secret() {
    let files = ["tls.ca", "tls.cert", "tls.key", "credentials_file"];
    let keys = files.map(|file| format!("zookeeper.{file}"));
    for row in table::ALL {
        if row.key == "zookeeper.auth" || keys.contains(&row.key.to_owned()) {
            let error = config(&[(row.key, "app:hush")]).err().unwrap_or_default();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

#[test]
fn a_command_is_run_only_where_there_is_time_to_end_it() {
    let with_command = |kill_after: &str, session_timeout: &str| {
        let flags =
            [("exec.kill_after", kill_after), ("zookeeper.session_timeout", session_timeout)];
        Ok::<_, String>(config(&flags)?.with_command()?)
    };
    assert_eq!(with_command("2s", "10s").unwrap().reserve, Duration::from_millis(2500));
    assert!(with_command("5389ms", "10s").is_ok());
    let error = with_command("5390ms", "10s").expect_err("6.89 s - 1 s - 0.5 s");
    let keys = ["exec.kill_after", "session_timeout", "tick_time", "lease.heartbeat", "than 5.39s"];
    assert!(keys.iter().all(|key| error.contains(key)), "{error}");
    let checked = config(&[("health.check", "/app/check")]).unwrap();
    let error = checked.with_command().unwrap_err().to_string();
    assert!(error.starts_with("health.check"), "{error}");
}

#[test]
fn a_session_too_short_for_a_lease_is_refused() {
    let error = error(&[("zookeeper.session_timeout", "1s")]);
    assert!(error.contains("zookeeper.session_timeout = 1s"), "{error}");
}

#[test]
fn recipes_stand_below_one_root_or_are_switched_off() {
    let paths = |root: &str| {
        let values = [("zookeeper.servers", "a:1/deep"), ("recipes.root", root)];
        let recipes = config(&values).unwrap().recipes;
        recipes.map(|paths| [paths.locks, paths.barriers, paths.config])
    };
    assert_eq!(config(&[]).unwrap().recipes.expect("by default").locks, "/locks");
    let below =
        |root: &str| Some(["locks", "barriers", "config"].map(|recipe| format!("{root}/{recipe}")));
    assert_eq!(paths("/"), below("/deep"));
    assert_eq!(paths("/a/b"), below("/deep/a/b"));
    assert_eq!(paths(""), None);
    for wrong in ["locks", "/a/", "/a//b", "/.."] {
        let error = error(&[("recipes.root", wrong)]);
        assert!(error.contains("recipes.root") && error.contains("\"/\""), "{error}");
    }
    for (root, election) in
        [("/", "/locks"), ("/", "/config/a"), ("/a", "/a/barriers"), ("/a", "/a/locks/b")]
    {
        let inside = error(&[("recipes.root", root), ("election.path", election)]);
        assert!(inside.contains("election.path") && inside.contains("recipes.root"), "{inside}");
    }
    for (root, election) in
        [("/", "/locksmith"), ("/a", "/a"), ("/a", "/a/election"), ("", "/locks")]
    {
        assert!(config(&[("recipes.root", root), ("election.path", election)]).is_ok());
    }
}
