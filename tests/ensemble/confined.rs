//! What the process can be denied, and which ports it does not open.

use crate::{
    member::Setup,
    network::Network,
    process::{Process, tied_to_this_thread},
    servers::Servers,
    wait::{eventually, throughout},
};
use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::Path,
    process::Stdio,
    time::Duration,
};

/// A socket that listens on 127.0.0.1:4040, as the kernel writes it: its ends and its state in hexadecimal, the
/// address in this machine's byte order.
const ONLY: &str = " 0100007F:0FC8 00000000:0000 0A ";

/// Runs on a host of its own, where nothing else has any socket.
#[test]
fn without_configuration_it_opens_one_port_of_the_loopback_and_nothing_else() {
    let network = Network::new(0, 1);
    let mut command = tied_to_this_thread(env!("CARGO_BIN_EXE_bellwether"));
    let process = network.members[0]
        .inside(|| Process::start(command.arg("run").env_clear().stderr(Stdio::null())));
    let table = |name: &str| {
        let read = fs::read_to_string(format!("/proc/{}/net/{name}", process.id()));
        let lines = read.unwrap_or_default();
        lines.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("it serves", || {
        let rows = table("tcp");
        let ours = rows.iter().any(|row| row.contains(ONLY));
        if ours { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    let listens = |row: &String| row.contains(" 0A ");
    // The flag of a socket that takes connections.
    let accepts = |row: &String| row.contains(" 00010000 ");
    throughout("that is all", Duration::from_secs(1), || {
        let mut others = table("tcp");
        others.retain(|row| listens(row) && !row.contains(ONLY));
        others.extend(table("tcp6").into_iter().filter(listens));
        others.extend(table("unix").into_iter().filter(accepts));
        others.extend(["udp", "udp6", "udplite", "raw", "raw6", "packet"].map(table).concat());
        if others.is_empty() { Ok(()) } else { Err(format!("{others:?}")) }
    });
}

/// The process runs as the user 65534, has no capability and no way to get one, and can write only where it is told
/// to.
#[test]
fn it_needs_no_rights_and_writes_only_where_it_is_told_to() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| directory.path().join(name);
    let config = format!("[[hook]]\nfile = \"{}\"\n", at("leader.json").display());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), config).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let denied = tempfile::tempdir().unwrap();
    fs::set_permissions(denied.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Every mount is made read-only but one, and it is checked that this is so.
    let confine = r#"
        set -eu
        mount --bind "$1" "$1"
        while read -r _ _ _ _ mount _; do
            [ "$mount" = "$1" ] || mount -o remount,bind,ro "$mount" 2>&1 || true
        done < /proc/self/mountinfo > "$1/mounts"
        denied=$2
        shift 2
        # Without root on the host, the tests are root in this namespace, which knows no other user.
        nobody='--reuid 65534 --regid 65534 --clear-groups'
        [ "$(awk '{ print $3 }' /proc/self/uid_map)" -gt 65534 ] || nobody=
        exec setpriv $nobody --bounding-set=-all \
            --inh-caps=-all --no-new-privs --pdeathsig KILL -- sh -c '
                for place in "$0" /tmp /var/tmp /dev/shm /run /; do
                    if touch "$place/written" 2>&1; then echo "$place can be written in" >&2; exit 99; fi
                done > /dev/null
                exec "$@"' "$denied" "$@"
    "#;
    let (path, denied) = (directory.path().to_str().unwrap(), denied.path().to_str().unwrap());
    let setup = Setup::of(&servers)
        .listen(&format!("unix:{}", at("socket").display()))
        .option("--config", file.path().to_str().unwrap())
        .run_by(&["unshare", "--mount", "sh", "-c", confine, "sh", path, denied]);
    let mut member = setup.start("a");

    let leads = eventually("it leads, and its hook says so", || {
        let answer = ask(&at("socket"), "/is-leader")
            .map_err(|error| format!("{error}: {}", member.log()))?;
        let told = fs::read_to_string(at("leader.json")).map_err(|error| error.to_string())?;
        let leads = answer.starts_with("HTTP/1.1 200 ") && told.contains("\"is_self\":true");
        if leads { Ok(answer) } else { Err(format!("{answer} {told}")) }
    });
    assert!(leads.contains("\"is_leader\":true"), "{leads}");
    let status = fs::read_to_string(format!("/proc/{}/status", member.process_id())).unwrap();
    for (what, is) in [
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("NoNewPrivs", "1"),
    ] {
        let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        assert_eq!(line.map(str::trim), Some(is), "{what}: {status}");
    }
    let of_whom = fs::metadata(format!("/proc/{}", member.process_id())).unwrap().uid();
    let root_here = fs::read_to_string("/proc/self/uid_map").unwrap().ends_with(" 1\n");
    assert!(of_whom == 65534 || root_here, "{status}");
    member.signal("TERM");
    assert_eq!(member.wait().0.code(), Some(0), "{}", member.log());
    assert!(!at("socket").exists(), "and it tidies up");
}

fn ask(socket: &Path, path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
