//! Every order of events, within small bounds, against the very same core.

#![allow(clippy::print_stdout, clippy::redundant_clone, reason = "a model tells how large it was")]

mod sim;

use bellwether_recipes::Margins;
use bellwether_recipes::election::Policy;
use sim::{Choice, Faults, Flaw, Rules, World};
use stateright::{Checker, Model, Property};
use std::time::{Duration, Instant};

impl Model for Rules {
    type State = World;
    type Action = Choice;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, choices: &mut Vec<Choice>) {
        world.choices(self, choices);
    }

    fn next_state(&self, world: &World, choice: Choice) -> Option<World> {
        let mut next = world.clone();
        next.apply(choice, self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let recovers = |rules: &Self, world: &World| {
            world.now.0 < rules.horizon || world.clone().heal(rules).is_none()
        };
        let mut properties = vec![
            Property::always("sound", |rules: &Self, world: &World| world.broken(rules).is_none()),
            Property::sometimes("a member leads", |_, world: &World| world.led.is_some()),
            Property::sometimes("leadership passes on", |_, world: &World| {
                world.led.is_some_and(|token| token.0 > 1)
            }),
        ];
        if self.recovers {
            properties.push(Property::always("recovers", recovers));
        }
        properties
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What befalls members, network and servers in operation; rarer faults are added where a test is about them.
const COMMON_FAULTS: Faults = Faults {
    crashes: true,
    cuts: true,
    delays: true,
    lost_reports: true,
    stale_reads: true,
    ..Faults::NONE
};

/// The lease is the shortest there is: two seconds of a session of four, less what clocks may differ by. Two sessions
/// can end within eight seconds. That a session ends when its time is up does not count as a misfortune.
const SMALL: Rules = Rules {
    members: 2,
    timeout: Duration::from_secs(4),
    policy: Policy::new(Margins { heartbeat: SECOND, half_tick: Duration::ZERO }),
    tick: SECOND,
    exact: false,
    moments_differ: false,
    prompt: true,
    horizon: Duration::from_secs(8),
    misfortunes_max: 2,
    sessions_max: 5,
    faults: Faults::NONE,
    flaw: None,
    settled: false,
    aged: Duration::ZERO,
    at_wrong: &[],
    only_wrong: false,
    priorities: &[],
    recovers: false,
    among: false,
};

/// Heartbeats come so close together that a lease lasts for three of a session's four seconds, so that an answer that
/// is a second late makes a difference.
const ALONE: Rules = Rules {
    members: 1,
    policy: Policy::new(Margins {
        heartbeat: Duration::from_millis(250),
        half_tick: Duration::ZERO,
    }),
    ..SMALL
};

/// Heartbeats come half a second apart, so that the standby leads by a lease that is a second old.
const STANDBY: Rules = Rules {
    policy: Policy::new(Margins {
        heartbeat: Duration::from_millis(500),
        half_tick: Duration::ZERO,
    }),
    settled: true,
    ..SMALL
};

#[test]
fn two_members_from_the_start() {
    check(Rules { faults: COMMON_FAULTS, misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_members_from_the_start_and_two_misfortunes() {
    check(Rules { faults: COMMON_FAULTS, ..SMALL }).assert_properties();
}

/// Alone, and so late that its session may end before an answer is delivered.
#[test]
fn one_member_that_is_very_late() {
    let faults = Faults { cuts: true, delays: true, lost_reports: true, ..Faults::NONE };
    check(Rules { misfortunes_max: 5, faults, ..ALONE }).assert_properties();
}

/// The servers may resume a session, and commit what is sent in it, when they have begun to end it.
/// That misleads no leader. (It would mislead a member that claims only then: so the rules begin with a leader, and end
/// within one session's timeout.)
#[test]
fn a_leader_that_comes_back_as_its_session_ends() {
    let faults = Faults { cuts: true, delays: true, stalls: true, ..Faults::NONE };
    check(Rules { misfortunes_max: 5, faults, settled: true, ..ALONE }).assert_properties();
}

#[test]
fn two_members_in_the_queue() {
    let rules = Rules { misfortunes_max: 1, settled: true, faults: COMMON_FAULTS, ..SMALL };
    check(rules).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_members_in_the_queue_and_three_misfortunes() {
    let rules = Rules { misfortunes_max: 3, settled: true, faults: COMMON_FAULTS, ..SMALL };
    check(rules).assert_properties();
}

/// Time alone: late timers, late answers, lost reports.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_members_in_the_queue_and_four_times_late() {
    let faults = Faults { lost_reports: true, ..Faults::NONE };
    check(Rules { misfortunes_max: 4, settled: true, faults, ..SMALL }).assert_properties();
}

/// A second is two heartbeats here: all of them are as far apart as may be, and the lease is the shorter one.
#[test]
fn two_members_whose_heartbeats_are_far_apart() {
    let faults = Faults { lost_reports: true, ..Faults::NONE };
    check(Rules { misfortunes_max: 3, faults, ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_members_whose_heartbeats_are_far_apart_and_four_times_late() {
    let faults = Faults { lost_reports: true, ..Faults::NONE };
    check(Rules { misfortunes_max: 4, faults, ..STANDBY }).assert_properties();
}

#[test]
fn three_members_in_the_queue() {
    let rules = Rules { members: 3, settled: true, faults: COMMON_FAULTS, ..SMALL };
    check(Rules { misfortunes_max: 1, ..rules }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn three_members_and_two_misfortunes() {
    let faults = Faults { crashes: true, lost_reports: true, stale_reads: true, ..Faults::NONE };
    check(Rules { members: 3, settled: true, faults, ..SMALL }).assert_properties();
}

/// No lease covers what unknown clients delete, but only for the length of a lease, and no member is stuck.
#[test]
fn two_members_among_unknown_clients() {
    let faults = Faults { evictions: true, razing: true, ..COMMON_FAULTS };
    check(Rules { faults, settled: true, misfortunes_max: 1, ..SMALL }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn two_members_among_unknown_clients_and_two_misfortunes() {
    let faults = Faults { evictions: true, razing: true, ..COMMON_FAULTS };
    check(Rules { faults, settled: true, ..SMALL }).assert_properties();
}

#[test]
fn a_standby_and_the_leader_resigns() {
    let faults = Faults { resignations: true, cuts: true, delays: true, ..Faults::NONE };
    check(Rules { faults, ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_and_all_misfortunes() {
    let faults = Faults { resignations: true, ..COMMON_FAULTS };
    check(Rules { faults, ..STANDBY }).assert_properties();
}

/// So late that its session may end before it is notified that the head is gone.
#[test]
fn a_standby_that_hears_late() {
    let (tick, horizon) = (Duration::from_millis(1_300), Duration::from_millis(3_900));
    let rules = Rules { tick, horizon, misfortunes_max: 3, settled: true, ..SMALL };
    check(rules).assert_properties();
}

/// So late that its session may end before the commit of its write is delivered.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_whose_write_is_answered_late() {
    let faults = Faults { delays: true, resignations: true, ..Faults::NONE };
    let margins = Margins { heartbeat: Duration::from_millis(900), half_tick: Duration::ZERO };
    let (tick, horizon) = (2 * SECOND, 4 * SECOND);
    let rules = Rules { policy: Policy::new(margins), tick, horizon, misfortunes_max: 3, ..SMALL };
    check(Rules { faults, sessions_max: 3, ..rules }).assert_properties();
}

/// Its session is resumed between a write and the notification, by a server that grants less.
#[test]
fn a_standby_whose_session_is_cut_short() {
    let short_resumptions = Some(Duration::from_secs(2));
    let faults = Faults { cuts: true, resignations: true, short_resumptions, ..Faults::NONE };
    let horizon = Duration::from_secs(2);
    let rules = Rules { policy: ALONE.policy, horizon, misfortunes_max: 4, ..STANDBY };
    check(Rules { faults, sessions_max: 3, ..rules }).assert_properties();
}

#[test]
fn a_standby_whose_session_is_resumed() {
    let faults = Faults { cuts: true, resignations: true, lost_reports: true, ..Faults::NONE };
    check(Rules { faults, horizon: Duration::from_secs(5), ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_whose_session_is_resumed_and_three_misfortunes() {
    let faults = Faults { cuts: true, resignations: true, lost_reports: true, ..Faults::NONE };
    check(Rules { faults, misfortunes_max: 3, ..STANDBY }).assert_properties();
}

/// Unknown clients make znodes by hand. They delete none but these, so nothing is excused.
#[test]
fn a_standby_and_znodes_made_by_hand() {
    let faults = Faults {
        resignations: true,
        forgeries: true,
        cuts: true,
        stale_reads: true,
        ..Faults::NONE
    };
    check(Rules { faults, horizon: Duration::from_secs(5), ..STANDBY }).assert_properties();
}

/// The standby's predecessor is one of them, and is deleted.
#[test]
fn a_standby_behind_a_znode_made_by_hand() {
    let faults = Faults { resignations: true, forgeries: true, ..Faults::NONE };
    let rules = Rules { faults, misfortunes_max: 4, horizon: SECOND, ..STANDBY };
    check(Rules { sessions_max: 4, ..rules }).assert_properties();
}

#[test]
fn a_standby_and_the_path_is_created_again() {
    let faults = Faults { resignations: true, razing: true, cuts: true, ..Faults::NONE };
    check(Rules { faults, horizon: Duration::from_secs(5), ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_among_unknown_clients() {
    let faults = Faults {
        evictions: true,
        forgeries: true,
        razing: true,
        resignations: true,
        ..Faults::NONE
    };
    let faults = Faults { cuts: true, ..faults };
    check(Rules { faults, ..STANDBY }).assert_properties();
}

#[test]
fn a_standby_and_one_behind_it() {
    let faults = Faults { resignations: true, ..COMMON_FAULTS };
    let rules =
        Rules { members: 3, misfortunes_max: 1, horizon: Duration::from_secs(5), ..STANDBY };
    check(Rules { faults, ..rules }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_and_one_behind_it_and_two_misfortunes() {
    let faults = Faults { resignations: true, cuts: true, ..Faults::NONE };
    check(Rules { members: 3, faults, ..STANDBY }).assert_properties();
}

const RESTARTS: Faults = Faults { crashes: true, restarts: true, ..Faults::NONE };

/// A process is killed, and started again, at every point of joining, claiming and leading. What it sent may be received
/// later.
#[test]
fn members_that_are_restarted_from_the_start() {
    let rules = Rules { faults: RESTARTS, horizon: Duration::from_secs(5), ..STANDBY };
    let rules = Rules { settled: false, sessions_max: 4, ..rules };
    check(Rules { misfortunes_max: 1, ..rules }).assert_properties();
}

#[test]
fn members_that_are_restarted_in_the_queue() {
    let rules = Rules { faults: RESTARTS, horizon: Duration::from_secs(5), ..STANDBY };
    check(Rules { misfortunes_max: 1, ..rules }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn members_that_are_restarted_in_the_queue_and_two_misfortunes() {
    let faults = Faults { lost_reports: true, resignations: true, ..RESTARTS };
    let rules = Rules { faults, horizon: Duration::from_secs(5), ..STANDBY };
    check(Rules { sessions_max: 5, ..rules }).assert_properties();
}

/// Killed again at every point of taking its session over, also where that is still joining or claiming.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn members_that_are_restarted_from_the_start_and_again() {
    let rules = Rules { faults: RESTARTS, horizon: SECOND, ..STANDBY };
    let checker = check(Rules { settled: false, sessions_max: 3, ..rules });
    // No session ends within a second, so no other leads.
    checker.assert_any_discovery("a member leads");
    checker.assert_no_discovery("sound");
}

/// The leader resigns, and any of the others is killed at every point of leading in its place, of relaying that, and of
/// naming the leader.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn members_that_are_restarted_while_a_new_leader_is_announced() {
    let faults = Faults { resignations: true, ..RESTARTS };
    let rules = Rules { members: 3, faults, horizon: SECOND, ..STANDBY };
    check(Rules { sessions_max: 3, recovers: true, ..rules }).assert_properties();
}

/// The connection of the process that took the session over is lost as well, or its answers are late.
#[test]
fn a_leader_that_is_restarted_and_cut_off() {
    let faults = Faults { cuts: true, delays: true, lost_reports: true, ..RESTARTS };
    let horizon = Duration::from_secs(5);
    let rules = Rules { misfortunes_max: 2, faults, settled: true, horizon, ..ALONE };
    check(Rules { sessions_max: 3, ..rules }).assert_properties();
}

/// The servers may let a process take its session over when they have begun to end it.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_leader_that_is_restarted_as_its_session_ends() {
    let faults = Faults { stalls: true, ..RESTARTS };
    let horizon = Duration::from_secs(5);
    let rules = Rules { misfortunes_max: 3, faults, settled: true, horizon, ..ALONE };
    check(Rules { sessions_max: 3, ..rules }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_leader_whose_session_is_cut_short_by_a_restart() {
    let short_resumptions = Some(Duration::from_secs(3));
    let faults = Faults { short_resumptions, ..RESTARTS };
    let horizon = Duration::from_secs(5);
    let rules = Rules { misfortunes_max: 3, faults, settled: true, horizon, ..ALONE };
    check(Rules { sessions_max: 3, ..rules }).assert_properties();
}

/// The lock keeps a second process from the session of one that lives. Without it two lead by one session.
#[test]
fn a_second_process_with_the_note_of_one_that_lives() {
    let rules = Rules { flaw: Some(Flaw::NoLock), faults: RESTARTS, ..STANDBY };
    finds(&rules, "two members lead at once");
}

/// A session that was being closed when its process was killed may end at any moment.
#[test]
fn a_session_that_is_closed_before_that_is_noted() {
    let faults = Faults { resignations: true, ..RESTARTS };
    let rules = Rules { flaw: Some(Flaw::LateNote), faults, misfortunes_max: 3, ..STANDBY };
    finds(&rules, "a leader does not stand first");
}

/// One server loses the transaction that ends the leader, and the standby is connected to it.
#[test]
fn a_standby_at_a_server_that_shows_the_dead() {
    let faults = Faults { lost_deletes: true, resignations: true, cuts: true, ..Faults::NONE };
    let horizon = Duration::from_secs(5);
    check(Rules { faults, at_wrong: &[1], horizon, ..STANDBY }).assert_properties();
}

#[test]
fn a_standby_that_finds_no_other_server_than_one_that_shows_the_dead() {
    let faults = Faults { lost_deletes: true, resignations: true, ..Faults::NONE };
    let horizon = Duration::from_secs(5);
    let rules = Rules { faults, at_wrong: &[1], only_wrong: true, horizon, ..STANDBY };
    check(rules).assert_properties();
}

/// One server loses the transaction that made the leader's znode, and starts again.
#[test]
fn a_member_at_a_server_that_lacks_the_leader() {
    let faults = Faults { lost_creates: true, cuts: true, delays: true, ..Faults::NONE };
    let horizon = Duration::from_secs(5);
    check(Rules { faults, at_wrong: &[1], horizon, ..STANDBY }).assert_properties();
}

#[test]
fn a_member_that_finds_no_other_server_than_one_that_lacks_the_leader() {
    let faults = Faults { lost_creates: true, cuts: true, ..Faults::NONE };
    let horizon = Duration::from_secs(5);
    let rules = Rules { faults, at_wrong: &[1], only_wrong: true, horizon, ..STANDBY };
    check(rules).assert_properties();
}

/// Two members are right behind the leader, each by what its own server shows.
#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn the_last_of_three_at_a_server_that_lacks_the_second() {
    let faults = Faults { lost_creates: true, resignations: true, ..Faults::NONE };
    let horizon = Duration::from_secs(4);
    let rules = Rules { members: 3, faults, at_wrong: &[2], only_wrong: true, horizon, ..STANDBY };
    check(rules).assert_properties();
}

/// Its own znode is missing at the server that it is connected to.
#[test]
fn a_member_that_its_own_server_lacks() {
    let faults = Faults { lost_creates: true, cuts: true, ..Faults::NONE };
    let horizon = Duration::from_secs(5);
    check(Rules { faults, at_wrong: &[0, 1], horizon, ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn the_last_of_three_at_a_server_that_loses_anything() {
    let faults = Faults {
        lost_creates: true,
        lost_deletes: true,
        resignations: true,
        cuts: true,
        ..Faults::NONE
    };
    let horizon = Duration::from_secs(4);
    let rules = Rules { members: 3, faults, at_wrong: &[2], horizon, ..STANDBY };
    check(rules).assert_properties();
}

/// To the target by way of one between, and a crash of any of them, or a second transfer, at every step.
#[test]
fn a_transfer_and_a_crash() {
    let faults = Faults { transfers: true, crashes: true, ..Faults::NONE };
    let rules = Rules { members: 3, horizon: Duration::from_secs(2), ..STANDBY };
    check(Rules { faults, sessions_max: 6, ..rules }).assert_properties();
}

/// The second is to lead for its priority, and either crashes, loses its connection, or gets another priority, at every step.
#[test]
fn a_higher_priority_and_a_misfortune() {
    let faults = Faults { priorities: true, crashes: true, cuts: true, ..Faults::NONE };
    let policy = Policy { preempt_after: Some(SECOND), ..STANDBY.policy };
    let rules = Rules { policy, priorities: &[40, 60], horizon: Duration::from_secs(4), ..STANDBY };
    check(Rules { faults, misfortunes_max: 1, recovers: true, ..rules }).assert_properties();
}

/// The same with one between, which has to make way, and a crash of any of them, at every step.
#[test]
fn a_higher_priority_past_one_between() {
    let faults = Faults { crashes: true, ..Faults::NONE };
    let policy = Policy { preempt_after: Some(SECOND), ..STANDBY.policy };
    let horizon = Duration::from_secs(4);
    let rules = Rules { members: 3, policy, priorities: &[40, 40, 60], horizon, ..STANDBY };
    check(Rules { faults, misfortunes_max: 1, ..rules }).assert_properties();
}

/// Some time has passed with all members in the queue: the heartbeats of those behind the third are irregular.
const IDLE: Rules = Rules {
    members: 4,
    policy: Policy::new(Margins {
        heartbeat: Duration::from_millis(400),
        half_tick: Duration::ZERO,
    }),
    tick: Duration::from_millis(400),
    settled: true,
    aged: Duration::from_millis(2_800),
    horizon: Duration::from_millis(3_600),
    ..SMALL
};

/// In any order, so that the last becomes the third and the standby.
#[test]
fn two_at_the_head_leave_at_once() {
    let faults = Faults { departures: true, lost_reports: true, ..Faults::NONE };
    check(Rules { faults, ..IDLE }).assert_properties();
}

/// No time passes: each lease is compared with the earliest end of its session.
#[test]
fn three_at_the_head_leave_at_once() {
    let faults = Faults { departures: true, lost_reports: true, ..Faults::NONE };
    let rules = Rules { members: 5, faults, horizon: IDLE.aged, ..IDLE };
    check(Rules { misfortunes_max: 3, ..rules }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn four_at_the_head_leave_at_once() {
    let faults = Faults { departures: true, ..Faults::NONE };
    let rules = Rules { members: 5, faults, horizon: IDLE.aged, ..IDLE };
    check(Rules { misfortunes_max: 4, ..rules }).assert_properties();
}

#[test]
fn an_idle_member_and_wrong_distances() {
    let faults = Faults { departures: true, wrong_distances: true, ..Faults::NONE };
    let horizon = IDLE.aged + IDLE.tick;
    check(Rules { faults, horizon, ..IDLE }).assert_properties();
}

/// It crashes, and its session has not ended: it relays nothing.
#[test]
fn idle_members_behind_one_that_is_frozen() {
    let faults = Faults { departures: true, crashes: true, ..Faults::NONE };
    check(Rules { faults, ..IDLE }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_transfer_to_an_idle_member() {
    let faults = Faults { transfers: true, ..Faults::NONE };
    let rules = Rules { horizon: Duration::from_millis(4_400), sessions_max: 8, ..IDLE };
    check(Rules { faults, ..rules }).assert_properties();
}

/// What the third reads reaches no other server than one that lags behind, until that has caught up.
#[test]
fn a_third_whose_reads_reach_no_other_server() {
    let faults =
        Faults { departures: true, lagging_reads: true, lost_reports: true, ..Faults::NONE };
    check(Rules { members: 3, faults, ..IDLE }).assert_properties();
}

/// In another client's queue contenders join and leave at every step, and hold no leases; members are to keep out, and are
/// let in.
#[test]
fn a_member_in_another_clients_queue() {
    let rules = Rules { among: true, faults: COMMON_FAULTS, settled: true, ..ALONE };
    check(Rules { misfortunes_max: 3, sessions_max: 4, ..rules }).assert_properties();
}

#[test]
fn a_standby_in_another_clients_queue() {
    let faults = Faults { crashes: true, cuts: true, resignations: true, ..Faults::NONE };
    let horizon = Duration::from_secs(4);
    check(Rules { among: true, faults, horizon, recovers: true, ..STANDBY }).assert_properties();
}

/// A process is killed, and finds its place again by its claim alone.
#[test]
fn members_that_are_restarted_in_another_clients_queue() {
    let horizon = Duration::from_secs(4);
    check(Rules { among: true, faults: RESTARTS, horizon, ..STANDBY }).assert_properties();
}

#[test]
#[ignore = "exhaustive: scripts/test runs it"]
fn a_standby_in_another_clients_queue_and_all_misfortunes() {
    let faults = Faults { resignations: true, ..COMMON_FAULTS };
    check(Rules { among: true, faults, ..STANDBY }).assert_properties();
}

/// The core relies on the module `zookeeper` to keep this rule: here it is broken, and the checker finds that.
#[test]
fn a_second_create_while_the_first_may_have_succeeded() {
    let faults = Faults { cuts: true, delays: true, ..Faults::NONE };
    let rules = Rules { faults, flaw: Some(Flaw::BlindCreate), misfortunes_max: 1, ..SMALL };
    finds(&rules, "one session owns two znodes");
}

#[test]
fn a_renewal_that_does_not_ask_whose_znode_it_is() {
    let faults = Faults { razing: true, ..Faults::NONE };
    let flaw = Some(Flaw::CarelessRenewal);
    let rules = Rules { faults, flaw, settled: true, misfortunes_max: 1, ..SMALL };
    finds(&rules, "two members lead at once");
}

/// Without the claim znode a member at a server that lacks the leader leads beside it.
#[test]
fn a_claim_that_excludes_no_other() {
    let faults = Faults { lost_creates: true, cuts: true, delays: true, ..Faults::NONE };
    let flaw = Some(Flaw::PlainClaim);
    let rules = Rules { faults, flaw, at_wrong: &[1], only_wrong: true, ..STANDBY };
    finds(&rules, "two members lead at once");
}

/// A member whose own server lacks its znode makes another, and waits behind itself.
#[test]
fn an_own_znode_that_is_given_up_for_lost_by_a_read() {
    let faults = Faults { lost_creates: true, cuts: true, ..Faults::NONE };
    let flaw = Some(Flaw::TrustedReads);
    finds(&Rules { faults, flaw, at_wrong: &[0, 1], ..STANDBY }, "one session owns two znodes");
}

/// By one thread, which finds the same trace of a flaw each time. Several worlds at once keep all processors busy.
fn check(rules: Rules) -> impl Checker<Rules> {
    let start = Instant::now();
    let checker = rules.clone().checker().spawn_bfs().join();
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {} states in {:?}", checker.unique_state_count(), start.elapsed());
    for property in ["sound", "recovers"] {
        let Some(path) = checker.discovery(property) else { continue };
        let world = path.last_state();
        println!("BROKEN: {:?}", world.broken(&rules).or_else(|| world.clone().heal(&rules)));
        println!("{}", World::scenario(&rules, &path.into_actions()));
    }
    checker
}

fn finds(rules: &Rules, what: &str) {
    let path = check(rules.clone()).assert_any_discovery("sound");
    assert_eq!(path.last_state().broken(rules), Some(what));
}
