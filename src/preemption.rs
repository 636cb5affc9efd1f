//! Transfers leadership from this member to a member of higher priority, when the election state machine decides that this
//! is due.

use crate::clock::Clock;
use crate::status::StatusHandle;
use crate::transfer::{self, TransferDone};
use std::time::Duration;
use tracing::{info, warn};

/// How long the target may take to accept. After that, this member keeps leading, and the election decides when a transfer
/// is due again.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Carries out each preemption that is due. Returns when the rest of the daemon has ended.
pub async fn run(mut status: StatusHandle, clock: Clock) {
    loop {
        let due = {
            let snapshot = status.snapshot.borrow();
            // Without Kerberos tickets the transfer would be refused. The preemption stays due until there are new
            // tickets.
            if snapshot.tickets_have_ended { None } else { snapshot.standing.due_preemption() }
        };
        if let Some(member) = due {
            info!("{member} has the highest priority: transferring leadership to it");
            match transfer::preempt(&status, clock, member, ACCEPT_TIMEOUT).await {
                Ok(TransferDone { leader, .. }) => {
                    info!("{}, a member of higher priority, leads", leader.leader.id);
                }
                Err(refusal) => warn!("transfer to a member of higher priority failed: {refusal}"),
            }
        }
        if status.late_changes.changed().await.is_err() {
            return;
        }
    }
}
