//! One member: where it is, what it does about each event, and what it does when commanded.

use super::phase::{Phase, Stage};
use super::preemption::Preemption;
use super::{Action, Command, Event, Policy, Priority, Profile, Standing};
use crate::lease::LeasePolicy;
use crate::session::Duty;
use crate::{FencingToken, Margins, Moment, Sequence, SessionRecord};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// How many indexes there are for each token. JSON of JavaScript, and of jq, has whole numbers below 2^53: it holds the
/// indexes of servers that have elected their own leader up to 131,071 times, as their tokens begin with that number.
const CHANGES: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub(super) profile: Arc<Profile>,
    pub(super) lease_policy: LeasePolicy,
    pub(super) priority: Priority,
    pub(super) preempt_after: Option<Duration>,
    /// The operator wants it out of the queue.
    pub(super) paused: bool,
    /// Its application is not healthy.
    pub(super) unhealthy: bool,
    /// Whether it tells the members behind who leads. Other clients' contenders relay nothing: among them, the head of the
    /// queue is taken for the leader, by its own znode alone, and the own znode is not written to.
    pub(super) relays: bool,
    /// Contenders of another order stand in the path, and it is to keep out while they do.
    pub(super) kept_out: bool,
    /// The last leader that it made way for, and for which target.
    pub(super) made_way: Option<(FencingToken, Sequence)>,
    pub(super) preemption: Preemption,
    pub(super) phase: Phase,
    /// Grows with each change of what may be published; `None` until the member, or a process before it, has joined.
    pub(super) index: Option<u64>,
    /// The actions of the event that is being taken, in their order.
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
            kept_out: false,
            made_way: None,
            preemption: Preemption::default(),
            phase: Phase::NoSession,
            index: None,
            outbox: vec![],
        }
    }

    /// Is preferred as the leader so much.
    #[must_use]
    pub fn of_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Joins only when its application is known to be healthy.
    #[must_use]
    pub fn unhealthy_at_first(self) -> Self {
        Self { unhealthy: true, phase: Phase::Withdrawn, ..self }
    }

    /// Stands in the queue of another client's election.
    #[must_use]
    pub fn among_others(self) -> Self {
        Self { relays: false, ..self }
    }

    /// Leads only by leases that leave so much time to end what is done under them.
    #[must_use]
    pub fn reserving(mut self, reserve: Duration) -> Self {
        self.lease_policy.reserve = reserve;
        self
    }

    /// Returns the longest time between two heartbeats of a member that holds.
    pub fn heartbeat(&self) -> Duration {
        self.lease_policy.margins.heartbeat
    }

    pub fn margins(&self) -> Margins {
        self.lease_policy.margins
    }

    /// Returns the first actions of a member.
    pub fn start(&self) -> Vec<Action> {
        if self.phase == Phase::Withdrawn { vec![] } else { vec![Action::OpenSession] }
    }

    /// Takes one event at one moment, and returns what is to be done about it, in this order.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let announced = self.announced();
        self.on_event(now, event);
        self.show_readiness(now);
        let mut actions = mem::take(&mut self.outbox);
        if !self.relays {
            actions.retain(|action| !matches!(action, Action::Update(_)));
        }
        let announces = self.announced();
        self.note_leader(announces.as_ref(), now);
        if announces != announced || self.index.is_none() {
            self.index = self.next_index();
        }
        actions
    }

    /// Returns when [`Event::Woke`] is due.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Stopped | Phase::Withdrawn | Phase::NoSession => None,
            Phase::SessionTooShort { retry_at } => Some(*retry_at),
            Phase::InSession(_, Stage::KeptOut { recheck_at }) => *recheck_at,
            Phase::InSession(_, Stage::Joining { .. } | Stage::FindingTicket) => None,
            Phase::InSession(session, Stage::InQueue(queue)) => {
                let contender = &queue.contender;
                let heartbeat = contender
                    .duty()
                    .and_then(|duty| session.heartbeat_due(contender.ticket().sequence, duty));
                let lease = contender.way().and_then(|_| session.lease_ends_at());
                let until = queue.transfer.as_ref().map(|transfer| transfer.until);
                [heartbeat, lease, until].into_iter().flatten().min()
            }
        }
    }

    pub fn standing(&self) -> Standing {
        Standing::of(self)
    }

    /// Returns what a next process has to know to go on with this member's session, while it has one.
    pub fn session_record(&self) -> Option<SessionRecord> {
        match &self.phase {
            Phase::InSession(session, _) => Some(session.record(self.index)),
            _ => None,
        }
    }

    /// Returns the leader that this member names to its application.
    fn announced(&self) -> Option<super::Announcement> {
        let (_, queue) = self.phase.in_queue()?;
        match queue.contender.is_first() {
            true => queue.contender.way().map(|_| queue.own_announcement(&self.profile)),
            false => queue.leader.other_than(&self.profile),
        }
    }

    /// Returns the next index: one more, or a multiple of its token where that is larger.
    ///
    /// Tokens grow with every transaction of the servers. So the indexes of a later life of this member are larger,
    /// whatever its clock shows, and no two members of an election have the same ones, as long as no member sees more
    /// than [`CHANGES`] changes for each transaction. A change takes a transaction of its own or of the leader's.
    fn next_index(&self) -> Option<u64> {
        let next = self.index.map(|index| index.saturating_add(1));
        let first =
            self.phase.ticket().map(|ticket| ticket.token.0.checked_mul(CHANGES).unwrap_or(1));
        next.max(first)
    }

    fn on_event(&mut self, now: Moment, event: Event) {
        match event {
            Event::SessionOpened { session, timeout, sent_at } => {
                self.on_session_opened(session, timeout, sent_at, now);
            }
            Event::SessionTakenOver { record, timeout, sent_at } => {
                self.on_session_taken_over(record, timeout, sent_at, now);
            }
            Event::TicketFound { ticket, data } => self.on_ticket_found(ticket, data, now),
            Event::NoTicketFound => self.on_no_ticket_found(),
            Event::Disconnected => self.on_disconnected(),
            Event::SessionResumed { timeout, sent_at } => {
                self.on_session_resumed(timeout, sent_at, now);
            }
            Event::SessionLost => self.on_session_lost(),
            Event::Joined(ticket) => self.on_joined(ticket),
            Event::TicketLost(ticket) => self.on_ticket_lost(ticket),
            Event::QueueRead(queue) => self.on_queue_read(queue, now),
            Event::PredecessorRead { predecessor, announcement } => {
                self.on_predecessor_read(predecessor, announcement, now);
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
                let holds_no_more =
                    queue.contender.way().is_some() && session.lease_left(now).is_none();
                if holds_no_more {
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

    /// Sends the next heartbeat, if it is due.
    fn send_heartbeat(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let ticket = queue.contender.ticket().sequence;
        let due = queue
            .contender
            .duty()
            .filter(|duty| session.heartbeat_due(ticket, *duty).is_some_and(|due| due <= now));
        let Some(duty) = due else { return };
        if let Some(unlisted) = queue.ask_for_unlisted(now) {
            session.heartbeat_sent(now);
            return self.outbox.push(unlisted);
        }
        if duty == Duty::Wait {
            return self.poll_head(now);
        }
        session.heartbeat_sent(now);
        self.outbox.push(queue.renew(now));
        if duty == Duty::Hold {
            if queue.contender.is_refused() {
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
                if in_queue.is_some_and(|(_, queue)| queue.contender.way().is_some()) {
                    self.rejoin();
                }
            }
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

    fn withdraw(&mut self) {
        if !matches!(self.phase, Phase::Stopped | Phase::Withdrawn) {
            self.close(Phase::Withdrawn);
        }
    }

    fn close(&mut self, phase: Phase) {
        self.phase = phase;
        self.outbox.push(Action::CloseSession);
    }

    fn open_session(&mut self) {
        self.phase = Phase::NoSession;
        self.outbox.push(Action::OpenSession);
    }

    /// Joins again, unless it is still paused, kept out or unhealthy.
    pub(super) fn return_to_queue(&mut self, now: Moment) {
        match self.phase {
            Phase::Withdrawn if !(self.paused || self.unhealthy) => self.open_session(),
            Phase::InSession(session, Stage::KeptOut { .. }) if !self.kept_out => {
                // After a long wait without heartbeats the session could not carry a lease at once.
                if session.is_unbroken(now) { self.join(session) } else { self.rejoin() }
            }
            _ => {}
        }
    }

    /// Writes the new profile into the own znode. It costs no place in the queue, and a leader keeps its token.
    fn update_profile(&mut self, address: Option<String>, labels: BTreeMap<String, String>) {
        if self.profile.address == address && self.profile.labels == labels {
            return;
        }
        let id = self.profile.id.clone();
        let revision = self.profile.revision + 1;
        self.profile = Arc::new(Profile { id, address, labels, revision });
        self.update_znode();
    }

    /// Writes into the own znode what it is to say now. A member that joins later, or is joining, writes it then.
    pub(super) fn update_znode(&mut self) {
        if let Some((_, queue)) = self.phase.in_queue() {
            self.outbox.push(Action::Update(queue.data(&self.profile, self.priority)));
        }
    }

    /// Writes into the own znode whether this member could lead at the notification, when that has changed. A short
    /// lease has enough left only for a while after each heartbeat: so what was ready is shown to be until the lease ends,
    /// lest each heartbeat cost two more writes.
    fn show_readiness(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue_mut() else { return };
        let has_lease = match queue.ready_shown {
            true => session.lease_left(now).is_some(),
            false => session.has_enough_lease(now),
        };
        let ready = queue.contender.is_standby() && has_lease;
        let accepts = ready && queue.offered.is_some();
        if (ready, accepts) == (queue.ready_shown, queue.accepts) || queue.contender.is_first() {
            return;
        }
        queue.ready_shown = ready;
        queue.accepts = accepts;
        self.update_znode();
    }
}
