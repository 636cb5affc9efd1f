//! A whole election in memory: members, one ZooKeeper, and a scheduler that the caller provides.
//!
//! Every test layer drives this one world. A [`Choice`] is one thing that could happen next; the
//! scenario files spell choices out, the model checker tries all of them, the walks choose at random.
//! What must always hold is written once, in [`World::broken`].
//!
//! The ensemble behaves as badly as a real one may: its leader learns that a session is alive only
//! from its followers' reports, `half_tick` apart, one of which may be lost; it expires a session
//! as early as its clock may run fast; a read may show a queue that has changed since.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod faults;
mod session;

pub use faults::Faults;

use bellwether_recipes::election::*;
use bellwether_recipes::*;
use session::{Session, expires_at, report};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Rules {
    pub members: usize,
    /// What the server grants a session.
    pub timeout: Duration,
    pub policy: Policy,
    /// How far time goes at once.
    pub tick: Duration,
    /// Whether time also stops at each moment at which a timer is due.
    pub exact: bool,
    /// Whether no two events reach members at the same moment, as by a real clock. Else a member cannot tell an answer to what
    /// it sent from news of before.
    pub moments_differ: bool,
    /// Whether a reply is delivered at once unless it is late by a tick or lost. No member can see
    /// the difference, and the model checker has fewer orders to try.
    pub prompt: bool,
    pub horizon: Duration,
    /// How many misfortunes may come together: a fault, or a member that lets time pass over
    /// something it has to do.
    pub misfortunes_max: u32,
    pub sessions_max: i64,
    pub faults: Faults,
    /// What the module `zookeeper` might do wrong.
    pub flaw: Option<Flaw>,
    /// Whether the run begins when all members are in the queue and know the leader.
    pub settled: bool,
    /// For how long all goes well before the run begins.
    pub aged: Duration,
    /// Which members are connected to the server that can lose a transaction.
    pub at_wrong: &'static [usize],
    /// Whether there is no other server that they could go to.
    pub only_wrong: bool,
    /// The members' priorities, where they do not all have the usual one.
    pub priorities: &'static [u8],
    /// Whether the model also tries, at the horizon, whether all members name the leader some time after the faults.
    pub recovers: bool,
    /// Whether members stand in another client's queue, whose contenders neither relay nor hold leases.
    pub among: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// After a create whose outcome is unknown, another is sent.
    BlindCreate,
    /// A renewal asks whether there is a znode, not whose it is, and no member watches its own.
    CarelessRenewal,
    /// A claim is a write into the own znode, and nothing else.
    PlainClaim,
    /// The own znode is taken for lost where the server at hand does not show it.
    TrustedReads,
    /// A second process may be started with what a living one noted of its session.
    NoLock,
    /// That a session is about to be closed is noted no sooner than it is closed.
    LateNote,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Moment,
    pub server: Server,
    wrong: Wrong,
    pub members: Vec<Process>,
    /// The highest token that ever led.
    pub led: Option<FencingToken>,
    misfortunes: u32,
    /// Whether a token led after a higher one had.
    pub led_backwards: bool,
    /// Whether a leader handed over while its target stood, and not right behind it.
    bypassed: bool,
    /// Whether a member wrote into its znode in another client's queue.
    wrote_among: bool,
    /// The members' events and actions, as scenario files have them; kept only where a test prints it.
    pub trace: Option<Vec<String>>,
    /// The events themselves, so that one can be delivered again; kept while there is a trace.
    delivered: Vec<(usize, Event)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    sessions_opened: i64,
    last_sequence: i32,
    writes: u64,
    deletions: u64,
    reported_at: Moment,
    sessions: BTreeMap<SessionId, Session>,
    tickets: BTreeMap<Sequence, Znode>,
    /// The claim znode: which session made it, and for which member.
    claim: Option<(SessionId, Ticket)>,
    /// What was written into it last.
    claim_data: Option<ZnodeData>,
    /// How many contenders of another client there were.
    others: i64,
    /// The priorities that unknown clients wrote over, in znodes of members.
    overwritten_priorities: BTreeMap<Sequence, Priority>,
    /// The last znode that was deleted, behind the number of deletions up to then.
    ghost: Option<(u64, Sequence)>,
    watches: BTreeMap<Sequence, BTreeSet<SessionId>>,
    /// What unknown clients deleted, and when: no lease covers that, so its owner is excused for the length of a lease.
    evicted: BTreeMap<FencingToken, Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Znode {
    owner: SessionId,
    token: FencingToken,
    data: ZnodeData,
    /// What its owner wrote last.
    wrote: ZnodeData,
}

impl Znode {
    /// What it announces. In another client's queue it says whose it is, and no more: if it is the head, that one leads.
    fn announcement(&self, sequence: Sequence, among: bool) -> Option<Announcement> {
        if !among {
            return self.data.announcement.clone();
        }
        let ticket = Ticket { sequence, token: self.token };
        Some(Announcement { leader: self.data.profile.clone(), ticket })
    }
}

/// What one server shows that the quorum does not agree with. What is written by way of it is judged by the quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Wrong {
    lacks: BTreeSet<FencingToken>,
    keeps: BTreeMap<Sequence, Znode>,
    /// What it will go on to show when it is deleted.
    will_keep: BTreeSet<FencingToken>,
}

/// The session of unknown clients, which does not end.
const UNKNOWN_CLIENT: SessionId = SessionId(-1);

/// Whether it is the session of another client's contender.
fn is_others(owner: SessionId) -> bool {
    owner < UNKNOWN_CLIENT
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub name: &'static str,
    pub core: Member,
    pub crashed: bool,
    pub stopped: bool,
    /// Contenders of another order stand in the path, as it was told.
    kept_out: bool,
    pub session: Option<SessionId>,
    /// What it noted of its session for a next process.
    note: Option<Note>,
    /// Whether it notes that it closes a session no sooner than that is done.
    notes_late: bool,
    /// What it sent before it crashed, and no server has received yet.
    late: VecDeque<Request>,
    /// As the module `zookeeper` does, a member that is cut off asks again for what was not answered.
    watching: Option<Watched>,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
    /// How many deletions it has seen for sure.
    seen: u64,
    /// Whether it is connected to the server that lost a transaction.
    at_wrong: bool,
}

/// What a process notes of its session, where the next one finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Note {
    /// To go on with.
    Has(SessionRecord),
    /// To be ended: it may have been closed.
    Closes(SessionId),
}

/// The predecessor's znode, and its token once it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watched {
    sequence: Sequence,
    token: Option<FencingToken>,
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
    /// Take the session up over a new connection, see whether our znode stands, and watch it.
    Resume,
    /// Take over the session of a process before.
    TakeOver(SessionRecord),
    Do(Action),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reply {
    To(Request, Event, Moment),
    Notice(Event),
    /// A data watch fired: the member that watches reads again.
    Changed(Sequence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The server takes the next request of a member.
    Serve(usize),
    /// The same, and the answer is late.
    ServeSlowly(usize),
    /// The same, and the answer shows an older queue.
    ServeStale(usize),
    /// A member takes the next reply of the server.
    Deliver(usize),
    Wake(usize),
    /// A member loses its connection and what was under way in it.
    Cut(usize),
    Crash(usize),
    /// A crashed member is started again, with its note.
    Restart(usize),
    /// The same, but the note is lost.
    RestartAnew(usize),
    /// A server receives what a crashed member sent.
    ServeLate(usize),
    /// A second process is started with the note of one that lives.
    Twin(usize),
    Resign(usize),
    /// It is commanded to hand over to the member with this number.
    Transfer(usize, Sequence),
    CancelTransfer(usize),
    /// It is told to hand over to its target, ready or not.
    HandOver(usize),
    /// It is told to transfer leadership to the member of the highest priority.
    Preempt(usize),
    /// It has this priority now.
    Prioritize(usize, Priority),
    Pause(usize),
    Resume(usize),
    /// Its application has another address now.
    Describe(usize),
    /// Its application fails.
    Ail(usize),
    /// Its application is healthy again.
    Recover(usize),
    Stop(usize),
    Tick(Duration),
    /// The next report of the sessions that are alive leaves this one out.
    Miss(SessionId),
    /// A session's time is up, and before it ends the server still takes what was sent in it.
    Doom(SessionId),
    Expire(SessionId),
    /// A contender of another client joins the queue.
    OthersJoin,
    /// Its session ends.
    OtherLeaves(Sequence),
    /// A member is told that contenders of another order stand in the path.
    KeepOut(usize),
    /// It is told that none does any more.
    LetIn(usize),
    Evict(Sequence),
    /// An unknown client writes into a znode.
    Lie(Sequence, Lie),
    Raze,
    /// An unknown client makes a znode by hand, which announces itself.
    Forge(Sequence),
    /// A server that starts again has lost the transaction that made this znode.
    LoseCreate(Sequence),
    /// A server will lose the transaction that deletes this znode.
    LoseDelete(Sequence),
}

/// What an unknown client writes into a znode about the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lie {
    /// That the member whose znode it is leads.
    Itself,
    /// That a member that does not exist leads, with the head's ticket.
    UnknownId,
    /// The same, with a token larger than any.
    Huge,
    /// That its member is the head.
    Near,
    /// That its member is far from the head.
    Far,
    /// That it hands over to a member behind all others.
    Target,
    /// That its member has the highest priority.
    Priority,
}

impl World {
    pub fn new(rules: &Rules) -> Self {
        let server = Server {
            sessions_opened: 0,
            last_sequence: 0,
            writes: 0,
            deletions: 0,
            reported_at: Moment(Duration::ZERO),
            sessions: BTreeMap::new(),
            tickets: BTreeMap::new(),
            claim: None,
            claim_data: None,
            others: 0,
            overwritten_priorities: BTreeMap::new(),
            ghost: None,
            watches: BTreeMap::new(),
            evicted: BTreeMap::new(),
        };
        let mut world = Self {
            now: Moment(Duration::ZERO),
            server,
            wrong: Wrong::default(),
            members: vec![],
            led: None,
            misfortunes: 0,
            led_backwards: false,
            bypassed: false,
            wrote_among: false,
            trace: None,
            delivered: vec![],
        };
        for name in ["a", "b", "c", "d", "e", "f", "g"].into_iter().take(rules.members) {
            world.join(name, rules);
        }
        if rules.settled {
            world.settle(rules);
        }
        while world.now.0 < rules.aged {
            world.live(rules.tick, rules);
        }
        world
    }

    pub fn join(&mut self, name: &'static str, rules: &Rules) {
        let process = self.process(name, None, self.members.len(), rules);
        self.members.push(process);
    }

    /// Returns a process that begins with this note.
    fn process(&self, name: &'static str, note: Option<Note>, i: usize, rules: &Rules) -> Process {
        let id = MemberId::new(name).unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let priority = rules.priorities.get(i);
        let priority = priority.map_or_else(Priority::default, |it| Priority::new(*it).unwrap());
        let core = Member::new(Arc::new(profile), rules.policy).of_priority(priority);
        let core = if rules.among { core.among_others() } else { core };
        let actions = core.start();
        let mut process = Process {
            name,
            core,
            crashed: false,
            stopped: false,
            kept_out: false,
            session: None,
            note,
            notes_late: rules.flaw == Some(Flaw::LateNote),
            late: VecDeque::new(),
            watching: None,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            seen: 0,
            at_wrong: rules.at_wrong.contains(&i),
        };
        if let Some(Note::Closes(session)) = note {
            let ask = Ask::Do(Action::CloseSession);
            let (session, sent_at) = (Some(session), self.now);
            process.requests.push_back(Request { session, sent_at, ask, again: false });
        }
        process.send(actions, self.now);
        if let Some(Note::Has(record)) = note {
            let opens = process.requests.back_mut().expect("a member begins with a session");
            opens.ask = Ask::TakeOver(record);
        }
        process
    }

    /// Starts a process in the place of one that crashed. What that one sent may be received later.
    fn restart(&mut self, i: usize, with_note: bool, rules: &Rules) {
        let before = &self.members[i];
        let (note, late) = (before.note.filter(|_| with_note), before.late.clone());
        self.members[i] = Process { late, ..self.process(before.name, note, i, rules) };
    }

    pub fn choices(&self, rules: &Rules, choices: &mut Vec<Choice>) {
        let faults = rules.faults;
        for (i, member) in self.members.iter().enumerate() {
            if member.crashed && faults.restarts {
                choices.extend([Choice::Restart(i), Choice::RestartAnew(i)]);
            }
            if !member.late.is_empty() {
                choices.push(Choice::ServeLate(i));
            }
            let holds_note = !member.crashed && matches!(member.note, Some(Note::Has(_)));
            if rules.flaw == Some(Flaw::NoLock) && holds_note {
                choices.push(Choice::Twin(i));
            }
        }
        for (i, member) in self.members.iter().enumerate().filter(|(_, m)| !m.crashed) {
            if let Some(request) = member.requests.front()
                && self.is_granted(request, rules)
            {
                choices.push(Choice::Serve(i));
                if rules.prompt && faults.delays {
                    choices.push(Choice::ServeSlowly(i));
                }
                let lags = faults.lagging_reads && request.asks_the_head();
                if faults.stale_reads && self.sees_ghost(i) || lags {
                    choices.push(Choice::ServeStale(i));
                }
            }
            if member.replies.front().is_some_and(|reply| !rules.prompt || self.is_due(reply)) {
                choices.push(Choice::Deliver(i));
            }
            if member.core.wake_at().is_some_and(|at| at <= self.now) {
                choices.push(Choice::Wake(i));
            }
            if faults.cuts && member.session.is_some() {
                choices.push(Choice::Cut(i));
            }
            if faults.orders && !member.stopped {
                choices.extend([Choice::Resign(i), Choice::Pause(i), Choice::Resume(i)]);
            }
            if faults.resignations && member.core.standing().acquired_by().is_some() {
                choices.push(Choice::Resign(i));
            }
            let place = member.core.standing().place();
            if faults.departures && place.is_some_and(|place| place <= 2) {
                choices.push(Choice::Pause(i));
            }
            if faults.transfers
                && !member.stopped
                && let Some(own) = member.core.standing().ticket()
                && member.core.standing().acquired_by().is_some()
            {
                let behind = self.server.tickets.keys().filter(|it| **it > own.sequence);
                choices.extend(behind.map(|&target| Choice::Transfer(i, target)));
            }
            if member.core.standing().target().is_some() {
                choices.extend([Choice::CancelTransfer(i), Choice::HandOver(i)]);
            }
            if member.core.standing().due_preemption().is_some() {
                choices.push(Choice::Preempt(i));
            }
            if faults.priorities && !member.stopped {
                let priorities = [0, 50, 90].map(|it| Priority::new(it).unwrap());
                choices.extend(priorities.map(|priority| Choice::Prioritize(i, priority)));
            }
            if faults.moves && !member.stopped {
                choices.push(Choice::Describe(i));
            }
            if faults.sickness && !member.stopped {
                choices.extend([Choice::Ail(i), Choice::Recover(i)]);
            }
            if faults.crashes {
                choices.push(Choice::Crash(i));
            }
        }
        if rules.among {
            choices.push(Choice::OthersJoin);
            let others = self.server.tickets.iter().filter(|(_, it)| is_others(it.owner));
            choices.extend(others.map(|(&sequence, _)| Choice::OtherLeaves(sequence)));
            let here = self.members.iter().enumerate().filter(|(_, m)| !m.gone());
            choices.extend(here.map(|(i, member)| match member.kept_out {
                true => Choice::LetIn(i),
                false => Choice::KeepOut(i),
            }));
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
        if faults.evictions {
            choices.extend(self.server.tickets.keys().map(|&ticket| Choice::Evict(ticket)));
        }
        if faults.lies {
            let matters = |lie: &Lie| *lie != Lie::Priority || !rules.priorities.is_empty();
            for &ticket in self.server.tickets.keys() {
                let lies = Lie::ALL.into_iter().filter(matters);
                choices.extend(lies.map(|lie| Choice::Lie(ticket, lie)));
            }
        }
        if faults.wrong_distances {
            let lies = [Lie::Near, Lie::Far];
            let tickets = self.server.tickets.keys();
            choices.extend(tickets.flat_map(|&ticket| lies.map(|lie| Choice::Lie(ticket, lie))));
        }
        if faults.forgeries {
            let before = |ticket: &Sequence| Sequence::new(ticket.number() - 1);
            let free = |ticket: &Sequence| !self.server.tickets.contains_key(ticket);
            let numbers = self.server.tickets.keys().filter_map(before).filter(free);
            choices.extend(numbers.map(Choice::Forge));
            // Unknown clients may delete what they made: that concerns no member's lease.
            let forged = |(_, znode): &(&Sequence, &Znode)| znode.owner == UNKNOWN_CLIENT;
            let forged = self.server.tickets.iter().filter(forged).map(|(&it, _)| it);
            choices.extend(forged.filter(|_| !faults.evictions).map(Choice::Evict));
        }
        if faults.razing && !self.server.tickets.is_empty() {
            choices.push(Choice::Raze);
        }
        if self.members.iter().any(|m| m.at_wrong && !m.crashed) {
            for (&sequence, Znode { token, .. }) in &self.server.tickets {
                if faults.lost_creates && !self.wrong.lacks.contains(token) {
                    choices.push(Choice::LoseCreate(sequence));
                }
                if faults.lost_deletes && !self.wrong.will_keep.contains(token) {
                    choices.push(Choice::LoseDelete(sequence));
                }
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
            Choice::Serve(i) => {
                self.serve(i, rules, false);
                // No other event can come before an answer that is delivered at once.
                if rules.prompt && self.members[i].replies.len() == 1 {
                    self.deliver(i);
                }
            }
            Choice::ServeSlowly(i) => self.serve(i, rules, false),
            Choice::ServeStale(i) => {
                let lags = self.members[i].requests.front().is_some_and(Request::asks_the_head);
                self.serve(i, rules, true);
                // The server that lags behind has not seen the member's other events either: they come after this one.
                if lags && let Some(answer) = self.members[i].replies.pop_back() {
                    self.members[i].replies.push_front(answer);
                    self.deliver(i);
                }
            }
            Choice::Deliver(i) => {
                self.deliver(i);
                self.let_moment_pass(rules);
            }
            Choice::Wake(i) => {
                self.step(i, Event::Woke);
                self.let_moment_pass(rules);
            }
            Choice::Cut(i) => self.cut(i),
            Choice::Crash(i) => {
                let member = &mut self.members[i];
                member.crashed = true;
                member.replies.clear();
                let sent = std::mem::take(&mut member.requests);
                let is_late = |request: &Request| rules.faults.restarts && request.is_write();
                member.late.extend(sent.into_iter().filter(is_late));
            }
            Choice::Restart(i) => self.restart(i, true, rules),
            Choice::RestartAnew(i) => self.restart(i, false, rules),
            Choice::ServeLate(i) => self.serve_late(i, rules),
            Choice::Twin(i) => {
                let (name, note) = (self.members[i].name, self.members[i].note);
                let twin = self.process(name, note, self.members.len(), rules);
                self.members.push(twin);
            }
            Choice::Resign(i) => self.step(i, Event::Command(Command::Resign)),
            Choice::Transfer(i, target) => {
                let until = self.now.after(2 * rules.timeout);
                self.step(i, Event::Command(Command::Transfer { target, until }));
            }
            Choice::CancelTransfer(i) => {
                if let Some((offer, _)) = self.members[i].core.standing().target() {
                    self.step(i, Event::Command(Command::CancelTransfer(offer)));
                }
            }
            Choice::HandOver(i) => self.hand_over(i),
            Choice::Preempt(i) => {
                let until = self.now.after(2 * rules.timeout);
                self.step(i, Event::Command(Command::Preempt { until }));
            }
            Choice::Prioritize(i, priority) => {
                self.step(i, Event::Command(Command::SetPriority(priority)));
            }
            Choice::Pause(i) => self.step(i, Event::Command(Command::Pause)),
            Choice::Resume(i) => self.step(i, Event::Command(Command::Resume)),
            Choice::Describe(i) => {
                let moves = self.members[i].core.standing().profile().revision + 1;
                let (address, labels) = (Some(format!("address {moves}")), BTreeMap::new());
                self.step(i, Event::Command(Command::UpdateProfile { address, labels }));
            }
            Choice::Ail(i) => self.report_health(i, false),
            Choice::Recover(i) => self.report_health(i, true),
            Choice::Stop(i) => {
                self.members[i].stopped = true;
                self.step(i, Event::Stop);
            }
            Choice::Tick(span) => {
                if rules.misfortunes_max < u32::MAX {
                    self.misfortunes += self.busy(rules);
                }
                let later = self.now.after(span);
                if later > self.server.reported_at.after(rules.policy.margins.half_tick) {
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
            Choice::OthersJoin => self.server.let_other_in(),
            Choice::OtherLeaves(sequence) => self.delete(sequence),
            Choice::KeepOut(i) => {
                self.members[i].kept_out = true;
                self.step(i, Event::Foreign { keep_out: true });
            }
            Choice::LetIn(i) => {
                self.members[i].kept_out = false;
                self.step(i, Event::Foreign { keep_out: false });
            }
            Choice::Evict(ticket) => self.evict(ticket, rules),
            Choice::Lie(ticket, lie) => self.lie(ticket, lie),
            Choice::Raze => {
                let all: Vec<_> = self.server.tickets.keys().copied().collect();
                all.into_iter().for_each(|ticket| self.evict(ticket, rules));
                self.server.last_sequence = 0;
                self.server.claim = None;
                // A server that shows a child more fails at the deletion, and starts again from another's snapshot.
                self.wrong = Wrong::default();
            }
            Choice::Forge(sequence) => self.server.forge(sequence),
            Choice::LoseCreate(sequence) => self.lose_create(sequence),
            Choice::LoseDelete(sequence) => {
                let token = self.server.tickets.get(&sequence).map(|znode| znode.token);
                self.wrong.will_keep.extend(token);
            }
        }
        let lease = rules.policy.margins.lease_duration(rules.timeout);
        // A member at the wrong server may lead until its claim is refused.
        let all = rules.at_wrong.is_empty();
        let leading = self.leaders().filter(|(leader, _)| all || !leader.has_claim_under_way());
        let leading: Vec<_> = leading.map(|(_, token)| token).collect();
        let highest = leading.iter().copied().max();
        // A member whose server lacks a znode may have led, and given up, before the one that made it leads.
        let is_excused = |token| self.is_excused(token, lease) || self.wrong.lacks.contains(&token);
        let leading = leading.into_iter().filter(|token| !is_excused(*token)).min();
        self.led_backwards |= leading.is_some_and(|token| self.led.is_some_and(|led| token < led));
        self.led = self.led.max(highest);
    }

    /// The first thing found that must never be.
    pub fn broken(&self, rules: &Rules) -> Option<&'static str> {
        let lease = rules.policy.margins.lease_duration(rules.timeout);
        let mut owners = self.server.tickets.values().map(|znode| znode.owner);
        let first = owners.find(|owner| *owner != UNKNOWN_CLIENT);
        let leaders = self.leaders().filter(|(_, token)| !self.is_excused(*token, lease));
        let leaders: Vec<_> = leaders.map(|(leader, _)| leader).collect();
        let is_answered = |leader: &&&Process| !leader.has_claim_under_way();
        let all_are_right = rules.at_wrong.is_empty();
        let answered = leaders.iter().filter(is_answered).count();
        if answered > 1 || all_are_right && leaders.len() > 1 {
            return Some("two members lead at once");
        }
        for leader in &leaders {
            let is_first = leader.session.is_some() && leader.session == first;
            // A member whose server lacks the head may be the first to claim.
            if !is_first && self.wrong.lacks.is_empty() {
                return Some("a leader does not stand first");
            }
        }
        let holder = self.server.claim.map(|(holder, _)| holder);
        let excludes = rules.flaw != Some(Flaw::PlainClaim);
        if excludes && leaders.iter().filter(is_answered).any(|leader| leader.session != holder) {
            return Some("a leader whose claim was answered does not hold the claim znode");
        }
        if self.leaders().any(|(leader, _)| leader.core.standing().is_unhealthy()) {
            return Some("a member leads whose application is not healthy");
        }
        let stands = |m: &Process| m.core.standing().ticket().is_some();
        if self.members.iter().any(|m| !m.gone() && m.kept_out && stands(m)) {
            return Some("a member stands in the queue that is to keep out");
        }
        if self.wrote_among {
            return Some("a member writes into its znode in another client's queue");
        }
        if self.bypassed {
            return Some("a leader hands over, and its target is not the next");
        }
        if self.led_backwards {
            return Some("a fencing token went backwards");
        }
        // A watch that was left for a ticket lost since does not count.
        let heeds = |ticket, id: &SessionId| {
            let member = &self.members[self.server.sessions[id].member];
            let stands = self.server.ticket_of(*id).is_some();
            // Nor does one on a znode that is gone and that only the member's server shows.
            let znode = self.server.tickets.get(&ticket).map(|znode| znode.token);
            let is_it = member.watching.is_some_and(|it| it.token.is_none() || it.token == znode);
            stands && member.session == Some(*id) && member.is_watching(ticket) && is_it
        };
        let herd =
            self.server.watches.iter().any(|(&ticket, watchers)| {
                watchers.iter().filter(|id| heeds(ticket, id)).count() > 1
            });
        // Two members may be right behind the head where the server of one lacks the other.
        if herd && self.wrong.lacks.is_empty() {
            return Some("one znode is watched twice: a herd");
        }
        let owners = self.server.tickets.values().map(|znode| znode.owner);
        let owners: Vec<_> = owners.filter(|owner| *owner != UNKNOWN_CLIENT).collect();
        if owners.iter().collect::<BTreeSet<_>>().len() < owners.len() {
            return Some("one session owns two znodes");
        }
        let living = self.members.iter().filter(|m| !m.crashed);
        let sessions: Vec<_> = living.filter_map(|m| m.session).collect();
        let is_shared = sessions.iter().collect::<BTreeSet<_>>().len() < sessions.len();
        if is_shared && rules.flaw != Some(Flaw::NoLock) {
            return Some("two members go on with one session");
        }
        if self.members.iter().any(|m| m.renewals_under_way() > 1) {
            return Some("a renewal is sent before the one before it is answered");
        }
        if self.is_quiet() && self.members.iter().any(Process::is_stuck) {
            return Some("nothing is left to happen, and a member is stuck");
        }
        if !rules.aged.is_zero() && self.is_quiet() && self.third_is_idle(rules) {
            return Some("the third is idle");
        }
        if !rules.aged.is_zero() && self.members.iter().any(|m| self.outlasts_session(m, rules)) {
            return Some("a lease outlasts its session");
        }
        None
    }

    /// Whether the third of the queue has not to send a heartbeat soon, although no znode and no server lies, and those ahead of
    /// it live, and so have written how near they are.
    fn third_is_idle(&self, rules: &Rules) -> bool {
        let is_true = |znode: &Znode| znode.owner.0 > 0 && znode.data == znode.wrote;
        let all_are_true = self.wrong.lacks.is_empty()
            && self.wrong.keeps.is_empty()
            && self.server.tickets.values().all(is_true);
        let living = |owner: SessionId| {
            self.members.iter().find(|member| !member.crashed && member.session == Some(owner))
        };
        let first = self.server.tickets.values().take(3);
        let first: Vec<_> = first.filter_map(|znode| living(znode.owner)).collect();
        let third = first.get(2).filter(|_| all_are_true);
        let wakes_at = third.and_then(|member| member.core.wake_at());
        wakes_at.is_some_and(|at| at > self.now.after(rules.policy.margins.heartbeat))
    }

    /// Whether a member leads, or would if its predecessor were gone, for longer than its session surely lasts.
    fn outlasts_session(&self, member: &Process, rules: &Rules) -> bool {
        let Some(id) = member.session.filter(|_| !member.crashed) else { return false };
        let mut core = member.core.clone();
        if let Some(watched) = member.watching.filter(|_| core.standing().acquired_by().is_none()) {
            let (predecessor, token) = (watched.sequence, watched.token);
            core.step(self.now, Event::PredecessorGone { predecessor, token });
        }
        let Some(until) = core.standing().changes_at(self.now) else { return false };
        let Some(session) = self.server.sessions.get(&id) else { return true };
        let may_be_lost = rules.faults.lost_reports && !session.missed;
        let is_reported = session.touched && !session.missing && !may_be_lost;
        let ends_at = if is_reported {
            expires_at(&Session { touched_at: self.now, ..session.clone() })
        } else {
            expires_at(session)
        };
        ends_at < until
    }

    fn let_moment_pass(&mut self, rules: &Rules) {
        if rules.moments_differ {
            self.now = self.now.after(Duration::from_nanos(1));
        }
    }

    /// Ends all faults for a while; then all members must name the leader.
    pub fn heal(&mut self, rules: &Rules) -> Option<&'static str> {
        let znodes = self.server.tickets.iter();
        let forged = znodes.filter(|(_, znode)| znode.owner == UNKNOWN_CLIENT).map(|(&it, _)| it);
        let forged: Vec<_> = forged.collect();
        forged.into_iter().for_each(|sequence| self.apply(Choice::Evict(sequence), rules));
        // No member looks at its own data, so an unknown client's priority stays until the member writes again.
        for (sequence, priority) in std::mem::take(&mut self.server.overwritten_priorities) {
            if let Some(znode) = self.server.tickets.get_mut(&sequence)
                && znode.data.priority == Priority::HIGHEST
            {
                znode.data.priority = priority;
            }
        }
        let here = |m: &Process| !m.gone();
        let here: Vec<_> = (0..self.members.len()).filter(|&i| here(&self.members[i])).collect();
        for i in here {
            self.apply(Choice::Resume(i), rules);
            if rules.among {
                self.apply(Choice::LetIn(i), rules);
            }
            self.apply(Choice::Recover(i), rules);
        }
        let healed_at = self.now.after(4 * rules.timeout);
        // Of several znodes that a server shows for ever, also of sessions that end only now, one is found out within six
        // session timeouts.
        let ghosts = u32::try_from(self.wrong.will_keep.len()).expect("few");
        let found_out_at = healed_at.after(ghosts * 7 * rules.timeout);
        // The wait for a preferred member is doubled six times at most, and a transfer may fail once more.
        let wait =
            rules.policy.preempt_after.unwrap_or_default() + 2 * rules.policy.margins.heartbeat;
        let waits = if rules.priorities.is_empty() { 0 } else { 2 * 64 };
        let found_out_at = found_out_at.after(waits * wait);
        while self.now < healed_at || self.not_recovered(rules).is_some() && self.now < found_out_at
        {
            self.live(rules.policy.margins.heartbeat / 4, rules);
            let dead = self.server.sessions.iter();
            // A session that its member has left, confirmed or not, gets no more heartbeats.
            let left =
                |id: SessionId, member: &Process| member.gone() || member.session != Some(id);
            let dead = dead.filter(|(id, s)| left(**id, &self.members[s.member]));
            let dead = dead.map(|(&id, _)| id);
            let overdue = |id: &SessionId| {
                self.now >= self.server.sessions[id].touched_at.after(rules.timeout)
            };
            let dead: Vec<_> = dead.filter(overdue).collect();
            dead.into_iter().for_each(|session| self.apply(Choice::Expire(session), rules));
            self.settle(rules);
            if let Some(broken) = self.broken(rules) {
                return Some(broken);
            }
        }
        self.not_recovered(rules)
    }

    /// Returns what is still wrong some time after the faults ended.
    fn not_recovered(&self, rules: &Rules) -> Option<&'static str> {
        if self.members.iter().any(|m| !m.gone() && m.core.standing().target().is_some()) {
            return Some("a transfer does not end");
        }
        if !self.all_are_described() {
            return Some("a znode does not say what its member is told to say");
        }
        // Behind a member whose end its server lost, a member does not know that it is next.
        let all_are_right = self.wrong.lacks.is_empty() && self.wrong.keeps.is_empty();
        if all_are_right && !rules.among && !self.readiness_is_shown() {
            return Some("a znode does not say whether its member is a ready standby");
        }
        if all_are_right && !self.the_preferred_leads(rules) {
            return Some("a member leads although one of higher priority is ready");
        }
        (!self.all_know_the_leader()).then_some("a member does not know who leads, or where")
    }

    /// Whether no member leads in the place of one of higher priority; without preemption, of the lowest only.
    fn the_preferred_leads(&self, rules: &Rules) -> bool {
        let here = self.members.iter().filter(|m| !m.gone());
        let highest = here.map(|m| m.core.standing().priority()).max();
        self.leaders().all(|(leader, _)| {
            let own = leader.core.standing().priority();
            let yields = rules.policy.preempt_after.is_some() || own == Priority::LOWEST;
            !yields || Some(own) == highest
        })
    }

    /// Lets this time pass without faults: timers fire, requests are answered.
    pub fn live(&mut self, span: Duration, rules: &Rules) {
        self.live_without(None, span, rules);
    }

    /// The same, but for one member whose network loses all that it sends: its own timers do fire.
    pub fn live_without(&mut self, isolated: Option<usize>, span: Duration, rules: &Rules) {
        self.apply(Choice::Tick(span), rules);
        for i in 0..self.members.len() {
            let due = self.members[i].core.wake_at().is_some_and(|at| at <= self.now);
            if due && !self.members[i].crashed {
                self.apply(Choice::Wake(i), rules);
            }
        }
        self.settle_without(isolated, rules);
        if !rules.priorities.is_empty() {
            self.preempt_leaders(rules);
            self.settle_without(isolated, rules);
        }
    }

    /// Has leaders transfer leadership to members of higher priority, as the daemon does.
    fn preempt_leaders(&mut self, rules: &Rules) {
        for i in 0..self.members.len() {
            let standing = self.members[i].core.standing();
            if self.members[i].crashed {
                continue;
            }
            if standing.due_preemption().is_some() {
                self.apply(Choice::Preempt(i), rules);
            }
            if standing.target().is_some_and(|(_, target)| target == TransferTarget::Ready) {
                self.apply(Choice::HandOver(i), rules);
            }
        }
    }

    /// Serves and delivers, member by member, until nothing is under way.
    pub fn settle(&mut self, rules: &Rules) {
        self.settle_without(None, rules);
    }

    fn settle_without(&mut self, isolated: Option<usize>, rules: &Rules) {
        let idle = |m: &Process| m.crashed || m.requests.is_empty() && m.replies.is_empty();
        let busy = |(i, m): (usize, &Process)| Some(i) != isolated && !idle(m);
        while let Some(i) = self.members.iter().enumerate().position(busy) {
            for _ in 0..self.members[i].requests.len() {
                self.apply(Choice::ServeSlowly(i), rules);
            }
            for _ in 0..self.members[i].replies.len() {
                self.apply(Choice::Deliver(i), rules);
            }
        }
    }

    /// Returns the last member of that name: the others were processes before it.
    pub fn named(&self, name: &str) -> usize {
        self.members.iter().rposition(|m| m.name == name).expect("a member of that name")
    }

    /// Delivers the last event of these words to the member again: a reply that comes twice, or late.
    pub fn repeat(&mut self, i: usize, said: &str) {
        let mut delivered = self.delivered.iter().rev();
        let event = delivered.find(|(member, event)| *member == i && event.to_string() == said);
        match event.cloned() {
            Some((_, event)) => self.step(i, event),
            None => self.tell("  which it never heard".into()),
        }
    }

    /// As the module `zookeeper` does when no server was reached for as long as the session lasts. The
    /// servers may keep it for longer.
    pub fn give_session_up(&mut self, i: usize) {
        self.members[i].forget_session();
        self.step(i, Event::Session(SessionEvent::Lost));
    }

    pub fn tell_queue(&mut self) {
        for (sequence, Znode { owner, token, .. }) in self.server.tickets.clone() {
            self.tell(format!("  {sequence} of session {owner}, token {token}"));
        }
    }

    pub fn tell(&mut self, line: String) {
        self.trace.get_or_insert_default().push(line);
    }

    /// What was chosen, as a scenario that can be pasted into `tests/scenarios`.
    pub fn scenario(rules: &Rules, choices: &[Choice]) -> String {
        let mut world = Self::new(rules);
        let mut lines = vec![format!("\n{}", rules.play_directive())];
        for choice in choices {
            lines.push(world.words(*choice));
            world.apply(*choice, rules);
        }
        lines.extend(["standings".into(), "----".into(), String::new()]);
        lines.join("\n")
    }

    /// The choice in the words of the scenario files.
    fn words(&self, choice: Choice) -> String {
        let name = |i: usize| self.members[i].name;
        match choice {
            Choice::Serve(i) => format!("{} is served", name(i)),
            Choice::ServeSlowly(i) => format!("{} is served slowly", name(i)),
            Choice::ServeStale(i) => format!("{} is served stale", name(i)),
            Choice::Deliver(i) => format!("{} hears", name(i)),
            Choice::Wake(i) => format!("{} wakes", name(i)),
            Choice::Cut(i) => format!("{} is cut off", name(i)),
            Choice::Crash(i) => format!("{} crashes", name(i)),
            Choice::Restart(i) => format!("{} is restarted", name(i)),
            Choice::RestartAnew(i) => format!("{} is restarted without its note", name(i)),
            Choice::ServeLate(i) => format!("what {} sent before is received", name(i)),
            Choice::Twin(i) => format!("{} is started a second time", name(i)),
            Choice::Resign(i) => format!("{} is told to resign", name(i)),
            Choice::Transfer(i, target) => format!("{} is told to hand over to {target}", name(i)),
            Choice::CancelTransfer(i) => format!("{} is told to hand over to none", name(i)),
            Choice::HandOver(i) => format!("{} hands over", name(i)),
            Choice::Preempt(i) => format!("{} yields", name(i)),
            Choice::Prioritize(i, it) => format!("{} has priority {}", name(i), it.number()),
            Choice::Pause(i) => format!("{} is told to pause", name(i)),
            Choice::Resume(i) => format!("{} is told to resume", name(i)),
            Choice::Describe(i) => format!("{} moves", name(i)),
            Choice::Ail(i) => format!("{} ails", name(i)),
            Choice::Recover(i) => format!("{} recovers", name(i)),
            Choice::Stop(i) => format!("{} is told to stop", name(i)),
            Choice::Tick(span) => format!("{}ns of silence", span.as_nanos()),
            Choice::Miss(session) => format!("session {} is missed", session.0),
            Choice::Doom(session) => format!("session {} is doomed", session.0),
            Choice::OthersJoin => "another contends".into(),
            Choice::OtherLeaves(sequence) => format!("the contender {sequence} leaves"),
            Choice::KeepOut(i) => format!("{} is to keep out", name(i)),
            Choice::LetIn(i) => format!("{} is let in", name(i)),
            Choice::Expire(session) => format!("session {} expires", session.0),
            Choice::Evict(sequence) => format!("{sequence} is deleted"),
            Choice::Lie(sequence, lie) => {
                format!("an unknown client lets {sequence} say {}", lie.name())
            }
            Choice::Raze => "the path is deleted".into(),
            Choice::Forge(sequence) => format!("an unknown client makes {sequence}"),
            Choice::LoseCreate(sequence) => format!("a server loses the making of {sequence}"),
            Choice::LoseDelete(sequence) => {
                format!("a server will lose the deletion of {sequence}")
            }
        }
    }

    pub fn tell_standings(&mut self) {
        for i in 0..self.members.len() {
            let Process { name, crashed, ref core, .. } = self.members[i];
            let standing = core.standing();
            let standby = match standing.standby_readiness(self.now) {
                Some(true) => ", a ready standby",
                Some(false) => ", the standby",
                None => "",
            };
            let role = if crashed { "is dead".into() } else { standing.at(self.now).to_string() };
            self.tell(format!("  {name} {role}{}", if crashed { "" } else { standby }));
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

    /// Whether an unknown client deleted its znode less than a lease ago: then two may lead, and only their tokens differ.
    fn is_excused(&self, token: FencingToken, lease: Option<LeaseDuration>) -> bool {
        let evicted_at = self.server.evicted.get(&token);
        evicted_at.zip(lease).is_some_and(|(at, lease)| self.now < at.after(lease.0))
    }

    /// How many members have something to do now.
    fn busy(&self, rules: &Rules) -> u32 {
        let busy = |m: &&Process| {
            let asks = m.requests.front().is_some_and(|request| self.is_granted(request, rules));
            let due = m.core.wake_at().is_some_and(|at| at <= self.now);
            !m.crashed && (asks || due || !m.replies.is_empty())
        };
        self.members.iter().filter(busy).count() as u32
    }

    fn is_granted(&self, request: &Request, rules: &Rules) -> bool {
        request.ask != Ask::Do(Action::OpenSession)
            || self.server.sessions_opened < rules.sessions_max
    }

    fn is_due(&self, reply: &Reply) -> bool {
        !matches!(reply, Reply::To(_, _, served_at) if *served_at >= self.now)
    }

    fn sees_ghost(&self, i: usize) -> bool {
        let member = &self.members[i];
        let reads = matches!(
            member.requests.front(),
            Some(Request { ask: Ask::Do(Action::ReadQueue), .. })
        );
        reads && self.server.ghost.is_some_and(|(at, _)| at > member.seen)
    }

    fn next_moment(&self) -> Option<Moment> {
        let here = || self.members.iter().filter(|m| !m.crashed);
        let timers = here().filter_map(|m| m.core.wake_at());
        let ends = here().filter_map(|m| m.core.standing().changes_at(self.now));
        let expiries = self.server.sessions.values().map(expires_at);
        timers.chain(ends).chain(expiries).filter(|at| *at > self.now).min()
    }

    fn is_quiet(&self) -> bool {
        let asleep = |m: &Process| m.crashed || m.core.wake_at().is_none_or(|at| at > self.now);
        let idle = |m: &Process| m.requests.is_empty() && m.replies.is_empty() && m.late.is_empty();
        self.members.iter().all(|m| idle(m) && asleep(m))
            && self.server.sessions.values().all(|s| !self.members[s.member].crashed)
    }

    fn all_are_described(&self) -> bool {
        self.server.tickets.values().all(|znode| {
            let owner = self.server.sessions.get(&znode.owner).map(|s| &self.members[s.member]);
            owner.is_none_or(|m| {
                let (standing, data) = (m.core.standing(), &znode.data);
                let says = (&data.profile, data.priority);
                m.gone() || (standing.profile(), standing.priority()) == says
            })
        })
    }

    /// Whether the znode of the standby, and no other, says that it is ready.
    fn readiness_is_shown(&self) -> bool {
        let owner = |znode: &Znode| self.server.sessions.get(&znode.owner);
        self.server.tickets.values().enumerate().all(|(at, znode)| {
            let member = owner(znode).map(|session| &self.members[session.member]);
            member.is_none_or(|m| m.gone() || znode.data.ready == (at == 1))
        })
    }

    fn all_know_the_leader(&self) -> bool {
        let Some((first, znode)) = self.server.tickets.first_key_value() else {
            return self.members.iter().all(Process::gone);
        };
        let here = |m: &&Process| !m.gone();
        self.members.iter().filter(here).all(|m| match m.core.standing().at(self.now) {
            Role::Follower { leader } => leader
                .is_some_and(|it| it.ticket.sequence == *first && it.leader == znode.data.profile),
            Role::Leader { .. } => true,
            Role::Candidate | Role::Absent => false,
        })
    }

    /// It is told to hand over to its target, and notes whether it does although that stands elsewhere.
    fn hand_over(&mut self, i: usize) {
        let standing = self.members[i].core.standing();
        let (Some((offer, _)), Some(own)) = (standing.target(), standing.ticket()) else { return };
        let own_stands = self.server.tickets.contains_key(&own.sequence);
        // No transfer can guard against a znode that an unknown client makes between the two.
        let mut members =
            self.server.tickets.iter().filter(|(_, znode)| znode.owner != UNKNOWN_CLIENT);
        let behind = members.find(|(it, _)| **it > own.sequence).map(|(next, _)| *next);
        let target_stands = own_stands && self.server.tickets.contains_key(&offer.target);
        let all_are_right = self.wrong.lacks.is_empty() && self.wrong.keeps.is_empty();
        self.step(i, Event::Command(Command::HandOver(offer)));
        let has_left = self.members[i].core.standing().acquired_by().is_none();
        self.bypassed |= has_left && all_are_right && target_stands && behind != Some(offer.target);
    }

    fn report_health(&mut self, i: usize, healthy: bool) {
        self.step(i, Event::Command(Command::ReportHealth { healthy }));
    }

    fn step(&mut self, i: usize, event: Event) {
        let said = self.trace.is_some().then(|| event.to_string());
        if self.trace.is_some() {
            self.delivered.push((i, event.clone()));
        }
        let actions = self.members[i].core.step(self.now, event);
        if let (Some(trace), Some(said)) = (&mut self.trace, said) {
            let wants: Vec<_> = actions.iter().map(Action::to_string).collect();
            let arrow = if wants.is_empty() { "" } else { "  ->  " };
            trace.push(format!("  {}: {said}{arrow}{}", self.members[i].name, wants.join(", ")));
        }
        self.members[i].take_note(&actions);
        self.members[i].send(actions, self.now);
    }

    fn deliver(&mut self, i: usize) {
        let Some(reply) = self.members[i].replies.pop_front() else { return };
        match reply {
            Reply::Changed(ticket) => {
                if self.members[i].is_watching(ticket) {
                    self.members[i].send(vec![Action::WatchPredecessor(ticket)], self.now);
                }
            }
            Reply::Notice(event) | Reply::To(_, event, _) => {
                match event {
                    Event::Session(SessionEvent::Opened { session, .. }) => {
                        self.members[i].session = Some(session);
                    }
                    Event::Session(SessionEvent::TakenOver { record, .. }) => {
                        self.members[i].session = Some(record.session);
                    }
                    Event::Session(SessionEvent::Lost) => self.members[i].forget_session(),
                    Event::PredecessorRead { predecessor, .. } => {
                        self.members[i].notice(predecessor);
                    }
                    // The module `zookeeper` watches nothing more there.
                    Event::PredecessorGone { predecessor, .. }
                        if self.members[i].is_watching(predecessor) =>
                    {
                        self.members[i].watching = None;
                    }
                    _ => {}
                }
                self.step(i, event);
            }
        }
    }

    /// The module `zookeeper` makes another connection and asks again for all that was not answered.
    fn cut(&mut self, i: usize) {
        let member = &mut self.members[i];
        let unheard = member.replies.drain(..).filter_map(|reply| match reply {
            Reply::To(request, ..) => Some(Request { again: true, ..request }),
            Reply::Notice(_) | Reply::Changed(_) => None,
        });
        let mut asks: VecDeque<_> = unheard.collect();
        asks.extend(member.requests.drain(..));
        asks.retain(|request| request.ask != Ask::Resume);
        if let Some(session) = member.session {
            let again =
                |ask| Request { session: Some(session), sent_at: self.now, ask, again: true };
            if let Some(predecessor) = member.watching {
                let watch = Ask::Do(Action::WatchPredecessor(predecessor.sequence));
                asks.retain(|request| request.ask != watch);
                asks.push_front(again(watch));
            }
            asks.push_front(again(Ask::Resume));
            for watchers in self.server.watches.values_mut() {
                watchers.remove(&session);
            }
            self.server.watches.retain(|_, watchers| !watchers.is_empty());
        }
        member.requests = asks;
        self.step(i, Event::Session(SessionEvent::Disconnected));
    }

    fn serve(&mut self, i: usize, rules: &Rules, stale: bool) {
        let Some(request) = self.members[i].requests.pop_front() else { return };
        if !stale {
            self.members[i].seen = self.server.deletions;
        }
        if request.ask == Ask::Do(Action::OpenSession) {
            self.server.sessions_opened += 1;
            let session = SessionId(self.server.sessions_opened);
            let opened = Session::opened(i, rules.timeout, self.now);
            self.server.sessions.insert(session, opened);
            let (timeout, sent_at) = (rules.timeout, request.sent_at);
            let opened = Event::Session(SessionEvent::Opened { session, timeout, sent_at });
            self.members[i].replies.push_back(Reply::To(request, opened, self.now));
            return;
        }
        if let Ask::TakeOver(record) = request.ask {
            let event = self.take_over(i, record, request.sent_at, rules);
            self.members[i].replies.push_back(Reply::To(request, event, self.now));
            return;
        }
        let Some(session) = request.session else { return };
        let Some(alive) = self.server.sessions.get_mut(&session) else {
            let closing = request.ask == Ask::Do(Action::CloseSession);
            if !closing && self.members[i].session == Some(session) {
                self.members[i]
                    .replies
                    .push_back(Reply::Notice(Event::Session(SessionEvent::Lost)));
            }
            return;
        };
        if stale && request.asks_the_head() {
            alive.late = true;
        } else {
            alive.touched = true;
            alive.catch_up(self.now);
        }
        if self.proves_wrong(i, session, &request, rules) {
            return;
        }
        let Some(alive) = self.server.sessions.get_mut(&session) else { return };
        self.wrote_among |= rules.among && request.writes_own_znode();
        let event = match &request.ask {
            Ask::TakeOver(_) => unreachable!("served above"),
            Ask::Resume => {
                alive.touched_at = self.now;
                let granted = rules.faults.short_resumptions.unwrap_or(rules.timeout);
                alive.timeout = granted;
                let sent_at = request.sent_at;
                Some(Event::Session(SessionEvent::Resumed { timeout: granted, sent_at }))
            }
            Ask::Do(Action::CloseSession) => {
                self.end_session(session, false);
                None
            }
            Ask::Do(Action::Update(data) | Action::Relay { data, sent_at: None }) => {
                let written = self.put(session, data);
                (!written).then(|| self.ticket_lost(session))
            }
            Ask::Do(action) => Some(self.judge(session, action, &request, rules, stale)),
        };
        if request.ask == Ask::Resume
            && let Some(ticket) = self.members[i].core.standing().ticket()
            && self.own_is_lost(i, ticket, rules)
        {
            self.members[i].replies.push_back(Reply::Notice(Event::TicketLost(ticket)));
        }
        let Some(event) = event else { return };
        let denied = match request.ask {
            Ask::Do(Action::Renew { ahead: Some(head), sent_at })
                if matches!(event, Event::Committed { .. })
                    && !self.server.tickets.contains_key(&head) =>
            {
                Some(Event::HeadGone { head, sent_at })
            }
            _ => None,
        };
        let watched = self.members[i].watching.map(|watched| watched.sequence);
        let own = self.members[i].core.standing().ticket().map(|ticket| ticket.sequence);
        let read = match event {
            Event::PredecessorRead { predecessor, .. } => Some(predecessor.sequence),
            Event::HeadRead { head, .. } => Some(head.sequence),
            _ => None,
        };
        let named = read
            .and_then(|it| self.shown_at(i, it)?.data.offer.clone())
            .filter(|it| read == watched || Some(it.target) == own)
            .map(|it| Event::OfferRead(*it));
        self.members[i].replies.push_back(Reply::To(request, event, self.now));
        self.members[i].replies.extend(named.or(denied).map(Reply::Notice));
    }

    fn take_over(
        &mut self,
        i: usize,
        record: SessionRecord,
        sent_at: Moment,
        rules: &Rules,
    ) -> Event {
        let Some(alive) = self.server.sessions.get_mut(&record.session) else {
            return Event::Session(SessionEvent::Lost);
        };
        alive.member = i;
        alive.taken_over = true;
        alive.touched = true;
        alive.touched_at = self.now;
        alive.timeout = rules.faults.short_resumptions.unwrap_or(rules.timeout);
        let timeout = alive.timeout;
        for watchers in self.server.watches.values_mut() {
            watchers.remove(&record.session);
        }
        self.server.watches.retain(|_, watchers| !watchers.is_empty());
        Event::Session(SessionEvent::TakenOver { record, timeout, sent_at })
    }

    /// Carries out what a process sent before it crashed. Once its session was taken over, the servers refuse all but its
    /// end.
    fn serve_late(&mut self, i: usize, rules: &Rules) {
        let Some(request) = self.members[i].late.pop_front() else { return };
        let Some(session) = request.session else { return };
        let Some(alive) = self.server.sessions.get(&session) else { return };
        match &request.ask {
            Ask::Do(Action::CloseSession) => self.end_session(session, true),
            Ask::Do(_) if alive.taken_over => {}
            Ask::Do(Action::Join(data)) => {
                if self.server.ticket_of(session).is_none() {
                    self.server.create(session, data);
                }
            }
            Ask::Do(Action::Claim { data, sent_at }) => {
                self.claim(session, data, *sent_at, rules);
            }
            Ask::Do(Action::Update(data) | Action::Relay { data, .. }) => {
                self.put(session, data);
            }
            Ask::Resume | Ask::TakeOver(_) | Ask::Do(_) => {}
        }
    }

    fn judge(
        &mut self,
        session: SessionId,
        action: &Action,
        request: &Request,
        rules: &Rules,
        stale: bool,
    ) -> Event {
        let server = &mut self.server;
        match action {
            Action::OpenSession
            | Action::CloseSession
            | Action::Update(_)
            | Action::Relay { sent_at: None, .. } => {
                unreachable!("served elsewhere")
            }
            Action::Join(data) => {
                // Only after an attempt whose outcome is unknown does the module look for a znode of this session.
                let looks = request.again && rules.flaw != Some(Flaw::BlindCreate);
                let own = server.ticket_of(session).filter(|_| looks);
                let sequence = own.unwrap_or_else(|| server.create(session, data));
                let token = server.tickets[&sequence].token;
                Event::Joined(Ticket { sequence, token })
            }
            Action::FindTicket => {
                let member = server.sessions[&session].member;
                let own = server.ticket_of(session);
                let own = own.and_then(|it| Some((it, self.shown_at(member, it)?)));
                let claimed = self.server.claim.filter(|(holder, _)| *holder == session);
                let claimed = claimed.and_then(|_| self.server.claim_data.clone());
                own.map_or(Event::NoTicketFound, |(sequence, znode)| Event::TicketFound {
                    ticket: Ticket { sequence, token: znode.token },
                    data: if rules.among { claimed } else { Some(znode.data.clone()) },
                })
            }
            Action::ReadQueue => {
                let ghost = server.ghost.map(|(_, ghost)| ghost).filter(|_| stale);
                let member = server.sessions[&session].member;
                Event::QueueRead(self.shown_queue(member).chain(ghost).collect())
            }
            &Action::WatchPredecessor(predecessor) => {
                // The module `zookeeper` knows whose znode it has watched here, over whichever connection.
                let member = server.sessions[&session].member;
                let watched = self.members[member].watching.filter(|it| it.sequence == predecessor);
                let watched = watched.and_then(|it| it.token);
                match self.shown_at(member, predecessor).cloned() {
                    Some(znode) if watched.is_none_or(|token| token == znode.token) => {
                        let watches = &mut self.server.watches;
                        watches.entry(predecessor).or_default().insert(session);
                        let announcement = znode.announcement(predecessor, rules.among);
                        let distance = znode.data.distance.filter(|_| !rules.among);
                        let predecessor = Ticket { sequence: predecessor, token: znode.token };
                        Event::PredecessorRead { predecessor, announcement, distance }
                    }
                    // There is no other server, and this one lacks it: no member may lead by its lease then.
                    None if self.server.tickets.contains_key(&predecessor) => {
                        Event::PredecessorGone { predecessor, token: None }
                    }
                    Some(_) | None => Event::PredecessorGone { predecessor, token: watched },
                }
            }
            &Action::ReadHead { head, sent_at, .. } => {
                let member = server.sessions[&session].member;
                match self.shown_at(member, head) {
                    Some(znode) => {
                        let announcement = znode.announcement(head, rules.among);
                        let head = Ticket { sequence: head, token: znode.token };
                        Event::HeadRead { head, announcement, sent_at }
                    }
                    None => Event::HeadGone { head, sent_at },
                }
            }
            &Action::ReadTarget(target) => {
                let member = server.sessions[&session].member;
                match self.shown_at(member, target) {
                    Some(znode) => Event::TargetRead {
                        target,
                        accepted: znode.data.accepted.as_deref().copied(),
                    },
                    None => Event::TargetGone { target },
                }
            }
            Action::ReadPriorities => {
                let reader = server.sessions[&session].member;
                let read = self.shown_queue(reader).filter_map(|member| {
                    let ZnodeData { profile, priority, .. } = &self.shown_at(reader, member)?.data;
                    let (id, priority) = (profile.id.clone(), *priority);
                    Some(MemberPriority { member, id, priority })
                });
                Event::PrioritiesRead(read.collect())
            }
            Action::Claim { data, sent_at } => self.claim(session, data, *sent_at, rules),
            Action::Relay { data, sent_at: Some(sent_at) } => {
                if self.put(session, data) {
                    Event::Committed { sent_at: *sent_at }
                } else {
                    self.ticket_lost(session)
                }
            }
            &Action::Renew { sent_at, .. } => {
                self.correct(session);
                let server = &self.server;
                let member = &self.members[server.sessions[&session].member];
                let path = member.core.standing().ticket().map(|ticket| ticket.sequence);
                let any = path.is_some_and(|path| server.tickets.contains_key(&path));
                let careless = rules.flaw == Some(Flaw::CarelessRenewal) && any;
                if careless || server.ticket_of(session).is_some() {
                    Event::Committed { sent_at }
                } else {
                    self.ticket_lost(session)
                }
            }
        }
    }

    /// Returns what the server of this member shows there.
    fn shown_at(&self, i: usize, sequence: Sequence) -> Option<&Znode> {
        let (member, stands) = (&self.members[i], self.server.tickets.get(&sequence));
        if !member.at_wrong {
            return stands;
        }
        let stands = stands.filter(|znode| !self.wrong.lacks.contains(&znode.token));
        stands.or_else(|| self.wrong.keeps.get(&sequence))
    }

    fn shown_queue(&self, i: usize) -> impl Iterator<Item = Sequence> {
        let all = self.server.tickets.keys().chain(self.wrong.keeps.keys()).copied();
        all.filter(move |sequence| self.shown_at(i, *sequence).is_some())
    }

    fn own_is_lost(&self, i: usize, own: Ticket, rules: &Rules) -> bool {
        let stands = match rules.flaw {
            Some(Flaw::TrustedReads) => self.shown_at(i, own.sequence),
            _ => self.server.tickets.get(&own.sequence),
        };
        stands.is_none_or(|znode| znode.token != own.token)
    }

    /// Whether the quorum contradicts what the server at hand shows. As the module `zookeeper` does, the member then
    /// goes to another server and repeats its requests.
    fn proves_wrong(
        &mut self,
        i: usize,
        session: SessionId,
        request: &Request,
        rules: &Rules,
    ) -> bool {
        if !self.members[i].at_wrong {
            return false;
        }
        if self.is_denied(i, request) && !rules.only_wrong {
            self.leave_server(i, request, rules);
            return true;
        }
        let lacks = |sequence: Sequence| {
            self.server.tickets.contains_key(&sequence) && self.shown_at(i, sequence).is_none()
        };
        let lacks_own = self.server.ticket_of(session).is_some_and(lacks);
        let asks_for_own = matches!(request.ask, Ask::Resume | Ask::Do(Action::ReadQueue));
        if lacks_own && asks_for_own && rules.flaw != Some(Flaw::TrustedReads) {
            if rules.only_wrong {
                self.give_session_up(i);
            } else {
                self.leave_server(i, request, rules);
            }
            return true;
        }
        let asked = match request.ask {
            Ask::Do(Action::WatchPredecessor(asked)) => Some(asked),
            Ask::Do(Action::ReadHead { head, .. }) => Some(head),
            _ => None,
        };
        if asked.is_some_and(lacks) && !rules.only_wrong {
            self.leave_server(i, request, rules);
            return true;
        }
        false
    }

    /// Whether this is a renewal that asks for a znode ahead which only the server at hand shows.
    fn is_denied(&self, i: usize, request: &Request) -> bool {
        let Ask::Do(Action::Renew { ahead: Some(asked), .. }) = request.ask else { return false };
        let shown = self.shown_at(i, asked).map(|znode| znode.token);
        let stands = self.server.tickets.get(&asked).map(|znode| znode.token);
        shown.is_some() && shown != stands
    }

    fn leave_server(&mut self, i: usize, request: &Request, rules: &Rules) {
        self.members[i].at_wrong = rules.only_wrong;
        self.members[i].requests.push_front(Request { again: true, ..request.clone() });
        self.cut(i);
    }

    /// All members at the wrong server lose their connection, as it starts again.
    fn lose_create(&mut self, sequence: Sequence) {
        let token = self.server.tickets.get(&sequence).map(|znode| znode.token);
        self.wrong.lacks.extend(token);
        for i in 0..self.members.len() {
            let member = &self.members[i];
            if member.at_wrong && !member.crashed && member.session.is_some() {
                self.cut(i);
            }
        }
    }

    /// Writes into the own znode and makes the claim znode, both or neither.
    fn claim(
        &mut self,
        session: SessionId,
        data: &ZnodeData,
        sent_at: Moment,
        rules: &Rules,
    ) -> Event {
        let Some(sequence) = self.server.ticket_of(session) else {
            return self.ticket_lost(session);
        };
        let own = Ticket { sequence, token: self.server.tickets[&sequence].token };
        match self.server.claim {
            Some((holder, ticket)) if holder != session && rules.flaw != Some(Flaw::PlainClaim) => {
                // The module `zookeeper` asks for the holder, and leaves a server that does not show it.
                let member = self.server.sessions[&session].member;
                let is_shown = self.shown_at(member, ticket.sequence).is_some();
                self.members[member].at_wrong &= rules.only_wrong || is_shown;
                Event::ClaimRefused { holder: ClaimOwner::Contender(ticket), sent_at }
            }
            _ => {
                self.server.claim = Some((session, own));
                self.server.claim_data = Some(data.clone());
                if !rules.among {
                    self.put(session, data);
                }
                Event::Committed { sent_at }
            }
        }
    }

    /// Writes into the znode of a session, if there is one.
    fn put(&mut self, session: SessionId, data: &ZnodeData) -> bool {
        let Some(ticket) = self.server.ticket_of(session) else { return false };
        let znode = self.server.tickets.get_mut(&ticket).expect("just found");
        znode.data = data.clone();
        znode.wrote = data.clone();
        self.fire(ticket, &Reply::Changed(ticket));
        true
    }

    /// As the module `zookeeper` does at a renewal, a member that finds other data in its znode writes its own anew.
    fn correct(&mut self, session: SessionId) {
        let Some(ticket) = self.server.ticket_of(session) else { return };
        let znode = &self.server.tickets[&ticket];
        if znode.data != znode.wrote {
            let wrote = znode.wrote.clone();
            self.put(session, &wrote);
        }
    }

    fn lie(&mut self, ticket: Sequence, lie: Lie) {
        let Some(liar) = self.server.tickets.get(&ticket) else { return };
        let (&first, head) = self.server.tickets.first_key_value().expect("there is one at least");
        let (head, token) = (Ticket { sequence: first, token: head.token }, liar.token);
        let unknown_client = Arc::new(Profile {
            id: MemberId::new("unknown").unwrap(),
            revision: 99,
            ..Profile::clone(&liar.data.profile)
        });
        let (leader, ticket_of_leader) = match lie {
            Lie::Itself => (liar.data.profile.clone(), Ticket { sequence: ticket, token }),
            Lie::UnknownId => (unknown_client, head),
            Lie::Huge => (unknown_client, Ticket { token: FencingToken(u64::MAX), ..head }),
            Lie::Near | Lie::Far => {
                let znode = self.server.tickets.get_mut(&ticket).expect("just found");
                let ahead = if lie == Lie::Near { 0 } else { 3 };
                znode.data.distance = Some(Distance::new(ahead));
                return self.fire(ticket, &Reply::Changed(ticket));
            }
            Lie::Target => {
                let znode = self.server.tickets.get_mut(&ticket).expect("just found");
                let target = Sequence::new(i32::MAX).unwrap();
                znode.data.offer = Some(Box::new(Offer { leader: token, target, number: 1 }));
                return self.fire(ticket, &Reply::Changed(ticket));
            }
            Lie::Priority => {
                let znode = self.server.tickets.get_mut(&ticket).expect("just found");
                self.server.overwritten_priorities.entry(ticket).or_insert(znode.data.priority);
                znode.data.priority = Priority::HIGHEST;
                return self.fire(ticket, &Reply::Changed(ticket));
            }
        };
        let lie = Announcement { leader, ticket: ticket_of_leader };
        let znode = self.server.tickets.get_mut(&ticket).expect("just found");
        znode.data.announcement = Some(lie);
        self.fire(ticket, &Reply::Changed(ticket));
    }

    fn ticket_lost(&self, session: SessionId) -> Event {
        let member = &self.members[self.server.sessions[&session].member];
        let none = Ticket { sequence: Sequence::new(0).unwrap(), token: FencingToken(0) };
        Event::TicketLost(member.core.standing().ticket().unwrap_or(none))
    }

    /// Ends a session. With `notify` its member learns it, unless it closed the session itself.
    fn end_session(&mut self, session: SessionId, notify: bool) {
        let Some(Session { member, .. }) = self.server.sessions.remove(&session) else { return };
        for watchers in self.server.watches.values_mut() {
            watchers.remove(&session);
        }
        self.server.watches.retain(|_, watchers| !watchers.is_empty());
        if self.server.claim.is_some_and(|(holder, _)| holder == session) {
            self.server.claim = None;
        }
        while let Some(ticket) = self.server.ticket_of(session) {
            self.delete(ticket);
        }
        let its_own = self.members[member].session == Some(session);
        if notify && its_own && !self.members[member].crashed {
            self.members[member]
                .replies
                .push_back(Reply::Notice(Event::Session(SessionEvent::Lost)));
        }
    }

    fn evict(&mut self, sequence: Sequence, rules: &Rules) {
        let Some(znode) = self.server.tickets.get(&sequence) else { return };
        let (owner, token) = (znode.owner, znode.token);
        self.server.evicted.insert(token, self.now);
        self.delete(sequence);
        let lost = Event::TicketLost(Ticket { sequence, token });
        if owner == UNKNOWN_CLIENT || is_others(owner) {
            return;
        }
        let member = &mut self.members[self.server.sessions[&owner].member];
        let watches = rules.flaw != Some(Flaw::CarelessRenewal);
        if watches && !member.crashed && member.session == Some(owner) {
            member.replies.push_back(Reply::Notice(lost));
        }
    }

    fn delete(&mut self, ticket: Sequence) {
        let znode = self.server.tickets.remove(&ticket);
        self.server.deletions += 1;
        self.server.ghost = Some((self.server.deletions, ticket));
        let token = znode.as_ref().map(|znode| znode.token);
        let gone = Event::PredecessorGone { predecessor: ticket, token };
        let kept = znode.filter(|znode| self.wrong.will_keep.contains(&znode.token));
        // The server that loses the deletion notifies none of the members at it.
        self.fire_except(ticket, &Reply::Notice(gone), kept.is_some());
        self.wrong.keeps.extend(kept.map(|znode| (ticket, znode)));
    }

    /// Tells the watchers of a znode, once, as ZooKeeper does.
    fn fire(&mut self, ticket: Sequence, reply: &Reply) {
        self.fire_except(ticket, reply, false);
    }

    fn fire_except(&mut self, ticket: Sequence, reply: &Reply, not_at_wrong: bool) {
        let watchers = self.server.watches.remove(&ticket).unwrap_or_default();
        for watcher in &watchers {
            self.server.sessions.entry(*watcher).and_modify(|session| session.catch_up(self.now));
        }
        let hears = |m: &&mut Process| !(m.crashed || not_at_wrong && m.at_wrong);
        for member in self.members.iter_mut().filter(hears) {
            if member.session.is_some_and(|session| watchers.contains(&session)) {
                member.replies.push_back(reply.clone());
                member.seen = self.server.deletions;
            }
        }
    }
}

impl Rules {
    /// Returns the `play` line that describes this world in a scenario file.
    fn play_directive(&self) -> String {
        let Policy { margins, preempt_after } = self.policy;
        let Margins { heartbeat, half_tick } = margins;
        let prompt = if self.prompt { " prompt" } else { "" };
        let settled = if self.settled { " settled" } else { "" };
        let differ = if self.moments_differ { " moments_differ" } else { "" };
        let wrong: Vec<_> = self.at_wrong.iter().map(usize::to_string).collect();
        let wrong = match (wrong.is_empty(), self.only_wrong) {
            (true, _) => String::new(),
            (false, false) => format!(" wrong={}", wrong.concat()),
            (false, true) => format!(" wrong={} only_wrong", wrong.concat()),
        };
        let among = if self.among { " among" } else { "" };
        let (aged, tick) = (self.aged.as_nanos(), self.tick.as_nanos());
        let aged = if aged > 0 { format!(" aged={aged}ns tick={tick}ns") } else { String::new() };
        let preempt =
            preempt_after.map_or(String::new(), |it| format!(" preempt={}ns", it.as_nanos()));
        let priorities: Vec<_> = self.priorities.iter().map(u8::to_string).collect();
        let priorities = match &*priorities {
            [] => String::new(),
            all => format!(" priorities={}", all.join("-")),
        };
        format!(
            "play members={} timeout={}ns heartbeat={}ns half_tick={}ns{prompt}{settled}{differ}{wrong}{preempt}{priorities}{among}{aged}",
            self.members,
            self.timeout.as_nanos(),
            heartbeat.as_nanos(),
            half_tick.as_nanos()
        )
    }
}

impl Request {
    fn asks_the_head(&self) -> bool {
        matches!(self.ask, Ask::Do(Action::ReadHead { .. }))
    }

    fn writes_own_znode(&self) -> bool {
        matches!(self.ask, Ask::Do(Action::Update(_) | Action::Relay { .. }))
    }

    fn is_write(&self) -> bool {
        let Ask::Do(action) = &self.ask else { return false };
        matches!(
            action,
            Action::CloseSession
                | Action::Join(_)
                | Action::Claim { .. }
                | Action::Update(_)
                | Action::Relay { .. }
        )
    }
}

impl Choice {
    fn misfortunes(self) -> u32 {
        match self {
            Self::Cut(_)
            | Self::Resign(_)
            | Self::Transfer(..)
            | Self::CancelTransfer(_)
            | Self::Prioritize(..)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Describe(_)
            | Self::Ail(_)
            | Self::Recover(_)
            | Self::Crash(_)
            | Self::Twin(_)
            | Self::OthersJoin
            | Self::OtherLeaves(_)
            | Self::KeepOut(_)
            | Self::Evict(_)
            | Self::Lie(..)
            | Self::Forge(_)
            | Self::LoseCreate(_)
            | Self::LoseDelete(_)
            | Self::Raze => 1,
            Self::Miss(_) | Self::Doom(_) => 1,
            Self::Serve(_) | Self::ServeSlowly(_) | Self::ServeStale(_) | Self::Deliver(_) => 0,
            Self::HandOver(_)
            | Self::LetIn(_)
            | Self::Preempt(_)
            | Self::Restart(_)
            | Self::RestartAnew(_)
            | Self::ServeLate(_)
            | Self::Wake(_)
            | Self::Stop(_)
            | Self::Tick(_)
            | Self::Expire(_) => 0,
        }
    }
}

impl Lie {
    pub const ALL: [Self; 7] = [
        Self::Itself,
        Self::UnknownId,
        Self::Huge,
        Self::Near,
        Self::Far,
        Self::Target,
        Self::Priority,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Itself => "that it leads itself",
            Self::UnknownId => "another name",
            Self::Huge => "a huge token",
            Self::Near => "that it is near the head",
            Self::Far => "that it is far from the head",
            Self::Target => "that it hands over",
            Self::Priority => "the highest priority",
        }
    }
}

impl Server {
    fn create(&mut self, owner: SessionId, data: &ZnodeData) -> Sequence {
        self.last_sequence += 1;
        let sequence = Sequence::new(self.last_sequence).unwrap();
        self.insert(sequence, owner, data.clone());
        sequence
    }

    fn insert(&mut self, sequence: Sequence, owner: SessionId, data: ZnodeData) {
        self.writes += 1;
        let token = FencingToken(self.writes);
        self.tickets.insert(sequence, Znode { owner, token, wrote: data.clone(), data });
    }

    fn let_other_in(&mut self) {
        self.others += 1;
        let id = MemberId::new(&format!("x{}", self.others)).unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let owner = SessionId(UNKNOWN_CLIENT.0 - self.others);
        self.create(owner, &ZnodeData::of(Arc::new(profile)));
    }

    fn forge(&mut self, sequence: Sequence) {
        let id = MemberId::new("forged").unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let leader = Arc::new(profile);
        let ticket = Ticket { sequence, token: FencingToken(self.writes + 1) };
        let announcement = Announcement { leader: leader.clone(), ticket };
        let data = ZnodeData { announcement: Some(announcement), ..ZnodeData::of(leader) };
        self.insert(sequence, UNKNOWN_CLIENT, data);
    }

    fn ticket_of(&self, session: SessionId) -> Option<Sequence> {
        self.tickets.iter().find(|(_, znode)| znode.owner == session).map(|(&ticket, _)| ticket)
    }
}

impl Process {
    fn gone(&self) -> bool {
        self.crashed || self.stopped
    }

    /// Counts renewals by the moment of their sending, as a member distinguishes them: two sent at one moment, which
    /// only a simulation can send, count as one.
    fn renewals_under_way(&self) -> usize {
        let answered = self.replies.iter().filter_map(|reply| match reply {
            Reply::To(request, ..) => Some(request),
            Reply::Notice(_) | Reply::Changed(_) => None,
        });
        let moment = |request: &Request| match request.ask {
            Ask::Do(Action::Renew { sent_at, .. }) => Some(sent_at),
            Ask::Resume | Ask::TakeOver(_) | Ask::Do(_) => None,
        };
        let renewals = self.requests.iter().chain(answered).filter_map(moment);
        renewals.collect::<BTreeSet<_>>().len()
    }

    /// Whether it has claimed and does not know yet whether a quorum accepts that.
    fn has_claim_under_way(&self) -> bool {
        let is_claim = |request: &Request| matches!(request.ask, Ask::Do(Action::Claim { .. }));
        let is_answer =
            |reply: &Reply| matches!(reply, Reply::To(request, ..) if is_claim(request));
        self.requests.iter().any(is_claim) || self.replies.iter().any(is_answer)
    }

    fn is_watching(&self, sequence: Sequence) -> bool {
        self.watching.is_some_and(|watched| watched.sequence == sequence)
    }

    /// Notes the token of the watched znode, once it was read.
    fn notice(&mut self, read: Ticket) {
        if let Some(watched) = &mut self.watching
            && watched.sequence == read.sequence
        {
            watched.token = Some(read.token);
        }
    }

    fn is_stuck(&self) -> bool {
        !self.gone() && !self.core.standing().is_withdrawn() && self.core.wake_at().is_none()
    }

    /// As the module `zookeeper` does, before what is wanted is sent: that a session is about to end is noted first.
    fn take_note(&mut self, actions: &[Action]) {
        let closes = actions.iter().any(Action::ends_session) && !self.notes_late;
        if closes && let Some(session) = self.session {
            self.note = Some(Note::Closes(session));
        }
        if let Some(record) = self.core.session_record() {
            self.note = Some(Note::Has(record));
        }
    }

    fn forget_session(&mut self) {
        self.session = None;
        self.watching = None;
        self.requests.clear();
        self.replies.clear();
    }

    /// As the module `zookeeper` does: when a member closes its session, no more events and requests of it are carried.
    fn send(&mut self, actions: Vec<Action>, sent_at: Moment) {
        for action in actions {
            let session = self.session;
            match action {
                Action::CloseSession => self.forget_session(),
                Action::WatchPredecessor(sequence) if !self.is_watching(sequence) => {
                    self.watching = Some(Watched { sequence, token: None });
                }
                Action::Join(_) => self.watching = None,
                // Only the last reading is of use: the one before is not waited for.
                Action::ReadQueue => {
                    let reads = |request: &Request| request.ask == Ask::Do(Action::ReadQueue);
                    self.requests.retain(|request| !reads(request));
                    self.replies.retain(|reply| !matches!(reply, Reply::To(to, ..) if reads(to)));
                }
                _ => {}
            }
            let ask = Ask::Do(action);
            self.requests.push_back(Request { session, sent_at, ask, again: false });
        }
    }
}
