//! Commands of `exec` that start offspring in sessions of their own, and what of them acts, or only lives, beside the
//! next leader.

use crate::{
    catalogue::Outcome,
    member::Setup,
    sampler::{Stint, boottime_ns},
    task::Diary,
    wait::{LIMIT, within},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// The command and two generations of its offspring, each in a session of its own, write their token. None of them heeds
/// a signal that can be ignored.
const WRITERS: &str = r#"
    trap '' TERM HUP INT
    export WRITE='while :; do
        read up idle < /proc/uptime
        echo "$BELLWETHER_ID $BELLWETHER_TOKEN $$ $up" >> "$DIARY/lives"
        sleep 0.05
    done'
    (setsid sh -c '(setsid sh -c "eval \"\$WRITE\"" &); eval "$WRITE"' &)
"#;

pub(crate) struct Witness {
    diary: Diary,
    /// How much of the diary was read, and how many overlaps that commands noted.
    read: usize,
    overlaps: usize,
    pub(crate) lines: usize,
    pub(crate) writers: BTreeSet<(u64, i32)>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        let (diary, writers) = (Diary::new(), BTreeSet::new());
        Self { diary, read: 0, overlaps: 0, lines: 0, writers }
    }

    pub(crate) fn watches(&self, setup: Setup) -> Setup {
        self.diary.kept_by(setup, WRITERS).option("--on-exit", "restart")
    }

    /// Returns what was found to live beside the next leader since the last look. After an unknown client's force, it waits until
    /// all is well again.
    pub(crate) fn look(&mut self, outcome: &Outcome, stints: &[Stint]) -> Vec<String> {
        let mut found = vec![];
        let newest = stints.iter().map(|stint| stint.token).max().unwrap_or_default();
        let left = if outcome.is_force() {
            within(LIMIT, || self.nothing_is_older_than(newest))
        } else {
            self.nothing_is_older_than(newest)
        };
        found.extend(left.err());
        let last_written = self.read_on();
        let overlaps: Vec<String> =
            self.diary.text("overlaps").lines().map(str::to_owned).collect();
        let noted = overlaps.iter().skip(self.overlaps);
        if !outcome.is_force() {
            found.extend(noted.map(|line| format!("something of another run lived: {line}")));
            for (token, (ns, line)) in last_written {
                let next = stints.iter().find(|stint| stint.token > token);
                if let Some(next) = next.filter(|next| boottime_ns(next.from) < ns) {
                    found.push(format!("written {line:?} beside {next:?}"));
                }
            }
        }
        self.overlaps = overlaps.len();
        found
    }

    /// Returns the last line under each token, and when it was written, by CLOCK_BOOTTIME and rounded down.
    fn read_on(&mut self) -> BTreeMap<u64, (u64, String)> {
        let mut last = BTreeMap::new();
        let text = self.diary.text("lives");
        // The last line may be half written.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[self.read..whole].lines() {
            let [_, token, pid, up] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("a line of the diary: {line:?}")
            };
            let token = token.parse().expect("a token");
            let (seconds, hundredths) = up.split_once('.').expect("seconds since boot");
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let ns = (number(seconds) * 100 + number(hundredths)) * 10_000_000;
            self.writers.insert((token, pid.parse().expect("a process")));
            self.lines += 1;
            let so_far: &mut (u64, String) = last.entry(token).or_default();
            if so_far.0 <= ns {
                *so_far = (ns, line.to_owned());
            }
        }
        self.read = whole;
        last
    }

    fn nothing_is_older_than(&self, token: u64) -> Result<(), String> {
        let processes = fs::read_dir("/proc").expect("/proc can be read").flatten();
        let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let old: Vec<String> = numbers.filter_map(|pid| self.older_than(token, pid)).collect();
        if old.is_empty() { Ok(()) } else { Err(format!("beside token {token:#x}: {old:?}")) }
    }

    /// Describes this process if it was started for a command under a smaller token. The guards end after the command.
    fn older_than(&self, token: u64, pid: i32) -> Option<String> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let value = |name: &str| {
            environment
                .split('\0')
                .find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
        };
        let is_ours = value("DIARY")? == self.diary.path("").to_str()?.trim_end_matches('/');
        let its: u64 = value("BELLWETHER_TOKEN")?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_guard = line.starts_with("bellwether exec-") && line.contains("-guard ");
        (is_ours && its < token && !is_guard).then(|| format!("{pid} of {its:#x}: {line}"))
    }
}
