//! The claim of an answer that this member leads: judged again right before the answer is written.
//!
//! Between the judgement and the system call that writes, the process may be stopped for long enough for
//! another to lead. So the connection checks again, and is closed if the answer has become wrong.

use super::holdings::HoldingClaim;
use super::serve::AnswerClaim;
use super::{AppState, Verdict};
use recipes::FencingToken;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

tokio::task_local! {
    static MAKING: CurrentAnswer;
}

/// The answer that this task is making.
struct CurrentAnswer {
    app: AppState,
    /// Most answers claim nothing, and are made without.
    claim: RefCell<Option<Arc<LeadershipClaim>>>,
}

pub(super) struct LeadershipClaim {
    app: AppState,
    all_said: Mutex<UnflushedClaims>,
    /// The lock or barrier that the answer is about, if it is about one.
    lock: OnceLock<HoldingClaim>,
}

/// Assertions of an answer that may not be written yet: a stream makes one after another.
#[derive(Default)]
struct UnflushedClaims {
    earlier: Vec<Assertion>,
    last: Assertion,
    /// Whether the last is written. Then all before it is, too.
    is_written: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Assertion {
    /// That this member leads, under this token.
    leads: Option<FencingToken>,
    /// That the lock is held.
    holds: bool,
}

impl LeadershipClaim {
    /// Makes an answer, and returns its claim too, if it has or may get one: of the verdict that was [`follow`]ed last.
    pub(super) async fn of<T>(
        app: AppState,
        making: impl Future<Output = T>,
    ) -> (T, Option<Arc<Self>>) {
        let answer = async {
            let made = making.await;
            (made, MAKING.with(|making| making.claim.take()))
        };
        MAKING.scope(CurrentAnswer { app, claim: RefCell::default() }, answer).await
    }

    /// Returns the claim of the answer that is being made, for a body that is made later.
    pub(super) fn of_this_answer() -> Option<Arc<Self>> {
        MAKING.try_with(CurrentAnswer::claim).ok()
    }

    /// Has the answer claim something of a lock or barrier as well; once for each answer.
    pub(super) fn about(&self, lock: HoldingClaim) {
        let _said_before = self.lock.set(lock);
    }

    /// Has what is written from now on say that the lock is held, or not.
    pub(super) fn says_held(&self, holds: bool) {
        self.all_said().say(|said| said.holds = holds);
    }

    pub(super) fn follow(&self, verdict: &Verdict) {
        let leads = verdict.view.own_term();
        self.all_said().say(|said| said.leads = leads);
    }

    fn all_said(&self) -> MutexGuard<'_, UnflushedClaims> {
        self.all_said.lock().expect("no code panics while holding it")
    }
}

impl UnflushedClaims {
    fn say(&mut self, say: impl FnOnce(&mut Assertion)) {
        let before = self.last;
        say(&mut self.last);
        if !self.is_written && self.last != before && before != Assertion::default() {
            self.earlier.push(before);
        }
        self.is_written = false;
    }
}

impl CurrentAnswer {
    fn claim(&self) -> Arc<LeadershipClaim> {
        self.claim
            .borrow_mut()
            .get_or_insert_with(|| {
                let all_said = Mutex::default();
                let lock = OnceLock::new();
                Arc::new(LeadershipClaim { app: self.app.clone(), all_said, lock })
            })
            .clone()
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

impl AnswerClaim for LeadershipClaim {
    fn is_still_so(&self) -> bool {
        let all_said = self.all_said();
        all_said.earlier.iter().chain([&all_said.last]).all(|said| {
            let leads = said.leads.is_none_or(|token| self.app.leads_with(token));
            leads && (!said.holds || self.lock.get().is_none_or(HoldingClaim::is_still_so))
        })
    }

    fn all_written(&self) {
        let mut all_said = self.all_said();
        all_said.earlier.clear();
        all_said.is_written = true;
    }
}
