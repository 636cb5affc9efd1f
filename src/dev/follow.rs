//! Asks a member who leads, as a person would with `curl`.

use crate::api::{LEADER, LeaderState};
use crate::config::Listen;
use crate::terminal::{ClientError, Sidecar, SidecarAnswer};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::sleep;

/// How long an answer may take, unless the member is asked to wait for a change.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than the `wait` with which the member is asked.
const PATIENCE_FOR_CHANGE: Duration = Duration::from_secs(40);
/// Between two questions of which the first got no answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the member that serves its API at this port.
pub(super) fn sidecar_at(port: u16) -> Sidecar {
    Sidecar::that_listens(&Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Returns whom the member names as the leader at this moment.
pub(super) async fn leader_of(sidecar: &Sidecar) -> Result<Option<LeaderState>, ClientError> {
    let answer = sidecar.get(LEADER.path).within(PATIENCE).answer().await;
    answer.map(|answer| named_in(&answer))
}

/// Reports whom the member names as the leader, now and each time that this changes, until the future is dropped.
pub(super) async fn follow(sidecar: Sidecar, report: impl Fn(Option<LeaderState>)) {
    let mut path = LEADER.path.to_owned();
    loop {
        let answer = sidecar.get(&path).within(PATIENCE_FOR_CHANGE).answer().await.ok();
        match answer.as_ref().and_then(SidecarAnswer::index) {
            Some(index) => path = format!("{}?index={index}&wait=30s", LEADER.path),
            None => sleep(PAUSE).await,
        }
        if let Some(answer) = answer {
            report(named_in(&answer));
        }
    }
}

/// Returns the leader that an answer names; `None` if it names none, which is an answer as well.
fn named_in(answer: &SidecarAnswer) -> Option<LeaderState> {
    answer.body().ok()
}
