//! A store that takes writes of the highest token only, and applications that write to it while they lead. Each reads from its own
//! memory what it has written, as long as its lease lasts: that is linearizable only if no two lead at once and no token falls.

use crate::clients::boottime;
use crate::history::History;
use crate::judge::Violation;
use crate::time::{MILLISECOND, SECOND};
use crate::world::{Event, World};
use serde_json::Value;

/// A history of this length is judged, and another begins.
const OPERATIONS_MAX: usize = 40;

#[derive(Debug)]
pub struct Store {
    value: u64,
    highest_token: u64,
    history: History,
    /// The value of the last write.
    written: u64,
    applications: Vec<Application>,
    /// Which history it is.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Application {
    /// The token of the term, and when it ends, by the machine's clock.
    term: Option<(u64, u64)>,
    /// What it knows of the register in the term of a token.
    cache: Option<(u64, u64)>,
    waits_for_store: bool,
    life: u64,
}

/// What is on the way to the store, or back.
#[derive(Clone, Copy, Debug)]
pub struct StoreCall {
    machine: usize,
    life: u64,
    epoch: u64,
    token: u64,
    /// The value to write, and its operation; none for a read that keeps out those with smaller tokens.
    write: Option<(u64, usize)>,
    answer: Option<Result<u64, ()>>,
}

impl Store {
    pub fn new(machines: usize) -> Self {
        Self {
            value: 0,
            highest_token: 0,
            history: History::default(),
            written: 0,
            applications: vec![Application::default(); machines],
            epoch: 0,
        }
    }

    /// Begins another life of the application of a machine. What it has sent is lost with it.
    pub fn forget(&mut self, machine: usize) {
        let life = self.applications[machine].life + 1;
        self.applications[machine] = Application { life, ..Application::default() };
    }

    pub fn judge(&self) -> Result<(), Violation> {
        self.history.judge("the register of the leaders")
    }
}

/// Takes the answer of `GET /leader`, and acts by it.
pub fn act(world: &mut World, machine: usize, answer: &Value) {
    // Who leads beside another for now may write, and the other reads what it has written itself.
    if world.leadership.of(machine, world.now).is_some_and(|claim| claim.excused_since.is_some()) {
        return;
    }
    let reading = boottime(world, machine);
    let store = &mut world.clients.store;
    let application = &mut store.applications[machine];
    let token = answer["leader"]["token"].as_u64();
    let until = answer["valid_until_boottime_ns"].as_u64();
    application.term = match (answer["is_self"].as_bool(), token, until) {
        (Some(true), Some(token), Some(until)) => Some((token, until)),
        _ => None,
    };
    let Some((token, until)) = application.term.filter(|(_, until)| reading < *until) else {
        return;
    };
    debug_assert!(until > reading);
    if application.waits_for_store {
        return;
    }
    let (life, epoch) = (application.life, store.epoch);
    let call = StoreCall { machine, life, epoch, token, write: None, answer: None };
    match application.cache.filter(|(of, _)| *of == token) {
        None => send(world, call),
        Some((_, value)) if world.random.bool() => {
            let read = world.clients.store.history.begin_read();
            world.clients.store.history.read(read, value);
        }
        Some(_) => {
            let store = &mut world.clients.store;
            store.written += 1;
            let number = store.history.begin_write(store.written);
            let write = Some((store.written, number));
            send(world, StoreCall { write, ..call });
        }
    }
}

fn send(world: &mut World, call: StoreCall) {
    world.clients.store.applications[call.machine].waits_for_store = true;
    // The way to the store is long now and then: a lease may end meanwhile.
    let longest = if world.random.u8(..) < 16 { 15 * SECOND } else { 50 * MILLISECOND };
    let at = world.now + world.random.u64(MILLISECOND..longest);
    world.plan(at, Event::Store(call));
}

/// Handles a call where it has arrived.
pub fn arrive(world: &mut World, call: StoreCall) {
    let store = &mut world.clients.store;
    let is_lost = store.applications[call.machine].life != call.life || store.epoch != call.epoch;
    let Some(answer) = call.answer else {
        if is_lost {
            if let Some((_, number)) = call.write.filter(|_| store.epoch == call.epoch) {
                store.history.undone(number);
            }
            return;
        }
        let is_taken = call.token >= store.highest_token;
        if is_taken {
            store.highest_token = call.token;
            if let Some((value, _)) = call.write {
                store.value = value;
            }
        }
        let answer = if is_taken { Ok(store.value) } else { Err(()) };
        let at = world.now + world.random.u64(MILLISECOND..50 * MILLISECOND);
        return world.plan(at, Event::Store(StoreCall { answer: Some(answer), ..call }));
    };
    if is_lost {
        return;
    }
    let application = &mut store.applications[call.machine];
    application.waits_for_store = false;
    match (answer, call.write) {
        (Ok(_), Some((value, number))) => {
            store.history.wrote(number);
            application.cache = Some((call.token, value));
        }
        (Err(()), Some((_, number))) => store.history.undone(number),
        (Ok(value), None) => application.cache = Some((call.token, value)),
        (Err(()), None) => {}
    }
    if store.history.len() >= OPERATIONS_MAX {
        begin_another(world);
    }
}

/// Judges the history, and begins another with an empty register.
fn begin_another(world: &mut World) {
    let judged = world.clients.store.judge();
    let store = &mut world.clients.store;
    store.history = History::default();
    store.value = 0;
    store.epoch += 1;
    for application in &mut store.applications {
        application.cache = None;
        application.waits_for_store = false;
    }
    if let Err(violation) = judged {
        world.fail(violation);
    }
}
