//! Asks a member for the current leader, as a user would with `curl`.

use crate::api::{LEADER, LeaderState};
use crate::config::Listen;
use crate::terminal::{Sidecar, SidecarAnswer};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::sleep;

/// The time limit for an answer, unless the request waits for a change.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a request that waits for a change: longer than the `wait` parameter of the request.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(40);
/// The time between a request without an answer and the next one.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Returns a client for the member that serves its API at this port.
pub(super) fn sidecar_at(port: u16) -> Sidecar {
    Sidecar::listening_at(&Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Reports the answer of one member about the leader, now and at each change, or `None` for an answer that cannot be
/// parsed. Reports nothing without an answer, and asks again. Runs until the future is dropped.
pub(super) async fn follow(sidecar: Sidecar, report: impl Fn(Option<LeaderState>)) {
    let mut path = LEADER.path.to_owned();
    loop {
        let answer = sidecar.get(&path).within(CHANGE_TIMEOUT).answer().await.ok();
        match answer.as_ref().and_then(SidecarAnswer::index) {
            Some(index) => path = format!("{}?index={index}&wait=30s", LEADER.path),
            // There was no answer, or an answer without an index, which does not come from a sidecar.
            None => sleep(RETRY_INTERVAL).await,
        }
        if let Some(answer) = answer {
            report(answer.body().ok());
        }
    }
}
