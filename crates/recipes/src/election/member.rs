//! A member: its state, how it handles each event, and how it handles commands.

use super::phase::{Phase, Stage};
use super::preemption::Preemption;
use super::{Action, Command, Distance, Event, Policy, Priority, Profile, Standing};
use crate::lease::LeasePolicy;
use crate::session::Duty;
use crate::{FencingToken, Margins, Moment, Sequence, SessionEvent, SessionRecord};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// The number of indexes for each token: a member's first index is its token times this number. JavaScript and jq
/// represent integers exactly only below 2^53. The upper half of a token counts the elections of a leader among the
/// servers, so indexes stay below that limit for 131,071 such elections; a larger number here would allow fewer.
const INDEXES_PER_TOKEN: u64 = 16;

/// A member of an election: a state machine without IO, which handles one event at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub(super) profile: Arc<Profile>,
    pub(super) lease_policy: LeasePolicy,
    pub(super) priority: Priority,
    /// How long this member, as the leader, must see a member of higher priority before it hands over to that member.
    /// With `None`, it does so only while it has the lowest priority.
    pub(super) preempt_after: Option<Duration>,
    /// Whether the operator wants this member out of the queue.
    pub(super) paused: bool,
    /// Whether the application is unhealthy.
    pub(super) unhealthy: bool,
    /// Whether this member relays announcements to the members behind. False in an election that is shared with another
    /// client library, whose contenders do not relay: there, only the head's znode shows who leads, and this member
    /// never updates its own znode.
    pub(super) relays: bool,
    /// Whether this member must stay out of the queue because the path has foreign contenders, whose client sorts the
    /// queue by another rule.
    pub(super) must_stay_out: bool,
    /// The last offer for which this member left its place between the leader and the target: the leader's token and
    /// the target. This member makes way only once for each target, which may not exist.
    pub(super) made_way: Option<(FencingToken, Sequence)>,
    /// The last terms of the known leaders, by which this member, as the leader, decides when to hand over to a member
    /// of higher priority.
    pub(super) preemption: Preemption,
    /// Whether the member has a session, and whether it is in the queue.
    pub(super) phase: Phase,
    /// Grows with each change of the leader that this member reports; `None` until the member, or its previous process,
    /// has joined.
    pub(super) index: Option<u64>,
    /// The actions caused by the current event, in order.
    pub(super) outbox: Vec<Action>,
}

impl Member {
    pub fn new(profile: Arc<Profile>, policy: Policy) -> Self {
        let Policy { margins, preempt_after } = policy;
        Self {
            profile,
            lease_policy: LeasePolicy { margins, reserve: Duration::ZERO },
            priority: Priority::default(),
            preempt_after,
            paused: false,
            unhealthy: false,
            relays: true,
            must_stay_out: false,
            made_way: None,
            preemption: Preemption::default(),
            phase: Phase::NoSession,
            index: None,
            outbox: vec![],
        }
    }

    /// Sets the priority.
    #[must_use]
    pub fn of_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Starts out of the queue, and joins when the application is reported healthy.
    #[must_use]
    pub fn unhealthy_at_first(self) -> Self {
        Self { unhealthy: true, phase: Phase::Withdrawn, ..self }
    }

    /// Takes part in an election that is shared with another client library, whose contenders do not relay.
    #[must_use]
    pub fn among_others(self) -> Self {
        Self { relays: false, ..self }
    }

    /// Uses only leases that leave this much time to end the work done under them.
    #[must_use]
    pub fn with_time_to_end(mut self, reserve: Duration) -> Self {
        self.lease_policy.reserve = reserve;
        self
    }

    /// Returns the longest time between two heartbeats of a leader.
    pub fn heartbeat(&self) -> Duration {
        self.lease_policy.margins.heartbeat
    }

    pub fn margins(&self) -> Margins {
        self.lease_policy.margins
    }

    /// Returns the policy that the member was created with.
    pub fn policy(&self) -> Policy {
        Policy { margins: self.margins(), preempt_after: self.preempt_after }
    }

    /// Returns the part of a lease that is reserved to end the work done under it.
    pub fn reserve(&self) -> Duration {
        self.lease_policy.reserve
    }

    /// Returns the first actions of the member: none for a member that is unhealthy at first.
    pub fn start(&self) -> Vec<Action> {
        if self.phase == Phase::Withdrawn { vec![] } else { vec![Action::OpenSession] }
    }

    /// Handles an event at the moment `now`, and returns the actions that follow from it, in order.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let leader_before = self.reported_leader();
        self.on_event(now, event);
        self.update_outdated_znode(now);
        let mut actions = mem::take(&mut self.outbox);
        // In another client's election, a write would use up the one-shot watch of the contender behind, which might
        // then not notice that this member's znode is gone.
        if !self.relays {
            actions.retain(|action| !matches!(action, Action::Update(_)));
        }
        let leader = self.reported_leader();
        self.note_leader(leader.as_ref(), now);
        // Even without a change of the leader, the member's first ticket gives it an index.
        if leader != leader_before || self.index.is_none() {
            self.index = self.next_index();
        }
        actions
    }

    /// Returns when [`Event::Woke`] is due; `None` while the member only waits for other events.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Stopped | Phase::Withdrawn | Phase::NoSession => None,
            Phase::SessionTooShort { retry_at } => Some(*retry_at),
            Phase::InSession(_, Stage::KeptOut { recheck_at }) => *recheck_at,
            Phase::InSession(_, Stage::Joining { .. } | Stage::FindingTicket) => None,
            Phase::InSession(session, Stage::InQueue(queue)) => {
                let contender = &queue.contender;
                let ticket = contender.ticket().sequence;
                let heartbeat = queue.duty().and_then(|duty| session.heartbeat_due(ticket, duty));
                let is_leader = contender.acquired_by().is_some();
                let lease_end = if is_leader { session.lease_ends_at() } else { None };
                let transfer_end = queue.transfer.as_ref().map(|transfer| transfer.until);
                [heartbeat, lease_end, transfer_end].into_iter().flatten().min()
            }
        }
    }

    /// Returns the state to publish.
    pub fn standing(&self) -> Standing {
        Standing::of(self)
    }

    /// Returns the record that the next process needs to continue this member's session, if it has one.
    pub fn session_record(&self) -> Option<SessionRecord> {
        match &self.phase {
            Phase::InSession(session, _) => Some(session.record(self.index)),
            _ => None,
        }
    }

    /// Returns the leader that this member reports to its application; `None` if it knows none. While this member
    /// leads, it reports itself, and goes on to do so when its lease runs out, until it is woken to handle that.
    fn reported_leader(&self) -> Option<super::Announcement> {
        let (_, queue) = self.phase.in_queue()?;
        if !queue.contender.is_first() {
            return queue.leader.other_than(&self.profile);
        }
        let leads = queue.contender.acquired_by().is_some();
        if leads { Some(queue.own_announcement(&self.profile)) } else { None }
    }

    /// Returns the next index: the current one plus one, or the own token times [`INDEXES_PER_TOKEN`] if that is
    /// larger. `None` if the member has had neither an index nor a ticket.
    ///
    /// Tokens grow with every transaction of the servers, and each change of the leader takes a transaction, of this
    /// member or of the leader. So as long as a member sees at most [`INDEXES_PER_TOKEN`] changes per transaction, the
    /// indexes of its later processes are larger, whatever their clocks show, and no two members of an election have
    /// the same index.
    fn next_index(&self) -> Option<u64> {
        let next = self.index.map(|index| index.saturating_add(1));
        let token = self.phase.ticket().map(|ticket| ticket.token.0);
        // If the token is too large for that, the index still grows, but from 1.
        let first = token.map(|token| token.checked_mul(INDEXES_PER_TOKEN).unwrap_or(1));
        next.max(first)
    }

    fn on_event(&mut self, now: Moment, event: Event) {
        match event {
            Event::Session(SessionEvent::Opened { session, timeout, sent_at }) => {
                self.on_session_opened(session, timeout, sent_at, now);
            }
            Event::Session(SessionEvent::TakenOver { record, timeout, sent_at }) => {
                self.on_session_taken_over(record, timeout, sent_at, now);
            }
            Event::TicketFound { ticket, data } => self.on_ticket_found(ticket, data, now),
            Event::NoTicketFound => self.on_no_ticket_found(),
            Event::Session(SessionEvent::Disconnected) => self.on_disconnected(),
            Event::Session(SessionEvent::Resumed { timeout, sent_at }) => {
                self.on_session_resumed(timeout, sent_at, now);
            }
            Event::Session(SessionEvent::Lost) => self.on_session_lost(),
            Event::Joined(ticket) => self.on_joined(ticket),
            Event::TicketLost(ticket) => self.on_ticket_lost(ticket),
            Event::QueueRead(queue) => self.on_queue_read(queue, now),
            Event::PredecessorRead { predecessor, announcement, distance } => {
                self.on_predecessor_read(predecessor, announcement, distance, now);
            }
            Event::PredecessorGone { predecessor, token } => {
                self.on_predecessor_gone(predecessor, token, now);
            }
            Event::HeadRead { head, announcement, sent_at } => {
                self.on_head_read(head, announcement, sent_at, now);
            }
            Event::HeadGone { head, sent_at } => self.on_head_gone(head, sent_at, now),
            Event::Foreign { keep_out } => self.on_foreign(keep_out, now),
            Event::OfferRead(offer) => self.on_offer_read(offer),
            Event::TargetRead { target, accepted } => self.on_target_read(target, accepted),
            Event::TargetGone { target } => self.on_target_gone(target),
            Event::PrioritiesRead(members) => self.on_priorities_read(&members, now),
            Event::Committed { sent_at } => self.on_committed(sent_at, now),
            Event::ClaimRefused { holder, sent_at } => self.on_claim_refused(holder, sent_at, now),
            Event::Woke => self.on_woke(now),
            Event::Command(command) => self.on_command(command, now),
            Event::Stop => self.close(Phase::Stopped),
        }
    }

    /// Does what is due: requests another session, reads the queue while kept out of it, leaves the queue because the
    /// lease has run out, ends a transfer, or sends a heartbeat.
    fn on_woke(&mut self, now: Moment) {
        match &mut self.phase {
            Phase::SessionTooShort { retry_at } if *retry_at <= now => self.open_session(),
            Phase::InSession(_, Stage::KeptOut { recheck_at })
                if recheck_at.is_some_and(|at| at <= now) =>
            {
                *recheck_at = None;
                self.outbox.push(Action::ReadQueue);
            }
            Phase::InSession(session, Stage::InQueue(queue)) => {
                let has_lapsed =
                    queue.contender.acquired_by().is_some() && session.lease_left(now).is_none();
                // A lease that ran out is never renewed.
                if has_lapsed {
                    self.rejoin();
                } else if queue.transfer.as_ref().is_some_and(|transfer| transfer.is_over(now)) {
                    self.end_transfer();
                } else {
                    self.send_heartbeat(now);
                }
            }
            _ => {}
        }
    }

    /// Sends the next heartbeat, if it is due. Only a write that a quorum commits earns a lease, so the head and the
    /// standby write, and all others read the head. To look for an announced leader that the queue does not show, a
    /// heartbeat reads that leader's znode instead.
    fn send_heartbeat(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let ticket = queue.contender.ticket().sequence;
        let Some(duty) = queue.duty() else { return };
        let Some(due_at) = session.heartbeat_due(ticket, duty) else { return };
        if due_at > now {
            return;
        }
        if let Some(unlisted) = queue.unlisted_leader() {
            session.heartbeat_sent(now);
            return self.outbox.push(Action::ReadHead { head: unlisted.sequence, sent_at: now });
        }
        if matches!(duty, Duty::Wait | Duty::Idle) {
            return self.poll_head(now);
        }
        session.heartbeat_sent(now);
        self.outbox.push(queue.renew(now));
        if duty == Duty::Hold {
            if queue.contender.is_refused() {
                // If the connected server shows the owner of the claim by now, wait behind it; otherwise claim again.
                self.outbox.push(Action::ReadQueue);
            } else {
                self.read_after_renewal(now);
            }
        }
    }

    fn on_command(&mut self, command: Command, now: Moment) {
        match command {
            Command::Resign => {
                let in_queue = self.phase.in_queue();
                if in_queue.is_some_and(|(_, queue)| queue.contender.acquired_by().is_some()) {
                    self.rejoin();
                }
            }
            // Not a preemption: the caller chose the target.
            Command::Transfer { target, until } => self.offer(target, until, false, now),
            Command::HandOver(offer) => self.hand_over(offer),
            Command::CancelTransfer(offer) => self.cancel_transfer(offer),
            Command::Preempt { until } => self.preempt(until, now),
            Command::Pause => {
                self.paused = true;
                self.withdraw();
            }
            Command::Resume => {
                self.paused = false;
                self.return_to_queue(now);
            }
            Command::ReportHealth { healthy: true } => {
                self.unhealthy = false;
                self.return_to_queue(now);
            }
            Command::ReportHealth { healthy: false } => {
                self.unhealthy = true;
                self.withdraw();
            }
            Command::UpdateProfile { address, labels } => self.update_profile(address, labels),
            Command::SetPriority(priority) => self.set_priority(priority),
        }
    }

    /// Leaves the queue until the member is resumed, or its application is healthy again.
    fn withdraw(&mut self) {
        if !matches!(self.phase, Phase::Stopped | Phase::Withdrawn) {
            self.close(Phase::Withdrawn);
        }
    }

    /// Closes the session, if there is one, and enters `phase`, in which the member has none.
    fn close(&mut self, phase: Phase) {
        self.phase = phase;
        self.outbox.push(Action::CloseSession);
    }

    fn open_session(&mut self) {
        self.phase = Phase::NoSession;
        self.outbox.push(Action::OpenSession);
    }

    /// Joins again if the member is out of the queue, unless it is still paused, kept out or unhealthy.
    pub(super) fn return_to_queue(&mut self, now: Moment) {
        match self.phase {
            Phase::Withdrawn if !(self.paused || self.unhealthy) => self.open_session(),
            Phase::InSession(session, Stage::KeptOut { .. }) if !self.must_stay_out => {
                // A member that is kept out sends no heartbeats. After a long time without any, its session could not
                // get a lease at once, so replace the session.
                if session.is_unbroken(now) { self.join(session) } else { self.rejoin() }
            }
            _ => {}
        }
    }

    /// Writes the new profile into the own znode. The member keeps its place in the queue, and a leader keeps its
    /// token.
    fn update_profile(&mut self, address: Option<String>, labels: BTreeMap<String, String>) {
        if self.profile.address == address && self.profile.labels == labels {
            return;
        }
        let id = self.profile.id.clone();
        let revision = self.profile.revision + 1;
        self.profile = Arc::new(Profile { id, address, labels, revision });
        self.update_znode();
    }

    /// Writes the current data into the own znode. A member that is not in the queue yet writes it when it has joined.
    pub(super) fn update_znode(&mut self) {
        if let Some((_, queue)) = self.phase.in_queue_mut() {
            self.outbox.push(Action::Update(queue.data_to_write(&self.profile, self.priority)));
        }
    }

    /// Updates the own znode when it no longer shows whether this member is a ready standby, whether it accepts an
    /// offer, or that it has come nearer to the head.
    ///
    /// With a short session timeout, enough of the lease is left only for a while after each heartbeat. So a standby
    /// that became ready is shown as ready until its lease ends: otherwise each heartbeat would cost two more writes.
    fn update_outdated_znode(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let has_lease = match queue.ready_in_znode {
            true => session.lease_left(now).is_some(),
            false => session.has_enough_lease(now),
        };
        let ready = queue.contender.is_standby() && has_lease;
        let accepts = ready && queue.received_offer.is_some();
        // A member that is far from the head, or knows no leader, can wait for the next announcement: it writes its
        // distance when it relays that.
        let has_come_near = match queue.distance() {
            Some(distance) if queue.leader.announcement().is_some() => {
                distance < Distance::FAR && queue.distance_in_znode != Some(distance)
            }
            _ => false,
        };
        let is_outdated =
            ready != queue.ready_in_znode || accepts != queue.accepts_in_znode || has_come_near;
        // A member that claims or leads has written all of this with its claim.
        if !is_outdated || queue.contender.is_first() {
            return;
        }
        queue.ready_in_znode = ready;
        queue.accepts_in_znode = accepts;
        self.update_znode();
    }
}
