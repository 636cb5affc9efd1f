//! A whole election in memory: members, one ZooKeeper, and a scheduler that is somebody else.
//!
//! Every test layer drives this one world. A [`Choice`] is one thing that could happen next; the
//! scenario files spell choices out, the model checker tries all of them, the walks throw dice.
//! What must always hold is written once, in [`World::broken`].

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use bellwether::election::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Rules {
    pub members: usize,
    /// What the server grants a session.
    pub timeout: Duration,
    /// What a member believes to lie between a session's timeout and a safe term.
    pub margins: Margins,
    /// How late the ensemble's leader may learn that a session is alive.
    pub lag: Duration,
    pub horizon: Duration,
    pub sessions_max: i64,
    pub crashes: bool,
    /// Whether a stranger may delete znodes.
    pub evictions: bool,
    /// Whether the story begins when all have taken their tickets.
    pub settled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Moment,
    pub server: Server,
    pub members: Vec<Process>,
    /// The highest token that ever led.
    pub led: Option<FencingToken>,
    /// A token that led after a higher one had.
    pub led_backwards: bool,
    /// What members heard and wanted, in words; only where somebody reads it.
    pub trace: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    sessions_opened: i64,
    tickets_drawn: i32,
    sessions: BTreeMap<SessionId, Session>,
    tickets: BTreeMap<Sequence, Znode>,
    watches: BTreeMap<Sequence, BTreeSet<SessionId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    member: usize,
    /// When the ensemble last knew it alive.
    touched_at: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Znode {
    owner: SessionId,
    says: Option<Announcement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub name: &'static str,
    pub core: Member,
    pub crashed: bool,
    pub stopped: bool,
    pub session: Option<SessionId>,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    session: Option<SessionId>,
    sent_at: Moment,
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Event(Event),
    /// A data watch fired: the driver reads again.
    Changed(Sequence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The server takes the next request of a member.
    Serve(usize),
    /// A member takes the next reply of the server.
    Deliver(usize),
    Wake(usize),
    Tick,
    Expire(SessionId),
    Crash(usize),
    Evict(Sequence),
    Stop(usize),
}

pub const TICK: Duration = Duration::from_secs(1);

impl World {
    pub fn new(rules: &Rules) -> Self {
        let mut world = Self {
            now: Moment(Duration::ZERO),
            server: Server::default(),
            members: vec![],
            led: None,
            led_backwards: false,
            trace: None,
        };
        for name in ["a", "b", "c", "d", "e"].into_iter().take(rules.members) {
            world.join(name, rules);
        }
        world
    }

    pub fn join(&mut self, name: &'static str, rules: &Rules) {
        let id = MemberId::new(name).unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new() };
        let core = Member::new(Arc::new(profile), rules.margins);
        let actions = core.start();
        let mut process = Process {
            name,
            core,
            crashed: false,
            stopped: false,
            session: None,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
        };
        process.send(actions, self.now);
        self.members.push(process);
    }

    pub fn choices(&self, rules: &Rules, choices: &mut Vec<Choice>) {
        for (i, member) in self.members.iter().enumerate().filter(|(_, m)| !m.crashed) {
            let opening = |r: &Request| r.action == Action::OpenSession;
            match member.requests.front() {
                Some(r) if opening(r) && self.server.sessions_opened >= rules.sessions_max => {}
                Some(_) => choices.push(Choice::Serve(i)),
                None => {}
            }
            if !member.replies.is_empty() {
                choices.push(Choice::Deliver(i));
            }
            if member.core.wake_at().is_some_and(|at| at <= self.now) {
                choices.push(Choice::Wake(i));
            }
            if rules.crashes {
                choices.push(Choice::Crash(i));
            }
        }
        if self.now.0 < rules.horizon {
            choices.push(Choice::Tick);
        }
        for (&id, session) in &self.server.sessions {
            if self.now >= session.touched_at.after(rules.timeout) {
                choices.push(Choice::Expire(id));
            }
        }
        if rules.evictions {
            choices.extend(self.server.tickets.keys().map(|&ticket| Choice::Evict(ticket)));
        }
    }

    pub fn apply(&mut self, choice: Choice, rules: &Rules) {
        match choice {
            Choice::Serve(i) => self.serve(i, rules),
            Choice::Deliver(i) => self.deliver(i),
            Choice::Wake(i) => self.step(i, Event::Woke),
            Choice::Tick => self.now = self.now.after(TICK),
            Choice::Expire(session) => self.end_session(session, true),
            Choice::Crash(i) => {
                self.members[i].crashed = true;
                self.members[i].requests.clear();
                self.members[i].replies.clear();
            }
            Choice::Evict(ticket) => self.delete(ticket),
            Choice::Stop(i) => {
                self.members[i].stopped = true;
                self.step(i, Event::Stop);
            }
        }
        let leading = self.leaders().map(|(_, token)| token).min();
        self.led_backwards |= leading.is_some_and(|token| self.led.is_some_and(|led| token < led));
        self.led = self.led.max(self.leaders().map(|(_, token)| token).max());
    }

    /// A second in which everybody is well: timers fire, requests are answered.
    pub fn live_one_tick(&mut self, rules: &Rules) {
        self.apply(Choice::Tick, rules);
        for i in 0..self.members.len() {
            let due = self.members[i].core.wake_at().is_some_and(|at| at <= self.now);
            if due && !self.members[i].crashed {
                self.apply(Choice::Wake(i), rules);
            }
        }
        self.settle(rules);
    }

    pub fn named(&self, name: &str) -> usize {
        self.members.iter().position(|m| m.name == name).expect("a member of that name")
    }

    pub fn tell(&mut self, line: String) {
        self.trace.get_or_insert_default().push(line);
    }

    pub fn tell_standings(&mut self) {
        for i in 0..self.members.len() {
            let Process { name, crashed, ref core, .. } = self.members[i];
            let role =
                if crashed { "is dead".into() } else { core.standing().at(self.now).to_string() };
            self.tell(format!("  {name} {role}"));
        }
    }

    pub fn leaders(&self) -> impl Iterator<Item = (&Process, FencingToken)> {
        self.members.iter().filter(|m| !m.crashed).filter_map(|m| {
            match m.core.standing().at(self.now) {
                Role::Leader { announcement, .. } => Some((m, announcement.ticket.token)),
                Role::Candidate | Role::Follower { .. } | Role::Absent => None,
            }
        })
    }

    /// The first thing found that must never be.
    pub fn broken(&self) -> Option<&'static str> {
        if self.leaders().count() > 1 {
            return Some("two members lead at once");
        }
        let first = self.server.tickets.first_key_value().map(|(_, znode)| znode.owner);
        if self.leaders().any(|(m, _)| m.session != first) {
            return Some("a leader does not stand first");
        }
        if self.led_backwards {
            return Some("a fencing token went backwards");
        }
        if self.server.watches.values().any(|watchers| watchers.len() > 1) {
            return Some("one znode is watched twice: a herd");
        }
        if self.is_quiet() && self.members.iter().any(|m| !m.gone() && m.core.wake_at().is_none()) {
            return Some("nothing is left to happen, and somebody is stuck");
        }
        None
    }

    /// Lets everybody be well for a while; then all must name the one who leads.
    pub fn heal(&mut self, rules: &Rules) -> Option<&'static str> {
        for _ in 0..4 * rules.timeout.as_secs() {
            self.live_one_tick(rules);
            let dead = self.server.sessions.iter();
            let dead = dead.filter(|(_, s)| self.members[s.member].gone()).map(|(&id, _)| id);
            let overdue = |id: &SessionId| {
                self.now >= self.server.sessions[id].touched_at.after(rules.timeout)
            };
            let dead: Vec<_> = dead.filter(overdue).collect();
            dead.into_iter().for_each(|session| self.apply(Choice::Expire(session), rules));
            self.settle(rules);
            if let Some(broken) = self.broken() {
                return Some(broken);
            }
        }
        (!self.all_have_heard()).then_some("somebody does not know who leads")
    }

    fn is_quiet(&self) -> bool {
        let asleep = |m: &Process| m.crashed || m.core.wake_at().is_none_or(|at| at > self.now);
        self.members.iter().all(|m| m.requests.is_empty() && m.replies.is_empty() && asleep(m))
            && self.server.sessions.values().all(|s| !self.members[s.member].crashed)
    }

    fn all_have_heard(&self) -> bool {
        let Some((first, _)) = self.server.tickets.first_key_value() else { return true };
        let here = |m: &&Process| !m.gone();
        self.members.iter().filter(here).all(|m| match m.core.standing().at(self.now) {
            Role::Follower { heard } => heard.is_some_and(|h| h.ticket.sequence == *first),
            Role::Leader { .. } => true,
            Role::Candidate | Role::Absent => false,
        })
    }

    fn step(&mut self, i: usize, event: Event) {
        let said = event.to_string();
        let actions = self.members[i].core.step(self.now, event);
        if let Some(trace) = &mut self.trace {
            let wants: Vec<_> = actions.iter().map(Action::to_string).collect();
            let arrow = if wants.is_empty() { "" } else { "  ->  " };
            trace.push(format!("  {}: {said}{arrow}{}", self.members[i].name, wants.join(", ")));
        }
        self.members[i].send(actions, self.now);
    }

    /// Serves and delivers, member by member, until nothing is under way.
    pub fn settle(&mut self, rules: &Rules) {
        let idle = |m: &Process| m.crashed || m.requests.is_empty() && m.replies.is_empty();
        while let Some(i) = self.members.iter().position(|m| !idle(m)) {
            for _ in 0..self.members[i].requests.len() {
                self.apply(Choice::Serve(i), rules);
            }
            for _ in 0..self.members[i].replies.len() {
                self.apply(Choice::Deliver(i), rules);
            }
        }
    }

    fn deliver(&mut self, i: usize) {
        let Some(reply) = self.members[i].replies.pop_front() else { return };
        match reply {
            Reply::Changed(ticket) => {
                self.members[i].send(vec![Action::WatchPredecessor(ticket)], self.now);
            }
            Reply::Event(event) => {
                match event {
                    Event::SessionOpened { session, .. } => {
                        self.members[i].session = Some(session);
                    }
                    Event::SessionLost => {
                        self.members[i].session = None;
                        self.members[i].requests.clear();
                    }
                    _ => {}
                }
                self.step(i, event);
            }
        }
    }

    fn serve(&mut self, i: usize, rules: &Rules) {
        let Some(request) = self.members[i].requests.pop_front() else { return };
        if request.action == Action::OpenSession {
            self.server.sessions_opened += 1;
            let session = SessionId(self.server.sessions_opened);
            let touched_at = self.now;
            self.server.sessions.insert(session, Session { member: i, touched_at });
            let (timeout, sent_at) = (rules.timeout, request.sent_at);
            let opened = Event::SessionOpened { session, timeout, sent_at };
            self.members[i].replies.push_back(Reply::Event(opened));
            return;
        }
        let Some(session) = request.session else { return };
        let Some(alive) = self.server.sessions.get_mut(&session) else { return };
        let known_alive = Moment(request.sent_at.0.saturating_sub(rules.lag));
        alive.touched_at = alive.touched_at.max(known_alive);
        let reply = match request.action {
            Action::OpenSession => unreachable!("served above"),
            Action::CloseSession => return self.end_session(session, false),
            Action::DrawTicket => {
                let sequence = self.server.ticket_of(session).unwrap_or_else(|| {
                    self.server.tickets_drawn += 1;
                    Sequence::new(self.server.tickets_drawn).unwrap()
                });
                let znode = Znode { owner: session, says: None };
                self.server.tickets.entry(sequence).or_insert(znode);
                let token = FencingToken(sequence.number().unsigned_abs().into());
                Event::TicketDrawn(Ticket { sequence, token })
            }
            Action::ReadLine => Event::LineRead(self.server.tickets.keys().copied().collect()),
            Action::WatchPredecessor(predecessor) => match self.server.tickets.get(&predecessor) {
                Some(znode) => {
                    self.server.watches.entry(predecessor).or_default().insert(session);
                    Event::PredecessorRead { predecessor, says: znode.says.clone() }
                }
                None => Event::PredecessorGone(predecessor),
            },
            Action::ReadHead { head, sent_at } => match self.server.tickets.get(&head) {
                Some(znode) => Event::HeadRead { head, says: znode.says.clone(), sent_at },
                None => Event::HeadGone { head, sent_at },
            },
            Action::PassOn { announcement, sent_at } | Action::Claim { announcement, sent_at } => {
                match self.server.ticket_of(session) {
                    Some(ticket) => {
                        self.server.tickets.get_mut(&ticket).expect("just found").says =
                            Some(announcement);
                        self.fire(ticket, &Reply::Changed(ticket));
                        Event::Committed { sent_at }
                    }
                    None => Event::TicketLost,
                }
            }
            Action::Renew { sent_at } => match self.server.ticket_of(session) {
                Some(_) => Event::Committed { sent_at },
                None => Event::TicketLost,
            },
        };
        self.members[i].replies.push_back(Reply::Event(reply));
    }

    /// Whoever closed its session hears no more of it.
    fn end_session(&mut self, session: SessionId, tell: bool) {
        let Some(Session { member, .. }) = self.server.sessions.remove(&session) else { return };
        for watchers in self.server.watches.values_mut() {
            watchers.remove(&session);
        }
        self.server.watches.retain(|_, watchers| !watchers.is_empty());
        if let Some(ticket) = self.server.ticket_of(session) {
            self.delete(ticket);
        }
        let its_own = self.members[member].session == Some(session);
        if tell && its_own && !self.members[member].crashed {
            self.members[member].replies.push_back(Reply::Event(Event::SessionLost));
        }
    }

    fn delete(&mut self, ticket: Sequence) {
        self.server.tickets.remove(&ticket);
        self.fire(ticket, &Reply::Event(Event::PredecessorGone(ticket)));
    }

    /// Tells the watchers of a znode, once, as ZooKeeper does.
    fn fire(&mut self, ticket: Sequence, reply: &Reply) {
        let watchers = self.server.watches.remove(&ticket).unwrap_or_default();
        for member in self.members.iter_mut().filter(|m| !m.crashed) {
            if member.session.is_some_and(|session| watchers.contains(&session)) {
                member.replies.push_back(reply.clone());
            }
        }
    }
}

impl Server {
    fn ticket_of(&self, session: SessionId) -> Option<Sequence> {
        self.tickets.iter().find(|(_, znode)| znode.owner == session).map(|(&ticket, _)| ticket)
    }
}

impl Process {
    fn gone(&self) -> bool {
        self.crashed || self.stopped
    }

    /// As the driver does: whoever closes its session hears no more of it, and asks no more in it.
    fn send(&mut self, actions: Vec<Action>, sent_at: Moment) {
        for action in actions {
            let session = self.session;
            if action == Action::CloseSession {
                self.requests.clear();
                self.replies.clear();
                self.session = None;
            }
            self.requests.push_back(Request { session, sent_at, action });
        }
    }
}
