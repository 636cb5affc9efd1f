//! Locks that are held for a TTL, for clients that cannot stream.

use super::super::AppState;
use super::super::claims::ConnectionClaims;
use super::super::problem::ProblemResponse;
use super::held_body;
use super::holding::{HoldingHandle, WaitLimit};
use crate::api::TtlLock;
use crate::holdings::HoldingName;
use axum::http::StatusCode;
use recipes::holding::{End, HoldingKind, HoldingState};
use std::time::Duration;

/// Spawns a task that keeps the lock until the end of the TTL, which renewals postpone, or until the lock is lost.
/// Returns the id by which to renew and release the lock.
pub(super) fn hold(app: &AppState, mut holding: HoldingHandle, ttl: Duration) -> String {
    let now = app.clock.now();
    let id = holding.entry.id.clone();
    holding.entry.ends_at.send_replace(Some(now.after(ttl)));
    tokio::spawn(async move {
        let forever = WaitLimit::of(None, now);
        let state =
            holding.wait_while(|state| matches!(state, HoldingState::Held { .. }), forever).await;
        // This member is shutting down, but the client may rely on the lock until the end of its lease or TTL. To drop
        // `holding` would release the lock, so keep it until the client releases the lock, or the watchdog does at the end
        // of the TTL.
        if state == HoldingState::Ended(End::Stopped) {
            holding.entry.gone().await;
        }
    });
    id
}

/// Returns the body for a lock that is held for a TTL, and notes that the answer claims that the lock is held: it is not sent
/// after the lease. Renews the lock if `ttl` is set.
pub(super) fn body(
    app: &AppState,
    name: &HoldingName,
    id: String,
    ttl: Option<Duration>,
) -> Result<TtlLock, ProblemResponse> {
    let entry = app.registry.find(HoldingKind::Lock, name, &id).ok_or_else(|| gone(name))?;
    let (token, lease_end, mut ends_at) =
        entry.held_for_ttl(app.clock.now()).ok_or_else(|| gone(name))?;
    if let Some(ttl) = ttl {
        ends_at = app.clock.now().after(ttl);
        entry.ends_at.send_replace(Some(ends_at));
    }
    // The answer says that the lock is held, so the connection must not write the answer once that is no longer true.
    ConnectionClaims::current().claim(Some(entry.claim(app.clock, Some(ends_at))));
    // The lease may end before the TTL.
    Ok(TtlLock { lock: id, held: held_body(app, token, lease_end.min(ends_at)) })
}

/// Returns the error for a lock that is not held.
pub(super) fn gone(name: &HoldingName) -> ProblemResponse {
    let detail = format!(
        "no lock {name} with that id is held through this member: it was lost or released, its TTL has ended, or it \
         never existed; request it again"
    );
    ProblemResponse::new(StatusCode::GONE, "lock-lost", detail)
}
