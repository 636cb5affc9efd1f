//! What the standby costs the servers: how many quorum writes an election takes in which nothing happens.

use crate::{
    contest::Members,
    handover::measured_setup,
    report::{Bound, Section, ratio},
    scene::{Ensemble, Scene, transactions},
};
use std::{
    thread,
    time::{Duration, Instant},
};

const SESSION: Duration = Duration::from_secs(10);
/// The default of `lease.heartbeat` is so large a part of the session's timeout.
const HEARTBEATS_A_SESSION: u32 = 10;

pub(crate) fn standby(scene: &Scene) -> Section {
    let heartbeat = SESSION / HEARTBEATS_A_SESSION;
    let idle = scene.pick(40, 6) * heartbeat;
    let mut section = Section::new(
        "The standby's writes",
        &format!(
            "{idle:?} of an election in which nothing happens, with sessions of {SESSION:?} and so a heartbeat each \
             {heartbeat:?}. The servers number their transactions (`Zxid` in `srvr`); by how much the number grows is how many \
             quorum writes there were. Members give their heartbeats sooner than they must, and a leader twice as often.",
        ),
    );
    for Ensemble { name: ensemble, mut servers } in scene.ensembles() {
        let connect_string = servers.connect_string();
        let mut rows = vec![];
        let counts = [1, 2, 10];
        let writes = counts.map(|count| {
            let setup = measured_setup(scene, &connect_string, &scene.path()).sessions(SESSION);
            let members = Members::in_queue(&setup, count);
            if count > 1 {
                members.wait_for_standby();
            }
            // A member that has just joined still announces and relays.
            thread::sleep(2 * heartbeat);
            let server = servers.first();
            let (before, begun) = (transactions(server), Instant::now());
            thread::sleep(idle);
            let growth = transactions(server) - before;
            let a_heartbeat = growth as f64 / begun.elapsed().div_duration_f64(heartbeat);
            rows.push(vec![count.to_string(), growth.to_string(), ratio(a_heartbeat)]);
            members.leave();
            a_heartbeat
        });
        section.say(&format!("{ensemble}:"));
        section.table(&["Members", "Quorum writes", "A heartbeat"], &rows);
        let [alone, two, ten] = writes;
        let goal = |what: &str| format!("{ensemble}: {what}");
        let more = two - alone;
        section.goal(
            &goal("the standby writes once a heartbeat, a fifth more at most"),
            more,
            Bound::AtMost(1.2),
        );
        section.goal(
            &goal("the standby writes once a heartbeat, a tenth less at most"),
            more,
            Bound::AtLeast(0.9),
        );
        section.goal(
            &goal("10 members write as much as 2, a tenth more at most"),
            ten / two,
            Bound::AtMost(1.1),
        );
    }
    section
}
