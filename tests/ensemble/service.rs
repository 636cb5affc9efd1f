//! A member as a service: what it notifies the service manager of, and what SIGHUP makes it read again.

use crate::{
    group::started_in_order,
    member::{Setup, ok},
    servers::Servers,
    wait::eventually,
};
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

#[test]
fn it_notifies_systemd_of_its_readiness_and_that_its_loop_runs() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let notified = UnixDatagram::bind(&path).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let socket = format!("NOTIFY_SOCKET={}", path.display());
    let setup = Setup::of(&servers).run_by(&["env", &socket, "WATCHDOG_USEC=300000"]);
    let [mut member] = started_in_order(&setup, ["a"]);
    let mut lines = BTreeSet::new();
    let mut wait_for = |wanted: &[&str]| {
        while !wanted
            .iter()
            .all(|wanted| lines.iter().any(|line: &String| line.starts_with(wanted)))
        {
            let mut message = [0; 1024];
            let length = notified.recv(&mut message).expect("it goes on notifying");
            let message = String::from_utf8(message[..length].to_vec()).unwrap();
            lines.extend(message.lines().map(str::to_owned));
        }
    };

    wait_for(&["READY=1", "WATCHDOG=1"]);
    member.signal("TERM");
    wait_for(&["STOPPING=1"]);
    member.wait();
}

#[test]
fn on_sighup_it_takes_over_what_can_change_and_logs_what_cannot() {
    let servers = Servers::standalone();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let write = |member: &str, level: &str| {
        fs::write(path, format!("[member]\n{member}\n[log]\nlevel = \"{level}\"\n")).unwrap();
    };
    write("labels = { zone = \"a\" }", "info");
    let setup = Setup::of(&servers).option("--config", path);
    let [member, other] = started_in_order(&setup.run_by(&["env", "--unset=RUST_LOG"]), ["a", "b"]);
    let wait_for_log = |words: &str| {
        eventually("it logs so", || {
            let log = member.log();
            if log.contains(words) { Ok(()) } else { Err(log) }
        });
    };

    write("labels = { zone = \"b\" }\naddress = \"h:1\"", "debug");
    fs::write(
        path,
        fs::read_to_string(path).unwrap() + "[election]\nprefix = \"n_\"\npriority = 70\n",
    )
    .unwrap();
    member.signal("HUP");
    wait_for_log(
        "election.prefix changed to \"n_\"; restart to apply it (still using \"leader_\")",
    );
    wait_for_log("DEBUG bellwether");
    let start = Instant::now();
    eventually("the new address and label are announced to the other", || {
        let leader = ok(&other, "/leader")["leader"].clone();
        let well = leader["address"] == "h:1" && leader["labels"] == json!({"zone": "b"});
        if well { Ok(()) } else { Err(format!("{leader} after {:?}", start.elapsed())) }
    });

    eventually("its priority is told", || match ok(&other, "/members")["members"][0]["priority"] {
        ref priority if *priority == 70 => Ok(()),
        ref priority => Err(priority.to_string()),
    });

    write("labels = 7", "debug");
    member.signal("HUP");
    wait_for_log("all stays as it was");
    assert_eq!(ok(&member, "/member")["labels"], json!({"zone": "b"}));
    assert_eq!(member.get("/is-leader").status, 200);
}
