//! Transfers leadership from this member to one of higher priority, when the election says that it is time.

use crate::clock::Clock;
use crate::status::StatusHandle;
use crate::transfer::{self, TransferDone};
use std::time::Duration;
use tracing::{info, warn};

/// Limits the time until the target is ready.
const WITHIN: Duration = Duration::from_secs(30);

/// Does so each time, until the rest of the daemon is gone.
pub async fn run(mut status: StatusHandle, clock: Clock) {
    loop {
        let due = status.snapshot.borrow_and_update().standing.due_preemption();
        if let Some(member) = due {
            info!("{member} has the highest priority: transferring leadership to it");
            match transfer::preempt(&status, clock, member, WITHIN).await {
                Ok(TransferDone { leader, .. }) => {
                    info!("{} leads, which has a higher priority", leader.leader.id);
                }
                Err(refusal) => warn!("no transfer to a member of higher priority: {refusal}"),
            }
        }
        if status.snapshot.changed().await.is_err() {
            return;
        }
    }
}
