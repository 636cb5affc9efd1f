//! Many requests to a leader that is frozen amid them: was each yes true when it was asked for?

use crate::{
    asker::{Asker, now},
    member::Member,
    sampler::{Claim, Stint, boottime_ns, claim_of},
    wait::eventually,
};
use rustix::time::ClockId;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const CONNECTIONS: usize = 16;

/// Asks over many connections at once, without a pause while the answer is yes.
pub(crate) struct Requests {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Yes>>>,
}

struct Yes {
    asked_ns: u64,
    claim: Claim,
}

impl Requests {
    /// Returns when so many have been answered that more are surely under way.
    pub(crate) fn to(member: &Member) -> Self {
        let (is_over, told) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = ["/is-leader", "/leader"].into_iter().cycle().take(CONNECTIONS).map(|path| {
            let (host, port) = (Arc::clone(member.host()), member.port());
            let (is_over, told) = (Arc::clone(&is_over), Arc::clone(&told));
            thread::spawn(move || {
                host.enter();
                let mut yeses = vec![];
                while !is_over.load(SeqCst) {
                    // A member that has been killed meanwhile does not listen.
                    let asking = Asker::at(port).map(|mut asker| {
                        while let Some(yes) =
                            ask(&mut asker, path).filter(|_| !is_over.load(SeqCst))
                        {
                            yeses.push(yes);
                            told.fetch_add(1, SeqCst);
                        }
                    });
                    let _refused = asking;
                    thread::sleep(Duration::from_millis(5));
                }
                yeses
            })
        });
        let requests = Self { threads: threads.collect(), is_over };
        eventually("the leader says so many times", || match told.load(SeqCst) {
            enough if enough > 50 * CONNECTIONS => Ok(()),
            few => Err(few.to_string()),
        });
        requests
    }

    /// Returns how many yeses came, and those that were not true any more when they were asked for: their deadline was
    /// over, or another member had been seen to lead.
    pub(crate) fn end(mut self, stints: &[Stint]) -> (usize, Vec<String>) {
        self.is_over.store(true, SeqCst);
        let threads = self.threads.drain(..).map(|thread| thread.join().expect("it asks"));
        let yeses: Vec<Yes> = threads.flatten().collect();
        let mut last_asked = BTreeMap::<u64, u64>::new();
        let mut late = vec![];
        for Yes { asked_ns, claim } in &yeses {
            let last = last_asked.entry(claim.token).or_default();
            *last = (*asked_ns).max(*last);
            if claim.deadline_ns <= *asked_ns {
                late.push(format!("asked at {asked_ns} ns for {claim:?}"));
            }
        }
        for (token, asked_ns) in last_asked {
            let next = stints.iter().find(|stint| stint.token > token);
            if let Some(next) = next.filter(|next| boottime_ns(next.from) < asked_ns) {
                late.push(format!("asked at {asked_ns} ns for token {token:#x} beside {next:?}"));
            }
        }
        (yeses.len(), late)
    }
}

/// The threads end also when the test fails.
impl Drop for Requests {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
    }
}

fn ask(asker: &mut Asker, path: &str) -> Option<Yes> {
    let asked_ns = now(ClockId::Boottime);
    let (status, told) = asker.ask(path).ok()?;
    Some(Yes { asked_ns, claim: claim_of(path, status, &told)? })
}
