//! The participants that stream from a barrier, by id: a request with that id makes one leave.

use super::holding::Release;
use crate::clock::Clock;
use crate::holdings::{HoldingName, HoldingView, Published};
use crate::random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

#[derive(Clone, Default)]
pub(in super::super) struct InsideRegistry(Arc<Mutex<BTreeMap<String, InsideMember>>>);

struct InsideMember {
    name: HoldingName,
    published: watch::Receiver<Published>,
    release: Release,
    leaves: Arc<AtomicBool>,
}

/// One of them, which is forgotten when this is dropped.
pub(super) struct InsideRegistration {
    all: InsideRegistry,
    pub(super) id: String,
    leaves: Arc<AtomicBool>,
}

/// The answer to a request to leave.
pub(super) enum LeaveOutcome {
    /// The participant leaves.
    Leaves,
    /// The participant is still in front of the barrier.
    NotInside,
    /// The participant is unknown, or no longer inside.
    Gone,
}

impl InsideRegistry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, InsideMember>> {
        self.0.lock().expect("no code panics while holding it")
    }

    pub(super) fn add(
        &self,
        name: HoldingName,
        published: watch::Receiver<Published>,
        release: Release,
    ) -> InsideRegistration {
        let id = format!("{:032x}", random::id());
        let leaves = Arc::<AtomicBool>::default();
        let member = InsideMember { name, published, release, leaves: leaves.clone() };
        self.lock().insert(id.clone(), member);
        InsideRegistration { all: self.clone(), id, leaves }
    }

    /// Has one leave.
    pub(super) fn leave(&self, name: &HoldingName, id: &str, clock: Clock) -> LeaveOutcome {
        let all = self.lock();
        let Some(member) = all.get(id).filter(|member| member.name == *name) else {
            return LeaveOutcome::Gone;
        };
        let judged = member.published.borrow().at(clock.now());
        match judged {
            HoldingView::Waiting { .. } | HoldingView::Gathering { .. } => LeaveOutcome::NotInside,
            HoldingView::Held { .. } | HoldingView::Leaving => {
                member.leaves.store(true, Ordering::Relaxed);
                member.release.release();
                LeaveOutcome::Leaves
            }
            HoldingView::Ended(_) => LeaveOutcome::Gone,
        }
    }
}

impl InsideRegistration {
    /// Whether its client has had it leave.
    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

impl Drop for InsideRegistration {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}
