//! Passes over names that the next members would get and that are taken, by znodes made by hand:
//! ZooKeeper would try the first of them again and again.

use super::context::{Context, REFUSED_DELAY, RETRY_DELAY, leave_if_lacking};
use super::join::refuse_sequence;
use super::znode::session_of;
use crate::random;
use crate::zookeeper::client::{Connection, is_verdict};
use ::zookeeper::{Acls, CreateMode, Error, Stat};
use recipes::Sequence;
use std::collections::BTreeSet;
use tokio::time::sleep;
use tracing::{debug, warn};

/// How many pairs of a create and a delete surely fit into a request, however long the path.
const PASSED_AT_ONCE: usize = 100;

/// The first taken name that was found while joining.
#[derive(Default)]
pub(super) struct NameTaken(Option<String>);

impl NameTaken {
    /// Uses up the numbers that are taken: whatever is created below another name uses one up.
    pub(super) async fn pass_over(&mut self, context: &Context, connection: &Connection) {
        let root = &context.settings.root;
        let (names, parent) = match connection.request(connection.client.get_children(root)).await {
            Ok(read) => read,
            // The next create tells what to do about it.
            Err(error) => {
                debug!(%error, "cannot tell what is in the way");
                return sleep(RETRY_DELAY).await;
            }
        };
        let next = next_number(&parent);
        if next == Sequence::LAST {
            return refuse_sequence(context, connection, i64::from(next)).await;
        }
        let prefix = context.settings.znodes.start(session_of(connection));
        let taken: BTreeSet<_> =
            names.iter().filter_map(|name| Sequence::of_name(name, &prefix)).collect();
        let count = (next..Sequence::LAST)
            .take_while(|number| {
                Sequence::new(*number).is_some_and(|sequence| taken.contains(&sequence))
            })
            .take(PASSED_AT_ONCE)
            .count();
        let name = format!("{root}/{prefix}{next:010}");
        if count == 0 {
            // The znode has gone since, or the current server does not show it.
            let _left_or_gone = leave_if_lacking(connection, &name).await;
            return sleep(RETRY_DELAY).await;
        }
        if self.0.is_none() {
            warn!(
                "{name} is in the way of the next member: ZooKeeper did not name it, so \
                 a client made it by hand; passed over. Delete it, and keep unknown clients out of {root}"
            );
        }
        let first = self.0.get_or_insert(name);
        match use_up(connection, root, count).await {
            Ok(()) => {}
            Err(error) if is_verdict(&error) => {
                context.set_problem(format!(
                    "{first} is in the way of the next member, and cannot be passed over ({error}): \
                     have it deleted"
                ));
                sleep(REFUSED_DELAY).await;
            }
            Err(error) => {
                debug!(%error, "numbers may be used up or not");
                sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Returns the number of the next sequential znode below this one: how many were created there so
/// far. `cversion` counts the created and the deleted ones, and the children are the created less the deleted
/// ones: their sum is twice the answer.
fn next_number(parent: &Stat) -> i32 {
    let twice = parent.cversion.wrapping_add(parent.num_children).cast_unsigned();
    (twice / 2).cast_signed()
}

/// Uses up `count` numbers: creates and deletes a znode that often, in one transaction, so that none is left behind.
async fn use_up(connection: &Connection, parent: &str, count: usize) -> Result<(), Error> {
    // No two clients choose the same name, and none that ends in digits as members' names do.
    let path = format!("{parent}/pass-{:032x}-", random::id());
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let used = connection.transact(2 * count, |writer| {
        for _ in 0..count {
            writer.add_create(&path, b"", &mode)?;
            writer.add_delete(&path, None)?;
        }
        Ok(())
    });
    used.await?.all_or_none()
}
