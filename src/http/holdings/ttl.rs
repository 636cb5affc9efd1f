//! Locks that are held for a TTL, for clients that cannot stream.

use super::super::AppState;
use super::super::claims::ConnectionClaims;
use super::super::problem::ProblemResponse;
use super::held_body;
use super::holding::HoldingHandle;
use crate::api::TtlLock;
use crate::holdings::HoldingName;
use axum::http::StatusCode;
use recipes::Moment;
use recipes::holding::{End, HoldingState};
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

impl TtlLocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TtlLockEntry>> {
        self.0.lock().expect("no code panics while holding it")
    }

    /// Returns the lock with this name and id, unless its TTL is over.
    fn find<'a>(
        all: &'a mut BTreeMap<String, TtlLockEntry>,
        name: &HoldingName,
        id: &str,
        now: Moment,
    ) -> Result<&'a mut TtlLockEntry, ProblemResponse> {
        let entry = all.get_mut(id).filter(|entry| entry.name == *name && now < entry.until);
        entry.ok_or_else(|| gone(name))
    }

    /// Holds a lock for a TTL, and returns its id.
    pub(super) fn add(
        app: &AppState,
        name: HoldingName,
        holding: HoldingHandle,
        ttl: Duration,
    ) -> String {
        let id = holding.registration.entry.id.clone();
        let until = app.clock.now().after(ttl);
        let renewed = Arc::default();
        app.ttl_locks.lock().insert(id.clone(), TtlLockEntry { name, holding, until, renewed });
        let app = app.clone();
        let held = id.clone();
        tokio::spawn(async move { release_in_time(&app, &held).await });
        id
    }

    /// Returns the body for a lock that is held for a TTL, and makes the answer claim that it is held. Renews the lock if
    /// `ttl` is set.
    pub(super) fn body(
        app: &AppState,
        name: &HoldingName,
        id: String,
        ttl: Option<Duration>,
    ) -> Result<TtlLock, ProblemResponse> {
        let now = app.clock.now();
        let mut all = app.ttl_locks.lock();
        let entry = Self::find(&mut all, name, &id, now)?;
        let HoldingState::Held { token, until } = entry.holding.state() else {
            return Err(gone(name));
        };
        if let Some(ttl) = ttl {
            entry.until = now.after(ttl);
            entry.renewed.notify_one();
        }
        ConnectionClaims::current().claim(Some(entry.holding.claim(Some(entry.until))));
        // The lease may end before the TTL.
        Ok(TtlLock { lock: id, held: held_body(app, token, until.min(entry.until)) })
    }

    /// Removes a lock, so that it can be released.
    pub(super) fn take(
        app: &AppState,
        name: &HoldingName,
        id: &str,
    ) -> Result<HoldingHandle, ProblemResponse> {
        let now = app.clock.now();
        let mut all = app.ttl_locks.lock();
        let entry = Self::find(&mut all, name, id, now)?;
        let is_held = matches!(entry.holding.state(), HoldingState::Held { .. });
        let removed = all.remove(id).filter(|_| is_held);
        removed.map(|entry| entry.holding).ok_or_else(|| gone(name))
    }
}

/// Releases a lock when its TTL is over, and removes it when it is lost.
async fn release_in_time(app: &AppState, id: &str) {
    loop {
        let (until, renewed) = {
            let mut all = app.ttl_locks.lock();
            let Some(entry) = all.get_mut(id) else { return };
            match entry.holding.state() {
                HoldingState::Held { until: lease_end, .. } if app.clock.now() < entry.until => {
                    (entry.until.min(lease_end), entry.renewed.clone())
                }
                // This member is shutting down, but the client was promised the lock until its end. Keep the lock until it
                // expires.
                HoldingState::Ended(End::Stopped) if !entry.holding.is_gone() => return,
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
fn gone(name: &HoldingName) -> ProblemResponse {
    let detail = format!(
        "no such lock {name} is kept here: it was lost or given back, its time was over, or it never was; ask for \
         it again"
    );
    ProblemResponse::new(StatusCode::GONE, "lock-lost", "the lock is no longer held", detail)
}
