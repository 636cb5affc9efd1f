//! Reports to systemd that this member serves, and that its loop runs.

use crate::clock::Clock;
use crate::status::StatusHandle;
use sd_notify::NotifyState;
use std::time::Duration;

/// Notifies systemd that the member is ready, and then feeds the watchdog.
pub(super) async fn report(status: StatusHandle, clock: Clock) {
    notify("READY=1").await;
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    let snapshot = status.snapshot;
    while snapshot.has_changed().is_ok() {
        // Feed it only while the runner's loop runs, so that systemd restarts a member that is stuck.
        let is_alive = snapshot.borrow().loop_runs(clock.now());
        if is_alive {
            notify("WATCHDOG=1").await;
        }
        // Feed it three times as often as it requires, so that a late wake-up does not cause a timeout.
        clock.sleep_until(Some(clock.now().after(patience / 3))).await;
    }
}

/// Notifies systemd that the member leaves.
pub(super) async fn leaving() {
    // This must not delay the shutdown.
    drop(tokio::time::timeout(Duration::from_millis(100), notify("STOPPING=1")).await);
}

/// Sends a message to the service manager from another thread, because the manager may be slow to read, and clients must
/// not wait for it.
async fn notify(what: &str) {
    let what = what.to_owned();
    let sending =
        tokio::task::spawn_blocking(move || sd_notify::notify(&[NotifyState::Custom(&what)]));
    let _receiver_gone = sending.await;
}
