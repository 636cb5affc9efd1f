//! Locks that are kept for clients that cannot stream, until their time is over.

use super::super::AppState;
use super::super::claims::Claim;
use super::super::problem::ProblemResponse;
use super::holding::HoldingHandle;
use crate::holdings::{Ended, HoldingName, HoldingView};
use recipes::{FencingToken, Moment};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// The locks that are kept, by the ids that their clients were given.
#[derive(Default)]
pub(in super::super) struct TtlLocks(Mutex<BTreeMap<String, TtlLockEntry>>);

struct TtlLockEntry {
    name: HoldingName,
    holding: HoldingHandle,
    /// When it is given back, unless its client renews it.
    until: Moment,
    /// Notified when the lock is renewed or released before its end.
    renewed: Arc<Notify>,
}

/// A kept lock, as it stands at one moment.
pub(super) struct TtlLockState {
    pub(super) token: FencingToken,
    /// The end of its lease or of its time, whichever comes first.
    pub(super) until: Moment,
    pub(super) claim: Claim,
}

impl TtlLocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TtlLockEntry>> {
        self.0.lock().expect("no code panics while holding it")
    }

    /// Keeps a lock, and returns its id.
    pub(super) fn keep(
        app: &AppState,
        name: HoldingName,
        holding: HoldingHandle,
        time: Duration,
    ) -> String {
        let id = holding.registration.id.clone();
        let until = app.clock.now().after(time);
        let renewed = Arc::default();
        app.kept.lock().insert(id.clone(), TtlLockEntry { name, holding, until, renewed });
        let app = app.clone();
        let kept = id.clone();
        tokio::spawn(async move { give_back_in_time(&app, &kept).await });
        id
    }

    /// Returns the state of a lock that is held for a TTL, and renews it if that is requested.
    pub(super) fn standing(
        app: &AppState,
        name: &HoldingName,
        id: &str,
        renewed: Option<Duration>,
    ) -> Option<TtlLockState> {
        let now = app.clock.now();
        let mut all = app.kept.lock();
        let kept = all.get_mut(id).filter(|kept| kept.name == *name && now < kept.until)?;
        let HoldingView::Held { token, until } = kept.holding.judge() else { return None };
        if let Some(time) = renewed {
            kept.until = now.after(time);
            kept.renewed.notify_one();
        }
        let claim = kept.holding.claim(Some(kept.until));
        Some(TtlLockState { token, until: until.min(kept.until), claim })
    }

    /// Takes a lock out, so that it can be given back.
    pub(super) fn take(app: &AppState, name: &HoldingName, id: &str) -> Option<HoldingHandle> {
        let now = app.clock.now();
        let mut all = app.kept.lock();
        let kept = all.get_mut(id).filter(|kept| kept.name == *name && now < kept.until)?;
        let is_held = matches!(kept.holding.judge(), HoldingView::Held { .. });
        all.remove(id).filter(|_| is_held).map(|kept| kept.holding)
    }
}

/// Gives a lock back when its time is over, and forgets it when it is lost.
async fn give_back_in_time(app: &AppState, id: &str) {
    loop {
        let (until, renewed) = {
            let mut all = app.kept.lock();
            let Some(kept) = all.get_mut(id) else { return };
            match kept.holding.judge() {
                HoldingView::Held { until: lease_end, .. } if app.clock.now() < kept.until => {
                    (kept.until.min(lease_end), kept.renewed.clone())
                }
                // Its client was told for how long it holds. While this member leaves, it is left to expire.
                HoldingView::Ended(Ended::Stopped) if !kept.holding.is_gone() => return,
                HoldingView::Held { .. }
                | HoldingView::Waiting { .. }
                | HoldingView::Gathering { .. }
                | HoldingView::Leaving
                | HoldingView::Ended(_) => {
                    all.remove(id);
                    return;
                }
            }
        };
        // The lease has been renewed by then, or not.
        tokio::select! {
            () = app.clock.sleep_until(Some(until)) => {}
            () = renewed.notified() => {}
        }
    }
}

pub(super) fn gone(name: &HoldingName) -> ProblemResponse {
    let detail = format!(
        "no such lock {name} is kept here: it was lost or given back, its time was over, or it never was; ask for \
         it again"
    );
    ProblemResponse::gone("lock-lost", "the lock is no longer held", detail)
}
