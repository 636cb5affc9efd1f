//! One simulation: a while with faults, a while without, and the end in order.

use crate::clients;
use crate::daemon::DaemonSettings;
use crate::ensemble::Ensemble;
use crate::journal::{self, Digest, note};
use crate::judge::Violation;
use crate::kernel;
use crate::locks::{self, LockKind};
use crate::network::Path;
use crate::panics;
use crate::time::{MILLISECOND, MachineClock, SECOND, SimTime};
use crate::world::{Counts, Event, Machine, World};
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

/// How a simulation has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    seed: u64,
    pub violation: Option<Violation>,
    simulated: SimTime,
    counts: Counts,
    terms: u64,
    locks: u64,
    digest: Digest,
}

/// The two machines' clocks differ in rate by no more than is allowed for: one part in a thousand.
const RATE_PPM: i64 = 450;

/// The tasks that wait for the end of the process.
const TASKS_LEFT_MAX: usize = 8;

/// Runs the simulation of a seed.
pub fn run(seed: u64, with_faults: bool) -> Outcome {
    let files = tempfile::tempdir().expect("a directory can be made");
    kernel::begin(seed);
    panics::watch();
    let mut random = Rng::with_seed(seed);
    let loses = with_faults && seed.is_multiple_of(LOSING_SEEDS);
    let mut world = build(&mut random, files.path(), loses);
    if loses {
        let at = world.random.u64(5 * SECOND..60 * SECOND);
        world.plan(at, Event::LoseTransaction);
    }
    let is_long = seed % LONG_SEEDS == 1;
    let result = play(&mut world, with_faults, is_long);
    if let Err(violation) = &result {
        note(format_args!("VIOLATION: {violation}"));
    }
    let outcome = Outcome {
        seed,
        violation: result.err(),
        simulated: world.now,
        counts: world.counts,
        terms: world.leadership.terms,
        locks: world.clients.locks.terms(),
        digest: journal::digest(),
    };
    // Its destructors are no part of the simulation.
    std::mem::forget(world);
    outcome
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation, simulated, counts, terms, locks, digest } = self;
        let Counts { steps, faults, requests } = counts;
        let Digest { lines, hash } = digest;
        let seconds = simulated / SECOND;
        let millis = simulated % SECOND / MILLISECOND;
        write!(
            f,
            "seed={seed} simulated_s={seconds}.{millis:03} steps={steps} faults={faults} requests={requests} terms={terms} \
             locks={locks} lines={lines} log={hash:016x}"
        )?;
        match violation {
            Some(violation) => write!(f, "\nVIOLATION: {violation}"),
            None => Ok(()),
        }
    }
}

/// Of so many seeds, one ends with a long rest.
const LONG_SEEDS: u64 = 16;
const LONG_REST: SimTime = 600 * SECOND;

/// How much more memory a daemon may take after it.
const GROWTH_MAX_BYTES: isize = 32 * 1024;

/// How many watches a daemon without clients may have.
const WATCHES_MAX: usize = 8;

/// Of so many seeds, one has a server that loses a transaction.
const LOSING_SEEDS: u64 = 4;

fn build(random: &mut Rng, files: &std::path::Path, loses: bool) -> World {
    let servers = if random.bool() || loses { 3 } else { 1 };
    let tick = Duration::from_millis(*random.choice([500, 1000, 2000].iter()).expect("three"));
    let session_timeout = Duration::from_millis(random.u64(8_000..=12_000));
    let ensemble = Ensemble::new(servers, tick, random.fork());
    let members = random.usize(3..=7);
    note(format_args!(
        "{members} members, {servers} servers, tick {tick:?}, session timeout {session_timeout:?}"
    ));
    let machines = (0..members).map(|number| {
        let id = char::from(b'a' + u8::try_from(number).expect("there are few")).to_string();
        let keeps_session = random.bool();
        let session_file = keeps_session.then(|| files.join(format!("{id}.session")));
        let settings = DaemonSettings {
            id,
            hosts: ensemble.hosts(),
            session_timeout,
            tick,
            heartbeat: session_timeout / 10,
            priority: 0,
            session_file,
        };
        let clock =
            MachineClock::new(random.i64(-RATE_PPM..=RATE_PPM), random.u64(0..1000 * SECOND));
        Machine::new(settings, clock, servers)
    });
    let machines = machines.collect();
    World::new(machines, ensemble, random.fork())
}

fn play(world: &mut World, with_faults: bool, is_long: bool) -> Result<(), Violation> {
    for machine in 0..world.machines.len() {
        let at = world.random.u64(0..2 * SECOND);
        world.plan(at, Event::Start { machine });
    }
    world.plan(3 * SECOND, Event::NextClient);
    if with_faults {
        world.plan(5 * SECOND, Event::NextFault);
    }
    let span = world.random.u64(60 * SECOND..150 * SECOND);
    world.run_until(span)?;
    heal(world);
    let limit = recovery_limit(world);
    let healed_at = world.now;
    // A server that has lost a transaction goes on as it is.
    wait_for_leader(world, limit, "the last fault")?;
    world.ensemble.repair(world.now);
    note(format_args!(
        "there is a leader {} ms after the last fault",
        (world.now - healed_at) / MILLISECOND
    ));
    // By then all daemons run again.
    world.run_until(world.now + SECOND)?;
    let asked_at = world.now;
    while !world.clients.locks.is_exclusive_held(world.now) {
        if world.now > asked_at + limit {
            return Err(Violation(format!("no lock {} s after the last fault", limit / SECOND)));
        }
        // One that was got under a lease that was about to end is lost at once.
        if !world.clients.locks.is_exclusive_asked_for() {
            locks::open(world, 0, LockKind::Exclusive);
        }
        world.run_until(world.now + 100 * MILLISECOND)?;
    }
    locks::close(world, true);
    world.run_until(world.now + clients::LONGEST_REQUEST)?;
    let unanswered = world.clients.unanswered();
    if unanswered > 0 {
        return Err(Violation(format!("{unanswered} requests are not answered")));
    }
    let terms = world.leadership.terms;
    clients::resign(world);
    world.run_until(world.now + 10 * SECOND)?;
    if world.leadership.terms == terms {
        return Err(Violation("a leader resigns, and none follows".into()));
    }
    // The next may be handing over in turn, to a member of higher priority.
    wait_for_leader(world, limit, "a leader resigned")?;
    clients::judge(world);
    if is_long {
        rest(world)?;
    }
    leave(world)
}

fn wait_for_leader(world: &mut World, limit: u64, after: &str) -> Result<(), Violation> {
    let begun = world.now;
    while world.leadership.holder(world.now).is_none() {
        if world.now > begun + limit {
            return Err(Violation(format!("no leader {} s after {after}", limit / SECOND)));
        }
        world.run_until(world.now + 100 * MILLISECOND)?;
    }
    Ok(())
}

/// Ends all faults.
fn heal(world: &mut World) {
    note("all faults end");
    world.stop_planning();
    locks::close(world, true);
    for server in 0..world.ensemble.len() {
        if !world.ensemble.is_up(server) {
            world.plan(world.now, Event::RestartServer { server });
        }
        world.plan(world.now, Event::ResumeServer { server });
        world.plan(world.now, Event::EndLag { server });
    }
    for machine in 0..world.machines.len() {
        world.machines[machine].paths.fill(Path::GOOD);
        world.machines[machine].wake_delay_us = 200;
        world.machines[machine].frozen_until = world.now;
        world.plan(world.now, Event::Start { machine });
        world.plan(world.now, Event::Thaw { machine });
    }
    world.plan(world.now + 1, Event::ResumeMembers);
}

/// Returns how long there may be no leader after the last fault.
fn recovery_limit(world: &World) -> SimTime {
    let settings = &world.machines[0].settings;
    // A dead leader's session, with the tick by which its end is rounded up; heartbeats that were irregular; then the sessions
    // that members gave up, which they wait for, and their attempts to connect.
    let limit = 2 * settings.session_timeout + 3 * settings.tick + 4 * settings.heartbeat;
    u64::try_from(limit.as_nanos()).expect("it is short") + 5 * SECOND
}

/// Lets all be calm for long, in which a daemon takes no more memory than it gives back.
fn rest(world: &mut World) -> Result<(), Violation> {
    world.clients.followers.close();
    world.run_until(world.now + 60 * SECOND)?;
    let before: Vec<_> = world.machines.iter().map(|machine| machine.memory_bytes).collect();
    world.run_until(world.now + LONG_REST)?;
    for (machine, before) in world.machines.iter().zip(before) {
        let grown = machine.memory_bytes - before;
        let id = &machine.settings.id;
        note(format_args!("{id} takes {grown} bytes more after a rest"));
        if grown > GROWTH_MAX_BYTES {
            return Err(Violation(format!("{id} takes {grown} bytes more after a rest")));
        }
    }
    let watches = world.ensemble.watches();
    let watches_max = WATCHES_MAX * world.machines.len();
    note(format_args!("{watches} watches of {} daemons", world.machines.len()));
    if watches > watches_max {
        return Err(Violation(format!("{watches} watches, of {watches_max} at most")));
    }
    Ok(())
}

/// Has all daemons leave in order, and looks for what is left behind.
fn leave(world: &mut World) -> Result<(), Violation> {
    note("all leave");
    world.clients.followers.close();
    for machine in 0..world.machines.len() {
        if let Some(daemon) = &mut world.machines[machine].daemon {
            daemon.leave();
        }
        world.wake(machine);
    }
    world.run_until(world.now + 5 * SECOND)?;
    for machine in &world.machines {
        let id = &machine.settings.id;
        let daemon = machine.daemon.as_ref().expect("it was started");
        // A member that says that a former session may live on is careful, not wrong: the servers know.
        if daemon.has_left().is_none() {
            return Err(Violation(format!("{id} does not end")));
        }
        let tasks = daemon.tasks();
        if tasks > TASKS_LEFT_MAX {
            return Err(Violation(format!("{tasks} tasks of {id} are left behind")));
        }
    }
    let left = world.ensemble.committed().ephemerals();
    let left: Vec<_> = left.into_iter().flat_map(|(_, paths)| paths).collect();
    if !left.is_empty() {
        return Err(Violation(format!("znodes are left behind: {}", left.join(", "))));
    }
    if world.ensemble.watches() > 0 {
        return Err(Violation(format!("{} watches are left behind", world.ensemble.watches())));
    }
    if world.ensemble.sessions() > 0 {
        return Err(Violation(format!("{} sessions are left behind", world.ensemble.sessions())));
    }
    Ok(())
}
