//! Applications and operators that ask their daemons over HTTP.

use crate::daemon::{AnswerSlot, HttpAnswer};
use crate::followers::{self, Followers};
use crate::journal::note;
use crate::judge::Violation;
use crate::locks::{self, Locks};
use crate::store::{self, Store};
use crate::time::{MILLISECOND, SECOND};
use crate::values::{self, Values};
use crate::world::{Event, World};
use axum::http::Method;
use serde_json::Value;

pub struct Clients {
    pub store: Store,
    pub values: Values,
    pub locks: Locks,
    pub followers: Followers,
    asked: Vec<Asked>,
}

/// A request that was not answered yet.
struct Asked {
    machine: usize,
    question: Question,
    answer: AnswerSlot,
}

/// What was asked, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The application of a leader asks for its term.
    Leader,
    IsLeader,
    /// A command that a calm leader carries out.
    Resign,
    /// The answer is not looked at, but must not be an error of the server's.
    Other,
    PutValue {
        name: usize,
        operation: usize,
    },
    GetValue {
        name: usize,
        operation: usize,
    },
}

impl Clients {
    pub fn new(machines: usize) -> Self {
        Self {
            store: Store::new(machines),
            values: Values::default(),
            locks: Locks::new(),
            followers: Followers::new(machines),
            asked: vec![],
        }
    }

    /// Forgets the clients of a daemon that was killed.
    pub fn forget(&mut self, machine: usize) {
        self.asked.retain(|asked| asked.machine != machine);
        self.store.forget(machine);
        self.locks.forget(machine);
        self.followers.forget(machine);
    }
}

impl World {
    /// Has a client ask a daemon.
    pub fn ask(
        &mut self,
        machine: usize,
        method: Method,
        uri: &str,
        body: &str,
        question: Question,
    ) {
        let Some(daemon) = &self.machines[machine].daemon else { return };
        let answer = daemon.ask(method, uri, &[("content-type", "application/json")], body);
        self.counts.requests += 1;
        self.clients.asked.push(Asked { machine, question, answer });
        self.wake(machine);
    }
}

/// Returns what the clock of a machine reads.
pub fn boottime(world: &World, machine: usize) -> u64 {
    world.machines[machine].clock.at(world.now)
}

/// Has a client ask for something.
pub fn act_at_random(world: &mut World) {
    let next = world.now + world.random.u64(MILLISECOND..200 * MILLISECOND);
    world.plan(next, Event::NextClient);
    locks::close(world, false);
    let machine = world.random.usize(..world.machines.len());
    if world.machines[machine].is_frozen(world.now) {
        return;
    }
    followers::follow(world, machine);
    match world.random.u8(..64) {
        0..16 => world.ask(machine, Method::GET, "/leader", "", Question::Leader),
        16..32 => {
            // Mostly the leader's own application.
            let leader = world.leadership.holder(world.now).unwrap_or(machine);
            if !world.machines[leader].is_frozen(world.now) {
                world.ask(leader, Method::GET, "/leader", "", Question::Leader);
            }
        }
        32..42 => world.ask(machine, Method::GET, "/is-leader", "", Question::IsLeader),
        42..50 => values::act(world, machine),
        50..56 => locks::act(world, machine),
        56..60 => look_around(world, machine),
        _ => command(world, machine),
    }
}

/// Has clients ask a daemon that was frozen, as if they had asked before and waited.
pub fn ask_after_freeze(world: &mut World, machine: usize) {
    world.ask(machine, Method::GET, "/is-leader", "", Question::IsLeader);
    world.ask(machine, Method::GET, "/leader", "", Question::Leader);
}

fn look_around(world: &mut World, machine: usize) {
    let paths = [
        "/status", "/members", "/history", "/metrics", "/readyz", "/livez", "/locks", "/config",
        "/",
    ];
    let path = paths[world.random.usize(..paths.len())];
    world.ask(machine, Method::GET, path, "", Question::Other);
}

/// Has an operator command something.
fn command(world: &mut World, machine: usize) {
    let leader = world.leadership.holder(world.now).unwrap_or(machine);
    let (machine, method, path, body) = match world.random.u8(..12) {
        0 => (leader, Method::POST, "/resign", String::new()),
        1 => (leader, Method::POST, "/transfer", "{}".to_owned()),
        2 => {
            let to = &world.machines[machine].settings.id;
            (leader, Method::POST, "/transfer", format!("{{\"to\": \"{to}\"}}"))
        }
        3 => (machine, Method::POST, "/pause", String::new()),
        4..8 => (machine, Method::POST, "/resume", String::new()),
        8 => {
            let priority = world.random.u8(0..=100);
            (machine, Method::PATCH, "/member", format!("{{\"priority\": {priority}}}"))
        }
        9 => {
            let port = world.random.u16(..);
            (machine, Method::PATCH, "/member", format!("{{\"address\": \"10.9.9.9:{port}\"}}"))
        }
        _ => return,
    };
    if world.machines[machine].is_frozen(world.now) {
        return;
    }
    note(format_args!("{}: {method} {path} {body}", world.machines[machine].settings.id));
    world.ask(machine, method, path, &body, Question::Other);
}

/// Has the leader resign.
pub fn resign(world: &mut World) {
    if let Some(leader) = world.leadership.holder(world.now) {
        world.ask(leader, Method::POST, "/resign", "", Question::Resign);
    }
}

/// Has all members go on that were paused.
pub fn resume_all(world: &mut World) {
    for machine in 0..world.machines.len() {
        world.ask(machine, Method::POST, "/resume", "", Question::Other);
    }
}

/// Judges the answers that a daemon has given.
pub fn look(world: &mut World, machine: usize) {
    locks::look(world, machine);
    followers::look(world, machine);
    let mut at = 0;
    while at < world.clients.asked.len() {
        let asked = &world.clients.asked[at];
        let answer = asked.answer.borrow_mut().take().filter(|_| asked.machine == machine);
        let Some(answer) = answer else {
            at += 1;
            continue;
        };
        let Asked { question, .. } = world.clients.asked.remove(at);
        take_answer(world, machine, question, &answer);
    }
}

fn take_answer(world: &mut World, machine: usize, question: Question, answer: &HttpAnswer) {
    // An answer may have been made before or after the step has changed what is claimed.
    let claims = [world.claim_before, world.leadership.of(machine, world.now)];
    let id = world.machines[machine].settings.id.clone();
    match question {
        Question::Leader => {
            let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let says = body["is_self"].as_bool().unwrap_or(false);
            let token = body["leader"]["token"].as_u64();
            let until = body["valid_until_boottime_ns"].as_u64();
            let until = until.map(|until| world.machines[machine].clock.moment(until));
            let is_true = claims.iter().any(|claim| match (says, claim) {
                (true, Some(claim)) => {
                    // A moment and its reading are a nanosecond apart.
                    token == Some(claim.token)
                        && until.is_some_and(|until| until <= claim.until + 10)
                }
                (says, claim) => says == claim.is_some(),
            });
            if !is_true {
                let said = &answer.body;
                world.fail(Violation(format!("{id} answers {said} and claims {claims:?}")));
            }
            store::act(world, machine, &body);
        }
        Question::IsLeader => {
            let says = answer.status == 200;
            if claims.iter().all(|claim| claim.is_some() != says) {
                world.fail(Violation(format!("{id} answers /is-leader {says}: {claims:?}")));
            }
        }
        Question::Resign => {
            if answer.status != 202 {
                let HttpAnswer { status, body } = answer;
                world.fail(Violation(format!("{id} answers /resign {status}: {body}")));
            }
        }
        Question::Other => {
            if answer.status == 500 {
                world.fail(Violation(format!("{id} answers 500: {}", answer.body)));
            }
        }
        Question::PutValue { name, operation } => {
            values::on_written(world, name, operation, answer)
        }
        Question::GetValue { name, operation } => values::on_read(world, name, operation, answer),
    }
}

/// Judges what is left to be judged at the end.
pub fn judge(world: &mut World) {
    values::judge(world);
    if let Err(violation) = world.clients.store.judge() {
        world.fail(violation);
    }
}

/// No request takes longer than a command that waits for ZooKeeper, or a transfer for its target.
pub const LONGEST_REQUEST: u64 = 40 * SECOND;

impl Clients {
    /// Returns how many requests were not answered.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }
}
