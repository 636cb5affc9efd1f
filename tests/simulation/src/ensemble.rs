//! Servers that agree on one history: each request that changes it is committed by a quorum, and each server applies what was
//! committed when it gets to it, so that one that lags answers reads of the past.
//!
//! Sessions live by the rules that are the least kind to clients: a server reports the sessions that it has heard every half
//! tick, one report may be lost, and nothing else keeps a session alive.

use crate::journal::note;
use crate::kernel::EPOCH_NS;
use crate::lost::LostTransaction;
use crate::time::{MILLISECOND, SimTime};
use dev_server::{Now, Output, Replica, ServerSettings};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A quarter of a million years of transactions fit.
const SECRET: [u8; 16] = [7; 16];

/// The version that each server gives when it is asked.
const VERSION: &[u8] = b"Zookeeper version: 3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c, built on 2024-02-12 22:16 UTC\n";

/// Some servers are behind the others all the time, as one far away is.
const USUAL_LAGS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(15), Duration::from_millis(150)];

pub struct Ensemble {
    servers: Vec<Server>,
    /// All that was committed.
    log: Vec<Entry>,
    /// The state of whoever has applied all of it.
    committed: Replica,
    /// When each session ends, in milliseconds, by the servers' leader.
    tracker: BTreeMap<i64, TrackedSession>,
    tick_ms: u64,
    agenda: BTreeMap<(SimTime, u64), Errand>,
    planned: u64,
    outputs: Vec<(u64, ServerOutput)>,
    random: Rng,
    /// No request is committed before this.
    stalled_until: SimTime,
    /// The servers choose a leader until then, and serve no client.
    electing_until: SimTime,
}

/// Something that a server does to a connection.
pub enum ServerOutput {
    Bytes(Vec<u8>),
    Close,
    Drop,
}

struct Server {
    state: Replica,
    applied: usize,
    is_up: bool,
    is_stopped: bool,
    /// How long after a commit it is applied here, on average; and how long where nothing is wrong.
    lag: Duration,
    usual_lag: Duration,
    /// When the last of its requests is committed: they are in order.
    forwards_at: SimTime,
    connections: BTreeMap<u64, ClientConnection>,
    /// The sessions that were heard since the last report.
    heard: BTreeSet<i64>,
    last_report_was_lost: bool,
    lost: Option<LostTransaction>,
}

#[derive(Default)]
struct ClientConnection {
    unread: Vec<u8>,
    has_asked: bool,
    frames: VecDeque<Vec<u8>>,
    /// How many of its requests are on their way to a quorum, or were not applied here yet.
    forwarded: usize,
}

struct TrackedSession {
    timeout_ms: u64,
    ends_ms: u64,
}

#[derive(Clone)]
struct Entry {
    input: Input,
    time: Now,
}

#[derive(Clone)]
enum Input {
    Connect { connection: u64, frame: Vec<u8> },
    Request { connection: u64, frame: Vec<u8> },
    Disconnect { connection: u64 },
    Expire { session: i64 },
}

enum Errand {
    Commit { from: usize, input: Input },
    Apply { server: usize, up_to: usize },
    Report { server: usize },
    Tick,
    Elected,
}

impl Ensemble {
    pub fn new(servers: usize, tick: Duration, random: Rng) -> Self {
        let settings = ServerSettings { tick, ..ServerSettings::default() };
        let wall_ms = wall_ms(0);
        let server = |_| Server {
            state: Replica::new(&settings, SECRET, wall_ms),
            applied: 0,
            is_up: true,
            is_stopped: false,
            lag: USUAL_LAGS[0],
            usual_lag: USUAL_LAGS[0],
            forwards_at: 0,
            connections: BTreeMap::new(),
            heard: BTreeSet::new(),
            last_report_was_lost: false,
            lost: None,
        };
        let mut ensemble = Self {
            servers: (0..servers).map(server).collect(),
            log: vec![],
            committed: Replica::new(&settings, SECRET, wall_ms),
            tracker: BTreeMap::new(),
            tick_ms: u64::try_from(tick.as_millis()).expect("a tick is short"),
            agenda: BTreeMap::new(),
            planned: 0,
            outputs: vec![],
            random,
            stalled_until: 0,
            electing_until: 0,
        };
        for server in 0..servers {
            let lag = *ensemble.random.choice(USUAL_LAGS.iter()).expect("there are some");
            ensemble.servers[server].lag = lag;
            ensemble.servers[server].usual_lag = lag;
            let first = ensemble.random.u64(1..=ensemble.tick_ms / 2) * MILLISECOND;
            ensemble.plan(first, Errand::Report { server });
        }
        ensemble.plan(ensemble.tick_ms * MILLISECOND, Errand::Tick);
        ensemble
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns the connect string of all servers.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = (0..self.len()).map(|server| address(server).to_string()).collect();
        hosts.join(",")
    }

    /// Returns the server at an address.
    pub fn server_at(&self, to: SocketAddr) -> Option<usize> {
        (0..self.len()).find(|server| address(*server) == to)
    }

    /// Returns whether the kernel of this server takes connections.
    pub fn listens(&self, server: usize, now: SimTime) -> bool {
        self.servers[server].is_up && now >= self.electing_until
    }

    pub fn is_stopped(&self, server: usize) -> bool {
        self.servers[server].is_stopped
    }

    pub fn is_up(&self, server: usize) -> bool {
        self.servers[server].is_up
    }

    /// Returns the state that a quorum has committed.
    pub fn committed(&self) -> &Replica {
        &self.committed
    }

    /// Returns the last transaction that each server has lost, if it has lost one.
    pub fn lost(&self) -> impl Iterator<Item = &LostTransaction> {
        self.servers.iter().filter_map(|server| server.lost.as_ref())
    }

    /// Returns how many watches there are at all servers.
    pub fn watches(&self) -> usize {
        self.servers.iter().map(|server| server.state.watches()).sum()
    }

    pub fn sessions(&self) -> usize {
        self.tracker.len()
    }

    /// Returns when something is next to be done.
    pub fn due_at(&self) -> SimTime {
        self.agenda.first_key_value().map_or(SimTime::MAX, |((at, _), _)| *at)
    }

    /// Does what is due, and returns what the servers do to connections.
    pub fn run(&mut self, now: SimTime) -> Vec<(u64, ServerOutput)> {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let (at, _) = *entry.key();
            let errand = entry.remove();
            self.carry_out(errand, at);
        }
        std::mem::take(&mut self.outputs)
    }

    /// Takes in a connection.
    pub fn accept(&mut self, server: usize, connection: u64) {
        self.servers[server].connections.insert(connection, ClientConnection::default());
    }

    /// Takes what has arrived over a connection.
    pub fn receive(&mut self, server: usize, connection: u64, bytes: &[u8], now: SimTime) {
        let Some(client) = self.servers[server].connections.get_mut(&connection) else { return };
        client.unread.extend_from_slice(bytes);
        if !self.servers[server].is_stopped {
            self.read(server, connection, now);
        }
    }

    /// Cuts what has arrived into frames, and handles them.
    fn read(&mut self, server: usize, connection: u64, now: SimTime) {
        let Some(client) = self.servers[server].connections.get_mut(&connection) else { return };
        if !client.has_asked && client.unread.starts_with(b"srvr") {
            self.outputs.push((connection, ServerOutput::Bytes(VERSION.to_vec())));
            self.outputs.push((connection, ServerOutput::Close));
            self.servers[server].connections.remove(&connection);
            return;
        }
        while let Some(length) = client.unread.first_chunk().map(|head| u32::from_be_bytes(*head)) {
            let end = 4 + length as usize;
            if client.unread.len() < end {
                break;
            }
            let frame = client.unread.drain(..end).skip(4).collect();
            client.frames.push_back(frame);
        }
        self.serve(server, connection, now);
    }

    /// Notes that a connection has ended.
    pub fn disconnect(&mut self, server: usize, connection: u64, now: SimTime) {
        if self.servers[server].connections.remove(&connection).is_some() {
            self.forward(server, Input::Disconnect { connection }, now);
        }
    }

    /// Kills a server. The requests that it has passed on may be lost, the last ones first.
    pub fn kill(&mut self, server: usize, now: SimTime) {
        let killed = &mut self.servers[server];
        killed.is_up = false;
        killed.is_stopped = false;
        self.hang_up(server, now);
        self.lose_last(server);
        if !self.has_quorum() {
            for server in 0..self.len() {
                self.hang_up(server, now);
            }
            self.electing_until = SimTime::MAX;
        }
    }

    /// Starts a server again, with what it has applied.
    pub fn restart(&mut self, server: usize, now: SimTime) {
        self.servers[server].is_up = true;
        if self.electing_until == SimTime::MAX && self.has_quorum() {
            let span = Duration::from_millis(self.random.u64(100..2000));
            self.elect(span, now);
        }
        self.plan_apply(server, now);
    }

    /// Has the servers choose another leader, which takes so long. What was not committed by then may be lost, and all timeouts
    /// begin again.
    pub fn elect(&mut self, span: Duration, now: SimTime) {
        for server in 0..self.len() {
            self.hang_up(server, now);
            self.lose_last(server);
        }
        self.electing_until = now + nanos(span);
        self.plan(self.electing_until, Errand::Elected);
    }

    pub fn stop(&mut self, server: usize) {
        self.servers[server].is_stopped = true;
    }

    pub fn resume(&mut self, server: usize, now: SimTime) {
        self.servers[server].is_stopped = false;
        self.plan_apply(server, now);
        let waiting: Vec<_> = self.servers[server].connections.keys().copied().collect();
        waiting.into_iter().for_each(|connection| self.read(server, connection, now));
    }

    /// Has a server start again without this transaction, or lose it when it is there to be applied.
    pub fn lose(&mut self, server: usize, lost: LostTransaction, now: SimTime) {
        self.hang_up(server, now);
        self.servers[server].lost = Some(lost);
    }

    /// Gives the servers that have lost a transaction the state of the others.
    pub fn repair(&mut self, now: SimTime) {
        for server in 0..self.len() {
            if self.servers[server].lost.take().is_some() {
                self.hang_up(server, now);
            }
        }
    }

    pub fn end_lag(&mut self, server: usize) {
        self.servers[server].lag = self.servers[server].usual_lag;
    }

    pub fn set_lag(&mut self, server: usize, lag: Duration) {
        self.servers[server].lag = lag;
    }

    /// Has no request committed for so long, as if disks were slow.
    pub fn stall(&mut self, span: Duration, now: SimTime) {
        self.stalled_until = self.stalled_until.max(now + nanos(span));
    }

    fn has_quorum(&self) -> bool {
        2 * self.servers.iter().filter(|server| server.is_up).count() > self.len()
    }

    fn plan(&mut self, at: SimTime, errand: Errand) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), errand);
    }

    fn carry_out(&mut self, errand: Errand, now: SimTime) {
        match errand {
            Errand::Commit { from, input } => {
                let from_dead = !self.servers[from].is_up;
                if !self.has_quorum()
                    || now < self.electing_until && self.electing_until != SimTime::MAX
                {
                    // It is committed late, unless its server has died.
                    if !from_dead || matches!(input, Input::Disconnect { .. }) {
                        let later = now + 50 * MILLISECOND;
                        self.plan(later, Errand::Commit { from, input });
                    }
                    return;
                }
                self.commit(input, now);
            }
            Errand::Apply { server, up_to } => self.apply(server, up_to, now),
            Errand::Report { server } => self.report(server, now),
            Errand::Tick => self.tick(now),
            Errand::Elected => {
                let now_ms = now / MILLISECOND;
                for session in self.tracker.values_mut() {
                    session.ends_ms = rounded_up(now_ms + session.timeout_ms, self.tick_ms);
                }
            }
        }
    }

    /// Closes all connections of a server.
    fn hang_up(&mut self, server: usize, now: SimTime) {
        let connections = std::mem::take(&mut self.servers[server].connections);
        self.servers[server].heard.clear();
        for connection in connections.into_keys() {
            self.outputs.push((connection, ServerOutput::Drop));
            self.forward(server, Input::Disconnect { connection }, now);
        }
    }

    /// Loses the last few of a server's requests that were not committed yet, or none.
    fn lose_last(&mut self, server: usize) {
        let is_lost = |errand: &Errand| match errand {
            Errand::Commit { from, input } => {
                *from == server && !matches!(input, Input::Disconnect { .. })
            }
            _ => false,
        };
        let waiting: Vec<_> =
            self.agenda.iter().filter(|(_, errand)| is_lost(errand)).map(|(key, _)| *key).collect();
        let kept = self.random.usize(..=waiting.len());
        waiting[kept..].iter().for_each(|key| drop(self.agenda.remove(key)));
    }

    /// Handles the frames of a connection that need not wait for an earlier one.
    fn serve(&mut self, server: usize, connection: u64, now: SimTime) {
        if self.servers[server].is_stopped {
            return;
        }
        while let Some(client) = self.servers[server].connections.get_mut(&connection) {
            let Some(frame) = client.frames.front() else { return };
            let is_first = !client.has_asked;
            let is_ordered = is_first || Replica::is_ordered(frame);
            if !is_ordered && client.forwarded > 0 {
                return;
            }
            let frame = client.frames.pop_front().expect("it was just there");
            client.has_asked = true;
            if is_first {
                client.forwarded += 1;
                let seen = frame.get(4..12).and_then(|seen| seen.try_into().ok());
                let seen = seen.map_or(0, i64::from_be_bytes);
                if seen > self.servers[server].state.zxid() {
                    // It lags behind what the client has seen.
                    self.servers[server].connections.remove(&connection);
                    self.outputs.push((connection, ServerOutput::Close));
                    return;
                }
                self.forward(server, Input::Connect { connection, frame }, now);
                continue;
            }
            if let Some((session, _)) = self.servers[server].state.session(connection) {
                self.servers[server].heard.insert(session);
            }
            if is_ordered {
                let client = self.servers[server].connections.get_mut(&connection);
                client.expect("it was just there").forwarded += 1;
                self.forward(server, Input::Request { connection, frame }, now);
            } else {
                let reader = &mut self.servers[server];
                let is_well = match &reader.lost {
                    Some(lost) => lost.read(&mut reader.state, connection, &frame, moment(now)),
                    None => reader.state.request(connection, &frame, moment(now)),
                };
                self.take_outputs(server);
                if !is_well {
                    self.outputs.push((connection, ServerOutput::Close));
                }
            }
        }
    }

    /// Sends a request to be committed.
    fn forward(&mut self, server: usize, input: Input, now: SimTime) {
        let delay = self.random.u64(200_000..4 * MILLISECOND);
        let sender = &mut self.servers[server];
        sender.forwards_at = (now.max(self.stalled_until) + delay).max(sender.forwards_at + 1);
        let at = sender.forwards_at;
        self.plan(at, Errand::Commit { from: server, input });
    }

    fn commit(&mut self, input: Input, now: SimTime) {
        let entry = Entry { input, time: moment(now) };
        apply(&mut self.committed, &entry);
        self.committed.take_outputs();
        if let Input::Connect { connection, .. } = &entry.input
            && let Some((session, timeout_ms)) = self.committed.session(*connection)
        {
            let ends_ms = rounded_up(now / MILLISECOND + timeout_ms, self.tick_ms);
            self.tracker.insert(session, TrackedSession { timeout_ms, ends_ms });
        }
        let living = self.committed.sessions();
        self.tracker.retain(|session, _| living.contains(session));
        self.log.push(entry);
        for server in 0..self.len() {
            self.plan_apply(server, now);
        }
    }

    fn plan_apply(&mut self, server: usize, now: SimTime) {
        let up_to = self.log.len();
        let lag = nanos(self.servers[server].lag);
        let delay = if lag == 0 { 1 } else { self.random.u64(lag / 2..=lag * 3 / 2) };
        self.plan(now + delay, Errand::Apply { server, up_to });
    }

    fn apply(&mut self, server: usize, up_to: usize, now: SimTime) {
        while self.servers[server].applied < up_to {
            let applier = &mut self.servers[server];
            if !applier.is_up || applier.is_stopped {
                return;
            }
            let entry = self.log[applier.applied].clone();
            applier.applied += 1;
            let doomed = applier.lost.as_ref().and_then(|lost| lost.doomed(&applier.state));
            let is_taken = apply(&mut applier.state, &entry);
            if let Some(lost) = &mut applier.lost
                && lost.note(doomed, &applier.state)
            {
                note(format_args!(
                    "server {server} starts again, and has lost a transaction: {lost}"
                ));
                self.hang_up(server, now);
            }
            self.take_outputs(server);
            let (Input::Connect { connection, .. } | Input::Request { connection, .. }) =
                entry.input
            else {
                continue;
            };
            let Some(client) = self.servers[server].connections.get_mut(&connection) else {
                continue;
            };
            client.forwarded -= 1;
            if !is_taken {
                self.outputs.push((connection, ServerOutput::Close));
            }
            self.serve(server, connection, now);
        }
    }

    /// Passes on what a replica does to its own connections; it answers those of other servers too, which nobody hears.
    fn take_outputs(&mut self, server: usize) {
        let server = &mut self.servers[server];
        for (connection, output) in server.state.take_outputs() {
            if !server.connections.contains_key(&connection) {
                continue;
            }
            let output = match output {
                Output::Frame(frame) => ServerOutput::Bytes(frame),
                Output::Close => ServerOutput::Close,
                Output::Drop => ServerOutput::Drop,
            };
            self.outputs.push((connection, output));
        }
    }

    /// Tells the servers' leader which sessions a server has heard.
    fn report(&mut self, server: usize, now: SimTime) {
        let next = now + self.tick_ms / 2 * MILLISECOND;
        self.plan(next, Errand::Report { server });
        let reporter = &mut self.servers[server];
        if !reporter.is_up || reporter.is_stopped {
            return;
        }
        let heard = std::mem::take(&mut reporter.heard);
        let is_lost = !reporter.last_report_was_lost && self.random.u8(..) < 25;
        reporter.last_report_was_lost = is_lost;
        if is_lost {
            return;
        }
        for session in heard {
            if let Some(tracked) = self.tracker.get_mut(&session) {
                tracked.ends_ms = rounded_up(now / MILLISECOND + tracked.timeout_ms, self.tick_ms);
            }
        }
    }

    /// Ends the sessions whose time is up.
    fn tick(&mut self, now: SimTime) {
        self.plan(now + self.tick_ms * MILLISECOND, Errand::Tick);
        if !self.has_quorum() || now < self.electing_until {
            return;
        }
        let now_ms = now / MILLISECOND;
        let ended = self.tracker.iter().filter(|(_, session)| session.ends_ms <= now_ms);
        let ended: Vec<_> = ended.map(|(session, _)| *session).collect();
        for session in ended {
            note(format_args!("the servers end session {session:#x}"));
            self.commit(Input::Expire { session }, now);
        }
    }
}

/// Applies an entry. Returns whether the request could be read.
fn apply(state: &mut Replica, entry: &Entry) -> bool {
    match &entry.input {
        Input::Connect { connection, frame } => {
            let from = SocketAddr::from((Ipv4Addr::new(10, 1, 0, 1), 40_000));
            state.accept(*connection, from, entry.time);
            state.connect(*connection, frame, entry.time)
        }
        Input::Request { connection, frame } => state.request(*connection, frame, entry.time),
        Input::Disconnect { connection } => {
            state.disconnect(*connection);
            true
        }
        Input::Expire { session } => state.expire(*session),
    }
}

fn address(server: usize) -> SocketAddr {
    let number = u8::try_from(server + 1).expect("there are few servers");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 2181))
}

fn rounded_up(time_ms: u64, tick_ms: u64) -> u64 {
    (time_ms / tick_ms + 1) * tick_ms
}

fn moment(now: SimTime) -> Now {
    Now { wall_ms: wall_ms(now), elapsed_ms: now / MILLISECOND }
}

fn wall_ms(now: SimTime) -> i64 {
    i64::try_from((EPOCH_NS + now) / MILLISECOND).expect("the date is near")
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a simulation is short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const CONNECT: &[u8] = &[
        0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x17, 0x70, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_session_that_is_not_heard_ends_after_its_timeout() {
        let mut ensemble = Ensemble::new(3, Duration::from_secs(2), Rng::with_seed(1));
        ensemble.accept(1, 7);
        ensemble.receive(1, 7, CONNECT, 0);
        ensemble.run(SECOND);
        assert_eq!(ensemble.sessions(), 1);
        // Six seconds, rounded up to a tick, and once more.
        ensemble.run(7 * SECOND);
        assert_eq!(ensemble.sessions(), 1);
        ensemble.run(8 * SECOND);
        assert_eq!(ensemble.sessions(), 0);
    }

    #[test]
    fn nothing_is_committed_without_a_quorum() {
        let mut ensemble = Ensemble::new(3, Duration::from_secs(2), Rng::with_seed(1));
        ensemble.kill(0, 0);
        ensemble.kill(2, 0);
        assert!(!ensemble.listens(1, SECOND));
        ensemble.restart(0, SECOND);
        assert!(ensemble.listens(1, 10 * SECOND));
    }
}
