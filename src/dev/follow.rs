//! Asks a member for the current leader, as a user would with `curl`.

use crate::api::{LEADER, LeaderState};
use crate::config::Listen;
use crate::terminal::{Sidecar, SidecarAnswer};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::sleep;

/// The time limit for an answer, unless the request waits for a change.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The time limit for a request that waits for a change: longer than its `wait` parameter.
const PATIENCE_FOR_CHANGE: Duration = Duration::from_secs(40);
/// How long to wait after a request without an answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns a client for the member that serves its API at this port.
pub(super) fn sidecar_at(port: u16) -> Sidecar {
    Sidecar::that_listens(&Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Reports the member's answer about the leader, now and at each change. Runs until the future is dropped.
pub(super) async fn follow(sidecar: Sidecar, report: impl Fn(Option<LeaderState>)) {
    let mut path = LEADER.path.to_owned();
    loop {
        let answer = sidecar.get(&path).within(PATIENCE_FOR_CHANGE).answer().await.ok();
        match answer.as_ref().and_then(SidecarAnswer::index) {
            Some(index) => path = format!("{}?index={index}&wait=30s", LEADER.path),
            None => sleep(PAUSE).await,
        }
        if let Some(answer) = answer {
            report(answer.body().ok());
        }
    }
}
