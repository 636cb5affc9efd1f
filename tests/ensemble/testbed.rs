//! Three servers and some members on a network of their own, all watched: what faults strike.

use crate::{
    group::{Named, has_role, look_settled, ready},
    host::Host,
    member::{Answer, Handovers, Member, SHORT_SESSION, Setup},
    network::Network,
    observer::{Observer, Znode},
    process::{children_of, signal},
    requests::Requests,
    sampler::Sampler,
    servers::{Servers, Settings, TICK},
    transaction_log::{Transaction, lose},
    wait::{LIMIT, eventually, within},
};
use rustix::process::Signal;
use serde_json::json;
use std::{fs, net::SocketAddrV4, sync::Arc, thread, time::Duration};

/// As `Server` configures it. It comes to 4 s, longer than a session: a server that is cut off with a
/// member goes on answering that member when the others have already ended its session.
pub(crate) const SYNC_LIMIT: Duration = TICK.saturating_mul(20);

pub(crate) struct Testbed {
    pub(crate) network: Network,
    pub(crate) servers: Servers,
    pub(crate) members: Vec<Member>,
    pub(crate) observer: Observer,
    pub(crate) sampler: Sampler,
    /// Whether the member behind the leader is to be a ready standby when faults strike.
    pub(crate) with_standby: bool,
    /// Whether all members count how they came to lead.
    pub(crate) counts_handovers: bool,
    /// How members came to lead, as far as it was counted.
    pub(crate) handovers: Handovers,
    /// What each member's counters said last, and which process that was.
    counted: Vec<(u32, Handovers)>,
    /// The members that were told to pause.
    paused: Vec<usize>,
    /// The server that lost a transaction.
    wrong_server: Option<usize>,
    /// Whether servers start with a log that lacks a transaction.
    start_with_gaps: bool,
    /// The guards that were stopped.
    stopped: Stopped,
    /// What a leader that was frozen is asked meanwhile.
    pub(crate) requests: Option<Requests>,
    setups: Vec<Setup>,
}

/// Continues these processes when dropped: no test's end kills them while they are stopped.
#[derive(Default)]
struct Stopped(Vec<i32>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|guard| signal(guard, Signal::CONT));
    }
}

/// The members and servers in each role at the moment, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    pub(crate) leader: usize,
    /// The server that the leading member is connected to.
    pub(crate) leaders_server: usize,
    /// The server that the other servers follow.
    pub(crate) head_server: usize,
    /// Of the leading member's command, if it runs one.
    pub(crate) guards: Option<Guards>,
}

/// The processes between a sidecar and its command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards {
    pub(crate) outer: i32,
    pub(crate) inner: i32,
}

/// Where a fault wants the leading member's connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Anywhere,
    AtAFollower,
    AtTheHeadServer,
    /// The leading member is one that runs a command.
    RunsACommand,
}

impl Testbed {
    /// Adapts the setup of each member, by number.
    pub(crate) fn set(members: u8, adapt: impl Fn(usize, Setup) -> Setup) -> Self {
        let network = Network::new(3, members);
        let mut servers = Servers::prepared_on(&network.servers, &Settings::default());
        servers.start();
        let setup = Setup::of(&servers).short_sessions().option("--preempt-after", "1s");
        let numbers = 0..network.members.len();
        let setups: Vec<Setup> = numbers.map(|number| adapt(number, setup.clone())).collect();
        let observer = Observer::of(&servers);
        let members: Vec<Member> = network
            .members
            .iter()
            .zip(&setups)
            .zip('a'..)
            .map(|((host, setup), id)| {
                let member = setup.start_on(host, &id.to_string());
                eventually("a member that just started knows a leader", || ready(&member));
                member
            })
            .collect();
        let sampler = Sampler::of(&members);
        Self {
            counted: vec![Default::default(); members.len()],
            handovers: Handovers::default(),
            paused: vec![],
            wrong_server: None,
            start_with_gaps: servers.start_with_gaps(),
            stopped: Stopped::default(),
            requests: None,
            with_standby: true,
            counts_handovers: true,
            network,
            servers,
            members,
            observer,
            sampler,
            setups,
        }
    }

    /// Returns for how long, at most, no member should lead after a leader was lost.
    ///
    /// A session ends when no request came in it for its timeout, and the servers look once a tick; one that
    /// follows reports its sessions once more in between. Then the next in the queue is notified at once,
    /// or finds out by the next heartbeat, and reads the queue anew one heartbeat later. A lost head server
    /// is noticed after `SYNC_LIMIT`; then the others elect (Seen: below 1 s, on a busy machine more).
    pub(crate) fn bound(head_server_is_lost: bool) -> Duration {
        let session = SHORT_SESSION + 2 * TICK;
        let claim = 2 * (SHORT_SESSION / 10);
        let election = SYNC_LIMIT + Duration::from_secs(2);
        session + claim + if head_server_is_lost { election } else { Duration::ZERO }
    }

    /// Waits until all is well: all follow one leader, and the queue has one znode for each.
    pub(crate) fn settle(&self) -> Result<(Named, Vec<Znode>), String> {
        let members: Vec<&Member> = self.members.iter().collect();
        within(LIMIT, || look_settled(&members, &self.observer))
    }

    /// Lets one member after another lead until the leader's place is right, and returns the roles.
    pub(crate) fn roles_with(&mut self, place: Place) -> Result<Roles, String> {
        for _ in 0..20 {
            let (leader, _) = self.settle()?;
            let number = self.members.iter().position(|member| member.id == leader.id);
            let leader = number.expect("they agreed on a member");
            let (leaders_server, head_server) = (self.server_of(leader), self.head_server());
            let guards = match place {
                Place::RunsACommand => self.guards_of(leader),
                Place::Anywhere | Place::AtAFollower | Place::AtTheHeadServer => None,
            };
            let roles = Roles { leader, leaders_server, head_server, guards };
            let fits = match place {
                Place::Anywhere => true,
                Place::AtAFollower => leaders_server != head_server,
                Place::AtTheHeadServer => leaders_server == head_server,
                Place::RunsACommand => guards.is_some(),
            };
            if fits {
                return Ok(roles);
            }
            // On a busy machine, it may have lost its lease meanwhile, and its command with it.
            if place == Place::RunsACommand && self.setups[leader].runs_a_command() {
                continue;
            }
            self.terminate(leader);
            self.heal();
        }
        Err(format!("after 20 leaders none is {place:?}"))
    }

    /// Waits until the member behind the leader would lead at the notification.
    pub(crate) fn wait_for_standby(&self) -> Result<(), String> {
        if !self.with_standby {
            return Ok(());
        }
        within(LIMIT, || {
            let queue = self.observer.queue("/election", "leader_");
            let next = queue.get(1).ok_or("no member is next")?.json();
            let next = self.members.iter().find(|member| next["id"] == *member.id);
            next.ok_or("an unknown client is next")?.is_ready_standby()
        })
    }

    /// Reads the counters of all members, which must run. What a process has counted since then is lost when it ends.
    pub(crate) fn count_handovers(&mut self) -> Result<(), String> {
        if !self.counts_handovers {
            return Ok(());
        }
        for (member, counted) in self.members.iter().zip(&mut self.counted) {
            let (process, now) = (member.process_id(), member.handovers()?);
            let before = if counted.0 == process { counted.1 } else { Handovers::default() };
            self.handovers += now.since(before);
            *counted = (process, now);
        }
        Ok(())
    }

    pub(crate) fn terminate(&mut self, member: usize) {
        self.members[member].signal("TERM");
        self.members[member].wait();
    }

    /// Returns the member at the tail of the queue.
    pub(crate) fn last(&self) -> usize {
        let queue = self.observer.queue("/election", "leader_");
        let last = queue.last().expect("all are in the queue").json();
        self.members.iter().position(|it| last["id"] == *it.id).expect("it is one of them")
    }

    /// Has the leader hand over to this member, and kills one of them amid that, if that is wanted.
    pub(crate) fn transfer(
        &mut self,
        leader: usize,
        target: usize,
        killed: Option<usize>,
    ) -> Result<Answer, String> {
        let body = json!({"to": self.members[target].id, "within_ms": 5000}).to_string();
        let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
        let members = &self.members;
        let answer = thread::scope(|scope| {
            let asked =
                scope.spawn(|| members[leader].try_send("POST", "/transfer", &headers, &body));
            if let Some(killed) = killed {
                thread::sleep(Duration::from_millis(fastrand::u64(..600)));
                members[killed].signal("KILL");
            }
            asked.join().expect("it does not panic").map_err(|error| error.to_string())
        });
        if let Some(killed) = killed {
            self.members[killed].kill();
        }
        answer
    }

    /// Gives this member a higher priority until the leader has handed over to it. Where another has led for less than the
    /// wait, that is a while.
    pub(crate) fn preempt(&self, leader: usize, target: usize) {
        let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
        let patch = |priority: &str| {
            let body = format!("{{\"priority\": {priority}}}");
            let patched = self.members[target].send("PATCH", "/member", &headers, &body);
            assert_eq!(patched.status, 200, "{patched:?}");
        };
        patch("90");
        if target != leader {
            eventually("the leader has handed over", || has_role(&self.members[target], "leader"));
        }
        patch("null");
    }

    /// Pauses this member until `heal`.
    pub(crate) fn pause(&mut self, member: usize) {
        assert_eq!(self.members[member].post("/pause").status, 200);
        self.paused.push(member);
    }

    /// Restarts one member after another, with a hand-over for each that leads.
    pub(crate) fn restart_one_by_one(&mut self) -> Result<(), String> {
        for member in 0..self.members.len() {
            self.terminate(member);
            self.heal();
            self.settle()?;
            self.wait_for_standby()?;
            self.count_handovers()?;
        }
        Ok(())
    }

    pub(crate) fn members_host(&self, member: usize) -> Arc<Host> {
        Arc::clone(&self.network.members[member])
    }

    pub(crate) fn servers_host(&self, server: usize) -> Arc<Host> {
        Arc::clone(&self.network.servers[server])
    }

    /// Leaves the leading member no server but the one that it talks to.
    ///
    /// Else it would soon miss an answer, ask another server, and go on leading.
    pub(crate) fn tie_to_one_server(&self, roles: Roles) {
        let mut others = self.network.servers.clone();
        others.remove(roles.leaders_server);
        self.network.cut(&[self.members_host(roles.leader)], &others);
    }

    /// Has one of the servers that follow start again without this transaction, if it can: a snapshot may have it.
    pub(crate) fn lose(&mut self, roles: Roles, wanted: impl Fn(&Transaction<'_>) -> bool) {
        let wrong = (roles.head_server + 1) % self.network.servers.len();
        let name = fastrand::u64(..);
        (0..3).for_each(|n| self.observer.make_path(&format!("/behind/{name}-{n}")));
        let server = &mut self.servers.all()[wrong];
        server.kill();
        let lost = if self.start_with_gaps {
            lose(server, wanted)
        } else {
            Err("no server of this version starts without a transaction".into())
        };
        match lost {
            Ok(()) => self.wrong_server = Some(wrong),
            Err(why) => eprintln!("the server has only started again: {why}"),
        }
        server.start();
    }

    /// Returns all hosts but these.
    pub(crate) fn all_but(&self, some: &[Arc<Host>]) -> Vec<Arc<Host>> {
        let all = self.network.servers.iter().chain(&self.network.members);
        let others =
            all.filter(|host| !some.iter().any(|excepted| excepted.address == host.address));
        others.cloned().collect()
    }

    /// Starts a member that was killed, before all is healed.
    pub(crate) fn start_again(&mut self, id: &str) {
        let mut members = self.members.iter_mut().zip(&self.setups);
        let (member, setup) = members.find(|(member, _)| member.id == id).expect("a member");
        *member = let_in(setup, &Arc::clone(member.host()), id);
        self.sampler.also(member);
    }

    /// Kills this member and starts it again at once, with such a setup.
    pub(crate) fn restart(&mut self, member: usize, adapt: impl Fn(Setup) -> Setup) {
        let setup = adapt(self.setups[member].clone());
        let member = &mut self.members[member];
        member.kill();
        *member = let_in(&setup, &Arc::clone(member.host()), &member.id);
        self.sampler.also(member);
    }

    /// Starts a second process of this member, waits for its end, and returns what it said.
    pub(crate) fn second_process(&mut self, member: usize) -> String {
        let (setup, member) = (&self.setups[member], &self.members[member]);
        let mut second = setup.start_on(&Arc::clone(member.host()), &member.id);
        let (status, _) = second.wait();
        assert_eq!(status.code(), Some(2), "{}", second.log());
        second.wait_for_log("\n");
        second.log()
    }

    /// Undoes all that was done: nothing is cut, stopped or dead any more.
    pub(crate) fn heal(&mut self) {
        self.network.heal();
        self.servers.each().filter(|server| server.runs()).for_each(|server| server.resume());
        self.stopped = Stopped::default();
        for (member, setup) in self.members.iter_mut().zip(&self.setups) {
            if member.runs() {
                member.signal("CONT");
            } else {
                *member = let_in(setup, &Arc::clone(member.host()), &member.id);
                self.sampler.also(member);
            }
        }
        if let Some(wrong) = self.wrong_server.take() {
            let server = &mut self.servers.all()[wrong];
            server.kill();
            server.forget_all();
        }
        self.servers.revive();
        for member in self.paused.drain(..) {
            assert_eq!(self.members[member].post("/resume").status, 202);
        }
    }

    /// Stops a guard until `heal`.
    pub(crate) fn stop_guard(&mut self, guard: i32) {
        signal(guard, Signal::STOP);
        self.stopped.0.push(guard);
    }

    /// Waits for a session until this member's command runs, and returns its guards, unless it runs none.
    fn guards_of(&self, member: usize) -> Option<Guards> {
        if !self.setups[member].runs_a_command() {
            return None;
        }
        let sidecar = self.members[member].process_id().cast_signed();
        let find = |parent: i32, name: &str| {
            let is_it = |pid: &i32| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).nth(1) == Some(name.as_bytes())
            };
            children_of(parent).into_iter().find(is_it).ok_or_else(|| format!("no {name}"))
        };
        let found = within(SHORT_SESSION, || {
            let outer = find(sidecar, "exec-outer-guard")?;
            let inner = find(outer, "exec-inner-guard")?;
            let runs = !children_of(inner).is_empty();
            if runs { Ok(Guards { outer, inner }) } else { Err("no command".to_owned()) }
        });
        found.ok()
    }

    fn server_of(&mut self, member: usize) -> usize {
        let process = self.members[member].process_id();
        let servers: Vec<SocketAddrV4> =
            self.servers.each().map(|server| server.socket()).collect();
        eventually("the leading member is connected", || {
            let table = fs::read_to_string(format!("/proc/{process}/net/tcp"))
                .map_err(|error| error.to_string())?;
            let mut connected = table.lines().filter_map(remote_end_of_a_connection);
            let found = connected.find_map(|end| servers.iter().position(|it| *it == end));
            found.ok_or(table)
        })
    }

    fn head_server(&mut self) -> usize {
        eventually("one of the servers leads the others", || {
            let modes: Vec<String> =
                self.servers.each().map(|server| server.ask("srvr").unwrap_or_default()).collect();
            let found = modes.iter().position(|mode| mode.contains("Mode: leader"));
            found.ok_or_else(|| modes.concat())
        })
    }
}

/// Starts a member again and again until it listens: while something lives of what its command was, it is refused the
/// session file.
fn let_in(setup: &Setup, host: &Arc<Host>, id: &str) -> Member {
    eventually("the member is let in", || {
        let mut member = setup.start_on(host, id);
        eventually("it listens or ends", || {
            let listens = member.log().contains("listening on");
            if listens || !member.runs() { Ok(()) } else { Err(member.log()) }
        });
        if member.runs() { Ok(member) } else { Err(member.log()) }
    })
}

/// A line of `/proc/net/tcp` has the local end, the remote one and the state in columns; address and port
/// are hexadecimal, the address in this machine's byte order.
fn remote_end_of_a_connection(line: &str) -> Option<SocketAddrV4> {
    const ESTABLISHED: &str = "01";
    let mut columns = line.split_whitespace().skip(2);
    let (address, port) = columns.next()?.split_once(':')?;
    if columns.next()? != ESTABLISHED {
        return None;
    }
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(address.into(), u16::from_str_radix(port, 16).ok()?))
}
