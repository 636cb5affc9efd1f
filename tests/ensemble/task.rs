//! A command that `exec` runs in tests: it notes down that it lives, and holds a lock for as long as anything
//! of it does, so that two at once are found out without an observer.

use crate::{member::Setup, wait::eventually};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A command that ignores SIGTERM.
pub(crate) const STUBBORN: &str = "trap '' TERM";

/// The directory in which the runs of the command leave their notes: the files `lives`, `overlaps` and `lock`.
pub(crate) struct Diary {
    home: TempDir,
}

/// One run of the command, by its notes. `first` and `last` note are in seconds since boot, to a hundredth.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) who: String,
    pub(crate) token: u64,
    pub(crate) pid: i32,
    pub(crate) first: f64,
    pub(crate) last: f64,
}

/// Takes the lock, and notes an overlap if another command has it. What is started afterwards inherits the lock.
const LOCK: &str = r#"
    exec 9>>"$DIARY/lock"
    flock -n 9 || echo "$BELLWETHER_ID $BELLWETHER_TOKEN $$" >> "$DIARY/overlaps"
"#;

/// Adds a line to `lives` every 20 ms: the member's id, its token, the process, and the seconds since boot.
const LIVE: &str = r#"
    while :; do
        read up idle < /proc/uptime
        echo "$BELLWETHER_ID $BELLWETHER_TOKEN $$ $up" >> "$DIARY/lives"
        sleep 0.02
    done
"#;

impl Diary {
    pub(crate) fn new() -> Self {
        Self { home: TempDir::new().expect("a directory for a diary") }
    }

    /// Has members run a command that takes the lock, does what `first` says, and then keeps the diary.
    pub(crate) fn kept_by(&self, setup: Setup, first: &str) -> Setup {
        let home = self.home.path().to_str().expect("a path of text");
        setup.option("--kill-after", "500ms").environment("DIARY", home).executing(&[
            "sh",
            "-c",
            &Self::script(first),
        ])
    }

    /// Returns what such a command is, with the diary's directory in `DIARY` and who it is in `BELLWETHER_ID`.
    pub(crate) fn script(first: &str) -> String {
        format!("{LOCK}\n{first}\n{LIVE}")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the runs in the order in which they began.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for line in self.text("lives").lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("four words");
            let (who, token) = (word().to_owned(), word().parse().expect("a token"));
            let pid = word().parse().expect("a process");
            let at = word().parse().expect("seconds");
            match runs.iter_mut().find(|run| (run.pid, run.token) == (pid, token)) {
                Some(run) => run.last = at,
                None => runs.push(Run { who, token, pid, first: at, last: at }),
            }
        }
        runs.sort_by(|a, b| a.first.total_cmp(&b.first));
        runs
    }

    /// Waits for the run after the first `seen` ones, and returns it.
    #[track_caller]
    pub(crate) fn next_run(&self, seen: usize) -> Run {
        eventually("the program runs", || {
            let runs = self.runs();
            runs.get(seen).cloned().ok_or_else(|| format!("{runs:?}"))
        })
    }

    /// Returns whether anything of the command is alive.
    pub(crate) fn is_held(&self) -> bool {
        let Ok(file) = File::open(self.path("lock")) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Blocks until nothing of the command that runs now is alive any more, and returns when that was.
    pub(crate) fn wait_for_the_end(lock: &Path) -> io::Result<Instant> {
        flock(&File::open(lock)?, FlockOperation::LockShared)?;
        Ok(Instant::now())
    }

    /// Checks by the lock and by the diary that no two commands ran at once.
    #[track_caller]
    pub(crate) fn shows_one_at_a_time(&self) {
        assert_eq!(self.text("overlaps"), "", "two ran at once: {:?}", self.runs());
        for pair in self.runs().windows(2) {
            assert!(pair[0].last <= pair[1].first, "{pair:?}");
            assert!(pair[0].token <= pair[1].token, "{pair:?}");
        }
    }

    /// Returns the times from the last entry of each run to the first entry of the next.
    pub(crate) fn gaps(&self) -> Vec<(String, Duration)> {
        let gap = |pair: &[Run]| {
            let length = (pair[1].first - pair[0].last).max(0.0);
            (format!("{} to {}", pair[0].who, pair[1].who), Duration::from_secs_f64(length))
        };
        self.runs().windows(2).map(gap).collect()
    }
}
