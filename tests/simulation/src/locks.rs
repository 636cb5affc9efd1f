//! Clients that ask for locks and barriers by streams of events, and some of which stop reading.

use crate::daemon::EventStream;
use crate::journal::note;
use crate::judge::{Claim, Claims, Violation};
use crate::lost::LostTransaction;
use crate::time::{MILLISECOND, SECOND, SimTime};
use crate::world::World;
use axum::http::Method;
use serde_json::Value;
use std::collections::BTreeMap;

/// A kind of lock, each with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    Exclusive,
    /// Some ask for it to be shared, some not.
    ReadWrite,
    Slots,
    Barrier,
}

pub struct Locks {
    claims: BTreeMap<LockKind, Claims>,
    clients: Vec<LockClient>,
    begun: usize,
    barrier: Barrier,
}

/// A barrier that is entered once, and then another has another name.
#[derive(Default)]
struct Barrier {
    name: usize,
    asked: usize,
    /// How many have entered, and have neither left nor been lost since.
    inside: usize,
}

struct LockClient {
    number: usize,
    machine: usize,
    kind: LockKind,
    is_shared: bool,
    /// The round of a barrier.
    round: usize,
    stream: EventStream,
    /// How many events were looked at.
    seen: usize,
    is_held: bool,
    /// When it gives up what it has or waits for.
    ends_at: SimTime,
}

const BARRIER_SIZE: usize = 3;

impl LockKind {
    fn at_random(random: &mut fastrand::Rng) -> Self {
        *random
            .choice([Self::Exclusive, Self::ReadWrite, Self::Slots, Self::Barrier].iter())
            .expect("four")
    }
}

impl Locks {
    pub fn new() -> Self {
        let claims = [
            (LockKind::Exclusive, Claims::new("the lock", 1)),
            (LockKind::ReadWrite, Claims::new("the lock of readers and writers", 1)),
            (LockKind::Slots, Claims::new("the lock of two slots", 2)),
        ];
        Self { claims: claims.into(), clients: vec![], begun: 0, barrier: Barrier::default() }
    }

    /// Forgets the clients of a daemon that was killed. Their leases run on.
    pub fn forget(&mut self, machine: usize) {
        for client in self.clients.iter().filter(|client| client.machine == machine) {
            if client.kind == LockKind::Barrier
                && client.is_held
                && client.round == self.barrier.name
            {
                self.barrier.inside -= 1;
            }
        }
        self.clients.retain(|client| client.machine != machine);
    }

    pub fn terms(&self) -> u64 {
        self.claims.values().map(|claims| claims.terms).sum()
    }

    /// Returns whether somebody who reads what it is told holds, or waits for, the exclusive lock.
    pub fn is_exclusive_asked_for(&self) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|client| client.kind == LockKind::Exclusive && !client.stream.is_stuck.get())
    }

    /// Returns whether the exclusive lock is held.
    pub fn is_exclusive_held(&self, now: SimTime) -> bool {
        self.claims[&LockKind::Exclusive].holder(now).is_some()
    }
}

/// Has a client ask for a lock, or some enter a barrier.
pub fn act(world: &mut World, machine: usize) {
    let kind = LockKind::at_random(&mut world.random);
    if kind != LockKind::Barrier {
        return open(world, machine, kind);
    }
    let barrier = &mut world.clients.locks.barrier;
    *barrier = Barrier { name: barrier.name + 1, ..Barrier::default() };
    for _ in 0..BARRIER_SIZE {
        let machine = world.random.usize(..world.machines.len());
        open(world, machine, LockKind::Barrier);
    }
}

/// Has a client ask through a daemon.
pub fn open(world: &mut World, machine: usize, kind: LockKind) {
    let is_shared = kind == LockKind::ReadWrite && world.random.bool();
    let round = world.clients.locks.barrier.name;
    let uri = match kind {
        LockKind::Exclusive => "/locks/one".to_owned(),
        LockKind::ReadWrite if is_shared => "/locks/rw?mode=shared".to_owned(),
        LockKind::ReadWrite => "/locks/rw".to_owned(),
        LockKind::Slots => "/locks/two?slots=2".to_owned(),
        LockKind::Barrier => format!("/barriers/b{round}?size={BARRIER_SIZE}"),
    };
    let Some(daemon) = &world.machines[machine].daemon else { return };
    let stream = daemon.open(Method::POST, &uri);
    world.counts.requests += 1;
    let locks = &mut world.clients.locks;
    locks.begun += 1;
    if kind == LockKind::Barrier {
        locks.barrier.asked += 1;
    }
    let ends_at = world.now + world.random.u64(SECOND..20 * SECOND);
    let number = locks.begun;
    locks.clients.push(LockClient {
        number,
        machine,
        kind,
        is_shared,
        round,
        stream,
        seen: 0,
        is_held: false,
        ends_at,
    });
    world.wake(machine);
}

/// Ends the clients that have had enough, or all.
pub fn close(world: &mut World, are_all: bool) {
    let now = world.now;
    let ending: Vec<_> = world
        .clients
        .locks
        .clients
        .extract_if(.., |client| are_all || client.ends_at <= now)
        .collect();
    for client in ending {
        client.stream.close();
        let locks = &mut world.clients.locks;
        if let Some(claims) = locks.claims.get_mut(&client.kind) {
            claims.release(client.number);
        } else if client.is_held && client.round == locks.barrier.name {
            locks.barrier.inside -= 1;
        }
        world.wake(client.machine);
    }
}

/// Looks at what clients of a daemon have received.
pub fn look(world: &mut World, machine: usize) {
    let mut clients = std::mem::take(&mut world.clients.locks.clients);
    for client in clients.iter_mut().filter(|client| client.machine == machine) {
        let received = client.stream.received.borrow().clone();
        for chunk in &received[client.seen..] {
            for event in chunk.split("\n\n").filter(|event| event.starts_with("event: ")) {
                if let Err(violation) = take_event(world, client, event) {
                    world.fail(violation);
                }
            }
        }
        client.seen = received.len();
        if client.is_held && world.random.u8(..) < 2 {
            client.stream.is_stuck.set(true);
        }
    }
    clients.retain(|client| {
        let has_ended = client.stream.has_ended.get();
        if has_ended {
            let status = client.stream.status.get().unwrap_or(0);
            if status != 200 {
                let said = client.stream.received.borrow().concat();
                note(format_args!(
                    "client {} is refused {:?}: {status} {said}",
                    client.number, client.kind
                ));
            }
            let locks = &mut world.clients.locks;
            if let Some(claims) = locks.claims.get_mut(&client.kind) {
                claims.release(client.number);
            } else if client.is_held && client.round == locks.barrier.name {
                locks.barrier.inside -= 1;
            }
        }
        !has_ended
    });
    // None is opened meanwhile.
    world.clients.locks.clients = clients;
}

fn take_event(world: &mut World, client: &mut LockClient, event: &str) -> Result<(), Violation> {
    let mut lines = event.lines();
    let name = lines.next().and_then(|line| line.strip_prefix("event: ")).unwrap_or_default();
    let data = lines.next().and_then(|line| line.strip_prefix("data: ")).unwrap_or_default();
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let locks = &mut world.clients.locks;
    match name {
        "held" | "renewed" if client.kind != LockKind::Barrier => {
            client.is_held = true;
            let until = data["valid_until_boottime_ns"].as_u64().expect("a lease has an end");
            let token = data["token"].as_u64().expect("a lock has a token");
            let until = world.machines[client.machine].clock.moment(until);
            let is_shared = client.is_shared;
            let claims = locks.claims.get_mut(&client.kind).expect("each lock has its claims");
            let claim = Claim { token, until, is_shared, excused_since: None };
            let judged = claims.claim(client.number, claim, world.now);
            // At a server that does not show who is ahead, tokens alone tell two holders apart.
            let is_excused = world.ensemble.lost().any(LostTransaction::hides_holding);
            if judged.or_else(|violation| if is_excused { Ok(true) } else { Err(violation) })? {
                note(format_args!("client {} holds {:?}, {claim}", client.number, client.kind));
            }
        }
        "entered" if !client.is_held && client.round == locks.barrier.name => {
            client.is_held = true;
            locks.barrier.inside += 1;
            if locks.barrier.asked < BARRIER_SIZE {
                return Err(Violation(format!("a barrier is open to {}", locks.barrier.asked)));
            }
            client.ends_at = world.now + world.random.u64(10 * MILLISECOND..3 * SECOND);
        }
        "left" if client.round == locks.barrier.name && locks.barrier.inside > 1 => {
            let inside = locks.barrier.inside;
            return Err(Violation(format!("one has left a barrier while {inside} are inside")));
        }
        _ => {}
    }
    Ok(())
}
