//! Asks every member all the time whether it leads, and proves in the end that no two led at once.

use crate::member::{Member, agent};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) struct Witness {
    watched: Arc<Mutex<Vec<(String, u16)>>>,
    done: Arc<AtomicBool>,
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
    pub(crate) fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        let watched = Arc::<Mutex<Vec<(String, u16)>>>::default();
        let done = Arc::<AtomicBool>::default();
        let thread = thread::spawn({
            let (watched, done) = (Arc::clone(&watched), Arc::clone(&done));
            move || watch(&watched, &done)
        });
        let witness = Self { watched, done, thread };
        members.into_iter().for_each(|member| witness.also(member));
        witness
    }

    /// Watches one more member, such as one that was started again.
    pub(crate) fn also(&self, member: &Member) {
        let whom = (member.id.clone(), member.port());
        self.watched.lock().expect("the witness lives").push(whom);
    }

    #[track_caller]
    pub(crate) fn testifies_one_leader_at_a_time(self) {
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

fn watch(watched: &Mutex<Vec<(String, u16)>>, done: &AtomicBool) -> Terms {
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
        thread::sleep(Duration::from_millis(5));
    }
    terms
}
