//! A member that tests step by hand, and the API that serves its state.

use super::Service;
use super::tests::{api, member};
use crate::clock::Clock;
use crate::status::{RecordedChange, StatusPublisher};
use recipes::election::{Announcement, Cause, Event, Member, Profile, changes};
use recipes::{FencingToken, MemberId, Moment, Sequence, SessionId, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A member that is stepped by hand, and the API of it.
pub(super) struct Scene {
    pub(super) member: Member,
    pub(super) service: Service,
    pub(super) back: StatusPublisher,
    now: Moment,
}

impl Scene {
    pub(super) fn new() -> Self {
        let (service, back) = api(Duration::ZERO);
        Self { member: member(), service, back, now: Clock::system().now() }
    }

    pub(super) fn step(&mut self, event: Event) {
        let cause = Cause::of(&event, &self.member.standing(), self.now);
        self.member.step(self.now, event);
        let (standing, now) = (self.member.standing(), self.now);
        self.back.snapshot.send_modify(|snapshot| {
            let recent_changes = Arc::make_mut(&mut snapshot.recent_changes);
            for change in changes(&recent_changes.view(), &standing.at(now)) {
                let (index, at) = (standing.index_at(now), SystemTime::UNIX_EPOCH);
                recent_changes.push(RecordedChange { change, index, at, cause });
            }
            snapshot.standing = standing;
        });
    }

    pub(super) fn enters(&mut self, number: i32, queue: &[i32]) {
        let (session, sent_at) = (SessionId(number.into()), self.now);
        let timeout = Duration::from_secs(60);
        self.step(Event::SessionOpened { session, timeout, sent_at });
        self.step(Event::Joined(ticket(number)));
        self.step(Event::QueueRead(queue.iter().map(|n| ticket(*n).sequence).collect()));
    }

    pub(super) fn leads(&mut self, number: i32) {
        self.enters(number, &[number]);
        self.is_acknowledged();
    }

    /// A quorum acknowledges what was sent last.
    pub(super) fn is_acknowledged(&mut self) {
        self.step(Event::Committed { sent_at: self.now });
    }

    pub(super) fn loses(&mut self, number: i32) {
        self.step(Event::TicketLost(ticket(number)));
        self.step(Event::SessionLost);
    }

    pub(super) fn follows(&mut self, number: i32) {
        self.enters(number + 1, &[number, number + 1]);
        let (id, labels) = (MemberId::new("b").unwrap(), BTreeMap::new());
        let leader = Arc::new(Profile { id, address: None, labels, revision: 0 });
        let ticket = ticket(number);
        let announcement = Some(Announcement { leader, ticket, active: true });
        self.step(Event::PredecessorRead { predecessor: ticket, announcement });
    }
}

pub(super) fn ticket(number: i32) -> Ticket {
    let token = FencingToken(number.unsigned_abs().into());
    Ticket { sequence: Sequence::new(number).unwrap(), token }
}
