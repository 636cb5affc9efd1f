//! Locks that are held for a TTL, for clients that cannot stream.

use super::super::AppState;
use super::super::claims::Claim;
use super::super::problem::ProblemResponse;
use super::holding::HoldingHandle;
use crate::holdings::HoldingName;
use axum::http::StatusCode;
use recipes::holding::{End, HoldingState};
use recipes::{FencingToken, Moment};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// The locks that are held for a TTL, by the ids that their clients use.
#[derive(Default)]
pub(in super::super) struct TtlLocks(Mutex<BTreeMap<String, TtlLockEntry>>);

struct TtlLockEntry {
    name: HoldingName,
    holding: HoldingHandle,
    /// When the lock is released, unless its client renews it.
    until: Moment,
    /// Notified when the client renews the lock.
    renewed: Arc<Notify>,
}

/// The state of a lock that is held for a TTL, at one moment.
pub(super) struct TtlLockState {
    pub(super) token: FencingToken,
    /// The end of its lease or of its TTL, whichever comes first.
    pub(super) until: Moment,
    pub(super) claim: Claim,
}

impl TtlLocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TtlLockEntry>> {
        self.0.lock().expect("no code panics while holding it")
    }

    /// Holds a lock for a TTL, and returns its id.
    pub(super) fn keep(
        app: &AppState,
        name: HoldingName,
        holding: HoldingHandle,
        time: Duration,
    ) -> String {
        let id = holding.registration.entry.id.clone();
        let until = app.clock.now().after(time);
        let renewed = Arc::default();
        app.kept.lock().insert(id.clone(), TtlLockEntry { name, holding, until, renewed });
        let app = app.clone();
        let kept = id.clone();
        tokio::spawn(async move { release_in_time(&app, &kept).await });
        id
    }

    /// Returns the state of a lock that is held for a TTL, and renews it if `renewed` is set.
    pub(super) fn state(
        app: &AppState,
        name: &HoldingName,
        id: &str,
        renewed: Option<Duration>,
    ) -> Option<TtlLockState> {
        let now = app.clock.now();
        let mut all = app.kept.lock();
        let kept = all.get_mut(id).filter(|kept| kept.name == *name && now < kept.until)?;
        let HoldingState::Held { token, until } = kept.holding.state() else { return None };
        if let Some(time) = renewed {
            kept.until = now.after(time);
            kept.renewed.notify_one();
        }
        let claim = kept.holding.claim(Some(kept.until));
        Some(TtlLockState { token, until: until.min(kept.until), claim })
    }

    /// Removes a lock, so that it can be released.
    pub(super) fn take(app: &AppState, name: &HoldingName, id: &str) -> Option<HoldingHandle> {
        let now = app.clock.now();
        let mut all = app.kept.lock();
        let kept = all.get_mut(id).filter(|kept| kept.name == *name && now < kept.until)?;
        let is_held = matches!(kept.holding.state(), HoldingState::Held { .. });
        all.remove(id).filter(|_| is_held).map(|kept| kept.holding)
    }
}

/// Releases a lock when its TTL is over, and removes it when it is lost.
async fn release_in_time(app: &AppState, id: &str) {
    loop {
        let (until, renewed) = {
            let mut all = app.kept.lock();
            let Some(kept) = all.get_mut(id) else { return };
            match kept.holding.state() {
                HoldingState::Held { until: lease_end, .. } if app.clock.now() < kept.until => {
                    (kept.until.min(lease_end), kept.renewed.clone())
                }
                // This member is shutting down, but the client was promised the lock until its end. Keep the lock until it
                // expires.
                HoldingState::Ended(End::Stopped) if !kept.holding.is_gone() => return,
                _ => {
                    all.remove(id);
                    return;
                }
            }
        };
        // The loop then checks whether the lock or its lease has been renewed.
        tokio::select! {
            () = app.clock.sleep_until(Some(until)) => {}
            () = renewed.notified() => {}
        }
    }
}

/// Returns the error for a lock that is not held.
pub(super) fn gone(name: &HoldingName) -> ProblemResponse {
    let detail = format!(
        "no such lock {name} is kept here: it was lost or given back, its time was over, or it never was; ask for \
         it again"
    );
    ProblemResponse::new(StatusCode::GONE, "lock-lost", "the lock is no longer held", detail)
}
