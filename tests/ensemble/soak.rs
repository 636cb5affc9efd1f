//! Faults at random, alone or two at once, for as long as one likes: `scripts/soak` runs this, and tells how.

use crate::{
    catalogue::{Fault, Outcome, PATIENCE, suffer, went_by_notification},
    check_log,
    member::{Handovers, SHORT_SESSION, SessionFiles},
    sampler::{Handover, Overlap, Stint, fallen_tokens, handovers},
    testbed::Testbed,
    witness::Witness,
};
use fastrand::Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const MEMBERS: u8 = 5;

/// The last of them run a command.
const WITH_A_COMMAND: usize = 2;

/// How often two faults strike at once.
const PAIRS: f64 = 0.3;

#[test]
#[ignore = "it takes minutes: scripts/soak runs it"]
fn soak() {
    let minutes: f64 = parameter("BELLWETHER_SOAK_MINUTES").unwrap_or(1.0);
    let seed = parameter("BELLWETHER_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let without_lease = parameter("BELLWETHER_SOAK_WITHOUT_LEASE").unwrap_or(false);
    let program: Option<String> = parameter("BELLWETHER_SOAK_PROGRAM");
    let logs: Option<String> = parameter("BELLWETHER_SOAK_LOGS");
    eprintln!("seed {seed}, {minutes} minutes, {MEMBERS} members, 3 servers");

    // A command needs a lease, and so does a session file.
    let witness = if without_lease { None } else { Some(Witness::new()) };
    let files = SessionFiles::new();
    // The core of the tests has its lease.
    let traces = (!without_lease).then(|| tempfile::tempdir().expect("a temporary directory"));
    let mut testbed = Testbed::set(MEMBERS, |number, mut setup| {
        if let Some(program) = &program {
            setup = setup.program(program.clone());
        }
        if !without_lease {
            setup = files.kept_by(&setup, &number.to_string());
        }
        if let Some(traces) = &traces {
            setup = setup.traced_to(traces.path());
        }
        match &witness {
            None => setup,
            Some(witness) if number + WITH_A_COMMAND >= MEMBERS.into() => witness.watches(setup),
            Some(_) => setup,
        }
    });
    testbed.with_standby = !without_lease;
    let mut soak = Soak {
        seed,
        begun: Instant::now(),
        outcomes: Vec::new(),
        witness,
        traces,
        beside: Vec::new(),
        broken: None,
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        soak.go_on_for(Duration::from_secs_f64(minutes * 60.0), &mut testbed);
    }));
    let (report, well) = soak.report(&testbed);
    eprintln!("\n{report}");
    let saw_overlaps = soak.overlaps(false).next().is_some();
    if let Some(logs) = logs.filter(|_| !well || ended.is_err()) {
        save(Path::new(&logs), &report, &soak, &mut testbed);
    }
    ended.expect("the soak came to its end");
    if without_lease {
        assert!(saw_overlaps, "without a lease two must lead at once, and they were not seen to");
    } else {
        assert!(well, "seed {seed}: see above");
    }
}

struct Soak {
    seed: u64,
    begun: Instant,
    outcomes: Vec<Outcome>,
    /// What commands do, if some members run one.
    witness: Option<Witness>,
    /// What the members heard and made of it.
    traces: Option<TempDir>,
    /// What of a command was found beside the next leader.
    beside: Vec<String>,
    /// What kept it from going on.
    broken: Option<String>,
}

impl Soak {
    fn go_on_for(&mut self, duration: Duration, testbed: &mut Testbed) {
        let (mut rng, mut deck) = (Rng::with_seed(self.seed), Vec::new());
        // Orderly hand-overs come first, so that a short soak has them, too.
        let mut first = Fault::ORDERLY.iter();
        while self.broken.is_none() {
            let faults = match first.next() {
                Some(fault) => vec![*fault],
                None if self.begun.elapsed() < duration => {
                    draw(&mut rng, &mut deck, self.witness.is_some())
                }
                None => break,
            };
            let linger = SHORT_SESSION.mul_f64(if rng.bool() { rng.f64() } else { 0.0 });
            let outcome = suffer(testbed, &faults, linger);
            eprintln!("{}", self.line(&outcome));
            if let Some(witness) = &mut self.witness {
                let beside = witness.look(&outcome, &testbed.sampler.stints());
                beside
                    .iter()
                    .for_each(|found| eprintln!("         BESIDE THE NEXT LEADER: {found}"));
                let name = outcome.name();
                self.beside.extend(beside.into_iter().map(|found| format!("{name}: {found}")));
            }
            if let Err(complaint) = &outcome.result {
                self.broken = Some(format!("{}: {complaint}", outcome.name()));
            }
            self.outcomes.push(outcome);
        }
    }

    fn line(&self, outcome: &Outcome) -> String {
        let (struck, settled) = (self.at(outcome.struck), self.at(outcome.settled));
        let leader = outcome.result.as_ref().map_or("nobody", |leader| leader);
        let longest = outcome.overlaps.iter().map(|overlap| overlap.length).max();
        let overlap = longest.map_or(String::new(), |length| {
            let word = if outcome.is_force() { "overlap by force" } else { "OVERLAP" };
            format!(", {word} {length:.3?}")
        });
        format!(
            "{struck:7.1} s  {}; well at {settled:.1} s, {leader} leads, {}; {:.2} s without a leader \
             (bound {:.1} s){overlap}",
            outcome.name(),
            by_way(outcome.handovers),
            outcome.leaderless.as_secs_f64(),
            outcome.bound.as_secs_f64(),
        )
    }

    /// What is to be read, and whether all was well.
    fn report(&self, testbed: &Testbed) -> (String, bool) {
        let stints = testbed.sampler.stints();
        // Two that lead beside each other are an overlap, which is excused only after an unknown client's force.
        let mut fallen = fallen_tokens(&stints);
        fallen.retain(|(old, new)| old.until <= new.from);
        let changes = handovers(&stints);
        let (innocent, forced) = (self.summary(false), self.summary(true));
        let left_over = self.broken.as_deref().unwrap_or("none");
        let slowest = self.outcomes.iter().max_by(|a, b| {
            let share = |it: &Outcome| it.leaderless.as_secs_f64() / it.bound.as_secs_f64();
            share(a).total_cmp(&share(b))
        });
        let too_slow = slowest.is_some_and(|it| it.leaderless >= PATIENCE * it.bound);

        let mut text = String::new();
        let mut say = |what: &str, value: &str| {
            writeln!(text, "{what:<34}{value}").expect("a String takes all");
        };
        say("seed", &self.seed.to_string());
        say("minutes", &format!("{:.1}", self.begun.elapsed().as_secs_f64() / 60.0));
        let mut counts = BTreeMap::<Fault, usize>::new();
        let struck = self.outcomes.iter().flat_map(|outcome| &outcome.faults);
        struck.for_each(|fault| *counts.entry(*fault).or_default() += 1);
        say("faults", &counts.values().sum::<usize>().to_string());
        counts.iter().for_each(|(fault, count)| say(&format!("  {count:>3}"), &fault.to_string()));
        say("hand-overs", &changes.len().to_string());
        let in_order = went_by_notification(&self.outcomes);
        say("  in order", &in_order.as_ref().map_or_else(String::clone, |sum| by_way(*sum)));
        let mut others = Handovers::default();
        let after_faults = self.outcomes.iter().filter(|outcome| !outcome.is_orderly());
        after_faults.for_each(|outcome| others += outcome.handovers);
        say("  after faults, if still counted", &by_way(others));
        say("samples taken", &testbed.sampler.samples().to_string());
        say("overlaps", &innocent);
        say("overlaps after an unknown client's force", &forced);
        say("tokens that fell", &fallen.len().to_string());
        if let Some(witness) = &self.witness {
            let terms: BTreeSet<u64> = witness.writers.iter().map(|(token, _)| *token).collect();
            let (terms, writers) = (terms.len(), witness.writers.len());
            let written =
                format!("{} times by {writers} processes in {terms} terms", witness.lines);
            say("commands wrote their token", &written);
            say("  beside the next leader", &self.beside.len().to_string());
        }
        let yeses: usize = self.outcomes.iter().map(|it| it.yeses).sum();
        let late: Vec<&String> = self.outcomes.iter().flat_map(|it| &it.late_yeses).collect();
        let too_soon: Vec<_> = self.outcomes.iter().flat_map(|it| &it.too_soon).collect();
        say("yeses around freezes", &yeses.to_string());
        say("  not true when asked for", &late.len().to_string());
        say("led before another's deadline", &too_soon.len().to_string());
        let orderly = |it: &Outcome| it.faults.iter().any(|fault| Fault::ORDERLY.contains(fault));
        let gave_up = |it: &Outcome| !it.is_force() && orderly(it);
        let lost = |it: &Outcome| !it.is_force() && !orderly(it);
        say("smallest gap, leader gave up", &self.smallest_gap(&changes, gave_up));
        say("smallest gap, leader lost", &self.smallest_gap(&changes, lost));
        say(
            "longest time without a leader",
            &slowest.map_or_else(
                || "none".to_owned(),
                |it| format!("{:.2?}, bound {:.2?}: {}", it.leaderless, it.bound, it.name()),
            ),
        );
        say("znodes left over, or no agreement", left_over);
        let (steps, disagreements) = self.check_traces();
        say("steps traced", &steps.to_string());
        say("  not those of the core", &disagreements.len().to_string());
        disagreements.iter().for_each(|found| say("not the core's", found));
        for overlap in self.overlaps(false) {
            say("overlap", &self.describe(overlap));
        }
        self.beside.iter().for_each(|found| say("beside the next leader", found));
        late.iter().for_each(|yes| say("not true when asked for", yes));
        for (old, new) in &too_soon {
            let until = format!("told that it leads until {} ns of boot time", old.deadline_ns);
            say(
                "led before a deadline",
                &format!("{} {until}, {}", self.claim(old), self.claim(new)),
            );
        }
        for (old, new) in &fallen {
            say("token fell", &format!("{} then {}", self.claim(old), self.claim(new)));
        }
        let overlaps = self.overlaps(false).count();
        let well = overlaps == 0
            && fallen.is_empty()
            && self.beside.is_empty()
            && late.is_empty()
            && too_soon.is_empty()
            && self.broken.is_none()
            && disagreements.is_empty()
            && !too_slow
            && in_order.is_ok();
        (text, well)
    }

    /// Steps the core once more. Returns how many steps there were, and where the core disagrees.
    fn check_traces(&self) -> (usize, Vec<String>) {
        let mut steps = 0;
        let mut disagreements = vec![];
        for path in self.traces.iter().flat_map(|traces| files_in(traces.path())) {
            let log = fs::read_to_string(&path).expect("a trace is text");
            match check_log::check(&name_of(&path), &log) {
                Ok(checked) => steps += checked.steps,
                Err(why) => disagreements.push(why),
            }
        }
        (steps, disagreements)
    }

    fn overlaps(&self, by_force: bool) -> impl Iterator<Item = &Overlap> {
        self.outcomes
            .iter()
            .filter(move |outcome| outcome.is_force() == by_force)
            .flat_map(|outcome| &outcome.overlaps)
    }

    fn summary(&self, by_force: bool) -> String {
        let longest = self.overlaps(by_force).map(|overlap| overlap.length).max();
        let count = self.overlaps(by_force).count();
        longest
            .map_or_else(|| "0".to_owned(), |longest| format!("{count}, the longest {longest:.3?}"))
    }

    /// Returns the smallest gap of the changes that these outcomes brought about.
    fn smallest_gap(&self, changes: &[Handover], which: impl Fn(&Outcome) -> bool) -> String {
        let counts = |change: &&Handover| {
            self.outcomes.iter().any(|outcome| {
                let during = outcome.struck..=outcome.settled;
                which(outcome) && during.contains(&change.new.from)
            })
        };
        let smallest = changes.iter().filter(counts).min_by(|a, b| a.most.total_cmp(&b.most));
        smallest.map_or_else(
            || "none".to_owned(),
            |change| {
                let (least, most) =
                    (change.least.map(|least| least * 1000.0), change.most * 1000.0);
                let least = least.map_or_else(|| "?".to_owned(), |least| format!("{least:.1}"));
                let (old, new) = (&change.old.who, &change.new.who);
                let at = self.at(change.new.from);
                format!("between {least} and {most:.1} ms, {old} to {new} at {at:.3} s")
            },
        )
    }

    fn describe(&self, overlap: &Overlap) -> String {
        format!(
            "{:.3?} at {:.3} s: {} beside {}",
            overlap.length,
            self.at(overlap.at),
            self.claim(&overlap.one),
            self.claim(&overlap.other),
        )
    }

    fn claim(&self, stint: &Stint) -> String {
        let (from, until) = (self.at(stint.from), self.at(stint.until));
        format!("{} (token {:#x}, {from:.3} to {until:.3} s)", stint.who, stint.token)
    }

    fn at(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.begun).as_secs_f64()
    }
}

fn by_way(handovers: Handovers) -> String {
    format!("{} by notification, {} by claim", handovers.by_notification, handovers.by_claim)
}

/// Each fault comes once before any comes again.
fn draw(rng: &mut Rng, deck: &mut Vec<Fault>, with_lease: bool) -> Vec<Fault> {
    let needs_a_lease = |it: &Fault| it.needs_a_command() || it.needs_a_session_file();
    let all = || Fault::ALL.into_iter().filter(|it| with_lease || !needs_a_lease(it));
    if deck.is_empty() {
        deck.extend(all());
        rng.shuffle(deck);
    }
    let mut faults = vec![deck.pop().expect("a shuffled deck")];
    if rng.f64() < PAIRS {
        let fitting: Vec<Fault> = all().filter(|other| faults[0].goes_with(*other)).collect();
        faults.extend(rng.choice(fitting));
    }
    faults
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory of the traces");
    entries.map(|entry| entry.expect("an entry can be read").path()).collect()
}

fn name_of(file: &Path) -> String {
    file.file_name().expect("a file has a name").to_string_lossy().into_owned()
}

fn save(directory: &Path, report: &str, soak: &Soak, testbed: &mut Testbed) {
    fs::create_dir_all(directory).expect("a directory for the logs");
    let write = |name: &str, text: &str| {
        fs::write(directory.join(name), text).expect("a file for a log");
    };
    write("report", report);
    testbed.members.iter().for_each(|member| write(&member.id, &member.log()));
    for (n, server) in testbed.servers.each().enumerate() {
        write(&format!("server-{n}"), &server.log());
    }
    for trace in soak.traces.iter().flat_map(|traces| files_in(traces.path())) {
        fs::copy(&trace, directory.join(name_of(&trace))).expect("a file for a trace");
    }
    eprintln!("the logs are in {}", directory.display());
}

/// What the script that runs a long test says about it.
pub(crate) fn parameter<T: FromStr>(name: &str) -> Option<T> {
    let given = env::var(name).ok()?;
    Some(given.parse().unwrap_or_else(|_| panic!("{name}: {given:?} makes no sense")))
}
