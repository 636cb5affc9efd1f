//! Priorities, and the transfer of leadership to a member of higher priority.
//!
//! Each member writes its priority into its own znode. A leader that may preempt reads the priorities of the queue from
//! time to time, and transfers leadership to the member of the highest priority once it has seen that member in the
//! queue for long enough. The transfer shows whether the target is ready: the leader keeps leading until the target has
//! accepted.
//!
//! The wait for a member is doubled for each of that member's latest consecutive terms that were shorter than the
//! simple wait, and for each transfer by priority that failed in this leader's term.

use super::phase::InQueue;
use super::{Action, Announcement, Member};
use crate::{FencingToken, MemberId, Moment, Sequence};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// How much a member is preferred as the leader. A member of the lowest priority leads only if no other member is
/// ready.
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

/// The priority of members whose znode contains none.
impl Default for Priority {
    fn default() -> Self {
        Self(50)
    }
}

/// A member of the queue, with the id and priority in its znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberPriority {
    pub member: Sequence,
    pub id: MemberId,
    pub priority: Priority,
}

/// The minimum wait before a transfer by priority, in heartbeats. So one reading is not enough: the member that it shows
/// may be gone by the time of the transfer.
const MIN_WAIT: u32 = 2;
/// The maximum number of times that a wait is doubled: it becomes at most 64 times as long.
const MAX_DOUBLINGS: u32 = 6;

/// The member of the highest priority, as last read by this leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Preferred {
    member: Sequence,
    /// When a reading first showed this member as the preferred one. Every reading since has shown the same member.
    since: Moment,
    /// Whether the wait for this member was over at the last reading.
    is_due: bool,
}

/// The knowledge about priorities and terms that a member keeps when it leaves the queue and joins again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Preemption {
    /// When the priorities were last requested.
    read_at: Option<Moment>,
    /// The newest term of any leader that this member knows of.
    last_term: Option<LeaderTerm>,
    /// The number of consecutive short terms, for each member whose last term was short.
    short_terms: BTreeMap<MemberId, u32>,
}

/// The term of one leader, as far as this member observed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeaderTerm {
    leader: MemberId,
    token: FencingToken,
    /// When the term began; `None` if it began before this member knew of any leader.
    began_at: Option<Moment>,
    /// When the term ended; `None` while it lasts.
    ended_at: Option<Moment>,
}

impl Preemption {
    /// Records the leader that is known now, if any. A term shorter than `wait` counts as short.
    fn note_leader(&mut self, known: Option<&Announcement>, wait: Duration, now: Moment) {
        let Some(announcement) = known else {
            if let Some(term) = &mut self.last_term {
                term.ended_at.get_or_insert(now);
            }
            return;
        };
        let token = announcement.ticket.token;
        // Only the beginning of a term after another known one is observed.
        let mut began_at = None;
        if let Some(term) = &mut self.last_term {
            if token == term.token {
                // The same leader is known again, so its term had not ended.
                term.ended_at = None;
            }
            // Announcements of earlier terms may come late.
            if token <= term.token {
                return;
            }
            began_at = Some(now);
            // A term whose beginning was not observed may have been long, so it is not counted.
            if let Some(term_began_at) = term.began_at {
                if term.ended_at.unwrap_or(now) < term_began_at.after(wait) {
                    *self.short_terms.entry(term.leader.clone()).or_default() += 1;
                } else {
                    self.short_terms.remove(&term.leader);
                }
            }
        }
        let leader = announcement.leader.id.clone();
        self.last_term = Some(LeaderTerm { leader, token, began_at, ended_at: None });
    }
}

impl Member {
    /// Returns how long this member, as the leader, has to see a member of higher priority before it transfers
    /// leadership to that member; `None` if it never does.
    fn preemption_wait(&self) -> Option<Duration> {
        let wait = match self.priority {
            // Contenders of other clients support neither priorities nor transfers.
            _ if !self.relays => None,
            // A leader of the lowest priority waits only for the minimum.
            Priority::LOWEST => Some(Duration::ZERO),
            _ => self.preempt_after,
        };
        wait.map(|wait| wait.max(MIN_WAIT * self.lease_policy.margins.heartbeat))
    }

    /// Determines which member is preferred as the leader, and whether the wait for that member is over. From then on,
    /// [`Standing::due_preemption`](super::Standing::due_preemption) returns that member, and the daemon sends
    /// [`Command::Preempt`](super::Command::Preempt).
    pub(super) fn on_priorities_read(&mut self, members: &[MemberPriority], now: Moment) {
        let wait = self.preemption_wait();
        let Some((_, queue)) = self.phase.in_queue_mut() else { return };
        // Forget the preferred member, unless this reading shows the same one again.
        let known = queue.preferred.take();
        let Some(wait) = wait else { return };
        if queue.contender.acquired_by().is_none() {
            return;
        }
        let own = queue.contender.ticket().sequence;
        let higher =
            members.iter().filter(|other| other.member > own && other.priority > self.priority);
        // Among members of the same priority, prefer the first in the queue.
        let highest = higher.max_by_key(|member| (member.priority, Reverse(member.member)));
        if let Some(MemberPriority { member, id, .. }) = highest {
            let short_terms = self.preemption.short_terms.get(id).copied().unwrap_or(0);
            let doublings = (queue.failed_preemptions + short_terms).min(MAX_DOUBLINGS);
            let since = match known {
                Some(known) if known.member == *member => known.since,
                _ => now,
            };
            let is_due = since.after(wait.saturating_mul(1 << doublings)) <= now;
            queue.preferred = Some(Preferred { member: *member, since, is_due });
        }
    }

    /// Offers leadership to the preferred member, if the wait is over and no other transfer is under way.
    pub(super) fn preempt(&mut self, until: Moment, now: Moment) {
        let preferred = self.phase.in_queue().and_then(|(_, queue)| queue.due_preemption());
        if let Some(member) = preferred {
            let is_preemption = true;
            self.offer(member, until, is_preemption, now);
        }
    }

    /// Writes the new priority into the own znode. The member keeps its place in the queue.
    pub(super) fn set_priority(&mut self, priority: Priority) {
        if self.priority == priority {
            return;
        }
        self.priority = priority;
        if let Some((_, queue)) = self.phase.in_queue_mut() {
            // The preferred member must have a higher priority than this one: the next reading determines it again.
            queue.preferred = None;
        }
        self.update_znode();
    }

    /// Records the leader, if this member may preempt: the wait for a preferred member depends on that member's last
    /// terms.
    pub(super) fn note_leader(&mut self, leader: Option<&Announcement>, now: Moment) {
        if let Some(wait) = self.preemption_wait() {
            self.preemption.note_leader(leader, wait, now);
        }
    }

    /// Sends a read after a leader's renewal. During a transfer, each renewal is followed by a read of the target's
    /// znode. Otherwise, about three times per session timeout, a renewal is followed by a read of all priorities,
    /// which takes requests for every member.
    pub(super) fn read_after_renewal(&mut self, now: Moment) {
        let Some((session, queue)) = self.phase.in_queue() else { return };
        if let Some(transfer) = &queue.transfer {
            return self.outbox.push(Action::ReadTarget(transfer.offer.target));
        }
        let interval = session.timeout() / 3;
        let is_due = self.preemption.read_at.is_none_or(|at| at.after(interval) <= now);
        if is_due && self.preemption_wait().is_some() {
            self.preemption.read_at = Some(now);
            self.outbox.push(Action::ReadPriorities);
        }
    }
}

impl InQueue {
    /// Handles the end of a transfer without a hand-over. Counts the transfer if it was made for a higher priority,
    /// which makes the next wait longer. Forgets the preferred member, so that the next wait begins with the next
    /// reading.
    pub(super) fn end_preemption(&mut self) {
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_preemption) {
            self.failed_preemptions = self.failed_preemptions.saturating_add(1);
        }
        self.preferred = None;
    }

    /// Returns the member of higher priority to which it is time to transfer leadership; `None` if there is none, or
    /// while any transfer is under way.
    pub(super) fn due_preemption(&self) -> Option<Sequence> {
        let preferred = self.preferred?;
        if preferred.is_due && self.transfer.is_none() { Some(preferred.member) } else { None }
    }
}
