//! Which member is to lead rather than another: priority, and what follows from it.
//!
//! A member of higher priority than the leader's makes a bid: one ephemeral znode beside the queue, of which there is one in
//! an election, and which the highest priority takes from a lower one. The leader reads it with its heartbeats, and hands
//! over to the bidder once that has stood there for long enough, as it does to any heir: what the bid says is believed only
//! so far as that an offer is made. A bidder that dies, leaves, or is not healthy takes its bid along, with its session.
//!
//! Where a leader that came by its priority lost leadership soon, the next wait is twice as long, and twice that after the
//! next such leader.

use super::phase::{InQueue, Next, Phase, Stage, stay};
use super::{Action, Announcement, Member};
use crate::{FencingToken, Moment, Sequence, Ticket};
use std::time::Duration;

/// How much a member is preferred as the leader. One of the lowest leads only where no other member is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    pub const LOWEST: Self = Self(0);
    pub const HIGHEST: Self = Self(100);

    /// Returns `None` above [`Self::HIGHEST`].
    pub fn new(number: u8) -> Option<Self> {
        (number <= Self::HIGHEST.0).then_some(Self(number))
    }

    pub fn number(self) -> u8 {
        self.0
    }
}

/// That of members that say nothing of it.
impl Default for Priority {
    fn default() -> Self {
        Self(50)
    }
}

/// That a member would lead in place of one of lower priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bid {
    pub bidder: Sequence,
    pub priority: Priority,
}

/// After how many heartbeats a bid is made again: it may have gone with the session of another.
const BID_AGAIN: u32 = 16;
/// For how many heartbeats a bid has to stand at least.
const LEAST_WAIT: u32 = 2;
/// How often a wait is doubled at most.
const DOUBLINGS_MAX: u32 = 10;

/// What a member knows of its own bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnBid {
    None,
    /// The process before may have made one.
    MayStand,
    Made {
        bid: Bid,
        at: Moment,
    },
}

/// A bid that this member, which leads, has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeenBid {
    pub(super) bid: Bid,
    /// When it was seen first, by readings that showed no other since.
    since: Moment,
    /// Whether it has stood for long enough.
    is_due: bool,
}

/// The leaders' terms, as far as they bear on how long a bid has to stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    last: Option<Term>,
    doublings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Term {
    token: FencingToken,
    priority: Priority,
    began_at: Moment,
    ended_at: Option<Moment>,
    /// Whether the leader before it had a lower priority.
    is_by_priority: bool,
}

impl Terms {
    /// Notes who leads, and with which priority, as far as is known at this moment.
    fn note(&mut self, leader: Option<(FencingToken, Priority)>, wait: Duration, now: Moment) {
        let Some((token, priority)) = leader else {
            if let Some(term) = &mut self.last {
                term.ended_at.get_or_insert(now);
            }
            return;
        };
        let mut is_by_priority = false;
        match &mut self.last {
            Some(term) if term.token == token => {
                term.ended_at = None;
                return;
            }
            Some(term) if token < term.token => return,
            Some(term) => {
                if term.is_by_priority {
                    let was_short = term.ended_at.unwrap_or(now) < term.began_at.after(wait);
                    self.doublings = if was_short { self.doublings.saturating_add(1) } else { 0 };
                }
                is_by_priority = term.priority < priority;
            }
            None => {}
        }
        let (began_at, ended_at) = (now, None);
        self.last = Some(Term { token, priority, began_at, ended_at, is_by_priority });
    }
}

impl Member {
    /// Returns for how long a bid has to stand before this member, if it leads, hands over to the bidder.
    fn wait_for_bids(&self) -> Option<Duration> {
        let wait = match self.priority {
            // Contenders of other clients know neither bids nor heirs.
            _ if !self.relays => None,
            Priority::LOWEST => Some(Duration::ZERO),
            _ => self.preempt_after,
        };
        wait.map(|wait| wait.max(LEAST_WAIT * self.lease_policy.margins.heartbeat))
    }

    /// Returns the same, doubled for each short term, and for each transfer that came to nothing.
    fn doubled_wait(&self, doublings: u32) -> Option<Duration> {
        let doublings = self.terms.doublings.saturating_add(doublings).min(DOUBLINGS_MAX);
        self.wait_for_bids().map(|wait| wait.saturating_mul(1 << doublings))
    }

    /// Whether this member, which leads, has to know of bids.
    pub(super) fn heeds_bids(&self) -> bool {
        self.wait_for_bids().is_some()
    }

    pub(super) fn on_priority_read(
        &self,
        mut phase: Phase,
        member: Ticket,
        priority: Priority,
    ) -> Next {
        if let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase {
            queue.priority_read = Some((member, priority));
        }
        stay(phase)
    }

    pub(super) fn on_bid_read(&self, mut phase: Phase, read: Option<Bid>, now: Moment) -> Next {
        let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase else { return stay(phase) };
        let own = queue.contender.ticket().sequence;
        let is_higher = |bid: &Bid| bid.bidder > own && bid.priority > self.priority;
        let higher = read.filter(|bid| queue.contender.way().is_some() && is_higher(bid));
        let Some((bid, wait)) = higher.zip(self.doubled_wait(queue.failed_preemptions)) else {
            queue.seen_bid = None;
            return stay(phase);
        };
        let before = queue.seen_bid.as_ref().filter(|seen| seen.bid.bidder == bid.bidder);
        let since = before.map_or(now, |seen| seen.since);
        let is_due = since.after(wait) <= now;
        queue.seen_bid = Some(Box::new(SeenBid { bid, since, is_due }));
        stay(phase)
    }

    /// Makes the bidder its heir, if it is time for that and no other was named.
    pub(super) fn on_preempt(&self, phase: Phase, until: Moment, now: Moment) -> Next {
        let due = phase.in_queue().and_then(|(_, queue)| queue.due_bid());
        let Some(bid) = due.filter(|bid| bid.priority > self.priority) else { return stay(phase) };
        let (mut phase, actions) = self.on_transfer(phase, bid.bidder, until, now);
        if let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase
            && let Some(transfer) = &mut queue.transfer
        {
            transfer.is_preemption = true;
        }
        (phase, actions)
    }

    /// Writes another priority into the own znode. It costs no place in the queue.
    pub(super) fn set_priority(&mut self, mut phase: Phase, priority: Priority) -> Next {
        if self.priority == priority {
            return stay(phase);
        }
        self.priority = priority;
        if let Phase::InSession(_, Stage::InQueue(queue)) = &mut phase
            && queue.may_own_claim
            && queue.own_bid == OwnBid::None
        {
            queue.own_bid = OwnBid::MayStand;
        }
        let update = phase
            .in_queue()
            .map(|(_, queue)| Action::Update(queue.data(&self.profile, self.priority)));
        (phase, update.into_iter().collect())
    }

    /// Notes who leads, where that bears on how long bids have to stand.
    pub(super) fn note_terms(&mut self, announced: Option<&Announcement>, now: Moment) {
        let Some(wait) = self.doubled_wait(0) else { return };
        let queue = self.phase.in_queue().map(|(_, queue)| queue);
        let own = queue.filter(|it| it.contender.is_first()).map(|_| self.priority);
        let priority = own.or_else(|| queue?.leader_priority());
        let token = announced.map(|leader| leader.ticket.token);
        // That of a leader is read soon after it is announced.
        if token.is_none() || priority.is_some() {
            self.terms.note(token.zip(priority), wait, now);
        }
    }

    /// Makes a bid where the leader has a lower priority, and again from time to time; withdraws it where it has not.
    pub(super) fn show_bid(&mut self, now: Moment) -> Option<Action> {
        let (own_priority, own_id) = (self.priority, &self.profile.id);
        let Phase::InSession(_, Stage::InQueue(queue)) = &mut self.phase else { return None };
        if !self.relays || queue.contender.is_first() && queue.own_bid == OwnBid::None {
            return None;
        }
        let again = BID_AGAIN * self.lease_policy.margins.heartbeat;
        let bidder = queue.contender.ticket().sequence;
        let leads = |leader: &Announcement| leader.leader.id == *own_id;
        let is_wanted = if queue.contender.is_first() {
            false
        } else if queue.leader.announcement().is_some_and(leads) {
            // An earlier life of this member: it cannot lead for long.
            return None;
        } else {
            // Where it is not known who leads, a bid that was made stands.
            queue.leader_priority()? < own_priority
        };
        let bid = Bid { bidder, priority: own_priority };
        match queue.own_bid {
            OwnBid::Made { bid: made, at } if is_wanted && made == bid && now < at.after(again) => {
                None
            }
            OwnBid::None | OwnBid::MayStand | OwnBid::Made { .. } if is_wanted => {
                queue.own_bid = OwnBid::Made { bid, at: now };
                Some(Action::MakeBid(bid))
            }
            OwnBid::None => None,
            OwnBid::MayStand | OwnBid::Made { .. } => {
                queue.own_bid = OwnBid::None;
                Some(Action::WithdrawBid)
            }
        }
    }

    /// Counts a preemption that came to nothing: the bidder has to wait anew, and for longer.
    pub(super) fn end_preemption(queue: &mut InQueue) {
        if queue.transfer.as_ref().is_some_and(|transfer| transfer.is_preemption) {
            queue.failed_preemptions = queue.failed_preemptions.saturating_add(1);
        }
        queue.seen_bid = None;
    }

    /// Returns what a leader reads with its heartbeat beside what renews its lease, which is one znode at most.
    pub(super) fn read_beside(&self, queue: &InQueue) -> Option<Action> {
        let heir = queue.transfer.as_ref().map(|it| Action::ReadHeir(it.offer.heir));
        heir.or_else(|| self.heeds_bids().then_some(Action::ReadBid))
    }
}

impl InQueue {
    /// Returns the priority of the leader that is announced, once it was read.
    fn leader_priority(&self) -> Option<Priority> {
        let leader = self.leader.announcement()?.ticket;
        self.priority_read.filter(|(member, _)| *member == leader).map(|(_, priority)| priority)
    }

    /// Returns the bid to which this member, which leads, is to yield now.
    pub(super) fn due_bid(&self) -> Option<Bid> {
        let due = self.seen_bid.as_ref().filter(|seen| seen.is_due && self.transfer.is_none());
        due.map(|seen| seen.bid)
    }
}
