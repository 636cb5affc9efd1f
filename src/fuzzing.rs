//! Checks that each parser of external input accepts or refuses any bytes without harm.
//!
//! Each public function parses one kind of input, and panics if a check fails. `fuzz/` calls the functions with the inputs
//! of a fuzzer. The tests below call them with inputs that a fuzzer has found, and with random ones.

use crate::byte_budget::ByteBudget;
use crate::cli;
use crate::clock::Clock;
use crate::config;
use crate::http::{Authorization, ConnectionLimits, Service, services};
use crate::runtime;
use crate::status;
use crate::znode_names::ElectionNames;
use crate::zookeeper;
use axum::body::Body;
use axum::http::{Request, StatusCode, Uri, header};
use futures_util::FutureExt;
use hyper::service::Service as _;
use recipes::election::{Event, Member, Policy, Profile, Role};
use recipes::{
    FencingToken, Margins, MemberId, Moment, Queue, Sequence, SessionEvent, SessionId, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const PREFIX: &str = "leader_";

/// Decodes the data of a znode in the queue. Checks that decoded data can be encoded again, and that bad data harms neither
/// the leader nor the member behind the znode.
pub fn znode(data: &[u8]) {
    let read = zookeeper::decode(data, &PREFIX.into());
    if let Some(read) = &read {
        let written = zookeeper::encode(&read.znode, read.state, &PREFIX.into());
        if let Some(again) = zookeeper::decode(&written, &PREFIX.into()) {
            assert_eq!(again.znode.profile, read.znode.profile);
            assert_eq!(again.znode.announcement, read.znode.announcement);
        } else {
            assert!(written.len() > 1024, "only data that has become too long cannot be decoded");
        }
    }
    let distance = read.as_ref().and_then(|read| read.znode.distance);
    let announcement = read.and_then(|read| read.znode.announcement);
    let mut now = Moment(Duration::from_secs(1000));
    // The znode with this data is the second of three in the queue: the first is that of the leader, the third that of a
    // follower.
    let [mut first, mut third] = [(1, "a"), (3, "c")].map(|(number, id)| {
        let mut member = member(id);
        let session = SessionId(number);
        let timeout = Duration::from_secs(10);
        member.step(now, Event::Session(SessionEvent::Opened { session, timeout, sent_at: now }));
        member.step(now, Event::Joined(ticket(number)));
        member.step(now, Event::QueueRead(queue([1, 2, 3])));
        member
    });
    first.step(now, Event::Committed { sent_at: now });
    let head = ticket(1);
    for _ in 0..3 {
        now = now.after(Duration::from_secs(1));
        let predecessor = ticket(2);
        first.step(now, Event::Woke);
        third.step(now, Event::Woke);
        third.step(
            now,
            Event::PredecessorRead { predecessor, announcement: announcement.clone(), distance },
        );
        third.step(now, Event::HeadRead { head, announcement: announcement.clone(), sent_at: now });
        first.step(now, Event::HeadRead { head, announcement: announcement.clone(), sent_at: now });
        first.step(
            now,
            Event::PredecessorRead { predecessor, announcement: announcement.clone(), distance },
        );
        assert!(matches!(first.standing().at(now), Role::Leader { .. }), "leadership is kept");
        assert!(matches!(third.standing().at(now), Role::Follower { .. }), "only one leads");
        first.step(now, Event::Committed { sent_at: now });
    }
    // A member that reads the true announcement afterwards accepts it.
    let leader = Arc::new(profile("a"));
    let truth = recipes::election::Announcement { leader, ticket: head };
    for _ in 0..2 {
        now = now.after(Duration::from_secs(1));
        third.step(now, Event::Woke);
        third.step(now, Event::HeadRead { head, announcement: Some(truth.clone()), sent_at: now });
        third.step(now, Event::Committed { sent_at: now });
    }
    assert_eq!(third.standing().at(now), Role::Follower { leader: Some(truth) });
}

/// Reads the names of the znodes in the election's path, one per line. Checks that the name of a member's znode can be
/// computed from its number, that no two names have the same number, and that nobody leads because of names alone.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut seen = BTreeMap::new();
    for name in text.split('\n') {
        let Some(sequence) = Sequence::of_name(name, PREFIX) else { continue };
        assert_eq!(sequence.name(PREFIX), name);
        assert!(seen.insert(sequence, name).is_none_or(|other| other == name));
    }
    let listed: Queue = seen.into_keys().collect();
    let mut member = member("c");
    let now = Moment(Duration::from_secs(1000));
    let session = SessionId(1);
    let timeout = Duration::from_secs(10);
    member.step(now, Event::Session(SessionEvent::Opened { session, timeout, sent_at: now }));
    member.step(now, Event::Joined(ticket(7)));
    member.step(now, Event::QueueRead(listed));
    assert!(!matches!(member.standing().at(now), Role::Leader { .. }), "no quorum has said so");
}

/// Reads a configuration file. Checks that each line of the effective configuration, or of the errors, can be printed
/// safely.
pub fn config_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (Ok(printed) | Err(printed)) = cli::check_config_of(text);
    printed.trim_end().split('\n').for_each(one_line);
}

/// Reads a connect string, the election's path and the prefix, each on its own line. Checks that the result is valid, and
/// the same when it is parsed again.
pub fn connect_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut written = text.split('\n');
    let servers = written.next().unwrap_or_default();
    let path = written.next().unwrap_or("/election");
    let prefix = written.next().unwrap_or(PREFIX);
    match config::hosts_and_path(servers, path, prefix) {
        Err(error) => one_line(&error.to_string()),
        Ok((hosts, root)) => {
            assert!(root.starts_with('/') && !root.ends_with('/') && !root.contains("//"));
            for host in hosts.split(',') {
                let (_, port) = host.rsplit_once(':').expect("each with its port");
                assert!(port.parse::<u16>().is_ok_and(|port| port > 0), "{hosts}");
            }
            let again = config::hosts_and_path(&hosts, &root, prefix);
            assert_eq!(again.as_ref(), Ok(&(hosts, root)), "it means the same read again");
        }
    }
}

/// Sends a request to the HTTP API, with the input as its path and query and, after the first line break, its `Host`. Checks
/// that the status of the answer is one that the API uses.
pub fn query(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let Ok(uri) = Uri::try_from([b"/", target].concat()) else { return };
    let mut request = Request::builder().uri(uri).header("x-bellwether", "1");
    if let Some(host) = lines.next() {
        request = request.header(header::HOST, host);
    }
    let Ok(request) = request.body(Body::empty()) else { return };
    let answer = SERVICE.with(|FuzzServer { runtime, service, .. }| {
        let _timers = runtime.enter();
        crate::http::refusal(&request).or_else(|| service.call(request).now_or_never()?.ok())
    });
    // A request that waits for a change has no answer yet.
    let Some(answer) = answer else { return };
    let is_known = matches!(
        answer.status(),
        StatusCode::OK
            | StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::CONFLICT
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::SERVICE_UNAVAILABLE
    );
    assert!(is_known, "{}", answer.status());
}

/// The HTTP API of a member that has not joined an election. The publisher keeps the channels open.
struct FuzzServer {
    runtime: Runtime,
    service: Service,
    _publisher: status::StatusPublisher,
}

thread_local! {
    static SERVICE: FuzzServer = {
        let clock = Clock::system();
        let (publisher, status) = status::set_up(&member("a"), clock.now());
        let names = ElectionNames {
            election: "/election".into(),
            path: "/election".into(),
            znodes: PREFIX.into(),
        };
        let limits = ConnectionLimits::for_application(ByteBudget::of_mib(12));
        let runtime = runtime::build().expect("a runtime can be built");
        let in_runtime = runtime.enter();
        let service = services(status, clock, names, Authorization::Header, &limits).api;
        drop(in_runtime);
        FuzzServer { runtime, service, _publisher: publisher }
    };
}

/// Checks that the text is one line without control characters, which could harm a terminal or a log.
fn one_line(text: &str) {
    assert!(!text.trim().is_empty() && !text.contains(char::is_control), "{text:?}");
}

fn member(id: &str) -> Member {
    let margins = Margins { heartbeat: Duration::from_secs(1), half_tick: Duration::from_secs(1) };
    Member::new(Arc::new(profile(id)), Policy::new(margins))
}

fn profile(id: &str) -> Profile {
    let id = MemberId::new(id).expect("a name");
    Profile { id, address: None, labels: BTreeMap::new(), revision: 0 }
}

fn ticket(number: i64) -> Ticket {
    let sequence = i32::try_from(number).ok().and_then(Sequence::new).expect("a small number");
    Ticket { sequence, token: FencingToken(number.unsigned_abs()) }
}

fn queue(numbers: [i64; 3]) -> Queue {
    numbers.into_iter().map(|number| ticket(number).sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use std::fs;
    use std::time::Instant;

    /// How long each input is tested with noise.
    const LONG_ENOUGH: Duration = Duration::from_secs(2);

    #[test]
    fn any_data_of_a_znode_does_no_harm() {
        withstands("znode", znode);
    }

    #[test]
    fn any_names_in_the_election_do_no_harm() {
        withstands("names", names);
    }

    #[test]
    fn any_file_is_a_configuration_or_wrong_in_clear_lines() {
        withstands("config_file", config_file);
    }

    #[test]
    fn any_connect_string_is_one_or_is_refused() {
        withstands("connect_string", connect_string);
    }

    #[test]
    fn any_query_is_answered() {
        withstands("query", query);
    }

    /// Calls `check` with each file of a corpus, and then for a while with noise: random bytes, and pieces of those
    /// files.
    fn withstands(corpus: &str, check: fn(&[u8])) {
        let kept: Vec<Vec<u8>> = fs::read_dir(format!("fuzz/corpus/{corpus}"))
            .expect("it is kept")
            .map(|file| fs::read(file.unwrap().path()).unwrap())
            .collect();
        assert!(!kept.is_empty());
        kept.iter().for_each(|data| check(data));
        let piece =
            (prop::sample::select(kept), any::<(prop::sample::Index, prop::sample::Index)>());
        let piece = piece.prop_map(|(data, (from, to))| {
            let from = from.index(data.len() + 1);
            let to = to.index(data.len() + 1);
            data[from.min(to)..from.max(to)].to_vec()
        });
        let noise = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..8),
            "\\PC{0,8}".prop_map(String::into_bytes),
            piece,
        ];
        let data = prop::collection::vec(noise, 0..6).prop_map(|pieces| pieces.concat());
        let begun = Instant::now();
        while begun.elapsed() < LONG_ENOUGH {
            let run = TestRunner::default().run(&data, |data| {
                check(&data);
                Ok(())
            });
            run.unwrap_or_else(|found| panic!("{corpus}: {found}"));
        }
    }
}
