//! The claim of an answer that this member leads: judged again right before the answer is written.
//!
//! Between the judgement and the system call that writes, the process may be stopped for long enough for
//! another to lead. So the connection asks once more, and is closed rather than tell what is no longer so.

use super::holdings::HoldingClaim;
use super::serve::AnswerClaim;
use super::{AppState, Verdict};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

tokio::task_local! {
    static MAKING: Making;
}

/// The answer that this task is making.
struct Making {
    app: AppState,
    /// Most answers claim nothing, and are made without.
    claim: RefCell<Option<Arc<Claim>>>,
}

pub(super) struct Claim {
    app: AppState,
    /// The token under which the answer says that this member leads; 0 if it does not say so.
    token: AtomicU64,
    /// What it says of a lock or barrier, if it is about one.
    lock: OnceLock<HoldingClaim>,
}

impl Claim {
    /// Makes an answer, and returns its claim too, if it has or may get one: of the verdict that was [`follow`]ed last.
    pub(super) async fn of<T>(
        app: AppState,
        making: impl Future<Output = T>,
    ) -> (T, Option<Arc<Self>>) {
        let answer = async {
            let made = making.await;
            (made, MAKING.with(|making| making.claim.take()))
        };
        MAKING.scope(Making { app, claim: RefCell::default() }, answer).await
    }

    /// The same for an answer that nothing is waited for.
    pub(super) fn of_now<T>(app: AppState, make: impl FnOnce() -> T) -> (T, Option<Arc<Self>>) {
        let answer = || (make(), MAKING.with(|making| making.claim.take()));
        MAKING.sync_scope(Making { app, claim: RefCell::default() }, answer)
    }

    /// Returns the claim of the answer that is being made, for a body that is made later.
    pub(super) fn of_this_answer() -> Option<Arc<Self>> {
        MAKING.try_with(Making::claim).ok()
    }

    /// Has the answer claim something of a lock or barrier as well; once for each answer.
    pub(super) fn about(&self, lock: HoldingClaim) {
        let _said_before = self.lock.set(lock);
    }

    /// Has what is written from now on say that the lock is held, or not.
    pub(super) fn says_held(&self, held: bool) {
        if let Some(lock) = self.lock.get() {
            lock.says_held(held);
        }
    }

    pub(super) fn follow(&self, verdict: &Verdict) {
        let token = verdict.view.own_term().map_or(0, |token| token.0);
        self.token.store(token, Ordering::Relaxed);
    }
}

impl Making {
    fn claim(&self) -> Arc<Claim> {
        let none_yet = || {
            let (token, lock) = (AtomicU64::new(0), OnceLock::new());
            Arc::new(Claim { app: self.app.clone(), token, lock })
        };
        self.claim.borrow_mut().get_or_insert_with(none_yet).clone()
    }
}

/// Has the answer that is being made, if any, claim what was judged.
pub(super) fn follow(verdict: &Verdict) {
    let _made_later = MAKING.try_with(|making| {
        if verdict.view.own_term().is_some() || making.claim.borrow().is_some() {
            making.claim().follow(verdict);
        }
    });
}

impl AnswerClaim for Claim {
    fn is_still_so(&self) -> bool {
        let leads = match self.token.load(Ordering::Relaxed) {
            0 => true,
            token => self.app.leads_with(token),
        };
        leads && self.lock.get().is_none_or(HoldingClaim::is_still_so)
    }
}
