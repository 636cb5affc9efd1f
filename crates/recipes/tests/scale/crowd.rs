//! Many members in memory, on one server that answers one request after the other; counts what it receives and sends.
//!
//! Unlike `tests/sim` nothing goes wrong here but what the test asks for, so that ten thousand members take seconds.

use crate::formulas::{Cost, Wire};
use bellwether_recipes::election::*;
use bellwether_recipes::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// How long a member waits after it gave its session up, as in `zookeeper/client`.
const DELAY_AFTER_CLOSE: Duration = Duration::from_millis(50);

pub(crate) const BEGINNING: Moment = Moment(Duration::from_secs(1));

pub(crate) struct Crowd {
    pub(crate) now: Moment,
    pub(crate) cost: Cost,
    wire: Wire,
    pub(crate) rules: Rules,
    members: Vec<Process>,
    server: Server,
    /// What is under way, by when it arrives, and then in the order in which it was sent.
    under_way: BinaryHeap<Reverse<(Moment, u64)>>,
    what: BTreeMap<u64, Arrival>,
    sent: u64,
    /// How much is under way besides timers.
    busy: usize,
    /// Whether timers ring.
    has_heartbeats: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// What the server grants a session.
    pub(crate) timeout: Duration,
    /// How long the network takes, one way.
    pub(crate) network: Duration,
    /// How long a write takes before it is committed, while the server goes on.
    pub(crate) commit: Duration,
    /// How long the server is busy with a request.
    pub(crate) service: Duration,
    /// How long it is busy with each name in a listing besides.
    pub(crate) service_of_name: Duration,
}

struct Process {
    core: Member,
    /// Of all that a process was sent in an earlier life, nothing arrives.
    life: u32,
    is_gone: bool,
    rings_at: Option<Moment>,
    watched: Option<(Sequence, Option<FencingToken>)>,
}

#[derive(Default)]
struct Server {
    free_at: Duration,
    zxid: u64,
    created: i32,
    sessions: i64,
    queue: BTreeMap<Sequence, Znode>,
    /// The queue as it was last listed, until it changes.
    listed: Option<Queue>,
    claim: Option<usize>,
    /// Each member's znode.
    own: BTreeMap<usize, Sequence>,
}

struct Znode {
    owner: usize,
    token: FencingToken,
    data: ZnodeData,
    watched_by: Vec<usize>,
}

enum Arrival {
    Request(usize, u32, Action, Moment),
    Answer(usize, u32, Event),
    Changed(usize, u32, Sequence),
    Ring(usize, u32),
    Expiry(usize),
}

impl Rules {
    pub(crate) const fn of_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

impl Crowd {
    pub(crate) fn new(wire: Wire, rules: Rules) -> Self {
        Self {
            now: BEGINNING,
            cost: Cost::default(),
            wire,
            rules,
            members: vec![],
            server: Server::default(),
            under_way: BinaryHeap::new(),
            what: BTreeMap::new(),
            sent: 0,
            busy: 0,
            has_heartbeats: false,
        }
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        self.rules.timeout / 10
    }

    pub(crate) fn join(&mut self) {
        let id = MemberId::new(&format!("m{}", self.members.len())).expect("a good name");
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let margins = Margins { heartbeat: self.heartbeat(), half_tick: self.heartbeat() };
        let core = Member::new(Arc::new(profile), Policy::new(margins));
        let actions = core.start();
        self.members.push(Process { core, life: 0, is_gone: false, rings_at: None, watched: None });
        self.carry_out(self.members.len() - 1, actions);
    }

    pub(crate) fn resign(&mut self, i: usize) {
        self.step(i, Event::Command(Command::Resign));
    }

    /// The process is gone, and its session ends so much later.
    pub(crate) fn kill(&mut self, i: usize, later: Duration) {
        self.members[i].life += 1;
        self.members[i].is_gone = true;
        self.send(self.now.after(later), Arrival::Expiry(i));
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let living = (0..self.members.len()).filter(|i| !self.members[*i].is_gone);
        living.into_iter().find(|i| matches!(self.role(*i), Role::Leader { .. }))
    }

    /// Whether all that are in the queue name its first, which leads.
    pub(crate) fn all_name_the_leader(&self) -> bool {
        self.name_the_leader() == self.in_queue()
    }

    pub(crate) fn half_name_the_leader(&self) -> bool {
        2 * self.name_the_leader() >= self.in_queue()
    }

    /// How many that are in the queue name its first, if that leads.
    fn name_the_leader(&self) -> usize {
        let Some((first, head)) = self.server.queue.first_key_value() else { return 0 };
        if !matches!(self.role(head.owner), Role::Leader { .. }) {
            return 0;
        }
        let names = |znode: &&Znode| match self.role(znode.owner) {
            Role::Follower { leader } => leader.is_some_and(|it| it.ticket.sequence == *first),
            Role::Leader { .. } | Role::Candidate | Role::Absent => false,
        };
        1 + self.server.queue.values().skip(1).filter(names).count()
    }

    pub(crate) fn in_queue(&self) -> usize {
        self.server.queue.len()
    }

    pub(crate) fn watches(&self) -> usize {
        let ahead: usize = self.server.queue.values().map(|znode| znode.watched_by.len()).sum();
        self.server.queue.len() + ahead
    }

    /// Goes on until this moment.
    pub(crate) fn run_until(&mut self, until: Moment) {
        while self.next_at().is_some_and(|at| at <= until) {
            self.arrive();
        }
        self.now = until;
    }

    /// Goes on until nothing is under way but timers.
    pub(crate) fn settle(&mut self) {
        while self.busy > 0 {
            self.arrive();
        }
    }

    /// Has members send heartbeats from now on: before, what happens takes no time, as far as they are concerned.
    pub(crate) fn begin_heartbeats(&mut self) {
        self.has_heartbeats = true;
        (0..self.members.len()).for_each(|i| self.set_timer(i));
    }

    /// Goes on until this holds, which is looked at every so often.
    pub(crate) fn run_while(&mut self, every: Duration, so: impl Fn(&Self) -> bool) {
        while so(self) {
            self.run_until(self.now.after(every));
        }
    }

    fn role(&self, i: usize) -> Role {
        self.members[i].core.standing().at(self.now)
    }

    fn next_at(&self) -> Option<Moment> {
        self.under_way.peek().map(|Reverse((at, _))| *at)
    }

    fn arrive(&mut self) {
        let Some(Reverse((at, number))) = self.under_way.pop() else { return };
        let what = self.what.remove(&number).expect("it was sent");
        self.busy -= usize::from(!matches!(what, Arrival::Ring(..)));
        self.now = self.now.max(at);
        match what {
            Arrival::Request(i, life, action, sent_at) if life == self.members[i].life => {
                self.serve(i, action, sent_at);
            }
            Arrival::Answer(i, life, event) if life == self.members[i].life => self.step(i, event),
            Arrival::Changed(i, life, sequence) if life == self.members[i].life => {
                if self.members[i].watched.is_some_and(|(it, _)| it == sequence) {
                    self.carry_out(i, vec![Action::WatchPredecessor(sequence)]);
                }
            }
            Arrival::Ring(i, life) if life == self.members[i].life => {
                let is_due = self.members[i].core.wake_at().is_some_and(|at| at <= self.now);
                self.members[i].rings_at = None;
                match is_due && self.has_heartbeats {
                    true => self.step(i, Event::Woke),
                    false => self.set_timer(i),
                }
            }
            Arrival::Expiry(i) => {
                self.cost.writes += 1.0;
                self.end_session(i);
            }
            Arrival::Request(..)
            | Arrival::Answer(..)
            | Arrival::Changed(..)
            | Arrival::Ring(..) => {}
        }
    }

    fn step(&mut self, i: usize, event: Event) {
        match &event {
            Event::PredecessorRead { predecessor, .. } => {
                self.members[i].watched = Some((predecessor.sequence, Some(predecessor.token)));
            }
            Event::PredecessorGone { .. } => self.members[i].watched = None,
            _ => {}
        }
        let actions = self.members[i].core.step(self.now, event);
        self.carry_out(i, actions);
        self.set_timer(i);
    }

    fn set_timer(&mut self, i: usize) {
        let member = &mut self.members[i];
        let is_alive = self.has_heartbeats && !member.is_gone;
        let Some(at) = member.core.wake_at().filter(|_| is_alive) else { return };
        if member.rings_at.is_none_or(|rings_at| at < rings_at) {
            member.rings_at = Some(at);
            let life = member.life;
            self.send(at, Arrival::Ring(i, life));
        }
    }

    fn carry_out(&mut self, i: usize, actions: Vec<Action>) {
        let closes = actions.contains(&Action::CloseSession);
        for action in actions {
            if let Action::WatchPredecessor(sequence) = action {
                self.members[i].watched = Some((sequence, None));
            }
            let mut takes = self.rules.network;
            if is_write(&action) {
                takes += self.rules.commit;
            }
            if closes && action == Action::OpenSession {
                takes += DELAY_AFTER_CLOSE;
            }
            let request = Arrival::Request(i, self.members[i].life, action, self.now);
            self.send(self.now.after(takes), request);
        }
    }

    fn send(&mut self, at: Moment, what: Arrival) {
        self.sent += 1;
        self.busy += usize::from(!matches!(what, Arrival::Ring(..)));
        self.under_way.push(Reverse((at, self.sent)));
        self.what.insert(self.sent, what);
    }

    /// Counts the requests of an action; returns when the last of them is answered.
    fn pay(&mut self, cost: Cost, names: usize) -> Moment {
        let names = u32::try_from(names).expect("some thousand");
        let service =
            self.rules.service.mul_f64(cost.requests) + names * self.rules.service_of_name;
        self.server.free_at = self.server.free_at.max(self.now.0) + service;
        self.cost += cost;
        Moment(self.server.free_at).after(self.rules.network)
    }

    fn serve(&mut self, i: usize, action: Action, sent_at: Moment) {
        let wire = self.wire;
        let life = self.members[i].life;
        let listed = self.server.queue.len();
        let (cost, names) = match &action {
            Action::OpenSession => (wire.open(), 0),
            Action::CloseSession => (wire.close(), 0),
            Action::Join(_) => (wire.join(), 0),
            Action::ReadQueue => (wire.list(listed as f64), listed),
            Action::WatchPredecessor(_) => (wire.get(), 0),
            Action::ReadHead { head, .. } if self.server.queue.contains_key(head) => {
                (wire.get(), 0)
            }
            Action::ReadHead { .. } => (wire.read_head_gone(), 0),
            Action::Relay { .. } | Action::Update(_) => (wire.set(), 0),
            Action::Claim { .. } => (wire.claim(listed as f64), listed),
            Action::Renew { .. } => (wire.renew(), 0),
            Action::FindTicket | Action::ReadTarget(_) | Action::ReadPriorities => {
                unreachable!("no member is started again, nor preferred")
            }
        };
        let answered_at = self.pay(cost, names);
        let event = match action {
            Action::OpenSession => {
                self.server.sessions += 1;
                let session = SessionId(self.server.sessions);
                Some(Event::Session(SessionEvent::Opened {
                    session,
                    timeout: self.rules.timeout,
                    sent_at,
                }))
            }
            Action::CloseSession => {
                self.end_session(i);
                None
            }
            Action::Join(data) => Some(Event::Joined(self.create(i, data))),
            Action::ReadQueue => Some(Event::QueueRead(self.list())),
            Action::WatchPredecessor(sequence) => Some(self.watch(i, sequence)),
            Action::ReadHead { head, sent_at, .. } => Some(match self.server.queue.get(&head) {
                Some(Znode { token, data, .. }) => {
                    let head = Ticket { sequence: head, token: *token };
                    Event::HeadRead { head, announcement: data.announcement.clone(), sent_at }
                }
                None => Event::HeadGone { head, sent_at },
            }),
            Action::Relay { data, sent_at } => {
                self.write(i, data);
                sent_at.map(|sent_at| Event::Committed { sent_at })
            }
            Action::Update(data) => {
                self.write(i, data);
                None
            }
            Action::Claim { data, sent_at } => {
                let holder = self.server.claim.replace(i);
                assert!(holder.is_none_or(|it| it == i), "the previous session has ended");
                self.write(i, data);
                Some(Event::Committed { sent_at })
            }
            Action::Renew { sent_at, .. } => Some(Event::Committed { sent_at }),
            Action::FindTicket | Action::ReadTarget(_) | Action::ReadPriorities => {
                unreachable!("as above")
            }
        };
        if let Some(event) = event {
            self.send(answered_at, Arrival::Answer(i, life, event));
        }
    }

    fn create(&mut self, owner: usize, data: ZnodeData) -> Ticket {
        self.server.zxid += 1;
        let sequence = Sequence::new(self.server.created).expect("far from the end");
        let token = FencingToken(self.server.zxid);
        self.server.created += 1;
        self.server.listed = None;
        self.server.own.insert(owner, sequence);
        let znode = Znode { owner, token, data, watched_by: vec![] };
        self.server.queue.insert(sequence, znode);
        Ticket { sequence, token }
    }

    fn list(&mut self) -> Queue {
        let server = &mut self.server;
        let read = || server.queue.keys().copied().collect();
        server.listed.get_or_insert_with(read).clone()
    }

    fn watch(&mut self, i: usize, sequence: Sequence) -> Event {
        let Some(znode) = self.server.queue.get_mut(&sequence) else {
            let token = self.members[i].watched.and_then(|(_, token)| token);
            return Event::PredecessorGone { predecessor: sequence, token };
        };
        if !znode.watched_by.contains(&i) {
            znode.watched_by.push(i);
        }
        let predecessor = Ticket { sequence, token: znode.token };
        let ZnodeData { announcement, distance, .. } = znode.data.clone();
        Event::PredecessorRead { predecessor, announcement, distance }
    }

    fn write(&mut self, i: usize, data: ZnodeData) {
        let Some(sequence) = self.server.own.get(&i).copied() else { return };
        let Some(znode) = self.server.queue.get_mut(&sequence) else { return };
        znode.data = data;
        for watcher in std::mem::take(&mut znode.watched_by) {
            self.notify(watcher, |life| Arrival::Changed(watcher, life, sequence));
        }
    }

    fn end_session(&mut self, i: usize) {
        if self.server.claim == Some(i) {
            self.server.claim = None;
        }
        let server = &mut self.server;
        let Some(gone) = server.own.remove(&i) else { return };
        let Some(znode) = server.queue.remove(&gone) else { return };
        server.listed = None;
        if let Some((ahead, _)) = self.members[i].watched
            && let Some(znode) = server.queue.get_mut(&ahead)
        {
            znode.watched_by.retain(|watcher| *watcher != i);
        }
        for watcher in znode.watched_by {
            let token = Some(znode.token);
            let event = Event::PredecessorGone { predecessor: gone, token };
            self.notify(watcher, |life| Arrival::Answer(watcher, life, event));
        }
    }

    /// To a process that is gone the server sends nothing, as its connection is.
    fn notify(&mut self, watcher: usize, arrival: impl FnOnce(u32) -> Arrival) {
        if self.members[watcher].is_gone {
            return;
        }
        self.cost += self.wire.notification();
        let at = self.now.0.max(self.server.free_at);
        let arrival = arrival(self.members[watcher].life);
        self.send(Moment(at).after(self.rules.network), arrival);
    }
}

/// Whether a quorum commits something for it.
fn is_write(action: &Action) -> bool {
    match action {
        Action::OpenSession
        | Action::CloseSession
        | Action::Join(_)
        | Action::Relay { .. }
        | Action::Claim { .. }
        | Action::Update(_)
        | Action::Renew { .. } => true,
        Action::FindTicket
        | Action::ReadHead { .. }
        | Action::ReadQueue
        | Action::WatchPredecessor(_)
        | Action::ReadTarget(_)
        | Action::ReadPriorities => false,
    }
}
