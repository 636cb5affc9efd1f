//! Asks the application again and again whether it is healthy, and tells the election when that has
//! changed.

mod debounce;
mod probe;

use crate::clock::Clock;
use crate::config::Health;
use crate::status::{Application, Caller, Request};
use debounce::Debounce;
use recipes::election::Command;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Goes on for as long as the election does. A command may open so many files, if there is a limit.
///
/// # Errors
/// The signal handler for ended children cannot be set up.
pub async fn run(
    health: Health,
    files: Option<u64>,
    clock: Clock,
    requests: mpsc::Sender<Request>,
    told: watch::Sender<Option<Application>>,
) -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    let mut debounce = Debounce::new(health.failures, health.interval);
    let mut said = None;
    loop {
        let found = probe::probe(&health, files, &mut deaths).await;
        let failure = found.err();
        // Once, and not at each check.
        if failure != said
            && let Some(failure) = &failure
        {
            warn!("the application's check fails: {failure}");
        }
        let (next, turned) = debounce.after(failure.is_none(), clock.now());
        debounce = next;
        let healthy = debounce.is_healthy();
        let proves = debounce.left_to_prove(clock.now()).map(|left| {
            format!("its checks succeed again: healthy in {left:.0?} if they go on to")
        });
        told.send_replace(Some(Application { healthy, failure: failure.clone().or(proves) }));
        said = failure;
        if let Some(healthy) = turned {
            let is = if healthy { "is healthy" } else { "is not healthy" };
            info!("the application {is}");
            let (caller, _) = Caller::patient();
            if requests
                .send(Request::Carry(Command::ReportHealth { healthy }, caller))
                .await
                .is_err()
            {
                return Ok(());
            }
        }
        tokio::time::sleep(health.interval).await;
    }
}
