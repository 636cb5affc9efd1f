//! Joining: from the request for a session to a place in the queue.

use super::announcement::KnownLeader;
use super::phase::{InQueue, Phase, Stage};
use super::{Action, Member, Profile, ZnodeData};
use crate::contender::AfterQueueRead;
use crate::session::LeasedSession;
use crate::{Moment, Queue, SessionId, SessionRecord, Ticket};
use std::sync::Arc;
use std::time::Duration;

impl Member {
    /// Joins the queue in the new session, unless the member must stay out of it.
    pub(super) fn on_session_opened(
        &mut self,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) {
        let Phase::NoSession = self.phase else { return };
        match LeasedSession::opened(self.lease_policy, id, timeout, sent_at) {
            None => self.close_short_session(now),
            Some(session) if self.must_stay_out => {
                self.phase = Phase::InSession(session, Stage::KeptOut { recheck_at: None });
                self.outbox.push(Action::ReadQueue);
            }
            Some(session) => self.join(session),
        }
    }

    /// Handles that the servers resumed the session of the previous process: looks for the znode that the session owns.
    pub(super) fn on_session_taken_over(
        &mut self,
        record: SessionRecord,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) {
        let Phase::NoSession = self.phase else { return };
        // The previous process may also have published the end of its lease, with the index after the recorded one. So
        // continue with the index after that.
        let index = record.index.map(|index| index.saturating_add(2));
        self.index = self.index.max(index);
        match LeasedSession::taken_over(self.lease_policy, record, timeout, sent_at, now) {
            None => self.close_short_session(now),
            // The session may own a znode in the queue, in which this member must not be: a new session owns none.
            Some(_) if self.must_stay_out => self.rejoin(),
            Some(session) => {
                self.phase = Phase::InSession(session, Stage::FindingTicket);
                self.outbox.push(Action::FindTicket);
            }
        }
    }

    /// Continues where the previous process was: at the same place in the queue, with the same token.
    pub(super) fn on_ticket_found(&mut self, ticket: Ticket, data: Option<ZnodeData>, now: Moment) {
        let Phase::InSession(session, Stage::FindingTicket) = self.phase else { return };
        let mut queue = InQueue::joined(ticket);
        queue.may_own_claim = true;
        // Whether the znode shows the present profile and priority.
        let mut is_current = false;
        if let Some(found) = data {
            self.profile = self.profile_newer_than(&found.profile);
            is_current = found.profile == self.profile && found.priority == self.priority;
            queue.ready_in_znode = found.ready;
            queue.distance_in_znode = found.distance;
            // If the previous process led, the own znode must keep announcing that until this member leads again:
            // otherwise the other members would know no leader for a moment.
            if let Some(announcement) = found.announcement
                && announcement.ticket == ticket
            {
                queue.leader = KnownLeader::Announced { announcement, since: now };
            }
        }
        self.phase = Phase::InSession(session, Stage::InQueue(queue));
        self.outbox.push(Action::ReadQueue);
        if !is_current {
            self.update_znode();
        }
    }

    /// Returns the own profile. Its revision is at least that of `found`, and larger if the two profiles differ, so
    /// that other members take the own profile for the newer one.
    fn profile_newer_than(&self, found: &Profile) -> Arc<Profile> {
        let own = &*self.profile;
        let is_same = own.address == found.address && own.labels == found.labels;
        let revision = own.revision.max(found.revision + u64::from(!is_same));
        Arc::new(Profile { revision, ..own.clone() })
    }

    /// Opens a new session: the old session may still own the claim znode, which disappears only with that session.
    pub(super) fn on_no_ticket_found(&mut self) {
        if let Phase::InSession(_, Stage::FindingTicket) = self.phase {
            self.rejoin();
        }
    }

    /// Continues the session over its new connection, unless the timeout granted now is too short for a useful lease.
    pub(super) fn on_session_resumed(&mut self, timeout: Duration, sent_at: Moment, now: Moment) {
        let Some(session) = self.phase.session_mut() else { return };
        match session.resumed(timeout, sent_at, now) {
            Some(resumed) => *session = resumed,
            None => self.close_short_session(now),
        }
    }

    /// Does nothing, except in an experiment: a leader keeps leading until its lease ends, and longer if its session is
    /// resumed in time.
    pub(super) fn on_disconnected(&mut self) {
        let is_first = self.phase.in_queue().is_some_and(|(_, queue)| queue.contender.is_first());
        // In the experiment without leases, a member leads only while it is connected.
        if cfg!(bellwether_without_lease) && is_first {
            self.rejoin();
        }
    }

    /// Requests a new session, unless the member closed the last one itself, to be without one for now.
    pub(super) fn on_session_lost(&mut self) {
        if let Phase::NoSession | Phase::InSession(..) = self.phase {
            self.phase = Phase::NoSession;
            self.outbox.push(Action::OpenSession);
        }
    }

    /// Enters the queue, and updates the own znode if the profile or priority has changed since the request.
    pub(super) fn on_joined(&mut self, ticket: Ticket) {
        let Phase::InSession(_, stage) = &mut self.phase else { return };
        let Stage::Joining { profile, priority } = stage else { return };
        let is_outdated = *profile != self.profile || *priority != self.priority;
        *stage = Stage::InQueue(InQueue::joined(ticket));
        self.outbox.push(Action::ReadQueue);
        if is_outdated {
            self.update_znode();
        }
    }

    /// Joins again: in the same session, unless the session may own the claim znode. Ignores the loss of an earlier
    /// ticket.
    pub(super) fn on_ticket_lost(&mut self, lost: Ticket) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        if queue.contender.ticket() != lost {
            return;
        }
        // The claim znode disappears only with the session. Until then, it would keep all others from leading.
        if queue.contender.is_first() || queue.may_own_claim {
            return self.rejoin();
        }
        let session = *session;
        self.join(session);
    }

    /// Finds the own place in the queue. While foreign contenders keep the member out, it only schedules the next
    /// listing. [`Event::Foreign`](super::Event::Foreign) reports when they are gone, and the runner delivers it before
    /// a listing that shows none of them.
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

    /// Leaves the queue when foreign contenders appear in the path, and joins when they are gone. Their client sorts
    /// the queue by another rule, so each rule would have its own leader. A member that leaves opens another session,
    /// and waits in it.
    pub(super) fn on_foreign(&mut self, keep_out: bool, now: Moment) {
        self.must_stay_out = keep_out;
        match self.phase {
            Phase::InSession(
                _,
                Stage::Joining { .. } | Stage::FindingTicket | Stage::InQueue(_),
            ) if keep_out => self.rejoin(),
            _ => self.return_to_queue(now),
        }
    }

    /// Takes the place in the queue that this reading shows.
    fn locate(&mut self, read: Queue, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_queue_read(read) {
            AfterQueueRead::Ignored => {}
            AfterQueueRead::First => self.become_candidate(now),
            // The own znode is gone, as in `on_ticket_lost`.
            AfterQueueRead::Missing if queue.may_own_claim => self.rejoin(),
            AfterQueueRead::Missing => {
                let session = *session;
                self.join(session);
            }
            AfterQueueRead::Behind { watch, head } => {
                // The members ahead of this head have left.
                queue.leader.retain_if(|leader| leader >= head);
                if let Some(predecessor) = watch {
                    // The announcement that was relayed last is another member's.
                    queue.relayed = None;
                    self.outbox.push(Action::WatchPredecessor(predecessor));
                }
                // An announcement of the predecessor may have been ignored before, and the predecessor's znode is read
                // again only when it changes. So read the head now, unless it is read anyway: by the new watch if the
                // head is the new predecessor, or by the next heartbeat, which is soon enough if a leader is known. The
                // standby's heartbeats do not read the head.
                let heartbeat_reads_head =
                    queue.leader.announcement().is_some() && !queue.contender.is_standby();
                let head_is_read_anyway = watch == Some(head) || heartbeat_reads_head;
                if !head_is_read_anyway {
                    session.heartbeat_sent(now);
                    self.outbox.push(Action::ReadHead { head, sent_at: now });
                } else if queue.contender.is_standby() {
                    self.outbox.extend(queue.start_standby_heartbeats(session, now));
                }
            }
        }
    }

    /// Creates the own znode, without an announcement. A heartbeat that checks an earlier znode may never be answered.
    pub(super) fn join(&mut self, mut session: LeasedSession) {
        session.forget_heartbeat();
        let profile = self.profile.clone();
        let priority = self.priority;
        let data = ZnodeData { priority, ..ZnodeData::of(profile.clone()) };
        self.phase = Phase::InSession(session, Stage::Joining { profile, priority });
        self.outbox.push(Action::Join(data));
    }

    /// Leaves the queue by closing this session, and joins again at the tail with a new one.
    pub(super) fn rejoin(&mut self) {
        self.phase = Phase::NoSession;
        self.outbox.extend([Action::CloseSession, Action::OpenSession]);
    }

    /// Closes the session, whose timeout is too short for a useful lease, and schedules the request for another: not
    /// soon, because only a change of the servers' settings is likely to help.
    fn close_short_session(&mut self, now: Moment) {
        let retry_at = now.after(10 * self.lease_policy.margins.heartbeat);
        self.phase = Phase::SessionTooShort { retry_at };
        self.outbox.push(Action::CloseSession);
    }
}
