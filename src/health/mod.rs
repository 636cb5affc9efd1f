//! Checks the application's health periodically, and reports each change to the election.

mod debounce;
mod probe;

use crate::api::Application;
use crate::clock::Clock;
use crate::config::Health;
use crate::status::{MemberRequest, ReplyTo};
use debounce::Debounce;
use recipes::election::Command;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Checks the application for as long as the election runs. `files` is the limit of open files for a check's command, if
/// there is one.
///
/// # Errors
/// The signal handler for ended children cannot be set up.
pub async fn run(
    health: Health,
    files: Option<u64>,
    clock: Clock,
    requests: mpsc::Sender<MemberRequest>,
    published: watch::Sender<Option<Application>>,
) -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    let mut debounce = Debounce::new(health.failures, health.interval);
    let mut last_failure = None;
    loop {
        let failure = probe::probe(&health, files, &mut deaths).await.err();
        // Log a failure once, and not at each check.
        if failure != last_failure
            && let Some(failure) = &failure
        {
            warn!("the application's check fails: {failure}");
        }
        let (next, turned) = debounce.after(failure.is_none(), clock.now());
        debounce = next;
        let healthy = debounce.is_healthy();
        let recovering = debounce.left_to_prove(clock.now()).map(|left| {
            format!("its checks succeed again: healthy in {left:.0?} if they go on to")
        });
        let why_not = failure.clone().or(recovering);
        published.send_replace(Some(Application { healthy, failure: why_not }));
        last_failure = failure;
        if let Some(healthy) = turned {
            let is = if healthy { "is healthy" } else { "is not healthy" };
            info!("the application {is}");
            let (caller, _) = ReplyTo::new(None);
            if requests
                .send(MemberRequest::Command(Command::ReportHealth { healthy }, caller))
                .await
                .is_err()
            {
                return Ok(());
            }
        }
        tokio::time::sleep(health.interval).await;
    }
}
