//! Asks every member all the time whether it leads, and proves in the end that no two led at once.

use crate::{
    member::{Member, agent},
    wait::eventually,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) struct Witness {
    watched: Arc<Mutex<Vec<(String, u16)>>>,
    done: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<Terms>,
}

/// By token and member.
type Terms = BTreeMap<(u64, String), Term>;

/// Between these two moments the term lasted for sure: it had begun when the first claim was answered, and
/// had not ended when the last one was asked for.
#[derive(Debug)]
struct Term {
    from: Instant,
    until: Instant,
}

impl Witness {
    /// Returns when it has asked each of them once.
    pub(crate) fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        let watched = Arc::<Mutex<Vec<(String, u16)>>>::default();
        let done = Arc::<AtomicBool>::default();
        let rounds = Arc::<AtomicU64>::default();
        let thread = thread::spawn({
            let (watched, done, rounds) =
                (Arc::clone(&watched), Arc::clone(&done), Arc::clone(&rounds));
            move || watch(&watched, &done, &rounds)
        });
        let witness = Self { watched, done, rounds, thread };
        members.into_iter().for_each(|member| witness.also(member));
        witness.ask_all();
        witness
    }

    /// Watches one more member, such as one that was started again.
    pub(crate) fn also(&self, member: &Member) {
        let whom = (member.id.clone(), member.port());
        self.watched.lock().expect("the witness lives").push(whom);
    }

    /// Waits until all have been asked since now.
    fn ask_all(&self) {
        // One round may be under way already.
        let enough = self.rounds.load(Ordering::Relaxed) + 2;
        eventually("the witness has asked everybody", || {
            let rounds = self.rounds.load(Ordering::Relaxed);
            if rounds >= enough { Ok(()) } else { Err(format!("{rounds} rounds")) }
        });
    }

    #[track_caller]
    pub(crate) fn testifies_one_leader_at_a_time(self) {
        self.ask_all();
        self.done.store(true, Ordering::Relaxed);
        let terms = self.thread.join().expect("the witness lives");
        assert!(!terms.is_empty(), "the witness saw nobody lead");
        for (nth, (earlier, one)) in terms.iter().enumerate() {
            for (later, other) in terms.iter().skip(nth + 1) {
                let in_turn = one.until <= other.from;
                assert!(in_turn, "two led at once, or tokens fell: {earlier:?} and {later:?}");
            }
        }
    }
}

fn watch(watched: &Mutex<Vec<(String, u16)>>, done: &AtomicBool, rounds: &AtomicU64) -> Terms {
    let agent = agent();
    let mut terms = Terms::new();
    while !done.load(Ordering::Relaxed) {
        let all = watched.lock().expect("the test lives").clone();
        for (who, port) in all {
            let asked = Instant::now();
            let mut response = match agent.get(format!("http://127.0.0.1:{port}/leader")).call() {
                Ok(response) => response,
                // It is gone, and another test's member may be given its port.
                Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                    watched.lock().expect("the test lives").retain(|(_, gone)| *gone != port);
                    continue;
                }
                Err(_) => continue,
            };
            let answered = Instant::now();
            let told: Value = response.body_mut().read_json().unwrap_or_default();
            if let (Some(true), Some(token)) =
                (told["is_self"].as_bool(), told["leader"]["token"].as_u64())
            {
                let term = Term { from: answered, until: asked };
                terms.entry((token, who)).or_insert(term).until = asked;
            }
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
    }
    terms
}
