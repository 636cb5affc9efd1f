//! The HTTP API for the application. An answer is evaluated when it is made. If it says that this member leads, that is
//! checked again right before the answer is written.
//!
//! `routes` lists what each listener serves. `verdict` evaluates the snapshot and waits for changes; `serve`, `slots`
//! and `claims` are the server; `host_check` and `authorize` refuse requests.
//!
//! Errors are `application/problem+json` (RFC 9457). At a listener on the loopback interface, a request that names any
//! other host gets 421, and a request that a page of another site makes a browser send gets 403.

mod authorize;
mod blocking;
mod body;
mod claims;
mod commands;
mod events;
mod health;
mod history;
mod holdings;
mod host_check;
mod leader;
mod members;
mod metrics;
mod openapi;
mod page;
mod problem;
mod problems;
mod profile;
mod query;
mod redirect;
mod requests;
mod role_checks;
mod routes;
mod serve;
mod shared_config;
mod slots;
mod sse;
mod status;
#[cfg(test)]
mod testing;
mod verdict;

use self::claims::ConnectionClaims;
use crate::api;
use crate::byte_budget::{ByteBudget, ReservedBytes};
use crate::cached::SharedReading;
use crate::clock::Clock;
use crate::status::{QueueReading, StatusHandle};
use crate::znode_names::ElectionNames;
pub use authorize::Authorization;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
#[cfg(any(test, fuzzing))]
pub(crate) use host_check::refusal;
use hyper_util::service::TowerToHyperService;
use problem::ProblemResponse;
use recipes::Moment;
use requests::RequestCounters;
pub use serve::{Accept, ConnectionLimits, serve};
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{Mutex, Semaphore};
use verdict::Verdict;

/// The inputs of every answer. Each request clones this several times, so cloning is cheap.
#[derive(Clone)]
struct AppState {
    inner: Arc<AppStateInner>,
    /// True for the probe listener, whose clients cannot wait for changes. They may be on other machines, where this
    /// kernel's clocks cannot be read, so they are sent no times on these clocks.
    serves_probes: bool,
}

struct AppStateInner {
    status: StatusHandle,
    clock: Clock,
    lease_clock: api::LeaseClock,
    names: ElectionNames,
    started: Started,
    /// One permit for each further client that may wait for a change.
    waiting: Arc<Semaphore>,
    budget: ByteBudget,
    authorization: Authorization,
    requests: RequestCounters,
    /// Locked while a request changes this member's profile, so that each change is based on the previous one.
    amending: Mutex<()>,
    /// All locks and barriers that were requested through this member.
    registry: holdings::HoldingRegistry,
    value_events: shared_config::ValueEvents,
    /// The last reading of the queue for clients that wait for a change of the queue, and when that reading began.
    members_read: SharedReading<QueueReading>,
}

impl Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.inner
    }
}

/// The header with the index of an answer about the leader or about a value. A client passes the index back to wait for the
/// next change.
const INDEX: HeaderName = HeaderName::from_static("x-bellwether-index");

/// The start of this process, on the clock of leases and on the wall clock.
#[derive(Clone, Copy)]
struct Started {
    at: Moment,
    date: SystemTime,
}

/// The services of the two listeners.
pub struct Services {
    /// Serves all routes to the application, at `http.listen`.
    pub api: Service,
    /// Serves health checks, metrics and who leads to other machines, at `http.probe_listen`.
    pub probes: Service,
}

/// A router, as a service for the server of `hyper`.
pub type Service = TowerToHyperService<Router>;

/// The version of the API. Each path is served with and without this prefix.
const VERSION: &str = "/v1";

/// Returns the services of the two listeners. `limits` are those of the application's listener. Both services share its
/// memory budget.
pub fn services(
    status: StatusHandle,
    clock: Clock,
    names: ElectionNames,
    authorization: Authorization,
    limits: &ConnectionLimits,
) -> Services {
    let inner = Arc::new(AppStateInner {
        status,
        clock,
        lease_clock: api::LeaseClock::read(),
        names,
        started: Started { at: clock.now(), date: clock.date() },
        waiting: Arc::new(Semaphore::new(limits.waiting())),
        budget: limits.budget().clone(),
        authorization,
        requests: RequestCounters::zero(),
        amending: Mutex::default(),
        registry: holdings::HoldingRegistry::default(),
        value_events: shared_config::ValueEvents::default(),
        members_read: SharedReading::default(),
    });
    let app = AppState { inner, serves_probes: false };
    Services {
        probes: service(routes::probe_routes(), AppState { serves_probes: true, ..app.clone() }),
        api: service(routes::api_routes(), app),
    }
}

fn service(routes: Router<AppState>, app: AppState) -> Service {
    let router = Router::new()
        .nest(VERSION, routes.clone())
        .merge(routes)
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), answer))
        .with_state(app);
    TowerToHyperService::new(router)
}

async fn no_such_path(uri: Uri) -> ProblemResponse {
    let detail = format!(
        "there is nothing at {}: /openapi.json at http.listen describes all paths, of which http.probe_listen serves a few",
        uri.path()
    );
    ProblemResponse::new(StatusCode::NOT_FOUND, "no-such-path", detail)
}

async fn wrong_method() -> ProblemResponse {
    let detail = "the header Allow has the methods of this path";
    ProblemResponse::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail)
}

/// Makes an answer within the memory budget, adds the headers of every answer, and counts it.
async fn answer(
    State(app): State<AppState>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let response = match reserve_for_body(&app.budget, request.body()) {
        Ok(_reserved_until_answered) => next.run(request).await,
        Err(full) => full.into_response(),
    };
    let mut response = reserve_for_answer(&app.budget, response);
    let headers = response.headers_mut();
    // No cache may store an answer: who leads may change right after the answer is written.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A page that embeds an answer as a script must not learn from the browser's reaction what the answer is.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    app.requests.count(route.as_ref(), response.status());
    response
}

/// The longest answer, in bytes, for which no memory is reserved.
const UNRESERVED_MAX: u64 = 4096;

/// The number of bytes that are reserved for the body of a request. Only the value of a write may be longer:
/// `shared_config` reserves more for it as it arrives.
const BODY_RESERVATION: usize = 16 * 1024;

/// Reserves memory for the body of a request, if it has one.
fn reserve_for_body(budget: &ByteBudget, body: &Body) -> Result<ReservedBytes, ProblemResponse> {
    if body.is_end_stream() {
        return Ok(ReservedBytes::default());
    }
    budget.take(BODY_RESERVATION).ok_or_else(|| ProblemResponse::buffers_full(budget))
}

/// Reserves memory for an answer until it is written, and returns the answer. If the budget is used up, returns an
/// error response instead. The length of a stream is not known: a stream reserves the memory of each event (`sse`).
fn reserve_for_answer(budget: &ByteBudget, response: Response) -> Response {
    let Some(length) = response.body().size_hint().exact().filter(|n| *n > UNRESERVED_MAX) else {
        return response;
    };
    match budget.take(usize::try_from(length).unwrap_or(usize::MAX)) {
        Some(memory) => {
            ConnectionClaims::current().hold(memory);
            response
        }
        None => ProblemResponse::buffers_full(budget).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;
    use axum::body::Body;
    use axum::http::StatusCode;
    use http_body_util::BodyExt;
    use hyper::service::Service as _;
    use recipes::election::{Event, Member, Policy, Profile, Standing};
    use recipes::{FencingToken, Margins, MemberId, Sequence, SessionEvent, SessionId, Ticket};
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test]
    async fn a_loop_that_has_not_turned_for_half_a_minute_is_stuck() {
        let livez = async |seconds: u64| {
            let (service, _back) = api(Duration::from_secs(seconds));
            ask(&service, "/livez").await.status()
        };
        assert_eq!(livez(0).await, StatusCode::OK);
        assert_eq!(livez(29).await, StatusCode::OK);
        assert_eq!(livez(31).await, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn one_more_client_than_may_wait_is_refused_until_another_leaves() {
        let (service, _back) = api(Duration::ZERO);
        let mut streams = vec![];
        for _ in 0..ConnectionLimits::for_application(ByteBudget::of_mib(12)).waiting() {
            streams.push(ask(&service, "/events").await);
        }
        assert!(streams.iter().all(|stream| stream.status() == StatusCode::OK));
        for path in ["/events", "/sse", "/leader?index=1"] {
            let refused = ask(&service, path).await;
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
            assert_eq!(refused.headers()[header::RETRY_AFTER], "1", "{path}");
        }
        streams.pop();
        assert_eq!(ask(&service, "/sse").await.status(), StatusCode::OK);
    }

    /// If a request borrows the watch channel, and borrows it again before the first borrow ends, a writer that waits
    /// in between blocks both. So the request must drop the first borrow.
    #[test]
    fn a_command_does_not_wait_for_a_writer_that_waits_for_it() {
        let (done, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            let (service, mut publisher) = {
                let _in_runtime = runtime.enter();
                api(Duration::ZERO)
            };
            let places = [1, 2].map(leads);
            publisher.amend(|snapshot| snapshot.standing = places[0].clone());
            let (ended, end) = std::sync::mpsc::channel::<()>();
            let election = std::thread::spawn(move || {
                let mut place = 0;
                while end.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    if let Ok(status::MemberRequest::Command(_, caller)) =
                        publisher.requests.try_recv()
                    {
                        place = 1 - place;
                        publisher.amend(|it| it.standing = places[place].clone());
                        caller.send(true);
                    }
                    publisher.amend(|_| {});
                }
            });
            runtime.block_on(async {
                for _ in 0..20_000 {
                    let resign = Request::post("/resign").header("x-bellwether", "1");
                    let resign = resign.body(Body::empty()).unwrap();
                    let answer = send(&service, resign).await;
                    assert_eq!(answer.status(), StatusCode::ACCEPTED);
                }
            });
            drop(ended);
            election.join().unwrap();
            done.send(()).unwrap();
        });
        all.recv_timeout(Duration::from_secs(30)).expect("no thread is stuck");
    }

    fn leads(number: i32) -> Standing {
        let mut member = member();
        let sent_at = Clock::system().now();
        let sequence = Sequence::new(number).unwrap();
        let ticket = Ticket { sequence, token: FencingToken(u64::from(number.unsigned_abs())) };
        let timeout = Duration::from_secs(60);
        member.step(
            sent_at,
            Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at }),
        );
        member.step(sent_at, Event::Joined(ticket));
        member.step(sent_at, Event::QueueRead([sequence].into_iter().collect()));
        member.step(sent_at, Event::Committed { sent_at });
        member.standing()
    }

    /// The server waits for a body only for a limited time, and without authorization not at all.
    #[tokio::test(start_paused = true)]
    async fn a_request_whose_body_never_ends_is_answered() {
        let (service, _back) = api(Duration::ZERO);
        let amend = async |header_name: &str| {
            let endless =
                Body::from_stream(futures_util::stream::pending::<Result<&str, Infallible>>());
            let request = Request::patch("/member").header(header_name, "1");
            let request = request.header(header::CONTENT_TYPE, "application/json").body(endless);
            let asked = Instant::now();
            let answer = send(&service, request.unwrap()).await;
            (answer.status(), asked.elapsed().as_secs())
        };
        assert_eq!(amend("x-nothing").await, (StatusCode::FORBIDDEN, 0));
        assert_eq!(amend("x-bellwether").await, (StatusCode::REQUEST_TIMEOUT, 10));
    }

    /// Otherwise a page that embeds an answer as a script could learn whether the request succeeded.
    #[tokio::test]
    async fn no_answer_is_taken_for_anything_but_what_it_is() {
        let (service, _back) = api(Duration::ZERO);
        for path in ["/", "/leader", "/is-leader", "/is-follower", "/nonsense"] {
            let answer = ask(&service, path).await;
            let nosniff = answer.headers().get_all(header::X_CONTENT_TYPE_OPTIONS);
            assert!(nosniff.iter().eq(["nosniff"]), "{path}: once");
        }
    }

    #[tokio::test]
    async fn the_loopback_is_known_in_each_of_its_spellings() {
        for (address, is_loopback) in [
            ("127.0.0.1:0", true),
            ("127.9.9.9:0", true),
            ("[::ffff:127.0.0.1]:0", true),
            ("0.0.0.0:0", false),
        ] {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            assert_eq!(listener.is_on_loopback(), is_loopback, "{address}");
            let listen = crate::config::table::LISTEN.parse(address).unwrap();
            assert_eq!(listen.is_local(), is_loopback, "{address}");
        }
    }

    /// Programs that generate a client from the description fail if a reference leads nowhere.
    #[tokio::test]
    async fn all_that_the_description_names_is_in_it() {
        let (service, _back) = api(Duration::ZERO);
        let document = ask(&service, "/openapi.json").await.into_body().collect().await.unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document.to_bytes()).unwrap();
        let written = document.to_string();
        let mut named: Vec<_> = written.split("\"$ref\":\"#").skip(1).collect();
        named.iter_mut().for_each(|name| *name = name.split('"').next().unwrap());
        assert!(!named.is_empty());
        let missing: Vec<_> = named.iter().filter(|at| document.pointer(at).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    pub(super) async fn ask(service: &Service, path: &str) -> Response {
        send(service, Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn send(service: &Service, request: Request) -> Response {
        let Ok(answer) = service.call(request).await;
        answer
    }

    pub(super) fn member() -> Member {
        let id = MemberId::new("a").unwrap();
        let labels = BTreeMap::new();
        let profile = Profile { id, address: None, labels, revision: 0 };
        let second = Duration::from_secs(1);
        let margins = Margins { heartbeat: second, half_tick: second };
        Member::new(Arc::new(profile), Policy::new(margins))
    }

    /// Returns the API of a member that has not joined, and whose loop last ran this long ago.
    pub(super) fn api(ago: Duration) -> (Service, status::StatusPublisher) {
        let clock = Clock::system();
        let last_looped_at = clock.now().0.checked_sub(ago).expect("up for a minute");
        let (publisher, status) = status::set_up(&member(), Moment(last_looped_at));
        (api_of(status), publisher)
    }

    pub(super) fn api_of(status: StatusHandle) -> Service {
        let limits = ConnectionLimits::for_application(ByteBudget::of_mib(12));
        services_of(status, &limits).api
    }

    /// Returns the service for probes of a member that has not joined.
    pub(super) fn probes() -> (Service, status::StatusPublisher) {
        let (publisher, status) = status::set_up(&member(), Clock::system().now());
        let limits = ConnectionLimits::for_probes(ByteBudget::of_mib(12));
        (services_of(status, &limits).probes, publisher)
    }

    fn services_of(status: StatusHandle, limits: &ConnectionLimits) -> Services {
        let names = ElectionNames {
            election: "/election".into(),
            path: "/election".into(),
            znodes: "leader_".into(),
        };
        services(status, Clock::system(), names, Authorization::Header, limits)
    }
}
