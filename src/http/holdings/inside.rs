//! The participants that stream from a barrier, by id: a request with that id makes one leave.

use super::holding::Release;
use crate::clock::Clock;
use crate::holdings::{HoldingName, Judged, Published};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

#[derive(Clone, Default)]
pub(in super::super) struct Inside(Arc<Mutex<BTreeMap<String, Member>>>);

struct Member {
    name: HoldingName,
    published: watch::Receiver<Published>,
    release: Release,
    leaves: Arc<AtomicBool>,
}

/// One of them, which is forgotten when this is dropped.
pub(super) struct Entry {
    all: Inside,
    pub(super) id: String,
    leaves: Arc<AtomicBool>,
}

/// The answer to a request to leave.
pub(super) enum Leaving {
    /// The participant leaves.
    Leaves,
    /// The participant is still in front of the barrier.
    NotInside,
    /// The participant is unknown, or no longer inside.
    Gone,
}

impl Inside {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(
        &self,
        name: HoldingName,
        published: watch::Receiver<Published>,
        release: Release,
    ) -> Entry {
        let id = format!("{:032x}", fastrand::u128(..));
        let leaves = Arc::<AtomicBool>::default();
        let member = Member { name, published, release, leaves: leaves.clone() };
        self.lock().insert(id.clone(), member);
        Entry { all: self.clone(), id, leaves }
    }

    /// Has one leave.
    pub(super) fn leave(&self, name: &HoldingName, id: &str, clock: Clock) -> Leaving {
        let all = self.lock();
        let Some(member) = all.get(id).filter(|member| member.name == *name) else {
            return Leaving::Gone;
        };
        let judged = member.published.borrow().at(clock.now());
        match judged {
            Judged::Waiting { .. } | Judged::Gathering { .. } => Leaving::NotInside,
            Judged::Held { .. } | Judged::Leaving => {
                member.leaves.store(true, Ordering::Relaxed);
                member.release.release();
                Leaving::Leaves
            }
            Judged::Ended(_) => Leaving::Gone,
        }
    }
}

impl Entry {
    /// Whether its client has had it leave.
    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}
