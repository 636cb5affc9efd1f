//! Where a member listens besides its port of the loopback.

use crate::{
    described::routes,
    group::started_in_order,
    member::{Setup, agent},
    servers::Servers,
    wait::{LIMIT, eventually},
};
use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::{UnixDatagram, UnixStream},
    path::Path,
    time::{Duration, Instant},
};
use ureq::http::Request;

/// The probe listener serves probes only, so a client on another host can do no harm there.
#[test]
fn probes_have_a_listener_of_their_own() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--probe-listen", "127.0.0.1:0");
    let [member] = started_in_order(&setup, ["a"]);
    let log = member.log();
    let port = log.split("probes answered on 127.0.0.1:").nth(1).expect("it says so");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let status = |method: &str, path: &str| {
        let request = Request::builder().method(method).header("x-bellwether", "1");
        let request = request.uri(format!("http://127.0.0.1:{port}{path}")).body(()).unwrap();
        agent().run(request).expect("an answer").status().as_u16()
    };

    let yes = ["/livez", "/readyz", "/is-leader", "/primary", "/leader", "/metrics"];
    let no = ["/is-follower", "/replica"];
    for path in yes {
        assert_eq!(status("GET", path), 200, "{path}");
    }
    for path in no {
        assert_eq!(status("GET", path), 503, "{path}");
    }
    for route in routes(&member) {
        let path = &*route.path;
        if !yes.contains(&path) && !no.contains(&path) {
            for method in &route.methods {
                assert_eq!(status(method, path), 404, "{method} {path}");
            }
        }
    }
    assert_eq!(member.get("/is-leader").status, 200, "it has obeyed no command");
}

/// A new client is answered on either listener, however many others keep their connections and ask nothing more, or
/// nothing at all. The limit on open files leaves few places, 80 and 40.
#[test]
fn kept_connections_do_not_keep_new_clients_out() {
    let servers = Servers::standalone();
    let few_files = ["prlimit", "--nofile=240:240"];
    let setup = Setup::of(&servers).run_by(&few_files).option("--probe-listen", "127.0.0.1:0");
    let [member] = started_in_order(&setup, ["a"]);
    for port in [member.port(), member.probe_port()] {
        let visit = || {
            let visitor = TcpStream::connect(("127.0.0.1", port)).unwrap();
            visitor.set_read_timeout(Some(LIMIT)).unwrap();
            visitor
        };
        let told = |mut visitor: &TcpStream, path: &str| {
            write!(visitor, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            let (mut told, mut piece) = (String::new(), [0; 1024]);
            while !told.contains("\r\n\r\n") {
                let read = visitor.read(&mut piece).expect("it is answered");
                assert_ne!(read, 0, "{port}: it is let go after {told:?}");
                told.push_str(std::str::from_utf8(&piece[..read]).unwrap());
            }
            told
        };
        let mut kept = vec![];
        for silent in [false, true] {
            for _ in 0..160 {
                let visitor = visit();
                if !silent {
                    assert!(told(&visitor, "/is-leader").starts_with("HTTP/1.1 200 "));
                }
                kept.push(visitor);
            }
            let asked = Instant::now();
            let answer = told(&visit(), "/livez");
            let took = asked.elapsed();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{port}: {answer}");
            // A kubelet waits one second, which is less than either listener lets a silent connection be.
            assert!(took < Duration::from_secs(1), "{port}, silent {silent}: {took:?}");
        }
    }
}

#[test]
fn a_unix_socket_is_served_like_a_port() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bellwether.sock");
    let setup = Setup::of(&servers).listen(&format!("unix:{}", path.display()));
    let mut member = setup.start("a");
    let leads = || {
        eventually("the member leads", || match ask(&path, "/is-leader") {
            Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };

    leads();
    let mut other = setup.start("b");
    let (status, _) = other.wait();
    let said = other.log();
    assert_eq!(status.code(), Some(1), "another one is there already: {said}");
    assert!(said.contains("http.listen") && said.contains("bellwether.sock"), "{said}");
    leads();

    // What is left of a process that was killed is not in the way of the next.
    member.kill();
    assert!(path.exists());
    let mut member = setup.start("a");
    leads();
    member.signal("TERM");
    member.wait();
    assert!(!path.exists(), "it is gone with its member");
}

/// Anything else at the socket's path stays, and stays as it is.
#[test]
fn only_a_socket_without_a_listener_is_replaced() {
    let servers = Servers::standalone();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let _datagrams = UnixDatagram::bind(at("datagrams")).unwrap();
    fs::write(at("file"), "words").unwrap();
    for (name, why) in [
        ("datagrams", "another process"),
        ("file", "not a socket"),
        ("nowhere/x.sock", "directory"),
    ] {
        let setup = Setup::of(&servers).listen(&format!("unix:{}", at(name).display()));
        let mut member = setup.start("a");
        let (status, _) = member.wait();
        assert_eq!(status.code(), Some(1), "{name}");
        member.wait_for_log(why);
    }
    assert!(at("datagrams").exists() && at("file").exists());
}

fn ask(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
