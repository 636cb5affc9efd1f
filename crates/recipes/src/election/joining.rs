//! From a session to a place in the queue.

use super::announcement::KnownLeader;
use super::phase::{InQueue, Next, Phase, Stage, rejoin, stay};
use super::{Action, Member, Profile, ZnodeData};
use crate::contender::Located;
use crate::session::LeasedSession;
use crate::{Moment, Queue, SessionId, SessionRecord, Ticket};
use std::sync::Arc;
use std::time::Duration;

impl Member {
    pub(super) fn on_session_opened(
        &self,
        phase: Phase,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        let Phase::NoSession = phase else { return stay(phase) };
        match LeasedSession::opened(self.lease_policy, id, timeout, sent_at) {
            None => self.become_too_short(now),
            Some(session) if self.kept_out => {
                let stage = Stage::KeptOut { recheck_at: None };
                (Phase::InSession(session, stage), vec![Action::ReadQueue])
            }
            Some(session) => self.join(session),
        }
    }

    pub(super) fn on_session_taken_over(
        &mut self,
        phase: Phase,
        record: SessionRecord,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        let Phase::NoSession = phase else { return stay(phase) };
        // The process before may have told of the end of its lease as well: one more than it noted.
        let index = record.index.map(|index| index.saturating_add(2));
        self.index = self.index.max(index);
        match LeasedSession::taken_over(self.lease_policy, record, timeout, sent_at, now) {
            None => self.become_too_short(now),
            Some(_) if self.kept_out => rejoin(),
            Some(session) => {
                (Phase::InSession(session, Stage::FindingTicket), vec![Action::FindTicket])
            }
        }
    }

    /// Goes on where the process before was: in the same place, under the same token.
    pub(super) fn on_ticket_found(
        &mut self,
        phase: Phase,
        ticket: Ticket,
        data: Option<ZnodeData>,
        now: Moment,
    ) -> Next {
        let Phase::InSession(session, Stage::FindingTicket) = phase else { return stay(phase) };
        let mut queue = InQueue::joined(ticket);
        queue.may_own_claim = true;
        let mut actions = vec![Action::ReadQueue];
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
        if found_profile != Some((self.profile.clone(), self.priority)) {
            actions.push(Action::Update(queue.data(&self.profile, self.priority)));
        }
        (Phase::InSession(session, Stage::InQueue(queue)), actions)
    }

    /// Returns the own profile under a revision by which the others take it for newer than the one found, if it differs.
    fn newer_than(&self, found: &Profile) -> Arc<Profile> {
        let own = &*self.profile;
        let is_same = (&own.address, &own.labels) == (&found.address, &found.labels);
        let revision = own.revision.max(found.revision + u64::from(!is_same));
        Arc::new(Profile { revision, ..own.clone() })
    }

    /// Of what the session owned, the claim may still stand, and goes only with the session.
    pub(super) fn on_no_ticket_found(phase: Phase) -> Next {
        match phase {
            Phase::InSession(_, Stage::FindingTicket) => rejoin(),
            phase => stay(phase),
        }
    }

    pub(super) fn on_session_resumed(
        &self,
        phase: Phase,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        let Phase::InSession(session, stage) = phase else { return stay(phase) };
        match session.resumed(timeout, sent_at, now) {
            Some(session) => stay(Phase::InSession(session, stage)),
            None => self.become_too_short(now),
        }
    }

    /// A leader holds to the end of its lease, and further if its session is resumed in time.
    pub(super) fn on_disconnected(phase: Phase) -> Next {
        let is_first = phase.in_queue().is_some_and(|(_, queue)| queue.contender.is_first());
        // Without leases, it leads only while it is connected.
        if cfg!(bellwether_without_lease) && is_first { rejoin() } else { stay(phase) }
    }

    pub(super) fn on_session_lost(phase: Phase) -> Next {
        match phase {
            Phase::Stopped | Phase::Withdrawn | Phase::SessionTooShort { .. } => stay(phase),
            Phase::NoSession | Phase::InSession(..) => {
                (Phase::NoSession, vec![Action::OpenSession])
            }
        }
    }

    pub(super) fn on_joined(&self, phase: Phase, ticket: Ticket) -> Next {
        let Phase::InSession(session, Stage::Joining { profile, priority }) = phase else {
            return stay(phase);
        };
        let queue = InQueue::joined(ticket);
        let mut actions = vec![Action::ReadQueue];
        if (profile, priority) != (self.profile.clone(), self.priority) {
            actions.push(Action::Update(queue.data(&self.profile, self.priority)));
        }
        (Phase::InSession(session, Stage::InQueue(queue)), actions)
    }

    pub(super) fn on_ticket_lost(&self, phase: Phase, lost: Ticket) -> Next {
        match phase {
            // The claim znode goes only with the session.
            Phase::InSession(_, Stage::InQueue(queue))
                if queue.contender.ticket() == lost
                    && (queue.contender.is_first() || queue.may_own_claim) =>
            {
                rejoin()
            }
            Phase::InSession(mut session, Stage::InQueue(queue))
                if queue.contender.ticket() == lost =>
            {
                session.forget_heartbeat();
                self.join(session)
            }
            phase => stay(phase),
        }
    }

    pub(super) fn on_queue_read(&self, phase: Phase, read: Queue, now: Moment) -> Next {
        match phase {
            Phase::InSession(session, Stage::KeptOut { .. }) => {
                let delay = self.lease_policy.margins.recheck_delay(session.id());
                let stage = Stage::KeptOut { recheck_at: Some(now.after(delay)) };
                stay(Phase::InSession(session, stage))
            }
            Phase::InSession(session, Stage::InQueue(queue)) if !queue.contender.is_first() => {
                self.locate(session, queue, read, now)
            }
            phase => stay(phase),
        }
    }

    /// Leaves the queue while contenders of another order stand in the path, and joins when they are gone. Each of the two
    /// orders would have a first.
    pub(super) fn on_foreign(&mut self, phase: Phase, keep_out: bool, now: Moment) -> Next {
        self.kept_out = keep_out;
        match phase {
            Phase::InSession(
                _,
                Stage::Joining { .. } | Stage::FindingTicket | Stage::InQueue(_),
            ) if keep_out => rejoin(),
            phase @ (Phase::Stopped
            | Phase::Withdrawn
            | Phase::NoSession
            | Phase::SessionTooShort { .. }
            | Phase::InSession(..)) => self.return_to_queue(phase, now),
        }
    }

    fn locate(
        &self,
        mut session: LeasedSession,
        mut queue: InQueue,
        read: Queue,
        now: Moment,
    ) -> Next {
        match queue.contender.on_queue_read(read) {
            Located::Ignored => stay(Phase::InSession(session, Stage::InQueue(queue))),
            Located::First => self.become_candidate(session, queue, now),
            Located::Missing if queue.may_own_claim => rejoin(),
            Located::Missing => self.join(session),
            Located::Behind { watch, head } => {
                queue.leader = queue.leader.retain_if(|leader| leader >= head);
                let mut actions = Vec::with_capacity(2);
                actions.extend(watch.map(Action::WatchPredecessor));
                // An earlier announcement of the predecessor may have been skipped, and it is read again only when it
                // changes. Others than the standby ask the head with each heartbeat.
                let will_ask =
                    queue.leader.announcement().is_some() && !queue.contender.is_standby();
                let will_hear = watch == Some(head) || will_ask;
                if !will_hear {
                    session.heartbeat_sent(now);
                    actions.push(Action::ReadHead { head, prove: false, sent_at: now });
                } else if queue.contender.is_standby() {
                    actions.extend(queue.prove_standby(&mut session, now));
                }
                (Phase::InSession(session, Stage::InQueue(queue)), actions)
            }
        }
    }

    /// Creates the own znode. It announces no leader yet.
    pub(super) fn join(&self, session: LeasedSession) -> Next {
        let profile = self.profile.clone();
        let priority = self.priority;
        let data = ZnodeData { priority, ..ZnodeData::of(profile.clone()) };
        (Phase::InSession(session, Stage::Joining { profile, priority }), vec![Action::Join(data)])
    }

    /// After a long wait without heartbeats the session could not carry a lease at once: then another is opened.
    pub(super) fn join_after_wait(&self, session: LeasedSession, now: Moment) -> Next {
        if session.is_unbroken(now) { self.join(session) } else { rejoin() }
    }

    fn become_too_short(&self, now: Moment) -> Next {
        let retry_at = now.after(10 * self.lease_policy.margins.heartbeat);
        (Phase::SessionTooShort { retry_at }, vec![Action::CloseSession])
    }
}
