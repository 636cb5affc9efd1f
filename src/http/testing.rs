//! A member that tests step by hand, and the API that serves its state.

use super::tests::{api_of, member};
use super::{Service, StatusHandle};
use crate::api::Application;
use crate::clock::Clock;
use crate::problems::{Problem, ProblemKind, Problems};
use crate::status::{self, ForeignQueue, Hooks, RecordedChange, Snapshot, StatusPublisher};
use recipes::election::{Announcement, Cause, Event, Member, Profile, changes};
use recipes::{
    FencingToken, ForeignClient, MemberId, Moment, Sequence, SessionEvent, SessionId, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// A member that is stepped by hand, and its API.
pub(super) struct MemberFixture {
    pub(super) member: Member,
    pub(super) service: Service,
    pub(super) publisher: StatusPublisher,
    pub(super) hooks: watch::Sender<Hooks>,
    pub(super) application: watch::Sender<Option<Application>>,
    pub(super) now: Moment,
}

pub(super) fn contender_of_kazoo(keeps_out: bool) -> ForeignQueue {
    let compatible_with = keeps_out.then_some(ForeignClient::CuratorLatch);
    ForeignQueue {
        family: ForeignClient::Kazoo,
        contenders: 1,
        first: "x".into(),
        id: None,
        compatible_with,
    }
}

impl MemberFixture {
    pub(super) fn new() -> Self {
        Self::of(member())
    }

    pub(super) fn of(member: Member) -> Self {
        let now = Clock::system().now();
        let (publisher, status) = status::set_up(&member, now);
        let hooks = watch::Sender::new(Hooks::default());
        let application = watch::Sender::new(None);
        let status = StatusHandle {
            hooks: hooks.subscribe(),
            application: application.subscribe(),
            ..status
        };
        Self { member, service: api_of(status), publisher, hooks, application, now }
    }

    pub(super) fn publishes(&self, change: impl FnOnce(&mut Snapshot)) {
        self.publisher.amend(change);
    }

    pub(super) fn step(&mut self, event: Event) {
        self.step_at(0, event);
    }

    /// Steps the member, and records the changes with this second as their time.
    pub(super) fn step_at(&mut self, second: u64, event: Event) {
        let cause = Cause::of(&event, &self.member.standing(), self.now);
        self.member.step(self.now, event);
        let standing = self.member.standing();
        let now = self.now;
        self.publishes(|snapshot| {
            let recent_changes = Arc::make_mut(&mut snapshot.recent_changes);
            for change in changes(recent_changes.role(), &standing.at(now)) {
                let index = standing.index_at(now);
                let at = at(second);
                recent_changes.push(RecordedChange { change, index, at, cause, down_for: None });
            }
            snapshot.standing = standing;
        });
    }

    pub(super) fn enters(&mut self, number: i32, queue: &[i32]) {
        let session = SessionId(number.into());
        let sent_at = self.now;
        let timeout = Duration::from_secs(60);
        self.step(Event::Session(SessionEvent::Opened { session, timeout, sent_at }));
        self.step(Event::Joined(ticket(number)));
        self.step(Event::QueueRead(queue.iter().map(|n| ticket(*n).sequence).collect()));
    }

    /// Lets the member join with this number as the only one in the queue, and lead.
    pub(super) fn leads(&mut self, number: i32) {
        self.enters(number, &[number]);
        self.is_acknowledged();
    }

    /// A quorum acknowledges the claim that was sent last. If a heartbeat was sent at the same moment, the claim was
    /// sent a nanosecond later.
    pub(super) fn is_acknowledged(&mut self) {
        self.step(Event::Committed { sent_at: self.now.after(Duration::from_nanos(1)) });
    }

    /// Lets the member lose its znode with this number, and its session.
    pub(super) fn loses(&mut self, number: i32) {
        self.step(Event::TicketLost(ticket(number)));
        self.step(Event::Session(SessionEvent::Lost));
    }

    /// Lets the member join right behind the leader `b`, whose znode has this number.
    pub(super) fn follows(&mut self, number: i32) {
        self.enters(number + 1, &[number, number + 1]);
        let id = MemberId::new("b").unwrap();
        let labels = BTreeMap::new();
        let leader = Arc::new(Profile { id, address: None, labels, revision: 0 });
        let ticket = ticket(number);
        let announcement = Some(Announcement { leader, ticket });
        self.step(Event::PredecessorRead { predecessor: ticket, announcement, distance: None });
    }
}

pub(super) fn ticket(number: i32) -> Ticket {
    let token = FencingToken(number.unsigned_abs().into());
    Ticket { sequence: Sequence::new(number).unwrap(), token }
}

pub(super) fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

/// Returns these problems, each with the second at which it began.
pub(super) fn problems_of(problems: &[(ProblemKind, &str, u64)]) -> Problems {
    let problems = problems.iter().map(|(kind, text, second)| Problem {
        kind: *kind,
        text: (*text).to_owned(),
        since: at(*second),
    });
    problems.collect::<Vec<_>>().into()
}
