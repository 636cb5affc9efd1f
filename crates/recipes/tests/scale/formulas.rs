//! What elections cost their servers, by formula. `docs/scale.md` explains it.
//!
//! [`Wire`] is what one action of a member becomes in `src/zookeeper`; [`Election`] is what an event of an election takes.
//! The tests beside this file hold the second against members in a simulation that pays by the first; the benchmark
//! `scale` holds both against a real server.

#![allow(
    dead_code,
    unnameable_types,
    unreachable_pub,
    reason = "each program that includes it uses its own part"
)]

use std::ops::{Add, AddAssign, Mul};

/// What servers receive and send. Each request has one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub requests: f64,
    /// Notifications of watches.
    pub notifications: f64,
    /// Transactions that a quorum commits: of requests, and of sessions that expire.
    pub writes: f64,
    /// Both ways, without the headers of TCP and IP.
    pub bytes: f64,
}

impl Cost {
    pub fn packets(self) -> f64 {
        2.0 * self.requests + self.notifications
    }

    fn read(sent: f64, answered: f64) -> Self {
        let (sent, answered) = (REQUEST + sent, ANSWER + answered);
        Self { requests: 1.0, notifications: 0.0, writes: 0.0, bytes: sent + answered }
    }

    fn write(sent: f64, answered: f64) -> Self {
        Self { writes: 1.0, ..Self::read(sent, answered) }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            notifications: self.notifications + other.notifications,
            writes: self.writes + other.writes,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<Cost> for f64 {
    type Output = Cost;

    fn mul(self, one: Cost) -> Cost {
        Cost {
            requests: self * one.requests,
            notifications: self * one.notifications,
            writes: self * one.writes,
            bytes: self * one.bytes,
        }
    }
}

/// The length, and the header with the number and the kind of the request.
const REQUEST: f64 = 4.0 + 8.0;
/// The length, and the header with the number, the last transaction and the error.
const ANSWER: f64 = 4.0 + 16.0;
const STAT: f64 = 68.0;
/// The ACL that gives anyone everything.
const ACL: f64 = 4.0 + 4.0 + (4.0 + 5.0) + (4.0 + 6.0);
/// Before each operation and each result of a transaction, and at their end.
const PART: f64 = 9.0;

/// The bytes of names and data, and from these what each request of a member costs.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// Of the election's path.
    pub root: f64,
    /// Of a member's znode without the path: the prefix and ten digits.
    pub name: f64,
    /// Of what a member writes into its znode.
    pub data: f64,
}

impl Wire {
    /// As in the benchmarks: `/election/leader_0000000000`, and members that have nothing but an id.
    pub const BENCH: Self = Self { root: 9.0, name: 17.0, data: 163.0 };

    fn path(&self) -> f64 {
        4.0 + self.root + 1.0 + self.name
    }

    /// The handshake, and the ping that the client library sends at once.
    pub fn connect(&self) -> Cost {
        let handshake = Cost { requests: 1.0, bytes: 49.0 + 41.0, ..Cost::default() };
        handshake + Cost::read(0.0, 0.0)
    }

    /// A session's beginning is a transaction of its own.
    pub fn open(&self) -> Cost {
        self.connect() + Cost { writes: 1.0, ..Cost::default() }
    }

    pub fn close(&self) -> Cost {
        Cost::write(0.0, 0.0)
    }

    /// The session goes on over another connection, behind a check by a quorum; the own znode is watched again.
    pub fn resume(&self) -> Cost {
        self.connect() + self.transaction(4.0 + 1.0) + self.watch_own()
    }

    /// The create, and the watch on the own znode, which is one for children.
    pub fn join(&self) -> Cost {
        let prefix = self.path() - 10.0;
        let sent = prefix + 4.0 + self.data + ACL + 4.0;
        Cost::write(sent, self.path() + STAT) + self.watch_own()
    }

    fn watch_own(&self) -> Cost {
        Cost::read(self.path() + 1.0, 4.0 + STAT)
    }

    /// How many children the path has, and then their names.
    pub fn list(&self, names: f64) -> Cost {
        let count = Cost::read(4.0 + self.root + 1.0, STAT);
        count + Cost::read(4.0 + self.root + 1.0, 4.0 + names * self.listed())
    }

    /// Of one name in a listing.
    pub fn listed(&self) -> f64 {
        4.0 + self.name
    }

    /// Reads a znode, with a watch or without.
    pub fn get(&self) -> Cost {
        Cost::read(self.path() + 1.0, 4.0 + self.data + STAT)
    }

    fn get_none(&self) -> Cost {
        Cost::read(self.path() + 1.0, 0.0)
    }

    /// The heartbeat of a member that waits, where no znode exists there any more: a quorum is asked whether that is so.
    pub fn read_head_gone(&self) -> Cost {
        2.0 * self.get_none() + self.transaction(self.path())
    }

    /// Checks that a znode stands. So many bytes are its path's.
    fn transaction(&self, path: f64) -> Cost {
        Cost::write(PART + path + 4.0 + PART, 2.0 * PART)
    }

    pub fn set(&self) -> Cost {
        Cost::write(self.path() + 4.0 + self.data + 4.0, STAT)
    }

    /// The write into the own znode and the claim. A member that comes to lead then looks once for other clients'
    /// contenders.
    pub fn claim(&self, names: f64) -> Cost {
        let claim = 4.0 + self.root + 1.0 + 13.0;
        let parts = self.path() + 4.0 + self.data + 4.0 + claim + 4.0 + self.data + ACL + 4.0;
        Cost::write(3.0 * PART + parts, 3.0 * PART + STAT + claim + STAT) + self.list(names)
    }

    /// A check of the own znode and of the claim, or of the standby's predecessor; and the stat behind it.
    pub fn renew(&self) -> Cost {
        let checked = 2.0 * (self.path() + 4.0);
        Cost::write(3.0 * PART + checked, 3.0 * PART) + Cost::read(self.path() + 1.0, STAT)
    }

    pub fn notification(&self) -> Cost {
        let bytes = ANSWER + 4.0 + 4.0 + self.path();
        Cost { notifications: 1.0, bytes, ..Cost::default() }
    }

    /// The predecessor's znode has changed: it is read and watched again.
    pub fn hear(&self) -> Cost {
        self.notification() + self.get()
    }
}

/// A cost that lies between two, by the order in which things happen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub least: Cost,
    pub most: Cost,
}

impl Bounds {
    pub fn both(cost: Cost) -> Self {
        Self { least: cost, most: cost }
    }

    #[must_use]
    pub fn and(self, more: Cost) -> Self {
        Self { least: self.least + more, most: self.most + more }
    }
}

/// One election: how many members are in its queue, and how far apart two heartbeats of one are at most, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    pub members: f64,
    pub heartbeat: f64,
    pub wire: Wire,
}

impl Election {
    /// On the servers: each member's on its own znode, and on its predecessor's.
    pub fn watches(&self) -> f64 {
        2.0 * self.members - 1.0
    }

    /// The time between two heartbeats of the standby, or the third, in seconds: the mean of what `Margins::heartbeat_delay`
    /// returns.
    pub fn between_polls(&self) -> f64 {
        self.heartbeat * (896.0 + 63.5) / 1024.0
    }

    /// The same of a member behind the third: the mean of what `Margins::idle_delay` returns, where a heartbeat is a tenth of
    /// the session timeout.
    pub fn between_idle_polls(&self) -> f64 {
        10.0 * self.heartbeat * 0.22 * (16128.0 + 127.5) / 16384.0
    }

    /// The same of the leader.
    pub fn between_renewals(&self) -> f64 {
        self.heartbeat * (448.0 + 31.9) / 1024.0
    }

    /// The members behind the standby.
    fn behind(&self) -> f64 {
        (self.members - 2.0).max(0.0)
    }

    /// What a second costs in which nothing happens.
    pub fn idle(&self) -> Cost {
        let Self { members, heartbeat, wire } = *self;
        let polls = 1.0 / self.between_polls();
        let standby = if members > 1.0 { polls } else { 0.0 };
        let third = self.behind().min(1.0) * polls;
        let others = (members - 3.0).max(0.0) / self.between_idle_polls();
        // Once in six session timeouts, of ten heartbeats each, it asks a quorum for its predecessor.
        let checks = self.behind() / (60.0 * heartbeat);
        (1.0 / self.between_renewals() + standby) * wire.renew()
            + (third + others - checks) * wire.get()
            + checks * wire.renew()
    }

    /// All members join, each when the one before is done; no heartbeats in between.
    pub fn joining_in_turn(&self) -> Cost {
        let names = self.members * (self.members + 1.0) / 2.0;
        self.joining(names)
    }

    /// All members join at once. The leader may be there before.
    pub fn joining_at_once(&self) -> Bounds {
        let again = self.behind() * self.wire.hear();
        let most = self.joining(self.members * self.members) + again;
        Bounds { least: self.joining_in_turn(), most }
    }

    /// All members join, and their listings have so many names together.
    fn joining(&self, names: f64) -> Cost {
        let Self { members, wire, .. } = *self;
        let each = wire.open() + wire.join() + wire.list(names / members);
        // The standby proves its session at once, and tells that it is ready.
        let standby = wire.get() + wire.renew() + 2.0 * wire.set();
        let other = wire.get() + wire.get() + wire.set();
        members * each + wire.claim(1.0) + standby + self.behind() * other
    }

    /// The announcement of a new leader comes down the queue of these members, the leader among them: each is notified,
    /// reads its predecessor, and writes.
    pub fn announcing(&self) -> Cost {
        let wire = &self.wire;
        let heard = wire.hear() + wire.set();
        // It asks at once who is the head now, proves its session, and tells that it is ready, which its successor hears.
        let asked = wire.read_head_gone() + wire.get() + wire.renew() + wire.set();
        let others = if self.members > 2.0 { wire.hear() } else { Cost::default() };
        let standby = heard + asked + others;
        wire.notification() + wire.claim(self.members) + standby + self.behind() * heard
    }

    /// The leader's session has ended, and with it its znode: these members are those that are left. With its next heartbeat
    /// each of them but two finds that the head it knew is gone, and reads the new one. Heartbeats that are due anyway are
    /// not counted here.
    pub fn leader_gone(&self) -> Cost {
        let ended = Cost { writes: 1.0, ..Cost::default() };
        ended + self.announcing() + self.behind() * self.wire.read_head_gone()
    }

    /// The same where the next in the queue, the standby, has gone within the same heartbeat. A member that finds the head gone,
    /// and the one behind it as well, lists the queue with its next heartbeat.
    pub fn first_two_gone(&self) -> Cost {
        let wire = &self.wire;
        let instead_of = -2.0 * wire.get();
        let each = 2.0 * wire.read_head_gone() + wire.list(self.members) + instead_of;
        let ended = Cost { writes: 2.0, ..Cost::default() };
        ended + self.announcing() + self.behind() * each
    }

    /// The leader resigns, and joins again at the tail. These members are all.
    pub fn hand_over(&self) -> Cost {
        let Self { members, wire, .. } = *self;
        let left = Self { members: members - 1.0, ..*self };
        let back = wire.open() + wire.join() + wire.list(members);
        let back = back + wire.get() + wire.get() + wire.set();
        // The session's end is a request here, and no expiry.
        let closed = Cost { writes: 0.0, ..wire.close() };
        closed + left.leader_gone() + back
    }

    /// A random half of these members is gone, each other member with even odds, but not the leader. A member whose
    /// predecessor is gone lists the queue and watches another. Where all sessions end at once, that are half of those that
    /// are left; where one ends after the other in any order, it is ln 2 times, as the next predecessor may go as well.
    pub fn half_gone(&self) -> Bounds {
        let Self { members, wire, .. } = *self;
        let left = members / 2.0;
        let ended = Cost { writes: left, ..Cost::default() };
        let again = |names| wire.notification() + wire.list(names) + wire.get();
        Bounds {
            least: ended + left / 2.0 * again(left),
            most: ended + left * 2_f64.ln() * again(members),
        }
    }

    /// The server, or all of them, start again, and all sessions go on. A heartbeat that was due meanwhile follows at once.
    pub fn restart(&self) -> Cost {
        let Self { members, wire, .. } = *self;
        let heartbeats = 2.0 * wire.renew() + self.behind() * wire.get();
        members * wire.resume() + (members - 1.0) * wire.get() + heartbeats
    }
}
