//! Reports to systemd that this member serves, its state, and that its loop runs.

use crate::clock::Clock;
use crate::status::{Snapshot, StatusHandle};
use recipes::Moment;
use recipes::election::Role;
use sd_notify::NotifyState;
use std::time::Duration;

/// Notifies systemd that the member is ready, then of each change of its state, and feeds the watchdog.
pub(super) async fn report(status: StatusHandle, clock: Clock) {
    let mut snapshots = status.snapshot;
    // Feed the watchdog three times as often as it requires, so that a late wake-up does not cause a timeout.
    let feeding = sd_notify::watchdog_enabled().map(|patience| patience / 3);
    notify("READY=1").await;
    let mut fed_at = None;
    let mut sent_status = String::new();
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        let now = clock.now();
        let status = state_line(&snapshot, now);
        if status != sent_status {
            notify(&format!("STATUS={status}")).await;
            sent_status = status;
        }
        // Feed the watchdog only while the runner's loop runs, so that systemd restarts a member that is stuck.
        let feeding_at = feeding.map(|pause| fed_at.map_or(now, |fed: Moment| fed.after(pause)));
        if feeding_at.is_some_and(|due| due <= now) {
            fed_at = Some(now);
            if snapshot.loop_runs(now) {
                notify("WATCHDOG=1").await;
            }
        }
        let feeding_at = feeding.zip(fed_at).map(|(pause, fed)| fed.after(pause));
        let due = [feeding_at, snapshot.standing.changes_at(now)];
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() { return },
            () = clock.sleep_until(due.into_iter().flatten().min()) => {}
        }
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

/// Returns the text that `systemctl status` shows for this state.
fn state_line(snapshot: &Snapshot, now: Moment) -> String {
    match snapshot.standing.at(now) {
        Role::Leader { announcement, .. } => format!("leads, token {}", announcement.ticket.token),
        Role::Candidate => "first in the queue, not confirmed by a quorum".into(),
        Role::Follower { leader: Some(announcement) } => {
            format!("follows {}", announcement.leader.id)
        }
        Role::Follower { leader: None } => "in the queue, has heard of no leader".into(),
        Role::Absent => match &snapshot.link.problem {
            Some(problem) => format!("not in the queue: {problem}"),
            None => "not in the queue".into(),
        },
    }
}
