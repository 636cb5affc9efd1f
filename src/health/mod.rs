//! Checks the application's health periodically, and reports each change to the election.

mod debounce;
mod probe;

use crate::api::Application;
use crate::config::Health;
use crate::status::{MemberRequest, ReplyTo};
use debounce::Debounce;
use recipes::election::Command;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Checks the application for as long as the election runs. `file_limit` is the limit of open files for a check's command, if
/// there is one.
///
/// # Errors
/// The signal handler for ended children cannot be set up.
pub async fn run(
    health: Health,
    file_limit: Option<u64>,
    requests: mpsc::Sender<MemberRequest>,
    published: watch::Sender<Option<Application>>,
) -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    let mut debounce = Debounce::new(health.failures);
    let mut last_failure = None;
    loop {
        let failure = probe::probe(&health, file_limit, &mut deaths).await.err();
        // Log a failure once, and not at each check.
        if failure != last_failure
            && let Some(failure) = &failure
        {
            warn!("the application's check fails: {failure}");
        }
        let has_changed = debounce.note(failure.is_none());
        let healthy = debounce.is_healthy();
        let recovering = || "its checks succeed again, but not yet often enough".to_owned();
        let why_not = failure.clone().or_else(|| (!healthy).then(recovering));
        published.send_replace(Some(Application { healthy, failure: why_not }));
        last_failure = failure;
        if has_changed {
            info!("the application is {}", if healthy { "healthy" } else { "not healthy" });
            let (caller, _) = ReplyTo::new(None);
            let report = MemberRequest::Command(Command::ReportHealth { healthy }, caller);
            if requests.send(report).await.is_err() {
                return Ok(());
            }
        }
        tokio::time::sleep(health.interval).await;
    }
}
