//! Asks every member all the time whether it leads, and proves what that says about leaders and the time
//! between them.
//!
//! A thread for each member asks `/leader` and `/is-leader` in turn, as fast as it can; all of them read the
//! same monotonic clock. An answer is true at some moment between its question and its arrival.

use crate::{
    asker::now,
    host::Host,
    member::{Member, agent},
    wait::eventually,
};
use rustix::time::ClockId;
use serde_json::Value;
use std::{
    io::ErrorKind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use ureq::Agent;

/// Leaves a small machine some time for the members that are asked.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Sampler {
    books: Mutex<Vec<Arc<Book>>>,
}

/// An unbroken row of claims by one member with one token.
#[derive(Clone, Debug)]
pub(crate) struct Stint {
    pub(crate) who: String,
    pub(crate) token: u64,
    /// The last denial before the first claim was asked for.
    pub(crate) after: Option<Instant>,
    /// The first claim was answered: from here on it is proven.
    pub(crate) from: Instant,
    /// The last claim was asked for: until here it is proven.
    pub(crate) until: Instant,
    /// The first denial after the last claim was answered, or the process was gone.
    pub(crate) before: Option<Instant>,
    /// The latest deadline that came with a claim, by CLOCK_BOOTTIME.
    pub(crate) deadline_ns: u64,
}

/// Two claims that were proven at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) one: Stint,
    pub(crate) other: Stint,
    pub(crate) at: Instant,
    pub(crate) length: Duration,
}

/// From one leader to the next. Seconds, below zero where the two may have overlapped.
#[derive(Clone, Debug)]
pub(crate) struct Handover {
    pub(crate) old: Stint,
    pub(crate) new: Stint,
    /// The gap was at least so long, if anything bounds it.
    pub(crate) least: Option<f64>,
    /// And at most so long.
    pub(crate) most: f64,
}

/// What one thread notes down.
struct Book {
    who: String,
    rounds: AtomicU64,
    samples: AtomicU64,
    /// The process is gone.
    closed: AtomicBool,
    /// The sampler was dropped.
    done: AtomicBool,
    stints: Mutex<Vec<Stint>>,
}

/// What a yes says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) token: u64,
    /// Until when it holds, by CLOCK_BOOTTIME.
    pub(crate) deadline_ns: u64,
}

enum Answer {
    Claim(Claim),
    Denial,
    /// No answer came, or one that is not JSON.
    Nothing,
    /// The process has ended.
    Gone,
}

impl Sampler {
    /// Returns when it has asked each of them once.
    pub(crate) fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        let sampler = Self { books: Mutex::default() };
        members.into_iter().for_each(|member| sampler.also(member));
        sampler.ask_all();
        sampler
    }

    /// Watches one more member, such as one that was started again.
    pub(crate) fn also(&self, member: &Member) {
        let book = Arc::new(Book {
            who: member.id.clone(),
            rounds: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            done: AtomicBool::new(false),
            stints: Mutex::default(),
        });
        self.books.lock().expect("the test lives").push(Arc::clone(&book));
        let (host, port) = (Arc::clone(member.host()), member.port());
        thread::spawn(move || watch(&book, &host, port));
    }

    /// Waits until all that run have been asked since now.
    pub(crate) fn ask_all(&self) {
        // One round may be under way already.
        let books = self.books();
        let rounds = |book: &Arc<Book>| book.rounds.load(Ordering::Relaxed);
        let enough: Vec<u64> = books.iter().map(|book| rounds(book) + 2).collect();
        eventually("all members were asked", || {
            let late = books.iter().zip(&enough).find(|(book, enough)| {
                !book.closed.load(Ordering::Relaxed) && rounds(book) < **enough
            });
            late.map_or(Ok(()), |(book, _)| Err(format!("not {}", book.who)))
        });
    }

    #[track_caller]
    pub(crate) fn saw_one_leader_at_a_time(&self) {
        self.ask_all();
        let stints = self.stints();
        assert!(!stints.is_empty(), "no member was seen to lead");
        assert!(overlaps(&stints).is_empty(), "two led at once: {:?}", overlaps(&stints));
        assert!(fallen_tokens(&stints).is_empty(), "tokens fell: {:?}", fallen_tokens(&stints));
    }

    /// All that was seen so far, in the order in which it began.
    pub(crate) fn stints(&self) -> Vec<Stint> {
        let mut all: Vec<Stint> = self
            .books()
            .iter()
            .flat_map(|book| book.stints.lock().expect("the thread lives").clone())
            .collect();
        all.sort_by_key(|stint| stint.from);
        all
    }

    /// How many answers were received.
    pub(crate) fn samples(&self) -> u64 {
        self.books().iter().map(|book| book.samples.load(Ordering::Relaxed)).sum()
    }

    fn books(&self) -> Vec<Arc<Book>> {
        self.books.lock().expect("the test lives").clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.books().iter().for_each(|book| book.done.store(true, Ordering::Relaxed));
    }
}

impl Stint {
    fn is_of_the_same_term(&self, other: &Self) -> bool {
        (&self.who, self.token) == (&other.who, other.token)
    }
}

/// Every two claims of different terms that were proven at the same time.
pub(crate) fn overlaps(stints: &[Stint]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (nth, one) in stints.iter().enumerate() {
        let others = stints[nth + 1..].iter().filter(|other| !one.is_of_the_same_term(other));
        for other in others.take_while(|other| other.from < one.until) {
            let end = one.until.min(other.until);
            if end > other.from {
                found.push(Overlap {
                    one: one.clone(),
                    other: other.clone(),
                    at: other.from,
                    length: end - other.from,
                });
            }
        }
    }
    found
}

/// Every two leaders of which the second was proven to lead before the deadline that the first had told.
pub(crate) fn led_before_a_deadline(stints: &[Stint]) -> Vec<(Stint, Stint)> {
    let mut found = Vec::new();
    for (nth, old) in stints.iter().enumerate() {
        let next = stints[nth + 1..].iter().find(|new| new.token > old.token);
        let next = next.filter(|new| boottime_ns(new.from) < old.deadline_ns);
        found.extend(next.map(|new| (old.clone(), new.clone())));
    }
    found
}

/// The same moment by CLOCK_BOOTTIME, never earlier than it was.
pub(crate) fn boottime_ns(moment: Instant) -> u64 {
    let since = moment.elapsed();
    now(ClockId::Boottime).saturating_sub(u64::try_from(since.as_nanos()).expect("a short time"))
}

/// Every two terms, one after the other, whose tokens do not grow.
pub(crate) fn fallen_tokens(stints: &[Stint]) -> Vec<(Stint, Stint)> {
    neighbours(stints)
        .filter(|(old, new)| new.token <= old.token)
        .map(|(old, new)| (old.clone(), new.clone()))
        .collect()
}

pub(crate) fn handovers(stints: &[Stint]) -> Vec<Handover> {
    neighbours(stints)
        .map(|(old, new)| Handover {
            old: old.clone(),
            new: new.clone(),
            least: old.before.zip(new.after).map(|(end, start)| seconds(end, start)),
            most: seconds(old.until, new.from),
        })
        .collect()
}

/// The longest time within these two moments for which no claim is proven.
pub(crate) fn longest_without_a_leader(stints: &[Stint], from: Instant, to: Instant) -> Duration {
    let mut covered = from;
    let mut longest = Duration::ZERO;
    for stint in stints.iter().filter(|stint| stint.until > from && stint.from < to) {
        longest = longest.max(stint.from.saturating_duration_since(covered));
        covered = covered.max(stint.until);
    }
    longest.max(to.saturating_duration_since(covered))
}

fn neighbours(stints: &[Stint]) -> impl Iterator<Item = (&Stint, &Stint)> {
    stints.iter().zip(stints.iter().skip(1)).filter(|(old, new)| !old.is_of_the_same_term(new))
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.checked_duration_since(from)
        .map_or_else(|| -(from - to).as_secs_f64(), |gap| gap.as_secs_f64())
}

fn watch(book: &Book, host: &Host, port: u16) {
    host.enter();
    let agent = agent();
    let mut denial_asked = None;
    let mut claims = false;
    while !book.done.load(Ordering::Relaxed) {
        for path in ["/leader", "/is-leader"] {
            let asked = Instant::now();
            let answer = ask(&agent, port, path);
            let answered = Instant::now();
            let mut stints = book.stints.lock().expect("the test lives");
            let open = stints.last_mut().filter(|_| claims);
            match (answer, open) {
                (Answer::Claim(claim), Some(open)) if open.token == claim.token => {
                    open.until = asked;
                    open.deadline_ns = open.deadline_ns.max(claim.deadline_ns);
                }
                (Answer::Claim(Claim { token, deadline_ns }), open) => {
                    if let Some(open) = open {
                        open.before = Some(answered);
                    }
                    let (who, after) = (book.who.clone(), denial_asked);
                    let (from, until) = (answered, asked);
                    let stint = Stint { who, token, after, from, until, before: None, deadline_ns };
                    stints.push(stint);
                    claims = true;
                }
                (Answer::Denial, open) => {
                    if let Some(open) = open {
                        open.before = Some(answered);
                    }
                    denial_asked = Some(asked);
                    claims = false;
                }
                (Answer::Nothing, _) => continue,
                (Answer::Gone, open) => {
                    if let Some(open) = open {
                        open.before = Some(answered);
                    }
                    book.closed.store(true, Ordering::Relaxed);
                    return;
                }
            }
            book.samples.fetch_add(1, Ordering::Relaxed);
        }
        book.rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
}

fn ask(agent: &Agent, port: u16, path: &str) -> Answer {
    let mut response = match agent.get(format!("http://127.0.0.1:{port}{path}")).call() {
        Ok(response) => response,
        // The port has no listener: the process has ended. Its port may become another's, so ask no more.
        Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return Answer::Gone;
        }
        Err(_) => return Answer::Nothing,
    };
    let status = response.status();
    let Ok(told) = response.body_mut().read_json::<Value>() else { return Answer::Nothing };
    claim_of(path, status.as_u16(), &told).map_or(Answer::Denial, Answer::Claim)
}

/// Returns what the answer to `/leader` or `/is-leader` claims, if it is a yes.
pub(crate) fn claim_of(path: &str, status: u16, told: &Value) -> Option<Claim> {
    let (claims, token) = match path {
        "/leader" => (told["is_self"] == true, &told["leader"]["token"]),
        _ => (status == 200, &told["token"]),
    };
    let deadline_ns = told["valid_until_boottime_ns"].as_u64().unwrap_or(0);
    Some(Claim { token: token.as_u64().filter(|_| claims)?, deadline_ns })
}

/// The lease of a short session: two heartbeats, half a tick, 100 ms and a thousandth less than it lasts.
const LEASE: Duration = Duration::from_millis(2000 - 2 * 200 - 100 - 100 - 2);

/// Checks that its claim ended within a lease of the last request that reached a server.
#[track_caller]
pub(crate) fn claimed_for_no_longer_than_its_lease(
    sampler: &Sampler,
    member: &Member,
    lost: Instant,
) {
    let stints = sampler.stints();
    let last = stints.iter().rfind(|stint| stint.who == member.id).expect("it led");
    let claimed = last.until.saturating_duration_since(lost);
    assert!(claimed <= LEASE, "it claimed to lead for {claimed:?}");
}
