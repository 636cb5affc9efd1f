//! Daemons, the network and the servers, and what happens next.

use crate::clients::Clients;
use crate::daemon::{Daemon, DaemonSettings};
use crate::ensemble::{Ensemble, ServerOutput};
use crate::journal::{self, note};
use crate::judge::{Claim, Claims, Violation};
use crate::kernel::{self, Wait};
use crate::lost;
use crate::memory;
use crate::network::{Link, Path};
use crate::panics;
use crate::store::StoreCall;
use crate::time::{MILLISECOND, MachineClock, SECOND, SimTime};
use fastrand::Rng;
use recipes::election::Role;
use recipes::{AcquiredBy, Moment, Sequence, Ticket};
use std::collections::BTreeMap;
use std::time::Duration;

/// A daemon has two sessions, and those before, and tries each of three servers, soon again at first.
const CONNECTS_MAX: u32 = 150;

/// A simulation under way.
pub struct World {
    pub now: SimTime,
    pub machines: Vec<Machine>,
    pub ensemble: Ensemble,
    pub leadership: Claims,
    /// The claim, before the step, of the daemon that is being stepped.
    pub claim_before: Option<Claim>,
    pub clients: Clients,
    pub random: Rng,
    pub counts: Counts,
    links: BTreeMap<u64, Link>,
    agenda: BTreeMap<(SimTime, u64), Event>,
    planned: u64,
    lives: usize,
    violation: Option<Violation>,
}

/// A machine with one daemon.
pub struct Machine {
    pub settings: DaemonSettings,
    pub clock: MachineClock,
    pub daemon: Option<Daemon>,
    pub frozen_until: SimTime,
    /// The ways to the servers.
    pub paths: Vec<Path>,
    /// Which of all daemons' lives this is.
    life: usize,
    wakes_at: Option<SimTime>,
    /// How many bytes of memory its daemon's steps have taken, less what they have given back.
    pub memory_bytes: isize,
    /// In which second it has asked for connections, and how often.
    connects: (SimTime, u32),
    /// How late it is woken, at most, in microseconds.
    pub wake_delay_us: u64,
}

/// What was done in a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub faults: u64,
    pub requests: u64,
}

/// Something that happens at its time.
pub enum Event {
    Wake { machine: usize },
    Thaw { machine: usize },
    Start { machine: usize },
    Connect { link: u64 },
    ToServer { link: u64, bytes: Vec<u8> },
    ServerSeesEnd { link: u64 },
    ToDaemon { link: u64, bytes: Vec<u8> },
    DaemonSeesEnd { link: u64 },
    RestartServer { server: usize },
    ResumeServer { server: usize },
    EndLag { server: usize },
    Store(StoreCall),
    ResumeMembers,
    LoseTransaction,
    NextFault,
    NextClient,
}

impl Machine {
    pub fn new(settings: DaemonSettings, clock: MachineClock, servers: usize) -> Self {
        Self {
            settings,
            clock,
            daemon: None,
            frozen_until: 0,
            paths: vec![Path::GOOD; servers],
            life: 0,
            wakes_at: None,
            memory_bytes: 0,
            connects: (0, 0),
            wake_delay_us: 200,
        }
    }

    pub fn is_frozen(&self, now: SimTime) -> bool {
        now < self.frozen_until
    }
}

impl World {
    pub fn new(machines: Vec<Machine>, ensemble: Ensemble, random: Rng) -> Self {
        Self {
            now: 0,
            clients: Clients::new(machines.len()),
            machines,
            ensemble,
            leadership: Claims::new("leadership", 1),
            claim_before: None,
            random,
            counts: Counts::default(),
            links: BTreeMap::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            lives: 0,
            violation: None,
        }
    }

    pub fn plan(&mut self, at: SimTime, event: Event) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), event);
    }

    /// Runs until this moment, or until something has happened that must not.
    ///
    /// # Errors
    /// What has happened.
    pub fn run_until(&mut self, end: SimTime) -> Result<(), Violation> {
        loop {
            let event_at = self.agenda.first_key_value().map_or(SimTime::MAX, |((at, _), _)| *at);
            let next = event_at.min(self.ensemble.due_at());
            self.now = next.min(end).max(self.now);
            journal::set_now(self.now);
            if next > end {
                return Ok(());
            }
            if self.ensemble.due_at() <= next {
                let outputs = self.ensemble.run(self.now);
                self.pass_on(outputs);
            } else if let Some((_, event)) = self.agenda.pop_first() {
                self.handle(event);
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
    }

    pub fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake { machine } => {
                if self.machines[machine].wakes_at.is_some_and(|at| at <= self.now) {
                    self.step(machine);
                }
            }
            Event::Thaw { machine } => {
                if self.machines[machine].daemon.is_some()
                    && !self.machines[machine].is_frozen(self.now)
                {
                    note(format_args!("{} goes on", self.machines[machine].settings.id));
                    crate::clients::ask_after_freeze(self, machine);
                    self.step(machine);
                }
            }
            Event::Start { machine } => self.start(machine),
            Event::Connect { link } => self.connect(link),
            Event::ToServer { link, bytes } => self.deliver_to_server(link, bytes),
            Event::ServerSeesEnd { link } => {
                if let Some(ended) = self.links.remove(&link) {
                    self.ensemble.disconnect(ended.server, link, self.now);
                }
            }
            Event::ToDaemon { link, bytes } => {
                if let Some(to) = self.links.get_mut(&link).filter(|to| !to.is_deaf) {
                    to.write(&bytes);
                    let machine = to.machine;
                    self.wake(machine);
                }
            }
            Event::DaemonSeesEnd { link } => {
                if let Some(to) = self.links.get_mut(&link).filter(|to| !to.is_deaf) {
                    let machine = to.machine;
                    self.links.remove(&link);
                    self.wake(machine);
                }
            }
            Event::RestartServer { server } => {
                if !self.ensemble.is_up(server) {
                    note(format_args!("server {server} starts again"));
                    self.ensemble.restart(server, self.now);
                }
            }
            Event::ResumeServer { server } => {
                if self.ensemble.is_stopped(server) {
                    note(format_args!("server {server} goes on"));
                    self.ensemble.resume(server, self.now);
                    self.serve();
                }
            }
            Event::EndLag { server } => self.ensemble.end_lag(server),
            Event::ResumeMembers => crate::clients::resume_all(self),
            Event::Store(call) => crate::store::arrive(self, call),
            Event::LoseTransaction => crate::faults::lose_transaction(self),
            Event::NextFault => crate::faults::strike_at_random(self),
            Event::NextClient => crate::clients::act_at_random(self),
        }
    }

    /// Starts a daemon, or another life of one that was killed.
    pub fn start(&mut self, machine: usize) {
        if self.machines[machine].daemon.is_some() {
            return;
        }
        self.lives += 1;
        let starting = &mut self.machines[machine];
        starting.life = self.lives;
        starting.frozen_until = 0;
        starting.wakes_at = None;
        kernel::set_clock(starting.clock.at(self.now));
        kernel::set_owner(starting.life);
        journal::set_speaker(&starting.settings.id);
        note(format_args!("{} starts", starting.settings.id));
        starting.daemon = Some(Daemon::start(&starting.settings));
        self.step(machine);
    }

    /// Ends a daemon as SIGKILL does.
    pub fn kill(&mut self, machine: usize) {
        let Some(daemon) = self.machines[machine].daemon.take() else { return };
        let life = self.machines[machine].life;
        self.clients.forget(machine);
        let own = self.links.iter_mut().filter(|(_, link)| link.machine == machine);
        let mut ended = vec![];
        for (id, link) in own {
            link.close();
            let path = self.machines[machine].paths[link.server];
            ended.push((link.arrives_at_server(&path, self.now, &mut self.random), *id));
        }
        for (at, link) in ended {
            self.plan(at, Event::ServerSeesEnd { link });
        }
        kernel::set_clock(self.machines[machine].clock.at(self.now));
        journal::set_speaker(&self.machines[machine].settings.id);
        daemon.kill();
        kernel::forget(life);
    }

    pub fn freeze(&mut self, machine: usize, span: SimTime) {
        let until = self.now + span;
        self.machines[machine].frozen_until = until;
        self.plan(until, Event::Thaw { machine });
    }

    /// Cuts the connections of a machine to a server. With neither side told, one side or both wait for nothing.
    pub fn cut(&mut self, machine: usize, server: usize, is_half_open: bool) {
        let concerned: Vec<_> = self
            .links
            .iter()
            .filter(|(_, link)| link.machine == machine && link.server == server)
            .map(|(id, _)| *id)
            .collect();
        for link in concerned {
            if is_half_open {
                let cut = self.links.get_mut(&link).expect("it is in the list");
                cut.is_deaf = true;
                cut.is_mute = self.random.bool();
                let at = self.now + self.random.u64(SECOND..30 * SECOND);
                self.plan(at, Event::ServerSeesEnd { link });
            } else {
                self.plan(self.now, Event::DaemonSeesEnd { link });
                self.ensemble.disconnect(server, link, self.now);
            }
        }
    }

    /// Has the servers read none of what a machine sends for so long.
    pub fn read_slowly(&mut self, machine: usize, until: SimTime) {
        self.links
            .values_mut()
            .filter(|link| link.machine == machine)
            .for_each(|link| link.unread_until = until);
        self.plan(until, Event::Wake { machine });
        self.machines[machine].wakes_at.get_or_insert(until);
    }

    /// Wakes a daemon soon: as late as its machine is busy.
    pub fn wake(&mut self, machine: usize) {
        let delay =
            self.random.u64(0..=self.machines[machine].wake_delay_us) * (MILLISECOND / 1000);
        self.wake_at(machine, self.now + delay);
    }

    fn wake_at(&mut self, machine: usize, at: SimTime) {
        let sleeping = &mut self.machines[machine];
        if sleeping.wakes_at.is_none_or(|before| at < before) {
            sleeping.wakes_at = Some(at);
            self.plan(at, Event::Wake { machine });
        }
    }

    /// Runs a daemon until all its tasks wait.
    pub fn step(&mut self, machine: usize) {
        let stepped = &mut self.machines[machine];
        stepped.wakes_at = None;
        let Some(daemon) = stepped.daemon.as_ref().filter(|_| !stepped.is_frozen(self.now)) else {
            return;
        };
        self.counts.steps += 1;
        self.claim_before = self.leadership.of(machine, self.now);
        kernel::set_clock(stepped.clock.at(self.now));
        kernel::set_owner(stepped.life);
        journal::set_speaker(&stepped.settings.id);
        kernel::ring_timers(stepped.life);
        let before = memory::in_use();
        let wait = daemon.step();
        stepped.memory_bytes += memory::in_use().cast_signed() - before.cast_signed();
        if let Some(panic) = panics::take() {
            self.violation = Some(Violation(format!("{} panicked: {panic}", stepped.settings.id)));
        }
        let rings_at = kernel::ring_timers(stepped.life).map(|at| stepped.clock.moment(at));
        let times_out_at = match wait {
            Wait::Forever => None,
            Wait::For(span) => Some(self.now + stepped.clock.span(span)),
        };
        if let Some(at) = rings_at.into_iter().chain(times_out_at).min() {
            // Timers are late by as much as the machine is busy.
            let late = self.random.u64(0..=stepped.wake_delay_us) * (MILLISECOND / 1000);
            self.wake_at(machine, at.max(self.now + 1000) + late);
        }
        self.take_connecting(machine);
        self.take_sent(machine);
        self.observe(machine);
        crate::clients::look(self, machine);
    }

    fn take_connecting(&mut self, machine: usize) {
        for connecting in kernel::take_connecting() {
            let second = self.now / SECOND;
            let connects = &mut self.machines[machine].connects;
            let before = if connects.0 == second { connects.1 } else { 0 };
            *connects = (second, before + 1);
            if connects.1 > CONNECTS_MAX {
                let id = &self.machines[machine].settings.id;
                let violation =
                    format!("{id} asks for more than {CONNECTS_MAX} connections in a second");
                self.violation = Some(Violation(violation));
            }
            let Some(server) = self.ensemble.server_at(connecting.to) else {
                kernel::refuse(connecting.id, libc::EHOSTUNREACH);
                continue;
            };
            let mut link = Link::new(machine, server, connecting.peer);
            let path = self.machines[machine].paths[server];
            let at = link.arrives_at_server(&path, self.now, &mut self.random);
            self.links.insert(connecting.id, link);
            self.plan(at, Event::Connect { link: connecting.id });
        }
    }

    /// The first packet of a connection has arrived at a server.
    fn connect(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let machine = link.machine;
        let path = &self.machines[machine].paths[link.server];
        if !self.ensemble.listens(link.server, self.now) || self.now < path.refuses_until {
            kernel::refuse(id, libc::ECONNREFUSED);
            self.links.remove(&id);
        } else {
            kernel::establish(id);
            link.is_open = true;
            let server = link.server;
            self.ensemble.accept(server, id);
        }
        self.wake(machine);
    }

    fn take_sent(&mut self, machine: usize) {
        let mut sent = vec![];
        for (id, link) in self.links.iter_mut().filter(|(_, link)| link.machine == machine) {
            if link.is_closed() || self.now < link.unread_until {
                continue;
            }
            // There may be room again for what did not fit.
            link.write(&[]);
            let read = link.read();
            if read.bytes.is_empty() && !read.has_ended {
                continue;
            }
            let path = self.machines[machine].paths[link.server];
            let at = link.arrives_at_server(&path, self.now, &mut self.random);
            sent.push((*id, at, read));
        }
        for (link, at, read) in sent {
            if !read.bytes.is_empty() {
                self.plan(at, Event::ToServer { link, bytes: read.bytes });
            }
            if read.has_ended {
                self.plan(at, Event::ServerSeesEnd { link });
            }
        }
    }

    fn deliver_to_server(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(link) = self.links.get(&id).filter(|link| link.is_open && !link.is_mute) else {
            return;
        };
        let server = link.server;
        self.ensemble.receive(server, id, &bytes, self.now);
        self.serve();
    }

    fn serve(&mut self) {
        let outputs = self.ensemble.run(self.now);
        self.pass_on(outputs);
    }

    /// Sends what servers do to connections.
    pub fn pass_on(&mut self, outputs: Vec<(u64, ServerOutput)>) {
        for (id, output) in outputs {
            let Some(link) = self.links.get_mut(&id) else { continue };
            let server = link.server;
            let path = self.machines[link.machine].paths[server];
            let at = link.arrives_at_daemon(&path, self.now, &mut self.random);
            match output {
                ServerOutput::Bytes(bytes) => self.plan(at, Event::ToDaemon { link: id, bytes }),
                ServerOutput::Close | ServerOutput::Drop => {
                    self.plan(at, Event::DaemonSeesEnd { link: id });
                    self.ensemble.disconnect(server, id, self.now);
                }
            }
        }
    }

    /// Judges what a daemon publishes.
    fn observe(&mut self, machine: usize) {
        let observed = &self.machines[machine];
        let Some(daemon) = &observed.daemon else { return };
        let id = observed.settings.id.clone();
        let reading = observed.clock.at(self.now);
        let now = Moment(Duration::from_nanos(reading));
        let snapshot = daemon.snapshot();
        let way = snapshot.standing.acquired_by();
        match snapshot.standing.at(now) {
            Role::Leader { announcement, left } => {
                let left = u64::try_from(left.as_nanos()).expect("a lease is short");
                let until = observed.clock.moment(reading + left);
                let Ticket { sequence, token } = announcement.ticket;
                let excused_since = self
                    .is_excused(way, sequence)
                    .then(|| self.leadership.excused_since(machine, token.0).unwrap_or(self.now));
                let claim = Claim { token: token.0, until, is_shared: false, excused_since };
                let longest = u64::try_from(observed.settings.session_timeout.as_nanos());
                let longest = longest.expect("it is short");
                if excused_since.is_some_and(|since| self.now - since > longest) {
                    self.fail(Violation(format!("{id} leads on without a claim")));
                }
                match self.leadership.claim(machine, claim, self.now) {
                    Ok(true) => note(format_args!("{id} LEADS, {claim}")),
                    Ok(false) => {}
                    Err(violation) => self.fail(violation),
                }
            }
            _ => {
                if self.leadership.release(machine) {
                    note(format_args!("{id} leads no longer"));
                }
            }
        }
    }

    /// Whether a member that leads may do so beside another: by the notification of a server that does not show another
    /// standby, until its claim is answered.
    fn is_excused(&self, way: Option<AcquiredBy>, sequence: Sequence) -> bool {
        // Also after that server was repaired: the answer may still be on its way.
        self.leadership.tokens_may_fall
            && way == Some(AcquiredBy::Notification)
            && !lost::has_claim(self.ensemble.committed(), &sequence.name("leader_"))
    }

    /// Forgets the faults and the clients that are still to come.
    pub fn stop_planning(&mut self) {
        self.agenda.retain(|_, event| {
            !matches!(event, Event::NextFault | Event::LoseTransaction | Event::NextClient)
        });
    }
}
