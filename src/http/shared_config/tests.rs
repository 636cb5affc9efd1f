//! The contract of the shared configuration over HTTP. The tests play the part of the runner.

use super::super::Service;
use super::super::tests::send;
use super::super::tests::{api, api_of, member};
use super::*;
use crate::clock::Clock;
use crate::shared_config::{self, ConfigRequests, ValueState};
use crate::status::{self, StatusHandle, StatusPublisher};
use axum::http::Method;
use http_body_util::BodyExt;
use tokio::sync::watch;

struct Scene {
    service: Service,
    requests: ConfigRequests,
    _back: StatusPublisher,
}

#[tokio::test]
async fn where_it_is_switched_off_each_request_says_so_and_what_to_set() {
    let (service, _back) = api(Duration::ZERO);
    for (method, path) in [
        (Method::GET, "/config"),
        (Method::GET, "/config/x"),
        (Method::PUT, "/config/x"),
        (Method::DELETE, "/config/x"),
    ] {
        let answer = send(&service, request(method, path, &[], "")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let why = text(answer).await;
        assert!(why.contains("recipes-off") && why.contains("recipes.root"), "{why}");
    }
}

/// A client might pass the index of a refusal back to wait for the value, so it must not be the election's.
#[tokio::test]
async fn what_is_refused_has_no_index_of_the_election() {
    let scene = Scene::new();
    for (method, path, headers) in [
        (Method::PUT, "/config/a", &[("if-match", "3")][..]),
        (Method::DELETE, "/config/a?x=1", &[]),
        (Method::POST, "/config/a", &[]),
        (Method::GET, "/config/a%20b", &[]),
    ] {
        let answer = send(&scene.service, request(method, path, headers, "")).await;
        assert!(answer.status().is_client_error(), "{path}");
        assert!(!answer.headers().contains_key("x-bellwether-index"), "{path}");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
}

#[tokio::test]
async fn what_is_no_request_for_a_value_is_refused_with_the_remedy() {
    let scene = Scene::new();
    let none: &[(&str, &str)] = &[];
    for (method, path, headers, named) in [
        (Method::GET, "/config/a%20b", none, "A-Z a-z 0-9"),
        (Method::GET, "/config/..%2Fx", none, "1 to 64"),
        (Method::GET, "/config/%ff", none, "UTF-8"),
        (Method::GET, "/config/a?index=x", none, "index: invalid digit"),
        (Method::GET, "/config/a?wait=5s", none, "without an index"),
        (Method::GET, "/config/a?index=1&wait=11m", none, "10m"),
        (Method::GET, "/config/a?ephemeral=1", none, "unknown field `ephemeral`"),
        (Method::PUT, "/config/a?ephemeral=yes", none, "write 1 or 0"),
        (Method::PUT, "/config/a", &[("if-match", "3")], "If-Match: \\\"3\\\""),
        (Method::PUT, "/config/a", &[("if-match", "W/\"3\"")], "If-Match: \\\"3\\\""),
        (Method::PUT, "/config/a", &[("if-match", "\"-1\"")], "If-Match: \\\"3\\\""),
        (Method::PUT, "/config/a", &[("if-none-match", "\"3\"")], "may only be *"),
        (Method::PUT, "/config/a", &[("if-match", "*"), ("if-none-match", "*")], "leave one out"),
        (Method::DELETE, "/config/a", &[("if-none-match", "*")], "of no use"),
    ] {
        let answer = send(&scene.service, request(method, path, headers, "")).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path} {headers:?}");
        let why = text(answer).await;
        assert!(why.contains(named), "{path}: {why}");
    }
}

/// A value may contain a script. If a browser ran it at this origin, the script could read this member's answers.
#[tokio::test(start_paused = true)]
async fn no_value_is_run_by_a_browser() {
    for (name, kind) in [
        ("a.html", "application/octet-stream"),
        ("a.svg", "application/octet-stream"),
        ("a.json", "application/json"),
        ("a.conf", "text/plain; charset=utf-8"),
        ("plain", "application/octet-stream"),
    ] {
        let mut scene = Scene::new();
        let path = format!("/config/{name}");
        let asked = send(&scene.service, request(Method::GET, &path, &[], ""));
        let (answer, ()) = tokio::join!(asked, shows(&mut scene.requests, &[(7, Some("x"))]));
        assert_eq!(answer.headers()[header::CONTENT_TYPE], kind, "{name}");
        assert_eq!(answer.headers()["content-security-policy"], "default-src 'none'; sandbox");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_query_is_answered_with_what_came_after_its_index_or_when_its_wait_is_over() {
    for (query, answered, value) in
        [("index=6", 7, Some("one")), ("index=7", 9, Some("two")), ("index=8", 7, Some("one"))]
    {
        let mut scene = Scene::new();
        let path = format!("/config/x?{query}");
        let asked = send(&scene.service, request(Method::GET, &path, &[], ""));
        let steps = [(7, Some("one")), (9, Some("two"))];
        let (answer, ()) = tokio::join!(asked, shows(&mut scene.requests, &steps));
        let index = answer.headers()["x-bellwether-index"].to_str().unwrap().to_owned();
        assert_eq!(
            (index, &*text(answer).await),
            (answered.to_string(), value.unwrap()),
            "{query}"
        );
    }
    let mut scene = Scene::new();
    let path = "/config/x?index=7&wait=3s";
    let mut asked = Box::pin(send(&scene.service, request(Method::GET, path, &[], "")));
    let asked = async {
        let two_seconds = Duration::from_secs(2);
        assert!(timeout(two_seconds, &mut asked).await.is_err(), "it waits");
        timeout(two_seconds, asked).await.expect("its wait is over")
    };
    let (answer, ()) = tokio::join!(asked, shows(&mut scene.requests, &[(7, None)]));
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers()["x-bellwether-index"], "7");
}

#[tokio::test]
async fn a_write_that_was_not_confirmed_is_told_from_one_that_was_not_sent() {
    for (unwritten, status, kind) in [
        (WriteError::Unknown, 503, "unconfirmed"),
        (WriteError::NotSent, 503, "not-written"),
        (WriteError::TooMany, 503, "too-many-names"),
        (WriteError::Refused("no".into()), 503, "refused"),
        (WriteError::NotOurs, 409, "not-ephemeral"),
        (WriteError::Differs { found: Some(3) }, 412, "other-version"),
        (WriteError::Differs { found: None }, 412, "other-version"),
    ] {
        let mut scene = Scene::new();
        let wanted = request(Method::PUT, "/config/x?ephemeral=1", &[("if-match", "\"2\"")], "v");
        let asked = send(&scene.service, wanted);
        let taken = async {
            let Some(ConfigRequest::Write(write, answer)) = scene.requests.requests.recv().await
            else {
                panic!("a write is asked for")
            };
            assert_eq!(write.condition, Condition::Version(2));
            assert!(
                matches!(&write.action, WriteAction::Put { data, is_ephemeral: true } if data == "v")
            );
            answer.send(Err(unwritten.clone())).unwrap();
        };
        let (answer, ()) = tokio::join!(asked, taken);
        assert_eq!(answer.status(), status, "{unwritten:?}");
        let is_there = unwritten == WriteError::Differs { found: Some(3) };
        assert_eq!(answer.headers().get(header::ETAG).is_some(), is_there, "{unwritten:?}");
        let why = text(answer).await;
        assert!(why.contains(kind), "{why}");
    }
}

#[tokio::test]
async fn a_value_that_is_too_long_is_not_taken() {
    let scene = Scene::new();
    let long = "x".repeat(VALUE_MAX + 1);
    let answer = send(&scene.service, request(Method::PUT, "/config/x", &[], &long)).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let why = text(answer).await;
    assert!(why.contains(&VALUE_MAX.to_string()), "{why}");
}

impl Scene {
    fn new() -> Self {
        let (publisher, status) = status::set_up(&member(), Clock::system().now());
        let (requests, handle) = shared_config::set_up("/config", &ByteBudget::of_mib(12));
        let service = api_of(StatusHandle { shared_config: Some(handle), ..status });
        Self { service, requests, _back: publisher }
    }
}

/// Takes the request to watch a name. At the first question, publishes these readings in turn, each an index and a
/// value. Answers later questions with the last one.
async fn shows(requests: &mut ConfigRequests, steps: &[(u64, Option<&'static str>)]) {
    let Some(ConfigRequest::Watch(_, answer)) = requests.requests.recv().await else {
        panic!("a watch is asked for")
    };
    let (publisher, known) = watch::channel(ValueState::default());
    let questions = watch::Sender::new(0);
    let mut asked = questions.subscribe();
    assert!(answer.send(Ok(WatchedValue { known, readings_requested: questions })).is_ok());
    let mut steps = steps.iter();
    loop {
        tokio::select! {
            biased;
            changed = asked.changed() => if changed.is_err() { return },
            () = publisher.closed() => return,
        }
        let answers = *asked.borrow_and_update();
        for (index, text) in steps.by_ref() {
            let value = text.map(|text| Value { data: text.into(), version: 0, owner: None });
            let reading = Some(Arc::new(ValueReading { index: *index, value }));
            publisher.send_modify(|known| {
                (known.reading, known.answered_up_to, known.as_of) = (reading, answers, *index);
            });
            // The clock is paused, so this sleep ends when the other side can do nothing more.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        publisher.send_modify(|known| known.answered_up_to = answers);
    }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)], value: &str) -> Request {
    let mut request = Request::builder().method(method).uri(path).header("x-bellwether", "1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(value.to_owned())).unwrap()
}

async fn text(answer: Response) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
