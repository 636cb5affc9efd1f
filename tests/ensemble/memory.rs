//! Clients that take what they can get of the sidecar's memory: those of its application are answered all the same, and the
//! process stays small. On the in-memory server alone: 80 MB of values are more than a test's ZooKeeper has room for.

use crate::{
    configuration::put,
    group::started_in_order,
    member::{Member, Setup, ok},
    process::peak_kib,
    servers::Servers,
    wait::eventually,
};
use rustix::{
    net::{AddressFamily, SocketType, connect, socket, sockopt::set_socket_recv_buffer_size},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    time::{Duration, Instant},
};

/// As many as the sidecar has slots for.
const CONNECTIONS: usize = 2048;

/// How much more memory the process may take than without these clients: 48 MiB, less what an idle one takes.
const MOST_KIB: u64 = 40 * 1024;

const VALUE: usize = 1_000_000;

#[test]
fn clients_that_read_no_answer_do_not_keep_others_from_theirs() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    allow_files(2 * CONNECTIONS);
    let before = peak_kib(member.process_id());
    let asks = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(8);
    let unread: Vec<_> = (0..CONNECTIONS).map(|_| asked(&member, asks.as_bytes())).collect();
    // Those who have just begun are given time.
    eventually("a probe is answered", || answered_soon(&member));
    for _ in 0..50 {
        answered_soon(&member).expect("each probe is answered within a second");
    }
    grew_little(&member, before);
    drop(unread);
}

#[test]
fn uploads_without_an_end_take_no_more_memory_than_there_is_for_all() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let before = peak_kib(member.process_id());
    let head = format!(
        "PUT /config/x HTTP/1.1\r\nhost: localhost\r\nx-bellwether: 1\r\ncontent-length: {VALUE}\r\n\r\n"
    );
    let all_but_the_end = [head.as_bytes(), &[b'x'; VALUE - 1]].concat();
    let withheld: Vec<_> = (0..300).map(|_| asked(&member, &all_but_the_end)).collect();
    answered_soon(&member).expect("a probe is answered within a second");
    grew_little(&member, before);
    drop(withheld);
    eventually("the next one is taken", || {
        let answer = put(&member, "/config/x", &[], "value");
        if answer.status == 201 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
}

#[test]
fn values_that_are_asked_for_and_not_read_take_no_more_memory_than_there_is_for_all() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let value = "x".repeat(VALUE);
    for n in 0..80 {
        eventually("the value is written", || {
            let answer = put(&member, &format!("/config/v{n}"), &[], &value);
            if matches!(answer.status, 200 | 201) { Ok(()) } else { Err(format!("{answer:?}")) }
        });
    }
    let before = peak_kib(member.process_id());
    let unread: Vec<_> = (0..80)
        .map(|n| {
            let asks = format!("GET /config/v{n} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            asked(&member, asks.as_bytes())
        })
        .collect();
    for client in &unread {
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        assert_eq!(client.peek(&mut [0]).expect("its answer begins"), 1);
    }
    answered_soon(&member).expect("a probe is answered within a second");
    grew_little(&member, before);
    drop(unread);
    // Values are kept for a while after the last question for them.
    eventually("a value can be read again", || {
        let answer = member.get("/config/v0");
        if answer.status == 200 { Ok(()) } else { Err(format!("{}", answer.status)) }
    });
    ok(&member, "/leader");
}

#[test]
fn heads_without_an_end_beside_unread_values_take_little() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    allow_files(2 * CONNECTIONS);
    let value = "x".repeat(VALUE);
    let values = 0..11;
    for n in values.clone() {
        assert_eq!(put(&member, &format!("/config/v{n}"), &[], &value).status, 201);
    }
    let before = peak_kib(member.process_id());
    let unread: Vec<_> = values
        .map(|n| {
            let asks = format!("GET /config/v{n} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            asked(&member, asks.as_bytes())
        })
        .collect();
    let head = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}", "a".repeat(20_000));
    let heads: Vec<_> =
        (unread.len()..CONNECTIONS - 8).map(|_| asked(&member, head.as_bytes())).collect();
    for _ in 0..50 {
        answered_soon(&member).expect("each probe is answered within a second");
    }
    grew_little(&member, before);
    drop((unread, heads));
}

/// Connects with a small window, asks, and reads nothing.
fn asked(member: &Member, request: &[u8]) -> TcpStream {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).expect("one more file");
    set_socket_recv_buffer_size(&client, 4096).expect("a size that is allowed");
    connect(&client, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, member.port())).expect("it listens");
    let mut client = TcpStream::from(client);
    client.set_write_timeout(Some(Duration::from_secs(2))).expect("a time");
    // It may be refused before it is sent in full.
    let _refused = client.write_all(request);
    client
}

fn answered_soon(member: &Member) -> Result<(), String> {
    let asked = Instant::now();
    let status = member.get("/livez").status;
    let took = asked.elapsed();
    if status == 200 && took < Duration::from_secs(1) {
        Ok(())
    } else {
        Err(format!("{status} after {took:?}"))
    }
}

#[track_caller]
fn grew_little(member: &Member, before: u64) {
    let after = peak_kib(member.process_id());
    assert!(after - before < MOST_KIB, "from {before} KiB to {after} KiB");
}

fn allow_files(files: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(files).ok();
    setrlimit(Resource::Nofile, Rlimit { current: wanted.max(limit.current), ..limit })
        .expect("the hard limit is higher");
}
