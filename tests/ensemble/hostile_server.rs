//! A server that lies: whatever it answers, no member ends, spins, grows or leads for longer than it asked for.

use crate::{
    frames::read_frame,
    group::{has_role, started_in_order},
    member::{Member, SHORT_SESSION, Setup, ok},
    process::{cpu_time, peak_kib},
    servers::{Servers, Settings},
    wait::{eventually, throughout},
};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const PING: i32 = 11;
const SASL: i32 = 102;

/// How it answers a request with this number and of this type: whole frames, or what it sends in place of them.
type Lie = fn(xid: i32, kind: i32) -> Vec<u8>;

/// How it answers the request for a session.
type Greeting = fn() -> Vec<u8>;

/// Each with what it is about.
const LIES: &[(&str, Lie)] = &[
    ("the largest count", |xid, _| frame(&[header(xid, 1, 0), be(i32::MAX)])),
    ("a count behind a stat", |xid, _| frame(&[header(xid, 1, 0), vec![0; 68], be(i32::MAX)])),
    ("a negative count", |xid, _| frame(&[header(xid, 1, 0), be(-7)])),
    ("a count with too little behind it", |xid, _| {
        frame(&[header(xid, 1, 0), be(1000), be(1), vec![b'x']])
    }),
    ("no body", |xid, _| frame(&[header(xid, 1, 0)])),
    ("one byte", |xid, _| frame(&[header(xid, 1, 0), vec![1]])),
    ("a long body of zeros", |xid, _| frame(&[header(xid, 1, 0), vec![0; 100_000]])),
    ("a long body of ones", |xid, _| frame(&[header(xid, 1, 0), vec![0xff; 100_000]])),
    ("a path that is no path", |xid, _| {
        frame(&[header(xid, 1, 0), be(4), vec![0xff, 0xfe, b'/', 0], vec![0; 68]])
    }),
    ("another request's number", |xid, _| frame(&[header(xid.wrapping_add(5), 1, 0)])),
    ("a negative transaction", |xid, _| frame(&[header(xid, i64::MIN, 0), vec![0; 80]])),
    ("the largest transaction", |xid, _| frame(&[header(xid, i64::MAX, 0), vec![0; 80]])),
    ("an unknown error", |xid, _| frame(&[header(xid, 1, -9999)])),
    ("the largest error", |xid, _| frame(&[header(xid, 1, i32::MAX)])),
    ("a notification of nothing", |_, _| frame(&[header(-1, 1, 0)])),
    ("a notification of an unknown type", |_, _| {
        frame(&[header(-1, 1, 0), be(99), be(99), be(3), b"/no".to_vec()])
    }),
    ("a frame of 2 GiB", |_, _| [be(i32::MAX), vec![0; 100_000]].concat()),
    ("a frame of negative length", |_, _| [be(-1), vec![0; 100_000]].concat()),
    ("a frame without a header", |_, _| frame(&[vec![1, 2, 3]])),
    ("a pong that was not asked for", |_, _| frame(&[header(-2, 1, 0)]).repeat(1000)),
    ("each answer twice", |xid, _| frame(&[header(xid, 1, 0), vec![0; 80]]).repeat(2)),
    ("no frame at all", |_, _| b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
];

/// The types of requests that a member sends, by their numbers.
const TYPES: &[(&str, i32)] = &[
    ("exists", 3),
    ("getData", 4),
    ("setData", 5),
    ("getACL", 6),
    ("getChildren", 8),
    ("sync", 9),
    ("getChildren2", 12),
    ("multi", 14),
    ("create2", 15),
];

const GREETINGS: &[(&str, Greeting)] = &[
    ("no timeout", || greeting(0, 7, 16)),
    ("a negative timeout", || greeting(-1, 7, 16)),
    ("the largest timeout", || greeting(i32::MAX, 7, 16)),
    ("no session", || greeting(4000, 0, 16)),
    ("a password longer than the frame", || greeting(4000, 7, i32::MAX)),
    ("a password of negative length", || greeting(4000, 7, -5)),
    ("half a greeting", || frame(&[be(0), be(4000)])),
    ("a frame of 2 GiB", || be(i32::MAX)),
];

#[test]
fn no_answer_of_a_server_ends_a_member_or_has_it_grow_or_spin() {
    let lies = LIES.iter().map(|(what, lie)| (*what, hostile(|| greeting(4000, 7, 16), *lie)));
    let greetings = GREETINGS.iter().map(|(what, greeting)| {
        (*what, hostile(*greeting, |xid, _| frame(&[header(xid, 1, 0), vec![0; 80]])))
    });
    let members: Vec<_> = lies
        .chain(greetings)
        .map(|(what, address)| {
            (what, Setup::at(address).sessions(Duration::from_secs(4)).start("a"))
        })
        .collect();
    survive(&members);
}

/// A server that answers well, but for the requests of one type.
#[test]
fn no_answer_to_any_type_of_request_ends_a_member_or_has_it_grow_or_spin() {
    let mut servers = Servers::standalone();
    let server = SocketAddr::V4(servers.first().socket());
    let members: Vec<_> = TYPES
        .iter()
        .map(|(what, kind)| {
            let address = lying_about(server, *kind);
            let setup = Setup::at(address).sessions(Duration::from_secs(4));
            let setup = setup.option("--election", &format!("/{what}"));
            (*what, setup.option("--recipes-root", &format!("/{what}-recipes")).start("a"))
        })
        .collect();
    for (_, member) in &members {
        for path in ["/members", "/locks", "/locks/a", "/barriers/b", "/config", "/config/c"] {
            let _whatever_it_is = member.get(path);
        }
    }
    survive(&members);
}

/// Before it has logged in.
#[test]
fn no_challenge_of_a_server_has_a_member_spin() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let credentials = directory.path().join("credentials");
    fs::write(&credentials, "app:hush\n").expect("it is written");
    let challenges: &[&'static [u8]] = &[
        b"realm=\"\\x\\y",
        b"realm=\"\\",
        b"realm=\"\\\xc3\xa9\\",
        b"realm=",
        b",,,,",
        b"nonce=\"a\",nonce=\"b\",charset=utf-8,algorithm=md5-sess,qop=\"auth\"",
        b"\xff\xfe",
        b"",
    ];
    let members: Vec<_> = challenges
        .iter()
        .map(|challenge| {
            let address = challenging(challenge);
            let setup = Setup::at(address).sessions(Duration::from_secs(4));
            let setup = setup.option("--auth", "sasl");
            let file = credentials.to_str().expect("a path of text");
            ("a challenge", setup.option("--credentials-file", file).start("a"))
        })
        .collect();
    survive(&members);
}

/// Whatever a server grants, two members could lead at once if one were believed that grants a month.
#[test]
fn a_lease_lasts_no_longer_than_was_asked_for_and_longer_sessions_are_a_problem() {
    let granted = Duration::from_secs(15);
    let settings = Settings { min_session_timeout: granted, ..Settings::default() };
    let mut servers = Servers::prepared(&settings);
    servers.start();
    let [leader] = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    eventually("it leads", || has_role(&leader, "leader"));
    throughout("its lease is as short as was asked for", SHORT_SESSION, || {
        let left = ok(&leader, "/leader")["valid_for_ms"].as_u64();
        let asked = u64::try_from(SHORT_SESSION.as_millis()).ok();
        if left.is_some() && left < asked { Ok(()) } else { Err(format!("{left:?}")) }
    });
    let status = leader.status();
    let problem = &status["problems"][0];
    assert_eq!(problem["kind"], "longer-session", "{status}");
    let said = problem["problem"].as_str().expect("a sentence");
    assert!(said.contains("zookeeper.session_timeout to 15s"), "{said}");
    // Two ticks are the shortest session, unless the servers are configured otherwise.
    let problem = &status["problems"][1];
    assert_eq!(problem["kind"], "tick-time", "{status}");
    let seeming = problem["problem"].as_str().expect("a sentence");
    assert!(seeming.contains("a tickTime of 7.5s"), "{seeming}");
    let log = leader.log();
    for logged in [said, seeming, "timeout 2s, lease "] {
        assert_eq!(log.matches(logged).count(), 1, "{logged}: {log}");
    }
}

#[track_caller]
fn survive(members: &[(&str, Member)]) {
    for (what, member) in members {
        eventually(&format!("{what}: it has connected"), || {
            let log = member.log();
            if log.is_empty() { Err("nothing is logged".to_owned()) } else { Ok(()) }
        });
    }
    let before: Vec<_> = members.iter().map(|(_, member)| cpu_time(member.process_id())).collect();
    let begun = Instant::now();
    thread::sleep(LIES_LAST);
    for ((what, member), before) in members.iter().zip(before) {
        assert_eq!(member.get("/livez").status, 200, "{what}: {}", member.log());
        assert!(!member.log().contains("panicked"), "{what}: {}", member.log());
        let cpu = cpu_time(member.process_id()) - before;
        assert!(cpu < begun.elapsed() / 4, "{what}: it spins: {cpu:?}");
        let peak_kib = peak_kib(member.process_id());
        assert!(peak_kib < 64 * 1024, "{what}: it takes {peak_kib} KiB");
    }
}

/// For so long members hear lies.
const LIES_LAST: Duration = Duration::from_secs(4);

/// Passes on what a server answers, but for requests of this type.
fn lying_about(server: SocketAddr, lied_about: i32) -> String {
    let lies = Arc::<AtomicUsize>::default();
    serving(move |client| {
        let mut server = TcpStream::connect(server)?;
        let kinds = Arc::<Mutex<BTreeMap<i32, i32>>>::default();
        let (mut to_client, mut from_server) = (client.try_clone()?, server.try_clone()?);
        let (asked, lies) = (kinds.clone(), lies.clone());
        thread::spawn(move || -> io::Result<()> {
            to_client.write_all(&whole(&mut from_server)?)?;
            loop {
                let reply = whole(&mut from_server)?;
                let xid = number_at(&reply, 4);
                let kind = asked.lock().expect("no thread panics while holding it").remove(&xid);
                if kind == Some(lied_about) {
                    let (_, lie) = LIES[lies.fetch_add(1, Ordering::Relaxed) % LIES.len()];
                    to_client.write_all(&lie(xid, lied_about))?;
                } else {
                    to_client.write_all(&reply)?;
                }
            }
        });
        server.write_all(&whole(client)?)?;
        loop {
            let request = whole(client)?;
            let (xid, kind) = (number_at(&request, 4), number_at(&request, 8));
            kinds.lock().expect("no thread panics while holding it").insert(xid, kind);
            server.write_all(&request)?;
        }
    })
}

/// Serves lies at the address that it returns.
fn hostile(greets: impl Fn() -> Vec<u8> + Copy + Send + 'static, lie: Lie) -> String {
    serving(move |client| {
        request(client)?;
        client.write_all(&greets())?;
        loop {
            let (xid, kind) = request(client)?;
            let answer = if kind == PING { frame(&[header(-2, 0, 0)]) } else { lie(xid, kind) };
            client.write_all(&answer)?;
        }
    })
}

fn challenging(challenge: &'static [u8]) -> String {
    serving(move |client| {
        request(client)?;
        client.write_all(&greeting(4000, 7, 16))?;
        loop {
            let (xid, kind) = request(client)?;
            let answer = match kind {
                PING => frame(&[header(-2, 0, 0)]),
                SASL => {
                    let length = be(i32::try_from(challenge.len()).expect("it is short"));
                    frame(&[header(xid, 0, 0), length, challenge.to_vec()])
                }
                _ => continue,
            };
            client.write_all(&answer)?;
        }
    })
}

/// Serves each client in a thread that ends with its connection.
fn serving(serve: impl Fn(&mut TcpStream) -> io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let serve = serve.clone();
            thread::spawn(move || serve(&mut client));
        }
    });
    address
}

/// Returns the number of the next request and its type.
fn request(client: &mut TcpStream) -> io::Result<(i32, i32)> {
    let frame = whole(client)?;
    Ok((number_at(&frame, 4), number_at(&frame, 8)))
}

/// Reads a frame, its length included. A client that asks for the version instead is answered at great length.
fn whole(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let read = read_frame(stream);
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
        stream.write_all("Zookeeper version: 99999999999.9.9".repeat(1_000_000).as_bytes())?;
    }
    read
}

fn number_at(frame: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

fn greeting(timeout_ms: i32, session: i64, password: i32) -> Vec<u8> {
    let session = session.to_be_bytes().to_vec();
    frame(&[be(0), be(timeout_ms), session, be(password), vec![b'p'; 16], vec![0]])
}

fn header(xid: i32, zxid: i64, error: i32) -> Vec<u8> {
    [be(xid), zxid.to_be_bytes().to_vec(), be(error)].concat()
}

fn frame(parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    [be(i32::try_from(body.len()).expect("it is short")), body].concat()
}

fn be(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}
