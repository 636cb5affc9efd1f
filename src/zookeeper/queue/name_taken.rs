//! Skips sequence numbers whose names are already taken by znodes that were created by hand.
//!
//! Suppose a client created `leader_0000000007` by hand, and 7 is the next number of the path. Each create of a member then
//! fails with `NodeExists`, and ZooKeeper does not use the number up, so the next create fails in the same way.

use super::context::{Context, REFUSED_DELAY, RETRY_DELAY, leave_server_if_missing};
use super::join::refuse_sequence;
use super::znode::session_of;
use crate::random;
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::{Acls, CreateMode, Error, Stat};
use recipes::Sequence;
use std::collections::BTreeSet;
use std::time::Duration;
use tracing::{debug, warn};

/// The largest number of sequence numbers that are skipped in one transaction. Each takes a create and a delete, which
/// contain the path, and servers limit the length of a request.
const MAX_SKIPPED_AT_ONCE: usize = 100;

/// The path of the first znode with a taken name that was found in this join; `None` before. Only that znode is logged.
#[derive(Default)]
pub(super) struct NameTaken(Option<String>);

impl NameTaken {
    /// Uses up the next numbers of the path whose names are taken, so that the next create gets the number after them. Each
    /// znode that is created under another name uses up one number. Returns the delay before the next create.
    pub(super) async fn skip_taken_numbers(
        &mut self,
        context: &Context,
        connection: &Connection,
    ) -> Duration {
        let root = &context.settings.root;
        let (names, parent) = match connection.request(connection.client.get_children(root)).await {
            Ok(read) => read,
            // Not reported here: if the error persists, the next create fails with it too, and reports the remedy.
            Err(error) => {
                debug!(%error, "cannot list the path to find the taken names");
                return RETRY_DELAY;
            }
        };
        let next = next_number(&parent);
        // The name with the last number is taken. To skip that number would overflow the counter.
        if next == Sequence::LAST {
            return refuse_sequence(context, connection, i64::from(next)).await;
        }
        let prefix = context.settings.znodes.name_start(session_of(connection));
        let taken: BTreeSet<i32> = names
            .iter()
            .filter_map(|name| Sequence::of_name(name, &prefix))
            .map(Sequence::number)
            .collect();
        let count = (next..Sequence::LAST)
            .take_while(|number| taken.contains(number))
            .take(MAX_SKIPPED_AT_ONCE)
            .count();
        let path = format!("{root}/{prefix}{next:010}");
        if count == 0 {
            // The znode with the taken name was deleted meanwhile, or the current server does not show it and is left. In
            // both cases the next create tries again, so the result is not needed.
            let _ignored = leave_server_if_missing(connection, &path).await;
            return RETRY_DELAY;
        }
        if self.0.is_none() {
            warn!(
                "{path} is in the way of the next member: ZooKeeper did not name it, so \
                 a client made it by hand; passed over. Delete it, and keep unknown clients out of {root}"
            );
        }
        let first = self.0.get_or_insert(path);
        match use_up(connection, root, count).await {
            Ok(()) => Duration::ZERO,
            Err(error) if is_server_answer(&error) => {
                context.set_problem(format!(
                    "{first} is in the way of the next member, and cannot be passed over ({error}): \
                     have it deleted"
                ));
                REFUSED_DELAY
            }
            Err(error) => {
                debug!(%error, "the taken numbers may or may not be used up");
                RETRY_DELAY
            }
        }
    }
}

/// Returns the number of the next sequential znode below this parent, which is the number of children created so far.
/// `cversion` counts creations and deletions, and the number of children is creations minus deletions, so their sum is
/// twice the answer.
fn next_number(parent: &Stat) -> i32 {
    let twice = parent.cversion.wrapping_add(parent.num_children).cast_unsigned();
    (twice / 2).cast_signed()
}

/// Uses up `count` numbers: creates and deletes a znode that many times in one transaction, so that no znode is left
/// behind.
async fn use_up(connection: &Connection, parent: &str, count: usize) -> Result<(), Error> {
    // The name is random, so that no two clients choose the same, and it does not end in digits as members' names do.
    let path = format!("{parent}/pass-{:032x}-", random::id());
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let used = connection.transact(2 * count, |writer| {
        for _ in 0..count {
            writer.add_create(&path, b"", &mode)?;
            writer.add_delete(&path, None)?;
        }
        Ok(())
    });
    used.await?.into_result()
}
