//! The contract of locks and barriers over HTTP. The tests play the part of the runner.

use super::super::Service;
use super::super::claims::ConnectionClaims;
use super::super::tests::send;
use super::super::tests::{api, api_of, member};
use super::*;
use crate::api::{LockMode, LockPlace, LockQueue, date};
use crate::clock::Clock;
use crate::holdings::{self, HoldRequest, HoldingsRequests, Published};
use crate::status::{self, StatusHandle, StatusPublisher};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use recipes::barrier::{BarrierEntry, Reading, Ready, Round};
use recipes::holding::{End, Event, HoldingId, HoldingSpec, Holdings, Loss};
use recipes::lock::{LockEntry, Mode};
use recipes::place;
use recipes::{Margins, Sequence, SessionEvent, SessionId, Ticket};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn where_locks_are_switched_off_each_request_says_so_and_what_to_set() {
    let (service, _back) = api(Duration::ZERO);
    for (method, path) in [
        (Method::GET, "/locks"),
        (Method::GET, "/locks/migrate"),
        (Method::POST, "/locks/migrate"),
        (Method::PUT, "/locks/migrate"),
        (Method::PUT, "/locks/migrate/0"),
        (Method::DELETE, "/locks/migrate/0"),
    ] {
        let answer = ask(&service, method, path).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let why = text(answer).await;
        assert!(why.contains("recipes-off") && why.contains("recipes.root"), "{why}");
    }
    for (method, path) in [
        (Method::GET, "/barriers"),
        (Method::GET, "/barriers/deploy"),
        (Method::POST, "/barriers/deploy?size=2"),
        (Method::POST, "/barriers/deploy/leave/0"),
    ] {
        let answer = ask(&service, method, path).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let why = text(answer).await;
        assert!(why.contains("recipes-off") && why.contains("recipes.root"), "{why}");
    }
}

#[tokio::test]
async fn what_is_no_request_for_a_lock_is_refused_with_the_remedy() {
    let scene = Scene::new();
    let long = format!("/locks/{}", "x".repeat(65));
    for (method, path, named) in [
        (Method::GET, "/locks/a%20b", "A-Z a-z 0-9"),
        (Method::POST, &*long, "1 to 64"),
        (Method::PUT, "/locks/..%2Felection", "1 to 64"),
        (Method::GET, "/locks/%ff", "UTF-8"),
        (Method::DELETE, "/locks/%40/0", "1 to 64"),
        (Method::POST, "/locks/a?mode=read", "mode=exclusive, mode=shared or slots"),
        (Method::POST, "/locks/a?mode=slots", "mode=exclusive, mode=shared or slots"),
        (Method::POST, "/locks/a?slots=0", "1 to 1000"),
        (Method::POST, "/locks/a?slots=1001", "1 to 1000"),
        (Method::PUT, "/locks/a?slots=2&mode=shared", "only one of them"),
        (Method::POST, "/locks/a?ttl=15s", "ttl"),
        (Method::POST, "/locks/a?slots=2&slots=3", "duplicate field `slots`"),
        (Method::POST, "/locks/a?slots=two", "slots: invalid digit"),
        (Method::POST, "/locks/a?wait=soon", "30s"),
        (Method::POST, "/locks/a?wait=11m", "10m"),
        (Method::PUT, "/locks/a?ttl=1ms", "1s"),
        (Method::PUT, "/locks/a/0?ttl=1h", "10m"),
        (Method::PUT, "/locks/a/0?wait=1s", "unknown field `wait`, expected `ttl`"),
        (Method::GET, "/barriers/a%20b", "A-Z a-z 0-9"),
        (Method::POST, "/barriers/..%2Felection?size=2", "1 to 64"),
        (Method::POST, "/barriers/a", "missing field `size`"),
        (Method::POST, "/barriers/a?size=0", "1 to 1000"),
        (Method::POST, "/barriers/a?size=1001", "1 to 1000"),
        (Method::POST, "/barriers/a?size=two", "size: invalid digit"),
        (Method::POST, "/barriers/a?size=2&mode=shared", "mode"),
        (Method::POST, "/barriers/a?size=2&wait=11m", "10m"),
        (Method::POST, "/barriers/%40/leave/0", "1 to 64"),
    ] {
        let answer = ask(&scene.service, method, path).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        let why = text(answer).await;
        assert!(why.contains(named), "{path}: {why}");
    }
}

#[tokio::test]
async fn a_lock_is_told_of_from_its_place_in_the_queue_to_its_end() {
    let mut scene = Scene::new();
    let waits = async |requests: &mut HoldingsRequests| {
        let mut one = One::taken_from(requests).await;
        assert_eq!((one.request.name.as_str(), one.mode()), ("migrate", Mode::Shared));
        one.reads(&[(1, Mode::Exclusive)]);
        one
    };
    let (mut stream, mut one) = scene.opened("/locks/migrate?mode=shared", waits).await;
    let (waiting, ()) = tokio::join!(stream.event(), scene.shows(1));
    let (name, waiting) = waiting.unwrap();
    assert_eq!((&*name, &waiting["position"]), ("waiting", &1.into()));
    assert_eq!(
        (&waiting["holders"][0]["member"], &waiting["holders"][0]["token"]),
        (&"b".into(), &1.into())
    );

    one.gone(1);
    one.commits();
    let (name, held) = stream.event().await.unwrap();
    assert_eq!((&*name, &held["token"]), ("held", &7.into()));
    let left = held["valid_for_ms"].as_u64().unwrap();
    assert!((1..2000).contains(&left), "less than the session's timeout: {held}");
    one.commits();
    let (name, renewed) = stream.event().await.unwrap();
    let end = |data: &Value| data["valid_until_boottime_ns"].as_u64().unwrap();
    assert_eq!(name, "renewed");
    assert!(end(&renewed) > end(&held), "{renewed} after {held}");

    one.ends(End::Lost(Loss::Deleted));
    let (name, lost) = stream.event().await.unwrap();
    assert_eq!(
        (&*name, &lost["why"]),
        ("lost", &"its znode was deleted, or an operator broke it".into())
    );
    assert!(stream.event().await.is_none(), "nothing comes behind it");
}

/// The client must first end what it does under the lock. Until then, no other client may hold the lock.
#[tokio::test]
async fn a_client_whose_member_leaves_is_told_and_holds_on_until_it_lets_go() {
    let mut scene = Scene::new();
    for lets_go in [true, false] {
        let (mut stream, mut one) = scene.opened("/locks/migrate", One::held).await;
        assert_eq!(stream.event().await.unwrap().0, "held");
        one.ends(End::Stopped);
        let (name, lost) = stream.event().await.unwrap();
        assert_eq!((&*name, &lost["why"]), ("lost", &"this member leaves".into()));
        let mut next = Box::pin(stream.event());
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(!one.is_released());
        if lets_go {
            drop(next);
            drop(stream);
            assert!(one.is_released());
        } else {
            drop(one);
            assert!(next.await.is_none(), "the runner is gone");
        }
    }
    let (kept, mut one) = scene.kept("/locks/job?ttl=10m").await;
    one.ends(End::Stopped);
    let until = Duration::from_nanos(kept["valid_until_boottime_ns"].as_u64().unwrap());
    Clock::system().sleep_until(Some(Moment(until + Duration::from_millis(20)))).await;
    assert!(
        !one.is_released(),
        "its session may end later than the lease that its client was told"
    );

    let path = format!("/locks/job/{}", kept["lock"].as_str().unwrap());
    let answer = send(&scene.service, ordered(Method::DELETE, &path)).await;
    assert_eq!(answer.status(), StatusCode::GONE);
    while !one.is_released() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_lock_is_given_back_when_its_connection_closes() {
    let mut scene = Scene::new();
    let (stream, mut one) = scene.opened("/locks/migrate", One::held).await;
    assert!(!one.is_released(), "while it is open");
    drop(stream);
    assert!(one.is_released());
}

/// The lease is renewed all the time, but the client does not read the renewals.
#[tokio::test]
async fn a_client_that_takes_nothing_for_as_long_as_the_lease_runs_has_lost_its_lock() {
    let mut scene = Scene::new();
    let (mut stream, mut one) = scene.opened("/locks/migrate", One::held).await;
    let (_, held) = stream.event().await.unwrap();
    let until = Duration::from_nanos(held["valid_until_boottime_ns"].as_u64().unwrap());
    let released = async {
        while !one.is_released() {
            one.commits();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, released).await.expect("it is given back");
    assert!(Clock::system().now() >= Moment(until), "no sooner than it was told");
    one.ends(End::Released);
    let (name, lost) = stream.event().await.unwrap();
    assert_eq!(name, "lost");
    assert!(lost["why"].as_str().unwrap().contains("nothing was read"), "{lost}");
}

#[tokio::test]
async fn who_waits_no_longer_is_told_and_gives_its_place_up() {
    let mut scene = Scene::new();
    let waits = async |requests: &mut HoldingsRequests| {
        let mut one = One::taken_from(requests).await;
        one.reads(&[(1, Mode::Exclusive)]);
        one
    };
    let (mut stream, mut one) = scene.opened("/locks/migrate?wait=0s", waits).await;
    assert_eq!(stream.event().await.unwrap().0, "timeout");
    assert!(one.is_released());
    assert!(stream.event().await.is_none());

    let request = ordered(Method::PUT, "/locks/migrate?wait=0s");
    let (answer, mut one) = tokio::join!(send(&scene.service, request), waits(&mut scene.requests));
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert!(text(answer).await.contains("timed-out"));
    assert!(one.is_released());
}

#[tokio::test]
async fn a_lock_of_another_kind_is_refused_with_both_and_one_too_many_with_the_limit() {
    let mut scene = Scene::new();
    let found = HoldingSpec::Lock(Mode::Slots(NonZeroU32::new(2).unwrap()));
    for (ended, status, words) in [
        (End::Refused { found }, StatusCode::CONFLICT, vec!["other-mode", "2 slots", "3 slots"]),
        (End::TooMany, StatusCode::SERVICE_UNAVAILABLE, vec!["too-many-locks", "1024"]),
        (End::Stopped, StatusCode::SERVICE_UNAVAILABLE, vec!["leaves"]),
    ] {
        for method in [Method::POST, Method::PUT] {
            let request = ordered(method, "/locks/jobs?slots=3");
            let ends = async {
                let one = One::taken_from(&mut scene.requests).await;
                one.ends(ended);
            };
            let (answer, ()) = tokio::join!(send(&scene.service, request), ends);
            assert_eq!(answer.status(), status, "{ended:?}");
            let why = text(answer).await;
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
        }
    }
}

#[tokio::test]
async fn a_kept_lock_is_renewed_by_its_id_and_given_back() {
    let mut scene = Scene::new();
    let (kept, mut one) = scene.kept("/locks/job?ttl=10m").await;
    let id = kept["lock"].as_str().unwrap().to_owned();
    let left = kept["valid_for_ms"].as_u64().unwrap();
    assert!((1..2000).contains(&left), "no longer than the lease: {kept}");
    let path = format!("/locks/job/{id}");
    one.commits();
    let claims = ConnectionClaims::default();
    let renewed = claims.scope(ask(&scene.service, Method::PUT, &path)).await;
    assert_eq!(renewed.status(), StatusCode::OK);
    assert!(claims.still_hold());
    let renewed: Value = serde_json::from_str(&text(renewed).await).unwrap();
    assert_eq!((&renewed["lock"], &renewed["token"]), (&kept["lock"], &kept["token"]));
    for unknown_znode in ["/locks/job/0".to_owned(), path.replace("job", "other")] {
        for method in [Method::PUT, Method::DELETE] {
            assert_eq!(
                ask(&scene.service, method, &unknown_znode).await.status(),
                StatusCode::GONE
            );
        }
    }

    let deletes = async {
        while !one.is_released() {
            sleep(Duration::from_millis(1)).await;
        }
        one.ends(End::Released);
        assert!(!claims.still_hold(), "it is not written any more");
        drop(one);
    };
    let request = ordered(Method::DELETE, &path);
    let (answer, ()) = tokio::join!(send(&scene.service, request), deletes);
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(ask(&scene.service, Method::PUT, &path).await.status(), StatusCode::GONE);
}

#[tokio::test]
async fn a_kept_lock_is_given_back_when_its_time_is_over_or_it_is_lost() {
    let mut scene = Scene::new();
    let begun = Clock::system().now();
    let (kept, mut one) = scene.kept("/locks/job?ttl=1s").await;
    let released = async {
        while !one.is_released() {
            one.commits();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, released).await.expect("it is given back");
    assert!(Clock::system().now().since(begun) >= Duration::from_secs(1));
    let path = |kept: &Value| format!("/locks/job/{}", kept["lock"].as_str().unwrap());
    let answer = ask(&scene.service, Method::PUT, &path(&kept)).await;
    assert_eq!(answer.status(), StatusCode::GONE);

    let (kept, one) = scene.kept("/locks/job?ttl=10m").await;
    one.ends(End::Lost(Loss::SessionEnded));
    let answer = ask(&scene.service, Method::PUT, &path(&kept)).await;
    assert_eq!(answer.status(), StatusCode::GONE);
}

#[tokio::test]
async fn a_barrier_is_told_of_from_the_first_that_waits_to_the_last_that_leaves() {
    let mut scene = Scene::new();
    let waits = async |requests: &mut HoldingsRequests| {
        let mut one = One::taken_from(requests).await;
        let wanted = HoldingSpec::Barrier(NonZeroU32::new(2).unwrap());
        assert_eq!((one.request.name.as_str(), one.request.wanted), ("deploy", wanted));
        one.gathers(&[OWN], None);
        one
    };
    let (mut stream, mut one) = scene.opened("/barriers/deploy?size=2", waits).await;
    let (name, waiting) = stream.event().await.unwrap();
    assert_eq!((&*name, &waiting["present"], &waiting["size"]), ("waiting", &1.into(), &2.into()));
    let id = waiting["id"].as_str().unwrap();
    let leave = format!("/barriers/deploy/leave/{id}");
    assert_eq!(ask(&scene.service, Method::POST, &leave).await.status(), StatusCode::CONFLICT);

    one.commits();
    one.gathers(&[OWN, OWN + 1], Some(OWN + 1));
    let (name, entered) = stream.event().await.unwrap();
    assert_eq!((&*name, &entered["id"], &entered["token"]), ("entered", &id.into(), &7.into()));
    assert!(entered["valid_for_ms"].as_u64() < Some(2000), "{entered}");
    one.commits();
    let (name, renewed) = stream.event().await.unwrap();
    assert_eq!((&*name, &renewed["id"]), ("renewed", &id.into()));
    assert!(!one.is_released());

    for other in [&*leave.replace("deploy", "other"), "/barriers/deploy/leave/0"] {
        let answer = ask(&scene.service, Method::POST, other).await;
        assert_eq!(answer.status(), StatusCode::GONE, "{other}");
    }
    for _ in 0..2 {
        let answer = ask(&scene.service, Method::POST, &leave).await;
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        assert!(one.is_released());
        one.step(Event::Released(ID));
    }
    let mut next = Box::pin(stream.event());
    assert!(futures_util::poll!(&mut next).is_pending(), "another is inside");
    one.ends(End::AllLeft);
    assert_eq!(next.await.unwrap().0, "left");
    assert!(stream.event().await.is_none(), "nothing comes behind it");
    drop(stream);
    let answer = ask(&scene.service, Method::POST, &leave).await;
    assert_eq!(answer.status(), StatusCode::GONE);
}

#[tokio::test]
async fn a_barrier_is_left_when_its_connection_closes() {
    let mut scene = Scene::new();
    let (stream, mut one) = scene.opened("/barriers/deploy?size=1", One::inside).await;
    assert!(!one.is_released(), "while it is open");
    drop(stream);
    assert!(one.is_released());
}

/// The others may be told that all have left while this client still acts. So its own last event must be `lost`, not
/// `left`.
#[tokio::test]
async fn a_client_inside_that_takes_nothing_for_as_long_as_the_lease_runs_is_told_that_it_is_lost()
{
    let mut scene = Scene::new();
    let (mut stream, mut one) = scene.opened("/barriers/deploy?size=1", One::inside).await;
    assert_eq!(stream.event().await.unwrap().0, "entered");
    let released = async {
        while !one.is_released() {
            one.commits();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, released).await.expect("it leaves");
    one.step(Event::Released(ID));
    let (name, lost) = stream.event().await.unwrap();
    assert_eq!(name, "lost");
    assert!(lost["why"].as_str().unwrap().contains("nothing was read"), "{lost}");
}

#[tokio::test]
async fn a_barrier_of_another_size_is_refused_with_both() {
    let mut scene = Scene::new();
    let request = ordered(Method::POST, "/barriers/deploy?size=3");
    let ends = async {
        let one = One::taken_from(&mut scene.requests).await;
        one.ends(End::Refused { found: HoldingSpec::Barrier(NonZeroU32::new(2).unwrap()) });
    };
    let (answer, ()) = tokio::join!(send(&scene.service, request), ends);
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    let why = text(answer).await;
    for word in ["other-size", "a barrier of 2", "a barrier of 3"] {
        assert!(why.contains(word), "{why}");
    }
}

#[tokio::test]
async fn who_waits_no_longer_in_front_of_a_barrier_is_told_and_gives_up() {
    let mut scene = Scene::new();
    let waits = async |requests: &mut HoldingsRequests| {
        let mut one = One::taken_from(requests).await;
        one.gathers(&[OWN], None);
        one
    };
    let (mut stream, mut one) = scene.opened("/barriers/deploy?size=2&wait=0s", waits).await;
    assert_eq!(stream.event().await.unwrap().0, "timeout");
    assert!(one.is_released());
    assert!(stream.event().await.is_none());
}

#[tokio::test]
async fn those_at_barriers_are_shown_as_they_stand() {
    let mut scene = Scene::new();
    let (stream, mut one) = scene.opened("/barriers/deploy?size=1", One::inside).await;
    let read = async |path: &str| text(ask(&scene.service, Method::GET, path).await).await;
    let barriers =
        async || serde_json::from_str::<Value>(&read("/status").await).unwrap()["barriers"].clone();
    let told = barriers().await;
    let fields = ["barrier", "size", "state", "token"].map(|key| told[0][key].clone());
    assert_eq!(Value::from(fields.to_vec()), json!(["deploy", 1, "inside", 7]));
    let line = r#"bellwether_barriers{election="/election",state="inside"} 1"#;
    assert!(read("/metrics").await.contains(line));
    one.step(Event::Released(ID));
    let told = barriers().await;
    assert_eq!((&told[0]["state"], &told[0]["token"]), (&"leaving".into(), &Value::Null));
    one.ends(End::AllLeft);
    assert_eq!(barriers().await, Value::Null);
    drop(stream);
}

#[tokio::test]
async fn what_is_asked_for_is_shown_as_it_stands() {
    let mut scene = Scene::new();
    let waits = async |requests: &mut HoldingsRequests| {
        let mut one = One::taken_from(requests).await;
        one.reads(&[1, 2, 3].map(|number| (number, one.mode())));
        one
    };
    let (holder, one) = scene.opened("/locks/migrate", One::held).await;
    let (waiter, _other) = scene.opened("/locks/jobs?slots=3", waits).await;
    let read = async |path: &str| text(ask(&scene.service, Method::GET, path).await).await;
    let locks =
        async || serde_json::from_str::<Value>(&read("/status").await).unwrap()["locks"].clone();
    let told = locks().await;
    let fields = |n: usize| {
        Value::from(
            ["lock", "mode", "slots", "state", "token"].map(|key| told[n][key].clone()).to_vec(),
        )
    };
    assert_eq!(fields(0), json!(["migrate", "exclusive", null, "held", 7]));
    assert_eq!(fields(1), json!(["jobs", "slots", 3, "waiting", null]));
    let metrics = read("/metrics").await;
    for line in [
        r#"bellwether_locks{election="/election",state="held"} 1"#,
        r#"bellwether_locks{election="/election",state="waiting"} 1"#,
        r#"bellwether_locks_lost_total{election="/election"} 0"#,
        r#"bellwether_lock_wait_seconds_count{election="/election"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    one.ends(End::Lost(Loss::Deleted));
    assert_eq!(locks().await.as_array().map(Vec::len), Some(1), "one that has ended is none");
    drop((holder, waiter));
    assert_eq!(locks().await, Value::Null);
}

struct Scene {
    service: Service,
    requests: HoldingsRequests,
    _publisher: StatusPublisher,
}

impl Scene {
    fn new() -> Self {
        let (publisher, status) = status::set_up(&member(), Clock::system().now());
        let (requests, handle) = holdings::set_up();
        let service = api_of(StatusHandle { holdings: Some(handle), ..status });
        Self { service, requests, _publisher: publisher }
    }

    /// Requests a lock or barrier with a stream.
    async fn opened(
        &mut self,
        path: &str,
        taken: impl AsyncFn(&mut HoldingsRequests) -> One,
    ) -> (ReceivedEvents, One) {
        let request = ordered(Method::POST, path);
        let (answer, one) = tokio::join!(send(&self.service, request), taken(&mut self.requests));
        assert_eq!(answer.status(), StatusCode::OK);
        (ReceivedEvents(answer.into_body()), one)
    }

    /// Requests a lock for a TTL.
    async fn kept(&mut self, path: &str) -> (Value, One) {
        let request = ordered(Method::PUT, path);
        let (answer, one) =
            tokio::join!(send(&self.service, request), One::held(&mut self.requests));
        assert_eq!(answer.status(), StatusCode::CREATED);
        (serde_json::from_str(&text(answer).await).unwrap(), one)
    }

    /// Answers the next request for a queue with one holder, which has this number and token.
    async fn shows(&mut self, number: i32) {
        let Some(ReadRequest::Queue(_, answer)) = self.requests.read_requests.recv().await else {
            panic!()
        };
        let entry = LockEntry { sequence: sequence(number), mode: Mode::Exclusive };
        let place = LockPlace {
            member: Some("b".to_owned()),
            process: Some("web-3:4711".to_owned()),
            mode: LockMode::Exclusive,
            slots: None,
            token: ticket(number).token.0,
            znode: entry.name(),
            since: date(SystemTime::UNIX_EPOCH),
        };
        let queue = LockQueue { holders: vec![place], waiting: vec![] };
        answer.send(Ok(Arc::new(queue))).unwrap();
    }
}

/// One requested lock or barrier, in the runner's place.
struct One {
    holdings: Holdings,
    request: HoldRequest,
}

const ID: HoldingId = HoldingId(1);
const OWN: i32 = 7;

impl One {
    /// Takes the next request, and joins the queue.
    async fn taken_from(requests: &mut HoldingsRequests) -> Self {
        let request = requests.hold_requests.recv().await.unwrap();
        let heartbeat = Duration::from_millis(20);
        let margins = Margins { heartbeat, half_tick: heartbeat };
        let mut one = Self { holdings: Holdings::new(margins, LIMIT), request };
        let sent_at = Clock::system().now();
        let timeout = Duration::from_secs(2);
        one.step(Event::Requested(ID, one.request.wanted));
        one.step(Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at }));
        let ticket = ticket(OWN);
        let sent_at = None;
        one.step(Event::Place(ID, place::Event::Joined { ticket, sent_at }));
        one
    }

    /// Takes the next request, and enters the barrier as the only participant.
    async fn inside(requests: &mut HoldingsRequests) -> Self {
        let mut one = Self::taken_from(requests).await;
        one.commits();
        one.gathers(&[OWN], Some(OWN));
        one
    }

    /// Reads the barrier: it has these members, and is open for those up to `last`; for none if `last` is `None`.
    fn gathers(&mut self, members: &[i32], last: Option<i32>) {
        let entry = |&number| BarrierEntry { sequence: sequence(number), size: None };
        let ready = last.map(|last| Ready { last: sequence(last), size: None });
        let reading = Reading::of(Round(1), members.iter().map(entry).collect(), ready);
        self.step(Event::Place(ID, place::Event::BarrierRead(reading)));
    }

    fn mode(&self) -> Mode {
        let HoldingSpec::Lock(mode) = self.request.wanted else {
            panic!("{}", self.request.wanted)
        };
        mode
    }

    async fn held(requests: &mut HoldingsRequests) -> Self {
        let mut one = Self::taken_from(requests).await;
        one.reads(&[]);
        one.commits();
        one
    }

    fn reads(&mut self, ahead: &[(i32, Mode)]) {
        let entry = |&(number, mode)| LockEntry { sequence: sequence(number), mode };
        let queue = ahead.iter().chain([&(OWN, self.mode())]).map(entry).collect();
        self.step(Event::Place(ID, place::Event::QueueRead(queue)));
    }

    fn gone(&mut self, number: i32) {
        let gone = place::Event::Gone { sequence: sequence(number), token: None };
        self.step(Event::Place(ID, gone));
    }

    /// A quorum commits a heartbeat that is sent now.
    fn commits(&mut self) {
        self.step(Event::Committed { sent_at: Clock::system().now() });
    }

    fn step(&mut self, event: Event) {
        self.holdings.step(Clock::system().now(), event);
        let standing = self.holdings.standing(ID);
        self.request.publisher.send_replace(Published { standing, ended: None });
    }

    fn ends(&self, ended: End) {
        self.request.publisher.send_modify(|published| published.ended = Some(ended));
    }

    fn is_released(&mut self) -> bool {
        !matches!(self.request.released.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }
}

/// A client's end of a stream.
struct ReceivedEvents(Body);

impl ReceivedEvents {
    /// Returns the name and the data of the next event; `None` at the end.
    async fn event(&mut self) -> Option<(String, Value)> {
        let frame = timeout(LIMIT, self.0.frame()).await.expect("something comes")?;
        let chunk = frame.unwrap().into_data().unwrap();
        let event = String::from_utf8(chunk.to_vec()).unwrap();
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let data = serde_json::from_str(field("data: ").unwrap()).unwrap();
        Some((field("event: ").unwrap().to_owned(), data))
    }
}

fn ordered(method: Method, path: &str) -> Request {
    let request = Request::builder().method(method).uri(path).header("x-bellwether", "1");
    request.body(Body::empty()).unwrap()
}

async fn ask(service: &Service, method: Method, path: &str) -> Response {
    send(service, ordered(method, path)).await
}

async fn text(answer: Response) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn sequence(number: i32) -> Sequence {
    Sequence::new(number).unwrap()
}

fn ticket(number: i32) -> Ticket {
    Ticket { sequence: sequence(number), token: FencingToken(number.unsigned_abs().into()) }
}
