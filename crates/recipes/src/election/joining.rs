//! From a session to a place in the queue.

use super::announcement::KnownLeader;
use super::phase::{InQueue, Phase, Stage};
use super::{Action, Member, Profile, ZnodeData};
use crate::contender::Located;
use crate::session::LeasedSession;
use crate::{Moment, Queue, SessionId, SessionRecord, Ticket};
use std::sync::Arc;
use std::time::Duration;

impl Member {
    pub(super) fn on_session_opened(
        &mut self,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) {
        let Phase::NoSession = self.phase else { return };
        match LeasedSession::opened(self.lease_policy, id, timeout, sent_at) {
            None => self.become_too_short(now),
            Some(session) if self.kept_out => {
                self.phase = Phase::InSession(session, Stage::KeptOut { recheck_at: None });
                self.outbox.push(Action::ReadQueue);
            }
            Some(session) => self.join(session),
        }
    }

    pub(super) fn on_session_taken_over(
        &mut self,
        record: SessionRecord,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) {
        let Phase::NoSession = self.phase else { return };
        // The process before may have told of the end of its lease as well: one more than it noted.
        let index = record.index.map(|index| index.saturating_add(2));
        self.index = self.index.max(index);
        match LeasedSession::taken_over(self.lease_policy, record, timeout, sent_at, now) {
            None => self.become_too_short(now),
            Some(_) if self.kept_out => self.rejoin(),
            Some(session) => {
                self.phase = Phase::InSession(session, Stage::FindingTicket);
                self.outbox.push(Action::FindTicket);
            }
        }
    }

    /// Goes on where the process before was: in the same place, under the same token.
    pub(super) fn on_ticket_found(&mut self, ticket: Ticket, data: Option<ZnodeData>, now: Moment) {
        let Phase::InSession(session, Stage::FindingTicket) = self.phase else { return };
        let mut queue = InQueue::joined(ticket);
        queue.may_own_claim = true;
        if let Some(found) = &data {
            self.profile = self.newer_than(&found.profile);
            queue.ready_shown = found.ready;
        }
        let found_profile = data.as_ref().map(|found| (found.profile.clone(), found.priority));
        let own = data
            .and_then(|found| found.announcement)
            .filter(|announcement| announcement.ticket == ticket);
        if let Some(announcement) = own {
            // The data that others read there must not change before this member leads again.
            queue.leader = KnownLeader::Announced { announcement, since: now };
        }
        self.phase = Phase::InSession(session, Stage::InQueue(queue));
        self.outbox.push(Action::ReadQueue);
        if found_profile != Some((self.profile.clone(), self.priority)) {
            self.update_znode();
        }
    }

    /// Returns the own profile under a revision by which the others take it for newer than the one found, if it differs.
    fn newer_than(&self, found: &Profile) -> Arc<Profile> {
        let own = &*self.profile;
        let is_same = (&own.address, &own.labels) == (&found.address, &found.labels);
        let revision = own.revision.max(found.revision + u64::from(!is_same));
        Arc::new(Profile { revision, ..own.clone() })
    }

    /// Of what the session owned, the claim may still stand, and goes only with the session.
    pub(super) fn on_no_ticket_found(&mut self) {
        if let Phase::InSession(_, Stage::FindingTicket) = self.phase {
            self.rejoin();
        }
    }

    pub(super) fn on_session_resumed(&mut self, timeout: Duration, sent_at: Moment, now: Moment) {
        let Some(session) = self.phase.session_mut() else { return };
        match session.resumed(timeout, sent_at, now) {
            Some(resumed) => *session = resumed,
            None => self.become_too_short(now),
        }
    }

    /// A leader holds to the end of its lease, and further if its session is resumed in time.
    pub(super) fn on_disconnected(&mut self) {
        let is_first = self.phase.in_queue().is_some_and(|(_, queue)| queue.contender.is_first());
        // Without leases, it leads only while it is connected.
        if cfg!(bellwether_without_lease) && is_first {
            self.rejoin();
        }
    }

    pub(super) fn on_session_lost(&mut self) {
        if let Phase::NoSession | Phase::InSession(..) = self.phase {
            self.phase = Phase::NoSession;
            self.outbox.push(Action::OpenSession);
        }
    }

    pub(super) fn on_joined(&mut self, ticket: Ticket) {
        let Phase::InSession(_, stage) = &mut self.phase else { return };
        let Stage::Joining { profile, priority } = stage else { return };
        let is_outdated = (&*profile, *priority) != (&self.profile, self.priority);
        *stage = Stage::InQueue(InQueue::joined(ticket));
        self.outbox.push(Action::ReadQueue);
        if is_outdated {
            self.update_znode();
        }
    }

    pub(super) fn on_ticket_lost(&mut self, lost: Ticket) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        if queue.contender.ticket() != lost {
            return;
        }
        // The claim znode goes only with the session.
        if queue.contender.is_first() || queue.may_own_claim {
            return self.rejoin();
        }
        session.forget_heartbeat();
        let session = *session;
        self.join(session);
    }

    pub(super) fn on_queue_read(&mut self, read: Queue, now: Moment) {
        match &mut self.phase {
            Phase::InSession(session, Stage::KeptOut { recheck_at }) => {
                let delay = self.lease_policy.margins.recheck_delay(session.id());
                *recheck_at = Some(now.after(delay));
            }
            Phase::InSession(_, Stage::InQueue(queue)) if !queue.contender.is_first() => {
                self.locate(read, now);
            }
            _ => {}
        }
    }

    /// Leaves the queue while contenders of another order stand in the path, and joins when they are gone. Each of the two
    /// orders would have a first.
    pub(super) fn on_foreign(&mut self, keep_out: bool, now: Moment) {
        self.kept_out = keep_out;
        match self.phase {
            Phase::InSession(
                _,
                Stage::Joining { .. } | Stage::FindingTicket | Stage::InQueue(_),
            ) if keep_out => self.rejoin(),
            _ => self.return_to_queue(now),
        }
    }

    fn locate(&mut self, read: Queue, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_queue_read(read) {
            Located::Ignored => {}
            Located::First => self.become_candidate(now),
            Located::Missing if queue.may_own_claim => self.rejoin(),
            Located::Missing => {
                let session = *session;
                self.join(session);
            }
            Located::Behind { watch, head } => {
                queue.leader.retain_if(|leader| leader >= head);
                self.outbox.extend(watch.map(Action::WatchPredecessor));
                // An earlier announcement of the predecessor may have been skipped, and it is read again only when it
                // changes. Others than the standby ask the head with each heartbeat.
                let will_ask =
                    queue.leader.announcement().is_some() && !queue.contender.is_standby();
                let will_hear = watch == Some(head) || will_ask;
                if !will_hear {
                    session.heartbeat_sent(now);
                    self.outbox.push(Action::ReadHead { head, prove: false, sent_at: now });
                } else if queue.contender.is_standby() {
                    self.outbox.extend(queue.prove_standby(session, now));
                }
            }
        }
    }

    /// Creates the own znode. It announces no leader yet.
    pub(super) fn join(&mut self, session: LeasedSession) {
        let profile = self.profile.clone();
        let priority = self.priority;
        let data = ZnodeData { priority, ..ZnodeData::of(profile.clone()) };
        self.phase = Phase::InSession(session, Stage::Joining { profile, priority });
        self.outbox.push(Action::Join(data));
    }

    /// Leaves the queue with this session, and joins it again at the tail with another.
    pub(super) fn rejoin(&mut self) {
        self.phase = Phase::NoSession;
        self.outbox.extend([Action::CloseSession, Action::OpenSession]);
    }

    fn become_too_short(&mut self, now: Moment) {
        let retry_at = now.after(10 * self.lease_policy.margins.heartbeat);
        self.phase = Phase::SessionTooShort { retry_at };
        self.outbox.push(Action::CloseSession);
    }
}
