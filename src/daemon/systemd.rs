//! Notifies systemd that the daemon has started, that the loop of the election runs (the watchdog), and that the daemon
//! stops.

use crate::clock::Clock;
use crate::status::StatusHandle;
use sd_notify::NotifyState;
use std::time::Duration;

/// Notifies systemd that the daemon is ready, and then notifies systemd's watchdog, if it is enabled, until the election
/// ends.
pub(super) async fn report(status: StatusHandle, clock: Clock) {
    notify("READY=1").await;
    let Some(watchdog_timeout) = sd_notify::watchdog_enabled() else { return };
    let snapshot = status.snapshot;
    // `has_changed` fails when the election has ended.
    while snapshot.has_changed().is_ok() {
        // Notify the watchdog only while the election's loop runs, so that systemd restarts a daemon whose loop is stuck.
        let is_alive = snapshot.borrow().loop_runs(clock.now());
        if is_alive {
            notify("WATCHDOG=1").await;
        }
        // Notify the watchdog three times within its timeout, so that one late wake-up does not make systemd restart the
        // daemon.
        clock.sleep_until(Some(clock.now().after(watchdog_timeout / 3))).await;
    }
}

/// Notifies systemd that the daemon is shutting down.
pub(super) async fn leaving() {
    // Wait for systemd only briefly, because the shutdown has a deadline.
    drop(tokio::time::timeout(Duration::from_millis(100), notify("STOPPING=1")).await);
}

/// Sends a message to systemd from another thread: systemd may be slow to read, and the calling thread serves clients.
async fn notify(message: &str) {
    let state = message.to_owned();
    let sending =
        tokio::task::spawn_blocking(move || sd_notify::notify(&[NotifyState::Custom(&state)]));
    // If systemd cannot be reached, the daemon runs on.
    let _ignored = sending.await;
}
