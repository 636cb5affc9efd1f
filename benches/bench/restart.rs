//! A leader that is killed under a parent that starts it again: for how long there is no leader, with a session file and by
//! other clients.

use crate::{
    contest::{Contest, Members},
    handover::{curator, kazoo, setup},
    member::{SessionFiles, Setup},
    report::{Bound, Section, Times, ms, ratio},
    scene::Scene,
};
use std::{
    thread,
    time::{Duration, Instant},
};

const SESSION: Duration = Duration::from_secs(10);

/// systemd's default (`RestartSec`).
const RESTART_DELAY: Duration = Duration::from_millis(100);

const MEMBERS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    Bellwether,
    Curator,
    Kazoo,
}

pub(crate) fn restarts(scene: &Scene, section: &mut Section, ensemble: &str, servers: &str) {
    let contenders = [
        (Contender::Bellwether, "Bellwether"),
        (Contender::Curator, "Curator"),
        (Contender::Kazoo, "kazoo"),
    ];
    let measured = contenders.map(|(contender, name)| {
        let times = match contender {
            Contender::Bellwether => scene.pick(20, 2),
            Contender::Curator | Contender::Kazoo => scene.pick(5, 1),
        };
        (contender, name, (0..times).map(|_| crash(contender, scene, servers)).collect::<Times>())
    });
    let median = |wanted: Contender| {
        let (_, _, times) = measured
            .iter()
            .find(|(contender, ..)| *contender == wanted)
            .expect("all were measured");
        times.median_ms()
    };
    let rows = measured.iter().map(|(_, name, times)| {
        vec![
            (*name).to_owned(),
            times.count().to_string(),
            ms(times.median_ms()),
            ms(times.p99_ms()),
            ratio(times.median_ms() / median(Contender::Curator)),
            ratio(times.median_ms() / median(Contender::Kazoo)),
        ]
    });
    section.say("Killed and started again, without a leader for:");
    section.table(
        &["Who", "Crashes", "Median", "At most", "To Curator", "To kazoo"],
        &rows.collect::<Vec<_>>(),
    );
    for (theirs, name) in [(Contender::Curator, "Curator"), (Contender::Kazoo, "kazoo")] {
        let goal = format!("{ensemble}, restarted: at most 0.1 × {name}");
        section.goal(&goal, median(Contender::Bellwether) / median(theirs), Bound::AtMost(0.1));
    }
}

/// Returns for how long there was no leader.
fn crash(contender: Contender, scene: &Scene, servers: &str) -> Duration {
    let contest = Contest { servers: servers.to_owned(), path: scene.path(), session: SESSION };
    let setup = setup(servers, &contest.path).sessions(SESSION);
    match contender {
        Contender::Bellwether => ours(&setup),
        Contender::Curator => curator(&contest, &[1; MEMBERS]).crash(RESTART_DELAY),
        Contender::Kazoo => kazoo(&contest, &[1; MEMBERS]).crash(RESTART_DELAY),
    }
}

/// Kills the leader, and waits until a client at its next process reads that this one leads.
fn ours(setup: &Setup) -> Duration {
    let files = SessionFiles::new();
    let mut members = Members::in_queue_with(MEMBERS, |id| files.kept_by(setup, id));
    members.wait_for_standby();
    let line = members.members();
    let id = line[0].id.clone();
    let killed = Instant::now();
    line[0].kill();
    thread::sleep(RESTART_DELAY);
    line[0] = files.kept_by(setup, &id).start(&id);
    let mut events = line[0].stream("/events");
    while events.event().data["is_self"] != true {}
    let took = killed.elapsed();
    members.leave();
    took
}
