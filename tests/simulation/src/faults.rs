//! Faults of the network, the servers and the daemons, chosen at random.

use crate::journal::note;
use crate::lost::{self, LostTransaction};
use crate::time::{MILLISECOND, SECOND, SimTime};
use crate::world::{Event, World};
use std::time::Duration;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Cut { machine: usize, server: usize },
    HalfOpen { machine: usize, server: usize },
    Refuse { machine: usize, server: usize, span: SimTime },
    Partition { machine: usize, span: SimTime },
    BlockToServer { machine: usize, server: usize, span: SimTime },
    BlockToDaemon { machine: usize, server: usize, span: SimTime },
    Slow { machine: usize, longest_us: u64 },
    ReadSlowly { machine: usize, span: SimTime },
    Freeze { machine: usize, span: SimTime },
    Kill { machine: usize, span: SimTime },
    Busy { machine: usize, delay_us: u64 },
    KillServer { server: usize, span: SimTime },
    KillAllServers { span: SimTime },
    StopServer { server: usize, span: SimTime },
    Lag { server: usize, lag: SimTime, span: SimTime },
    Stall { span: SimTime },
    Elect { span: SimTime },
}

impl Fault {
    fn at_random(world: &mut World) -> Self {
        let random = &mut world.random;
        let machine = random.usize(..world.machines.len());
        let server = random.usize(..world.ensemble.len());
        // Mostly short, sometimes longer than a session.
        let longest = if random.u8(..) < 64 { 20 * SECOND } else { 4 * SECOND };
        let span = random.u64(20 * MILLISECOND..longest);
        match random.u8(..17) {
            0 => Self::Cut { machine, server },
            1 => Self::HalfOpen { machine, server },
            2 => Self::Refuse { machine, server, span },
            3 => Self::Partition { machine, span },
            4 => Self::BlockToServer { machine, server, span },
            5 => Self::BlockToDaemon { machine, server, span },
            6 => Self::Slow { machine, longest_us: random.u64(1_000..400_000) },
            7 => Self::ReadSlowly { machine, span },
            8 => Self::Freeze { machine, span },
            9 | 10 => Self::Kill { machine, span: random.u64(MILLISECOND..longest) },
            11 => Self::Busy { machine, delay_us: random.u64(0..50_000) },
            12 => Self::KillServer { server, span },
            13 => Self::KillAllServers { span: span / 2 },
            14 => Self::StopServer { server, span },
            15 => Self::Lag { server, lag: random.u64(MILLISECOND..3 * SECOND), span },
            _ if random.bool() => Self::Stall { span: span / 4 },
            _ => Self::Elect { span: span / 4 },
        }
    }

    pub fn strike(self, world: &mut World) {
        note(format_args!("fault: {self:?}"));
        world.counts.faults += 1;
        let now = world.now;
        match self {
            Self::Cut { machine, server } => world.cut(machine, server, false),
            Self::HalfOpen { machine, server } => world.cut(machine, server, true),
            Self::Refuse { machine, server, span } => {
                world.machines[machine].paths[server].refuses_until = now + span;
            }
            Self::Partition { machine, span } => {
                for path in &mut world.machines[machine].paths {
                    path.to_server_blocked_until = now + span;
                    path.to_daemon_blocked_until = now + span;
                }
            }
            Self::BlockToServer { machine, server, span } => {
                world.machines[machine].paths[server].to_server_blocked_until = now + span;
            }
            Self::BlockToDaemon { machine, server, span } => {
                world.machines[machine].paths[server].to_daemon_blocked_until = now + span;
            }
            Self::Slow { machine, longest_us } => {
                for path in &mut world.machines[machine].paths {
                    path.latency_us = (longest_us / 4, longest_us);
                }
            }
            Self::ReadSlowly { machine, span } => world.read_slowly(machine, now + span),
            Self::Freeze { machine, span } => world.freeze(machine, span),
            Self::Kill { machine, span } => {
                world.kill(machine);
                world.plan(now + span, Event::Start { machine });
            }
            Self::Busy { machine, delay_us } => world.machines[machine].wake_delay_us = delay_us,
            Self::KillServer { server, span } => {
                world.ensemble.kill(server, now);
                world.plan(now + span, Event::RestartServer { server });
            }
            Self::KillAllServers { span } => {
                for server in 0..world.ensemble.len() {
                    world.ensemble.kill(server, now);
                    world.plan(now + span, Event::RestartServer { server });
                }
            }
            Self::StopServer { server, span } => {
                world.ensemble.stop(server);
                world.plan(now + span, Event::ResumeServer { server });
            }
            Self::Lag { server, lag, span } => {
                world.ensemble.set_lag(server, Duration::from_nanos(lag));
                world.plan(now + span, Event::EndLag { server });
            }
            Self::Stall { span } => world.ensemble.stall(Duration::from_nanos(span), now),
            Self::Elect { span } => world.ensemble.elect(Duration::from_nanos(span), now),
        }
    }
}

/// Makes a server lose a transaction: one that has created a znode, or one that will delete it. For a minute, others of
/// the election follow.
pub fn lose_transaction(world: &mut World) {
    let are_members = world.random.u8(..4) > 0;
    if are_members && world.now < 60 * SECOND {
        let at = world.now + world.random.u64(3 * SECOND..20 * SECOND);
        world.plan(at, Event::LoseTransaction);
    }
    let paths = lost::candidates(world.ensemble.committed(), are_members);
    let Some(path) = world.random.choice(paths) else {
        if !are_members {
            world.plan(world.now + SECOND, Event::LoseTransaction);
        }
        return;
    };
    let server = world.random.usize(..world.ensemble.len());
    let lost = match world.random.bool() {
        true => LostTransaction::create(path),
        false => LostTransaction::delete(path),
    };
    note(format_args!("fault: server {server} loses a transaction: {lost}"));
    world.counts.faults += 1;
    world.leadership.tokens_may_fall |= lost.hides_member();
    world.ensemble.lose(server, lost, world.now);
}

/// Strikes with a fault, and plans the next one.
pub fn strike_at_random(world: &mut World) {
    Fault::at_random(world).strike(world);
    let next = world.now + world.random.u64(MILLISECOND..6 * SECOND);
    world.plan(next, Event::NextFault);
}
