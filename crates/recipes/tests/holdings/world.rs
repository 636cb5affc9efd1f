//! Locks and barriers in memory: processes with one session each, one ZooKeeper, and a scheduler that the caller provides.
//!
//! The ensemble's sessions and its faults are those of the election's world. All that is asked for is asked for of one
//! name: there is one queue, and one `ready`. What must always hold is written once, in [`World::broken`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::faults::Faults;
use super::session::{Session, expires_at, report};
use bellwether_recipes::barrier::{BarrierEntry, Reading, Ready, Round};
use bellwether_recipes::holding::{
    Action, End, Event, HoldingId, HoldingSpec, HoldingState, Holdings,
};
use bellwether_recipes::lock::{LockEntry, Mode};
use bellwether_recipes::place;
use bellwether_recipes::{
    FencingToken, LeaseDuration, Margins, Moment, Sequence, SessionEvent, SessionId, Ticket,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Rules {
    pub processes: usize,
    /// What is asked for before the world begins, and by which process.
    pub asked: &'static [(usize, HoldingSpec)],
    /// Whether the run begins when all of that is in its place.
    pub settled: bool,
    /// What may be asked for later, by any process, and how often.
    pub menu: &'static [HoldingSpec],
    pub asks_max: u64,
    pub timeout: Duration,
    pub margins: Margins,
    pub idle_after: Duration,
    /// Whether queues are read at any time.
    pub reads: bool,
    pub tick: Duration,
    /// Whether time also stops at each moment at which a timer is due.
    pub exact: bool,
    /// Whether a reply is heard at once unless it is late by a tick or lost.
    pub prompt: bool,
    pub horizon: Duration,
    pub misfortunes_max: u32,
    pub sessions_max: i64,
    pub faults: Faults,
    pub flaw: Option<Flaw>,
    /// Which processes are connected to the server that can lose a transaction.
    pub at_wrong: &'static [usize],
}

/// What a driver might do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// After a create whose outcome is unknown, another is sent.
    BlindCreate,
    /// `ready` is deleted whatever the round is.
    AnyRound,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Moment,
    server: Server,
    wrong: Wrong,
    pub processes: Vec<Process>,
    asked: u64,
    misfortunes: u32,
    /// The first thing seen in passing that must never be.
    wronged: Option<&'static str>,
    /// The highest tokens that ever held: alone, and in any way.
    held_alone: Option<FencingToken>,
    held: Option<FencingToken>,
    /// Who went inside the barrier, and up to which number others did.
    inside: BTreeMap<(usize, HoldingId), Sequence>,
    pub trace: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    sessions_opened: i64,
    sessions: BTreeMap<SessionId, Session>,
    reported_at: Moment,
    writes: u64,
    last_sequence: i32,
    znodes: BTreeMap<Sequence, Znode>,
    watches: BTreeMap<Sequence, BTreeSet<(SessionId, HoldingId)>>,
    deletions: u64,
    /// The last znode that went, and how many had gone then.
    ghost: Option<(u64, LockEntry)>,
    evicted: BTreeMap<FencingToken, Moment>,
    round: i32,
    ready: Option<Ready>,
    ready_watches: BTreeSet<(SessionId, HoldingId)>,
    /// The last that was inside in an earlier round.
    last_of_round: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Znode {
    owner: SessionId,
    holding: HoldingId,
    token: FencingToken,
    mode: Mode,
}

/// What one server shows that the quorum does not agree with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Wrong {
    lacks: BTreeSet<FencingToken>,
    keeps: BTreeMap<Sequence, Znode>,
    will_keep: BTreeSet<FencingToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub core: Holdings,
    pub crashed: bool,
    pub session: Option<SessionId>,
    watching: BTreeMap<(HoldingId, Sequence), Option<FencingToken>>,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
    /// How many deletions it has seen for sure.
    seen: u64,
    at_wrong: bool,
    denied: BTreeSet<FencingToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    session: Option<SessionId>,
    sent_at: Moment,
    ask: Ask,
    /// Sent before, and its answer was lost.
    again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ask {
    Resume,
    Do(Action),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reply {
    To(Request, Event, Moment),
    Notice(Event),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    Ask(usize, HoldingSpec),
    Release(usize, HoldingId),
    Serve(usize),
    ServeSlowly(usize),
    /// The answer shows an older queue.
    ServeStale(usize),
    Deliver(usize),
    Wake(usize),
    /// Something beside the holdings needs the session, or does no longer.
    Need(usize, bool),
    /// It reads a queue.
    Read(usize),
    Cut(usize),
    Crash(usize),
    Stop(usize),
    Tick(Duration),
    Miss(SessionId),
    Doom(SessionId),
    Expire(SessionId),
    /// An unknown client deletes a znode.
    Evict(Sequence),
    LoseCreate(Sequence),
    LoseDelete(Sequence),
}

impl World {
    pub fn new(rules: &Rules) -> Self {
        let zero = Moment(Duration::ZERO);
        let server = Server {
            sessions_opened: 0,
            sessions: BTreeMap::new(),
            reported_at: zero,
            writes: 0,
            last_sequence: 0,
            znodes: BTreeMap::new(),
            watches: BTreeMap::new(),
            deletions: 0,
            ghost: None,
            evicted: BTreeMap::new(),
            round: 0,
            ready: None,
            ready_watches: BTreeSet::new(),
            last_of_round: 0,
        };
        let process = |i: usize| Process {
            core: Holdings::new(rules.margins, rules.idle_after),
            crashed: false,
            session: None,
            watching: BTreeMap::new(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            seen: 0,
            at_wrong: rules.at_wrong.contains(&i),
            denied: BTreeSet::new(),
        };
        let mut world = Self {
            now: zero,
            server,
            wrong: Wrong::default(),
            processes: (0..rules.processes).map(process).collect(),
            asked: 0,
            misfortunes: 0,
            wronged: None,
            held_alone: None,
            held: None,
            inside: BTreeMap::new(),
            trace: None,
        };
        for &(i, wanted) in rules.asked {
            world.apply(Choice::Ask(i, wanted), rules);
            if rules.settled {
                world.settle(rules);
            }
        }
        world
    }

    pub fn choices(&self, rules: &Rules, choices: &mut Vec<Choice>) {
        let faults = rules.faults;
        for (i, process) in self.processes.iter().enumerate().filter(|(_, p)| !p.crashed) {
            if let Some(request) = process.requests.front()
                && self.is_granted(request, rules)
            {
                choices.push(Choice::Serve(i));
                if rules.prompt && faults.delays {
                    choices.push(Choice::ServeSlowly(i));
                }
                if faults.stale_reads && self.sees_ghost(i, request) {
                    choices.push(Choice::ServeStale(i));
                }
            }
            if process.replies.front().is_some_and(|reply| !rules.prompt || self.is_due(reply)) {
                choices.push(Choice::Deliver(i));
            }
            if process.core.wake_at().is_some_and(|at| at <= self.now) {
                choices.push(Choice::Wake(i));
            }
            if faults.cuts && process.session.is_some() {
                choices.push(Choice::Cut(i));
            }
            if self.asked < rules.asks_max {
                choices.extend(rules.menu.iter().map(|&wanted| Choice::Ask(i, wanted)));
            }
            if rules.reads {
                choices.push(Choice::Read(i));
            }
            if faults.resignations {
                choices.extend(process.core.ids().map(|id| Choice::Release(i, id)));
            }
            if faults.crashes {
                choices.push(Choice::Crash(i));
            }
        }
        for (&id, session) in &self.server.sessions {
            let overdue = self.now >= expires_at(session);
            if overdue || session.doomed {
                choices.push(Choice::Expire(id));
            }
            if faults.stalls && overdue && !session.doomed {
                choices.push(Choice::Doom(id));
            }
            if faults.lost_reports && session.touched && !session.missed && !session.missing {
                choices.push(Choice::Miss(id));
            }
        }
        for (&sequence, Znode { token, .. }) in &self.server.znodes {
            if faults.evictions {
                choices.push(Choice::Evict(sequence));
            }
            let is_wrong = self.processes.iter().any(|p| p.at_wrong && !p.crashed);
            if is_wrong && faults.lost_creates && !self.wrong.lacks.contains(token) {
                choices.push(Choice::LoseCreate(sequence));
            }
            if is_wrong && faults.lost_deletes && !self.wrong.will_keep.contains(token) {
                choices.push(Choice::LoseDelete(sequence));
            }
        }
        let left = rules.misfortunes_max - self.misfortunes;
        choices.retain(|choice| choice.misfortunes() <= left);
        let doomed = self.server.sessions.values().any(|session| session.doomed);
        if self.now.0 < rules.horizon && self.busy(rules) <= left && !doomed {
            choices.push(Choice::Tick(rules.tick));
            if rules.exact
                && let Some(next) = self.next_moment()
            {
                choices.push(Choice::Tick(next.since(self.now)));
            }
        }
    }

    pub fn apply(&mut self, choice: Choice, rules: &Rules) {
        if rules.misfortunes_max < u32::MAX {
            self.misfortunes += choice.misfortunes();
        }
        match choice {
            Choice::Ask(i, wanted) => {
                self.asked += 1;
                self.step(i, Event::Requested(HoldingId(self.asked), wanted), rules);
            }
            Choice::Release(i, id) => self.step(i, Event::Released(id), rules),
            Choice::Serve(i) => {
                self.serve(i, rules, false);
                // Nothing can come between an answer, what was told before it, and the process that hears it at once.
                while rules.prompt && !self.processes[i].replies.is_empty() {
                    self.deliver(i, rules);
                }
            }
            Choice::ServeSlowly(i) => self.serve(i, rules, false),
            Choice::ServeStale(i) => self.serve(i, rules, true),
            Choice::Deliver(i) => self.deliver(i, rules),
            Choice::Wake(i) => self.step(i, Event::Woke, rules),
            Choice::Need(i, needed) => self.step(i, Event::InUse(needed), rules),
            Choice::Read(i) => self.step(i, Event::Read, rules),
            Choice::Cut(i) => self.cut(i),
            Choice::Crash(i) => {
                self.processes[i].crashed = true;
                self.processes[i].requests.clear();
                self.processes[i].replies.clear();
            }
            Choice::Stop(i) => self.step(i, Event::Stop, rules),
            Choice::Tick(span) => {
                if rules.misfortunes_max < u32::MAX {
                    self.misfortunes += self.busy(rules);
                }
                let later = self.now.after(span);
                if later > self.server.reported_at.after(rules.margins.half_tick) {
                    report(&mut self.server.sessions, self.now);
                    self.server.reported_at = self.now;
                }
                self.now = later;
            }
            Choice::Miss(session) => {
                if let Some(session) = self.server.sessions.get_mut(&session) {
                    session.missing = true;
                }
            }
            Choice::Doom(session) => {
                if let Some(session) = self.server.sessions.get_mut(&session) {
                    session.doomed = true;
                }
            }
            Choice::Expire(session) => self.end_session(session, true),
            Choice::Evict(sequence) => self.evict(sequence),
            Choice::LoseCreate(sequence) => {
                let token = self.server.znodes.get(&sequence).map(|znode| znode.token);
                self.wrong.lacks.extend(token);
                // It starts again, and all that are connected to it lose their connection.
                for i in 0..self.processes.len() {
                    if self.processes[i].at_wrong && self.processes[i].session.is_some() {
                        self.cut(i);
                    }
                }
            }
            Choice::LoseDelete(sequence) => {
                let token = self.server.znodes.get(&sequence).map(|znode| znode.token);
                self.wrong.will_keep.extend(token);
            }
        }
        self.note_holders(rules);
    }

    /// The first thing found that must never be.
    pub fn broken(&self, rules: &Rules) -> Option<&'static str> {
        if let Some(wronged) = self.wronged {
            return Some(wronged);
        }
        let holders: Vec<_> = self.holders(rules).collect();
        // At a server that lacks a znode, only tokens tell two holders apart.
        let all_are_right = self.wrong.lacks.is_empty();
        for (i, _, ticket) in &holders {
            let znode = self.server.znodes.get(&ticket.sequence);
            if znode.is_none_or(|znode| znode.token != ticket.token) {
                return Some("one holds without a znode");
            }
            if self.processes[*i].session != znode.map(|znode| znode.owner) {
                return Some("one holds by a znode of another session");
            }
            let mode = znode.expect("just seen").mode;
            if all_are_right && !rules.is_barrier() && self.in_the_way(mode, ticket.sequence) {
                return Some("one holds although others are in its way");
            }
        }
        let mode = |ticket: &Ticket| self.server.znodes[&ticket.sequence].mode;
        let modes: Vec<_> = holders.iter().map(|(_, _, ticket)| mode(ticket)).collect();
        if all_are_right && !rules.is_barrier() {
            let alone = modes.contains(&Mode::Exclusive);
            if alone && modes.len() > 1 {
                return Some("one that excludes all others holds beside another");
            }
            let slots = modes.iter().find_map(|mode| match mode {
                Mode::Slots(slots) => Some(slots.get() as usize),
                Mode::Exclusive | Mode::Shared => None,
            });
            if slots.is_some_and(|slots| modes.len() > slots) {
                return Some("more hold than there are slots");
            }
        }
        let owners: Vec<_> = self.server.znodes.values().map(|it| (it.owner, it.holding)).collect();
        if owners.iter().collect::<BTreeSet<_>>().len() < owners.len() {
            return Some("one holding owns two znodes");
        }
        if self.server.znodes.values().any(|znode| self.is_left_behind(znode)) {
            return Some("a znode is left behind");
        }
        if self.wrong == Wrong::default() && self.waits_in_vain() {
            return Some("one waits although none is in its way");
        }
        if all_are_right && self.has_herd(rules) {
            return Some("one znode is watched too often: a herd");
        }
        None
    }

    /// Whether a znode belongs to nothing that its process knows of, which has nothing more to do or to hear.
    fn is_left_behind(&self, znode: &Znode) -> bool {
        let Some(session) = self.server.sessions.get(&znode.owner) else { return true };
        let process = &self.processes[session.member];
        let idle = process.requests.is_empty() && process.replies.is_empty();
        !process.crashed
            && idle
            && process.session == Some(znode.owner)
            && process.core.standing(znode.holding).is_none()
    }

    /// Whether a process has nothing more to do or to hear, and waits for a lock although others have made room.
    fn waits_in_vain(&self) -> bool {
        self.server.znodes.iter().any(|(&sequence, znode)| {
            let process = &self.processes[self.server.sessions[&znode.owner].member];
            let idle = process.requests.is_empty() && process.replies.is_empty();
            let standing = process.core.standing(znode.holding);
            let status = standing.and_then(|standing| standing.at(self.now));
            let waits = matches!(status, Some(HoldingState::Waiting { ahead: Some(1..) }));
            let here = !process.crashed && process.session == Some(znode.owner);
            here && idle && waits && !self.in_the_way(znode.mode, sequence)
        })
    }

    /// Whether more watch one znode than its going has to wake, or is about to.
    fn has_herd(&self, rules: &Rules) -> bool {
        let most = rules.wanted().map(|wanted| match wanted {
            HoldingSpec::Lock(Mode::Exclusive) => 2,
            HoldingSpec::Lock(Mode::Slots(slots)) => slots.get() as usize + 1,
            HoldingSpec::Lock(Mode::Shared) => usize::MAX,
            // All that leave wait for the one that is the last to.
            HoldingSpec::Barrier(_) => usize::MAX,
        });
        let most = most.max().unwrap_or(0);
        let heeds = |sequence: &Sequence, (session, id): &(SessionId, HoldingId)| {
            let process = &self.processes[self.server.sessions[session].member];
            let waits = self.server.znodes.values().any(|it| it.holding == *id);
            let key = (*id, *sequence);
            waits && process.session == Some(*session) && process.watching.contains_key(&key)
        };
        self.server
            .watches
            .iter()
            .any(|(sequence, who)| who.iter().filter(|it| heeds(sequence, it)).count() > most)
    }

    /// Whether one of that mode, with that number, has to wait.
    fn in_the_way(&self, mode: Mode, own: Sequence) -> bool {
        let ahead = self.server.znodes.range(..own).map(|(_, znode)| znode.mode);
        match mode {
            Mode::Exclusive => ahead.count() > 0,
            Mode::Shared => ahead.filter(|it| *it != Mode::Shared).count() > 0,
            Mode::Slots(slots) => ahead.count() >= slots.get() as usize,
        }
    }

    fn note_holders(&mut self, rules: &Rules) {
        let holders: Vec<_> = self.holders(rules).collect();
        for (i, id, ticket) in holders {
            let mode = self.server.znodes.get(&ticket.sequence).map(|znode| znode.mode);
            if rules.is_barrier() {
                if !self.inside.contains_key(&(i, id)) {
                    match self.server.ready.filter(|ready| ticket.sequence <= ready.last) {
                        Some(Ready { last, .. }) => {
                            self.inside.insert((i, id), last);
                        }
                        None => self.wrong_if(true, "one is inside a barrier that is not open"),
                    }
                }
                continue;
            }
            let right = self.wrong.lacks.is_empty();
            let before = match mode {
                Some(Mode::Exclusive) => self.held,
                Some(Mode::Shared) => self.held_alone,
                Some(Mode::Slots(_)) | None => None,
            };
            let backwards = right && before.is_some_and(|before| ticket.token < before);
            self.wrong_if(backwards, "a fencing token went backwards");
            self.held = self.held.max(Some(ticket.token));
            if mode == Some(Mode::Exclusive) {
                self.held_alone = self.held_alone.max(Some(ticket.token));
            }
        }
    }

    fn wrong_if(&mut self, is_wrong: bool, what: &'static str) {
        if is_wrong {
            self.wronged.get_or_insert(what);
        }
    }

    /// Returns all that hold now, without those whose znode an unknown client deleted less than a lease ago.
    fn holders(&self, rules: &Rules) -> impl Iterator<Item = (usize, HoldingId, Ticket)> {
        let lease = rules.margins.lease_duration(rules.timeout);
        let all = self.processes.iter().enumerate().filter(|(_, p)| !p.crashed);
        let holdings = all.flat_map(|(i, process)| process.core.ids().map(move |id| (i, id)));
        holdings.filter_map(move |(i, id)| {
            let standing = self.processes[i].core.standing(id)?;
            let HoldingState::Held { token, .. } = standing.at(self.now)? else { return None };
            let ticket = standing.ticket().expect("one that holds has a ticket");
            assert_eq!(ticket.token, token);
            (!self.is_excused(token, lease)).then_some((i, id, ticket))
        })
    }

    pub fn held_by(&self, rules: &Rules) -> Vec<(usize, HoldingId)> {
        self.holders(rules).map(|(i, id, _)| (i, id)).collect()
    }

    fn is_excused(&self, token: FencingToken, lease: Option<LeaseDuration>) -> bool {
        let evicted_at = self.server.evicted.get(&token);
        evicted_at.zip(lease).is_some_and(|(at, lease)| self.now < at.after(lease.0))
    }

    /// Ends all faults. Then all that wait get their turn, and in the end nothing is left.
    pub fn heal(&mut self, rules: &Rules) -> Option<&'static str> {
        let waiting: usize = self.processes.iter().map(|p| p.core.ids().count()).sum();
        // A quorum is asked for each that waits, once in six session timeouts, whether what the server at hand shows is gone. A
        // process that waits for another's holding asks only once that one has gone.
        let misled = self.processes.iter().filter(|p| p.at_wrong && !p.crashed).count();
        let checks = u32::try_from(self.wrong.will_keep.len() * misled).unwrap();
        let beats = u32::try_from(12 + 2 * waiting).unwrap();
        let healed_at = self.now.after((4 + 6 * checks) * rules.timeout);
        let healed_at = healed_at.after(beats * rules.margins.heartbeat);
        while self.now < healed_at {
            for (i, id) in self.held_by(rules) {
                self.apply(Choice::Release(i, id), rules);
            }
            if let Some(broken) = self.live_on(rules) {
                return Some(broken);
            }
        }
        let mut gathering = 0;
        for process in self.processes.iter().filter(|p| !p.crashed) {
            for id in process.core.ids() {
                match process.core.standing(id).expect("it has this number").at(self.now) {
                    Some(HoldingState::Waiting { .. }) => {
                        return Some("one waits that should have had its turn");
                    }
                    Some(HoldingState::Leaving) => {
                        return Some("one that left waits for others that have");
                    }
                    Some(HoldingState::Gathering { .. }) => gathering += 1,
                    Some(HoldingState::Held { .. } | HoldingState::Ended(_)) | None => {
                        return Some("a holding does not end");
                    }
                }
            }
        }
        if rules.size().is_some_and(|size| gathering >= size) {
            return Some("enough are there, and the barrier does not open");
        }
        for i in 0..self.processes.len() {
            let ids: Vec<_> = self.processes[i].core.ids().collect();
            ids.into_iter().for_each(|id| self.apply(Choice::Release(i, id), rules));
        }
        let ends_at = self.now.after(rules.timeout);
        while self.now < ends_at {
            if let Some(broken) = self.live_on(rules) {
                return Some(broken);
            }
        }
        let is_left = self.processes.iter().any(|p| !p.crashed && p.core.ids().count() > 0);
        (is_left || !self.server.znodes.is_empty()).then_some("something is left over")
    }

    /// Lets some time pass without faults, and the sessions of the dead end.
    fn live_on(&mut self, rules: &Rules) -> Option<&'static str> {
        self.live(rules.margins.heartbeat / 4, rules);
        let gone = |id: SessionId, p: &Process| p.crashed || p.session != Some(id);
        let dead = self.server.sessions.iter().filter(|(id, session)| {
            let overdue = self.now >= session.touched_at.after(rules.timeout);
            overdue && gone(**id, &self.processes[session.member])
        });
        let dead: Vec<_> = dead.map(|(&id, _)| id).collect();
        dead.into_iter().for_each(|session| self.apply(Choice::Expire(session), rules));
        self.settle(rules);
        self.broken(rules)
    }

    /// Lets this time pass without faults: timers fire, requests are answered.
    pub fn live(&mut self, span: Duration, rules: &Rules) {
        self.live_without(None, span, rules);
    }

    pub fn live_without(&mut self, isolated: Option<usize>, span: Duration, rules: &Rules) {
        self.apply(Choice::Tick(span), rules);
        for i in 0..self.processes.len() {
            let due = self.processes[i].core.wake_at().is_some_and(|at| at <= self.now);
            if due && !self.processes[i].crashed {
                self.apply(Choice::Wake(i), rules);
            }
        }
        self.settle_without(isolated, rules);
    }

    pub fn settle(&mut self, rules: &Rules) {
        self.settle_without(None, rules);
    }

    fn settle_without(&mut self, isolated: Option<usize>, rules: &Rules) {
        let idle = |p: &Process| p.crashed || p.requests.is_empty() && p.replies.is_empty();
        let busy = |(i, p): (usize, &Process)| Some(i) != isolated && !idle(p);
        while let Some(i) = self.processes.iter().enumerate().position(busy) {
            for _ in 0..self.processes[i].requests.len() {
                self.apply(Choice::ServeSlowly(i), rules);
            }
            for _ in 0..self.processes[i].replies.len() {
                self.apply(Choice::Deliver(i), rules);
            }
        }
    }

    /// How many processes have something to do now.
    fn busy(&self, rules: &Rules) -> u32 {
        let busy = |p: &&Process| {
            let asks = p.requests.front().is_some_and(|request| self.is_granted(request, rules));
            let due = p.core.wake_at().is_some_and(|at| at <= self.now);
            !p.crashed && (asks || due || !p.replies.is_empty())
        };
        self.processes.iter().filter(busy).count() as u32
    }

    fn is_granted(&self, request: &Request, rules: &Rules) -> bool {
        request.ask != Ask::Do(Action::OpenSession)
            || self.server.sessions_opened < rules.sessions_max
    }

    fn is_due(&self, reply: &Reply) -> bool {
        !matches!(reply, Reply::To(_, _, served_at) if *served_at >= self.now)
    }

    fn sees_ghost(&self, i: usize, request: &Request) -> bool {
        let reads = matches!(request.ask, Ask::Do(Action::Place(_, place::Action::Read)));
        reads && self.server.ghost.is_some_and(|(at, _)| at > self.processes[i].seen)
    }

    fn next_moment(&self) -> Option<Moment> {
        let here = || self.processes.iter().filter(|p| !p.crashed);
        let timers = here().filter_map(|p| p.core.wake_at());
        let expiries = self.server.sessions.values().map(expires_at);
        timers.chain(expiries).filter(|at| *at > self.now).min()
    }

    fn step(&mut self, i: usize, event: Event, rules: &Rules) {
        let said = self.trace.is_some().then(|| event.to_string());
        let actions = self.processes[i].core.step(self.now, event);
        if let (Some(trace), Some(said)) = (&mut self.trace, said) {
            let wants: Vec<_> = actions.iter().map(Action::to_string).collect();
            let arrow = if wants.is_empty() { "" } else { "  ->  " };
            trace.push(format!("  {}: {said}{arrow}{}", name(i), wants.join(", ")));
        }
        for action in &actions {
            if let Action::Ended(id, End::AllLeft) = action {
                self.on_all_left(i, *id, rules);
            }
        }
        self.processes[i].send(actions, self.now);
    }

    fn on_all_left(&mut self, i: usize, id: HoldingId, rules: &Rules) {
        let Some(last) = self.inside.get(&(i, id)).copied() else {
            return self.wrong_if(true, "one is told that all have left that was not inside");
        };
        let is_inside = self.holders(rules).any(|(_, _, ticket)| ticket.sequence <= last);
        self.wrong_if(is_inside, "one is told that all have left while another is inside");
        self.wrong_if(
            self.server.ready.is_some_and(|ready| ready.last == last),
            "one is told that all have left before the barrier can be used again",
        );
    }

    fn deliver(&mut self, i: usize, rules: &Rules) {
        let Some(reply) = self.processes[i].replies.pop_front() else { return };
        let (Reply::Notice(event) | Reply::To(_, event, _)) = reply;
        let process = &mut self.processes[i];
        match &event {
            Event::Session(SessionEvent::Opened { session, .. }) => {
                process.session = Some(*session)
            }
            Event::Session(SessionEvent::Lost) => process.forget_session(),
            Event::Place(id, place::Event::Watched(znode)) => {
                if let Some(token) = process.watching.get_mut(&(*id, znode.sequence)) {
                    *token = Some(znode.token);
                }
            }
            // What is not watched any more is told no more.
            Event::Place(id, place::Event::Gone { sequence, .. })
                if process.watching.remove(&(*id, *sequence)).is_none() =>
            {
                return;
            }
            _ => {}
        }
        self.step(i, event, rules);
    }

    /// The driver makes another connection, and asks again for all that was not answered.
    fn cut(&mut self, i: usize) {
        let process = &mut self.processes[i];
        let unheard = process.replies.drain(..).filter_map(|reply| match reply {
            Reply::To(request, ..) => Some(Request { again: true, ..request }),
            Reply::Notice(_) => None,
        });
        let mut asks: VecDeque<_> = unheard.collect();
        asks.extend(process.requests.drain(..));
        asks.retain(|request| request.ask != Ask::Resume);
        if let Some(session) = process.session {
            let again =
                |ask| Request { session: Some(session), sent_at: self.now, ask, again: true };
            for &(id, sequence) in process.watching.keys().rev() {
                let watch = Ask::Do(Action::Place(id, place::Action::Watch(sequence)));
                asks.retain(|request| request.ask != watch);
                asks.push_front(again(watch));
            }
            asks.push_front(again(Ask::Resume));
            self.server.forget_watches(session);
        }
        process.requests = asks;
    }

    fn serve(&mut self, i: usize, rules: &Rules, stale: bool) {
        let Some(request) = self.processes[i].requests.pop_front() else { return };
        if !stale {
            self.processes[i].seen = self.server.deletions;
        }
        if request.ask == Ask::Do(Action::OpenSession) {
            self.server.sessions_opened += 1;
            let session = SessionId(self.server.sessions_opened);
            self.server.sessions.insert(session, Session::opened(i, rules.timeout, self.now));
            let (timeout, sent_at) = (rules.timeout, request.sent_at);
            let opened = Event::Session(SessionEvent::Opened { session, timeout, sent_at });
            self.processes[i].replies.push_back(Reply::To(request, opened, self.now));
            return;
        }
        let Some(session) = request.session else { return };
        let Some(alive) = self.server.sessions.get_mut(&session) else {
            let closing = request.ask == Ask::Do(Action::CloseSession);
            if !closing && self.processes[i].session == Some(session) {
                self.processes[i]
                    .replies
                    .push_back(Reply::Notice(Event::Session(SessionEvent::Lost)));
            }
            return;
        };
        alive.touched = true;
        let event = match &request.ask {
            Ask::Resume => {
                alive.touched_at = self.now;
                let granted = rules.faults.short_resumptions.unwrap_or(rules.timeout);
                alive.timeout = granted;
                let sent_at = request.sent_at;
                self.look_after_resumption(i);
                Some(Event::Session(SessionEvent::Resumed { timeout: granted, sent_at }))
            }
            Ask::Do(Action::CloseSession) => {
                self.end_session(session, false);
                None
            }
            Ask::Do(Action::Renew { sent_at }) => Some(Event::Committed { sent_at: *sent_at }),
            Ask::Do(Action::Place(id, action)) => {
                let (id, action) = (*id, action.clone());
                match self.serve_place(i, session, id, &action, &request, rules, stale) {
                    Ok(event) => event.map(|event| Event::Place(id, event)),
                    Err(LeavesServer) => return self.leave_server(i, &request),
                }
            }
            Ask::Do(Action::OpenSession | Action::Ended(..)) => unreachable!("served elsewhere"),
        };
        if let Some(event) = event {
            self.processes[i].replies.push_back(Reply::To(request, event, self.now));
        }
    }

    /// The driver looks at all own znodes, and tells those that look at a barrier to look again.
    fn look_after_resumption(&mut self, i: usize) {
        let ids: Vec<_> = self.processes[i].core.ids().collect();
        for id in ids {
            let standing = self.processes[i].core.standing(id).expect("it has this number");
            if let Some(ticket) = standing.ticket() {
                let znode = self.server.znodes.get(&ticket.sequence);
                if znode.is_none_or(|znode| znode.token != ticket.token) {
                    let lost = Event::Place(id, place::Event::TicketLost(ticket));
                    self.processes[i].replies.push_back(Reply::Notice(lost));
                }
            }
            if self.is_at_barrier(i, id) {
                let changed = Event::Place(id, place::Event::BarrierChanged);
                self.processes[i].replies.push_back(Reply::Notice(changed));
            }
        }
    }

    /// Whether this one waits at a barrier, or for others to leave it.
    fn is_at_barrier(&self, i: usize, id: HoldingId) -> bool {
        let standing = self.processes[i].core.standing(id);
        let state = standing.and_then(|standing| standing.at(self.now));
        matches!(state, Some(HoldingState::Gathering { .. } | HoldingState::Leaving))
    }

    #[expect(clippy::too_many_arguments, reason = "what a request is made of")]
    fn serve_place(
        &mut self,
        i: usize,
        session: SessionId,
        id: HoldingId,
        action: &place::Action,
        request: &Request,
        rules: &Rules,
        stale: bool,
    ) -> Result<Option<place::Event>, LeavesServer> {
        let known = |sequence| self.processes[i].watching.get(&(id, sequence)).copied().flatten();
        Ok(Some(match *action {
            place::Action::Join(spec) => {
                let mode = match spec {
                    HoldingSpec::Lock(mode) => mode,
                    HoldingSpec::Barrier(size) => Mode::Slots(size),
                };
                let (ticket, sent_at) = self.join(session, id, mode, request, rules);
                place::Event::Joined { ticket, sent_at }
            }
            place::Action::Read => {
                self.check_own_is_shown(i, session, id)?;
                let ghost = self.server.ghost.map(|(_, ghost)| ghost).filter(|_| stale);
                let shown = self.shown(i).into_iter();
                let shown = shown.map(|(sequence, znode)| LockEntry { sequence, mode: znode.mode });
                let entries = shown.chain(ghost);
                if !self.is_at_barrier(i, id) {
                    place::Event::QueueRead(entries.collect())
                } else {
                    self.server.ready_watches.insert((session, id));
                    let entries = entries.map(|LockEntry { sequence, mode }| {
                        let size = if let Mode::Slots(size) = mode { Some(size) } else { None };
                        BarrierEntry { sequence, size }
                    });
                    let round = Round(self.server.round.into());
                    let reading = Reading::of(round, entries.collect(), self.server.ready);
                    place::Event::BarrierRead(reading)
                }
            }
            place::Action::Watch(sequence) => {
                let known = known(sequence).filter(|_| !self.is_at_barrier(i, id));
                match self.watch(i, session, id, sequence, known)? {
                    // A barrier does nothing about it.
                    Some(_) if self.is_at_barrier(i, id) => return Ok(None),
                    Some(token) => place::Event::Watched(Ticket { sequence, token }),
                    None => place::Event::Gone { sequence, token: known },
                }
            }
            place::Action::Confirm(sequence) => {
                let known = known(sequence).filter(|_| !self.is_at_barrier(i, id));
                if !self.denies(i, sequence, known) {
                    return Ok(None);
                }
                place::Event::Gone { sequence, token: known }
            }
            place::Action::MakeReady { round, size, ref members } => {
                // What a quorum says is gone is shown no more.
                let mut all_stand = true;
                for sequence in members.iter() {
                    all_stand &= !self.denies(i, sequence, None);
                }
                let is_now = round.0 == i64::from(self.server.round) && self.server.ready.is_none();
                if is_now && all_stand {
                    let earlier = self.server.last_of_round;
                    let here = self.server.znodes.keys().filter(|it| it.number() > earlier);
                    let agree = here.filter(|it| self.server.znodes[it].mode == Mode::Slots(size));
                    let enough = agree.count() >= size.get() as usize;
                    self.wrong_if(!enough, "a barrier opens before there are enough");
                    self.server.ready =
                        members.iter().last().map(|last| Ready { last, size: Some(size) });
                    self.tell_ready();
                }
                place::Event::BarrierChanged
            }
            place::Action::EndRound(round) => {
                let careless = rules.flaw == Some(Flaw::AnyRound);
                let is_now = round.0 == i64::from(self.server.round) || careless;
                if is_now && let Some(Ready { last, .. }) = self.server.ready.take() {
                    self.server.round += 1;
                    self.server.last_of_round = last.number();
                    self.tell_ready();
                }
                place::Event::BarrierChanged
            }
            place::Action::Leave(ticket) => {
                self.leave(ticket);
                place::Event::Left
            }
        }))
    }

    fn join(
        &mut self,
        session: SessionId,
        holding: HoldingId,
        mode: Mode,
        request: &Request,
        rules: &Rules,
    ) -> (Ticket, Option<Moment>) {
        let server = &mut self.server;
        let looks = request.again && rules.flaw != Some(Flaw::BlindCreate);
        let is_own = |znode: &Znode| znode.owner == session && znode.holding == holding;
        let own = server.znodes.iter().find(|(_, znode)| is_own(znode)).filter(|_| looks);
        if let Some((&sequence, &Znode { token, .. })) = own {
            return (Ticket { sequence, token }, None);
        }
        server.last_sequence += 1;
        server.writes += 1;
        let sequence = Sequence::new(server.last_sequence).unwrap();
        let token = FencingToken(server.writes);
        server.znodes.insert(sequence, Znode { owner: session, holding, token, mode });
        (Ticket { sequence, token }, Some(request.sent_at).filter(|_| !request.again))
    }

    /// Returns the token of the znode there, which is watched from now on, unless it is another than was watched.
    fn watch(
        &mut self,
        i: usize,
        session: SessionId,
        id: HoldingId,
        sequence: Sequence,
        known: Option<FencingToken>,
    ) -> Result<Option<FencingToken>, LeavesServer> {
        let shown = self.shown(i).get(&sequence).map(|znode| znode.token);
        if shown.is_none() && self.server.znodes.contains_key(&sequence) {
            return Err(LeavesServer);
        }
        let shown = shown.filter(|token| known.is_none_or(|known| known == *token));
        if shown.is_some() {
            self.server.watches.entry(sequence).or_default().insert((session, id));
        }
        Ok(shown)
    }

    /// Whether a quorum says that a znode is gone. It is shown no more then, and the server that showed it is left.
    fn denies(&mut self, i: usize, sequence: Sequence, known: Option<FencingToken>) -> bool {
        let stands = self.server.znodes.get(&sequence);
        if stands.is_some_and(|znode| known.is_none_or(|known| known == znode.token)) {
            return false;
        }
        let kept = self.wrong.keeps.get(&sequence).map(|znode| znode.token);
        self.processes[i].denied.extend(kept);
        true
    }

    fn check_own_is_shown(
        &self,
        i: usize,
        session: SessionId,
        id: HoldingId,
    ) -> Result<(), LeavesServer> {
        let is_own = |znode: &Znode| znode.owner == session && znode.holding == id;
        let own = self.server.znodes.iter().find(|(_, znode)| is_own(znode));
        let shown = self.shown(i);
        match own {
            Some((sequence, _)) if !shown.contains_key(sequence) => Err(LeavesServer),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns what the server of this process shows.
    fn shown(&self, i: usize) -> BTreeMap<Sequence, Znode> {
        let process = &self.processes[i];
        let mut shown = self.server.znodes.clone();
        if process.at_wrong {
            shown.retain(|_, znode| !self.wrong.lacks.contains(&znode.token));
            let kept = self.wrong.keeps.iter();
            let kept = kept.filter(|(_, znode)| !process.denied.contains(&znode.token));
            shown.extend(kept.map(|(&sequence, znode)| (sequence, znode.clone())));
        }
        shown
    }

    fn leave_server(&mut self, i: usize, request: &Request) {
        self.processes[i].at_wrong = false;
        self.processes[i].requests.push_front(Request { again: true, ..request.clone() });
        self.cut(i);
    }

    fn leave(&mut self, ticket: Ticket) {
        let znode = self.server.znodes.get(&ticket.sequence);
        if znode.is_some_and(|znode| znode.token == ticket.token) {
            self.delete(ticket.sequence);
        }
    }

    /// A process that closed its session hears no more of it.
    fn end_session(&mut self, session: SessionId, tell: bool) {
        let Some(Session { member, .. }) = self.server.sessions.remove(&session) else { return };
        self.server.forget_watches(session);
        let of_session = |(_, znode): &(&Sequence, &Znode)| znode.owner == session;
        let owned = self.server.znodes.iter().filter(of_session).map(|(&it, _)| it);
        owned.collect::<Vec<_>>().into_iter().for_each(|sequence| self.delete(sequence));
        let process = &mut self.processes[member];
        if tell && process.session == Some(session) && !process.crashed {
            process.replies.push_back(Reply::Notice(Event::Session(SessionEvent::Lost)));
        }
    }

    fn evict(&mut self, sequence: Sequence) {
        let Some(Znode { owner, holding, token, .. }) = self.server.znodes.get(&sequence).cloned()
        else {
            return;
        };
        self.server.evicted.insert(token, self.now);
        self.delete(sequence);
        let process = &mut self.processes[self.server.sessions[&owner].member];
        if !process.crashed && process.session == Some(owner) {
            let ticket = Ticket { sequence, token };
            let lost = Event::Place(holding, place::Event::TicketLost(ticket));
            process.replies.push_back(Reply::Notice(lost));
        }
    }

    fn delete(&mut self, sequence: Sequence) {
        let Some(znode) = self.server.znodes.remove(&sequence) else { return };
        let entry = LockEntry { sequence, mode: znode.mode };
        self.server.deletions += 1;
        self.server.ghost = Some((self.server.deletions, entry));
        let is_kept = self.wrong.will_keep.contains(&znode.token);
        for (session, id) in self.server.watches.remove(&sequence).unwrap_or_default() {
            let process = &mut self.processes[self.server.sessions[&session].member];
            if process.crashed || process.session != Some(session) || is_kept && process.at_wrong {
                continue;
            }
            let token = process.watching.get(&(id, sequence)).copied().flatten();
            let token = token.or(Some(znode.token));
            let gone = Event::Place(id, place::Event::Gone { sequence, token });
            process.replies.push_back(Reply::Notice(gone));
            process.seen = self.server.deletions;
        }
        if is_kept {
            self.wrong.keeps.insert(sequence, znode);
        }
    }

    fn tell_ready(&mut self) {
        for (session, id) in std::mem::take(&mut self.server.ready_watches) {
            let Some(alive) = self.server.sessions.get(&session) else { continue };
            let process = &mut self.processes[alive.member];
            if !process.crashed && process.session == Some(session) {
                let changed = Event::Place(id, place::Event::BarrierChanged);
                process.replies.push_back(Reply::Notice(changed));
            }
        }
    }

    pub fn tell(&mut self, line: String) {
        self.trace.get_or_insert_default().push(line);
    }

    pub fn tell_standings(&mut self) {
        for i in 0..self.processes.len() {
            if self.processes[i].crashed {
                self.tell(format!("  {} is dead", name(i)));
                continue;
            }
            let ids: Vec<_> = self.processes[i].core.ids().collect();
            for id in ids {
                let standing = self.processes[i].core.standing(id).expect("it has this number");
                let state = standing.at(self.now);
                let state = state.map_or_else(|| "has ended".into(), |state| state.to_string());
                self.tell(format!("  {} {id} {state}", name(i)));
            }
        }
    }

    pub fn tell_znodes(&mut self) {
        for (sequence, Znode { owner, holding, token, .. }) in self.server.znodes.clone() {
            self.tell(format!("  {sequence} of session {owner}, holding {holding}, token {token}"));
        }
        if let Some(Ready { last, .. }) = self.server.ready {
            self.tell(format!("  ready up to {last}"));
        }
    }

    /// What was chosen, as a scenario that can be pasted into a file of scenarios.
    pub fn scenario(rules: &Rules, choices: &[Choice]) -> String {
        let wrong: Vec<_> = rules.at_wrong.iter().map(usize::to_string).collect();
        let wrong = match wrong.is_empty() {
            true => String::new(),
            false => format!(" wrong={}", wrong.concat()),
        };
        let ns = |span: Duration| format!("{}ns", span.as_nanos());
        let Margins { heartbeat, half_tick } = rules.margins;
        let mut lines = vec![format!(
            "\nplay processes={} timeout={} heartbeat={} half_tick={}{}{wrong}",
            rules.processes,
            ns(rules.timeout),
            ns(heartbeat),
            ns(half_tick),
            if rules.prompt { " prompt" } else { "" },
        )];
        for (i, wanted) in rules.asked {
            lines.push(Choice::Ask(*i, *wanted).words());
            lines.extend(rules.settled.then(|| "settle".into()));
        }
        lines.extend(choices.iter().map(|choice| choice.words()));
        lines.extend(["standings".into(), "----".into(), String::new()]);
        lines.join("\n")
    }
}

/// The server at hand does not show what a quorum says is there.
struct LeavesServer;

pub fn name(i: usize) -> &'static str {
    ["a", "b", "c", "d", "e", "f", "g"][i]
}

impl Rules {
    fn wanted(&self) -> impl Iterator<Item = HoldingSpec> {
        self.asked.iter().map(|(_, wanted)| *wanted).chain(self.menu.iter().copied())
    }

    pub fn is_barrier(&self) -> bool {
        self.size().is_some()
    }

    fn size(&self) -> Option<usize> {
        self.wanted().find_map(|wanted| match wanted {
            HoldingSpec::Barrier(size) => Some(size.get() as usize),
            HoldingSpec::Lock(_) => None,
        })
    }
}

impl Choice {
    fn misfortunes(self) -> u32 {
        match self {
            Self::Release(..)
            | Self::Cut(_)
            | Self::Crash(_)
            | Self::Evict(_)
            | Self::LoseCreate(_)
            | Self::LoseDelete(_)
            | Self::Miss(_)
            | Self::Doom(_) => 1,
            Self::Ask(..)
            | Self::Serve(_)
            | Self::ServeSlowly(_)
            | Self::ServeStale(_)
            | Self::Deliver(_)
            | Self::Wake(_)
            | Self::Need(..)
            | Self::Read(_)
            | Self::Stop(_)
            | Self::Tick(_)
            | Self::Expire(_) => 0,
        }
    }

    /// The choice in the words of the scenario files.
    fn words(self) -> String {
        match self {
            Self::Ask(i, HoldingSpec::Lock(Mode::Exclusive)) => {
                format!("{} asks to write", name(i))
            }
            Self::Ask(i, HoldingSpec::Lock(Mode::Shared)) => format!("{} asks to read", name(i)),
            Self::Ask(i, HoldingSpec::Lock(Mode::Slots(slots))) => {
                format!("{} asks for one of {slots} slots", name(i))
            }
            Self::Ask(i, HoldingSpec::Barrier(size)) => {
                format!("{} asks for a barrier of {size}", name(i))
            }
            Self::Release(i, id) => format!("{} releases {id}", name(i)),
            Self::Serve(i) => format!("{} is served", name(i)),
            Self::ServeSlowly(i) => format!("{} is served slowly", name(i)),
            Self::ServeStale(i) => format!("{} is served stale", name(i)),
            Self::Deliver(i) => format!("{} hears", name(i)),
            Self::Wake(i) => format!("{} wakes", name(i)),
            Self::Need(i, true) => format!("{} needs its session", name(i)),
            Self::Need(i, false) => format!("{} needs no session", name(i)),
            Self::Read(i) => format!("{} reads a queue", name(i)),
            Self::Cut(i) => format!("{} is cut off", name(i)),
            Self::Crash(i) => format!("{} crashes", name(i)),
            Self::Stop(i) => format!("{} is told to stop", name(i)),
            Self::Tick(span) => format!("{}ns of silence", span.as_nanos()),
            Self::Miss(session) => format!("session {} is missed", session.0),
            Self::Doom(session) => format!("session {} is doomed", session.0),
            Self::Expire(session) => format!("session {} expires", session.0),
            Self::Evict(sequence) => format!("{sequence} is deleted"),
            Self::LoseCreate(sequence) => format!("a server loses the making of {sequence}"),
            Self::LoseDelete(sequence) => {
                format!("a server will lose the deletion of {sequence}")
            }
        }
    }
}

impl Server {
    fn forget_watches(&mut self, session: SessionId) {
        for watchers in self.watches.values_mut() {
            watchers.retain(|(watcher, _)| *watcher != session);
        }
        self.watches.retain(|_, watchers| !watchers.is_empty());
        self.ready_watches.retain(|(watcher, _)| *watcher != session);
    }
}

impl Process {
    fn forget_session(&mut self) {
        self.session = None;
        self.watching.clear();
        self.requests.clear();
        self.replies.clear();
    }

    /// As a driver does: one that closes its session hears no more of it, and asks no more in it.
    fn send(&mut self, actions: Vec<Action>, sent_at: Moment) {
        for action in actions {
            let session = self.session;
            match &action {
                Action::CloseSession => self.forget_session(),
                Action::Place(id, place::Action::Watch(sequence)) => {
                    self.watching.insert((*id, *sequence), None);
                }
                // Only the last reading is of use: the one before is not waited for.
                Action::Place(_, place::Action::Read) => {
                    let asks = Ask::Do(action.clone());
                    self.requests.retain(|request| request.ask != asks);
                    let is_answer =
                        |reply: &Reply| matches!(reply, Reply::To(to, ..) if to.ask == asks);
                    self.replies.retain(|reply| !is_answer(reply));
                }
                Action::Place(id, place::Action::Join(_) | place::Action::Leave(_)) => {
                    self.watching.retain(|(watcher, _), _| watcher != id);
                }
                Action::Ended(..) => continue,
                Action::OpenSession | Action::Renew { .. } | Action::Place(..) => {}
            }
            self.requests.push_back(Request {
                session,
                sent_at,
                ask: Ask::Do(action),
                again: false,
            });
        }
    }
}
