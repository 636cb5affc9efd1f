//! The faults: what each does, how long it lasts, and what may be expected of the members meanwhile.

use crate::{
    expire::expire,
    member::{Handovers, SHORT_SESSION},
    process::signal,
    requests::Requests,
    sampler::{Overlap, Stint, led_before_a_deadline, longest_without_a_leader, overlaps},
    testbed::{Place, Roles, Testbed},
    transaction_log::{CLOSE_SESSION, CREATE},
    wait::eventually,
};
use rustix::process::Signal;
use std::{
    fmt, thread,
    time::{Duration, Instant},
};

/// "The head server" is the one that ZooKeeper's other servers follow; "the leader" is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    LeaderCutOff,
    LeaderCutOffWithItsFollowerServer,
    LeaderCutOffWithTheHeadServer,
    NothingFromTheLeaderToTheServers,
    NothingFromTheServersToTheLeader,
    NothingFromTheLeadersServerToTheHeadServer,
    LeadersServerStopped,
    HeadServerStoppedThenDeafThenContinued,
    AllServersKilled,
    LeadersServerRestarted,
    SlowAndLossy,
    LeaderKilled,
    LeaderStoppedForHalfASession,
    LeaderStoppedForASession,
    LeaderStoppedForThreeSessions,
    LeaderFrozenAmidRequests,
    LeaderKilledAmidATransfer,
    TargetKilledAmidATransfer,
    LeaderTerminated,
    LeaderResigned,
    LeadershipTransferred,
    LeadershipPreempted,
    LeaderPaused,
    LeaderDrainedAndTerminated,
    AllMembersRestartedOneByOne,
    LeadersZnodeDeleted,
    ElectionDeleted,
    LeadersSessionExpired,
    FollowerServerLosesTheLeadersZnode,
    FollowerServerLosesTheEndOfTheLeader,
    SidecarOfACommandKilled,
    SidecarOfACommandStopped,
    InnerGuardKilled,
    InnerGuardStoppedAndLeaderCutOff,
    OuterGuardKilled,
    OuterGuardStoppedAndLeaderCutOff,
    LeaderRestarted,
    LeaderRestartedAgainAndAgain,
    LeaderStoppedBesideASecondProcess,
}

/// Faults of different kinds can strike at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of the network or the servers.
    Surroundings,
    /// Of a member's process.
    Process,
    /// No fault but an operator's command: members do what they can for a short hand-over.
    Order,
    /// The leader is frozen while it is asked a lot.
    Freeze,
    /// Of one of the three processes that watch over a command of `exec`.
    Watcher(Watcher),
    /// The process of a leader that keeps its session in a file is ended, and the next one finds the file.
    Restart,
    /// A server starts again and has lost a transaction.
    Loss,
    /// Force by another client, which no lease covers: two may lead for a while, and the token decides.
    Force,
}

/// Of the sidecar and its two guards, any two may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    Sidecar,
    OuterGuard,
    InnerGuard,
}

/// Until when a fault lasts.
enum Lasts {
    NoLonger,
    For(Duration),
    UntilAnotherLeads,
}

/// What came of the faults that struck together.
pub(crate) struct Outcome {
    pub(crate) faults: Vec<Fault>,
    pub(crate) struck: Instant,
    pub(crate) settled: Instant,
    /// The longest time without a leader since one was possible, and what it should be at most.
    pub(crate) leaderless: Duration,
    pub(crate) bound: Duration,
    /// The overlaps since the faults before these.
    pub(crate) overlaps: Vec<Overlap>,
    /// Leaders, and the next ones that led before a deadline that those had told, though they gave nothing up: an
    /// application that goes by the deadline acts beside another's.
    pub(crate) too_soon: Vec<(Stint, Stint)>,
    /// How many times a leader that was to be frozen, or had been, said yes.
    pub(crate) yeses: usize,
    /// Those that were not true any more when they were asked for.
    pub(crate) late_yeses: Vec<String>,
    /// How members that still ran afterwards had come to lead.
    pub(crate) handovers: Handovers,
    /// The leader once all was well again, or what was not well.
    pub(crate) result: Result<String, String>,
}

/// How many times its bound the time without a leader may be. A busy machine is slow; a member that is
/// stuck stays stuck.
pub(crate) const PATIENCE: u32 = 4;

/// How long a fault lasts at most if no other member takes over.
const LONG_ENOUGH: Duration = SHORT_SESSION.saturating_mul(6);

/// How long a fault goes on once another leads, while the old leader may not have noticed.
const ASIDE: Duration = Duration::from_millis(700);

impl Fault {
    pub(crate) const CUTS: &[Self] = &[
        Self::LeaderCutOff,
        Self::LeaderCutOffWithItsFollowerServer,
        Self::LeaderCutOffWithTheHeadServer,
    ];

    pub(crate) const LOSSES: &[Self] = &[
        Self::NothingFromTheLeaderToTheServers,
        Self::NothingFromTheServersToTheLeader,
        Self::NothingFromTheLeadersServerToTheHeadServer,
        Self::SlowAndLossy,
    ];

    pub(crate) const OF_SERVERS: &[Self] = &[
        Self::LeadersServerStopped,
        Self::HeadServerStoppedThenDeafThenContinued,
        Self::AllServersKilled,
        Self::LeadersServerRestarted,
    ];

    pub(crate) const OF_THE_LEADER: &[Self] = &[
        Self::LeaderKilled,
        Self::LeaderStoppedForHalfASession,
        Self::LeaderStoppedForASession,
        Self::LeaderStoppedForThreeSessions,
        Self::LeaderFrozenAmidRequests,
        Self::LeaderKilledAmidATransfer,
        Self::TargetKilledAmidATransfer,
        Self::LeaderTerminated,
    ];

    /// After each of these a member has handed over.
    pub(crate) const ORDERLY: &[Self] = &[
        Self::LeaderTerminated,
        Self::LeaderResigned,
        Self::LeadershipTransferred,
        Self::LeadershipPreempted,
        Self::LeaderPaused,
        Self::LeaderDrainedAndTerminated,
        Self::AllMembersRestartedOneByOne,
    ];

    pub(crate) const BY_UNKNOWN_CLIENTS: &[Self] =
        &[Self::LeadersZnodeDeleted, Self::ElectionDeleted, Self::LeadersSessionExpired];

    pub(crate) const OF_A_LOG: &[Self] =
        &[Self::FollowerServerLosesTheLeadersZnode, Self::FollowerServerLosesTheEndOfTheLeader];

    pub(crate) const OF_WATCHERS: &[Self] = &[
        Self::SidecarOfACommandKilled,
        Self::SidecarOfACommandStopped,
        Self::InnerGuardKilled,
        Self::InnerGuardStoppedAndLeaderCutOff,
        Self::OuterGuardKilled,
        Self::OuterGuardStoppedAndLeaderCutOff,
    ];

    /// Members with a session file suffer these.
    pub(crate) const OF_RESTARTS: &[Self] = &[
        Self::LeaderRestarted,
        Self::LeaderRestartedAgainAndAgain,
        Self::LeaderStoppedBesideASecondProcess,
    ];

    pub(crate) const ALL: [Self; 39] = [
        Self::LeaderCutOff,
        Self::LeaderCutOffWithItsFollowerServer,
        Self::LeaderCutOffWithTheHeadServer,
        Self::NothingFromTheLeaderToTheServers,
        Self::NothingFromTheServersToTheLeader,
        Self::NothingFromTheLeadersServerToTheHeadServer,
        Self::LeadersServerStopped,
        Self::HeadServerStoppedThenDeafThenContinued,
        Self::AllServersKilled,
        Self::LeadersServerRestarted,
        Self::SlowAndLossy,
        Self::LeaderKilled,
        Self::LeaderStoppedForHalfASession,
        Self::LeaderStoppedForASession,
        Self::LeaderStoppedForThreeSessions,
        Self::LeaderFrozenAmidRequests,
        Self::LeaderKilledAmidATransfer,
        Self::TargetKilledAmidATransfer,
        Self::LeaderTerminated,
        Self::LeaderResigned,
        Self::LeadershipTransferred,
        Self::LeadershipPreempted,
        Self::LeaderPaused,
        Self::LeaderDrainedAndTerminated,
        Self::AllMembersRestartedOneByOne,
        Self::LeadersZnodeDeleted,
        Self::ElectionDeleted,
        Self::LeadersSessionExpired,
        Self::FollowerServerLosesTheLeadersZnode,
        Self::FollowerServerLosesTheEndOfTheLeader,
        Self::SidecarOfACommandKilled,
        Self::SidecarOfACommandStopped,
        Self::InnerGuardKilled,
        Self::InnerGuardStoppedAndLeaderCutOff,
        Self::OuterGuardKilled,
        Self::OuterGuardStoppedAndLeaderCutOff,
        Self::LeaderRestarted,
        Self::LeaderRestartedAgainAndAgain,
        Self::LeaderStoppedBesideASecondProcess,
    ];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::LeaderCutOff
            | Self::LeaderCutOffWithItsFollowerServer
            | Self::LeaderCutOffWithTheHeadServer
            | Self::NothingFromTheLeaderToTheServers
            | Self::NothingFromTheServersToTheLeader
            | Self::NothingFromTheLeadersServerToTheHeadServer
            | Self::LeadersServerStopped
            | Self::HeadServerStoppedThenDeafThenContinued
            | Self::AllServersKilled
            | Self::LeadersServerRestarted
            | Self::SlowAndLossy => Kind::Surroundings,
            Self::LeaderKilled
            | Self::LeaderStoppedForHalfASession
            | Self::LeaderStoppedForASession
            | Self::LeaderStoppedForThreeSessions
            | Self::LeaderKilledAmidATransfer
            | Self::TargetKilledAmidATransfer
            | Self::LeaderTerminated => Kind::Process,
            Self::LeaderFrozenAmidRequests => Kind::Freeze,
            Self::SidecarOfACommandKilled | Self::SidecarOfACommandStopped => {
                Kind::Watcher(Watcher::Sidecar)
            }
            Self::InnerGuardKilled | Self::InnerGuardStoppedAndLeaderCutOff => {
                Kind::Watcher(Watcher::InnerGuard)
            }
            Self::OuterGuardKilled | Self::OuterGuardStoppedAndLeaderCutOff => {
                Kind::Watcher(Watcher::OuterGuard)
            }
            Self::LeaderRestarted
            | Self::LeaderRestartedAgainAndAgain
            | Self::LeaderStoppedBesideASecondProcess => Kind::Restart,
            Self::LeaderResigned
            | Self::LeadershipTransferred
            | Self::LeadershipPreempted
            | Self::LeaderPaused
            | Self::LeaderDrainedAndTerminated
            | Self::AllMembersRestartedOneByOne => Kind::Order,
            Self::LeadersZnodeDeleted | Self::ElectionDeleted | Self::LeadersSessionExpired => {
                Kind::Force
            }
            Self::FollowerServerLosesTheLeadersZnode
            | Self::FollowerServerLosesTheEndOfTheLeader => Kind::Loss,
        }
    }

    /// Returns whether these two faults can strike at once.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        let answered = |fault: Self| !fault.stops_all() && !fault.loses_the_head_server();
        match (self.kind(), other.kind()) {
            (Kind::Surroundings, _) if other.asks_zookeeper() => answered(self),
            (Kind::Watcher(one), Kind::Watcher(another)) => one != another,
            // A leader that runs a command may be connected to any server.
            (Kind::Surroundings, Kind::Watcher(_)) => self.place() == Place::Anywhere,
            (Kind::Surroundings, Kind::Process | Kind::Restart)
            | (Kind::Process | Kind::Restart, Kind::Force) => true,
            _ => false,
        }
    }

    /// Whether it can strike only while the servers answer: another client's force, and what begins with a look at the queue.
    fn asks_zookeeper(self) -> bool {
        self.kind() == Kind::Force
            || matches!(self, Self::LeaderKilledAmidATransfer | Self::TargetKilledAmidATransfer)
    }

    pub(crate) fn needs_a_command(self) -> bool {
        matches!(self.kind(), Kind::Watcher(_))
    }

    pub(crate) fn needs_a_session_file(self) -> bool {
        self.kind() == Kind::Restart
    }

    fn place(self) -> Place {
        match self {
            Self::LeaderCutOffWithItsFollowerServer
            | Self::NothingFromTheLeadersServerToTheHeadServer
            | Self::LeadersServerStopped
            | Self::HeadServerStoppedThenDeafThenContinued => Place::AtAFollower,
            Self::LeaderCutOffWithTheHeadServer => Place::AtTheHeadServer,
            _ if self.needs_a_command() => Place::RunsACommand,
            _ => Place::Anywhere,
        }
    }

    fn lasts(self) -> Lasts {
        match self {
            Self::AllServersKilled
            | Self::LeadersServerRestarted
            | Self::TargetKilledAmidATransfer
            | Self::LeaderTerminated
            | Self::LeaderResigned
            | Self::LeadershipTransferred
            | Self::LeadershipPreempted
            | Self::LeaderDrainedAndTerminated
            | Self::AllMembersRestartedOneByOne
            | Self::LeaderRestarted
            | Self::LeaderRestartedAgainAndAgain => Lasts::NoLonger,
            Self::LeadersServerStopped => Lasts::For(SHORT_SESSION * 3 / 2),
            Self::SlowAndLossy
            | Self::InnerGuardKilled
            | Self::OuterGuardKilled
            | Self::FollowerServerLosesTheLeadersZnode
            | Self::FollowerServerLosesTheEndOfTheLeader => Lasts::For(SHORT_SESSION * 2),
            Self::LeaderStoppedForHalfASession => Lasts::For(SHORT_SESSION / 2),
            Self::LeaderStoppedForASession => Lasts::For(SHORT_SESSION),
            Self::LeaderStoppedForThreeSessions => Lasts::For(SHORT_SESSION * 3),
            _ => Lasts::UntilAnotherLeads,
        }
    }

    /// Returns whether perhaps no member can lead while it lasts: then the bound runs from its healing.
    fn stops_all(self) -> bool {
        matches!(self, Self::AllServersKilled | Self::SlowAndLossy)
    }

    /// Returns whether the servers need a new head, or their old one back, before a member can prove anything.
    fn loses_the_head_server(self) -> bool {
        matches!(
            self,
            Self::LeaderCutOffWithTheHeadServer
                | Self::LeadersServerRestarted
                | Self::HeadServerStoppedThenDeafThenContinued
                | Self::AllServersKilled
        )
    }

    fn strike(self, testbed: &mut Testbed, roles: Roles) {
        let leader = [testbed.members_host(roles.leader)];
        let leaders_server = [testbed.servers_host(roles.leaders_server)];
        let head_server = [testbed.servers_host(roles.head_server)];
        let guards = || roles.guards.expect("the leader runs a command");
        match self {
            Self::LeaderCutOff => testbed.network.cut(&leader, &testbed.network.servers),
            Self::LeaderCutOffWithItsFollowerServer => {
                let island = [leader, leaders_server].concat();
                testbed.network.cut(&island, &testbed.all_but(&island));
            }
            Self::LeaderCutOffWithTheHeadServer => {
                let island = [leader, head_server].concat();
                testbed.network.cut(&island, &testbed.all_but(&island));
            }
            Self::NothingFromTheLeaderToTheServers => {
                testbed.network.cut_one_way(&leader, &testbed.network.servers);
            }
            Self::NothingFromTheServersToTheLeader => {
                testbed.network.cut_one_way(&testbed.network.servers, &leader);
            }
            Self::NothingFromTheLeadersServerToTheHeadServer => {
                testbed.tie_to_one_server(roles);
                testbed.network.cut_one_way(&leaders_server, &head_server);
            }
            Self::LeadersServerStopped => testbed.servers.all()[roles.leaders_server].pause(),
            // When it goes on, it answers what the leader had sent meanwhile, and receives nothing later from it:
            // the session's last heartbeat may be far older than the last answer.
            Self::HeadServerStoppedThenDeafThenContinued => {
                testbed.tie_to_one_server(roles);
                testbed.servers.all()[roles.head_server].pause();
                thread::sleep(SHORT_SESSION * 3 / 5);
                testbed.network.cut_one_way(&leaders_server, &head_server);
                testbed.servers.all()[roles.head_server].resume();
            }
            Self::AllServersKilled => testbed.servers.each().for_each(|server| server.kill()),
            Self::LeadersServerRestarted => testbed.servers.all()[roles.leaders_server].kill(),
            Self::SlowAndLossy => testbed.network.slow_down(Duration::from_millis(100), 20),
            Self::LeaderKilled | Self::SidecarOfACommandKilled => {
                testbed.members[roles.leader].kill();
            }
            Self::LeaderStoppedForHalfASession
            | Self::LeaderStoppedForASession
            | Self::LeaderStoppedForThreeSessions
            | Self::SidecarOfACommandStopped => testbed.members[roles.leader].signal("STOP"),
            Self::LeaderFrozenAmidRequests => {
                testbed.requests = Some(Requests::to(&testbed.members[roles.leader]));
                testbed.members[roles.leader].signal("STOP");
            }
            Self::InnerGuardKilled => signal(guards().inner, Signal::KILL),
            Self::OuterGuardKilled => signal(guards().outer, Signal::KILL),
            Self::InnerGuardStoppedAndLeaderCutOff => {
                testbed.stop_guard(guards().inner);
                testbed.network.cut(&leader, &testbed.network.servers);
            }
            Self::OuterGuardStoppedAndLeaderCutOff => {
                testbed.stop_guard(guards().outer);
                testbed.network.cut(&leader, &testbed.network.servers);
            }
            Self::LeaderRestarted => testbed.restart(roles.leader, |setup| setup),
            // Killed as it reads the file, takes the session over, finds its znode, claims.
            Self::LeaderRestartedAgainAndAgain => {
                for _ in 0..5 {
                    testbed.restart(roles.leader, |setup| setup);
                    thread::sleep(Duration::from_millis(fastrand::u64(..60)));
                }
            }
            Self::LeaderStoppedBesideASecondProcess => {
                testbed.members[roles.leader].signal("STOP");
                let said = testbed.second_process(roles.leader);
                assert!(said.contains("is held by another process"), "{said}");
            }
            Self::LeaderTerminated => testbed.terminate(roles.leader),
            Self::LeaderResigned => {
                assert_eq!(testbed.members[roles.leader].post("/resign").status, 202);
            }
            Self::LeadershipTransferred => {
                let moved = testbed.transfer(roles.leader, testbed.last(), None);
                assert_eq!(moved.as_ref().map(|answer| answer.status), Ok(200), "{moved:?}");
            }
            Self::LeadershipPreempted => testbed.preempt(roles.leader, testbed.last()),
            Self::LeaderKilledAmidATransfer => {
                let _or_none = testbed.transfer(roles.leader, testbed.last(), Some(roles.leader));
            }
            Self::TargetKilledAmidATransfer => {
                let target = testbed.last();
                let _or_none = testbed.transfer(roles.leader, target, Some(target));
            }
            Self::LeaderPaused => testbed.pause(roles.leader),
            Self::LeaderDrainedAndTerminated => {
                assert_eq!(testbed.members[roles.leader].post("/drain").status, 200);
                testbed.terminate(roles.leader);
            }
            Self::AllMembersRestartedOneByOne => {
                testbed.restart_one_by_one().expect("after each restart all is well");
            }
            Self::LeadersZnodeDeleted => {
                let queue = testbed.observer.queue("/election", "leader_");
                if let Some(head) = queue.first() {
                    testbed.observer.delete(&format!("/election/{}", head.name));
                }
            }
            Self::ElectionDeleted => {
                testbed.observer.delete("/election");
                testbed.observer.make_path("/election");
            }
            Self::LeadersSessionExpired => {
                let queue = testbed.observer.queue("/election", "leader_");
                if let Some(head) = queue.first() {
                    let server = &testbed.servers.all()[roles.head_server];
                    expire(server, head.stat.ephemeral_owner);
                }
            }
            Self::FollowerServerLosesTheLeadersZnode => {
                let queue = testbed.observer.queue("/election", "leader_");
                let path = queue.first().map(|head| format!("/election/{}", head.name));
                let path = path.expect("one leads");
                testbed.lose(roles, |one| one.kind == CREATE && one.names(&path));
            }
            // A member that joins at that server afterwards waits for the dead leader.
            Self::FollowerServerLosesTheEndOfTheLeader => {
                let queue = testbed.observer.queue("/election", "leader_");
                let dead = queue.first().expect("one leads").clone();
                testbed.members[roles.leader].kill();
                eventually("its session ends", || {
                    let queue = testbed.observer.queue("/election", "leader_");
                    let stands = queue.iter().any(|znode| znode.name == dead.name);
                    if stands { Err(format!("{queue:?}")) } else { Ok(()) }
                });
                let session = dead.stat.ephemeral_owner;
                testbed.lose(roles, |one| one.kind == CLOSE_SESSION && one.session == session);
                let killed = testbed.members[roles.leader].id.clone();
                testbed.start_again(&killed);
            }
        }
    }
}

impl fmt::Display for Fault {
    /// The variant's name in words: `the leader cut off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push(' ');
            }
            words.extend(letter.to_lowercase());
        }
        f.pad(&words)
    }
}

/// Lets these faults strike together, heals them, and waits until all is well again. A fault that
/// lasts until another member leads is healed `linger` later.
pub(crate) fn suffer(testbed: &mut Testbed, faults: &[Fault], linger: Duration) -> Outcome {
    let begun = Instant::now();
    let place = faults.iter().map(|fault| fault.place()).find(|place| *place != Place::Anywhere);
    let roles = testbed.roles_with(place.unwrap_or(Place::Anywhere)).and_then(|roles| {
        testbed.wait_for_standby()?;
        testbed.count_handovers()?;
        Ok(roles)
    });
    let handovers = testbed.handovers;
    let struck = Instant::now();
    let mut healed = struck;
    if let Ok(roles) = &roles {
        testbed.sampler.ask_all();
        let last = testbed.sampler.stints().last().map(|stint| stint.token);
        faults.iter().for_each(|fault| fault.strike(testbed, *roles));
        let ends: Vec<Instant> =
            faults.iter().map(|fault| fault.end(struck, testbed, last, linger)).collect();
        let rest = ends.into_iter().max().expect("there is a fault");
        thread::sleep(rest.saturating_duration_since(Instant::now()));
        testbed.heal();
        healed = Instant::now();
    }
    let result = roles.and_then(|_| {
        let (leader, _) = testbed.settle()?;
        testbed.count_handovers()?;
        Ok(leader.id)
    });
    let settled = Instant::now();
    testbed.sampler.ask_all();

    let stints = testbed.sampler.stints();
    let (yeses, late_yeses) = testbed.requests.take().map(|it| it.end(&stints)).unwrap_or_default();
    let cuts_short = |fault: &Fault| {
        let transfers =
            matches!(fault, Fault::LeaderKilledAmidATransfer | Fault::TargetKilledAmidATransfer);
        Fault::ORDERLY.contains(fault) || fault.kind() == Kind::Force || transfers
    };
    let mut too_soon = led_before_a_deadline(&stints);
    too_soon.retain(|(_, new)| new.from >= struck && !faults.iter().any(cuts_short));
    let possible = if faults.iter().any(|fault| fault.stops_all()) { healed } else { struck };
    Outcome {
        faults: faults.to_vec(),
        struck,
        settled,
        leaderless: longest_without_a_leader(&stints, possible, settled),
        bound: Testbed::bound(faults.iter().any(|fault| fault.loses_the_head_server())),
        overlaps: overlaps(&stints).into_iter().filter(|it| it.at >= begun).collect(),
        too_soon,
        yeses,
        late_yeses,
        handovers: testbed.handovers.since(handovers),
        result,
    }
}

impl Fault {
    /// Returns when it is to be healed. Waits where that depends on what happens.
    fn end(
        self,
        struck: Instant,
        testbed: &Testbed,
        last: Option<u64>,
        linger: Duration,
    ) -> Instant {
        match self.lasts() {
            Lasts::NoLonger => struck,
            Lasts::For(duration) => struck + duration,
            Lasts::UntilAnotherLeads => {
                let another_leads = || {
                    let stints = testbed.sampler.stints();
                    stints.last().is_some_and(|stint| Some(stint.token) > last)
                };
                while !another_leads() && struck.elapsed() < LONG_ENOUGH {
                    thread::sleep(Duration::from_millis(20));
                }
                Instant::now() + ASIDE + linger
            }
        }
    }
}

impl Outcome {
    pub(crate) fn name(&self) -> String {
        let names: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        names.join(" + ")
    }

    /// Returns whether a leader handed over, and no other fault interfered.
    pub(crate) fn is_orderly(&self) -> bool {
        self.faults.iter().all(|fault| Fault::ORDERLY.contains(fault))
    }

    pub(crate) fn is_force(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind() == Kind::Force)
    }
}

/// Checks that most orderly hand-overs went by notification, and that each was counted.
pub(crate) fn went_by_notification<'a>(
    outcomes: impl IntoIterator<Item = &'a Outcome>,
) -> Result<Handovers, String> {
    let mut sum = Handovers::default();
    for outcome in outcomes.into_iter().filter(|outcome| outcome.is_orderly()) {
        if outcome.handovers.total() == 0 {
            return Err(format!("{}: no member counted that it came to lead", outcome.name()));
        }
        sum += outcome.handovers;
    }
    let most = 2 * sum.by_notification > sum.total();
    if most { Ok(sum) } else { Err(format!("{sum:?}")) }
}
