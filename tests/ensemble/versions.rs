//! Servers of other versions than the one that all other tests run: `scripts/zookeeper` loads them.

use crate::{
    certificates::put,
    identities::{PASSWORD, jaas},
    member::Setup,
    servers::{Servers, Settings},
    wait::eventually,
};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Returns the class path of the server of this suite of Debian.
fn class_path(suite: &str) -> Option<String> {
    let Output { status, stdout, stderr } =
        Command::new("scripts/zookeeper").arg(suite).output().expect("bash is installed");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    Some(String::from_utf8(stdout).expect("text").trim().to_owned())
}

fn one_of(settings: Settings) -> Servers {
    let mut servers = Servers::prepared(&settings);
    servers.start();
    servers
}

#[test]
fn a_server_that_is_too_old_is_named_once() {
    let old = one_of(Settings { class_path: class_path("bullseye"), ..Settings::default() });
    let required =
        format!("ZooKeeper 3.5 or newer is required: {} runs 3.4.13", old.connect_string());
    let a = Setup::of(&old).short_sessions().start("a");
    eventually("the status says what is required", || {
        let status = a.status();
        let problem = status["session"]["problem"].as_str().unwrap_or_default();
        if problem.contains(&required) { Ok(()) } else { Err(status.to_string()) }
    });
    // Beyond several attempts: a second member's come in the meantime.
    let b = Setup::of(&old).short_sessions().start("b");
    b.wait_for_log(&required);
    let warnings = a.log().lines().filter(|line| line.contains(" WARN ")).count();
    assert_eq!(warnings, a.log().matches(&required).count(), "{}", a.log());

    let checked = Command::new(env!("CARGO_BIN_EXE_bellwether"))
        .args(["check-config", "--id", "a", "--connect", "--zookeeper", &old.connect_string()])
        .output()
        .expect("the binary runs");
    assert_eq!(checked.status.code(), Some(3), "{checked:?}");
    let shown = String::from_utf8_lossy(&checked.stdout);
    assert!(shown.contains(&format!("cannot be used: {required}")), "{shown}");
}

#[test]
fn a_server_in_fips_mode_is_named_as_the_cause_of_a_refused_login() {
    let home = TempDir::with_prefix("bellwether-versions-").expect("a temporary directory");
    let jaas = jaas(home.path());
    let login = put(home.path(), "login", &format!("app:{PASSWORD}\n")).display().to_string();
    let start = |fips: bool| {
        one_of(Settings {
            class_path: class_path("sid"),
            more: "sessionRequireClientSASLAuth=true\n\
                   authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
                .into(),
            properties: vec![jaas.clone(), format!("zookeeper.fips-mode={fips}")],
            ..Settings::default()
        })
    };
    let with_login = |servers: &Servers| {
        let setup = Setup::of(servers).short_sessions();
        setup.option("--auth", "sasl").option("--credentials-file", &login)
    };
    let strict = start(true);
    with_login(&strict).start("a").wait_for_log("or set zookeeper.fips-mode=false on all servers");
    let lenient = start(false);
    with_login(&lenient).start("a").wait_for_log("became leader");
}
