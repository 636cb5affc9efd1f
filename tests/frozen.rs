//! What is answered while the election itself does not run. Nothing else can show that: when a frozen
//! process goes on, its election may be quicker than the first question.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bellwether::byte_budget::ByteBudget;
use bellwether::clock::Clock;
use bellwether::http;
use bellwether::status;
use bellwether::znode_names::ElectionNames;
use hyper::service::Service;
use recipes::election::{Event, Member, Policy, Profile};
use recipes::{
    FencingToken, Margins, MemberId, Moment, Queue, Sequence, SessionEvent, SessionId, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn t23_a_leader_that_was_frozen_answers_by_the_time_it_is_not_by_the_time_it_was() {
    let clock = Clock::system();
    let boot = Moment(Duration::ZERO);
    for path in ["/is-leader", "/leader"] {
        assert_eq!(
            answer(path, clock.now(), clock).await,
            StatusCode::OK,
            "{path} within the lease"
        );
        assert_eq!(
            answer(path, boot, clock).await,
            StatusCode::SERVICE_UNAVAILABLE,
            "{path} after it"
        );
    }
}

/// What a member answers whose election has led at this moment and has not run since.
async fn answer(path: &str, frozen_at: Moment, clock: Clock) -> StatusCode {
    let (_publisher, front) = status::set_up(&leading_at(frozen_at), frozen_at);
    let names = ElectionNames {
        election: "/election".into(),
        path: "/election".into(),
        znodes: "leader_".into(),
    };
    let limits = http::ConnectionLimits::for_application(ByteBudget::of_mib(12));
    let service = http::services(front, clock, names, http::Authorization::Header, &limits).api;
    let request = Request::get(path).body(Body::empty()).unwrap();
    let Ok(answer) = service.call(request).await;
    answer.status()
}

fn leading_at(now: Moment) -> Member {
    let id = MemberId::new("a").unwrap();
    let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
    let second = Duration::from_secs(1);
    let margins = Margins { heartbeat: second, half_tick: second };
    let mut member = Member::new(Arc::new(profile), Policy::new(margins));
    let sequence = Sequence::new(0).unwrap();
    let (session, timeout) = (SessionId(1), 10 * second);
    for event in [
        Event::Session(SessionEvent::Opened { session, timeout, sent_at: now }),
        Event::Joined(Ticket { sequence, token: FencingToken(1) }),
        Event::QueueRead(Queue::from_iter([sequence])),
        Event::Committed { sent_at: now },
    ] {
        member.step(now, event);
    }
    member
}
