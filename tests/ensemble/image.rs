//! The binary of the container image: small, and able to run where there is nothing else.

use crate::{
    command::url,
    group::{ready, started_in_order},
    member::{Member, Setup},
    names::serve_names,
    network::Network,
    process::{cpu_time, tied_to_this_thread},
    pseudoterminal::reads_from_the_terminal,
    servers::{Servers, Settings},
    wait::eventually,
};
use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// The largest size allowed, with every feature of the image built in: deploy/README.md says what takes how much.
const LARGEST_BYTES: u64 = 7_350_000;

/// Where a name server is reached from all hosts of a test's network.
pub(crate) const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

/// No shell, no library, no /proc, no /dev: only the binary and the names' configuration, as in the image.
#[test]
fn with_nothing_else_there_it_finds_zookeeper_by_name() {
    let binary = static_binary();
    let bytes = fs::metadata(&binary).expect("it was built").len();
    assert!(bytes <= LARGEST_BYTES, "{binary} has {bytes} bytes");

    let root = tempfile::tempdir().expect("a temporary directory");
    let root = root.path();
    fs::copy(&binary, root.join("bellwether")).expect("room for a copy");
    fs::create_dir(root.join("etc")).expect("an empty directory");
    // As a kubelet writes it: a short name is looked for in the namespace first.
    let resolver = format!("nameserver {SWITCH}\nsearch example.test\noptions ndots:5\n");
    fs::write(root.join("etc/resolv.conf"), resolver).expect("an empty directory");

    let network = Network::new(1, 1);
    let server_at = network.servers[0].address;
    let asked = serve_names(SWITCH, "zookeeper.example.test", server_at);
    let mut servers = Servers::prepared_on(&network.servers, &Settings::default());
    servers.start();
    let setup = Setup::at(format!("zookeeper:{}", servers.first().socket().port()))
        .program("/bellwether".to_owned())
        .run_by(&["chroot", root.to_str().expect("a path of ASCII")]);
    let member = setup.start_on(&network.members[0], "a");
    eventually("it leads", || ready(&member));
    assert!(asked.lock().unwrap().contains(&"zookeeper.example.test".to_owned()));

    // What the image and the manifests have the container runtime call.
    assert!(called(&member, root, &["probe", "live"]).success());
    assert!(called(&member, root, &["probe", "is-leader"]).success());
    assert!(called(&member, root, &["drain"]).success());
    assert!(!called(&member, root, &["probe", "is-leader"]).success());
}

/// What is for trying and developing is not in it, nor in its help.
#[test]
fn without_dev_it_says_how_to_come_by_it() {
    let binary = static_binary();
    let (code, printed) = ran(&binary, &["dev", "--members", "3"]);
    assert_eq!((code, printed.lines().count()), (Some(2), 1), "{printed}");
    assert!(
        printed.contains("this build has no `dev`") && printed.contains("`cargo run -- dev`"),
        "{printed}"
    );
    let (code, help) = ran(&binary, &["--help"]);
    assert!(code == Some(0) && !help.contains("in-memory"), "{help}");
}

#[test]
fn without_kerberos_it_says_where_there_is_one() {
    let binary = static_binary();
    for command in ["run", "check-config", "inspect"] {
        let (code, printed) = ran(&binary, &[command, "--auth", "kerberos"]);
        assert_eq!((code, printed.lines().count()), (Some(2), 1), "{command}: {printed}");
        let image = format!("the image {}-kerberos", env!("CARGO_PKG_VERSION"));
        for words in ["this build has no Kerberos", "use the Debian package", &image] {
            assert!(printed.contains(words), "{command}: {printed}");
        }
    }
}

/// Not part of the tests: what a member takes of a machine while nothing happens. See `scripts/footprint`.
#[test]
#[ignore = "takes a minute, and tells rather than checks"]
#[allow(clippy::print_stdout, reason = "that is what it is for")]
fn footprint() {
    const IDLE: Duration = Duration::from_secs(60);
    let binary = static_binary();
    println!("size               {} bytes", fs::metadata(&binary).expect("it was built").len());
    let servers = Servers::standalone();
    let setup = Setup::of(&servers)
        .program(binary)
        .run_by(&["env", "RUST_LOG=info"])
        .option("--probe-listen", "127.0.0.1:0");
    let members: [Member; 3] = started_in_order(&setup, ["leader", "second", "third"]);
    let before = members.each_ref().map(|member| cpu_time(member.process_id()));
    thread::sleep(IDLE);
    println!("id                 CPU      resident  most so far  threads  files");
    for (member, before) in members.iter().zip(before) {
        let process = member.process_id();
        let cpu = (cpu_time(process) - before).as_secs_f64() * 1000.0 / IDLE.as_secs_f64();
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("every process has it").trim().to_owned()
        };
        let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it is ours").count();
        println!(
            "{:<10} {cpu:>6.2} ms/s  {:>10}  {:>11}  {:>7}  {files:>5}",
            member.id,
            field("VmRSS:"),
            field("VmHWM:"),
            field("Threads:"),
        );
    }
}

/// Builds the binary with the script that builds it for the image, and returns its path.
fn static_binary() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/static");
    let built = Command::new(script).stderr(Stdio::piped()).output().expect("it is a script");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    String::from_utf8(built.stdout).expect("a path").trim().to_owned()
}

/// Runs the binary, and returns its exit code and what it printed.
fn ran(binary: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary).args(arguments).output().expect("it was built");
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(both).expect("it is text"))
}

/// Runs another process of the same image beside this member.
fn called(member: &Member, root: &Path, arguments: &[&str]) -> ExitStatus {
    let url = format!("http://127.0.0.1:{}", member.port());
    let mut command = tied_to_this_thread("chroot");
    command.arg(root).arg("/bellwether").args(arguments).args(["--url", &url]);
    member.host().inside(|| command.status().expect("setpriv is installed"))
}

/// The release build, with what `lock` and the others need of a terminal.
#[test]
fn its_commands_run_programs_at_a_terminal() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    reads_from_the_terminal(&static_binary(), &servers, &url(&member));
}
