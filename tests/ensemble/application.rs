//! What an application says of itself: that it is healthy.

use crate::{
    group::{agreed, has_role, ready, started_in_order},
    member::{Member, Setup},
    servers::Servers,
    wait::eventually,
};
use serde_json::json;
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tempfile::TempDir;

/// An application whose health check answers 200 or 500.
struct Application {
    port: u16,
    well: Arc<AtomicBool>,
}

impl Application {
    fn new(well: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let well = Arc::new(AtomicBool::new(well));
        let is_well = Arc::clone(&well);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                // Only the request line matters, and it comes in one piece.
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap_or(0);
                let status = match request[..read].starts_with(b"GET /healthz?deep=1 ") {
                    true if is_well.load(Ordering::SeqCst) => "200 OK",
                    true => "500 Oh",
                    false => "404 What",
                };
                let _gone = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Self { port, well }
    }

    fn becomes(&self, well: bool) {
        self.well.store(well, Ordering::SeqCst);
    }

    fn guards(&self, setup: &Setup) -> Setup {
        setup
            .clone()
            .option("--app-health", &format!("http://127.0.0.1:{}/healthz?deep=1", self.port))
            .option("--app-health-interval", "50ms")
            .option("--app-health-failures", "2")
    }
}

#[test]
fn three_applications_fail_in_every_order_and_no_member_leads() {
    let servers = Servers::standalone();
    for order in ORDERS {
        let (applications, members) = healthy_three(&servers, order);
        for (failed, &nth) in order.iter().enumerate() {
            applications[nth].becomes(false);
            eventually("it leaves the queue", || has_role(&members[nth], "absent"));
            let well: Vec<_> = order[failed + 1..].iter().map(|&nth| &members[nth]).collect();
            if !well.is_empty() {
                agreed(well);
            }
        }
        for member in &members {
            assert_eq!(member.get("/leader").status, 503, "{order:?}");
            let ready = member.get("/readyz");
            assert!(ready.body.contains("its application is not healthy"), "{ready:?}");
        }
        let status = members[0].status();
        assert_eq!(
            status["application"],
            json!({"healthy": false, "failure": "the answer is 500 Internal Server Error"})
        );

        applications[order[1]].becomes(true);
        assert_eq!(agreed([&members[order[1]]]).id, members[order[1]].id, "{order:?}");
    }
}

/// A command that hangs has failed, and nothing is left of it.
#[test]
fn a_command_tells_by_its_end_how_the_application_is() {
    let home = TempDir::new().expect("a directory");
    let (check, verdict) = (home.path().join("check"), home.path().join("verdict"));
    let pids = home.path().join("pids");
    let script = format!("#!/bin/sh\necho $$ >> {}\n. {}\n", pids.display(), verdict.display());
    fs::write(&verdict, "exit 0").expect("a file");
    fs::write(&check, script).expect("a file");
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).expect("our own file");
    let servers = Servers::standalone();
    let setup = Setup::of(&servers)
        .option("--app-health", &format!("{} with arguments", check.display()))
        .option("--app-health-interval", "50ms")
        .option("--app-health-timeout", "500ms")
        .option("--app-health-failures", "1");
    let [member] = started_in_order(&setup, ["a"]);
    let failure = |words: &str| {
        eventually("the check fails", || {
            let status = member.status();
            let failure = status["application"]["failure"].to_string();
            if failure.contains(words) { Ok(()) } else { Err(status.to_string()) }
        });
        eventually("it leaves the queue", || has_role(&member, "absent"));
    };

    fs::write(&verdict, "exit 3").expect("a file");
    failure("exit code 3");
    fs::write(&verdict, "exit 0").expect("a file");
    eventually("it is ready again", || ready(&member));
    fs::write(&verdict, "sleep 1000 & sleep 1000").expect("a file");
    failure("not done within 500ms");
    fs::write(&verdict, "exit 0").expect("a file");
    eventually("it is ready again", || ready(&member));
    let pids = fs::read_to_string(&pids).expect("a file");
    let groups: Vec<&str> = pids.lines().collect();
    eventually("nothing is left of any check", || {
        let processes = fs::read_dir("/proc").expect("proc").filter_map(Result::ok);
        let stats = processes.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
        let is_left = |stat: &String| {
            // State, parent, group.
            let mut words = stat.rsplit(')').next().expect("a name").split_whitespace();
            let state = words.next();
            state != Some("Z") && words.nth(1).is_some_and(|group| groups.contains(&group))
        };
        let left: Vec<_> = stats.filter(is_left).collect();
        // A check that runs at this moment is a single process, without a sleep.
        if left.iter().any(|stat| stat.contains("sleep")) { Err(left.concat()) } else { Ok(()) }
    });
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn healthy_three(servers: &Servers, order: [usize; 3]) -> ([Application; 3], [Member; 3]) {
    let [first, second, last] = order;
    let setup = Setup::of(servers).option("--election", &format!("/{first}-{second}-{last}"));
    let applications = [(); 3].map(|()| Application::new(true));
    let members: Vec<Member> = applications
        .iter()
        .zip(["a", "b", "c"])
        .map(|(application, id)| {
            let [member] = started_in_order(&application.guards(&setup), [id]);
            member
        })
        .collect();
    let members: [Member; 3] = members.try_into().ok().expect("three");
    assert_eq!(agreed(&members).id, "a");
    (applications, members)
}
