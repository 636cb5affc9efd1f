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

/// Checks the application periodically. Publishes the result of each check to `published`, and sends each change of the
/// application's health to the election with `requests`. Returns when such a change cannot be sent, because the
/// election has ended. `file_limit` is the limit of open files for a check's command, if there is one.
///
/// # Errors
/// The operating system refuses a handler for SIGCHLD.
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
        // Log a failure once, and not again at each check that fails in the same way.
        if failure != last_failure
            && let Some(failure) = &failure
        {
            warn!("the application's check fails: {failure}");
        }
        let has_changed = debounce.note(failure.is_none());
        let healthy = debounce.is_healthy();
        // After a success, an application that was unhealthy stays so until enough checks in a row have succeeded.
        let recovering = || "its checks succeed again, but not yet often enough".to_owned();
        let reason = failure.clone().or_else(|| (!healthy).then(recovering));
        published.send_replace(Some(Application { healthy, failure: reason }));
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
