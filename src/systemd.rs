//! Tells systemd that this member serves, how it stands, and that its loop turns. Started by anything
//! else, it tells nobody.

use crate::clock::Clock;
use crate::desk::{Front, Report};
use crate::election::{Moment, Role};
use sd_notify::NotifyState;

/// Says that the member serves, and then goes on telling for as long as it runs.
pub async fn tell(desk: Front, clock: Clock) {
    let mut reports = desk.report;
    // The watchdog's patience must not be tried to its end.
    let feeding = sd_notify::watchdog_enabled().map(|patience| patience / 3);
    say(&[NotifyState::Ready]);
    let mut said = String::new();
    loop {
        let report = reports.borrow_and_update().clone();
        let now = clock.now();
        let status = status(&report, now);
        if status != said {
            say(&[NotifyState::Status(&status)]);
            said = status;
        }
        // What is stuck is left to starve.
        if feeding.is_some() && report.turns(now) {
            say(&[NotifyState::Watchdog]);
        }
        let due = [feeding.map(|pause| now.after(pause)), report.standing.changes_at(now)];
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            () = clock.sleep_until(due.into_iter().flatten().min()) => {}
        }
    }
}

/// Says that the member leaves.
pub fn leaving() {
    say(&[NotifyState::Stopping]);
}

fn say(what: &[NotifyState<'_>]) {
    // Whoever started us may have stopped listening.
    let _nobody_hears = sd_notify::notify(what);
}

fn status(report: &Report, now: Moment) -> String {
    match report.standing.at(now) {
        Role::Leader { announcement, .. } => format!("leads, token {}", announcement.ticket.token),
        Role::Candidate => "first in the line, not confirmed by a quorum".into(),
        Role::Follower { heard: Some(heard) } => format!("follows {}", heard.leader.id),
        Role::Follower { heard: None } => "in the line, has heard of no leader".into(),
        Role::Absent => match &report.link.problem {
            Some(problem) => format!("not in the line: {problem}"),
            None => "not in the line".into(),
        },
    }
}
