//! The behaviour of a member behind others: it relays announcements, and reads the head with each heartbeat unless it
//! is the standby.

use super::announcement::KnownLeader;
use super::phase::InQueue;
use super::{Action, Announcement, Distance, Member};
use crate::contender::{AfterHeadGone, AfterPredecessorGone};
use crate::queue::Head;
use crate::session::LeasedSession;
use crate::{FencingToken, Moment, Sequence, Ticket};

impl Member {
    /// Handles a reading of the predecessor's znode, which is watched: relays the announcement in it, if that is new
    /// and may be true.
    pub(super) fn on_predecessor_read(
        &mut self,
        predecessor: Ticket,
        announcement: Option<Announcement>,
        distance: Option<Distance>,
        now: Moment,
    ) {
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        if !queue.contender.on_predecessor_read(predecessor) {
            return;
        }
        let announced = announcement.as_ref().map(|announcement| announcement.ticket);
        queue.relayed = announced.map(|leader| (leader, distance));
        // In another client's election, only the head's znode shows who leads. Only the standby's predecessor is the
        // head, so all others ignore their predecessor's data.
        if !(self.relays || queue.contender.is_standby()) {
            return;
        }
        if queue.contender.is_standby() {
            // Reads in a session never go back in time, so this reading is newer (`true`) than the known announcement.
            self.on_head_announcement(predecessor, announcement, true, now);
        } else if queue.is_contradicted_by_head() {
            // While this head exists, ignore the predecessor's announcement. But the head may have left since a quorum
            // confirmed that it exists: if the predecessor announces another leader, ask the quorum again.
            if let Some(leader) = announced
                && queue.contradicting_head != Some(leader.sequence)
            {
                queue.confirm_head = true;
            }
        } else if let Some(announcement) = announcement
            && queue.is_new(&announcement, predecessor.sequence)
        {
            self.relay(announcement, now);
        }
    }

    /// Leads at once or claims if the predecessor was the head, depending on the lease and on the token. Otherwise
    /// reads the queue again.
    pub(super) fn on_predecessor_gone(
        &mut self,
        gone: Sequence,
        token: Option<FencingToken>,
        now: Moment,
    ) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        match queue.contender.on_predecessor_gone(gone, token, session, now) {
            AfterPredecessorGone::Ignored => {}
            AfterPredecessorGone::Claim => self.become_candidate(now),
            // The session has enough of a lease: the member leads already, and sends the claim now.
            AfterPredecessorGone::Hold => self.announce_leadership(now),
            AfterPredecessorGone::ReadQueue => {
                queue.leader.retain_if(|leader| leader != gone);
                self.outbox.push(Action::ReadQueue);
            }
        }
    }

    /// Handles the answer to a heartbeat that read the head, or the unlisted leader.
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
        if let Some(unlisted) = queue.unlisted_leader()
            && unlisted.sequence == head.sequence
        {
            if unlisted != head {
                // Another znode has this sequence, so the unlisted leader is gone.
                queue.relayed = None;
                return;
            }
            // The unlisted leader exists, so the server did not show all of the queue. Forget what followed from its
            // listing: the queue, and that a leader ahead of it is gone.
            queue.leader = KnownLeader::Unknown;
            queue.contender.forget_queue();
            return self.outbox.push(Action::ReadQueue);
        }
        if queue.contender.on_head_read(head) {
            // The head was read some time after `sent_at`.
            let is_newer = queue.leader.was_announced_before(sent_at);
            self.on_head_announcement(head, announcement, is_newer, now);
        }
    }

    /// Handles the answer to a heartbeat that found the head, the unlisted leader or the predecessor gone. The connected
    /// server may still show the predecessor, so that no notification follows.
    pub(super) fn on_head_gone(&mut self, gone: Sequence, sent_at: Moment, now: Moment) {
        if let Some(session) = self.phase.session_mut() {
            session.answered(sent_at, now);
        }
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        if let Some(ahead) = queue.contender.predecessors()
            && ahead.predecessor == gone
        {
            // Only a quorum denies a predecessor that is not the head. Of the head, it may be that no server shows it.
            if !ahead.predecessor_is_head() {
                queue.contender.predecessor_denied(gone);
            }
            return self.on_predecessor_gone(gone, None, now);
        }
        if queue.relayed.is_some_and(|(leader, _)| leader.sequence == gone) {
            // The predecessor's announcement is outdated.
            queue.relayed = None;
        }
        let after = queue.contender.on_head_gone(gone);
        if after != AfterHeadGone::Ignored {
            // The members up to the gone head have left.
            queue.leader.retain_if(|leader| leader > gone);
        }
        // If the next head is not known, the next heartbeat reads the queue: see `poll_head`.
        if let AfterHeadGone::Read(head) = after {
            session.heartbeat_sent(now);
            self.outbox.push(Action::ReadHead { head, sent_at: now });
        }
    }

    /// Reads the head as a heartbeat, or the queue if the head is gone. So this member learns who leads even if a
    /// member between it and the head does not relay.
    ///
    /// About once in six session timeouts, the heartbeat asks a quorum instead whether the predecessor exists: a server
    /// that has lost the transactions that ended several members keeps showing them, and their announcements agree with
    /// each other.
    pub(super) fn poll_head(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let own = queue.contender.ticket().sequence;
        let ahead = queue.contender.predecessors().map(|ahead| (ahead.predecessor, ahead.head));
        let Some((predecessor, Head::Present(head))) = ahead else {
            // The listing does not count as a heartbeat, because its answer does not show when it was requested.
            session.skip_heartbeat(now);
            return self.outbox.push(Action::ReadQueue);
        };
        // `take` resets `confirm_head`: a quorum is asked only once.
        let suspect = if std::mem::take(&mut queue.confirm_head) {
            Some(head)
        } else if session.is_first_poll_of_turn(own, now) {
            Some(predecessor)
        } else {
            None
        };
        session.heartbeat_sent(now);
        self.outbox.push(match suspect {
            Some(_) => Action::Renew { ahead: suspect, sent_at: now },
            None => Action::ReadHead { head, sent_at: now },
        });
    }

    /// Handles the announcement in the head's znode. While the head exists, no other member leads, so a head that
    /// announces itself is believed. A head that does not announce itself contradicts every other announcement.
    ///
    /// `is_newer` is true if the head was read after this member learned of the known leader. Then, if the head
    /// contradicts the known announcement, that one is forgotten.
    fn on_head_announcement(
        &mut self,
        head: Ticket,
        announcement: Option<Announcement>,
        is_newer: bool,
        now: Moment,
    ) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        // Sequences and tokens grow together, unless a znode was created by hand: then do not believe the head.
        let in_order = queue.out_of_order().is_none();
        let self_announcement =
            announcement.filter(|announcement| in_order && announcement.ticket == head);
        let contradicts = match (queue.leader.announcement(), &self_announcement) {
            (Some(known), Some(self_announcement)) => known.is_contradicted_by(self_announcement),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if contradicts && is_newer {
            // The connected server may show a head that is gone, so ask a quorum, but only once for each head: one with
            // a false announcement may stay for long, and each member behind it would ask with each heartbeat.
            queue.confirm_head |= queue.contradicting_head != Some(head.sequence);
            queue.contradicting_head = Some(head.sequence);
            queue.leader = KnownLeader::Unknown;
        } else if self_announcement.is_some() && matches!(queue.leader, KnownLeader::Gone(_)) {
            // The leader that left may never have led. Its token may be larger than the head's, and must not make the
            // head's announcement seem outdated.
            queue.leader = KnownLeader::Unknown;
        }
        if let Some(announcement) = self_announcement
            && queue.is_new(&announcement, head.sequence)
        {
            self.relay(announcement, now);
        } else if queue.contender.is_standby() {
            self.outbox.extend(queue.start_standby_heartbeats(session, now));
        }
    }

    /// Notes a new announcement, and relays it to the members behind by writing it into the own znode. In another
    /// client's election, only notes it.
    fn relay(&mut self, announcement: Announcement, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let leader = announcement.ticket.sequence;
        queue.leader = KnownLeader::Announced { announcement, since: now };
        if !self.relays {
            // No relay serves as the standby's heartbeat.
            if queue.contender.is_standby() {
                self.outbox.extend(queue.start_standby_heartbeats(session, now));
            }
            return;
        }
        let data = queue.data_to_write(&self.profile, self.priority);
        // At most one heartbeat may be under way. While one is, `ahead` is `None`: then the relay does not count as a
        // heartbeat, and the head is not read.
        let ahead = match queue.contender.predecessors() {
            Some(ahead) if !session.is_heartbeat_under_way() => {
                Some((ahead.head, ahead.predecessor))
            }
            _ => None,
        };
        match ahead {
            // This member is the standby. The relay is a quorum write, so it also serves as the standby's heartbeat.
            Some((Head::Present(head), predecessor)) if head == predecessor => {
                session.heartbeat_sent(now);
                self.outbox.push(Action::Relay { data, sent_at: Some(now) });
            }
            // The predecessor leads, so it is the head now: the head that was known is gone, and this member is the
            // standby. Read the former head to confirm that. This read is the heartbeat, not the relay.
            Some((Head::Present(head), predecessor)) if leader == predecessor => {
                session.heartbeat_sent(now);
                self.outbox.push(Action::Relay { data, sent_at: None });
                self.outbox.push(Action::ReadHead { head, sent_at: now });
            }
            _ => self.outbox.push(Action::Relay { data, sent_at: None }),
        }
    }
}

impl InQueue {
    /// Returns a heartbeat by quorum write for the standby, unless a heartbeat is under way or enough lease is left. A
    /// member that has just become the standby may have no lease yet, and needs one to lead as soon as the head is
    /// gone.
    pub(super) fn start_standby_heartbeats(
        &self,
        session: &mut LeasedSession,
        now: Moment,
    ) -> Option<Action> {
        if session.is_heartbeat_under_way() || session.has_enough_lease(now) {
            return None;
        }
        session.heartbeat_sent(now);
        Some(self.renew(now))
    }

    /// Returns the leader that the predecessor announces if this member knows no leader and the queue did not show that
    /// one: it has left, or the server that listed the queue has lost the transaction that created its znode. The next
    /// heartbeat reads that znode, and so finds out.
    pub(super) fn unlisted_leader(&self) -> Option<Ticket> {
        let (announced, _) = self.relayed?;
        let is_unlisted =
            self.leader.announcement().is_none() && self.contender.is_ahead_of_queue(announced);
        if is_unlisted { Some(announced) } else { None }
    }

    /// Returns a heartbeat by quorum write. The standby's heartbeat also asks whether the predecessor is gone, because
    /// the connected server may have missed that.
    pub(super) fn renew(&self, now: Moment) -> Action {
        let ahead = match self.contender.predecessors() {
            Some(ahead) if ahead.predecessor_is_head() => Some(ahead.predecessor),
            _ => None,
        };
        Action::Renew { ahead, sent_at: now }
    }

    /// Returns true while the head that contradicted an announcement is still the head.
    fn is_contradicted_by_head(&self) -> bool {
        let head = self.contender.predecessors().map(|ahead| ahead.head);
        matches!(head, Some(Head::Present(head)) if self.contradicting_head == Some(head))
    }

    /// Returns two members whose sequences are in another order than their tokens, if any are known: one of the two
    /// znodes was created by hand.
    pub(super) fn out_of_order(&self) -> Option<(Sequence, Sequence)> {
        self.contender
            .predecessors()
            .and_then(|predecessors| predecessors.out_of_order(self.contender.ticket()))
    }

    /// Returns true if an announcement, read from the znode with the sequence `from`, is new and may be true. A leader
    /// is first in the queue. So the announcement is outdated if it names a member ahead of the known head, which has
    /// left; and it is false if it names a member behind `from`, or a znode whose token does not fit its place in the
    /// queue.
    fn is_new(&self, announcement: &Announcement, from: Sequence) -> bool {
        let leader = announcement.ticket;
        leader.sequence <= from
            && leader.token < self.contender.ticket().token
            && self.contender.predecessors().is_some_and(|ahead| ahead.may_be_first(leader))
            && self.leader.is_older_than(announcement)
    }
}
