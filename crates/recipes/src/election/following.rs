//! The behaviour of a member behind others: relay announcements, and read the head at each heartbeat.

use super::announcement::KnownLeader;
use super::phase::InQueue;
use super::{Action, Announcement, Member};
use crate::contender::{AfterHead, AfterPredecessor};
use crate::queue::Head;
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Sequence, Ticket};

impl Member {
    pub(super) fn on_predecessor_read(
        &mut self,
        predecessor: Ticket,
        announcement: Option<Announcement>,
        now: Moment,
    ) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        if !queue.contender.on_predecessor_read(predecessor) {
            return;
        }
        if !(self.relays || queue.contender.is_standby()) {
            return;
        }
        queue.note_unlisted(announcement.as_ref().map(|announcement| announcement.ticket));
        if queue.contender.is_standby() {
            // A session's reads never go back: this one is newer than every announcement known so far.
            self.on_head_announcement(predecessor, announcement, true, now);
        } else if queue.is_doubtful() {
            // The head may have gone since it was proven, and another lead: a quorum is asked again.
            queue.prove_head |= announcement.is_some_and(|announcement| {
                queue.doubted_under != Some(announcement.ticket.sequence)
            });
        } else if let Some(new) =
            announcement.filter(|announcement| queue.is_new(announcement, predecessor.sequence))
        {
            self.relay(new, now);
        }
    }

    pub(super) fn on_predecessor_gone(
        &mut self,
        gone: Sequence,
        token: Option<FencingToken>,
        now: Moment,
    ) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_predecessor_gone(gone, token, session, now) {
            AfterPredecessor::Ignored => {}
            AfterPredecessor::Claim => self.become_candidate(now),
            // The session has a lease: the member leads, and the claim follows.
            AfterPredecessor::Hold => self.announce_leadership(now),
            AfterPredecessor::ReadQueue => {
                queue.leader.retain_if(|leader| leader != gone);
                self.outbox.push(Action::ReadQueue);
            }
        }
    }

    pub(super) fn on_head_read(
        &mut self,
        head: Ticket,
        announcement: Option<Announcement>,
        sent_at: Moment,
        now: Moment,
    ) {
        if let Some(session) = self.phase.session_mut() {
            session.answered(sent_at, now);
        }
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        if let Some(unlisted) = queue.unlisted.take_if(|ticket| ticket.sequence == head.sequence) {
            if unlisted != head {
                queue.last_denied = Some(unlisted);
                return;
            }
            queue.leader = KnownLeader::Unknown;
            queue.contender.forget_queue();
            return self.outbox.push(Action::ReadQueue);
        }
        if queue.contender.on_head_read(head) {
            queue.note_unlisted(announcement.as_ref().map(|announcement| announcement.ticket));
            let is_newer = queue.leader.was_announced_before(sent_at);
            self.on_head_announcement(head, announcement, is_newer, now);
        }
    }

    pub(super) fn on_head_gone(&mut self, gone: Sequence, sent_at: Moment, now: Moment) {
        if let Some(session) = self.phase.session_mut() {
            session.answered(sent_at, now);
        }
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        if let Some(unlisted) = queue.unlisted.take_if(|ticket| ticket.sequence == gone) {
            queue.last_denied = Some(unlisted);
            return;
        }
        let after = queue.contender.on_head_gone(gone);
        if after != AfterHead::Ignored {
            queue.leader.retain_if(|leader| leader > gone);
        }
        if let AfterHead::Read(head) = after {
            session.heartbeat_sent(now);
            self.outbox.push(Action::ReadHead { head, prove: false, sent_at: now });
        }
    }

    /// Reads the head, or the queue where the head is not known.
    pub(super) fn poll_head(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let head = queue.contender.predecessors().map(|ahead| ahead.head);
        let action = match head {
            Some(Head::Stands(head)) => {
                // A server that lost the ends of several members goes on showing them, and none of them contradicts another.
                let every = if queue.leader.announcement().is_some() { 64 } else { 8 };
                let is_due = session.is_proof_due(queue.contender.ticket().sequence, every, now);
                let prove = std::mem::take(&mut queue.prove_head) || is_due;
                session.heartbeat_sent(now);
                Action::ReadHead { head, prove, sent_at: now }
            }
            Some(Head::Gone(_)) | None => {
                session.skip_heartbeat(now);
                Action::ReadQueue
            }
        };
        self.outbox.push(action);
    }

    /// Takes what the head announces of itself for the truth, since no other member leads while it stands: a known
    /// announcement that contradicts it is dropped, unless that is the newer one.
    fn on_head_announcement(
        &mut self,
        head: Ticket,
        announcement: Option<Announcement>,
        is_newer: bool,
        now: Moment,
    ) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        // A head that did not come first is as doubtful as the members it overtook.
        let in_order = queue.out_of_order().is_none();
        let named = announcement.as_ref().map(|announcement| announcement.ticket);
        let own = announcement.filter(|announcement| in_order && announcement.ticket == head);
        let known = queue.leader.announcement();
        let contradicts =
            known.is_some_and(|known| own.as_ref().is_none_or(|own| known.is_contradicted_by(own)));
        if contradicts && is_newer {
            // The server at hand may show a head that is gone. A quorum is asked once: a member that lies may stand there
            // for long.
            queue.prove_head |= queue.doubted_under != Some(head.sequence);
            queue.doubted_under = Some(head.sequence);
            queue.leader = KnownLeader::Unknown;
            // The head may be right about another leader, which the server at hand lacks.
            queue.note_unlisted(named);
        } else if own.is_some() && matches!(queue.leader, KnownLeader::Gone(_)) {
            // The leader that left may never have led: its announcement may have been a lie.
            queue.leader = KnownLeader::Unknown;
        }
        let new = own.filter(|announcement| queue.is_new(announcement, head.sequence));
        match new {
            Some(new) => self.relay(new, now),
            None if queue.contender.is_standby() => {
                self.outbox.extend(queue.prove_standby(session, now));
            }
            None => {}
        }
    }

    /// Relays a new announcement to the members behind.
    fn relay(&mut self, announcement: Announcement, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let leader = announcement.ticket.sequence;
        queue.leader = KnownLeader::Announced { announcement, since: now };
        queue.unlisted = None;
        if !self.relays {
            if queue.contender.is_standby() {
                self.outbox.extend(queue.prove_standby(session, now));
            }
            return;
        }
        let data = queue.data(&self.profile, self.priority);
        let ahead = queue.contender.predecessors().filter(|_| !session.is_heartbeat_under_way());
        match ahead.map(|ahead| (ahead.head, ahead.predecessor)) {
            // The relay is a quorum write: it will do for the standby's heartbeat.
            Some((Head::Stands(head), predecessor)) if head == predecessor => {
                session.heartbeat_sent(now);
                self.outbox.push(Action::Relay { data, sent_at: Some(now) });
            }
            // If the predecessor leads, the head that was is gone, and this member is the standby. It asks at once.
            Some((Head::Stands(head), predecessor)) if leader == predecessor => {
                session.heartbeat_sent(now);
                self.outbox.push(Action::Relay { data, sent_at: None });
                self.outbox.push(Action::ReadHead { head, prove: false, sent_at: now });
            }
            _ => self.outbox.push(Action::Relay { data, sent_at: None }),
        }
    }
}

impl InQueue {
    /// Begins to heartbeat by quorum writes, unless a heartbeat is under way or the lease will do.
    pub(super) fn prove_standby(&self, session: &mut LeasedSession, now: Moment) -> Option<Action> {
        if session.is_heartbeat_under_way() || session.has_enough_lease(now) {
            return None;
        }
        session.heartbeat_sent(now);
        Some(self.renew(now))
    }

    /// Notes a leader that the queue did not show, where no other is known.
    fn note_unlisted(&mut self, announced: Option<Ticket>) {
        let unlisted = announced.filter(|ticket| {
            self.leader.announcement().is_none()
                && self.last_denied != Some(*ticket)
                && self.contender.is_ahead_of_queue(*ticket)
        });
        self.unlisted = unlisted.or(self.unlisted);
    }

    /// Asks a quorum for a leader that the queue did not show, as long as others are ahead.
    pub(super) fn ask_for_unlisted(&self, now: Moment) -> Option<Action> {
        let head = self.contender.predecessors().and(self.unlisted)?.sequence;
        Some(Action::ReadHead { head, prove: true, sent_at: now })
    }

    pub(super) fn renew(&self, now: Moment) -> Action {
        let ahead = self.contender.predecessors().filter(|_| self.contender.is_standby());
        Action::Renew { predecessor: ahead.map(|ahead| ahead.predecessor), sent_at: now }
    }

    /// Whether the predecessor, or a member ahead of it, announced what the present head contradicted.
    fn is_doubtful(&self) -> bool {
        let head = self.contender.predecessors().map(|ahead| ahead.head);
        matches!(head, Some(Head::Stands(head)) if self.doubted_under == Some(head))
    }

    /// Returns two members ahead that did not come in the order of their numbers.
    pub(super) fn out_of_order(&self) -> Option<(Sequence, Sequence)> {
        self.contender
            .predecessors()
            .and_then(|predecessors| predecessors.out_of_order(self.contender.ticket()))
    }

    /// Whether an announcement read from this znode is new, and may be true. The leader is first in the queue: so it is
    /// old if it names a member that has left, and a lie if it names one behind the member that relays it, or a znode
    /// that cannot have this place in the queue.
    fn is_new(&self, announcement: &Announcement, from: Sequence) -> bool {
        let leader = announcement.ticket;
        leader.sequence <= from
            && leader.token < self.contender.ticket().token
            && self.contender.predecessors().is_some_and(|ahead| ahead.may_be_first(leader))
            && self.leader.is_older_than(announcement)
    }
}
