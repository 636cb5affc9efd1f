//! Has this member, while it leads, hand over to a member of higher priority, when the election says that it is time.

use crate::clock::Clock;
use crate::status::StatusHandle;
use crate::transfer::{self, Transferred};
use std::time::Duration;
use tracing::{info, warn};

/// For how long the other may take until it is ready.
const WITHIN: Duration = Duration::from_secs(30);

/// Hands over each time, until the rest of the daemon is gone.
pub async fn run(mut status: StatusHandle, clock: Clock) {
    loop {
        let due = status.snapshot.borrow_and_update().standing.due_bid();
        if let Some(bid) = due {
            info!("the {bid}, has stood for long enough: handing over");
            match transfer::yield_to(&status, clock, bid, WITHIN).await {
                Ok(Transferred { leader, .. }) => {
                    info!("handed over to {}, which has a higher priority", leader.leader.id);
                }
                Err(refusal) => warn!("not handed over to a member of higher priority: {refusal}"),
            }
        }
        if status.snapshot.changed().await.is_err() {
            return;
        }
    }
}
