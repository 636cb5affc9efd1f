//! Measures how long a command of `exec`, with all that it started, lives on once it is to be killed. The margins in
//! `src/exec/mod.rs` and the table in docs/exec.md go by it, which says how to run it.

use crate::{
    group::started_in_order,
    member::Setup,
    offspring::Crowd,
    process::{children_of, signal},
    servers::Servers,
    soak::parameter,
    task::Diary,
    wait::eventually,
};
use rustix::process::Signal;
use std::{
    fmt::Write as _,
    fs, hint,
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The process that has to kill the command, since the others are dead or stopped.
#[derive(Clone, Copy, Debug)]
enum Killer {
    InnerGuard,
    OuterGuard,
    Sidecar,
}

/// How the processes descend from the command. All are in sessions of their own.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// All are children of the command.
    Wide,
    /// Each is the child of the one before.
    Deep,
    /// Each starts another and ends, over and over.
    Restless,
}

const SIZES: [(Shape, usize); 7] = [
    (Shape::Wide, 1),
    (Shape::Wide, 10),
    (Shape::Wide, 100),
    (Shape::Wide, 1000),
    (Shape::Deep, 10),
    (Shape::Deep, 100),
    (Shape::Restless, 3),
];

#[test]
#[ignore = "it measures for minutes: docs/exec.md says how to run it"]
fn how_long_a_command_lives_on_once_it_is_to_be_killed() {
    let rounds = parameter("BELLWETHER_ROUNDS").unwrap_or(5);
    let servers = Servers::standalone();
    let mut table = String::new();
    let mut measure = |surroundings: &str| {
        for (shape, size) in SIZES {
            let mut row = format!("| {surroundings} | {size}, {shape:?} |");
            for killer in [Killer::InnerGuard, Killer::OuterGuard, Killer::Sidecar] {
                let one = |_| lives_on(&servers, shape, size, killer);
                let mut times: Vec<f64> = (0..rounds).map(one).collect();
                times.sort_by(f64::total_cmp);
                let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
                write!(row, " {median:.1}, {most:.1} |").expect("a String takes all");
            }
            eprintln!("{row}");
            table.push_str(&row);
            table.push('\n');
        }
    };
    measure("idle");
    let crowd = Crowd::of(8000);
    measure("beside 8,000 processes");
    drop(crowd);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        measure("all cores busy");
        is_over.store(true, Relaxed);
    });
    eprintln!(
        "Milliseconds, median and most of {rounds}:\n| | processes | inner guard | outer guard | sidecar |"
    );
    eprintln!("{table}");
}

/// Returns for how long the last process of a command lives on, in milliseconds, once the killer is to kill.
fn lives_on(servers: &Servers, shape: Shape, size: usize, killer: Killer) -> f64 {
    let diary = Diary::new();
    let start = match shape {
        Shape::Wide => "for n in $(seq 2 $SIZE); do setsid sleep 600 & done",
        Shape::Restless => {
            "for n in $(seq 2 $SIZE); do setsid perl -e 'for (;;) { exit if fork }' & done"
        }
        Shape::Deep => r#"[ $SIZE -lt 2 ] || setsid "$DIARY/deep" $((SIZE - 1)) &"#,
    };
    let deep = diary.path("deep");
    fs::write(&deep, "#!/bin/sh\n[ $1 -lt 2 ] || setsid \"$0\" $(($1 - 1)) &\nexec sleep 600\n")
        .expect("a script");
    fs::set_permissions(&deep, fs::Permissions::from_mode(0o755)).expect("our own file");
    let election = format!("/election-{}", fastrand::u64(..));
    let setup = Setup::of(servers).option("--election", &election);
    let setup = setup.environment("SIZE", &size.to_string());
    let [mut member] =
        started_in_order(&diary.kept_by(setup, &format!("{start}\nexec sleep 600")), ["a"]);
    let sidecar = member.process_id().cast_signed();
    let inner = eventually("all are there", || {
        let outer = *children_of(sidecar).first().ok_or("no guard")?;
        let inner = *children_of(outer).first().ok_or("no inner guard")?;
        match descendants_of(inner) {
            there if there >= size && diary.is_held() => Ok(inner),
            there => Err(there.to_string()),
        }
    });
    let lock = diary.path("lock");
    let end = thread::spawn(move || Diary::wait_for_the_end(&lock));
    // Each killer first leaves it to the one before: that is no time of its own.
    let leaves_it = Duration::from_millis(match killer {
        Killer::InnerGuard => 0,
        Killer::OuterGuard => 125,
        Killer::Sidecar => 250,
    });
    let outer = children_of(sidecar)[0];
    if !matches!(killer, Killer::InnerGuard) {
        signal(inner, Signal::STOP);
    }
    let struck = Instant::now();
    match killer {
        Killer::InnerGuard | Killer::OuterGuard => member.kill(),
        Killer::Sidecar => signal(outer, Signal::KILL),
    }
    let gone = end.join().expect("it waits").expect("the lock is there");
    gone.duration_since(struck).as_secs_f64() * 1000.0 - leaves_it.as_secs_f64() * 1000.0
}

fn descendants_of(process: i32) -> usize {
    let children = children_of(process);
    children.len() + children.into_iter().map(descendants_of).sum::<usize>()
}
